/* config/base/log.c: lines of the log, and the queue between a service and whoever reads them. See
 * log.h. */
#include "config/base/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "config/base/line.h"

enum {
    QUEUE_BYTES = 256 << 10, /* some 2000 lines */
    WRITE_BYTES = 4 << 10
};

enum queue_state { QUEUE_NONE, QUEUE_RUNNING, QUEUE_ENDING, QUEUE_ENDED, QUEUE_STUCK };

/* A ring of bytes: [first, first + used) modulo QUEUE_BYTES. */
static struct log_queue {
    pthread_mutex_t lock; /* never held while writing */
    pthread_cond_t changed;
    pthread_t thread;
    enum queue_state state;
    char *bytes;
    size_t first, used;
    long dropped;     /* lines since the last report */
    long dropped_all; /* lines */
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER};

static enum log_level log_threshold = LOG_LEVEL_INFO;

static enum log_format log_lines = LOG_FORMAT_TEXT;
static const char *const level_names[] = {"error", "warn", "info", "debug"};

void log_set_level(enum log_level level) { log_threshold = level; }
void log_set_format(enum log_format format) { log_lines = format; }
enum log_format log_format(void) { return log_lines; }

/* Appends the time, to the millisecond. */
static void time_print(struct buffer *out) {
    char stamp[32];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);

    buffer_printf(out, "%s.%03ldZ", stamp, now.tv_nsec / 1000000);
}

/* Appends {"time":...,"level":...,members} and a line end. */
static void members_stamp(struct buffer *out, enum log_level level, const char *members,
                          size_t size) {
    buffer_append_string(out, "{\"time\":\"");
    time_print(out);
    buffer_printf(out, "\",\"level\":\"%s\",", level_names[level]);
    buffer_append(out, members, size);
    buffer_append_string(out, "}\n");
}

/* Appends a line of the text, escaped. */
static void line_stamp(struct buffer *out, enum log_level level, const char *text) {
    if (log_lines == LOG_FORMAT_TEXT) {
        time_print(out);
        buffer_printf(out, " %-5s ", level_names[level]);
        line_escape(out, text, strlen(text));
        buffer_append(out, "\n", 1);
        return;
    }
    struct buffer members = {0};
    buffer_append_string(&members, "\"message\":\"");
    line_escape_json(&members, text, strlen(text));
    buffer_append_string(&members, "\"");
    members_stamp(out, level, members.data, members.size);
    buffer_free(&members);
}

/* The queue. All but queue_write are called with its lock. */

static void queue_append(const char *bytes, size_t size) {
    size_t end = (queue.first + queue.used) % QUEUE_BYTES;
    size_t before_wrap = size < QUEUE_BYTES - end ? size : QUEUE_BYTES - end;
    memcpy(queue.bytes + end, bytes, before_wrap);
    memcpy(queue.bytes, bytes + before_wrap, size - before_wrap);
    queue.used += size;
}

/* The line that tells how many were dropped. */
static void queue_report(struct buffer *out) {
    char text[100];
    snprintf(text, sizeof text,
             "%ld lines of this log were dropped: standard error was not read fast enough",
             queue.dropped);
    line_stamp(out, LOG_LEVEL_WARN, text);
}

/* Adds a line, or with size 0 only the report that is due. */
static void queue_add(const char *line, size_t size) {
    struct buffer report = {0};
    if (queue.dropped > 0) queue_report(&report);
    if (queue.used + report.size + size > QUEUE_BYTES) {
        queue.dropped += size > 0;
        queue.dropped_all += size > 0;
    } else {
        if (report.size > 0) queue_append(report.data, report.size);
        if (size > 0) queue_append(line, size);
        queue.dropped = 0;
        pthread_cond_broadcast(&queue.changed);
    }
    buffer_free(&report);
}

/* Moves up to `size` bytes out. */
static size_t queue_take(char *bytes, size_t size) {
    size_t to_end = QUEUE_BYTES - queue.first;
    size_t n = queue.used < size ? queue.used : size;
    if (n > to_end) n = to_end;
    memcpy(bytes, queue.bytes + queue.first, n);
    queue.first = (queue.first + n) % QUEUE_BYTES;
    queue.used -= n;
    return n;
}

/* Waits for the reader. A stream that can never be written to again loses the bytes. */
static void queue_write(const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t n = write(STDERR_FILENO, bytes, size);
        if (n >= 0) {
            bytes += n;
            size -= (size_t)n;
        } else if (errno == EAGAIN) {
            struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
            poll(&ready, 1, -1);
        } else if (errno != EINTR) {
            return;
        }
    }
}

static void *queue_run(void *unused) {
    char bytes[WRITE_BYTES];
    pthread_mutex_lock(&queue.lock);
    while (queue.used > 0 || queue.state == QUEUE_RUNNING) {
        if (queue.used == 0) {
            pthread_cond_wait(&queue.changed, &queue.lock);
            continue;
        }
        size_t n = queue_take(bytes, sizeof bytes);
        pthread_mutex_unlock(&queue.lock);
        queue_write(bytes, n);
        pthread_mutex_lock(&queue.lock);
        if (queue.used == 0 && queue.dropped > 0) queue_add(NULL, 0);
    }
    queue.state = QUEUE_ENDED;
    pthread_cond_broadcast(&queue.changed);
    pthread_mutex_unlock(&queue.lock);
    return unused;
}

enum status log_queue_open(struct error *e) {
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&queue.changed, &clock);
    pthread_condattr_destroy(&clock);
    queue.bytes = xmalloc(QUEUE_BYTES);
    queue.state = QUEUE_RUNNING;
    errno = pthread_create(&queue.thread, NULL, queue_run, NULL);
    if (errno == 0) return STATUS_OK;
    queue.state = QUEUE_NONE;
    free(queue.bytes);
    return error_errno(e, "the log's thread");
}

void log_queue_close(double seconds) {
    double until = time_now() + seconds;
    struct timespec deadline = {.tv_sec = (time_t)until,
                                .tv_nsec = (long)(1e9 * (until - (double)(time_t)until))};
    int waited = 0;
    pthread_mutex_lock(&queue.lock);
    bool open = queue.state == QUEUE_RUNNING;
    if (open) queue.state = QUEUE_ENDING;
    pthread_cond_broadcast(&queue.changed);
    while (queue.state == QUEUE_ENDING && waited == 0)
        waited = pthread_cond_timedwait(&queue.changed, &queue.lock, &deadline);
    bool ended = queue.state == QUEUE_ENDED;
    if (open && !ended) queue.state = QUEUE_STUCK;
    pthread_mutex_unlock(&queue.lock);

    /* A thread that is stuck in a write goes with the process. */
    if (open && ended) {
        pthread_join(queue.thread, NULL);
        free(queue.bytes);
    }
}

/* To the queue, where there is one. */
static void log_send(const struct buffer *line) {
    pthread_mutex_lock(&queue.lock);
    enum queue_state state = queue.state;
    if (state == QUEUE_RUNNING) queue_add(line->data, line->size);
    pthread_mutex_unlock(&queue.lock);
    if (state == QUEUE_NONE || state == QUEUE_ENDED) fwrite(line->data, 1, line->size, stderr);
}

long log_dropped(void) {
    pthread_mutex_lock(&queue.lock);
    long n = queue.dropped_all;
    pthread_mutex_unlock(&queue.lock);
    return n;
}

void log_write(enum log_level level, const char *format, ...) {
    if (level > log_threshold) return;
    char text[1024];
    struct buffer line = {0};
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    line_stamp(&line, level, text);
    log_send(&line);
    buffer_free(&line);
}

void log_members(enum log_level level, const char *members, size_t size) {
    struct buffer line = {0};
    if (level > log_threshold) return;
    members_stamp(&line, level, members, size);
    log_send(&line);
    buffer_free(&line);
}
