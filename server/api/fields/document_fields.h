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
    bool wait; /* of a body that is one document */
};

/* A body: one document, or several in a list. */
struct document_requests {
    struct document_request *list; /* [n] */
    int n;
    bool is_list; /* and the answer is one */
    bool wait;    /* the answer comes when all is over; else a job at once */
};
enum { DOCUMENTS_OF_REQUEST = 1000 };

/* A document; what a body may hold; and the query strings of a list, a change and a deletion. */
extern const struct json_table document_table, document_body_table;
extern const struct json_table document_list_table, document_post_table, document_delete_table;

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

/* The query string of a change: *wait is set to false where it says so. */
bool document_post_parse(bool *wait, const struct query_argument *arguments, int n,
                         const struct request_limits *limits, struct failure *failure);

/* The query string of a list, and, without limit, after and prefix, of a deletion. */
struct document_list_request {
    char *path; /* of one document, or, with a slash at its end, of a folder of them; NULL: any */
    int64_t limit;
    char *after;           /* the id behind which it begins; NULL: at the first */
    char *prefix;          /* of the paths that are listed; NULL: all */
    struct filter *filter; /* held: of the documents that are listed; NULL: all */
};
bool document_list_parse(struct document_list_request *request,
                         const struct query_argument *arguments, int n,
                         const struct request_limits *limits, struct failure *failure);
/* Likewise, with path or filter. */
bool document_delete_parse(struct document_list_request *request,
                           const struct query_argument *arguments, int n,
                           const struct request_limits *limits, struct failure *failure);
/* Whether `wanted`, as above, names a document of this path. */
bool document_path_is_named(const char *path, const char *wanted);
void document_list_free(struct document_list_request *request);
