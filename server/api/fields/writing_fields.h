/* server/api/fields/writing_fields.h: how an answer is to be written: the fields that completions
 * and chats share.
 *
 * A request takes them in with one row of its table,
 *     {.type = JSON_ROWS, JSON_AT(struct completion_request, writing), .table = &writing_table}
 * after request_writing_init, and calls request_writing_check when all is read. */
#pragma once

#include "server/api/fields/guide_fields.h"
#include "server/api/fields/retrieval_fields.h"
#include "server/schedule/stops.h"

/* Added to the logit of one token at every draw. */
struct request_bias {
    int32_t id;
    float bias;
};

struct request_writing {
    double temperature, top_p, min_p;
    double presence_penalty, frequency_penalty, repetition_penalty;
    double repeat_penalty; /* 0: the request gives none */
    int64_t top_k;         /* 0 and -1: all */
    int64_t no_repeat_ngram_size;
    int64_t seed;
    bool has_seed;
    int64_t n; /* answers to one prompt */
    int64_t min_tokens;
    bool ignore_eos;
    struct stops stops;
    struct request_ids stop_ids;
    bool include_stop;           /* the stop string or token is part of the text */
    struct request_bias *biases; /* [n_biases] owned, each id once */
    int n_biases;
    bool return_token_ids;
    bool stream, include_usage, has_stream_options;
    struct request_retrieval retrieval;
    struct request_guide guide; /* what the answer must be */
    struct buffer prediction;   /* what it is expected to be */
};

extern const struct json_table writing_table;
/* Sets the defaults that rows cannot give as a fallback; the rest is in the table. */
void request_writing_init(struct request_writing *writing);
/* Fields that the body does not give, from the generation_config.json of the request's model. A
 * body that is NULL gives none. */
void request_writing_defaults(struct request_writing *writing, const struct json *body,
                              const struct request_limits *limits);
void request_writing_free(struct request_writing *writing);
/* Checks the fields against each other. max_tokens is the request's. */
bool request_writing_check(const struct request_writing *writing, int64_t max_tokens,
                           struct failure *failure);
