/* retro/weights/gguf_blocks.h: the types of GGUF tensors: blocks of quantised weights, and plain
 * floats.
 *
 * Every quantised type is, in runs of 32 weights, w[j] = unit * multiple[h] * q[j] + offset[h],
 * where h = j / 16, unit is an f16 of the block, multiples and q are small integers. So a run is
 * int8 without loss where no offset stands in the way and all multiple * q fit in 8 bits; int4
 * holds what has one offset and 16 levels. `loss` says what is lost otherwise. The formats: ggml's
 * documentation, docs/gguf.md and the comments of ggml-common.h. */
#pragma once

#include "config/base/buffer.h"
#include "kernels/quantise.h"

struct block_run {
    float unit, offset[2];
    int multiple[2];
    int8_t q[QUANTISE_BLOCK];
};

/* The difference between the weights in the file and those kept in `dtype`. */
enum block_loss {
    BLOCKS_EXACT,   /* the same numbers */
    BLOCKS_ROUNDED, /* scales and minimums are rounded to f16: off by at most 2^-11 of their size */
    BLOCKS_REQUANTISED /* runs that do not fit are rounded to int8 again */
};

struct block_form {
    uint32_t type; /* the file's number */
    const char *name;
    int elements, bytes; /* of one block */
    enum dtype dtype;    /* what files of ours keep it as; of plain floats their own */
    enum dtype kernel; /* what products on the CPU take: the super-blocks as they are, else dtype */
    enum block_loss loss;
    int low; /* the least q */
    /* The runs of one block; NULL: plain floats. */
    void (*unpack)(const uint8_t *block, struct block_run *runs);
};

/* NULL when the number is unknown or not supported. */
const struct block_form *block_form_find(uint32_t type);
/* "F32, F16, Q4_0, ...": the supported ones, for messages. */
void block_form_names(struct buffer *out);

static inline bool block_form_plain(const struct block_form *form) { return form->unpack == NULL; }
static inline size_t block_row_bytes(const struct block_form *form, int64_t n) {
    return (size_t)n / (size_t)form->elements * (size_t)form->bytes;
}

/* A row of n weights, whole blocks of them, as f32; plain floats too. */
void blocks_widen(float *w, const struct block_form *form, const void *row, int n);
/* The same as int8, int4 (those alone whose own dtype is int4) or the type's own super-blocks, n a
 * multiple of 32. Adds to *lost how far this is from the row; lost may be NULL. False when a scale
 * is not finite or does not fit f16: the row is unspecified then. */
bool blocks_quantise(enum dtype dtype, struct quantised_row to, const struct block_form *form,
                     const void *row, int n, struct deviation *lost);
