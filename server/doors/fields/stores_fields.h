/* server/doors/fields/stores_fields.h: the bodies and queries of vector stores and of files. */
#pragma once

#include "server/doors/fields/door_rows.h"

/* POST /v1/files: the parts of the form beside "file". */
struct file_form {
    char *purpose, *anchor, *seconds; /* owned; NULL: not there */
};
extern const struct json_table file_form_table;

/* POST /v1/vector_stores */
struct store_create_request {
    const struct json *name, *file_ids, *metadata, *expires_after, *chunking;
};
/* POST /v1/vector_stores/{id} */
struct store_modify_request {
    const struct json *name, *metadata, *expires_after;
};
extern const struct json_table store_create_table, store_modify_table;

/* POST /v1/vector_stores/{id}/files, and the items of a batch's "files" */
struct store_file_request {
    const struct json *file_id, *attributes, *chunking;
};
/* POST /v1/vector_stores/{id}/files/{file} */
struct store_file_change {
    const struct json *attributes;
};
/* POST /v1/vector_stores/{id}/file_batches */
struct batch_request {
    const struct json *file_ids, *files, *attributes, *chunking;
};
extern const struct json_table store_file_table, store_file_change_table, batch_table;

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

/* A list of files of the collection, in its order. */
enum files_purpose { PURPOSE_ANY, PURPOSE_ASSISTANTS, PURPOSE_USER_DATA };
struct files_query {
    int64_t limit;
    char *after; /* owned; NULL: from the first */
    int purpose; /* enum files_purpose */
};
extern const struct json_table files_query_table;

/* A list of stores, or of a store's files, by the time that they were made. */
struct stores_query {
    int64_t limit;
    int ascends;
    char *after, *before; /* owned; NULL: from the first, to the last */
    int state;            /* of files: enum file_state + 1; 0: any */
};
extern const struct json_table stores_query_table, store_files_query_table;
