/* server/api/request.h: the bodies of requests, checked: what a client asked for, in our types. No model is needed
 * here, so that all of it can be tested and fuzzed without one. */
#pragma once

#include "server/api/fields.h"
#include "server/schedule/stops.h"

/* A text, or token ids when `ids` is not NULL. */
struct request_prompt {
    char *text;
    size_t size;
    int32_t *ids;
    int n_ids;
};

struct request_retrieval {
    bool given;                  /* the request has a retrieval object */
    bool enabled;                /* true unless it says false */
    int64_t k;                   /* 0: the server's */
    double min_similarity;       /* below -1: the server's */
    struct text_span *neighbors; /* [n_neighbors], owned */
    int n_neighbors;
};

struct completion_request {
    char *model; /* NULL: not named */
    struct request_prompt *prompts;
    int n_prompts;
    int64_t max_tokens, top_k, seed, logprobs; /* logprobs -1: none */
    bool has_seed;
    double temperature, top_p, min_p;
    bool stream, include_usage, echo, ignore_eos;
    struct stops stops;
    struct request_retrieval retrieval;
    bool has_target;
    struct request_prompt target; /* the answer's beginning, of a model with an encoder: "" unless has_target */
};

/* One field of a query string, decoded: name=value. */
struct query_argument {
    const char *name, *value;
};

struct search_request {
    char *query;
    size_t query_size;
    int64_t k;             /* 0: the server's */
    double min_similarity; /* below -1: the server's */
};

/* A request's limits are those of the model that it names. */
struct request_models {
    /* Those of a model, or of the server's choice when it is NULL. NULL with *f set: there is no such model. */
    const struct request_limits *(*limits)(void *context, const char *model, struct failure *f);
    void *context;
    const struct request_limits *largest; /* bounds what is parsed before the name is known */
};

/* On false *f is set; *r can be freed either way. */
bool completion_request_parse(struct completion_request *r, const char *body, size_t size,
                              const struct request_models *models, struct failure *f);
void completion_request_free(struct completion_request *r);
bool search_request_parse(struct search_request *r, const char *body, size_t size, const struct request_limits *l,
                          struct failure *f);
/* The same from the query string of a GET, where the query is called q. */
bool search_request_parse_query(struct search_request *r, const struct query_argument *arguments, int n,
                                const struct request_limits *l, struct failure *f);
void search_request_free(struct search_request *r);
