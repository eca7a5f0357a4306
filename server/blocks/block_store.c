/* server/blocks/block_store.c: see block_store.h. The pool's thread calls all of it, and
 * none of it waits for a file. */
#include "server/blocks/block_store_private.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config/base/hash.h"
#include "config/base/log.h"

int64_t block_store_now(void) { return (int64_t)time(NULL); }

void block_job_free(struct block_job *job) {
    for (int i = 0; i < BLOCK_JOB_MOST; i++) row_bytes_free(&job->bytes[i]);
}

void block_write_free(struct block_write *write) {
    if (write == NULL) return;
    row_bytes_free(&write->memory);
    buffer_free(&write->documents);
    free(write->keys);
    free(write);
}

/* Documents. */

bool block_store_documents(const struct block_store *store, const struct block_file *file,
                           struct buffer *keys) {
    struct document_part part;
    size_t at = 0;
    buffer_clear(keys);
    while (block_file_next_document(file->documents, &at, &part)) {
        struct read_document read = {document_watch_find(store->o.documents, &part), part.row};
        if (read.document == 0) return false;
        buffer_append(keys, &read, sizeof read);
    }
    return true;
}

/* The records of the block's documents; false where one of them is not watched, so that nobody
 * would see it go. */
static bool print_documents(struct block_store *store, const struct session_block *block,
                            struct buffer *out) {
    for (int i = 0; i < block->n_documents; i++)
        if (store->o.documents == NULL ||
            !document_watch_print(store->o.documents, &block->documents[i], out))
            return false;
    return true;
}

static bool names_all(const struct block_entry *entry, const struct session_block *block) {
    for (int i = 0; i < block->n_documents; i++)
        if (!block_entry_names(entry, block->documents[i].document)) return false;
    return true;
}

/* Writing. */

/* A file that has the rows of the block; or more of them, where it is among the latest behind the
 * rows before. Under the lock. */
static struct block_entry *find_entry(struct block_store *store, const struct block_file *file) {
    struct block_entry *entry = block_index_at(&store->index, &file->address);
    if (entry || file->n == ATTENTION_BLOCK) return entry;
    for (int i = 0; i < BLOCK_CHILDREN; i++) {
        entry = block_index_child(&store->index, &file->before, entry);
        if (entry == NULL || block_entry_covers(entry, file)) return entry;
    }
    return NULL;
}

static bool is_queued(const struct block_store *store, const struct block_address *address) {
    if (store->writing && memcmp(&store->writing->file.address, address, sizeof *address) == 0)
        return true;
    for (int i = 0; i < store->n_queued; i++) {
        const struct block_write *write = store->queue[(store->first + i) % BLOCK_QUEUE];
        if (memcmp(&write->file.address, address, sizeof *address) == 0) return true;
    }
    return false;
}

void block_store_doom(struct block_store *store, struct block_entry *entry) {
    if (store->n_doomed == store->doomed_capacity) {
        store->doomed_capacity = 2 * store->doomed_capacity + 64;
        store->doomed =
            xrealloc(store->doomed, (size_t)store->doomed_capacity * sizeof *store->doomed);
    }
    store->doomed[store->n_doomed] = entry->address;
    store->n_doomed++;
    block_index_take(&store->index, entry);
    block_entry_free(entry);
    pthread_cond_signal(&store->work);
}

/* A copy of the block's head, whose rows stay in the pool until the thread takes them. */
static struct block_write *write_of(const struct block_store *store,
                                    const struct session_block *block,
                                    const struct block_file *file) {
    size_t ids = (size_t)block->n * sizeof *block->ids,
           read = (size_t)block->n_read * sizeof *block->read,
           keys = (size_t)block->n_documents * sizeof *block->documents;
    struct block_write *write = xcalloc(1, sizeof *write);
    write->block = block->block;
    write->behind = block->behind;
    write->file = *file;
    write->file.identity = store->o.identity;
    write->file.image_bytes = session_block_bytes(store->o.pool, block->n);
    row_bytes_reserve(&write->memory, ids + read);
    buffer_append(&write->memory, block->ids, ids);
    buffer_append(&write->memory, block->read, read);
    write->file.ids = (const int32_t *)(const void *)write->memory.data;
    write->file.read = write->file.ids + block->n;
    write->keys = xmalloc(keys + 1);
    if (keys > 0) memcpy(write->keys, block->documents, keys);
    write->n_keys = block->n_documents;
    return write;
}

/* Under the lock. */
static void put_write(struct block_store *store, struct block_write *write) {
    if (store->n_queued == BLOCK_QUEUE) {
        store->counts.dropped++;
        block_write_free(write);
        return;
    }
    store->queue[(store->first + store->n_queued) % BLOCK_QUEUE] = write;
    store->n_queued++;
    pthread_cond_signal(&store->work);
}

/* Whether the block is to be written, under the lock; one that is there has been used. */
static bool is_wanted(struct block_store *store, const struct session_block *block,
                      const struct block_file *file) {
    struct block_entry *entry = find_entry(store, file);
    if (entry && names_all(entry, block)) {
        block_index_use(&store->index, entry, block_store_now());
        return false;
    }
    if (entry && entry->n == file->n) block_store_doom(store, entry);
    store->counts.dropped += store->is_full;
    return !store->is_full && !store->stopped && !is_queued(store, &file->address);
}

void block_store_joined(struct block_store *store, const struct session_block *block) {
    struct block_file file = {.before = block->before,
                              .base = block->base,
                              .ids = block->ids,
                              .n = block->n,
                              .read = block->read,
                              .n_read = block->n_read};
    block_file_address(&file, &file.address);
    pthread_mutex_lock(&store->lock);
    bool wanted = is_wanted(store, block, &file);
    pthread_mutex_unlock(&store->lock);
    if (!wanted) return;

    struct block_write *write = write_of(store, block, &file);
    if (!print_documents(store, block, &write->documents)) {
        block_write_free(write);
        return;
    }
    write->file.documents = (struct text_span){write->documents.data, write->documents.size};
    pthread_mutex_lock(&store->lock);
    put_write(store, write);
    pthread_mutex_unlock(&store->lock);
}

/* Takes write i out of the ring, under the lock. */
static void drop_write(struct block_store *store, int i) {
    block_write_free(store->queue[(store->first + i) % BLOCK_QUEUE]);
    for (; i + 1 < store->n_queued; i++)
        store->queue[(store->first + i) % BLOCK_QUEUE] =
            store->queue[(store->first + i + 1) % BLOCK_QUEUE];
    store->n_queued--;
}

void block_store_left(struct block_store *store, int32_t block) {
    pthread_mutex_lock(&store->lock);
    for (int i = store->n_queued - 1; i >= 0; i--) {
        if (store->queue[(store->first + i) % BLOCK_QUEUE]->block != block) continue;
        drop_write(store, i);
        store->counts.dropped++;
    }
    while (store->copying && store->writing->block == block)
        pthread_cond_wait(&store->copied, &store->lock);
    pthread_mutex_unlock(&store->lock);
}

/* Finding. */

/* The block behind `before` that has the most rows of the text from `first` on: the full block of
 * these rows, or a part of one of the latest. */
static const struct block_entry *find_best(const struct block_store *store,
                                           const struct session *session,
                                           const struct session_text *text,
                                           const struct block_address *before, int first,
                                           int *rows) {
    const struct block_entry *best = NULL, *entry = NULL;
    struct block_address address;
    uint64_t base = session_base(session);
    *rows = ATTENTION_BLOCK;
    if (session_block_address(session, text, before, first, &address))
        best = block_index_at(&store->index, &address);
    if (best) return best;
    *rows = 0;
    for (int i = 0; i < BLOCK_CHILDREN; i++) {
        entry = block_index_child(&store->index, before, entry);
        if (entry == NULL) break;
        if (entry->base != base) continue;
        int n = session_agrees(session, text, first, entry->ids, entry->n, entry->read);
        if (n <= *rows) continue;
        *rows = n;
        best = entry;
    }
    return best;
}

bool block_store_find(struct block_store *store, const struct session *session,
                      const struct session_text *text, struct block_job *job) {
    struct block_address at = session_address(session);
    struct block_entry *last = NULL;
    int first = session_length(session), rows = ATTENTION_BLOCK, found = 0;
    job->n = job->n_read = 0;
    if (first % ATTENTION_BLOCK != 0) return false;
    pthread_mutex_lock(&store->lock);
    while (rows == ATTENTION_BLOCK && job->n < BLOCK_JOB_MOST) {
        const struct block_entry *entry =
            find_best(store, session, text, &at, first + found, &rows);
        if (entry == NULL) break;
        at = job->addresses[job->n] = entry->address;
        job->rows[job->n] = rows;
        job->n++;
        found += rows;
        last = (struct block_entry *)(uintptr_t)entry;
    }
    bool more = found > session_find_more(session, text);
    if (more) block_index_use(&store->index, last, block_store_now());
    pthread_mutex_unlock(&store->lock);
    return more;
}

void block_store_read(struct block_store *store, struct block_job *job) {
    job->next = NULL;
    pthread_mutex_lock(&store->lock);
    *store->last_job = job;
    store->last_job = &job->next;
    pthread_cond_signal(&store->work);
    pthread_mutex_unlock(&store->lock);
}

/* Forgetting. */

static bool writes_any(const struct block_write *write, const uint64_t *documents, int n) {
    for (int i = 0; i < write->n_keys; i++)
        for (int j = 0; j < n; j++)
            if (write->keys[i].document == documents[j]) return true;
    return false;
}

static bool names_any(const struct block_entry *entry, const uint64_t *documents, int n) {
    for (int i = 0; i < n; i++)
        if (block_entry_names(entry, documents[i])) return true;
    return false;
}

/* A block, and those behind it, which there is no way to any more. */
static void doom_from(struct block_store *store, const struct block_address *address) {
    struct block_entry *entry = block_index_at(&store->index, address);
    struct block_address own = *address;
    if (entry == NULL) return; /* it was behind another one */
    block_store_doom(store, entry);
    store->counts.forgotten++;
    for (entry = block_index_child(&store->index, &own, NULL); entry;
         entry = block_index_child(&store->index, &own, NULL))
        doom_from(store, &entry->address);
}

void block_store_forget(struct block_store *store, const uint64_t *documents, int n) {
    pthread_mutex_lock(&store->lock);
    for (int i = store->n_queued - 1; i >= 0; i--)
        if (writes_any(store->queue[(store->first + i) % BLOCK_QUEUE], documents, n))
            drop_write(store, i);
    if (store->writing && writes_any(store->writing, documents, n)) store->writing->doomed = true;
    struct buffer found = {0};
    for (const struct block_entry *entry = store->index.oldest; entry; entry = entry->newer)
        if (names_any(entry, documents, n))
            buffer_append(&found, &entry->address, sizeof entry->address);
    for (size_t i = 0; i < found.size / sizeof(struct block_address); i++)
        doom_from(store, &((const struct block_address *)(const void *)found.data)[i]);
    pthread_mutex_unlock(&store->lock);
    buffer_free(&found);
}

void block_store_list_documents(struct block_store *store, document_key_taker *take,
                                void *context) {
    pthread_mutex_lock(&store->lock);
    for (const struct block_entry *entry = store->index.oldest; entry; entry = entry->newer)
        for (int i = 0; i < entry->n_documents; i++) take(context, entry->documents[i].document);
    for (int i = 0; i < store->n_queued; i++) {
        const struct block_write *write = store->queue[(store->first + i) % BLOCK_QUEUE];
        for (int j = 0; j < write->n_keys; j++) take(context, write->keys[j].document);
    }
    for (int i = 0; store->writing && i < store->writing->n_keys; i++)
        take(context, store->writing->keys[i].document);
    pthread_mutex_unlock(&store->lock);
}

struct block_store_counts block_store_counts(struct block_store *store) {
    pthread_mutex_lock(&store->lock);
    struct block_store_counts counts = store->counts;
    counts.blocks = store->index.n;
    counts.bytes = store->index.bytes;
    pthread_mutex_unlock(&store->lock);
    return counts;
}
