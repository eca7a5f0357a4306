/* tests/unit/gguf_build.h: GGUF files for tests, made in memory: keys first, then tensors, then
 * gguf_build. */
#pragma once

#include <string.h>

#include "retro/weights/gguf.h"
#include "tests/folder.h"

struct gguf_draft {
    struct buffer keys, tensors, data, file;
    uint64_t n_keys, n_tensors;
};

static inline void draft_number(struct buffer *b, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) buffer_append(b, &(char){(char)(v >> 8 * i)}, 1);
}

static inline void draft_text(struct buffer *b, const char *text) {
    draft_number(b, strlen(text), 8);
    buffer_append_string(b, text);
}

static inline void draft_key(struct gguf_draft *d, const char *key, enum gguf_type type) {
    d->n_keys++;
    draft_text(&d->keys, key);
    draft_number(&d->keys, type, 4);
}

static inline void draft_u32(struct gguf_draft *d, const char *key, uint32_t v) {
    draft_key(d, key, GGUF_U32);
    draft_number(&d->keys, v, 4);
}

static inline void draft_f32(struct gguf_draft *d, const char *key, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    draft_key(d, key, GGUF_F32);
    draft_number(&d->keys, bits, 4);
}

static inline void draft_word(struct gguf_draft *d, const char *key, const char *text) {
    draft_key(d, key, GGUF_TEXT);
    draft_text(&d->keys, text);
}

static inline void draft_list(struct gguf_draft *d, const char *key, enum gguf_type item,
                              uint64_t n) {
    draft_key(d, key, GGUF_LIST);
    draft_number(&d->keys, item, 4);
    draft_number(&d->keys, n, 8);
}

/* The type, and `bytes` bytes of data: 0, 1, 2, ... */
static inline void draft_data(struct gguf_draft *d, uint32_t type, size_t bytes) {
    draft_number(&d->tensors, type, 4);
    draft_number(&d->tensors, d->data.size, 8);
    for (size_t i = 0; i < bytes; i++) buffer_append(&d->data, &(char){(char)i}, 1);
    while (d->data.size % 32 != 0) buffer_append(&d->data, "", 1);
}

/* A tensor [rows, cols], rows 0: [cols]. */
static inline void draft_tensor(struct gguf_draft *d, const char *name, uint32_t type,
                                uint64_t rows, uint64_t cols, size_t bytes) {
    d->n_tensors++;
    draft_text(&d->tensors, name);
    draft_number(&d->tensors, rows ? 2 : 1, 4);
    draft_number(&d->tensors, cols, 8);
    if (rows) draft_number(&d->tensors, rows, 8);
    draft_data(d, type, bytes);
}

/* A tensor [experts, rows, cols] of F32. */
static inline void draft_experts(struct gguf_draft *d, const char *name, uint64_t experts,
                                 uint64_t rows, uint64_t cols) {
    const uint64_t dims[] = {cols, rows, experts};
    d->n_tensors++;
    draft_text(&d->tensors, name);
    draft_number(&d->tensors, 3, 4);
    for (int i = 0; i < 3; i++) draft_number(&d->tensors, dims[i], 8);
    draft_data(d, 0, (size_t)(experts * rows * cols) * sizeof(float));
}

static inline void draft_build(struct gguf_draft *d) {
    buffer_clear(&d->file);
    buffer_append_string(&d->file, "GGUF");
    draft_number(&d->file, 3, 4);
    draft_number(&d->file, d->n_tensors, 8);
    draft_number(&d->file, d->n_keys, 8);
    buffer_append(&d->file, d->keys.data, d->keys.size);
    buffer_append(&d->file, d->tensors.data, d->tensors.size);
    while (d->file.size % 32 != 0) buffer_append(&d->file, "", 1);
    buffer_append(&d->file, d->data.data, d->data.size);
}

static inline void draft_free(struct gguf_draft *d) {
    buffer_free(&d->keys);
    buffer_free(&d->tensors);
    buffer_free(&d->data);
    buffer_free(&d->file);
}
