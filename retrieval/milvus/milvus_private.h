/* retrieval/milvus/milvus_private.h: how a collection in Milvus lies in memory, and how its rows
 * are written. */
#pragma once

#include <pthread.h>

#include "retrieval/milvus/client/address.h"
#include "retrieval/milvus/client/answers.h"
#include "retrieval/milvus/milvus_collection.h"

enum {
    MILVUS_KEY_SIZE = 41,      /* 32 digits of the document, 8 of the chunk, a NUL */
    MILVUS_TEXT_BYTES = 65535, /* of a VarChar */
    MILVUS_PAGE = 500,         /* rows that are asked for at once */
    MILVUS_CHUNKS = 1 << 20,   /* of a document: some 256 MB of text */
    MILVUS_MOST_HITS = 16384   /* of a query: Milvus' limit */
};

/* The columns. */
#define COLUMN_KEY "key"
#define COLUMN_DOCUMENT "document"
#define COLUMN_CHUNK "chunk"
#define COLUMN_CHUNKS "chunks"
#define COLUMN_CONTENT "content"
#define COLUMN_START "start"
#define COLUMN_TEXT "text"
#define COLUMN_TOKENS "tokens"
#define COLUMN_MARKS "marks"
#define COLUMN_HEAD "head"
#define COLUMN_LABELS "labels"
#define COLUMN_VECTOR "vector"

enum { MILVUS_COLUMNS = 12 };
/* Data types of Milvus' schema.proto. */
enum milvus_type {
    MILVUS_INT64 = 5,
    MILVUS_VARCHAR = 21,
    MILVUS_JSON = 23,
    MILVUS_FLOAT_VECTOR = 101
};
struct milvus_column {
    const char *name;
    enum milvus_type type;
    int length; /* of a VarChar, in bytes */
};
extern const struct milvus_column milvus_columns[MILVUS_COLUMNS];

/* A document as it was when it was read, counted. */
struct milvus_document {
    atomic_int holders;
    char content[33]; /* of all below: a hash */
    struct collection_document document;
    struct buffer facts;
    size_t bytes; /* of memory */
};
struct milvus_document *milvus_document_hold(struct milvus_document *document);
void milvus_document_release(struct milvus_document *document); /* NULL: nothing */
struct stored_document milvus_document_stored(const struct milvus_document *document);

/* Documents that were read, the latest at the end. */
struct milvus_cache {
    pthread_mutex_t lock;
    struct milvus_document **list; /* [n], held */
    int n, capacity;
    size_t bytes;
};

struct milvus_collection {
    struct collection base;
    struct milvus *milvus;
    struct milvus_address address;
    struct collection_info info;
    struct milvus_cache cache;
    atomic_llong written; /* the server's time of the latest change of this program */
    pthread_mutex_t lock; /* newest */
    struct snapshot *newest;
};

struct milvus_message {
    const char *method;
    struct buffer body;
    bool answers_status;
};
/* Calls it and frees its body, on failure too. */
enum status milvus_ask(struct milvus_collection *milvus, struct milvus_message *message,
                       struct buffer *reply, struct error *e);

void milvus_key(const char *id, int chunk, char key[MILVUS_KEY_SIZE]);

/* The least that a query sees. */
enum milvus_sight {
    MILVUS_AS_ASKED, /* what the settings say */
    MILVUS_ALL,      /* all that was acknowledged: of what is to be changed */
    MILVUS_ARRIVED   /* what has arrived, without a wait */
};

/* Rows that an expression finds, with these columns; limit 0: all. */
struct milvus_query {
    const char *expression;
    const char *const *columns; /* [n_columns] */
    int n_columns, limit;
    enum milvus_sight sight;
};
/* *rows point into *reply; free both, on failure too. */
enum status milvus_query(struct milvus_collection *milvus, const struct milvus_query *query,
                         struct buffer *reply, struct answer_rows *rows, struct error *e);
/* Appends 'key in ["...", ...]' of chunks [first, first + n) of a document. */
void milvus_express_keys(struct buffer *out, const char *id, int first, int n);
/* Keys are 40 hexadecimal digits; anything else is no key of ours. STATUS_CORRUPT. */
enum status milvus_check_keys(const struct text_span *keys, int n, struct error *e);
/* Fields of a request that say what its reader may see: guarantee_timestamp and consistency_level
 * at their numbers. */
void milvus_put_consistency(const struct milvus_collection *milvus, struct buffer *out,
                            int timestamp_field, int level_field);

/* Rows of documents. */

/* A hash of all that a document is but its tokens, which follow from its text. */
void milvus_content(const struct collection_document *document, char content[33]);
/* A document that becomes rows. */
struct milvus_rows {
    const struct collection_document *document;
    const float *vectors; /* [n_chunks, dim] */
    const char *content;
    int n_chunks, dim;
};
/* Rows of any number of documents, for one request. Zero-initialise. */
struct milvus_batch {
    struct buffer columns[MILVUS_COLUMNS];
    int n, dim;
};
/* Adds rows [first, first + n) of a document. STATUS_TOO_LARGE names what does not fit; the batch
 * is as before then. */
enum status milvus_batch_add(struct milvus_batch *batch, const struct milvus_rows *rows, int first,
                             int n, struct error *e);
size_t milvus_batch_bytes(const struct milvus_batch *batch);
/* As the fields of an UpsertRequest. */
void milvus_batch_write(struct buffer *out, const struct milvus_batch *batch);
void milvus_batch_clear(struct milvus_batch *batch);
void milvus_batch_free(struct milvus_batch *batch);

/* A document that is wanted: of that id and content, with so many chunks. */
struct milvus_wanted {
    struct text_span id;
    char content[33];
    int n_chunks;
    struct milvus_document
        *found; /* held; NULL: it is not there as a whole, or of another content */
};
/* Finds all of them, in the cache or in Milvus. They are known to have been there a moment ago: a
 * search or a head says so. */
enum status milvus_fetch(struct milvus_collection *milvus, struct milvus_wanted *wanted, int n,
                         struct error *e);
/* The row of a document's first chunk, which tells of all. */
struct milvus_head {
    struct text_span id;
    char content[33];
    int n_chunks;
    char *path, *title, *metadata, *source, *file, *text_hash; /* owned */
    int64_t bytes;
};
void milvus_head_free(struct milvus_head *head);
/* Of row i. */
enum status milvus_head_read(struct milvus_head *out, const struct answer_rows *rows, int i,
                             struct error *e);
/* The document's head; out->n_chunks 0: there is none. out->id is not set. */
enum status milvus_find_head(struct milvus_collection *milvus, const char *id,
                             struct milvus_head *out, struct error *e);

/* Documents that were found, as a snapshot that chunks are read from. */
struct milvus_pin {
    struct snapshot base;
    struct milvus_collection *collection; /* asked for vectors; borrowed */
    struct milvus_document **documents;   /* [n_documents] held; NULL: one that has gone */
    struct pinned_chunk {
        int document, chunk;
    } * chunks;     /* [n_chunks] by id */
    float *vectors; /* [n_chunks, dim]; NULL: they are asked for when they are wanted */
    int n_documents, n_chunks, capacity;
};
struct milvus_pin *milvus_pin_make(struct milvus_collection *milvus, int n_documents);
/* Appends chunk `chunk` of a document; returns its id. */
int64_t milvus_pin_add(struct milvus_pin *pin, int document, int chunk);

/* The operations of the table of all collections (retrieval/collection.h). */
struct snapshot *milvus_hold(struct collection *collection);
enum status milvus_search(struct collection *collection, struct snapshot *snapshot,
                          const struct nearest_query *query, struct nearest_found *out,
                          struct error *e);
enum status milvus_find(struct collection *collection, const struct filter *filter, const char *id,
                        struct collection_found *out, struct error *e);
enum status milvus_walk(struct collection *collection, const struct collection_walk *walk,
                        struct error *e);
enum status milvus_count(struct collection *collection, int64_t *n_documents, int64_t *n_chunks,
                         struct error *e);
/* They ask for what is there as it is, whatever readers may see. */
enum status milvus_shows_all(struct collection *collection, const struct filter *filter,
                             const char *const *ids, int n, bool *shows, struct error *e);
enum status milvus_has_all(struct collection *collection,
                           const struct collection_document *const *documents, int n, bool *has,
                           struct error *e);
/* In order, by few calls. Where Milvus fails, those have failed that were not acknowledged, and
 * maybe some that were: to put them again leaves the same. */
void milvus_put_all(struct collection *collection, const struct filter *filter,
                    struct document_put *puts, int n);
enum status milvus_delete(struct collection *collection, const struct filter *filter,
                          const char *id, struct error *e);
static inline struct milvus_collection *milvus_of(struct collection *collection) {
    return (struct milvus_collection *)collection;
}
