/* server/api/fields/retrieval_fields.h: the object `retrieval` of a request: what is read beside the prompt. */
#pragma once

#include "retrieval/filter/filter.h"
#include "server/api/fields/fields.h"
#include "server/host/options/retrieval_mode.h"

/* Documents by the names that answers give them. */
struct document_names {
    struct text_span *all; /* [n], owned */
    int n;
};

/* What is told of the attention that neighbours got. */
enum told_attention { ATTENTION_UNTOLD, ATTENTION_OF_CHUNKS, ATTENTION_OF_TOKENS };
/* What an answer is compared with: nothing, the same without retrieval, or without some documents. */
enum compared_with { COMPARED_WITH_NOTHING, COMPARED_WITH_OFF, COMPARED_WITHOUT };

/* How hits are chosen; below 0: as the server does. */
struct request_choice {
    int hybrid, rerank, pictures;
    int64_t per_document;
    double distinct;
};
#define REQUEST_CHOICE_UNSAID \
    (struct request_choice) { .hybrid = -1, .rerank = -1, .pictures = -1, .per_document = -1, .distinct = -1 }
/* Its rows, whose offsets are into struct request_choice. */
extern const struct json_table choice_table;
static inline bool request_choice_is_said(const struct request_choice *c) {
    return c->hybrid >= 0 || c->rerank >= 0 || c->pictures >= 0 || c->per_document >= 0 || c->distinct >= 0;
}

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
    enum told_attention attention;
    struct request_choice choice;
    struct filter *filter; /* held; NULL: none */
    struct document_names excluded;
    enum compared_with compared;
    struct document_names without; /* of COMPARED_WITHOUT */
};

/* A row's parser; the row's offset is the request_retrieval's. */
extern const struct json_table retrieval_table;
void request_retrieval_init(struct request_retrieval *r);
enum status request_retrieval_read(struct json_reader *r, const struct json *value, struct request_retrieval *out);
void request_retrieval_free(struct request_retrieval *r);
