/* retrieval/generation/generation.h: chunks of documents on disk: a folder of immutable generations and CURRENT naming
 * one.
 *
 *   DIR/CURRENT              "gen-000001 <checksum of its MANIFEST>\n"
 *   DIR/gen-000001/chunks.tokens    u32 little endian, the tokens of all documents back to back
 *                  chunks.offsets   struct chunk_record[]: where each chunk lies in tokens and in the source text
 *                  documents        id, path, title, metadata, source and marks of each document, its range of chunks
 *                  documents.text   the text of all documents back to back
 *                  vectors.faiss    one vector per chunk, id = chunk number (vectors.f32 for the index "Exact")
 *                  vectors.f32      the vectors as they were embedded, where vectors.faiss keeps them only in part
 *                  pictures.chunks  u64, the first chunk of each picture, where pictures have an embedder of their own
 *                  pictures.faiss   one vector of that embedder per picture (pictures.f32 for "Exact")
 *                  MANIFEST         JSON: format version, counts, chunk length, metric, folder and hash of embedder
 *                                   and tokenizer, prompts, end-of-document id, index; length and XXH3 of each file
 * above
 *
 * A new generation is written whole, fsynced, then CURRENT is replaced by rename, so a reader or a crash sees the old
 * one or the new one. Opening verifies every checksum before anything is used. Chunk ids are global, in order of
 * documents, and mean nothing in another generation; a document's id is the same in all that hold it.
 *
 * Builds go on beside an open collection, and it keeps what it opened. store.h adds the changes since. */
#pragma once

#include <stdatomic.h>

#include "config/base/buffer.h"
#include "retrieval/embedder.h"
#include "retrieval/index/index.h"
#include "retrieval/marks.h"

struct disk_generation;

/* Where pictures have an embedder of their own: a second space of vectors, in which each picture has one, at its first
 * chunk. The chunks of its caption have vectors of the collection's embedder, as all chunks do. */
struct picture_space {
    const char *embedder; /* folder, as given when built; NULL: there is none */
    uint64_t embedder_hash;
    const char *query_prompt, *document_prompt; /* the embedder's */
    int dim;
    int64_t n;                 /* pictures */
    const char *index_factory; /* of their vectors; "" where n is 0 */
};

struct collection_info {
    int64_t n_documents, n_chunks, n_tokens;
    int chunk_length;
    int generation;
    int32_t eod;
    int32_t max_token; /* largest id in it, eod included: a model's vocabulary must be larger */
    int dim;
    uint64_t embedder_hash, tokenizer_hash;
    const char *embedder;                       /* folder, as given when built */
    const char *query_prompt, *document_prompt; /* the embedder's, which are part of every vector */
    const char *tokenizer;                      /* the same */
    const char *index_factory;
    struct picture_space pictures;
};

/* One chunk. Pointers live as long as the collection. */
struct chunk {
    int64_t id;
    int64_t document;         /* its number, in order */
    const char *document_id;  /* stable across generations */
    const char *path, *title; /* of the document; title may be "" */
    const char *metadata;     /* of the document: a JSON object, or "" */
    const uint32_t *tokens;
    int n_tokens;            /* 1 .. chunk_length */
    uint64_t start, end;     /* bytes of the document's text */
    struct text_span text;   /* these bytes */
    struct text_span source; /* all of the document's text */
    struct mark_span marks;  /* of the document */
};

/* A generation, as the files that belong to it name it. */
struct generation_origin {
    int generation;
    uint64_t manifest_checksum;
};
static inline bool origin_equal(struct generation_origin a, struct generation_origin b) {
    return a.generation == b.generation && a.manifest_checksum == b.manifest_checksum;
}
struct generation_origin disk_generation_origin(const struct disk_generation *c);
const char *disk_generation_folder(const struct disk_generation *c); /* of its generation */

/* Whether its log holds changes (store.h). */
bool disk_generation_is_changed(const struct disk_generation *c);
/* Opens the generation that CURRENT names. Errors name the file and what differs. */
enum status disk_generation_open(struct disk_generation **out, const char *dir, struct error *e);
/* The facts about a collection that its MANIFEST alone tells. */
struct collection_outline {
    struct collection_info info; /* its strings are the outline's */
    size_t index;                /* bytes in memory once it is open, with the table of documents */
    size_t mapped;               /* bytes of files: their pages come and go */
    size_t changes;              /* bytes of its log, whose documents are in memory */
    size_t text;                 /* bytes of the documents' text, of these */
};
enum status store_outline_read(struct collection_outline *out, const char *dir, struct error *e);
void collection_outline_free(struct collection_outline *o); /* of a zeroed one: nothing */
/* Lets go of it: it stays open as long as others hold it. NULL is let go of silently. */
void disk_generation_close(struct disk_generation *c);
/* One more holder, who closes it too; returns c. */
struct disk_generation *disk_generation_hold(struct disk_generation *c);
const struct collection_info *disk_generation_info(const struct disk_generation *c);
const struct index *disk_generation_index(const struct disk_generation *c);
/* The vectors of the pictures' own embedder, NULL where there are none. Their ids are numbers of pictures. */
const struct index *disk_generation_pictures(const struct disk_generation *c);
int64_t disk_generation_picture_chunk(const struct disk_generation *c,
                                      int64_t number); /* number in [0, n) of the pictures */
int64_t disk_generation_picture_of(const struct disk_generation *c, int64_t chunk); /* its number; -1: it begins none */
/* Where its index searches: index_move. Before the collection is shared with other threads. */
enum status disk_generation_move(struct disk_generation *c, const char *device, struct error *e);
/* Whether the collection was built with this embedder and its prompts; and with this tokenizer and chunk length, which
 * only models need that read its tokens. STATUS_INVALID says what differs. */
enum status collection_match_embedder(const struct collection_info *info, const struct embedder *embedder,
                                      struct error *e);
/* The same of the pictures' own embedder; NULL: nobody has one. */
enum status collection_match_picture_embedder(const struct collection_info *info, const struct embedder *embedder,
                                              struct error *e);
enum status collection_match_tokens(const struct collection_info *info, uint64_t tokenizer_hash, int chunk_length,
                                    struct error *e);

struct chunk disk_generation_chunk(const struct disk_generation *c, int64_t id);  /* id in [0, n_chunks) */
int64_t disk_generation_document_of(const struct disk_generation *c, int64_t id); /* the number of its document */
/* A document as a whole. Pointers live as long as the collection. */
struct stored_document {
    const char *id, *path, *title, *metadata;
    const char *source; /* as that of struct collection_document; "": none */
    struct text_span text;
    const char *text_hash; /* of a text whose size alone is at hand (retrieval/collection.h); else NULL */
    struct mark_span marks;
    struct text_span facts; /* of its metadata (retrieval/filter/facts.h) */
    int64_t first_chunk, n_chunks;
};
struct stored_document disk_generation_document_at(const struct disk_generation *c,
                                                   int64_t number); /* in [0, n_documents) */
/* The neighbour as the model reads it: the chunk and what follows it in the same document, cut or padded with eod to
 * ids [r] (docs/spec/retro-data.md 9; continuation never leaves the document, unlike Megatron's). */
void disk_generation_neighbor_tokens(const struct disk_generation *c, int64_t id, int r, int32_t *ids);

/* Verification for `retro-index verify`: everything disk_generation_open checks, and every id and range inside. */
enum status disk_generation_verify(const char *dir, struct error *e);

/* Writing: a builder collects documents into temporary files of a new generation and publishes it. Nothing under dir
 * that a reader sees changes before builder_commit returns; builder_abandon removes what was written. */
struct generation_builder;

struct collection_options {
    int chunk_length;
    int32_t eod;
    int dim;
    uint64_t embedder_hash, tokenizer_hash;
    const char *query_prompt, *document_prompt; /* the embedder's; NULL: "" */
    const char *embedder, *tokenizer; /* where they lie, for programs that are given nothing but the collection */
    const char *index_factory;        /* NULL: by size */
    struct picture_space pictures;    /* n and index are not read: the index is chosen by size */
    bool locked;                      /* the caller holds store_lock */
};
/* To make another collection by the same embedder and tokenizer; it points into info. Its index is chosen by size. */
struct collection_options collection_options_of(const struct collection_info *info);

/* The right to change the collection in dir, which one program has at a time: STATUS_BUSY while another one has it. The
 * folder is made where it is missing. */
enum status store_lock(int *lock, const char *dir, struct error *e);
/* The same, where another program's change takes less than ten seconds. */
enum status store_lock_soon(int *lock, const char *dir, struct error *e);
void store_unlock(int lock); /* -1: nothing */

enum status builder_create(struct generation_builder **out, const char *dir, const struct collection_options *o,
                           struct error *e);
/* A document cut into chunks: its tokens, `chunk_length` of them a chunk, the last chunk shorter. */
struct collection_document {
    const char *id;           /* the caller's own; NULL: document_id_of_path */
    const char *path, *title; /* path: the name that is shown, and that filters compare */
    const char *metadata;     /* a JSON object; NULL: none */
    const char *source; /* the file that it came from, a path without links, which clients are not shown; or NULL */
    struct text_span text;
    struct mark_span marks; /* of its pages, lines and headings */
    const int32_t *ids;     /* [n] */
    const uint32_t *bounds; /* [chunks + 1] where chunks begin in the text, in bytes; the last: where it ends */
    int n;
    const float *picture; /* [pictures.dim] of unit length, by the pictures' own embedder; NULL: it has none */
};
enum { DOCUMENT_ID_SIZE = 33 };
/* The id of a document that is known by its path alone: 32 hexadecimal digits, the same wherever and whenever. */
void document_id_of_path(const char *path, char id[DOCUMENT_ID_SIZE]);
/* Of a text: digits of the same kind, which no two texts share. */
void text_hash(struct text_span text, char hash[DOCUMENT_ID_SIZE]);
static inline int document_count_chunks(int n_tokens, int chunk_length) {
    return n_tokens / chunk_length + (n_tokens % chunk_length > 0);
}
/* STATUS_INVALID for an id that an earlier document has. */
enum status builder_add_document(struct generation_builder *b, const struct collection_document *d, struct error *e);
/* vectors [n, dim] of the next n chunks, in order. */
enum status builder_add_vectors(struct generation_builder *b, const float *vectors, int n, struct error *e);
/* The two halves of builder_commit. After the first the new generation is on the disk, whole, and no reader sees it;
 * the caller may add files of its own to its folder, and must go on with the second or with builder_abandon. The
 * second makes it the one that readers see. */
enum status builder_prepare(struct generation_builder *b, struct error *e);
/* Opens what builder_prepare has written. */
enum status builder_open_prepared(struct disk_generation **out, const struct generation_builder *b, struct error *e);
enum status builder_publish(struct generation_builder *b, struct error *e); /* frees b, on failure too */
enum status builder_commit(struct generation_builder *b, struct error *e);  /* frees b, on failure too */
void builder_abandon(struct generation_builder *b);

/* Makes the collection in `to` hold what the one in `from` holds at one moment of the call, its changes included, in a
 * new generation: a snapshot, or the way back from one. Readers and writers of `from` go on. The content that
 * `to` had stays on the disk until the next build or compaction there; `to` may be missing. Everything is on the disk,
 * and has been compared, before a reader sees it. STATUS_CORRUPT where `from` is damaged, STATUS_CANCELLED, STATUS_BUSY
 * for another writer of `to`: then `to` is as it was. */
enum status store_copy(const char *from, const char *to, const atomic_bool *cancelled, struct error *e);
