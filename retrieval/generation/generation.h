/* retrieval/generation/generation.h: chunks of documents on disk: a folder of immutable generations
 * and CURRENT naming one.
 *
 *   DIR/CURRENT              "gen-000001 <checksum of its MANIFEST>\n"
 *   DIR/gen-000001/chunks.tokens    u32 little endian, the tokens of all documents back to back
 *                  chunks.offsets   struct chunk_record[]: where each chunk lies in tokens and in
 * the source text documents        id, path, title, metadata, source, file and marks of each
 * document, its range of chunks documents.text   the text of all documents back to back
 * chunks.words     which chunks have which words (retrieval/words/words.h)
 * chunks.sparse    the sparse weights of chunks, where the embedder gives such
 * (retrieval/sparse/sparse_index.h)
 * vectors.faiss    one vector per chunk, id = chunk number (vectors.f32 for the index "Exact")
 * vectors.f32      the vectors as they were embedded, where vectors.faiss keeps them only in part
 * pictures.chunks  u64, the first chunk of each picture, where pictures have an embedder of their
 * own pictures.faiss one vector of that embedder per picture (pictures.f32 for "Exact") MANIFEST
 * JSON: format version, counts, chunk length, metric, folder and hash of embedder and tokenizer,
 * prompts, end-of-document id, index; length and XXH3 of each file above
 *
 * A new generation is written whole, fsynced, then CURRENT is replaced by rename, so a reader or a
 * crash sees the old one or the new one. Opening verifies every checksum before anything is used.
 * Chunk ids are global, in order of documents, and mean nothing in another generation; a document's
 * id is the same in all that hold it.
 *
 * Builds go on beside an open collection, and it keeps what it opened. store.h adds the changes
 * since. */
#pragma once

#include <stdatomic.h>

#include "retrieval/collection.h"
#include "retrieval/index/index.h"
#include "retrieval/sparse/sparse_index.h"
#include "retrieval/words/words.h"

struct disk_generation;

/* A generation, as the files that belong to it name it. */
struct generation_origin {
    int generation;
    uint64_t manifest_checksum;
};
static inline bool origin_equal(struct generation_origin left, struct generation_origin right) {
    return left.generation == right.generation && left.manifest_checksum == right.manifest_checksum;
}
struct generation_origin disk_generation_origin(const struct disk_generation *generation);
const char *disk_generation_folder(
    const struct disk_generation *generation); /* of its generation */

/* Whether its log holds changes (store.h). */
bool disk_generation_is_changed(const struct disk_generation *generation);
/* Opens the generation that CURRENT names. Errors name the file and what differs. */
enum status disk_generation_open(struct disk_generation **out, const char *dir, struct error *e);
/* The facts about a collection that its MANIFEST alone tells. */
struct collection_outline {
    struct collection_info info; /* its strings are the outline's */
    size_t index;                /* bytes in memory once it is open, with the table of documents */
    size_t mapped;               /* bytes of files: their pages come and go */
    size_t changes;              /* bytes of its log, whose documents are in memory */
};
enum status generation_outline_read(struct collection_outline *out, const char *dir,
                                    struct error *e);
void collection_outline_free(struct collection_outline *outline); /* of a zeroed one: nothing */
/* Lets go of it: it stays open as long as others hold it. NULL is let go of silently. */
void disk_generation_close(struct disk_generation *generation);
/* One more holder, who closes it too; returns the generation. */
struct disk_generation *disk_generation_hold(struct disk_generation *generation);
const struct collection_info *disk_generation_info(const struct disk_generation *generation);
const struct index *disk_generation_index(const struct disk_generation *generation);
/* The vectors of the pictures' own embedder, NULL where there are none. Their ids are numbers of
 * pictures. */
const struct index *disk_generation_pictures(const struct disk_generation *generation);
int64_t disk_generation_picture_chunk(const struct disk_generation *generation,
                                      int64_t number); /* number in [0, n) of the pictures */
int64_t disk_generation_picture_of(const struct disk_generation *generation,
                                   int64_t chunk); /* its number; -1: it begins none */
const struct words *disk_generation_words(const struct disk_generation *generation);
/* NULL: its texts have no sparse weights. */
const struct sparse_index *disk_generation_sparse(const struct disk_generation *generation);
/* Where its index searches: index_move. Before the collection is shared with other threads. */
enum status disk_generation_move(struct disk_generation *generation, const char *device,
                                 struct error *e);
struct chunk disk_generation_chunk(const struct disk_generation *generation,
                                   int64_t id); /* id in [0, n_chunks) */
int64_t disk_generation_document_of(const struct disk_generation *generation,
                                    int64_t id); /* the number of its document */
struct stored_document disk_generation_document_at(const struct disk_generation *generation,
                                                   int64_t number); /* in [0, n_documents) */
/* Verification for `retro-index verify`: everything disk_generation_open checks, and every id and
 * range inside. */
enum status disk_generation_verify(const char *dir, struct error *e);

/* Writing: a builder collects documents into temporary files of a new generation and publishes it.
 * Nothing under dir that a reader sees changes before builder_commit returns; builder_abandon
 * removes what was written. */
struct generation_builder;

/* The right to change the collection in dir, which one program has at a time: STATUS_BUSY while
 * another one has it. The folder is not made: one that was moved away could not come back. */
enum status generation_lock(int *lock, const char *dir, struct error *e);
/* The same, where another program's change takes less than ten seconds. */
enum status generation_lock_soon(int *lock, const char *dir, struct error *e);
void generation_unlock(int lock); /* -1: nothing */

enum status builder_create(struct generation_builder **out, const char *dir,
                           const struct collection_options *options, struct error *e);
/* STATUS_INVALID for an id that an earlier document has. */
enum status builder_add_document(struct generation_builder *builder,
                                 const struct collection_document *document, struct error *e);
/* vectors [n, dim] of the next n chunks, in order. */
enum status builder_add_vectors(struct generation_builder *builder, const float *vectors, int n,
                                struct error *e);
/* The sparse weights of the next n chunks, of a collection that is sparse. STATUS_INVALID: a row
 * has a fault. */
enum status builder_add_sparse(struct generation_builder *builder, const struct sparse_table *table,
                               int n, struct error *e);
/* The two halves of builder_commit. After the first the new generation is on the disk, whole, and
 * no reader sees it; the caller may add files of its own to its folder, and must go on with the
 * second or with builder_abandon. The second makes it the one that readers see. */
enum status builder_prepare(struct generation_builder *builder, struct error *e);
/* Opens what builder_prepare has written. */
enum status builder_open_prepared(struct disk_generation **out,
                                  const struct generation_builder *builder, struct error *e);
enum status builder_publish(struct generation_builder *builder,
                            struct error *e); /* frees the builder, on failure too */
enum status builder_commit(struct generation_builder *builder,
                           struct error *e); /* frees the builder, on failure too */
void builder_abandon(struct generation_builder *builder);
