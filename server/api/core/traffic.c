/* server/api/core/traffic.c: see traffic.h. */
#include "server/api/core/traffic.h"

#include <pthread.h>
#include <stdlib.h>

#include "server/threads/histogram.h"
#include "server/threads/tally.h"

/* Paths times statuses that are told apart. */
enum { TRAFFIC_ROWS = 256 };

struct traffic_row {
    const char *path;
    int status;
    int64_t n;
};

static const struct tally_form
    passed_form = {"retro_passed_over_total",
                   "Parts of requests to the doors for agents that change nothing here, and were "
                   "passed over.",
                   {"door", "what"}},
    mcp_form = {"retro_mcp_requests_total",
                "Requests of MCP clients, by method, tool and how they ended.",
                {"method", "tool", "outcome"}};

struct traffic {
    pthread_mutex_t lock;
    struct tally passed, mcp;
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
    if (n == 0) return;
    pthread_mutex_lock(&traffic->lock);
    tally_add(&traffic->passed, &passed_form, (const char *[]){door, what}, n);
    pthread_mutex_unlock(&traffic->lock);
}

void traffic_note_mcp(struct traffic *traffic, const char *method, const char *tool,
                      const char *outcome) {
    pthread_mutex_lock(&traffic->lock);
    tally_add(&traffic->mcp, &mcp_form, (const char *[]){method, tool, outcome}, 1);
    pthread_mutex_unlock(&traffic->lock);
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
    tally_print(&traffic->passed, &passed_form, out);
    tally_print(&traffic->mcp, &mcp_form, out);
    buffer_append_string(
        out,
        "# HELP retro_http_request_duration_seconds From a request's first line to its end.\n"
        "# TYPE retro_http_request_duration_seconds histogram\n");
    histogram_print(&traffic->seconds, "retro_http_request_duration_seconds", "", out);
    pthread_mutex_unlock(&traffic->lock);
}
