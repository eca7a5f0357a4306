/* retro/run/embed/encoder.h: an embedder: texts in, vectors out. The model is a stack of layers
 * alone, BERT's kind or a decoder's, on the same layer.c and kernels as the language models; the
 * rest is what a sentence-transformers folder says (encoder_folder.h). An encoder needs no other
 * state: several can be open at once. */
#pragma once

#include "config/base/buffer.h"
#include "config/base/sparse.h"
#include "retro/model/model.h"
#include "retro/run/embed/encoder_folder.h"
#include "retro/run/tower/tower.h"

struct encoder;

struct encoder_bytes {
    size_t weights, rows; /* rows: of one forward */
    bool mapped;          /* the weights are a file's */
};
/* Those of memory that no other program shares, and that nothing gives back under pressure. */
static inline size_t encoder_bytes_own(const struct encoder_bytes *bytes) {
    return bytes->rows + (bytes->mapped ? 0 : bytes->weights);
}

struct encoder_options {
    struct model_options model;
    int max_rows;   /* token rows of one forward: longer lists of texts are cut into several */
    int max_tokens; /* tokens of a text that are read; 0: as many as the folder says. More than that
                     * is STATUS_INVALID
                     */
};

/* Opens a sentence-transformers folder: config.json, safetensors, tokenizer.json or vocab.txt,
 * modules.json and what it names. */
enum status encoder_open(struct encoder **out, const char *folder, struct backend *backend,
                         const struct encoder_options *options, struct error *e);
/* Measures the bytes that it takes of the device. Loads nothing, but verifies the folder's model as
 * model_open does. */
enum status encoder_measure(struct encoder_bytes *out, const char *folder, struct backend *backend,
                            const struct encoder_options *options, struct error *e);
void encoder_close(struct encoder *enc);
int encoder_dim(const struct encoder *enc);
/* Whether vectors that are asked for raw may have another length than 1. Those of texts and
 * pictures never have. */
bool encoder_is_raw(const struct encoder *enc);
/* Whether texts have sparse weights (sparse_head.h). */
bool encoder_is_sparse(const struct encoder *enc);
int encoder_max_tokens(const struct encoder *enc);
uint64_t encoder_hash(const struct encoder *enc); /* of weights, vocabulary, pooling and modules,
                                                     but not of prompts */
/* The prompt that the folder puts before texts of this role; "" where it says nothing. */
const char *encoder_prompt(const struct encoder *enc, enum encoder_role role);

struct encoder_request {
    const struct text_span *texts;
    int n;
    const char *prompt; /* put before each text; "" or NULL: nothing */
    int dimensions;     /* of a vector, cut to its first numbers; 0: encoder_dim */
    bool raw;       /* vectors as the folder's last module gives them; else they are brought to unit
                       length */
    float *vectors; /* [n, dimensions], host; zeros for a text without tokens */
    int *n_tokens;  /* [n] that were read of each text, its prompt included; or NULL */
    struct sparse_rows *sparse; /* the sparse weights of each text are added here, from the same
                                   pass; NULL: none are wanted. Of an encoder that is sparse */
};

/* Whether pictures become vectors of the same space (dual_encoder.h). */
bool encoder_sees(const struct encoder *enc);
/* vectors [n, dimensions] of pictures, unit length; dimensions 0: encoder_dim. One caller at a
 * time, likewise. */
enum status encoder_embed_pictures(struct encoder *enc, const struct tower_picture *pictures, int n,
                                   int dimensions, float *vectors, struct error *e);

/* Texts longer than the limit are cut, as the reference does. Order is kept, and a vector does not
 * depend on the other texts. Not thread-safe: one caller at a time. */
enum status encoder_embed(struct encoder *enc, const struct encoder_request *request,
                          struct error *e);
