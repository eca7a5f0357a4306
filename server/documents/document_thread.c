/* server/documents/document_thread.c: see document_thread.h. */
#include "server/documents/document_thread.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How often other programs' generations are looked for, and counts of a collection in Milvus, which reads all of its
 * rows for them; and how long a compaction that failed is not tried again. */
enum { FOLLOW_MILLISECONDS = 250, COUNT_MILLISECONDS = 2000, COMPACT_AGAIN_SECONDS = 60 };

struct document_thread {
    struct document_thread_options o;
    struct document_cutter cutter; /* as every job's begins */
    pthread_t changer, keeper;
    pthread_t *readers;   /* [n_readers] */
    int n_readers;        /* that run */
    bool changes, keeps;  /* which of the threads run */
    atomic_bool stopped;  /* nothing comes once it is set */
    pthread_mutex_t lock; /* guards it and the lines */
    pthread_cond_t ready; /* a job can be read or carried on, or the threads are to end */
    pthread_cond_t stop;
    struct document_lines lines;
};

/* How far a job is carried out. */
struct document_progress {
    struct document_cutter cutter;
    struct document_quota quota;
    int item, part; /* the next one, of a file that may hold several its part */
    bool taken;     /* of that file: its parts have room */
    bool begun;     /* of that document: it is cut, and some of it is embedded */
};

static struct document_job *job_of(struct document_turn *turn) { return (struct document_job *)turn; }

/* The threads that read files. */

/* The texts of all files of a request are bounded together. */
static enum status count_upload(const struct document_job *j, const struct document_upload *u, int64_t *bytes,
                                struct error *e) {
    *bytes += (int64_t)u->read.text.size;
    for (int i = 0; i < u->n_parts; i++) *bytes += (int64_t)u->parts[i].read.text.size;
    if (*bytes <= j->upload_bytes) return STATUS_OK;
    return error_set(e, STATUS_TOO_LARGE,
                     "%s: the files of the request have %lld bytes of text up to here, and the limit is %lld (option "
                     "server.max_upload_text)",
                     u->name, (long long)*bytes, (long long)j->upload_bytes);
}

/* Every file of a job; the outcome waits with the item for its turn. */
static void read_files(struct document_thread *t, struct document_job *j) {
    int64_t bytes = 0;
    for (int i = 0; i < j->n_items; i++) {
        struct document_item *item = &j->items[i];
        if (item->upload == NULL) continue;
        item->upload->seconds = t->o.upload_seconds;
        item->upload->cancelled = j->cancelled;
        item->upload->stopped = &t->stopped;
        item->status = upload_read(item->upload, &item->error);
        if (item->status == STATUS_OK) item->status = count_upload(j, item->upload, &bytes, &item->error);
    }
}

static void *run_reading(void *argument) {
    struct document_thread *t = argument;
    pthread_mutex_lock(&t->lock);
    while (!atomic_load(&t->stopped)) {
        struct document_turn *turn = lines_take_unread(&t->lines, 1);
        if (turn == NULL) {
            pthread_cond_wait(&t->ready, &t->lock);
            continue;
        }
        pthread_mutex_unlock(&t->lock);
        read_files(t, job_of(turn));
        pthread_mutex_lock(&t->lock);
        lines_end_reading(turn);
        pthread_cond_broadcast(&t->ready);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* The thread that changes. */

static enum status delete_document(struct document_thread *t, const struct document_job *j,
                                   struct document_item *item) {
    enum status status = collection_delete(t->o.collection, j->filter, item->document.id, &item->error);
    item->effect = status ? CHANGE_NOTHING : CHANGE_DELETED;
    return status;
}

/* One that nobody waits for any more, or whose server ends, goes no further. */
static enum status check_goes_on(struct document_thread *t, const struct document_job *j, struct error *e) {
    if (atomic_load(&t->stopped)) return error_set(e, STATUS_CANCELLED, "the server is stopping");
    if (j->cancelled && atomic_load(j->cancelled)) return error_set(e, STATUS_CANCELLED, "nobody waits for it");
    return STATUS_OK;
}

/* Where the outcome of a document goes. */
struct document_fate {
    enum change_effect *effect;
    enum status *status;
    struct error *error;
};

/* A part of putting a document; false when it is over. */
static bool put_some(struct document_thread *t, struct document_job *j, struct collection_document *d,
                     const struct document_fate *fate) {
    struct document_progress *p = j->progress;
    struct error *e = fate->error;
    bool is_there = false, more = false;
    enum status status = check_goes_on(t, j, e);
    if (status == STATUS_OK && !p->begun)
        status = document_put_begin(&p->cutter, t->o.collection, d, &is_there, fate->effect, e);
    p->begun = true;
    if (status == STATUS_OK && !is_there) status = document_put_more(&p->cutter, d, &more, e);
    if (status == STATUS_OK && more) return true;
    if (status == STATUS_OK && !is_there) status = document_put_end(&p->cutter, t->o.collection, d, fate->effect, e);
    *fate->status = status;
    p->begun = false;
    return false;
}

static bool put_part(struct document_thread *t, struct document_job *j, const char *metadata, struct upload_part *p) {
    struct collection_document document = {.id = p->id,
                                           .path = p->path,
                                           .title = p->read.title.data,
                                           .metadata = metadata,
                                           .text = {p->read.text.data, p->read.text.size},
                                           .marks = marks_of(&p->read.marks)};
    if (put_some(t, j, &document, &(struct document_fate){&p->effect, &p->status, &p->error})) return true;
    if (p->status) quota_forget(&j->progress->quota);
    document_text_free(&p->read);
    return false;
}

/* All parts have room, or none is put. */
static enum status take_parts(struct document_job *j, const struct document_item *item, struct error *e) {
    const struct document_upload *u = item->upload;
    struct collection_document *parts = xcalloc((size_t)u->n_parts + 1, sizeof *parts);
    for (int i = 0; i < u->n_parts; i++)
        parts[i] = (struct collection_document){.id = u->parts[i].id,
                                                .metadata = item->document.metadata,
                                                .text = {u->parts[i].read.text.data, u->parts[i].read.text.size}};
    enum status status = quota_take(&j->progress->quota, parts, u->n_parts, e);
    free(parts);
    return status;
}

/* The documents of a file that may hold several, one after the other. */
static bool put_parts(struct document_thread *t, struct document_job *j, struct document_item *item) {
    struct document_progress *p = j->progress;
    struct document_upload *u = item->upload;
    if (!p->taken) item->status = take_parts(j, item, &item->error);
    p->taken = item->status == STATUS_OK;
    if (!p->taken) return false;
    if (p->part < u->n_parts && !put_part(t, j, item->document.metadata, &u->parts[p->part])) p->part++;
    if (p->part < u->n_parts) return true;
    p->part = 0;
    p->taken = false;
    return false;
}

static bool put_item(struct document_thread *t, struct document_job *j, struct document_item *item) {
    struct document_upload *u = item->upload;
    if (u && item->status) return false; /* it could not be read */
    if (u && upload_holds_several(u)) return put_parts(t, j, item);
    if (u) {
        item->document.text = (struct text_span){u->read.text.data, u->read.text.size};
        item->document.marks = marks_of(&u->read.marks);
        if (item->document.title[0] == '\0' && u->read.title.data) item->document.title = u->read.title.data;
    }
    if (!j->progress->begun) item->status = quota_take(&j->progress->quota, &item->document, 1, &item->error);
    if (item->status) return false;
    return put_some(t, j, &item->document, &(struct document_fate){&item->effect, &item->status, &item->error});
}

/* A part of the item whose turn it is; a deletion is one. */
static bool carry_out(struct document_thread *t, struct document_job *j, struct document_item *item) {
    if (!j->deletes) return put_item(t, j, item);
    item->status = check_goes_on(t, j, &item->error);
    if (item->status == STATUS_OK) item->status = delete_document(t, j, item);
    return false;
}

/* Several documents into Milvus by few calls. */

static enum status finish_item(void *context, const struct document_put *p, struct error *e) {
    struct document_item **next = context;
    struct document_item *item = *next;
    (void)e;
    item->effect = p->effect;
    item->status = p->status;
    if (p->status) item->error = p->error;
    (*next)++;
    return STATUS_OK;
}

static bool are_put_together(const struct document_thread *t, const struct document_job *j) {
    if (!collection_is_remote(t->o.collection) || j->deletes || quota_is_set(&j->progress->quota)) return false;
    for (int i = 0; i < j->n_items; i++)
        if (j->items[i].upload) return false;
    return j->n_items > 1;
}

static void put_together(struct document_thread *t, struct document_job *j) {
    struct document_item *next = j->items;
    struct document_group group = {.cutter = &j->progress->cutter,
                                   .collection = t->o.collection,
                                   .cancelled = j->cancelled,
                                   .take = finish_item,
                                   .context = &next};
    struct error e;
    enum status status = STATUS_OK;
    for (int i = 0; i < j->n_items && status == STATUS_OK; i++) {
        status = check_goes_on(t, j, &e);
        if (status == STATUS_OK) status = group_add(&group, &j->items[i].document, &e);
    }
    if (status == STATUS_OK) status = group_flush(&group, &e);
    for (; next < j->items + j->n_items; next++) next->status = error_set(&next->error, status, "%s", e.text);
    group_free(&group);
}

/* Every item that is left ends where the asker leaves or the server stops. */
static bool give_up(struct document_thread *t, struct document_job *j) {
    struct error e;
    if (check_goes_on(t, j, &e) == STATUS_OK) return false;
    for (; j->progress->item < j->n_items; j->progress->item++) {
        struct document_item *item = &j->items[j->progress->item];
        item->status = error_set(&item->error, e.status, "%s", e.text);
    }
    return true;
}

/* A part of a job; false when it is over. */
static bool carry_on(struct document_thread *t, struct document_job *j) {
    struct document_progress *p = j->progress;
    if (j->run && !atomic_load(&t->stopped)) j->run(j);
    if (p->item == j->n_items || give_up(t, j)) return false;
    if (are_put_together(t, j)) {
        put_together(t, j);
        return false;
    }
    if (carry_out(t, j, &j->items[p->item])) return true;
    if (j->items[p->item].status) quota_forget(&p->quota);
    p->item++;
    return p->item < j->n_items;
}

static struct document_job *take_job(struct document_thread *t) {
    pthread_mutex_lock(&t->lock);
    struct document_turn *turn = lines_choose(&t->lines, atomic_load(&t->stopped));
    while (turn == NULL && !(atomic_load(&t->stopped) && t->lines.n == 0)) {
        pthread_cond_wait(&t->ready, &t->lock);
        turn = lines_choose(&t->lines, atomic_load(&t->stopped));
    }
    pthread_mutex_unlock(&t->lock);
    return turn ? job_of(turn) : NULL;
}

static void begin_job(const struct document_thread *t, struct document_job *j) {
    j->progress = xcalloc(1, sizeof *j->progress);
    j->progress->cutter = t->cutter;
    j->progress->cutter.filter = j->filter;
    j->progress->quota = (struct document_quota){.collection = t->o.collection, .who = j->who};
}

/* The tokens that were embedded are charged before the answer is there. */
static void end_job(struct document_thread *t, struct document_job *j) {
    quota_note(&j->progress->quota);
    if (j->who) principal_charge(j->who, j->progress->cutter.n_tokens_read, 0);
    document_cutter_close(&j->progress->cutter);
    free(j->progress);
    j->progress = NULL;
    pthread_mutex_lock(&t->lock);
    lines_leave(&t->lines, &j->turn);
    pthread_mutex_unlock(&t->lock);
    j->done(j);
}

static void *run_changes(void *argument) {
    struct document_thread *t = argument;
    for (struct document_job *j = take_job(t); j; j = take_job(t)) {
        if (j->progress == NULL) begin_job(t, j);
        if (!carry_on(t, j)) end_job(t, j);
    }
    return NULL;
}

/* The thread that keeps the collection in order. */

static void follow(struct document_thread *t) {
    struct error e;
    if (collection_follow(t->o.collection, &e)) log_warn("the collection stays as it was: %s", e.text);
}

static bool is_due(struct document_thread *t) {
    struct collection_changes changes;
    struct error e;
    if (collection_count_changes(t->o.collection, &changes, &e)) return false;
    return t->o.compact_after > 0 && changes.n_chunks + changes.n_deleted_chunks >= t->o.compact_after;
}

/* Returns false where it failed. */
static bool compact(struct document_thread *t) {
    struct error e;
    double start = time_now();
    enum status status = collection_compact(t->o.collection, &t->stopped, &e);
    if (status == STATUS_CANCELLED) return true;
    if (status) {
        log_warn("the collection is not compacted: %s", e.text);
        return false;
    }
    struct snapshot *snapshot = collection_hold(t->o.collection);
    log_info("collection: compacted to generation %d in %.1f s, %" PRId64 " documents, %" PRId64 " chunks",
             snapshot->generation, time_now() - start, snapshot->n_documents, snapshot->n_chunks);
    snapshot_release(snapshot);
    return true;
}

/* Waits; returns false when the thread shall end. */
static bool wait_a_little(struct document_thread *t) {
    struct timespec until;
    int pause = collection_is_remote(t->o.collection) ? COUNT_MILLISECONDS : FOLLOW_MILLISECONDS;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += pause / 1000;
    until.tv_nsec += pause % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&t->lock);
    int waited = 0;
    while (!atomic_load(&t->stopped) && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&t->stop, &t->lock, &until);
    bool goes_on = !atomic_load(&t->stopped);
    pthread_mutex_unlock(&t->lock);
    return goes_on;
}

static void *run_keeping(void *argument) {
    struct document_thread *t = argument;
    double again = 0;
    while (wait_a_little(t)) {
        follow(t);
        if (time_now() < again || !is_due(t)) continue;
        if (!compact(t)) again = time_now() + COMPACT_AGAIN_SECONDS;
    }
    return NULL;
}

/* Opening and closing. */

enum status document_thread_open(struct document_thread **out, const struct document_thread_options *o,
                                 struct error *e) {
    struct document_thread *t = xcalloc(1, sizeof *t);
    t->o = *o;
    t->cutter = (struct document_cutter){
        .tokenizer = o->tokenizer, .embedder = o->embedder, .pictures = o->pictures, .chunk_length = o->chunk_length};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->ready, NULL);
    pthread_cond_init(&t->stop, NULL);
    t->readers = xcalloc((size_t)o->readers, sizeof *t->readers);
    while (t->n_readers < o->readers && pthread_create(&t->readers[t->n_readers], NULL, run_reading, t) == 0)
        t->n_readers++;
    t->changes = t->n_readers == o->readers && pthread_create(&t->changer, NULL, run_changes, t) == 0;
    t->keeps = t->changes && pthread_create(&t->keeper, NULL, run_keeping, t) == 0;
    if (!t->keeps) {
        document_thread_close(t);
        return error_set(e, STATUS_NO_MEMORY, "the document threads could not be started");
    }
    *out = t;
    return STATUS_OK;
}

void document_thread_stop(struct document_thread *t) {
    if (t == NULL) return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->stopped, true);
    pthread_cond_broadcast(&t->stop);
    pthread_cond_broadcast(&t->ready);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->n_readers; i++) pthread_join(t->readers[i], NULL);
    t->n_readers = 0;
    if (t->changes) pthread_join(t->changer, NULL);
    if (t->keeps) pthread_join(t->keeper, NULL);
    t->changes = t->keeps = false;
}

void document_thread_close(struct document_thread *t) {
    if (t == NULL) return;
    document_thread_stop(t);
    free(t->readers);
    pthread_cond_destroy(&t->ready);
    pthread_cond_destroy(&t->stop);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

enum status document_thread_ask(struct document_thread *t, struct document_job *j, struct error *e) {
    enum status status = STATUS_OK;
    enum document_stage stage = STAGE_READY;
    if (!j->deletes && j->run == NULL && t->o.tokenizer == NULL)
        return error_set(e, STATUS_UNSUPPORTED,
                         "the tokenizer that the collection was cut with is not there; documents can be deleted only");
    for (int i = 0; i < j->n_items; i++)
        if (j->items[i].upload) stage = STAGE_UNREAD;
    pthread_mutex_lock(&t->lock);
    if (atomic_load(&t->stopped))
        status = error_set(e, STATUS_BUSY, "the server is stopping");
    else if (t->lines.n == t->o.capacity)
        status = error_set(e, STATUS_BUSY, "%d changes of documents are waiting already", t->o.capacity);
    else {
        j->progress = NULL;
        j->turn.stage = stage;
        lines_add(&t->lines, j->client, &j->turn);
        pthread_cond_broadcast(&t->ready);
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}
