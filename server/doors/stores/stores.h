/* server/doors/stores/stores.h: the collection that is served, as a vector store whose files are
 * its documents. */
#pragma once

#include "config/json/json_writer.h"
#include "server/api/api.h"
#include "server/doors/fields/stores_fields.h"

/* The store's id. */
extern const char collection_store[];

/* Ids of files are those of documents behind a prefix, in letters that a path takes as they are. */
void file_put_id(struct json_writer *w, const char *key, const char *document);
/* The document of a file's id, which is a text of the caller's; NULL: it is no such id. */
char *file_document(const char *id);

/* Whether the list names stores that there are, and at least one. */
bool stores_check(const struct api *api, const struct json *ids, const char *field,
                  struct failure *failure);

/* The members of a search: k, min_similarity and filter, as of {"query"} and of "retrieval". */
struct store_choice {
    const struct json *filters, *max_num_results, *ranking_options;
    int usual; /* passages where the request does not say; 0: the server's choice */
};
bool store_put_choice(struct json_writer *w, const struct store_choice *choice, const char *field,
                      struct failure *failure);

/* 0 .. 1 of a hit that comes behind one of `before`: scores fall. */
double store_score(const struct hit *hit, double before);
