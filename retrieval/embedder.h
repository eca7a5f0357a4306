/* retrieval/embedder.h: texts in, vectors out. Retrieval knows no model: whoever sees both folders
 * (server, tools) fills this in with a model that gives rows
 * (server/host/documents/embedder_model.h); tests fill it in with a toy. Several embedders can be
 * open at once. */
#pragma once

#include <stdatomic.h>

#include "config/base/sparse.h"

/* The kind of a text, which decides the prompt that is put before it. */
enum embed_role {
    EMBED_PLAIN,    /* neither: what the embedder's folder puts before any text, if anything */
    EMBED_QUERY,    /* what documents are searched with */
    EMBED_DOCUMENT, /* what is searched */
    EMBED_ROLES
};

/* A picture as an embedder reads it. */
struct embedder_picture {
    float *pixels; /* [3, height, width] owned */
    int height, width;
};

struct embed_request {
    const struct text_span *texts; /* [n] */
    const struct embedder_picture
        *pictures; /* [n] in place of texts, for an embedder that sees; NULL: none */
    int n;
    struct text_span query; /* a reranker reads each text beside it */
    enum embed_role role;
    int dimensions; /* of a vector, 1 .. dim: its first numbers (Matryoshka); 0: dim */
    bool raw; /* vectors as the embedder's folder says, which may leave them at any length; an index
               * asks for those of unit length, so that a dot product is the cosine */
    float
        *vectors; /* [n, dimensions], in the order of the texts; zeros for a text without tokens */
    int *
        n_tokens; /* [n] that were read of each text, prompt and special tokens included; or NULL */
    struct sparse_rows
        *sparse; /* the sparse weights of each text are added here, in the order of
                    the texts; NULL: none are wanted. Of an embedder that is sparse */
};

/* A reranker (server/host/documents/reranker_model.h) has the same table: it reads texts beside a
 * query, and a vector is one number, the text's relevance, 0 .. 1. */
struct embedder {
    int dim;
    int max_tokens; /* of a text with its prompt; what comes after is not read */
    bool raw;       /* vectors that are asked for raw may have another length than 1 */
    bool sees;      /* pictures become vectors of the texts' space */
    bool sparse;    /* texts have sparse weights beside their vectors */
    uint64_t
        hash; /* of weights, vocabulary, pooling and limit: vectors of another hash do not mix */
    const char *name;
    const char *prompts[EMBED_ROLES]; /* never NULL; vectors of other prompts do not mix either */
    /* One caller at a time. STATUS_INVALID where dimensions is out of range. */
    enum status (*embed)(void *self, const struct embed_request *request, struct error *e);
    /* The picture of a file's bytes. Any number of callers, beside one of embed. NULL: the embedder
     * does not see. */
    enum status (*read_picture)(const void *self, struct text_span file,
                                struct embedder_picture *out, struct error *e);
    void *self;
};

/* An embedder that several states of a collection share: it is there as long as one of them is. */
struct held_embedder {
    struct embedder embedder;
    atomic_int holders;                        /* 1 when made: its maker's */
    void (*close)(struct held_embedder *held); /* by whoever lets go of it last; frees it */
};
static inline struct held_embedder *embedder_hold(struct held_embedder *held) {
    if (held) atomic_fetch_add(&held->holders, 1);
    return held;
}
static inline void embedder_release(struct held_embedder *held) { /* NULL: nothing */
    if (held && atomic_fetch_sub(&held->holders, 1) == 1) held->close(held);
}

/* NULL for a zeroed one, which is not open. */
static inline const struct embedder *embedder_if_open(const struct embedder *embedder) {
    return embedder->self ? embedder : NULL;
}

static inline enum status embedder_embed(const struct embedder *embedder,
                                         const struct embed_request *request, struct error *e) {
    return embedder->embed(embedder->self, request, e);
}

/* STATUS_UNSUPPORTED of an embedder that does not see, STATUS_INVALID and STATUS_TOO_LARGE of the
 * file. */
static inline enum status embedder_read_picture(const struct embedder *embedder,
                                                struct text_span file, struct embedder_picture *out,
                                                struct error *e) {
    if (embedder->sees) return embedder->read_picture(embedder->self, file, out, e);
    return error_set(e, STATUS_UNSUPPORTED, "the embedder %s reads texts, no pictures",
                     embedder->name);
}
