/* server/schedule/document_thread.c: see document_thread.h. */
#include "server/schedule/document_thread.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/schedule/queue.h"

/* How often other programs' generations are looked for, and counts of a collection in Milvus, which reads all of its
 * rows for them; and how long a compaction that failed is not tried again. */
enum { FOLLOW_MILLISECONDS = 250, COUNT_MILLISECONDS = 2000, COMPACT_AGAIN_SECONDS = 60 };

struct document_thread {
    struct document_thread_options o;
    struct document_cutter cutter;
    pthread_t changer, keeper;
    bool changes, keeps; /* which of the threads run */
    struct bell bell;
    struct queue jobs;
    atomic_bool stopped;
    pthread_mutex_t lock; /* nothing comes once stopped is set */
    pthread_cond_t stop;
};

/* The thread that changes. */

static enum status delete_document(struct document_thread *t, const struct document_job *j,
                                   struct document_item *item) {
    enum status status = library_delete(t->o.library, j->filter, item->document.id, &item->error);
    item->effect = status ? CHANGE_NOTHING : CHANGE_DELETED;
    return status;
}

/* One that nobody waits for any more, or whose server ends, is not begun. */
static enum status check_goes_on(struct document_thread *t, const struct document_job *j, struct error *e) {
    if (atomic_load(&t->stopped)) return error_set(e, STATUS_CANCELLED, "the server is stopping");
    if (j->cancelled && atomic_load(j->cancelled)) return error_set(e, STATUS_CANCELLED, "nobody waits for it");
    return STATUS_OK;
}

static enum status put_part(struct document_thread *t, const struct document_job *j, const char *metadata,
                            struct upload_part *p) {
    struct collection_document document = {.id = p->id,
                                           .path = p->path,
                                           .title = p->read.title.data,
                                           .metadata = metadata,
                                           .text = {p->read.text.data, p->read.text.size},
                                           .marks = marks_of(&p->read.marks)};
    if (check_goes_on(t, j, &p->error)) return p->error.status;
    return document_put(&t->cutter, t->o.library, &document, j->cancelled, &p->effect, &p->error);
}

static enum status put_upload(struct document_thread *t, const struct document_job *j, struct document_item *item) {
    struct document_upload *u = item->upload;
    if (upload_read(u, &item->error)) return item->error.status;
    if (upload_holds_several(u)) {
        for (int i = 0; i < u->n_parts; i++) {
            u->parts[i].status = put_part(t, j, item->document.metadata, &u->parts[i]);
            document_text_free(&u->parts[i].read);
        }
        return STATUS_OK;
    }
    item->document.text = (struct text_span){u->read.text.data, u->read.text.size};
    item->document.marks = marks_of(&u->read.marks);
    if (item->document.title[0] == '\0' && u->read.title.data) item->document.title = u->read.title.data;
    return document_put(&t->cutter, t->o.library, &item->document, j->cancelled, &item->effect, &item->error);
}

static enum status carry_out(struct document_thread *t, const struct document_job *j, struct document_item *item) {
    struct error *e = &item->error;
    if (check_goes_on(t, j, e)) return e->status;
    if (j->deletes) return delete_document(t, j, item);
    t->cutter.filter = j->filter;
    if (item->upload) return put_upload(t, j, item);
    return document_put(&t->cutter, t->o.library, &item->document, j->cancelled, &item->effect, e);
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
    if (library_remote(t->o.library) == NULL || j->deletes) return false;
    for (int i = 0; i < j->n_items; i++)
        if (j->items[i].upload) return false;
    return j->n_items > 1;
}

static void put_together(struct document_thread *t, const struct document_job *j) {
    struct document_item *next = j->items;
    struct document_group group = {.cutter = &t->cutter,
                                   .library = t->o.library,
                                   .cancelled = j->cancelled,
                                   .take = finish_item,
                                   .context = &next};
    struct error e;
    enum status status = STATUS_OK;
    t->cutter.filter = j->filter;
    for (int i = 0; i < j->n_items && status == STATUS_OK; i++) {
        status = check_goes_on(t, j, &e);
        if (status == STATUS_OK) status = group_add(&group, &j->items[i].document, &e);
    }
    if (status == STATUS_OK) status = group_flush(&group, &e);
    for (; next < j->items + j->n_items; next++) next->status = error_set(&next->error, status, "%s", e.text);
    group_free(&group);
}

static void *run_changes(void *argument) {
    struct document_thread *t = argument;
    for (;;) {
        struct document_job *j = queue_take(&t->jobs);
        if (j) {
            if (j->run && !atomic_load(&t->stopped)) j->run(j);
            bool together = are_put_together(t, j);
            if (together) put_together(t, j);
            for (int i = 0; i < j->n_items && !together; i++) j->items[i].status = carry_out(t, j, &j->items[i]);
            j->done(j);
        } else if (atomic_load(&t->stopped)) {
            return NULL;
        } else {
            bell_wait(&t->bell);
        }
    }
}

/* The thread that keeps the collection in order. */

static void follow(struct document_thread *t) {
    struct error e;
    if (library_follow(t->o.library, &e)) log_warn("the collection stays as it was: %s", e.text);
}

static bool is_due(struct document_thread *t) {
    struct living *folder = library_living(t->o.library);
    if (folder == NULL) return false;
    struct living_changes changes = living_count_changes(folder);
    return t->o.compact_after > 0 && changes.n_chunks + changes.n_deleted_chunks >= t->o.compact_after;
}

/* Returns false where it failed. */
static bool compact(struct document_thread *t) {
    struct error e;
    double start = time_now();
    enum status status = living_compact(library_living(t->o.library), &t->stopped, &e);
    if (status == STATUS_CANCELLED) return true;
    if (status) {
        log_warn("the collection is not compacted: %s", e.text);
        return false;
    }
    struct snapshot *view = library_hold(t->o.library);
    log_info("collection: compacted to generation %d in %.1f s, %" PRId64 " documents, %" PRId64 " chunks",
             view->generation, time_now() - start, view->n_documents, view->n_chunks);
    snapshot_release(view);
    return true;
}

/* Waits; returns false when the thread shall end. */
static bool wait_a_little(struct document_thread *t) {
    struct timespec until;
    int pause = library_remote(t->o.library) ? COUNT_MILLISECONDS : FOLLOW_MILLISECONDS;
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
    bell_open(&t->bell);
    queue_open(&t->jobs, o->capacity, &t->bell);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->stop, NULL);
    t->changes = pthread_create(&t->changer, NULL, run_changes, t) == 0;
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
    pthread_mutex_unlock(&t->lock);
    bell_ring(&t->bell);
    if (t->changes) pthread_join(t->changer, NULL);
    if (t->keeps) pthread_join(t->keeper, NULL);
    t->changes = t->keeps = false;
}

void document_thread_close(struct document_thread *t) {
    if (t == NULL) return;
    document_thread_stop(t);
    document_cutter_close(&t->cutter);
    queue_close(&t->jobs);
    bell_close(&t->bell);
    pthread_cond_destroy(&t->stop);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

enum status document_thread_ask(struct document_thread *t, struct document_job *j, struct error *e) {
    enum status status = STATUS_OK;
    if (!j->deletes && j->run == NULL && t->o.tokenizer == NULL)
        return error_set(e, STATUS_UNSUPPORTED,
                         "the tokenizer that the collection was cut with is not there; documents can be deleted only");
    pthread_mutex_lock(&t->lock);
    if (atomic_load(&t->stopped))
        status = error_set(e, STATUS_BUSY, "the server is stopping");
    else if (!queue_put(&t->jobs, (void *[]){j}, 1))
        status = error_set(e, STATUS_BUSY, "%d changes of documents are waiting already", t->o.capacity);
    pthread_mutex_unlock(&t->lock);
    return status;
}
