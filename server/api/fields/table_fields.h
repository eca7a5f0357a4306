/* server/api/fields/table_fields.h: questions about tables as requests bring them. */
#pragma once

#include "retrieval/tables/table_ask.h"
#include "server/api/fields/fields.h"

struct table_request {
    char *document;                 /* id or path */
    char *table;                    /* number, name or sheet; NULL: the only one */
    struct table_question question; /* what it points into belongs to `json` and `kept` */
    bool totals;
    int limit;
    struct buffer *kept; /* [n_kept] numbers of conditions, as texts */
    int n_kept, kept_capacity;
    struct json *json;
};
extern const struct json_table table_question_table;
bool table_request_parse(struct table_request *request, struct text_span body,
                         const struct request_limits *limits, struct failure *failure);
void table_request_free(struct table_request *request);

/* GET /v1/tables */
struct table_list_request {
    char *document; /* id or path; NULL: all */
    char *after;    /* the id of the document behind which the list begins; NULL: at the first */
    int64_t limit;
};
extern const struct json_table table_list_table;
bool table_list_parse(struct table_list_request *request, const struct query_argument *arguments,
                      int n, const struct request_limits *limits, struct failure *failure);
void table_list_free(struct table_list_request *request);

/* The parameters of a question in JSON Schema, as models with tools are given them. */
extern const char table_tool_json[];
