/* retrieval/store/store_change.c: adding, replacing and deleting documents. A change is written to the log under the
 * lock, and put on the disk without it: whoever comes first syncs for all that are written by then. Changes that are on
 * the disk are carried out in memory, in the order of the log, and become the newest snapshot. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/store/store_private.h"

static enum status refuse_change(const struct store *l, struct error *e) {
    if (l->uncut)
        return error_set(e, STATUS_IO, "%s: a change could neither be written nor taken back; restart the program",
                         l->dir);
    return error_set(e, STATUS_IO, "%s: a change could not be written, nor those that waited with it; try again",
                     l->dir);
}

/* Locking: for all callers who change something at the same time. */

/* After an fsync that failed, of this program or of another, the name of CURRENT may be in memory alone for ever: the
 * next one succeeds without it. So before anything is acknowledged in a generation, CURRENT is written anew. */
static enum status settle_current(struct store *l, struct generation_origin opened, struct error *e) {
    struct generation_origin now;
    if (origin_equal(opened, l->settled)) return STATUS_OK;
    if (current_read(l->dir, &now.generation, &now.manifest_checksum, e)) return e->status;
    if (current_write(l->dir, now, e) || disk_sync(l->dir, e)) return e->status;
    l->settled = now;
    return STATUS_OK;
}

/* Once the folder is locked nobody else changes it: what others have done is read, then the log is opened. That syncs,
 * and searches do not wait for it: until the log is ours they may go on reading it. */
static enum status open_log(struct store *l, struct error *e) {
    struct change_log *log;
    pthread_mutex_lock(&l->lock);
    store_refresh(l); /* it may find that our epoch went astray */
    pthread_mutex_unlock(&l->lock);
    enum status status = store_follow(l, e);
    if (status) return status;
    pthread_mutex_lock(&l->lock);
    struct disk_generation *c = disk_generation_hold(l->epoch->generation);
    struct change_log_end end = l->end;
    pthread_mutex_unlock(&l->lock);

    struct generation_origin origin = disk_generation_origin(c);
    status = settle_current(l, origin, e);
    if (status == STATUS_OK) status = change_log_open(&log, disk_generation_folder(c), origin, &end, e);
    pthread_mutex_lock(&l->lock);
    if (status == STATUS_OK) {
        l->log = log;
        l->end = change_log_end(log);
    }
    if (status == STATUS_CORRUPT && !end.damaged) l->astray = true; /* the next change reads the log anew */
    pthread_mutex_unlock(&l->lock);
    disk_generation_close(c);
    return status;
}

static void unlock_folder(struct store *l) {
    change_log_close(l->log);
    l->log = NULL;
    store_unlock(l->lock_file);
    l->lock_file = -1;
}

/* After a failure, when all who were changing something have left: the log is opened anew, as another program would. It
 * ends with the last change that was acknowledged, and is put on the disk once more before anything is written behind
 * it. */
static void begin_again(struct store *l) {
    l->failed = false;
    l->n_kept = l->n_written;
    l->end.synced = 0;
}

enum status store_begin_change(struct store *l, struct error *e) {
    enum status status = STATUS_OK;
    while (l->locking) pthread_cond_wait(&l->changed, &l->lock);
    if (l->failed && (l->uncut || l->n_changing > 0)) return refuse_change(l, e);
    if (l->failed) begin_again(l);
    if (l->n_changing == 0) {
        l->locking = true;
        pthread_mutex_unlock(&l->lock);
        status = store_lock_soon(&l->lock_file, l->dir, e);
        if (status == STATUS_OK) status = open_log(l, e);
        pthread_mutex_lock(&l->lock);
        l->locking = false;
        if (status) unlock_folder(l);
        pthread_cond_broadcast(&l->changed);
    }
    if (status == STATUS_OK) l->n_changing++;
    return status;
}

void store_end_change(struct store *l) {
    l->n_changing--;
    if (l->n_changing == 0) unlock_folder(l);
}

/* Pending changes: written, and not yet known to be on the disk. */

static void free_pending(struct pending_change *p) {
    logged_bytes_release(p->bytes);
    free(p->id);
    free(p);
}

static void carry_out(struct store *l, struct pending_change *p) {
    if (p->kind == CHANGE_PUT) epoch_put(l->epoch, logged_bytes_hold(p->bytes), p->sequence);
    if (p->kind == CHANGE_DELETE) CHECK(epoch_delete(l->epoch, p->id, p->sequence));
}

/* Carries out all changes up to `end`, which are on the disk. */
static void publish(struct store *l, const struct change_log_end *end) {
    while (l->pending && l->pending->sequence <= end->sequence) {
        struct pending_change *p = l->pending;
        l->pending = p->next;
        carry_out(l, p);
        l->n_kept = p->ticket;
        free_pending(p);
    }
    if (l->pending == NULL) l->pending_end = &l->pending;
    l->end = *end;
    store_renew(l);
}

/* Nobody is told that they are kept. */
static void drop_pending(struct store *l) {
    while (l->pending) {
        struct pending_change *p = l->pending;
        l->pending = p->next;
        free_pending(p);
    }
    l->pending_end = &l->pending;
    l->failed = true;
    l->uncut = !change_log_give_up(l->log, l->end.size);
}

/* One fsync for all that is written. */
static enum status sync_pending(struct store *l, struct error *e) {
    struct change_log_end end = change_log_end(l->log);
    l->syncing = true;
    pthread_mutex_unlock(&l->lock);
    enum status status = change_log_sync(l->log, &end, e);
    pthread_mutex_lock(&l->lock);
    l->syncing = false;
    end.synced = end.size;
    if (status == STATUS_OK)
        publish(l, &end);
    else
        drop_pending(l);
    pthread_cond_broadcast(&l->changed);
    return status;
}

/* Returns when the change of that ticket is on the disk and in the newest snapshot. */
static enum status wait_for_disk(struct store *l, uint64_t ticket, struct error *e) {
    while (l->n_kept < ticket) {
        if (l->failed) return refuse_change(l, e);
        if (l->syncing)
            pthread_cond_wait(&l->changed, &l->lock);
        else if (sync_pending(l, e))
            return e->status;
    }
    return STATUS_OK;
}

enum status store_drain(struct store *l, struct error *e) { return wait_for_disk(l, l->n_written, e); }

/* Writes a change to the log and waits for the disk. Takes over p. */
static enum status write_change(struct store *l, struct pending_change *p, struct text_span payload, struct error *e) {
    enum status status = change_log_append(l->log, p->kind, payload, e);
    if (status) {
        free_pending(p);
        return status;
    }
    uint64_t ticket = l->n_written + 1;
    l->n_written = ticket;
    p->sequence = change_log_end(l->log).sequence;
    p->ticket = ticket;
    *l->pending_end = p;
    l->pending_end = &p->next;
    return wait_for_disk(l, ticket, e);
}

static const struct pending_change *find_pending(const struct store *l, const char *id) {
    const struct pending_change *found = NULL;
    for (const struct pending_change *p = l->pending; p; p = p->next)
        if (strcmp(p->kind == CHANGE_PUT ? p->bytes->image.document.id : p->id, id) == 0) found = p;
    return found;
}

/* Waits for the moment at which the document may be changed: a pending change may concern the same one, and the end of
 * a compaction takes no change. */
static enum status await_turn(struct store *l, const char *id, struct error *e) {
    for (;;) {
        const struct pending_change *waiting = find_pending(l, id);
        if (l->failed) return refuse_change(l, e);
        if (l->paused)
            pthread_cond_wait(&l->changed, &l->lock);
        else if (waiting == NULL)
            return STATUS_OK;
        else if (wait_for_disk(l, waiting->ticket, e))
            return e->status;
    }
}

/* Putting. */

static bool is_same(const char *a, const char *b) { return strcmp(a ? a : "", b ? b : "") == 0; }

/* Whether the document at a place has this content. */
static bool is_content_of(const struct epoch *x, int64_t place, const struct collection_document *d) {
    struct stored_document now = epoch_document(x, place);
    return now.text.size == d->text.size && memcmp(now.text.text, d->text.text, d->text.size) == 0 &&
           is_same(now.path, d->path) && is_same(now.title, d->title) && is_same(now.metadata, d->metadata) &&
           is_same(now.source, d->source) && marks_equal(now.marks, d->marks);
}

enum status store_has_all(struct collection *c, const struct collection_document *const *documents, int n, bool *has,
                          struct error *e) {
    struct store *l = store_of(c);
    (void)e;
    pthread_mutex_lock(&l->lock);
    store_refresh(l);
    for (int i = 0; i < n; i++) {
        int64_t place = epoch_find(l->epoch, documents[i]->id);
        has[i] = place >= 0 && is_content_of(l->epoch, place, documents[i]);
    }
    pthread_mutex_unlock(&l->lock);
    return STATUS_OK;
}

/* Whether the filter allows the document, and the one that it would replace. */
static enum status check_allowed(const struct epoch *x, const struct filter *filter, const struct logged_bytes *b,
                                 struct error *e) {
    const struct collection_document *d = &b->image.document;
    struct filter_subject subject = {.id = d->id, .path = d->path, .facts = {b->facts.data, b->facts.size}};
    if (filter == NULL) return STATUS_OK;
    if (filter_admits(filter, &subject) && epoch_find(x, d->id) == epoch_find_allowed(x, filter, d->id))
        return STATUS_OK;
    return filter_refuse(filter, e);
}

/* Takes over p. */
static enum status put_locked(struct store *l, struct pending_change *p, const struct filter *filter,
                              enum change_effect *effect, struct error *e) {
    const struct collection_document *d = &p->bytes->image.document;
    enum status status = await_turn(l, d->id, e);
    bool refused = status == STATUS_OK && check_allowed(l->epoch, filter, p->bytes, e);
    if (refused) status = e->status;
    if (status == STATUS_OK) status = epoch_check_room(l->epoch, e);
    int64_t place = status ? -1 : epoch_find(l->epoch, d->id);
    bool same = place >= 0 && is_content_of(l->epoch, place, d);
    if (status || same) {
        *effect = refused ? CHANGE_REFUSED : CHANGE_NOTHING;
        free_pending(p);
        return status;
    }
    *effect = place >= 0 ? CHANGE_REPLACED : CHANGE_ADDED;
    return write_change(l, p, (struct text_span){p->bytes->bytes, p->bytes->size}, e);
}

static enum status put_document(struct store *l, const struct filter *filter, struct document_put *put,
                                struct error *e) {
    struct pending_change *p = xcalloc(1, sizeof *p);
    struct snapshot *snapshot = collection_hold(&l->base);
    p->kind = CHANGE_PUT;
    enum status status = logged_bytes_make(&p->bytes, put->document, put->vectors, snapshot->info, e);
    snapshot_release(snapshot);
    if (status) {
        free_pending(p);
        return status;
    }

    pthread_mutex_lock(&l->lock);
    status = store_begin_change(l, e);
    if (status == STATUS_OK) {
        status = put_locked(l, p, filter, &put->effect, e);
        store_end_change(l);
    } else {
        free_pending(p);
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

void store_put_all(struct collection *c, const struct filter *filter, struct document_put *puts, int n) {
    for (int i = 0; i < n; i++) puts[i].status = put_document(store_of(c), filter, &puts[i], &puts[i].error);
}

/* Deleting. */

static enum status delete_locked(struct store *l, const struct filter *filter, const char *id, struct error *e) {
    enum status status = await_turn(l, id, e);
    if (status) return status;
    if (epoch_find_allowed(l->epoch, filter, id) < 0)
        return error_set(e, STATUS_NOT_FOUND, "no document has the id %.200s", id);
    struct pending_change *p = xcalloc(1, sizeof *p);
    p->kind = CHANGE_DELETE;
    p->id = xstrdup(id);
    return write_change(l, p, (struct text_span){id, strlen(id) + 1}, e);
}

enum status store_remove(struct collection *c, const struct filter *filter, const char *id, struct error *e) {
    struct store *l = store_of(c);
    pthread_mutex_lock(&l->lock);
    enum status status = store_begin_change(l, e);
    if (status == STATUS_OK) {
        status = delete_locked(l, filter, id, e);
        store_end_change(l);
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}
