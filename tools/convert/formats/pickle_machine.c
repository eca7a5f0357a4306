/* tools/convert/formats/pickle_machine.c: see pickle_machine.h. */
#include "tools/convert/formats/pickle_machine.h"

#include <stdlib.h>
#include <string.h>

enum { MEMORY_LIMIT = 512 << 20, BLOCK_BYTES = 1 << 16, FIRST_ITEMS = 4 };

enum status machine_fail(const struct pickle_machine *machine, const char *what) {
    return error_set(machine->e, STATUS_CORRUPT, "%s: byte %zu of the pickle: %s", machine->name,
                     (size_t)(machine->at - machine->start), what);
}

void *machine_take_memory(struct pickle_machine *machine, size_t bytes) {
    struct pickle_block *block = machine->p->blocks;
    bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (block == NULL || block->size - block->used < bytes) {
        size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        block = size > MEMORY_LIMIT - machine->p->taken ? NULL : malloc(sizeof *block + size);
        if (block == NULL) {
            error_set(machine->e, STATUS_TOO_LARGE,
                      "%s: its pickle takes more than %d MB of memory", machine->name,
                      MEMORY_LIMIT >> 20);
            return NULL;
        }
        *block = (struct pickle_block){.next = machine->p->blocks, .size = size};
        machine->p->blocks = block;
        machine->p->taken += size;
    }
    void *p = (char *)block->bytes + block->used;
    block->used += bytes;
    memset(p, 0, bytes);
    return p;
}

enum status machine_take_bytes(struct pickle_machine *machine, uint64_t n, const uint8_t **out) {
    if (n > (uint64_t)(machine->end - machine->at))
        return machine_fail(machine, "a value is longer than the file");
    *out = machine->at;
    machine->at += n;
    return STATUS_OK;
}

enum status machine_take_number(struct pickle_machine *machine, size_t n, uint64_t *out) {
    const uint8_t *p = NULL;
    *out = 0;
    if (machine_take_bytes(machine, n, &p)) return machine->e->status;
    for (size_t i = n; i > 0; i--) *out = *out << 8 | p[i - 1];
    return STATUS_OK;
}

enum status machine_take_line(struct pickle_machine *machine, struct text_span *out) {
    const uint8_t *end = memchr(machine->at, '\n', (size_t)(machine->end - machine->at));
    if (end == NULL || end - machine->at > NAME_LIMIT)
        return machine_fail(machine, "a name has no end");
    *out = (struct text_span){(const char *)machine->at, (size_t)(end - machine->at)};
    machine->at = end + 1;
    return STATUS_OK;
}

enum status machine_push(struct pickle_machine *machine, pickle_slot v) {
    if (machine->n_stack == DEPTH_LIMIT) return machine_fail(machine, "the stack grows too high");
    machine->stack =
        xgrow(machine->stack, machine->n_stack, &machine->stack_capacity, sizeof *machine->stack);
    machine->stack[machine->n_stack] = v;
    machine->n_stack++;
    return STATUS_OK;
}

enum status machine_push_new(struct pickle_machine *machine, enum pickle_kind kind,
                             pickle_slot *out) {
    pickle_slot v = machine_take_memory(machine, sizeof *v);
    if (v == NULL) return machine->e->status;
    v->kind = kind;
    *out = v;
    return machine_push(machine, v);
}

int machine_floor(const struct pickle_machine *machine) {
    return machine->n_marks > 0 ? machine->marks[machine->n_marks - 1] : 0;
}

enum status machine_pop(struct pickle_machine *machine, pickle_slot *out) {
    if (machine->n_stack <= machine_floor(machine))
        return machine_fail(machine, "takes a value from an empty stack");
    machine->n_stack--;
    *out = machine->stack[machine->n_stack];
    return STATUS_OK;
}

enum status machine_top(struct pickle_machine *machine, pickle_slot *out) {
    if (machine->n_stack <= machine_floor(machine))
        return machine_fail(machine, "looks at an empty stack");
    *out = machine->stack[machine->n_stack - 1];
    return STATUS_OK;
}

enum status machine_pop_mark(struct pickle_machine *machine, int *from) {
    if (machine->n_marks == 0) return machine_fail(machine, "ends a list that has no beginning");
    machine->n_marks--;
    *from = machine->marks[machine->n_marks];
    return STATUS_OK;
}

static enum status append(struct pickle_machine *machine, pickle_slot to, pickle_slot item) {
    if (to->count == to->capacity) {
        size_t capacity = to->capacity == 0 ? FIRST_ITEMS : 2 * to->capacity;
        const struct pickle_value **items = machine_take_memory(machine, capacity * sizeof *items);
        if (items == NULL) return machine->e->status;
        if (to->count > 0) memcpy(items, to->items, to->count * sizeof *items);
        to->items = items;
        to->capacity = capacity;
    }
    to->items[to->count] = item;
    to->count++;
    return STATUS_OK;
}

enum status machine_append_from(struct pickle_machine *machine, pickle_slot to, int from) {
    for (int i = from; i < machine->n_stack; i++)
        if (append(machine, to, machine->stack[i])) return machine->e->status;
    machine->n_stack = from;
    return STATUS_OK;
}

enum status machine_push_mark(struct pickle_machine *machine) {
    if (machine->n_marks == DEPTH_LIMIT) return machine_fail(machine, "too many lists are open");
    machine->marks =
        xgrow(machine->marks, machine->n_marks, &machine->mark_capacity, sizeof *machine->marks);
    machine->marks[machine->n_marks] = machine->n_stack;
    machine->n_marks++;
    return STATUS_OK;
}
