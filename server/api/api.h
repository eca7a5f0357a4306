/* server/api/api.h: what requests mean. A request comes in as method, path and body, an answer goes out; the HTTP
 * library is not seen here, the engine only through generations. */
#pragma once

#include "server/api/answer.h"
#include "server/api/request.h"
#include "server/host/config.h"
#include "server/schedule/engine.h"

/* Everything is borrowed, and constant while the server runs but for `draining`. */
struct api {
    const char *model_id;
    const struct model_info *info;
    const struct tokenizer *tokenizer;
    int eod; /* ends and pads texts, -1: none */
    struct engine *engine;
    struct retrieval_thread *retrieval;  /* NULL: the server has no collection of its own */
    const struct collection *collection; /* likewise */
    struct request_limits limits;
    bool retrieve; /* when a request does not say */
    int k;
    float min_similarity;
    int64_t created; /* seconds since 1970 of the start */
    atomic_bool draining;
};

struct api_request {
    const char *method, *path;
    const char *content_type; /* NULL: none */
    const char *body;
    size_t size;
    const struct query_argument *arguments; /* [n_arguments], of the query string */
    int n_arguments;
};

/* Never NULL: what is wrong with a request is an answer too. `waker` is called until the answer is closed. */
struct answer *api_open(struct api *a, const struct api_request *r, struct waker waker);

/* completions.c: POST /v1/completions */
struct answer *completions_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f);
/* search.c: /v1/retrieval/search. NULL, with *f set, when there is nothing to wait for. */
struct answer *search_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f);
