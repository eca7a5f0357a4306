/* retrieval/document.h: documents and their chunks, as collections of all kinds take and show them.
 */
#pragma once

#include <string.h>

#include "config/base/sparse.h"
#include "config/base/text.h"
#include "retrieval/filter/filter.h"
#include "retrieval/marks.h"

/* Where chunks end. */
enum chunk_cut {
    CHUNKS_TEXT, /* with blocks and sentences: 1 .. chunk length tokens; parts may be in none */
    CHUNKS_GRID  /* after chunk length tokens, the last chunk with the text: Megatron's database */
};
extern const struct json_choice chunk_cuts[]; /* their names */
static inline const char *chunk_cut_name(enum chunk_cut cut) {
    return cut == CHUNKS_GRID ? "grid" : "text";
}
enum { CHUNK_MAX_CONTEXT = 1024 }; /* tokens before a chunk that are embedded with it */
/* A chunk of a document: bytes [start, end) of its text, and n_tokens of its tokens from `token`
 * on. */
struct chunk_range {
    uint32_t start, end, token, n_tokens;
};
_Static_assert(sizeof(struct chunk_range) == 16, "ranges are stored as they are");

/* A document cut into chunks. */
struct collection_document {
    const char *id;           /* the caller's own; NULL: document_id_of_path */
    const char *path, *title; /* path: the name that is shown, and that filters compare */
    const char *metadata;     /* a JSON object; NULL: none */
    const char *source; /* the file that it came from, a path without links, which clients are not
                           shown; or NULL */
    const char *file; /* what finds that file's bytes again (retrieval/kept/kept_file.h); or NULL */
    struct text_span text;
    struct mark_span marks; /* of its pages, lines and headings */
    const int32_t *ids;     /* [n] */
    int n, n_chunks;
    const struct chunk_range *chunks; /* [n_chunks] in order */
    uint64_t mark; /* collection_vector_mark of what its vectors are of: a put refuses those of
                      another embedder. 0: they are of the collection's, whichever that is */
    const float *picture; /* [pictures.dim] of unit length, by the pictures' own embedder; NULL: it
                             has none */
    struct sparse_table sparse; /* [n_chunks] of its chunks, where the collection has such; without
                                   ends: it has none */
};
/* The title; of a document without one the name of its file. */
struct text_span document_title(const struct collection_document *document);
enum { DOCUMENT_ID_SIZE = 33 };
/* The id of a document that is known by its path alone: 32 hexadecimal digits, the same wherever
 * and whenever. */
void document_id_of_path(const char *path, char id[DOCUMENT_ID_SIZE]);
/* Of a text: digits of the same kind, which no two texts share. */
void text_hash(struct text_span text, char hash[DOCUMENT_ID_SIZE]);
/* Chunks of a grid. */
static inline int document_count_chunks(int n_tokens, int chunk_length) {
    return n_tokens / chunk_length + (n_tokens % chunk_length > 0);
}

/* A document as a whole. Pointers live as long as the snapshot that it was found in. */
struct stored_document {
    const char *id, *path, *title, *metadata;
    const char *source; /* as that of struct collection_document; "": none */
    const char *file;   /* likewise */
    struct text_span text;
    const char *text_hash; /* of a text whose size alone is at hand (collection_walk); else NULL */
    struct mark_span marks;
    struct text_span facts; /* of its metadata (retrieval/filter/facts.h) */
    int64_t first_chunk;    /* in the snapshot; -1: its chunks are not at hand */
    int64_t n_chunks;
};
/* The same for another collection: what a caller adds are tokens, chunks and the picture's vector.
 */
static inline struct collection_document document_again(const struct stored_document *document) {
    return (struct collection_document){
        .id = document->id,
        .path = document->path,
        .title = document->title,
        .metadata = document->metadata[0] ? document->metadata : NULL,
        .source = document->source,
        .file = document->file,
        .text = document->text,
        .marks = document->marks};
}
/* Whether the filter allows the document. NULL allows all. */
static inline bool document_is_allowed(const struct filter *filter,
                                       const struct stored_document *document) {
    return filter == NULL ||
           filter_allows(filter,
                         &(struct filter_subject){
                             .id = document->id, .path = document->path, .facts = document->facts});
}
/* filter_allows or filter_admits; and its answer for a document, of which id, path and metadata are
 * looked at. */
typedef bool filter_question(const struct filter *f, const struct filter_subject *s);
enum status document_ask_filter(const struct filter *filter, filter_question *asks,
                                const struct collection_document *document, bool *yes,
                                struct error *e);
/* Called for each of several documents. Another status than STATUS_OK ends the walk. */
typedef enum status document_taker(void *context, const struct stored_document *d, struct error *e);

/* One chunk. Pointers live as long as the snapshot. */
struct chunk {
    int64_t id;
    int64_t document;         /* the number of its document in the snapshot */
    const char *document_id;  /* stable across generations */
    const char *path, *title; /* of the document; title may be "" */
    const char *metadata;     /* of the document: a JSON object, or "" */
    const uint32_t *tokens; /* [n_following] of the chunk and of what follows it in its document */
    int n_tokens;           /* of the chunk: 1 .. chunk_length */
    int n_following;
    int token;               /* tokens of the document before the chunk */
    uint64_t start, end;     /* bytes of the document's text */
    struct text_span text;   /* these bytes */
    struct text_span source; /* all of the document's text */
    struct mark_span marks;  /* of the document */
};
/* All tokens of the chunk's document, and how many these are. */
static inline const int32_t *chunk_document_ids(const struct chunk *chunk) {
    return (const int32_t *)chunk->tokens - chunk->token;
}
static inline int chunk_document_tokens(const struct chunk *chunk) {
    return chunk->token + chunk->n_following;
}
static inline struct chunk_range chunk_range_of(const struct chunk *chunk) {
    return (struct chunk_range){(uint32_t)chunk->start, (uint32_t)chunk->end,
                                (uint32_t)chunk->token, (uint32_t)chunk->n_tokens};
}
/* Chunk i of a document that is held as it was put. `number` is the document's. */
struct chunk document_chunk(const struct collection_document *document, int i, int64_t number);

/* The bounds of a document's chunks. */
struct chunk_limits {
    enum chunk_cut cut;
    int chunk_length;
    uint64_t n_tokens, text_size; /* of the document */
};
/* The fault of a chunk that comes behind `before` (NULL: it is the first); NULL: there is none. */
const char *chunk_range_fault(const struct chunk_limits *limits, const struct chunk_range *before,
                              const struct chunk_range *range, bool last);
/* The first fault of all chunks of a document, whose n is at least 1. */
const char *document_chunks_fault(const struct collection_document *document, enum chunk_cut cut,
                                  int chunk_length);

/* How a change went. */
enum change_effect {
    CHANGE_NOTHING,
    CHANGE_ADDED,
    CHANGE_REPLACED,
    CHANGE_DELETED,
    CHANGE_REFUSED
};
/* One of several documents that are put together: what to put, and how it went. */
struct document_put {
    const struct collection_document *document;
    const float *vectors; /* [chunks, dim] */
    int n_embedded; /* chunks whose vectors were computed for this: the caller's own, which puts do
                       not read */
    enum change_effect effect;
    enum status status;
    struct error error;
};
