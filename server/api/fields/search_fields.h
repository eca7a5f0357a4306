/* server/api/fields/search_fields.h: what a search asks for, in a body or in a query string. */
#pragma once

#include "retrieval/filter/filter.h"
#include "server/api/fields/fields.h"

struct search_request {
    char *query; /* a text, or the bytes of a picture's file */
    size_t query_size;
    bool by_picture;
    bool explain;                   /* each hit tells what put it where it stands */
    bool operators;                 /* the query has "phrases", -words and begin* */
    struct retrieval_choice choice; /* as it was asked */
    struct filter *filter;          /* held; NULL: none */
    bool boxes;                     /* results tell where on their pages they stand */
};

extern const struct json_table search_body_table, search_query_table, search_picture_table;

/* On false *failure is set; *request can be freed either way. */
bool search_request_parse(struct search_request *request, const char *body, size_t size,
                          const struct request_limits *limits, struct failure *failure);
/* The same from a value that is parsed already. */
bool search_request_read(struct search_request *request, const struct json *json,
                         const struct request_limits *limits, struct failure *failure);
/* The same from the query string of a GET, where the query is called q. */
bool search_request_parse_query(struct search_request *request,
                                const struct query_argument *arguments, int n,
                                const struct request_limits *limits, struct failure *failure);
/* The same from the body of a search by a picture. */
bool search_request_parse_picture(struct search_request *request, const char *body, size_t size,
                                  const struct request_limits *limits, struct failure *failure);
void search_request_free(struct search_request *request);
