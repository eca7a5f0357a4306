/* retro/run/embed/scorer.h: a cross-encoder: a query and a text are read together, and a number
 * says how well they fit. The model is BERT's kind on the same layers and kernels as the embedder's
 * (encoder.h), with Hugging Face's head for sequence classification (sequence_head.h); or a decoder
 * that is asked whether the text answers the query (Qwen3-Reranker, Zhang et al. 2025), and its
 * logit of yes less that of no. */
#pragma once

#include "retro/run/embed/encoder.h"

struct scorer;

/* How a scorer is opened: options as an encoder's, max_tokens of a pair; and the instruction of a
 * decoder that is asked, borrowed for the call; "": the published one. */
struct scorer_options {
    struct encoder_options encoder;
    const char *instruction;
};

/* Opens a folder with config.json, safetensors and a tokenizer. STATUS_INVALID where there is an
 * instruction for a model that reads none. */
enum status scorer_open(struct scorer **out, const char *folder, struct backend *backend,
                        const struct scorer_options *options, struct error *e);
/* Measures the bytes that it takes of the device. Loads nothing. */
enum status scorer_measure(struct encoder_bytes *out, const char *folder, struct backend *backend,
                           const struct scorer_options *options, struct error *e);
void scorer_close(struct scorer *scorer);
int scorer_max_tokens(
    const struct scorer *scorer); /* of a query, a text and what the tokenizer puts around them */
uint64_t scorer_hash(const struct scorer *scorer); /* of weights and vocabulary */

struct scorer_request {
    struct text_span query;
    const struct text_span *texts;
    int n;
    float *logits; /* [n], host */
    int *n_tokens; /* [n] that were read of each pair; or NULL */
};

/* The logit of each text beside the query; the order is kept, and a logit does not depend on the
 * other texts. A pair that is too long loses tokens at the end of the longer of the two, as the
 * reference's "longest_first" does; of a decoder that is asked, the query loses those behind a half
 * of what both may have, and then the text loses its end. A special token's name in either is plain
 * text, so no document forges a separator. One caller at a time. */
enum status scorer_score(struct scorer *scorer, const struct scorer_request *request,
                         struct error *e);
