/* retrieval/embedder.h: text in, vector out. Retrieval knows no model: whoever sees both folders (server, tools) fills
 * this in with a BERT encoder; tests fill it in with a toy. */
#pragma once

#include "config/base/buffer.h"

struct embedder {
    int dim;
    int max_tokens; /* of a text; what comes after is not read */
    uint64_t hash;  /* of weights, vocabulary and pooling: vectors of another hash do not mix */
    const char *name;
    /* vectors [n, dim], unit length. One caller at a time. */
    enum status (*embed)(void *self, const struct text_span *texts, int n, float *vectors, struct error *e);
    void *self;
};
