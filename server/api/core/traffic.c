/* server/api/core/traffic.c: see traffic.h. */
#include "server/api/core/traffic.h"

#include <pthread.h>
#include <stdlib.h>

#include "server/threads/histogram.h"

/* Paths times statuses that are told apart. */
enum { TRAFFIC_ROWS = 256 };

struct traffic_row {
    const char *path;
    int status;
    int64_t n;
};

struct traffic {
    pthread_mutex_t lock;
    struct traffic_row rows[TRAFFIC_ROWS];
    int n;
    struct histogram seconds;
};

struct traffic *traffic_open(void) {
    struct traffic *t = xcalloc(1, sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

void traffic_close(struct traffic *t) {
    if (t == NULL) return;
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void traffic_note(struct traffic *t, const char *path, int status, double seconds) {
    int i = 0;
    pthread_mutex_lock(&t->lock);
    while (i < t->n && (t->rows[i].path != path || t->rows[i].status != status)) i++;
    if (i == t->n && t->n < TRAFFIC_ROWS) {
        t->rows[i] = (struct traffic_row){.path = path, .status = status};
        t->n++;
    }
    if (i < TRAFFIC_ROWS) t->rows[i].n++;
    histogram_note(&t->seconds, seconds);
    pthread_mutex_unlock(&t->lock);
}

void traffic_print(struct traffic *t, struct buffer *out) {
    buffer_append_string(out,
                         "# HELP retro_http_requests_total Requests that were answered, by path and status.\n"
                         "# TYPE retro_http_requests_total counter\n");
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < t->n; i++)
        buffer_printf(out, "retro_http_requests_total{path=\"%s\",code=\"%d\"} %lld\n", t->rows[i].path,
                      t->rows[i].status, (long long)t->rows[i].n);
    buffer_append_string(out,
                         "# HELP retro_http_request_duration_seconds From a request's first line to its end.\n"
                         "# TYPE retro_http_request_duration_seconds histogram\n");
    histogram_print(&t->seconds, "retro_http_request_duration_seconds", "", out);
    pthread_mutex_unlock(&t->lock);
}
