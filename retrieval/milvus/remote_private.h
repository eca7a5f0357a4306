/* retrieval/milvus/remote_private.h: how a collection in Milvus lies in memory, and how its rows are written. */
#pragma once

#include <pthread.h>

#include "retrieval/milvus/address.h"
#include "retrieval/milvus/answers.h"
#include "retrieval/milvus/remote.h"

enum {
    REMOTE_KEY_SIZE = 41,      /* 32 digits of the document, 8 of the chunk, a NUL */
    REMOTE_TEXT_BYTES = 65535, /* of a VarChar */
    REMOTE_PAGE = 500,         /* rows that are asked for at once */
    REMOTE_MOST_HITS = 16384   /* of a query: Milvus' limit */
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

enum { REMOTE_COLUMNS = 12 };
/* Data types of Milvus' schema.proto. */
enum remote_type { REMOTE_INT64 = 5, REMOTE_VARCHAR = 21, REMOTE_JSON = 23, REMOTE_FLOAT_VECTOR = 101 };
struct remote_column {
    const char *name;
    enum remote_type type;
    int length; /* of a VarChar, in bytes */
};
extern const struct remote_column remote_columns[REMOTE_COLUMNS];

/* Documents that were read, the latest at the end. */
struct remote_cache {
    pthread_mutex_t lock;
    struct remote_document **list; /* [n], held */
    int n, capacity;
    size_t bytes;
};

struct remote {
    struct milvus *milvus;
    struct milvus_address address;
    struct collection_info info;
    struct remote_cache cache;
    atomic_llong written; /* the server's time of the latest change of this program */
    pthread_mutex_t lock; /* newest */
    struct snapshot *newest;
};

struct remote_message {
    const char *method;
    struct buffer body;
    bool answers_status;
};
/* Calls it and frees its body, on failure too. */
enum status remote_call(struct remote *r, struct remote_message *m, struct buffer *reply, struct error *e);

void remote_key(const char *id, int chunk, char key[REMOTE_KEY_SIZE]);

/* The least that a query sees. */
enum remote_sight {
    REMOTE_AS_ASKED, /* what the settings say */
    REMOTE_ALL,      /* all that was acknowledged: of what is to be changed */
    REMOTE_ARRIVED   /* what has arrived, without a wait */
};

/* Rows that an expression finds, with these columns; limit 0: all. */
struct remote_query {
    const char *expression;
    const char *const *columns; /* [n_columns] */
    int n_columns, limit;
    enum remote_sight sight;
};
/* *rows point into *reply; free both, on failure too. */
enum status remote_query(struct remote *r, const struct remote_query *q, struct buffer *reply, struct answer_rows *rows,
                         struct error *e);
/* Appends 'key in ["...", ...]' of chunks [first, first + n) of a document. */
void remote_express_keys(struct buffer *out, const char *id, int first, int n);
/* Keys are 40 hexadecimal digits; anything else is no key of ours. STATUS_CORRUPT. */
enum status remote_check_keys(const struct text_span *keys, int n, struct error *e);
/* Fields of a request that say what its reader may see: guarantee_timestamp and consistency_level at their numbers. */
void remote_put_consistency(const struct remote *r, struct buffer *out, int timestamp_field, int level_field);

/* Rows of documents. */

/* A hash of all that a document is but its tokens, which follow from its text. */
void remote_content(const struct collection_document *d, char content[33]);
/* A document that becomes rows. */
struct remote_rows {
    const struct collection_document *document;
    const float *vectors; /* [n_chunks, dim] */
    const char *content;
    int n_chunks, chunk_length, dim;
};
/* Rows of any number of documents, for one request. Zero-initialise. */
struct remote_batch {
    struct buffer columns[REMOTE_COLUMNS];
    int n, dim;
};
/* Adds rows [first, first + n) of a document. STATUS_TOO_LARGE names what does not fit; the batch is as before then. */
enum status remote_batch_add(struct remote_batch *b, const struct remote_rows *rows, int first, int n, struct error *e);
size_t remote_batch_bytes(const struct remote_batch *b);
/* As the fields of an UpsertRequest. */
void remote_batch_write(struct buffer *out, const struct remote_batch *b);
void remote_batch_clear(struct remote_batch *b);
void remote_batch_free(struct remote_batch *b);

/* A document that is wanted: of that id and content, with so many chunks. */
struct remote_wanted {
    struct text_span id;
    char content[33];
    int n_chunks;
    struct remote_document *found; /* held; NULL: it is not there as a whole, or of another content */
};
/* Finds all of them, in the cache or in Milvus. They are known to have been there a moment ago: a search or a head says
 * so. */
enum status remote_fetch(struct remote *r, struct remote_wanted *wanted, int n, struct error *e);
struct remote_document *remote_document_hold(struct remote_document *d);

/* The row of a document's first chunk, which tells of all. */
struct remote_head {
    struct text_span id;
    char content[33];
    int n_chunks;
    char *path, *title, *metadata, *source, *text_hash; /* owned */
    int64_t bytes;
};
void remote_head_free(struct remote_head *h);
/* Of row i. */
enum status remote_head_read(struct remote_head *out, const struct answer_rows *rows, int i, struct error *e);
/* The document's head; out->n_chunks 0: there is none. out->id is not set. */
enum status remote_find_head(struct remote *r, const char *id, struct remote_head *out, struct error *e);
