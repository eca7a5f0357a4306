/* server/blocks/block_store_private.h: the state of a block_store, for block_store.c, which the
 * pool's thread calls, and block_thread.c, the thread that has the files. */
#pragma once

#include <pthread.h>

#include "server/blocks/block_index.h"
#include "server/blocks/block_store.h"

enum { BLOCK_QUEUE = 1024 }; /* blocks that may wait to be written; their rows stay in the pool */

/* A block on its way to a file. */
struct block_write {
    int32_t block;          /* of the pool */
    struct block_file file; /* its parts are owned, but for the image */
    struct buffer memory, documents;
    struct read_document *keys; /* [n_keys] owned */
    int n_keys;
    bool behind; /* as session_block has it */
    bool doomed; /* a document of its is gone meanwhile */
};

struct block_store {
    struct block_store_options o;
    struct block_folder folder;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t work, copied;
    struct block_index index;
    struct block_store_counts counts;
    struct block_write *queue[BLOCK_QUEUE]; /* a ring */
    int first, n_queued;
    struct block_write *writing; /* by the thread */
    bool copying;                /* its rows are being read from the pool */
    struct block_job *jobs, **last_job;
    struct block_address *doomed; /* [n_doomed] files that are to be removed */
    int n_doomed, doomed_capacity;
    bool stopped, is_full; /* is_full: the disk refuses; nothing is written any more */
    double deadline;       /* of what waits when the store has stopped */
};

/* block_store.c, under the lock */

void block_write_free(struct block_write *write);
/* The entry leaves the index, and its file is going to be removed. */
void block_store_doom(struct block_store *store, struct block_entry *entry);
int64_t block_store_now(void); /* seconds of the system's clock */

/* block_thread.c */

void *block_store_run(void *store);
