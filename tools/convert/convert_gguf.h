/* tools/convert/convert_gguf.h: what the files that write GGUF share. */
#pragma once

#include "retro/weights/gguf.h"
#include "tools/convert/convert.h"

/* Keys with values, as a file has them. */
struct gguf_keys {
    struct buffer bytes;
    int n;
};
void keys_put_int(struct gguf_keys *k, const char *key, uint32_t v);
void keys_put_float(struct gguf_keys *k, const char *key, float v);
void keys_put_bool(struct gguf_keys *k, const char *key, bool v);
void keys_put_text(struct gguf_keys *k, const char *key, struct text_span v);
/* The head of a list, whose n items the caller appends with the functions below. */
void keys_put_list(struct gguf_keys *k, const char *key, enum gguf_type item, size_t n);
void gguf_put_number(struct buffer *out, uint64_t v, int bytes);
void gguf_put_text(struct buffer *out, struct text_span text);

/* convert_gguf_tokens.c: tokenizer.json of a folder as keys; `rows` of the word table are named. STATUS_UNSUPPORTED for
 * what GGUF has no name for. */
enum status keys_put_tokenizer(struct gguf_keys *k, const char *folder, int rows, struct error *e);
