/* server/doors/fields/stores_fields.h: the bodies and queries of vector stores and of files. */
#pragma once

#include "server/doors/fields/door_rows.h"

/* POST /v1/vector_stores/{id}/search */
struct store_search_request {
    const struct json *query, *filters, *max_num_results, *ranking_options;
};
extern const struct json_table store_search_table;

/* A tool of type file_search. */
struct file_search_tool {
    const struct json *type, *stores, *filters, *max_num_results, *ranking_options;
};
extern const struct json_table file_search_table;

/* A list of files. */
struct files_query {
    int64_t limit;
    char *after; /* owned; NULL: from the first */
};
extern const struct json_table files_query_table;
