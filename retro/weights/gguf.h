/* retro/weights/gguf.h: GGUF files, read over mmap: metadata (keys with values) and tensors as they
 * are stored. Trusts nothing: counts, strings, types, shapes, offsets and duplicate names are
 * verified before anything is handed out. gguf_folder.h shows such a file as a folder of Hugging
 * Face.
 *
 * A file is: "GGUF", u32 version, u64 tensors, u64 keys, the keys, the tensors' descriptions, and
 * the data, which begins at a multiple of general.alignment. All is little-endian. A model may be
 * cut into files NAME-00001-of-0000N: the first has the metadata, and all have tensors. */
#pragma once

#include "config/base/buffer.h"
#include "retro/weights/gguf_blocks.h"

struct gguf;

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_TEXT,
    GGUF_LIST,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES
};

/* One value. A list has `count` items of `item`, which are no lists; other values have count 1. */
struct gguf_value {
    struct text_span key; /* not NUL-terminated */
    enum gguf_type type, item;
    uint64_t count;
    const uint8_t *data; /* of the value, or of a list's first item */
};

enum { GGUF_MAX_DIMS = 4, GGUF_NAME = 64 };

struct gguf_tensor {
    char name[GGUF_NAME + 1];
    const struct block_form *form;
    int n_dims;
    int64_t shape[GGUF_MAX_DIMS]; /* rows first, as everywhere here; the file has columns first */
    size_t elements, bytes;
    const uint8_t *data;
};

/* Opens a file, and with the first of a split model all others. */
enum status gguf_open(struct gguf **out, const char *path, struct error *e);
/* A file's bytes in memory, for the fuzzer; borrowed until gguf_close. */
enum status gguf_open_memory(struct gguf **out, const void *data, size_t size, const char *name,
                             struct error *e);
/* Puts the file of a vision tower beside that of its model, which closes it (gguf_tower.h). */
void gguf_join(struct gguf *model, struct gguf *tower);
const struct gguf *gguf_joined(const struct gguf *model); /* NULL: there is none */
/* Notes how many towers lie beside a model and were left, so that its users can be told: of a model
 * with a tower the same ones with fewer bits, else those of others. */
void gguf_leave_towers(struct gguf *model, int n);
int gguf_left_towers(const struct gguf *model);
void gguf_close(struct gguf *gguf);
const char *gguf_name(const struct gguf *gguf); /* for messages: the path */

int gguf_count(const struct gguf *gguf);
const struct gguf_tensor *gguf_at(const struct gguf *gguf, int i); /* in order of name */
const struct gguf_tensor *gguf_find(const struct gguf *gguf,
                                    const char *name); /* NULL when absent */

int gguf_value_count(const struct gguf *gguf);
const struct gguf_value *gguf_value_at(const struct gguf *gguf, int i);
const struct gguf_value *gguf_value_find(const struct gguf *gguf,
                                         const char *key); /* NULL when absent */

/* Scalars, false where the value is NULL or of another kind. Integers and truth values of every
 * width are integers; those beyond int64_t are none. A number may be an integer. */
bool gguf_int(const struct gguf_value *value, int64_t *out);
bool gguf_number(const struct gguf_value *value, double *out);
bool gguf_text(const struct gguf_value *value, struct text_span *out);

/* Items of a list, one after another: struct gguf_items it = gguf_items_of(value); while
 * (gguf_next(&it, &item)) ... An item is a value without a key. Nothing of a value that is no list.
 */
struct gguf_items {
    const uint8_t *at;
    uint64_t left;
    enum gguf_type item;
};
struct gguf_items gguf_items_of(const struct gguf_value *value);
bool gguf_next(struct gguf_items *it, struct gguf_value *item);
