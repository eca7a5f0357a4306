/* server/api/vectors/embedding.h: texts and pictures of a request on their way through an embedder,
 * for /v1/embeddings and /v1/rerank. Pictures are read before, some of them at a time: the pixels
 * of all would take much memory. */
#pragma once

#include "server/api/api.h"
#include "server/api/core/shared_answer.h"
#include "server/api/fields/embedding_fields.h"
#include "server/reading/embedding_thread.h"

/* Texts that wait for their vectors, and then for whoever writes the answer. */
struct embed_answer {
    struct shared_answer
        base; /* first; `reading` is pictures of the part, `done` that it has its vectors */
    const struct served_embedder *model;
    struct text_span *texts; /* [n] borrowed from the request */
    bool *is_picture;        /* [n] which of them are bytes of pictures */
    char **owned;            /* [n] texts that token ids stand for, or NULL */
    int n;
    int first_of_part, n_of_part; /* the inputs that are on their way */
    struct embedder_picture
        *pictures;                 /* [n] of those, where they are pictures; their pixels owned */
    size_t fetched;                /* bytes, of the pictures so far */
    struct principal principal;    /* held: who asks */
    struct text_span query;        /* beside which a reranker reads them */
    enum embed_role first, others; /* what text 0 is, and the others are */
    int64_t n_tokens;              /* of all texts, as the embedder reads them */
    float *vectors;                /* [n, dim] */
    bool wants_sparse;             /* and the sparse weights of each text: of a sparse embedder */
    struct sparse_rows sparse;
    bool cuts;     /* texts that are too long lose their ends, and are not refused */
    double opened; /* time_now() */
    void (*write)(struct embed_answer *answer, struct buffer *out);
    void (*free_request)(struct embed_answer *answer);
    union {
        struct embedding_request embedding;
        struct rerank_request rerank;
    } request;
    struct embedding_job job;
};

/* Empty, with both hooks set. */
struct embed_answer *embed_answer_open(struct waker waker,
                                       void (*write)(struct embed_answer *embed_answer,
                                                     struct buffer *out),
                                       void (*free_request)(struct embed_answer *embed_answer));
/* The embedder that requests of this kind are for, and their limits. */
struct request_models embed_models(struct api *api);
/* embeddings.c: the body of a request for embeddings, as OpenAI's; the answer is `write`'s. NULL
 * with *failure set: it is refused. */
struct answer *embeddings_answer_open(
    struct api *api, const struct api_request *request, struct waker waker, bool cuts,
    void (*write)(struct embed_answer *answer, struct buffer *out), struct failure *failure);
/* Fills in the embedder and the texts of the parsed request->embedding; `field` is where they were.
 */
bool embeddings_prepare(struct embed_answer *answer, struct api *api, const char *field,
                        struct failure *failure);
/* Vector i as it was asked for, of *n numbers. Once for each. */
float *embeddings_vector(struct embed_answer *answer, int i, int *n);
/* Takes the texts in; false with *failure set: one is no text for this embedder. */
bool embed_answer_add(struct embed_answer *answer, const struct request_prompt *prompt, int i,
                      const char *field, struct failure *failure);
/* Sends n texts to the embedder; the answer, or NULL with *failure set: the answer is gone then. */
struct answer *embed_answer_send(struct embed_answer *answer, const struct principal *who,
                                 struct failure *failure);
