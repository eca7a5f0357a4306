/* tools/index/index_reader.c: see index_reader.h. */
#include "tools/index/index_reader.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "config/sandbox/sandbox.h"

/* Files that are begun before they are taken, and bytes of text that wait for it. */
enum { FILES_AHEAD = 64, BYTES_AHEAD = 64 << 20, MAX_READERS = 32 };
enum { LOOK_MILLISECONDS = 200 };

/* A document of a file, or a reason why there is none. */
struct read_event {
    char *part; /* NULL: it was skipped, because of `why` */
    struct document_text document;
    struct error why;
};

/* A file that was begun. */
struct read_queue {
    struct read_event *events; /* [n], those before `taken` are gone */
    int n, taken, capacity;
    bool ended;
    struct error end; /* OK, or why the file could not be read */
};

struct file_reader {
    const struct build_options *options;
    const struct found_file *files; /* [n] */
    int n;
    pthread_t threads[MAX_READERS];
    int n_threads; /* 0: nothing is read ahead */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct read_queue *queues; /* [n] */
    int begun, taken;          /* files before them: were begun; were taken. The one at `taken` is being taken */
    size_t waiting;            /* bytes of the documents in all queues */
    atomic_bool stopped;
};

/* Reading, in threads. */

struct queue_taker {
    struct file_reader *reader;
    int number;
};

static size_t event_size(const struct read_event *event) {
    const struct document_text *d = &event->document;
    return sizeof *event + d->text.size + d->title.size + d->marks.size;
}

static void free_event(struct read_event *event) {
    document_text_free(&event->document);
    free(event->part);
}

/* The file that is taken goes on whatever waits in the others' queues, so there is always one that does. */
static bool has_room(const struct file_reader *r, int number) {
    const struct read_queue *q = &r->queues[number];
    return r->waiting < BYTES_AHEAD || (number == r->taken && q->n == q->taken);
}

static enum status put_event(struct queue_taker *t, struct read_event *event, struct error *e) {
    struct file_reader *r = t->reader;
    struct read_queue *q = &r->queues[t->number];
    pthread_mutex_lock(&r->lock);
    while (!r->stopped && !has_room(r, t->number)) pthread_cond_wait(&r->changed, &r->lock);
    bool stopped = r->stopped;
    if (!stopped) {
        q->events = xgrow(q->events, q->n, &q->capacity, sizeof *q->events);
        q->events[q->n] = *event;
        q->n++;
        r->waiting += event_size(event);
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    if (!stopped) return STATUS_OK;
    free_event(event);
    return error_set(e, STATUS_CANCELLED, "interrupted");
}

static enum status queue_document(void *context, const char *part, const struct document_text *d, struct error *e) {
    struct read_event event = {.part = xstrdup(part), .document = {.note = d->note}};
    buffer_append(&event.document.text, d->text.data, d->text.size);
    buffer_append(&event.document.title, d->title.data, d->title.size);
    buffer_append(&event.document.marks, d->marks.data, d->marks.size);
    return put_event(context, &event, e);
}

static void queue_skipped(void *context, const struct error *why) {
    struct read_event event = {.why = *why};
    struct error stopped;
    put_event(context, &event, &stopped);
}

static void read_one(struct file_reader *r, int number) {
    struct queue_taker queue = {.reader = r, .number = number};
    struct document_taker taker = {.context = &queue, .take = queue_document, .skip = queue_skipped};
    struct error end = {0};
    bool whole = read_documents(r->options, &r->files[number], &r->stopped, &taker, &end) == STATUS_OK;
    if (whole) end = (struct error){0}; /* a part of it may have failed */
    pthread_mutex_lock(&r->lock);
    r->queues[number].end = end;
    r->queues[number].ended = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static bool may_begin(const struct file_reader *r) {
    return r->begun < r->taken + FILES_AHEAD && (r->waiting < BYTES_AHEAD || r->begun == r->taken);
}

static void *run_reader(void *argument) {
    struct file_reader *r = argument;
    for (;;) {
        pthread_mutex_lock(&r->lock);
        while (!r->stopped && r->begun < r->n && !may_begin(r)) pthread_cond_wait(&r->changed, &r->lock);
        int number = r->stopped ? r->n : r->begun;
        if (number < r->n) r->begun++;
        pthread_mutex_unlock(&r->lock);
        if (number == r->n) return NULL;
        read_one(r, number);
    }
}

/* Taking. */

static void wait_a_moment(struct file_reader *r) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_MILLISECONDS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&r->changed, &r->lock, &until);
}

/* The next event of a file; false at its end, and when interrupted. */
static bool next_event(struct file_reader *r, struct read_queue *q, struct read_event *event) {
    pthread_mutex_lock(&r->lock);
    while (q->taken == q->n && !q->ended && !index_interrupted) wait_a_moment(r);
    bool there = q->taken < q->n && !index_interrupted;
    if (there) {
        *event = q->events[q->taken];
        q->taken++;
        r->waiting -= event_size(event);
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    return there;
}

static void begin_taking(struct file_reader *r, int number) {
    pthread_mutex_lock(&r->lock);
    r->taken = number;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

enum status reader_take(struct file_reader *r, int number, const struct document_taker *taker, struct error *e) {
    struct read_event event;
    enum status status = STATUS_OK;
    if (r->n_threads == 0) return read_documents(r->options, &r->files[number], &index_interrupted, taker, e);
    begin_taking(r, number);
    struct read_queue *q = &r->queues[number];
    while (status == STATUS_OK && next_event(r, q, &event)) {
        if (event.part)
            status = taker->take(taker->context, event.part, &event.document, e);
        else if (taker->skip)
            taker->skip(taker->context, &event.why);
        free_event(&event);
    }
    if (status) return status;
    if (index_interrupted) return error_set(e, STATUS_CANCELLED, "interrupted");
    *e = q->end;
    free(q->events);
    q->events = NULL;
    q->n = q->taken = 0;
    return q->end.status;
}

/* Opening and closing. */

static int count_cores(void) {
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

static int count_readers(const struct build_options *o, int n_files) {
    int wanted = o->threads > 0 ? o->threads : count_cores();
    return min_int(min_int(wanted, MAX_READERS), n_files);
}

enum status reader_prepare(const struct build_options *o, int n_files, struct error *e) {
    return count_readers(o, n_files) > 1 ? sandbox_start(NULL, e) : STATUS_OK;
}

struct file_reader *reader_open(const struct build_options *o, const struct found_file *files, int n) {
    struct file_reader *r = xcalloc(1, sizeof *r);
    int wanted = count_readers(o, n);
    r->options = o;
    r->files = files;
    r->n = n;
    r->queues = xcalloc((size_t)n + 1, sizeof *r->queues);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    while (wanted > 1 && r->n_threads < wanted && pthread_create(&r->threads[r->n_threads], NULL, run_reader, r) == 0)
        r->n_threads++;
    return r;
}

void reader_close(struct file_reader *r) {
    if (r == NULL) return;
    pthread_mutex_lock(&r->lock);
    r->stopped = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->n_threads; i++) pthread_join(r->threads[i], NULL);
    for (int i = 0; i < r->n; i++) {
        struct read_queue *q = &r->queues[i];
        for (int j = q->taken; j < q->n; j++) free_event(&q->events[j]);
        free(q->events);
    }
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    free(r->queues);
    free(r);
}
