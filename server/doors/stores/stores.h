/* server/doors/stores/stores.h: OpenAI's files and vector stores. A file is a document of the
 * collection, and a vector store is the documents whose metadata says that they are in it
 * (file_facts.h); the collection itself is one store more. Names,
 * expiry and batches are in a file of their own (registry.h). Each key has its own files and
 * stores, and meets no other's. */
#pragma once

#include "config/json/json_writer.h"
#include "server/api/api.h"
#include "server/doors/fields/stores_fields.h"

/* The id of the store that is the collection. */
extern const char collection_store[];

struct stores;

struct stores_options {
    struct api *api;    /* whose first model has the collection */
    const char *folder; /* the collection's; NULL: it is in none, or there is none */
    int max_stores;     /* of a key (option server.max_vector_stores) */
};
/* Expired files are deleted by the model's document thread from then on, which is to be stopped
 * before stores_close. */
enum status stores_open(struct stores **out, const struct stores_options *options, struct error *e);
void stores_close(struct stores *stores); /* NULL: nothing */

/* Ids of files are those of documents behind a prefix, in letters that a path takes as they are. */
void file_put_id(struct json_writer *w, const char *key, const char *document);
/* The document of a file's id, which is a text of the caller's; NULL: it is no such id. */
char *file_document(const char *id);

/* Stores that are searched together. */
enum { STORES_OF_SEARCH = 8, STORE_NAME_BYTES = 40 };
struct store_set {
    char ids[STORES_OF_SEARCH][STORE_NAME_BYTES];
    int n;
};
/* Fills in the stores of a list of ids, which the client has and which did not expire, and at least
 * one. */
bool stores_find(struct api *api, const struct principal *who, const struct json *ids,
                 const char *field, struct store_set *out, struct failure *failure);

/* The members of a search: k, min_similarity and filter, as of {"query"} and of "retrieval". */
struct store_choice {
    const struct store_set *stores;
    const char *owner; /* of their files (struct key); NULL: the server has no keys */
    const struct json *filters, *max_num_results, *ranking_options;
    int usual; /* passages where the request does not say; 0: the server's choice */
};
bool store_put_choice(struct json_writer *w, const struct store_choice *choice, const char *field,
                      struct failure *failure);
static inline const char *store_owner(const struct principal *who) {
    return who->key ? who->key->owner : NULL;
}

/* 0 .. 1 of a hit that comes behind one of `before`: scores fall. */
double store_score(const struct hit *hit, double before);
/* The attributes of a hit's document in the first of the stores that has it. */
void store_put_attributes(struct json_writer *w, const struct served_model *model,
                          const struct hits *hits, int i, const struct store_set *stores);
