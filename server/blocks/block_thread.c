/* server/blocks/block_thread.c: the thread that writes, reads and removes files of blocks; opening
 * and closing. See block_store.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/log.h"
#include "server/blocks/block_store_private.h"

/* Removing. */

/* Files of blocks that have left the index. One that is being put there again meanwhile is found
 * missing when it is read. */
static void remove_doomed(struct block_store *store) {
    struct block_address *doomed = store->doomed;
    int n = store->n_doomed;
    store->doomed = NULL;
    store->n_doomed = store->doomed_capacity = 0;
    pthread_mutex_unlock(&store->lock);
    for (int i = 0; i < n; i++) block_folder_remove(&store->folder, &doomed[i]);
    free(doomed);
    pthread_mutex_lock(&store->lock);
}

/* The least recently used ones leave until there is room for so many bytes; under the lock. */
static void make_room(struct block_store *store, uint64_t bytes) {
    while (store->index.oldest && store->index.bytes + (int64_t)bytes > store->o.most_bytes) {
        block_store_doom(store, store->index.oldest);
        store->counts.evicted++;
    }
    if (store->n_doomed > 0) remove_doomed(store);
}

/* The same for a block, which nobody would find without those before it: they stay. False where
 * they leave it no room, or have left already. */
static bool make_room_behind(struct block_store *store, const struct block_write *write,
                             uint64_t bytes) {
    struct block_index *index = &store->index;
    struct block_entry *before = block_index_at(index, &write->file.before);
    uint64_t wanted = bytes;
    if (before == NULL && write->behind) return false;
    block_index_use(index, before, block_store_now());
    for (; before; before = block_index_at(index, &before->before)) wanted += before->bytes;
    if ((int64_t)wanted > store->o.most_bytes) return false;
    make_room(store, bytes);
    return true;
}

/* Writing. */

static struct block_write *take_write(struct block_store *store) {
    struct block_write *write = store->queue[store->first];
    store->first = (store->first + 1) % BLOCK_QUEUE;
    store->n_queued--;
    return write;
}

/* The rows of the pool's block, which may be overwritten from then on. */
static void copy_rows(struct block_store *store, struct block_write *write, struct buffer *image) {
    store->writing = write;
    store->copying = true;
    pthread_mutex_unlock(&store->lock);
    image->size = (size_t)write->file.image_bytes;
    session_block_get(store->o.pool, write->block, write->file.n, image->data);
    pthread_mutex_lock(&store->lock);
    store->copying = false;
    pthread_cond_broadcast(&store->copied);
}

/* The disk is full, or refuses this block: the server goes on without writing. */
static void give_up(struct block_store *store, const struct error *e) {
    store->is_full = true;
    store->counts.dropped++;
    log_warn("server.cache_folder: %s; no more rows are written until the next start", e->text);
    while (store->n_queued > 0) {
        block_write_free(take_write(store));
        store->counts.dropped++;
    }
}

/* Shorter ones of the same rows are not needed any more. */
static void drop_covered(struct block_store *store, const struct block_entry *whole) {
    struct block_entry *entry = block_index_child(&store->index, &whole->before, NULL);
    for (int i = 0; i < BLOCK_CHILDREN && entry; i++) {
        struct block_entry *next = block_index_child(&store->index, &whole->before, entry);
        struct block_file part = {.base = entry->base,
                                  .ids = entry->ids,
                                  .n = entry->n,
                                  .read = entry->read,
                                  .n_read = entry->n_read};
        if (entry != whole && entry->n < whole->n && block_entry_covers(whole, &part))
            block_store_doom(store, entry);
        entry = next;
    }
}

static void note_written(struct block_store *store, const struct block_write *write) {
    if (write->doomed) {
        block_folder_remove(&store->folder, &write->file.address);
        return;
    }
    struct block_entry *entry =
        block_index_add(&store->index, &write->file, write->keys, write->n_keys);
    block_index_use(&store->index, entry, block_store_now());
    drop_covered(store, entry);
    store->counts.written++;
}

/* Under the lock, which it lets go of meanwhile. */
static void write_next(struct block_store *store) {
    struct block_write *write = take_write(store);
    struct buffer image = {0}, bytes = {0};
    struct error e;
    row_bytes_reserve(&image, (size_t)write->file.image_bytes);
    copy_rows(store, write, &image);
    write->file.image = image.data;
    uint64_t size = block_file_bytes(&write->file);
    if (make_room_behind(store, write, size)) {
        pthread_mutex_unlock(&store->lock);
        row_bytes_reserve(&bytes, (size_t)size);
        block_file_print(&write->file, &bytes);
        enum status status = block_folder_write(&store->folder, &write->file.address, &bytes, &e);
        pthread_mutex_lock(&store->lock);
        if (status)
            give_up(store, &e);
        else
            note_written(store, write);
    } else {
        store->counts.dropped++;
    }
    store->writing = NULL;
    row_bytes_free(&image);
    row_bytes_free(&bytes);
    block_write_free(write);
}

/* Reading. */

/* The rows of block i, false where they are not to be had. */
static bool read_block(struct block_store *store, struct block_job *job, int i) {
    struct error e;
    struct block_file *file = &job->files[i];
    enum status status =
        block_folder_read(&store->folder, &job->addresses[i], &job->bytes[i], file, &e);
    if (status == STATUS_OK && (file->identity != store->o.identity || file->n < job->rows[i] ||
                                file->image_bytes != session_block_bytes(store->o.pool, file->n)))
        status = error_set(&e, STATUS_CORRUPT, "rows of another model or program");
    if (status == STATUS_OK) return true;
    pthread_mutex_lock(&store->lock);
    struct block_entry *entry = block_index_at(&store->index, &job->addresses[i]);
    if (entry) { /* else it has left meanwhile */
        log_warn("%s; the file is removed and its rows are computed again", e.text);
        block_store_doom(store, entry);
        store->counts.failed++;
    }
    pthread_mutex_unlock(&store->lock);
    return false;
}

static void read_next(struct block_store *store) {
    struct block_job *job = store->jobs;
    store->jobs = job->next;
    if (store->jobs == NULL) store->last_job = &store->jobs;
    pthread_mutex_unlock(&store->lock);
    while (job->n_read < job->n && read_block(store, job, job->n_read)) job->n_read++;
    job->done(job);
    pthread_mutex_lock(&store->lock);
}

/* The thread. */

static bool is_idle(const struct block_store *store) {
    return store->jobs == NULL && store->n_doomed == 0 && store->n_queued == 0;
}

/* Blocks that wait at the end have a deadline. */
static bool is_over(const struct block_store *store) {
    return store->stopped && (is_idle(store) || time_now() > store->deadline);
}

void *block_store_run(void *argument) {
    struct block_store *store = argument;
    pthread_mutex_lock(&store->lock);
    while (!is_over(store)) {
        if (store->jobs)
            read_next(store);
        else if (store->n_doomed > 0)
            remove_doomed(store);
        else if (store->n_queued > 0)
            write_next(store);
        else
            pthread_cond_wait(&store->work, &store->lock);
    }
    if (store->n_doomed > 0) remove_doomed(store);
    store->counts.dropped += store->n_queued;
    if (store->n_queued > 0)
        log_warn("server.cache_folder: %d blocks were not written in time", store->n_queued);
    pthread_mutex_unlock(&store->lock);
    return NULL;
}

/* Opening and closing. */

/* Documents are compared when all files are known (engine_open_blocks). */
static void watch_documents(struct block_store *store, const struct block_file *file,
                            struct buffer *keys) {
    struct document_part part;
    size_t at = 0;
    while (block_file_next_document(file->documents, &at, &part)) {
        struct read_document read = {document_watch_part(store->o.documents, &part), part.row};
        buffer_append(keys, &read, sizeof read);
    }
}

static void take_file(void *context, const struct block_file *file, int64_t used) {
    struct block_store *store = context;
    struct buffer keys = {0};
    if (file->documents.size > 0 && store->o.documents == NULL) {
        block_folder_remove(&store->folder, &file->address); /* nobody would see these go */
        return;
    }
    watch_documents(store, file, &keys);
    struct block_entry *entry =
        block_index_add(&store->index, file, (const struct read_document *)(const void *)keys.data,
                        (int)(keys.size / sizeof(struct read_document)));
    entry->used = used;
    buffer_free(&keys);
}

/* The thread does not run yet. */
static enum status look_through(struct block_store *store, struct error *e) {
    double begun = time_now();
    struct block_scan scan = {.identity = store->o.identity, .take = take_file, .context = store};
    if (block_folder_scan(&store->folder, &scan, e)) return e->status;
    block_index_sort(&store->index);
    pthread_mutex_lock(&store->lock);
    make_room(store, 0);
    pthread_mutex_unlock(&store->lock);
    if (scan.n_foreign > 0)
        log_info("server.cache_folder: %d files of another model or program were removed",
                 scan.n_foreign);
    log_info("server.cache_folder %s: %lld blocks, %.1f MB of %.1f MB, in %.2f s",
             store->folder.path, (long long)store->index.n, 1e-6 * (double)store->index.bytes,
             1e-6 * (double)store->o.most_bytes, time_now() - begun);
    return STATUS_OK;
}

enum status block_store_open(struct block_store **out, const struct block_store_options *options,
                             struct error *e) {
    if (session_pool_has_blocks(options->pool, e)) return error_prefix(e, "server.cache_folder");
    struct block_store *store = xcalloc(1, sizeof *store);
    store->o = *options;
    store->last_job = &store->jobs;
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->work, NULL);
    pthread_cond_init(&store->copied, NULL);
    enum status status = block_folder_open(&store->folder, options->folder, e);
    if (status == STATUS_OK) status = look_through(store, e);
    if (status == STATUS_OK) {
        store->running = pthread_create(&store->thread, NULL, block_store_run, store) == 0;
        if (!store->running)
            status = error_set(e, STATUS_NO_MEMORY, "the thread of blocks did not start");
    }
    if (status) {
        block_store_close(store);
        return error_prefix(e, "server.cache_folder");
    }
    *out = store;
    return STATUS_OK;
}

void block_store_stop(struct block_store *store, double seconds) {
    if (store == NULL || !store->running) return;
    pthread_mutex_lock(&store->lock);
    store->stopped = true;
    store->deadline = time_now() + seconds;
    pthread_cond_signal(&store->work);
    pthread_mutex_unlock(&store->lock);
    pthread_join(store->thread, NULL);
    store->running = false;
    for (const struct block_entry *entry = store->index.oldest; entry; entry = entry->newer)
        if (entry->touched) block_folder_mark(&store->folder, &entry->address, entry->used);
}

void block_store_close(struct block_store *store) {
    if (store == NULL) return;
    block_store_stop(store, 0);
    while (store->n_queued > 0) block_write_free(take_write(store));
    block_index_free(&store->index);
    block_folder_close(&store->folder);
    free(store->doomed);
    pthread_cond_destroy(&store->work);
    pthread_cond_destroy(&store->copied);
    pthread_mutex_destroy(&store->lock);
    free(store);
}
