/* server/api/fields/document_fields.h: documents as requests bring them. */
#pragma once

#include "retrieval/filter/filter.h"
#include "server/api/fields/fields.h"

struct document_request {
    char *id;               /* NULL: the server's, made of path or, without one, of the text */
    char *path, *title;     /* "" where it does not say */
    char *text;             /* never NULL once it is parsed */
    struct buffer metadata; /* a JSON object in text; empty: none */
};

extern const struct json_table document_table, document_list_table;

/* On false *f is set; *r can be freed either way. */
bool document_request_parse(struct document_request *r, const char *body, size_t size, const struct request_limits *l,
                            struct failure *f);
void document_request_free(struct document_request *r);

/* The query string of a list. */
struct document_list_request {
    int64_t limit;
    char *after;           /* the id behind which it begins; NULL: at the first */
    char *prefix;          /* of the paths that are listed; NULL: all */
    struct filter *filter; /* held: of the documents that are listed; NULL: all */
};
bool document_list_parse(struct document_list_request *r, const struct query_argument *arguments, int n,
                         const struct request_limits *l, struct failure *f);
void document_list_free(struct document_list_request *r);
