/* tools/convert/sink/convert_gguf.h: what the files that write GGUF share. */
#pragma once

#include "retro/model/model_private.h"
#include "retro/weights/gguf_architectures.h"
#include "tools/convert/sink/sink.h"

/* Keys with values, as a file has them. */
struct gguf_keys {
    struct buffer bytes;
    int n;
};
void keys_put_int(struct gguf_keys *keys, const char *key, uint32_t v);
void keys_put_float(struct gguf_keys *keys, const char *key, float v);
void keys_put_bool(struct gguf_keys *keys, const char *key, bool v);
void keys_put_text(struct gguf_keys *keys, const char *key, struct text_span span);
/* The head of a list, whose n items the caller appends with the functions below. */
void keys_put_list(struct gguf_keys *keys, const char *key, enum gguf_type item, size_t n);
void gguf_put_number(struct buffer *out, uint64_t v, int bytes);
void gguf_put_text(struct buffer *out, struct text_span text);

/* convert_gguf_tokens.c: tokenizer.json of a folder as keys; `rows` of the word table are named.
 * STATUS_UNSUPPORTED for what GGUF has no name for. */
enum status keys_put_tokenizer(struct gguf_keys *keys, const char *folder, int rows,
                               struct error *e);

enum { WRITTEN_FACTORS = 2 };

/* Vectors by which the frequencies of RoPE are divided. */
struct written_factors {
    const char *names[WRITTEN_FACTORS];
    float values[WRITTEN_FACTORS][ATTENTION_MAX_HEAD];
    int n;
};

/* An architecture of llama.cpp as a model is written to it (convert_gguf_architecture.c). */
struct written_architecture {
    const struct architecture *rows; /* keys and names, as they are read */
    const struct family
        *family;     /* that reads such a file, and names the folder's tensor of each place */
    bool every_bias; /* zeros where the model has no bias */
    struct written_factors factors;
};

/* STATUS_UNSUPPORTED names the option that GGUF has no word for. */
enum status architecture_choose(const struct model *model, struct written_architecture *out,
                                struct error *e);
/* The keys of the architecture's rows. */
void keys_put_shape(struct gguf_keys *keys, const struct model *model,
                    const struct written_architecture *architecture);
