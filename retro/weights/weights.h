/* retro/weights/weights.h: safetensors files, read over mmap. Trusts nothing: header size, offsets, overlaps, dtype,
 * shape products and duplicate names are verified before any tensor is handed out. A folder may hold one
 * model.safetensors or several shards with model.safetensors.index.json. */
#pragma once

#include "config/base/buffer.h"

enum stored_dtype {
    STORED_F32,
    STORED_F16,
    STORED_BF16,
    STORED_F64,
    STORED_I64,
    STORED_I32,
    STORED_I16,
    STORED_I8,
    STORED_U8,
    STORED_BOOL
};

enum { STORED_MAX_DIMS = 8 };

/* One tensor in a file; data lives as long as the weights. It points into the map, or to a copy where the file does not
 * align it: it is always aligned for its dtype. */
struct stored_tensor {
    const char *name;
    enum stored_dtype dtype;
    int n_dims;
    int64_t shape[STORED_MAX_DIMS];
    size_t elements, bytes;
    const void *data;
};

struct weights;

/* Opens a .safetensors file, or a folder as described above. */
enum status weights_open(struct weights **out, const char *path, struct error *e);
/* A file's bytes in memory, for the fuzzer; borrowed until weights_close. */
enum status weights_open_memory(struct weights **out, const void *data, size_t size, const char *name, struct error *e);
void weights_close(struct weights *w);

int weights_count(const struct weights *w);
const struct stored_tensor *weights_at(const struct weights *w, int i);              /* in order of name */
const struct stored_tensor *weights_find(const struct weights *w, const char *name); /* NULL when absent */
int weights_index(const struct weights *w, const struct stored_tensor *t);           /* weights_at(w, i) == t */
/* "[192, 64]" for messages. */
const char *stored_shape_text(const struct stored_tensor *t, char *text, size_t size);
const char *stored_dtype_name(enum stored_dtype t);
