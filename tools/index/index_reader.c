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
    int begun,
        taken; /* files before them: were begun; were taken. The one at `taken` is being taken */
    size_t waiting; /* bytes of the documents in all queues */
    atomic_bool stopped;
};

/* Reading, in threads. */

struct queue_taker {
    struct file_reader *reader;
    int number;
};

static size_t event_size(const struct read_event *event) {
    const struct document_text *text = &event->document;
    return sizeof *event + text->text.size + text->title.size + text->marks.size;
}

static void free_event(struct read_event *event) {
    document_text_free(&event->document);
    free(event->part);
}

/* The file that is taken goes on whatever waits in the others' queues, so there is always one that
 * does. */
static bool has_room(const struct file_reader *reader, int number) {
    const struct read_queue *queue = &reader->queues[number];
    return reader->waiting < BYTES_AHEAD || (number == reader->taken && queue->n == queue->taken);
}

static enum status put_event(struct queue_taker *taker, struct read_event *event, struct error *e) {
    struct file_reader *reader = taker->reader;
    struct read_queue *queue = &reader->queues[taker->number];
    pthread_mutex_lock(&reader->lock);
    while (!reader->stopped && !has_room(reader, taker->number))
        pthread_cond_wait(&reader->changed, &reader->lock);
    bool stopped = reader->stopped;
    if (!stopped) {
        queue->events = xgrow(queue->events, queue->n, &queue->capacity, sizeof *queue->events);
        queue->events[queue->n] = *event;
        queue->n++;
        reader->waiting += event_size(event);
        pthread_cond_broadcast(&reader->changed);
    }
    pthread_mutex_unlock(&reader->lock);
    if (!stopped) return STATUS_OK;
    free_event(event);
    return error_set(e, STATUS_CANCELLED, "interrupted");
}

static enum status queue_document(void *context, const char *part, const struct document_text *text,
                                  struct error *e) {
    struct read_event event = {.part = xstrdup(part)};
    document_text_copy(&event.document, text);
    return put_event(context, &event, e);
}

static void queue_skipped(void *context, const struct error *why) {
    struct read_event event = {.why = *why};
    struct error stopped;
    put_event(context, &event, &stopped);
}

static void read_one(struct file_reader *reader, int number) {
    struct queue_taker queue = {.reader = reader, .number = number};
    struct document_taker taker = {
        .context = &queue, .take = queue_document, .skip = queue_skipped};
    struct error end = {0};
    bool whole = read_documents(reader->options, &reader->files[number], &reader->stopped, &taker,
                                &end) == STATUS_OK;
    if (whole) end = (struct error){0}; /* a part of it may have failed */
    pthread_mutex_lock(&reader->lock);
    reader->queues[number].end = end;
    reader->queues[number].ended = true;
    pthread_cond_broadcast(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
}

static bool may_begin(const struct file_reader *reader) {
    return reader->begun < reader->taken + FILES_AHEAD &&
           (reader->waiting < BYTES_AHEAD || reader->begun == reader->taken);
}

static void *run_reader(void *argument) {
    struct file_reader *reader = argument;
    for (;;) {
        pthread_mutex_lock(&reader->lock);
        while (!reader->stopped && reader->begun < reader->n && !may_begin(reader))
            pthread_cond_wait(&reader->changed, &reader->lock);
        int number = reader->stopped ? reader->n : reader->begun;
        if (number < reader->n) reader->begun++;
        pthread_mutex_unlock(&reader->lock);
        if (number == reader->n) return NULL;
        read_one(reader, number);
    }
}

/* Taking. */

static void wait_a_moment(struct file_reader *reader) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_MILLISECONDS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&reader->changed, &reader->lock, &until);
}

/* The next event of a file; false at its end, and when interrupted. */
static bool next_event(struct file_reader *reader, struct read_queue *queue,
                       struct read_event *event) {
    pthread_mutex_lock(&reader->lock);
    while (queue->taken == queue->n && !queue->ended && !index_interrupted) wait_a_moment(reader);
    bool there = queue->taken < queue->n && !index_interrupted;
    if (there) {
        *event = queue->events[queue->taken];
        queue->taken++;
        reader->waiting -= event_size(event);
        pthread_cond_broadcast(&reader->changed);
    }
    pthread_mutex_unlock(&reader->lock);
    return there;
}

static void begin_taking(struct file_reader *reader, int number) {
    pthread_mutex_lock(&reader->lock);
    reader->taken = number;
    pthread_cond_broadcast(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
}

enum status reader_take(struct file_reader *reader, int number, const struct document_taker *taker,
                        struct error *e) {
    struct read_event event;
    enum status status = STATUS_OK;
    if (reader->n_threads == 0)
        return read_documents(reader->options, &reader->files[number], &index_interrupted, taker,
                              e);
    begin_taking(reader, number);
    struct read_queue *queue = &reader->queues[number];
    while (status == STATUS_OK && next_event(reader, queue, &event)) {
        if (event.part)
            status = taker->take(taker->context, event.part, &event.document, e);
        else if (taker->skip)
            taker->skip(taker->context, &event.why);
        free_event(&event);
    }
    if (status) return status;
    if (index_interrupted) return error_set(e, STATUS_CANCELLED, "interrupted");
    *e = queue->end;
    free(queue->events);
    queue->events = NULL;
    queue->n = queue->taken = 0;
    return queue->end.status;
}

/* Opening and closing. */

static int count_cores(void) {
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

static int count_readers(const struct build_options *options, int n_files) {
    int wanted = options->threads > 0 ? options->threads : count_cores();
    return min_int(min_int(wanted, MAX_READERS), n_files);
}

enum status reader_prepare(const struct build_options *options, int n_files, struct error *e) {
    return count_readers(options, n_files) > 1 ? sandbox_start(NULL, e) : STATUS_OK;
}

struct file_reader *reader_open(const struct build_options *options, const struct found_file *files,
                                int n) {
    struct file_reader *reader = xcalloc(1, sizeof *reader);
    int wanted = count_readers(options, n);
    reader->options = options;
    reader->files = files;
    reader->n = n;
    reader->queues = xcalloc((size_t)n + 1, sizeof *reader->queues);
    pthread_mutex_init(&reader->lock, NULL);
    pthread_cond_init(&reader->changed, NULL);
    while (wanted > 1 && reader->n_threads < wanted &&
           pthread_create(&reader->threads[reader->n_threads], NULL, run_reader, reader) == 0)
        reader->n_threads++;
    return reader;
}

void reader_close(struct file_reader *reader) {
    if (reader == NULL) return;
    pthread_mutex_lock(&reader->lock);
    reader->stopped = true;
    pthread_cond_broadcast(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
    for (int i = 0; i < reader->n_threads; i++) pthread_join(reader->threads[i], NULL);
    for (int i = 0; i < reader->n; i++) {
        struct read_queue *queue = &reader->queues[i];
        for (int j = queue->taken; j < queue->n; j++) free_event(&queue->events[j]);
        free(queue->events);
    }
    pthread_mutex_destroy(&reader->lock);
    pthread_cond_destroy(&reader->changed);
    free(reader->queues);
    free(reader);
}
