/* server/blocks/block_store.h: keeps blocks of keys and values of a pool in a folder, from one
 * start to the next. One thread writes blocks that have joined the pool's tree, reads those that a
 * prompt wants, and removes files. Those who ask never wait for a disk: writes that the thread
 * cannot keep up with are dropped. */
#pragma once

#include "retro/run/session/session.h"
#include "server/blocks/block_folder.h"
#include "server/blocks/document_watch.h"

struct block_store;

/* All but the numbers is borrowed. */
struct block_store_options {
    const char *folder;
    int64_t most_bytes;
    uint64_t identity; /* of model, program and device */
    const struct session_pool *pool;
    struct document_watch *documents; /* of passages; NULL: nothing is read beside prompts */
};

/* Blocks that are read at a time: what they take of memory beside the pool, and of a step's time to
 * be copied into it. */
enum { BLOCK_JOB_MOST = 8 };

/* Blocks of a prompt on their way from files. Zero-initialise; block_job_free when done. */
struct block_job {
    struct block_address addresses[BLOCK_JOB_MOST]; /* [n] */
    int rows[BLOCK_JOB_MOST];                       /* of each, those that are the prompt's */
    int n;
    void (*done)(struct block_job *job); /* called once by the store's thread; must not block */
    void *context;
    /* The first n_read of them, as they were read. */
    struct buffer bytes[BLOCK_JOB_MOST];
    struct block_file files[BLOCK_JOB_MOST];
    int n_read;
    struct block_job *next; /* the store's */
};
void block_job_free(struct block_job *job);

struct block_store_counts {
    int64_t blocks, bytes;      /* in files */
    int64_t written, dropped;   /* dropped: not written; too many waited, or the disk refuses */
    int64_t evicted, forgotten; /* files that were removed for others, and with documents */
    int64_t failed;             /* files that did not fit when they were read */
};

/* Looks through the folder. STATUS_UNSUPPORTED where the pool's blocks cannot be kept. */
enum status block_store_open(struct block_store **out, const struct block_store_options *options,
                             struct error *e);
/* Writes what waits, for at most so many seconds, and ends the thread. */
void block_store_stop(struct block_store *store, double seconds);
void block_store_close(struct block_store *store);
struct block_store_counts block_store_counts(struct block_store *store);

/* The pool's own thread. Of session_watch: */
void block_store_joined(struct block_store *store, const struct session_block *block);
void block_store_left(struct block_store *store, int32_t block);
/* The blocks of files that go on where the session ends, with more rows of the text than it can
 * take over in memory: fills in addresses, rows and n of the job. */
bool block_store_find(struct block_store *store, const struct session *session,
                      const struct session_text *text, struct block_job *job);
void block_store_read(struct block_store *store, struct block_job *job);
/* The documents that the block's rows depend on, struct read_document each, into *keys; false where
 * one of them has gone. */
bool block_store_documents(const struct block_store *store, const struct block_file *file,
                           struct buffer *keys);
/* Files with rows of these documents are removed, and what is behind them. */
void block_store_forget(struct block_store *store, const uint64_t *documents, int n);
/* Calls `take` for the documents of all files. */
void block_store_list_documents(struct block_store *store, document_key_taker *take, void *context);
