/* server/api/api.h: what requests mean. A request comes in as method, path and body, an answer goes out; the HTTP
 * library is not seen here, the engine only through generations. */
#pragma once

#include "server/api/failure.h"
#include "server/api/fields/completion_fields.h"
#include "server/api/fields/search_fields.h"
#include "server/host/config.h"
#include "server/schedule/engine.h"

/* A model that requests may name, and what serves it. Everything is borrowed, and constant while the server runs. */
struct served_model {
    const char *id;
    const struct model_info *info;
    const struct tokenizer *tokenizer;
    int eod; /* ends and pads texts, -1: none */
    struct engine *engine;
    struct retrieval_thread *retrieval; /* NULL: the model has no collection of its own */
    struct retriever *retriever;        /* likewise */
    struct request_limits limits;
    bool retrieve; /* when a request does not say */
    int k;
    float min_similarity;
};

/* Everything is borrowed, and constant while the server runs but for `draining`. */
struct api {
    const struct served_model *models; /* [n_models], at least one; the first is meant when none is named */
    int n_models;
    struct request_limits largest; /* of any model */
    int64_t created;               /* seconds since 1970 of the start */
    atomic_bool draining;
};

struct api_request {
    const char *method, *path;
    const char *content_type; /* NULL: none */
    const char *body;
    size_t size;
    const struct query_argument *arguments; /* [n_arguments], of the query string */
    int n_arguments;
    uint64_t client; /* who asks: the same number, the same client */
};

/* Never NULL: what is wrong with a request is an answer too. `waker` is called until the answer is closed. */
struct answer *api_open(struct api *a, const struct api_request *r, struct waker waker);

/* Whether a path is an operators' endpoint, which answers also when all connections are busy. */
bool api_path_is_for_operators(const char *path);

/* models.c */

/* The model of that name, or the first when it is NULL; NULL, with *f set, when there is none. */
const struct served_model *api_model(const struct api *a, const char *id, struct failure *f);

/* Handlers: each opens the answer of one route, or returns NULL with *f set when there is nothing to wait for. */
typedef struct answer *route_handler(struct api *a, const struct api_request *r, struct waker waker, struct failure *f);
route_handler completions_open; /* completions.c: POST /v1/completions */
route_handler search_open;      /* search.c: /v1/retrieval/search */
route_handler models_list;      /* models.c: GET /v1/models */
route_handler model_show;       /* models.c: GET /v1/models/{id} */
route_handler health_open;      /* health.c: GET /health */
