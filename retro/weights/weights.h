/* retro/weights/weights.h: safetensors files, read over mmap. Trusts nothing: header size, offsets,
 * overlaps, dtype, shape products and duplicate names are verified before any tensor is handed out.
 * A folder may hold one model.safetensors or several shards with model.safetensors.index.json. A
 * GGUF file is opened as the folder of Hugging Face that it stands for (gguf_folder.h). */
#pragma once

#include "config/base/buffer.h"

struct block_form;

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
    STORED_BOOL,
    STORED_F8_E4M3, /* with factors in a tensor of their own (fp8_blocks.h) */
    STORED_BLOCKS   /* rows of blocks of `form` (gguf_blocks.h) */
};

enum { STORED_MAX_DIMS = 8 };

/* Value heads with states that lie as GGUF's files of Qwen3.5 have them: the first head of each key
 * head, then the second of each. In the family's files the heads of a key head are beside each
 * other. */
struct head_order {
    int64_t first;   /* rows before those of the heads, which lie as they are */
    int size;        /* rows of a head, or columns; 0: all lies as in the family's files */
    int keys, group; /* key heads, and the value heads of each */
    bool columns;    /* heads are columns, not rows */
};

/* Where row or column i of the family's files lies. */
static inline int64_t head_order_find(const struct head_order *order, int64_t i) {
    if (i < order->first) return i;
    int64_t head = (i - order->first) / order->size, at = (i - order->first) % order->size;
    int64_t key = head / order->group, place = head % order->group;
    return order->first + (place * order->keys + key) * order->size + at;
}

/* One tensor in a file; data lives as long as the weights. It points into the map, or to a copy
 * where the file does not align it: it is always aligned for its dtype.
 *
 * Tensors of GGUF files lie in their own order: `turned` as [out, in] where the family's files have
 * [in, out]; `paired`, the rows of a head, where RoPE turns rows 2i and 2i + 1 of a head and the
 * family's files have them at i and i + half; `apart`, the rows of a head, where all queries, keys
 * and values follow one another and the family's files have those of a head beside each other (0:
 * they lie as in the family's files); heads with states as `heads` says.
 *
 * Experts that a file stacks in one tensor [experts, out, in] are tensors of their own here, [out,
 * in], as in the files that do not stack them. */
struct stored_tensor {
    const char *name;
    enum stored_dtype dtype;
    int n_dims;
    int64_t shape[STORED_MAX_DIMS];
    size_t elements, bytes;
    const void *data;
    const struct block_form *form; /* of STORED_BLOCKS, else NULL */
    bool turned;
    int paired, apart;
    struct head_order heads;
};

/* Where row i of the family's files lies. */
static inline int64_t stored_row(const struct stored_tensor *stored, int64_t i) {
    if (stored->paired > 0) {
        int64_t at = i % stored->paired, half = stored->paired / 2;
        return i - at + (at < half ? 2 * at : 2 * (at - half) + 1);
    }
    if (stored->apart > 0) {
        int64_t part = i / stored->apart % 3, head = i / stored->apart / 3;
        return part * (stored->shape[0] / 3) + head * stored->apart + i % stored->apart;
    }
    if (stored->heads.size > 0 && !stored->heads.columns) return head_order_find(&stored->heads, i);
    return i;
}

/* Whether rows and columns lie as in the family's files. */
static inline bool stored_in_order(const struct stored_tensor *stored) {
    return stored->paired == 0 && stored->apart == 0 && stored->heads.size == 0;
}

/* How the columns of a tensor lie that is read as rows of `cols`; NULL: as in the family's files.
 */
static inline const struct head_order *stored_columns(const struct stored_tensor *stored,
                                                      int64_t cols) {
    bool vector = stored->n_dims == 1 && cols > 1; /* as one row */
    return stored->heads.size > 0 && (stored->heads.columns || vector) ? &stored->heads : NULL;
}

struct weights;

/* Opens a .safetensors file, a .gguf file, or a folder as described above or with a model.gguf
 * alone. */
enum status weights_open(struct weights **out, const char *path, struct error *e);
/* A safetensors file's bytes in memory, for the fuzzer; borrowed until weights_close. */
enum status weights_open_memory(struct weights **out, const void *data, size_t size,
                                const char *name, struct error *e);
void weights_close(struct weights *weights);
/* From now on a page of the files that is not in memory is read by itself, and not with those
 * around it: tensors are used in no order. Advice to the system. */
void weights_read_apart(const struct weights *weights);
/* Hashes the names and bytes of all tensors at a path into *hash, which is the seed. */
enum status weights_hash(const char *path, uint64_t *hash, struct error *e);

int weights_count(const struct weights *weights);
const struct stored_tensor *weights_at(const struct weights *weights, int i); /* in order of name */
const struct stored_tensor *weights_find(const struct weights *weights,
                                         const char *name); /* NULL when absent */
int weights_index(const struct weights *weights,
                  const struct stored_tensor *stored); /* weights_at(w, i) == t */
/* "[192, 64]" for messages. */
const char *stored_shape_text(const struct stored_tensor *stored, char *text, size_t size);
const char *stored_dtype_name(enum stored_dtype dtype);
