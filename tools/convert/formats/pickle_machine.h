/* tools/convert/formats/pickle_machine.h: memory, bytes, stack and marks of the machine that reads
 * a pickle. Private to pickle.c, which has its opcodes. */
#pragma once

#include "tools/convert/formats/pickle.h"

enum {
    NAME_LIMIT = 256,
    DEPTH_LIMIT = 4 << 20 /* of the stack, and of numbered values */
};

/* Memory that goes with the pickle. */
struct pickle_block {
    struct pickle_block *next;
    size_t used, size;
    max_align_t bytes[];
};

struct pickle {
    struct pickle_block *blocks;
    size_t taken;
    const struct pickle_value *root;
};

typedef struct pickle_value *pickle_slot;

/* One pickle being read. */
struct pickle_machine {
    struct pickle *p;
    const char *name;
    const uint8_t *start, *at, *end;
    pickle_slot *stack;
    int n_stack, stack_capacity;
    int *marks; /* heights of the stack */
    int n_marks, mark_capacity;
    pickle_slot *memo;
    size_t n_memo, memo_capacity, next_memo;
    bool known; /* classes of modules that are not known are refused */
    struct error *e;
};

/* STATUS_CORRUPT, with the byte that was read last. */
enum status machine_fail(const struct pickle_machine *machine, const char *what);

/* Zeroed memory that goes with the pickle; NULL, with the error set, at the limit. */
void *machine_take_memory(struct pickle_machine *machine, size_t bytes);
/* The next n bytes; the next little-endian number of n bytes, up to 8; the rest of a line. */
enum status machine_take_bytes(struct pickle_machine *machine, uint64_t n, const uint8_t **out);
enum status machine_take_number(struct pickle_machine *machine, size_t n, uint64_t *out);
enum status machine_take_line(struct pickle_machine *machine, struct text_span *out);

enum status machine_push(struct pickle_machine *machine, pickle_slot v);
enum status machine_push_new(struct pickle_machine *machine, enum pickle_kind kind,
                             pickle_slot *out);
/* The height that the stack had at the newest mark, 0 without: values below it are not taken. */
int machine_floor(const struct pickle_machine *machine);
enum status machine_pop(struct pickle_machine *machine, pickle_slot *out);
enum status machine_top(struct pickle_machine *machine, pickle_slot *out);
enum status machine_push_mark(struct pickle_machine *machine);
/* Removes the newest mark; the values above it are stack[*from, n_stack). */
enum status machine_pop_mark(struct pickle_machine *machine, int *from);
/* Moves stack[from, n_stack) to the end of a value. */
enum status machine_append_from(struct pickle_machine *machine, pickle_slot to, int from);
