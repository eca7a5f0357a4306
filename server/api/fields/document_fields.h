/* server/api/fields/document_fields.h: documents as requests bring them. */
#pragma once

#include "retrieval/filter/filter.h"
#include "server/api/fields/fields.h"

struct document_request {
    char *id;               /* NULL: the server's, made of path or, without one, of the text */
    char *path, *title;     /* "" where it does not say */
    char *text;             /* never NULL once it is parsed */
    struct buffer metadata; /* a JSON object in text; empty: none */
    struct buffer
        file; /* with is_file: the bytes of a file of the name `path`, which has the text */
    bool is_file;
};

/* A body: one document, or several in a list. */
struct document_requests {
    struct document_request *list; /* [n] */
    int n;
    bool is_list; /* and the answer is one */
};
enum { DOCUMENTS_OF_REQUEST = 1000 };

extern const struct json_table document_table, document_list_table;

/* {"text": ...}, or {"documents": [{"text": ...}, ...]}. On false *failure is set; *requests can be
 * freed either way. */
bool document_requests_parse(struct document_requests *requests, struct text_span body,
                             const struct request_limits *limits, struct failure *failure);
/* multipart/form-data: parts "file", each with a filename, and at most one each of "id", "path" and
 * "title" (of a single file) and "metadata" (of every file). Likewise. */
bool document_form_parse(struct document_requests *requests, const char *content_type,
                         struct text_span body, const struct request_limits *limits,
                         struct failure *failure);
void document_requests_free(struct document_requests *requests);

/* The query string of a list. */
struct document_list_request {
    int64_t limit;
    char *after;           /* the id behind which it begins; NULL: at the first */
    char *prefix;          /* of the paths that are listed; NULL: all */
    struct filter *filter; /* held: of the documents that are listed; NULL: all */
};
bool document_list_parse(struct document_list_request *request,
                         const struct query_argument *arguments, int n,
                         const struct request_limits *limits, struct failure *failure);
void document_list_free(struct document_list_request *request);
