/* server/documents/document_thread.c: see document_thread.h. */
#include "server/documents/document_thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/documents/collection_upkeep.h"
#include "server/documents/document_sweep.h"

/* How often other programs' generations are looked for, and counts of a collection in Milvus, which
 * reads all of its rows for them; and how long a compaction that failed is not tried again. */
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
    atomic_llong n_written;        /* copies of uploads */
    struct document_tender tender; /* guarded by the lock */
    struct document_lines lines;
};

/* How far a job is carried out. */
struct document_progress {
    struct document_cutter cutter;
    struct snapshot *snapshot; /* whose embedder the cutter has; NULL: not yet */
    struct document_quota quota;
    int item, part; /* the next one, of a file that may hold several its part */
    bool taken;     /* of that file: its parts have room */
    bool begun;     /* of that document: it is cut, and some of it is embedded */
};

static struct document_job *job_of(struct document_turn *turn) {
    return (struct document_job *)turn;
}

/* The threads that read files. */

/* Every file of a job; the outcome waits with the item for its turn. */
static void read_files(struct document_thread *thread, struct document_job *job) {
    int64_t bytes = 0;
    if (job->steps) atomic_store(&job->steps->begun, true);
    for (int i = 0; i < job->n_items; i++) {
        struct document_item *item = &job->items[i];
        if (item->upload == NULL) continue;
        item->upload->seconds = thread->o.upload_seconds;
        item->upload->ocr = thread->o.ocr;
        item->upload->model = thread->o.model;
        /* A collection that sees pictures keeps them. */
        item->upload->ocr.pictures = thread->o.pictures == NULL && !thread->o.embedder->sees;
        item->upload->cancelled = job->cancelled;
        item->upload->stopped = &thread->stopped;
        item->status = upload_read(item->upload, &item->error);
        if (item->status == STATUS_OK)
            item->status = upload_count(item->upload, job->upload_bytes, &bytes, &item->error);
        if (item->status == STATUS_OK && thread->o.files) {
            item->status = kept_copy_write(thread->o.files, item->upload->bytes,
                                           &item->upload->copy, &item->error);
            atomic_fetch_add(&thread->n_written, 1);
        }
    }
}

static void *run_reading(void *argument) {
    struct document_thread *thread = argument;
    pthread_mutex_lock(&thread->lock);
    while (!atomic_load(&thread->stopped)) {
        struct document_turn *turn = lines_take_unread(&thread->lines, 1);
        if (turn == NULL) {
            pthread_cond_wait(&thread->ready, &thread->lock);
            continue;
        }
        pthread_mutex_unlock(&thread->lock);
        read_files(thread, job_of(turn));
        pthread_mutex_lock(&thread->lock);
        lines_end_reading(turn);
        pthread_cond_broadcast(&thread->ready);
    }
    pthread_mutex_unlock(&thread->lock);
    return NULL;
}

/* The thread that changes. */

static enum status delete_document(struct document_thread *thread, const struct document_job *job,
                                   struct document_item *item) {
    enum status status =
        collection_delete(thread->o.collection, job->filter, item->document.id, &item->error);
    item->effect = status ? CHANGE_NOTHING : CHANGE_DELETED;
    return status;
}

/* One that nobody waits for any more, or whose server ends, goes no further. */
static enum status check_goes_on(struct document_thread *thread, const struct document_job *job,
                                 struct error *e) {
    if (atomic_load(&thread->stopped))
        return error_set(e, STATUS_CANCELLED, "the server is stopping");
    if (job->cancelled && atomic_load(job->cancelled))
        return error_set(e, STATUS_CANCELLED, "%s",
                         job->steps ? "the job was cancelled" : "nobody waits for it");
    return STATUS_OK;
}

/* Where the outcome of a document goes. */
struct document_fate {
    enum change_effect *effect;
    enum status *status;
    struct error *error;
};

/* A document is embedded as the collection is when it is begun. Whether that is by another embedder
 * than before. */
static bool choose_embedder(struct document_thread *thread, struct document_progress *progress) {
    const struct embedder *before = progress->cutter.embedder;
    struct snapshot *newest = collection_hold(thread->o.collection);
    if (newest->embedder) progress->cutter.embedder = newest->embedder;
    snapshot_release(progress->snapshot);
    progress->snapshot = newest;
    return progress->cutter.embedder != before;
}

/* A part of putting a document; false when it is over. */
static bool put_some(struct document_thread *thread, struct document_job *job,
                     struct collection_document *document, const struct document_fate *fate) {
    struct document_progress *progress = job->progress;
    struct error *e = fate->error;
    bool is_there = false, more = false, turned = false;
    enum status status = check_goes_on(thread, job, e);
    if (!progress->begun) choose_embedder(thread, progress);
    if (status == STATUS_OK && !progress->begun)
        status = document_put_begin(&progress->cutter, thread->o.collection, document, &is_there,
                                    fate->effect, e);
    progress->begun = true;
    if (status == STATUS_OK && !is_there)
        status = document_put_more(&progress->cutter, document, &more, e);
    if (status == STATUS_OK && more && job->part)
        job->part(job, progress->cutter.n_embedded, progress->cutter.n_chunks);
    if (status == STATUS_OK && more) return true;
    if (status == STATUS_OK && !is_there)
        status =
            document_put_end(&progress->cutter, thread->o.collection, document, fate->effect, e);
    /* The collection has turned to another embedder meanwhile: the document begins again. */
    if (status == STATUS_BUSY) turned = choose_embedder(thread, progress);
    if (turned)
        status = document_put_begin(&progress->cutter, thread->o.collection, document, &is_there,
                                    fate->effect, e);
    if (turned && status == STATUS_OK && !is_there) return true;
    if (status == STATUS_OK && !is_there && job->steps)
        atomic_fetch_add(&job->steps->chunks, progress->cutter.n_chunks);
    *fate->status = status;
    progress->begun = false;
    return false;
}

static bool put_part(struct document_thread *thread, struct document_job *job,
                     const struct document_item *item, struct upload_part *part) {
    struct collection_document document = {.id = part->id,
                                           .path = part->path,
                                           .title = part->read.title.data,
                                           .metadata = item->document.metadata,
                                           .file = item->upload->copy.name,
                                           .text = {part->read.text.data, part->read.text.size},
                                           .marks = marks_of(&part->read.marks)};
    if (put_some(thread, job, &document,
                 &(struct document_fate){&part->effect, &part->status, &part->error}))
        return true;
    if (part->status) quota_forget(&job->progress->quota);
    document_text_free(&part->read);
    return false;
}

/* All parts have room, or none is put. */
static enum status take_parts(struct document_job *job, const struct document_item *item,
                              struct error *e) {
    const struct document_upload *upload = item->upload;
    struct collection_document *parts = xcalloc((size_t)upload->n_parts + 1, sizeof *parts);
    for (int i = 0; i < upload->n_parts; i++)
        parts[i] = (struct collection_document){
            .id = upload->parts[i].id,
            .metadata = item->document.metadata,
            .file = upload->copy.name,
            .text = {upload->parts[i].read.text.data, upload->parts[i].read.text.size}};
    enum status status = quota_take(&job->progress->quota, parts, upload->n_parts, e);
    free(parts);
    return status;
}

/* The documents of a file that may hold several, one after the other. */
static bool put_parts(struct document_thread *thread, struct document_job *job,
                      struct document_item *item) {
    struct document_progress *progress = job->progress;
    struct document_upload *upload = item->upload;
    if (!progress->taken) item->status = take_parts(job, item, &item->error);
    progress->taken = item->status == STATUS_OK;
    if (!progress->taken) return false;
    if (progress->part < upload->n_parts &&
        !put_part(thread, job, item, &upload->parts[progress->part]))
        progress->part++;
    if (progress->part < upload->n_parts) return true;
    progress->part = 0;
    progress->taken = false;
    return false;
}

static bool put_item(struct document_thread *thread, struct document_job *job,
                     struct document_item *item) {
    struct document_upload *upload = item->upload;
    if (upload && item->status) return false; /* it could not be read */
    if (upload && upload_holds_several(upload)) return put_parts(thread, job, item);
    if (upload) {
        item->document.text = (struct text_span){upload->read.text.data, upload->read.text.size};
        item->document.marks = marks_of(&upload->read.marks);
        item->document.file = upload->copy.name;
        if (item->document.title[0] == '\0' && upload->read.title.data)
            item->document.title = upload->read.title.data;
    }
    if (!job->progress->begun && job->fill) item->status = job->fill(job, item, &item->error);
    if (!job->progress->begun && item->status == STATUS_OK)
        item->status = quota_take(&job->progress->quota, &item->document, 1, &item->error);
    if (item->status) return false;
    return put_some(thread, job, &item->document,
                    &(struct document_fate){&item->effect, &item->status, &item->error});
}

/* A part of the item whose turn it is; a deletion is one. */
static bool carry_out(struct document_thread *thread, struct document_job *job,
                      struct document_item *item) {
    if (!job->deletes) return put_item(thread, job, item);
    item->status = check_goes_on(thread, job, &item->error);
    if (item->status == STATUS_OK) item->status = delete_document(thread, job, item);
    return false;
}

/* Several documents into Milvus by few calls. */

static enum status finish_item(void *context, const struct document_put *put, struct error *e) {
    struct document_item **next = context;
    struct document_item *item = *next;
    (void)e;
    item->effect = put->effect;
    item->status = put->status;
    if (put->status) item->error = put->error;
    (*next)++;
    return STATUS_OK;
}

static bool are_put_together(const struct document_thread *thread, const struct document_job *job) {
    if (!collection_is_remote(thread->o.collection) || job->deletes ||
        quota_is_set(&job->progress->quota))
        return false;
    for (int i = 0; i < job->n_items; i++)
        if (job->items[i].upload) return false;
    return job->n_items > 1 && job->fill == NULL;
}

static void put_together(struct document_thread *thread, struct document_job *job) {
    struct document_item *next = job->items;
    struct document_group group = {.cutter = &job->progress->cutter,
                                   .collection = thread->o.collection,
                                   .cancelled = job->cancelled,
                                   .take = finish_item,
                                   .context = &next};
    struct error e;
    enum status status = STATUS_OK;
    for (int i = 0; i < job->n_items && status == STATUS_OK; i++) {
        status = check_goes_on(thread, job, &e);
        if (status == STATUS_OK) status = group_add(&group, &job->items[i].document, &e);
    }
    if (status == STATUS_OK) status = group_flush(&group, &e);
    for (; next < job->items + job->n_items; next++)
        next->status = error_set(&next->error, status, "%s", e.text);
    group_free(&group);
}

/* Every item that is left ends where the asker leaves or the server stops. */
static bool give_up(struct document_thread *thread, struct document_job *job) {
    struct error e;
    if (check_goes_on(thread, job, &e) == STATUS_OK) return false;
    for (; job->progress->item < job->n_items; job->progress->item++) {
        struct document_item *item = &job->items[job->progress->item];
        item->effect = CHANGE_NOTHING;
        item->status = error_set(&item->error, e.status, "%s", e.text);
    }
    return true;
}

/* A part of a job; false when it is over. */
static bool carry_on(struct document_thread *thread, struct document_job *job) {
    struct document_progress *progress = job->progress;
    if (job->run && !atomic_load(&thread->stopped)) job->run(job);
    if (progress->item == job->n_items || give_up(thread, job)) return false;
    if (are_put_together(thread, job)) {
        put_together(thread, job);
        return false;
    }
    if (carry_out(thread, job, &job->items[progress->item])) return true;
    if (job->items[progress->item].status) quota_forget(&progress->quota);
    progress->item++;
    if (job->steps) atomic_store(&job->steps->items, progress->item);
    return progress->item < job->n_items;
}

static struct document_job *take_job(struct document_thread *thread) {
    pthread_mutex_lock(&thread->lock);
    struct document_turn *turn = lines_choose(&thread->lines, atomic_load(&thread->stopped));
    while (turn == NULL && !(atomic_load(&thread->stopped) && thread->lines.n == 0)) {
        pthread_cond_wait(&thread->ready, &thread->lock);
        turn = lines_choose(&thread->lines, atomic_load(&thread->stopped));
    }
    pthread_mutex_unlock(&thread->lock);
    return turn ? job_of(turn) : NULL;
}

static void begin_job(const struct document_thread *thread, struct document_job *job) {
    job->progress = xcalloc(1, sizeof *job->progress);
    if (job->steps) atomic_store(&job->steps->begun, true);
    job->progress->cutter = thread->cutter;
    job->progress->cutter.filter = job->filter;
    job->progress->quota =
        (struct document_quota){.collection = thread->o.collection, .who = job->who};
}

/* The tokens that were embedded are charged before the answer is there. */
static void end_job(struct document_thread *thread, struct document_job *job) {
    quota_note(&job->progress->quota);
    quota_free(&job->progress->quota);
    for (int i = 0; i < job->n_items; i++)
        if (job->items[i].upload) kept_copy_release(&job->items[i].upload->copy);
    if (job->who) principal_charge(job->who, job->progress->cutter.n_tokens_read, 0);
    document_cutter_close(&job->progress->cutter);
    snapshot_release(job->progress->snapshot);
    free(job->progress);
    job->progress = NULL;
    pthread_mutex_lock(&thread->lock);
    lines_leave(&thread->lines, &job->turn);
    pthread_mutex_unlock(&thread->lock);
    job->done(job);
}

static void *run_changes(void *argument) {
    struct document_thread *thread = argument;
    for (struct document_job *job = take_job(thread); job; job = take_job(thread)) {
        if (job->progress == NULL) begin_job(thread, job);
        if (!carry_on(thread, job)) end_job(thread, job);
    }
    return NULL;
}

/* The thread that keeps the collection in order. */

/* Waits; returns false when the thread shall end. */
static bool wait_a_little(struct document_thread *thread) {
    struct timespec until;
    int pause =
        collection_is_remote(thread->o.collection) ? COUNT_MILLISECONDS : FOLLOW_MILLISECONDS;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += pause / 1000;
    until.tv_nsec += pause % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&thread->lock);
    int waited = 0;
    while (!atomic_load(&thread->stopped) && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&thread->stop, &thread->lock, &until);
    bool goes_on = !atomic_load(&thread->stopped);
    pthread_mutex_unlock(&thread->lock);
    return goes_on;
}

static void tend(struct document_thread *thread) {
    pthread_mutex_lock(&thread->lock);
    struct document_tender tender = thread->tender;
    pthread_mutex_unlock(&thread->lock);
    if (tender.tend) tender.tend(tender.context);
}

static void *run_keeping(void *argument) {
    struct document_thread *thread = argument;
    double again = 0;
    struct document_sweeper sweeper = {
        .collection = thread->o.collection, .folder = thread->o.files, .version = -1};
    while (wait_a_little(thread)) {
        tend(thread);
        upkeep_follow(thread->o.collection);
        document_sweep(&sweeper, atomic_load(&thread->n_written));
        if (time_now() < again || !upkeep_is_due(thread->o.collection, thread->o.compact_after))
            continue;
        if (!upkeep_compact(thread->o.collection, &thread->stopped))
            again = time_now() + COMPACT_AGAIN_SECONDS;
    }
    return NULL;
}

/* Opening and closing. */

enum status document_thread_open(struct document_thread **out,
                                 const struct document_thread_options *options, struct error *e) {
    struct document_thread *thread = xcalloc(1, sizeof *thread);
    thread->o = *options;
    thread->cutter = (struct document_cutter){.tokenizer = options->tokenizer,
                                              .embedder = options->embedder,
                                              .pictures = options->pictures,
                                              .rules = options->rules};
    pthread_mutex_init(&thread->lock, NULL);
    pthread_cond_init(&thread->ready, NULL);
    pthread_cond_init(&thread->stop, NULL);
    thread->readers = xcalloc((size_t)options->readers, sizeof *thread->readers);
    while (thread->n_readers < options->readers &&
           pthread_create(&thread->readers[thread->n_readers], NULL, run_reading, thread) == 0)
        thread->n_readers++;
    thread->changes = thread->n_readers == options->readers &&
                      pthread_create(&thread->changer, NULL, run_changes, thread) == 0;
    thread->keeps =
        thread->changes && pthread_create(&thread->keeper, NULL, run_keeping, thread) == 0;
    if (!thread->keeps) {
        document_thread_close(thread);
        return error_set(e, STATUS_NO_MEMORY, "the document threads could not be started");
    }
    *out = thread;
    return STATUS_OK;
}

void document_thread_stop(struct document_thread *thread) {
    if (thread == NULL) return;
    pthread_mutex_lock(&thread->lock);
    atomic_store(&thread->stopped, true);
    pthread_cond_broadcast(&thread->stop);
    pthread_cond_broadcast(&thread->ready);
    pthread_mutex_unlock(&thread->lock);
    for (int i = 0; i < thread->n_readers; i++) pthread_join(thread->readers[i], NULL);
    thread->n_readers = 0;
    if (thread->changes) pthread_join(thread->changer, NULL);
    if (thread->keeps) pthread_join(thread->keeper, NULL);
    thread->changes = thread->keeps = false;
}

void document_thread_tend(struct document_thread *thread, struct document_tender tender) {
    pthread_mutex_lock(&thread->lock);
    thread->tender = tender;
    pthread_mutex_unlock(&thread->lock);
}

void document_thread_close(struct document_thread *thread) {
    if (thread == NULL) return;
    document_thread_stop(thread);
    free(thread->readers);
    pthread_cond_destroy(&thread->ready);
    pthread_cond_destroy(&thread->stop);
    pthread_mutex_destroy(&thread->lock);
    free(thread);
}

enum status document_thread_ask(struct document_thread *thread, struct document_job *job,
                                struct error *e) {
    enum status status = STATUS_OK;
    enum document_stage stage = STAGE_READY;
    if (!job->deletes && job->run == NULL && thread->o.tokenizer == NULL)
        return error_set(e, STATUS_UNSUPPORTED,
                         "the tokenizer that the collection was cut with is not there; documents "
                         "can be deleted only");
    for (int i = 0; i < job->n_items; i++)
        if (job->items[i].upload) stage = STAGE_UNREAD;
    pthread_mutex_lock(&thread->lock);
    if (atomic_load(&thread->stopped))
        status = error_set(e, STATUS_BUSY, "the server is stopping");
    else if (thread->lines.n == thread->o.capacity)
        status = error_set(e, STATUS_BUSY, "%d changes of documents are waiting already",
                           thread->o.capacity);
    else {
        job->progress = NULL;
        job->turn.stage = stage;
        lines_add(&thread->lines, job->client, &job->turn);
        pthread_cond_broadcast(&thread->ready);
    }
    pthread_mutex_unlock(&thread->lock);
    return status;
}
