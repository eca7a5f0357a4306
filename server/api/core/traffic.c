/* server/api/core/traffic.c: see traffic.h. */
#include "server/api/core/traffic.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "server/threads/histogram.h"

/* Paths times statuses that are told apart. */
enum { TRAFFIC_ROWS = 256 };

struct traffic_row {
    const char *path;
    int status;
    int64_t n;
};

/* Parts of requests that a door passed over. */
struct passed_row {
    const char *door, *what;
    int64_t n;
};
enum { PASSED_ROWS = 64 };

struct traffic {
    pthread_mutex_t lock;
    struct passed_row passed[PASSED_ROWS];
    int n_passed;
    struct traffic_row rows[TRAFFIC_ROWS];
    int n;
    struct histogram seconds;
};

struct traffic *traffic_open(void) {
    struct traffic *traffic = xcalloc(1, sizeof *traffic);
    pthread_mutex_init(&traffic->lock, NULL);
    return traffic;
}

void traffic_close(struct traffic *traffic) {
    if (traffic == NULL) return;
    pthread_mutex_destroy(&traffic->lock);
    free(traffic);
}

void traffic_note(struct traffic *traffic, const char *path, int status, double seconds) {
    int i = 0;
    pthread_mutex_lock(&traffic->lock);
    while (i < traffic->n && (traffic->rows[i].path != path || traffic->rows[i].status != status))
        i++;
    if (i == traffic->n && traffic->n < TRAFFIC_ROWS) {
        traffic->rows[i] = (struct traffic_row){.path = path, .status = status};
        traffic->n++;
    }
    if (i < TRAFFIC_ROWS) traffic->rows[i].n++;
    histogram_note(&traffic->seconds, seconds);
    pthread_mutex_unlock(&traffic->lock);
}

void traffic_note_passed(struct traffic *traffic, const char *door, const char *what, int n) {
    int i = 0;
    if (n == 0) return;
    pthread_mutex_lock(&traffic->lock);
    while (i < traffic->n_passed && (strcmp(traffic->passed[i].door, door) != 0 ||
                                     strcmp(traffic->passed[i].what, what) != 0))
        i++;
    if (i == traffic->n_passed && i < PASSED_ROWS) {
        traffic->passed[i] = (struct passed_row){.door = door, .what = what};
        traffic->n_passed++;
    }
    if (i < PASSED_ROWS) traffic->passed[i].n += n;
    pthread_mutex_unlock(&traffic->lock);
}

/* While the lock is held. */
static void print_passed(const struct traffic *traffic, struct buffer *out) {
    buffer_append_string(
        out,
        "# HELP retro_passed_over_total Parts of requests to the doors for agents that change "
        "nothing here, and were passed over.\n"
        "# TYPE retro_passed_over_total counter\n");
    for (int i = 0; i < traffic->n_passed; i++)
        buffer_printf(out, "retro_passed_over_total{door=\"%s\",what=\"%s\"} %lld\n",
                      traffic->passed[i].door, traffic->passed[i].what,
                      (long long)traffic->passed[i].n);
}

void traffic_print(struct traffic *traffic, struct buffer *out) {
    buffer_append_string(
        out,
        "# HELP retro_http_requests_total Requests that were answered, by path and status.\n"
        "# TYPE retro_http_requests_total counter\n");
    pthread_mutex_lock(&traffic->lock);
    for (int i = 0; i < traffic->n; i++)
        buffer_printf(out, "retro_http_requests_total{path=\"%s\",code=\"%d\"} %lld\n",
                      traffic->rows[i].path, traffic->rows[i].status,
                      (long long)traffic->rows[i].n);
    print_passed(traffic, out);
    buffer_append_string(
        out,
        "# HELP retro_http_request_duration_seconds From a request's first line to its end.\n"
        "# TYPE retro_http_request_duration_seconds histogram\n");
    histogram_print(&traffic->seconds, "retro_http_request_duration_seconds", "", out);
    pthread_mutex_unlock(&traffic->lock);
}
