/* retrieval/store/store.h: a collection in a folder, which changes while it is searched: a
 * generation (retrieval/generation/generation.h), and in memory what its log of changes
 * (change_log.h) says since.
 *
 * A snapshot is the store at one sequence number. Documents added later are not in it; a document
 * that was replaced later is in it as it was. A document that was deleted is in no snapshot any
 * more, from the moment at which its deletion is acknowledged; what was found before stays readable
 * as long as its snapshot is held.
 *
 * Several programs may have one collection open. Each sees what the others have changed in the
 * snapshots that it takes afterwards, and each may change it: a program locks the folder while
 * changes of its own are under way. A generation that another program has written is found by
 * store_follow.
 *
 * Any thread may call anything here. Changes are acknowledged when they are on the disk; those that
 * wait at the same time share one fsync. */
#pragma once

#include "retrieval/generation/generation.h"

/* Opens the generation that CURRENT names, and its log. A log that is damaged is read up to the
 * damage, with a warning.
 *
 * By the table of all collections (retrieval/collection.h), where a folder does more: a snapshot's
 * version is generation << 32 | sequence. Following turns to the generation that CURRENT names now,
 * where that is another one, and takes as long as opening; snapshots are as before meanwhile.
 * Changes are on the disk when they are acknowledged. STATUS_BUSY while another program changes the
 * collection for longer than ten seconds, STATUS_IO where it may not be written, STATUS_CORRUPT
 * where its log is damaged. A compaction writes a new generation without what is deleted, with what
 * the log holds, and turns to it; the old one is removed from the disk. Searches and changes go on
 * meanwhile; changes wait for a moment at the end. It looks at *cancelled between documents:
 * STATUS_CANCELLED, and all is as before. STATUS_INVALID where no document would be left. One
 * caller at a time: STATUS_BUSY. */
enum status store_open(struct collection **out, const char *dir, struct error *e);

/* The effect of store_repair. */
struct store_repaired {
    bool fell_back;         /* the generation that CURRENT named was given up, */
    struct error why;       /* because of this, */
    int damaged_generation; /* and its folder has ".damaged" behind its name now; 0: CURRENT did not
                               say which it was */
    int generation;         /* the newest that is whole: CURRENT names it */
    bool log_cut;
    uint64_t n_kept; /* changes that stay in the log */
    uint64_t n_cut;  /* bytes that were cut off it, and put aside as changes.cut beside it */
    uint64_t n_lost; /* changes among them that had been acknowledged, as far as is known */
};
/* Falls back to an older generation where the one in use is damaged, and cuts what cannot be read
 * off the end of the log in use, damaged changes included. STATUS_CORRUPT where no generation is
 * whole. */
enum status store_repair(const char *dir, struct store_repaired *repaired, struct error *e);

/* Snapshots. */

/* As index_search, over the chunks of the snapshot whose documents the filter allows: ids and
 * similarities [n, k], -1 and -2 behind the last. Where few are left, or too few are found among
 * the nearest of all, those are compared one by one: exact, as far as the index keeps vectors.
 * STATUS_UNSUPPORTED where that is needed of an inverted file on a GPU, which gives no vectors
 * back. Chunk numbers count the generation's first, then those of the log; an answer does not
 * depend on the other queries. Where the collection has no embedder for pictures alone, none of
 * these is found. */
enum status store_search(const struct snapshot *snapshot, const struct nearest_query *query,
                         int64_t *ids, float *similarities, struct error *e);
/* The k chunks of the snapshot that fit the words of a text best (BM25), best first, equal ones in
 * order of their numbers; -1 where fewer share a word with it. Statistics are those of the
 * documents that the filter allows. The words of the log's documents are made by the first call
 * that needs them; others that come meanwhile wait for it. STATUS_CANCELLED, STATUS_NO_MEMORY, and
 * STATUS_CORRUPT where the index of words is damaged. */
enum status store_search_words(const struct snapshot *snapshot, const struct word_query *query,
                               struct word_found *found, struct error *e);
/* The same by sparse weights, of a snapshot that is sparse: the score of a chunk is
 * sparse_row_multiply of the query's weights and its own, and those with a score above 0 are found.
 * STATUS_CANCELLED, and STATUS_CORRUPT where the weights are damaged. */
enum status store_search_sparse(const struct snapshot *snapshot, const struct sparse_query *query,
                                struct sparse_found *found, struct error *e);
/* Pictures of the snapshot that have vectors of their own, and vectors of their own embedder. */
int64_t store_count_pictures(const struct snapshot *snapshot);
/* Whether a chunk with a number in [0, chunk_limit) is in it: some are of documents that went or
 * came later. */
bool store_has_chunk(const struct snapshot *snapshot, int64_t id);
/* Calls take for each document of the snapshot: those of the generation, then those of the log.
 * Ends with what take returns where that is not STATUS_OK. */
enum status store_walk(const struct snapshot *snapshot, document_taker *take, void *context,
                       struct error *e);

/* Makes the collection in `to` hold what the one in `from` holds at one moment of the call, its
 * changes included, in a new generation: a snapshot, or the way back from one. Readers and writers
 * of `from` go on. The content that `to` had stays on the disk until the next build or compaction
 * there; `to` may be missing. Everything is on the disk, and has been compared, before a reader
 * sees it. STATUS_CORRUPT where `from` is damaged, STATUS_CANCELLED, STATUS_BUSY for another writer
 * of `to`: then `to` is as it was. */
enum status store_copy(const char *from, const char *to, const atomic_bool *cancelled,
                       struct error *e);
