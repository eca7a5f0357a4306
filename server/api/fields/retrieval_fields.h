/* server/api/fields/retrieval_fields.h: the object `retrieval` of a request: what is read beside the prompt. */
#pragma once

#include "server/api/fields/fields.h"
#include "server/host/retrieval_mode.h"

struct request_retrieval {
    bool given;                  /* the request has a retrieval object */
    bool enabled;                /* true unless it says false */
    int64_t k;                   /* 0: the server's */
    double min_similarity;       /* below -1: the server's */
    int mode;                    /* enum retrieval_mode; auto: the server's */
    int query;                   /* enum retrieval_query, -1: the server's */
    int64_t every;               /* 0: never, -1: the server's */
    struct text_span *neighbors; /* [n_neighbors], owned */
    int n_neighbors;
};

/* A row's parser; the row's offset is the request_retrieval's. */
extern const struct json_table retrieval_table;
void request_retrieval_init(struct request_retrieval *r);
enum status request_retrieval_read(struct json_reader *r, const struct json *value, struct request_retrieval *out);
void request_retrieval_free(struct request_retrieval *r);
