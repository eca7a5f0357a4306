/* retrieval/store/store_compact.c: compaction: what the newest snapshot holds becomes a generation
 * of its own. Changes that arrive while it is written go on into the old log; at the end they wait,
 * the later ones are copied into the new generation's log, and CURRENT turns. A crash before that
 * finds the old generation with all changes, a crash after it the new one with the later changes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/store/store_private.h"

struct compaction {
    struct store *store;
    const atomic_bool *cancelled;
    struct snapshot *snapshot;
    struct generation_builder *builder;
    struct epoch *next;         /* the new generation, open */
    struct chunk_range *chunks; /* of a document, as the next */
    float *vectors;
    int64_t capacity; /* chunks that both have room for */
    float *picture;   /* its vector */
    struct sparse_rows sparse;
};

static void grow_room(struct compaction *compaction, int64_t n_chunks, int dim) {
    if (n_chunks <= compaction->capacity) return;
    compaction->capacity = 2 * n_chunks;
    compaction->chunks =
        xrealloc(compaction->chunks, (size_t)compaction->capacity * sizeof *compaction->chunks);
    compaction->vectors = xrealloc(compaction->vectors, (size_t)compaction->capacity * (size_t)dim *
                                                            sizeof *compaction->vectors);
}

static enum status check_cancelled(const struct compaction *compaction, struct error *e) {
    if (compaction->cancelled == NULL || !atomic_load(compaction->cancelled)) return STATUS_OK;
    return error_set(e, STATUS_CANCELLED, "the compaction was interrupted; nothing has changed");
}

static enum status copy_vectors(struct compaction *compaction,
                                const struct stored_document *document, struct error *e) {
    const struct epoch *epoch = store_snapshot_read(compaction->snapshot)->epoch;
    const struct collection_info *info = disk_generation_info(epoch->generation);
    if (document->first_chunk < info->n_chunks)
        return index_vectors(disk_generation_index(epoch->generation), document->first_chunk,
                             (int)document->n_chunks, compaction->vectors, e);
    const struct logged_document *logged = epoch_logged(
        epoch,
        store_snapshot_logged(store_snapshot_read(compaction->snapshot), document->first_chunk));
    memcpy(compaction->vectors, logged->bytes->image.vectors,
           (size_t)document->n_chunks * (size_t)info->dim * sizeof *compaction->vectors);
    return STATUS_OK;
}

static enum status copy_sparse(struct compaction *compaction,
                               const struct stored_document *document, struct error *e) {
    int n = (int)document->n_chunks;
    if (!compaction->snapshot->info->sparse) return STATUS_OK;
    sparse_rows_clear(&compaction->sparse);
    if (snapshot_sparse(compaction->snapshot, document->first_chunk, n, &compaction->sparse, e))
        return e->status;
    const struct sparse_table table = sparse_rows_table(&compaction->sparse);
    return builder_add_sparse(compaction->builder, &table, n, e);
}

static enum status copy_document(void *context, const struct stored_document *document,
                                 struct error *e) {
    struct compaction *compaction = context;
    const struct collection_info *info = compaction->snapshot->info;
    if (check_cancelled(compaction, e)) return e->status;
    grow_room(compaction, document->n_chunks, info->dim);

    struct collection_document copy =
        snapshot_document_again(compaction->snapshot, document, compaction->chunks);
    bool has_picture;
    enum status status = copy_vectors(compaction, document, e);
    if (status == STATUS_OK)
        status = snapshot_picture_vector(compaction->snapshot, document->first_chunk,
                                         compaction->picture, &has_picture, e);
    if (status == STATUS_OK && has_picture) copy.picture = compaction->picture;
    if (status == STATUS_OK) status = builder_add_document(compaction->builder, &copy, e);
    if (status == STATUS_OK)
        status = builder_add_vectors(compaction->builder, compaction->vectors,
                                     (int)document->n_chunks, e);
    return status ? status : copy_sparse(compaction, document, e);
}

/* All that takes as long as the collection is large is done before changes wait. */
static enum status open_generation(struct compaction *compaction, struct error *e) {
    struct disk_generation *next;
    enum status status = builder_open_prepared(&next, compaction->builder, e);
    if (status) return status;
    compaction->next = epoch_open(next);
    compaction->next->embedder =
        embedder_hold(store_snapshot_read(compaction->snapshot)->epoch->embedder);
    return compaction->store->device ? disk_generation_move(next, compaction->store->device, e)
                                     : STATUS_OK;
}

static enum status write_generation(struct compaction *compaction, struct error *e) {
    const struct collection_info *info = compaction->snapshot->info;
    struct collection_options options = collection_options_of(info);
    /* Chosen by size, it is chosen again. */
    options.index_factory = index_asked(info->index_factory, info->n_chunks, info->dim);
    options.locked = true;
    if (compaction->snapshot->n_documents == 0)
        return error_set(e, STATUS_INVALID,
                         "%s: every document is deleted; a collection keeps at least one",
                         compaction->store->dir);
    if (builder_create(&compaction->builder, compaction->store->dir, &options, e)) return e->status;
    compaction->picture = xmalloc(((size_t)info->pictures.dim + 1) * sizeof *compaction->picture);
    enum status status = store_walk(compaction->snapshot, copy_document, compaction, e);
    if (status == STATUS_OK) status = builder_prepare(compaction->builder, e);
    return status ? status : open_generation(compaction, e);
}

/* The later changes. */

struct log_copy {
    struct change_log *to;
    struct epoch *epoch;      /* of the new generation, with the changes copied so far */
    uint64_t sequence, after; /* of the old log; those above `after` are copied */
};

/* A document that was deleted meanwhile may have been left out of the new generation: then it needs
 * no deletion. */
static bool is_needed(const struct log_copy *copy, enum change_kind kind, const char *bytes) {
    if (copy->sequence <= copy->after) return false;
    return kind != CHANGE_DELETE || epoch_find(copy->epoch, bytes) >= 0;
}

static enum status copy_change(void *context, enum change_kind kind, char *bytes, size_t size,
                               struct error *e) {
    struct log_copy *copy = context;
    copy->sequence++;
    if (!is_needed(copy, kind, bytes)) {
        free(bytes);
        return STATUS_OK;
    }
    enum status status = change_log_append(copy->to, kind, (struct text_span){bytes, size}, e);
    if (status == STATUS_OK)
        return epoch_change(copy->epoch, change_log_end(copy->to).sequence, kind, bytes, size, e);
    free(bytes);
    return status;
}

/* No change is being written meanwhile. */
static enum status copy_changes(struct compaction *compaction, struct log_copy *copy,
                                struct error *e) {
    struct disk_generation *old = store_snapshot_read(compaction->snapshot)->epoch->generation,
                           *next = copy->epoch->generation;
    struct change_log_end end = {0}, empty = {0};
    copy->after = store_snapshot_read(compaction->snapshot)->sequence;
    if (change_log_read(disk_generation_folder(next), disk_generation_origin(next), NULL, NULL,
                        &empty, e) ||
        change_log_open(&copy->to, disk_generation_folder(next), disk_generation_origin(next),
                        &empty, e) ||
        change_log_read(disk_generation_folder(old), disk_generation_origin(old), copy_change, copy,
                        &end, e))
        return e->status;
    struct change_log_end copied = change_log_end(copy->to);
    return change_log_sync(copy->to, &copied, e);
}

/* Publishes the new generation. Searches go on with the old one. */
static enum status publish(struct compaction *compaction, struct error *e) {
    struct generation_builder *builder = compaction->builder;
    compaction->builder = NULL;
    enum status status = builder_publish(builder, e);
    if (status == STATUS_OK) return STATUS_OK;
    /* The disk has one of the two generations, and nobody knows which one. */
    pthread_mutex_lock(&compaction->store->lock);
    compaction->store->failed = true;
    pthread_mutex_unlock(&compaction->store->lock);
    return status;
}

/* Makes the new generation ours: from here on searches find it. */
static void take_over(struct store *store, const struct log_copy *copy) {
    struct change_log_end end = change_log_end(copy->to);
    end.synced = end.size;
    pthread_mutex_lock(&store->lock);
    struct change_log *old = store->log;
    store->log = copy->to;
    store_turn(store, copy->epoch, &end);
    pthread_mutex_unlock(&store->lock);
    change_log_close(old);
}

/* From the old epoch to the new one. Changes wait. */
static enum status turn(struct compaction *compaction, struct error *e) {
    struct log_copy copy = {.epoch = compaction->next};
    compaction->next = NULL;
    enum status status = copy_changes(compaction, &copy, e);
    if (status == STATUS_OK) status = publish(compaction, e);
    if (status) {
        change_log_close(copy.to);
        epoch_release(copy.epoch);
        return status;
    }
    take_over(compaction->store, &copy);
    return STATUS_OK;
}

/* Returns when no change is under way and none begins. */
static enum status pause_changes(struct store *store, struct error *e) {
    pthread_mutex_lock(&store->lock);
    store->paused = true;
    enum status status = store_drain(store, e);
    while (store->syncing) pthread_cond_wait(&store->changed, &store->lock);
    pthread_mutex_unlock(&store->lock);
    return status;
}

static void resume_changes(struct store *store) {
    pthread_mutex_lock(&store->lock);
    store->paused = false;
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
}

static enum status compact(struct compaction *compaction, struct error *e) {
    struct store *store = compaction->store;
    struct error why;
    int old = compaction->snapshot->info->generation;
    enum status status = write_generation(compaction, e);
    if (status) return status;
    status = pause_changes(store, e);
    if (status == STATUS_OK) status = turn(compaction, e);
    resume_changes(store);
    if (status == STATUS_OK &&
        (disk_remove_generation(store->dir, old, &why) || disk_sync(store->dir, &why)))
        log_warn("%s: the old generation stays on the disk, with what was deleted: %s", store->dir,
                 why.text);
    return status;
}

/* The folder is locked until the end: a compaction counts as a change that is under way. */
static enum status begin_compaction(struct store *store, struct error *e) {
    pthread_mutex_lock(&store->lock);
    enum status status =
        store->compacting ? error_set(e, STATUS_BUSY, "%s: a compaction is under way", store->dir)
                          : store_begin_change(store, e);
    if (status == STATUS_OK) store->compacting = true;
    pthread_mutex_unlock(&store->lock);
    return status;
}

static void end_compaction(struct store *store) {
    pthread_mutex_lock(&store->lock);
    store->compacting = false;
    store_end_change(store);
    pthread_mutex_unlock(&store->lock);
}

enum status store_compact(struct collection *collection, const atomic_bool *cancelled,
                          struct error *e) {
    struct store *store = store_of(collection);
    if (begin_compaction(store, e)) return e->status;
    struct compaction compaction = {
        .store = store, .cancelled = cancelled, .snapshot = collection_hold(collection)};
    enum status status = compact(&compaction, e);
    builder_abandon(compaction.builder);
    epoch_release(compaction.next);
    snapshot_release(compaction.snapshot);
    free(compaction.chunks);
    free(compaction.vectors);
    sparse_rows_free(&compaction.sparse);
    free(compaction.picture);
    end_compaction(store);
    store_tidy(store);
    return status;
}
