/* retrieval/store/store_change.c: adding, replacing and deleting documents. A change is written to
 * the log under the lock, and put on the disk without it: whoever comes first syncs for all that
 * are written by then. Changes that are on the disk are carried out in memory, in the order of the
 * log, and become the newest snapshot. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/store/store_private.h"

static enum status refuse_change(const struct store *store, struct error *e) {
    if (store->uncut)
        return error_set(
            e, STATUS_IO,
            "%s: a change could neither be written nor taken back; restart the program",
            store->dir);
    return error_set(e, STATUS_IO,
                     "%s: a change could not be written, nor those that waited with it; try again",
                     store->dir);
}

/* Locking: for all callers who change something at the same time. */

/* After an fsync that failed, of this program or of another, the name of CURRENT may be in memory
 * alone for ever: the next one succeeds without it. So before anything is acknowledged in a
 * generation, CURRENT is written anew. */
static enum status settle_current(struct store *store, struct generation_origin opened,
                                  struct error *e) {
    struct generation_origin now;
    if (origin_equal(opened, store->settled)) return STATUS_OK;
    if (current_read(store->dir, &now.generation, &now.manifest_checksum, e)) return e->status;
    if (current_write(store->dir, now, e) || disk_sync(store->dir, e)) return e->status;
    store->settled = now;
    return STATUS_OK;
}

/* Once the folder is locked nobody else changes it: what others have done is read, then the log is
 * opened. That syncs, and searches do not wait for it: until the log is ours they may go on reading
 * it. */
static enum status open_log(struct store *store, struct error *e) {
    struct change_log *log;
    pthread_mutex_lock(&store->lock);
    store_refresh(store); /* it may find that our epoch went astray */
    pthread_mutex_unlock(&store->lock);
    enum status status = store_follow(store, true, e);
    if (status) return status;
    pthread_mutex_lock(&store->lock);
    struct disk_generation *generation = disk_generation_hold(store->epoch->generation);
    struct change_log_end end = store->end;
    pthread_mutex_unlock(&store->lock);

    struct generation_origin origin = disk_generation_origin(generation);
    status = settle_current(store, origin, e);
    if (status == STATUS_OK)
        status = change_log_open(&log, disk_generation_folder(generation), origin, &end, e);
    pthread_mutex_lock(&store->lock);
    if (status == STATUS_OK) {
        store->log = log;
        store->end = change_log_end(log);
    }
    if (status == STATUS_CORRUPT && !end.damaged)
        store->astray = true; /* the next change reads the log anew */
    pthread_mutex_unlock(&store->lock);
    disk_generation_close(generation);
    return status;
}

static void unlock_folder(struct store *store) {
    change_log_close(store->log);
    store->log = NULL;
    generation_unlock(store->lock_file);
    store->lock_file = -1;
}

/* After a failure, when all who were changing something have left: the log is opened anew, as
 * another program would. It ends with the last change that was acknowledged, and is put on the disk
 * once more before anything is written behind it. */
static void begin_again(struct store *store) {
    store->failed = false;
    store->n_kept = store->n_written;
    store->end.synced = 0;
}

/* A folder that is away is not the fault of whoever asks for a change: nobody who deletes a
 * document may take it for gone. */
static enum status blame_folder(struct error *e) {
    if (e->status == STATUS_NOT_FOUND || e->status == STATUS_INVALID ||
        e->status == STATUS_TOO_LARGE)
        e->status = STATUS_IO;
    return e->status;
}

enum status store_begin_change(struct store *store, struct error *e) {
    enum status status = STATUS_OK;
    while (store->locking) pthread_cond_wait(&store->changed, &store->lock);
    if (store->failed && (store->uncut || store->n_changing > 0)) return refuse_change(store, e);
    if (store->failed) begin_again(store);
    if (store->n_changing == 0) {
        store->locking = true;
        pthread_mutex_unlock(&store->lock);
        status = generation_lock_soon(&store->lock_file, store->dir, e);
        if (status == STATUS_OK) status = open_log(store, e);
        if (status) status = blame_folder(e);
        pthread_mutex_lock(&store->lock);
        store->locking = false;
        if (status) unlock_folder(store);
        pthread_cond_broadcast(&store->changed);
    }
    if (status == STATUS_OK) store->n_changing++;
    return status;
}

void store_end_change(struct store *store) {
    store->n_changing--;
    if (store->n_changing == 0) unlock_folder(store);
}

/* Pending changes: written, and not yet known to be on the disk. */

static void free_pending(struct pending_change *change) {
    logged_bytes_release(change->bytes);
    free(change->id);
    free(change);
}

static void carry_out(struct store *store, struct pending_change *change) {
    if (change->kind == CHANGE_PUT)
        epoch_put(store->epoch, logged_bytes_hold(change->bytes), change->sequence);
    if (change->kind == CHANGE_DELETE)
        CHECK(epoch_delete(store->epoch, change->id, change->sequence));
}

/* Carries out all changes up to `end`, which are on the disk. */
static void publish(struct store *store, const struct change_log_end *end) {
    while (store->pending && store->pending->sequence <= end->sequence) {
        struct pending_change *change = store->pending;
        store->pending = change->next;
        carry_out(store, change);
        store->n_kept = change->ticket;
        free_pending(change);
    }
    if (store->pending == NULL) store->pending_end = &store->pending;
    store->end = *end;
    store_renew(store);
}

/* Nobody is told that they are kept. */
static void drop_pending(struct store *store) {
    while (store->pending) {
        struct pending_change *change = store->pending;
        store->pending = change->next;
        free_pending(change);
    }
    store->pending_end = &store->pending;
    store->failed = true;
    store->uncut = !change_log_give_up(store->log, store->end.size);
}

/* One fsync for all that is written. */
static enum status sync_pending(struct store *store, struct error *e) {
    struct change_log_end end = change_log_end(store->log);
    store->syncing = true;
    pthread_mutex_unlock(&store->lock);
    enum status status = change_log_sync(store->log, &end, e);
    pthread_mutex_lock(&store->lock);
    store->syncing = false;
    end.synced = end.size;
    if (status == STATUS_OK)
        publish(store, &end);
    else
        drop_pending(store);
    pthread_cond_broadcast(&store->changed);
    return status;
}

/* Returns when the change of that ticket is on the disk and in the newest snapshot. */
static enum status wait_for_disk(struct store *store, uint64_t ticket, struct error *e) {
    while (store->n_kept < ticket) {
        if (store->failed) return refuse_change(store, e);
        if (store->syncing)
            pthread_cond_wait(&store->changed, &store->lock);
        else if (sync_pending(store, e))
            return e->status;
    }
    return STATUS_OK;
}

enum status store_drain(struct store *store, struct error *e) {
    return wait_for_disk(store, store->n_written, e);
}

/* Writes a change to the log and waits for the disk. Takes over the change. */
static enum status write_change(struct store *store, struct pending_change *change,
                                struct text_span payload, struct error *e) {
    enum status status = change_log_append(store->log, change->kind, payload, e);
    if (status) {
        free_pending(change);
        return status;
    }
    uint64_t ticket = store->n_written + 1;
    store->n_written = ticket;
    change->sequence = change_log_end(store->log).sequence;
    change->ticket = ticket;
    *store->pending_end = change;
    store->pending_end = &change->next;
    return wait_for_disk(store, ticket, e);
}

static const struct pending_change *find_pending(const struct store *store, const char *id) {
    const struct pending_change *found = NULL;
    for (const struct pending_change *change = store->pending; change; change = change->next)
        if (strcmp(change->kind == CHANGE_PUT ? change->bytes->image.document.id : change->id,
                   id) == 0)
            found = change;
    return found;
}

/* Waits for the moment at which the document may be changed: a pending change may concern the same
 * one, and the end of a compaction takes no change. */
static enum status await_turn(struct store *store, const char *id, struct error *e) {
    for (;;) {
        const struct pending_change *waiting = find_pending(store, id);
        if (store->failed) return refuse_change(store, e);
        if (store->paused)
            pthread_cond_wait(&store->changed, &store->lock);
        else if (waiting == NULL)
            return STATUS_OK;
        else if (wait_for_disk(store, waiting->ticket, e))
            return e->status;
    }
}

/* Putting. */

static bool is_same(const char *a, const char *b) { return strcmp(a ? a : "", b ? b : "") == 0; }

/* Whether the document at a place has this content. */
static bool is_content_of(const struct epoch *epoch, int64_t place,
                          const struct collection_document *document) {
    struct stored_document now = epoch_document(epoch, place);
    return now.text.size == document->text.size &&
           memcmp(now.text.text, document->text.text, document->text.size) == 0 &&
           is_same(now.path, document->path) && is_same(now.title, document->title) &&
           is_same(now.metadata, document->metadata) && is_same(now.source, document->source) &&
           is_same(now.file, document->file) && marks_equal(now.marks, document->marks);
}

enum status store_has_all(struct collection *collection,
                          const struct collection_document *const *documents, int n, bool *has,
                          struct error *e) {
    struct store *store = store_of(collection);
    (void)e;
    pthread_mutex_lock(&store->lock);
    store_refresh(store);
    for (int i = 0; i < n; i++) {
        int64_t place = epoch_find(store->epoch, documents[i]->id);
        has[i] = place >= 0 && is_content_of(store->epoch, place, documents[i]);
    }
    pthread_mutex_unlock(&store->lock);
    return STATUS_OK;
}

/* Whether the filter allows the document, and the one that it would replace. */
static enum status check_allowed(const struct epoch *epoch, const struct filter *filter,
                                 const struct logged_bytes *bytes, struct error *e) {
    const struct collection_document *document = &bytes->image.document;
    struct filter_subject subject = {.id = document->id,
                                     .path = document->path,
                                     .facts = {bytes->facts.data, bytes->facts.size}};
    if (filter == NULL) return STATUS_OK;
    if (filter_admits(filter, &subject) &&
        epoch_find(epoch, document->id) == epoch_find_allowed(epoch, filter, document->id))
        return STATUS_OK;
    return filter_refuse(filter, e);
}

/* The rules that a document is held to when its turn has come. */
struct put_rules {
    const struct filter *filter; /* NULL: all documents may be put */
    uint64_t mark;               /* of its vectors */
};

/* Vectors of another embedder are refused: the collection has turned to its own meanwhile. */
static enum status check_mark(uint64_t mark, const struct collection_info *info, struct error *e) {
    if (mark == collection_vector_mark(info)) return STATUS_OK;
    return error_set(
        e, STATUS_BUSY,
        "the collection has turned to vectors of another embedder meanwhile; try again");
}

/* Takes over the change. */
static enum status put_locked(struct store *store, struct pending_change *change,
                              const struct put_rules *rules, enum change_effect *effect,
                              struct error *e) {
    const struct collection_document *document = &change->bytes->image.document;
    enum status status = await_turn(store, document->id, e);
    if (status == STATUS_OK)
        status = check_mark(rules->mark, disk_generation_info(store->epoch->generation), e);
    bool refused =
        status == STATUS_OK && check_allowed(store->epoch, rules->filter, change->bytes, e);
    if (refused) status = e->status;
    if (status == STATUS_OK) status = epoch_check_room(store->epoch, e);
    int64_t place = status ? -1 : epoch_find(store->epoch, document->id);
    bool same = place >= 0 && is_content_of(store->epoch, place, document);
    if (status || same) {
        *effect = refused ? CHANGE_REFUSED : CHANGE_NOTHING;
        free_pending(change);
        return status;
    }
    *effect = place >= 0 ? CHANGE_REPLACED : CHANGE_ADDED;
    return write_change(store, change,
                        (struct text_span){change->bytes->bytes, change->bytes->size}, e);
}

static enum status put_document(struct store *store, const struct filter *filter,
                                struct document_put *put, struct error *e) {
    struct pending_change *change = xcalloc(1, sizeof *change);
    struct snapshot *snapshot = collection_hold(&store->base);
    change->kind = CHANGE_PUT;
    const struct put_rules rules = {filter, collection_vector_mark(snapshot->info)};
    enum status status =
        put->document->mark ? check_mark(put->document->mark, snapshot->info, e) : STATUS_OK;
    if (status == STATUS_OK)
        status = logged_bytes_make(&change->bytes, put->document, put->vectors, snapshot->info, e);
    snapshot_release(snapshot);
    if (status) {
        free_pending(change);
        return status;
    }

    pthread_mutex_lock(&store->lock);
    status = store_begin_change(store, e);
    if (status == STATUS_OK) {
        status = put_locked(store, change, &rules, &put->effect, e);
        store_end_change(store);
    } else {
        free_pending(change);
    }
    pthread_mutex_unlock(&store->lock);
    return status;
}

void store_put_all(struct collection *collection, const struct filter *filter,
                   struct document_put *puts, int n) {
    for (int i = 0; i < n; i++)
        puts[i].status = put_document(store_of(collection), filter, &puts[i], &puts[i].error);
}

/* Deleting. */

static enum status delete_locked(struct store *store, const struct filter *filter, const char *id,
                                 struct error *e) {
    enum status status = await_turn(store, id, e);
    if (status) return status;
    if (epoch_find_allowed(store->epoch, filter, id) < 0)
        return error_set(e, STATUS_NOT_FOUND, "no document has the id %.200s", id);
    struct pending_change *change = xcalloc(1, sizeof *change);
    change->kind = CHANGE_DELETE;
    change->id = xstrdup(id);
    return write_change(store, change, (struct text_span){id, strlen(id) + 1}, e);
}

enum status store_remove(struct collection *collection, const struct filter *filter, const char *id,
                         struct error *e) {
    struct store *store = store_of(collection);
    pthread_mutex_lock(&store->lock);
    enum status status = store_begin_change(store, e);
    if (status == STATUS_OK) {
        status = delete_locked(store, filter, id, e);
        store_end_change(store);
    }
    pthread_mutex_unlock(&store->lock);
    return status;
}
