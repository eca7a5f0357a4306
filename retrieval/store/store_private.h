/* retrieval/store/store_private.h: how a collection that changes lies in memory. */
#pragma once

#include <pthread.h>

#include "config/base/key_set.h"
#include "retrieval/generation/change_log.h"
#include "retrieval/generation/document_image.h"
#include "retrieval/generation/generation_private.h"
#include "retrieval/store/selection.h"
#include "retrieval/store/store.h"
#include "retrieval/words/words_once.h"

/* One document of the log, shared by the epochs that hold it. */
struct logged_bytes {
    atomic_int holders;
    char *bytes;
    size_t size;
    struct document_image image;
    struct buffer facts;     /* of its metadata */
    struct words_once words; /* of its chunks (store_words.c) */
};

/* When a document went: 0 while it is there, else the sequence of the change that took it away. A
 * document that was deleted, and not replaced, is gone from every snapshot: its top bit is set. */
typedef _Atomic uint64_t gone_at;
#define GONE_FOR_ALL ((uint64_t)1 << 63)

/* A document of the log. */
struct logged_document {
    struct logged_bytes *bytes;
    uint64_t added; /* the sequence of its change */
    gone_at gone;
    int64_t first_chunk;
    int64_t replaced; /* the place of the version before; -1: none */
};

/* They lie in pages that stay where they are, so snapshots read them without a lock. */
enum { LOG_PAGE = 1024, LOG_PAGES = 4096 };

/* Documents that went lately, by the hashes of their ids (collection_list_gone), under the lock of
 * struct store. */
enum { GONE_MOST = 4096 };
struct gone_documents {
    uint64_t ids[GONE_MOST]; /* a ring */
    int64_t n;               /* so far */
};

/* A generation and the changes since. Compaction begins a new epoch; snapshots hold theirs. */
struct epoch {
    atomic_int holders;
    struct disk_generation *generation;
    struct held_embedder *embedder; /* of its vectors; NULL: the store has no source of them */
    gone_at *gone;                  /* [n_documents] of the generation */
    struct logged_document *pages[LOG_PAGES];
    atomic_llong n_gone_chunks; /* of the generation: what a search may have to pass over */
    struct selections selections;
    int32_t *gone_list; /* [n_gone_listed] documents of the generation that went */
    atomic_llong n_gone_listed;
    atomic_int n_with_words; /* documents of the log, the first ones, that have words */

    /* For whoever changes it, under the lock of struct store. */
    struct key_set places; /* id to place + 1, 0: it went */
    int n_logged;
    int64_t n_logged_chunks;
    int64_t n_gone;                  /* of the generation */
    int64_t n_there, n_chunks_there; /* documents and chunks in the newest snapshot */
    int32_t max_token;
    struct epoch *older; /* the one before, as long as a snapshot holds it */
    struct gone_documents
        *told; /* of each document that goes; NULL: it is not the store's newest */
};

struct store_snapshot {
    struct snapshot base;
    struct epoch *epoch;
    uint64_t sequence;
    int n_logged; /* documents of the log that it may look at */
};

/* A change that is written and waits for its fsync. */
struct pending_change {
    struct pending_change *next;
    uint64_t sequence; /* in its log */
    uint64_t ticket;   /* among all changes of this program, which no compaction counts anew */
    enum change_kind kind;
    struct logged_bytes *bytes; /* of CHANGE_PUT */
    char *id;                   /* of CHANGE_DELETE */
};

struct store {
    struct collection base;
    char *dir, *device;

    pthread_mutex_t lock; /* all below, and the writers' part of the epoch */
    pthread_cond_t changed;
    struct epoch
        *epoch; /* and behind it older ones: what is deleted goes from their snapshots too */
    struct store_snapshot *newest;
    struct gone_documents gone;
    struct change_log_end end;     /* of the changes that the epoch has */
    struct embedder_source source; /* open is NULL: embedders are not followed */
    struct refused_generation {
        struct generation_origin origin;
        double until; /* of time_now: then its embedder is sought again */
        struct error why;
    } refused;
    bool astray; /* the epoch has changes that the log has no more: store_follow reads it again */

    /* While changes of this program are under way. */
    int n_changing; /* callers */
    bool locking;   /* the first of them is about to lock */
    int lock_file;  /* -1: not locked */
    struct generation_origin
        settled;            /* CURRENT as this program has put it on the disk; 0: not yet */
    struct change_log *log; /* NULL: not open */
    struct pending_change *pending, **pending_end;
    uint64_t n_written,
        n_kept; /* tickets given, and those of changes that are on the disk and in a snapshot */
    bool syncing, compacting;
    bool paused; /* compaction is about to end: changes wait */
    bool failed; /* a change could not be written: nothing more is changed by those that are under
                    way */
    bool uncut;  /* and what was written of it could not be taken back: nothing more is changed at
                    all */
};

static inline struct store *store_of(struct collection *collection) {
    return (struct store *)collection;
}
/* Operations of the table of all collections. */
enum status store_has_all(struct collection *collection,
                          const struct collection_document *const *documents, int n, bool *has,
                          struct error *e);
void store_put_all(struct collection *collection, const struct filter *filter,
                   struct document_put *puts, int n);
enum status store_remove(struct collection *collection, const struct filter *filter, const char *id,
                         struct error *e);
enum status store_compact(struct collection *collection, const atomic_bool *cancelled,
                          struct error *e);
enum status store_follow_folder(struct collection *collection, struct error *e);
void store_follow_embedders(struct collection *collection, const struct embedder_source *source,
                            struct held_embedder *first);
/* The generation that CURRENT names, with its changes, read up to *end. */
enum status store_load_newest(const struct store *store, struct epoch **out,
                              struct change_log_end *end, struct error *e);

/* As store_copy, but the files of the generation are moved: `from` holds nothing whole afterwards,
 * on failure too. The caller has opened `from`, and holds the lock of `to`. */
enum status store_move(const char *from, const char *to, struct error *e);

/* A generation without changes; takes over the caller's hold of the generation. */
struct epoch *epoch_open(struct disk_generation *generation);
/* A generation with the changes of its log, read up to *end. Takes over the hold of the generation,
 * on failure too. */
enum status epoch_load(struct epoch **out, struct disk_generation *generation,
                       struct change_log_end *end, struct error *e);
struct epoch *epoch_hold(struct epoch *epoch);
void epoch_release(struct epoch *epoch);
/* Places. A place is a document's number in the generation, or n_documents and more for those of
 * the log; -1: none. */
int64_t epoch_find(const struct epoch *epoch, const char *id);
/* The same of a document that the filter allows: any other is not there. */
int64_t epoch_find_allowed(const struct epoch *epoch, const struct filter *filter, const char *id);
/* Whether another document has room: STATUS_TOO_LARGE. */
enum status epoch_check_room(const struct epoch *epoch, struct error *e);
/* Carries out a change in memory; its sequence is one more than the one before. Takes over the
 * bytes. */
void epoch_put(struct epoch *epoch, struct logged_bytes *bytes, uint64_t sequence);
bool epoch_delete(struct epoch *epoch, const char *id,
                  uint64_t sequence); /* false: it is not there */
/* The older epochs that no snapshot holds, taken out of the list of the epoch; NULL: none. To
 * release the first releases all.
 */
struct epoch *epoch_detach_older(struct epoch *epoch);
/* The document at a place; of the log, number `number`. */
struct stored_document epoch_document(const struct epoch *epoch, int64_t place);
static inline struct logged_document *epoch_logged(const struct epoch *epoch, int number) {
    return &epoch->pages[number / LOG_PAGE][number % LOG_PAGE];
}

struct logged_bytes *logged_bytes_hold(struct logged_bytes *bytes);
void logged_bytes_release(struct logged_bytes *bytes);
/* Of an image; takes over bytes, on failure too. */
enum status logged_bytes_read(struct logged_bytes **out, char *bytes, size_t size,
                              const struct collection_info *info, struct error *e);

/* The image of d, with its vectors. */
enum status logged_bytes_make(struct logged_bytes **out, const struct collection_document *document,
                              const float *vectors, const struct collection_info *info,
                              struct error *e);

const struct store_snapshot *store_snapshot_read(const struct snapshot *snapshot);
/* Whether a document that came at `added` and went at `gone` is in the snapshot. */
static inline bool store_snapshot_has(const struct store_snapshot *snapshot, uint64_t added,
                                      const gone_at *gone) {
    uint64_t when = atomic_load_explicit(gone, memory_order_acquire);
    return added <= snapshot->sequence &&
           (when == 0 || (when < GONE_FOR_ALL && when > snapshot->sequence));
}
/* The sparse weights of a chunk of a snapshot that is sparse, as long as the snapshot lives. */
enum status store_sparse_row(const struct store_snapshot *snapshot, int64_t chunk,
                             struct sparse_row *row, struct error *e);
/* The number of the document of the log that has a chunk of the log. */
int store_snapshot_logged(const struct store_snapshot *snapshot, int64_t chunk);
/* Turns to the generation that CURRENT names now, where that is another one. has_folder: the caller
 * has locked the folder, for a change. */
enum status store_follow(struct store *store, bool has_folder, struct error *e);
/* Frees the epochs that no snapshot holds any more. Without the lock: a large index takes a while.
 */
void store_tidy(struct store *store);
/* All of these under the lock. */
/* Makes the newest snapshot that of the epoch as it is. */
void store_renew(struct store *store);
/* Takes over an epoch, which has the changes up to `end`. */
void store_turn(struct store *store, struct epoch *epoch, const struct change_log_end *end);
/* Carries out what other programs have changed. */
void store_refresh(struct store *store);
/* Carries out one change in memory; *bytes are taken over. STATUS_CORRUPT. */
enum status epoch_change(struct epoch *epoch, uint64_t sequence, enum change_kind kind, char *bytes,
                         size_t size, struct error *e);
/* Locks the folder and opens the log, for the first of the callers who change something at the same
 * time; the lock is open meanwhile. Each must end what it has begun. */
enum status store_begin_change(struct store *store, struct error *e);
void store_end_change(struct store *store);
/* Returns when all that is written is on the disk and in the newest snapshot; the lock is open
 * meanwhile. */
enum status store_drain(struct store *store, struct error *e);
