/* server/api/fields/retrieval_fields.h: the object `retrieval` of a request: what is read beside
 * the prompt. */
#pragma once

#include "retrieval/filter/filter.h"
#include "server/api/fields/fields.h"
#include "server/host/options/retrieval_choice.h"

/* Owned copies of a request's texts. */
struct text_list {
    struct text_span *all; /* [n] */
    int n;
};

/* Whether the attention that neighbours got is told. */
enum told_attention { ATTENTION_UNTOLD, ATTENTION_OF_CHUNKS, ATTENTION_OF_TOKENS };
/* The other side of a comparison: none, the same without retrieval, or without some documents. */
enum compared_with { COMPARED_WITH_NOTHING, COMPARED_WITH_OFF, COMPARED_WITHOUT };

/* Zeroed: nothing is said. */
struct request_retrieval {
    bool given;                     /* the request has a retrieval object */
    struct retrieval_choice choice; /* as it was asked; complete once retrieval_settle was called */
    struct text_list neighbors;     /* texts in the place of a search */
    enum told_attention attention;
    bool boxes;                /* passages and quotes tell where on their pages they stand */
    struct filter *filter;     /* held; NULL: none */
    struct text_list excluded; /* documents, by the names that answers give them */
    enum compared_with compared;
    struct text_list without; /* of COMPARED_WITHOUT */
};

extern const struct json_table retrieval_table;
/* Reads the object. */
enum status request_retrieval_read(struct json_reader *reader, const struct json *value,
                                   struct request_retrieval *out);
void request_retrieval_free(struct request_retrieval *retrieval);
