/* retro/run/encoder.h: a BERT-style sentence embedder: texts in, unit vectors out (mean pooling and L2 norm as the
 * folder's 1_Pooling/config.json and modules.json say). Runs on the same layer.c and kernels as the language models. */
#pragma once

#include "config/base/buffer.h"
#include "retro/model/model.h"

struct encoder;

struct encoder_bytes {
    size_t weights, rows; /* rows: of one forward */
    bool mapped;          /* the weights are a file's */
};

/* Opens a sentence-transformers folder: config.json, model.safetensors, vocab.txt or tokenizer.json,
 * 1_Pooling/config.json. max_rows bounds the token rows of one forward: longer lists are cut into several. */
enum status encoder_open(struct encoder **out, const char *folder, struct backend *b, const struct model_options *o,
                         int max_rows, struct error *e);
/* Measures the bytes that it takes of the device. Loads nothing, but verifies the folder's model as model_open does. */
enum status encoder_measure(struct encoder_bytes *out, const char *folder, struct backend *b,
                            const struct model_options *o, int max_rows, struct error *e);
void encoder_close(struct encoder *enc);
int encoder_dim(const struct encoder *enc);
int encoder_max_tokens(const struct encoder *enc); /* of a text, special ones included */
uint64_t encoder_hash(const struct encoder *enc);  /* of weights, vocabulary and pooling: an index remembers it */

/* vectors [n, dim], host. Texts longer than the folder's limit are cut, as the reference does. Order is kept. Not
 * thread-safe: one caller at a time. */
enum status encoder_embed(struct encoder *enc, const struct text_span *texts, int n, float *vectors, struct error *e);
