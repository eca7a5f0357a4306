/* server/tools/tool_calls.c: carries out the calls of one turn. See tools.h. */
#include <pthread.h>
#include <stdlib.h>

#include "server/tools/tools_private.h"

enum {
    SIDE_BY_SIDE = 8, /* calls of a turn at a time */
    SHOWN_BYTES = 200 /* of an error, in the log */
};

/* The calls of one job, and who takes the next. */
struct calling {
    struct tool_job *job;
    int *first; /* [job->n] the call that has to come first: of each by itself, its own number */
    atomic_int next;
};

/* A line for each call, without what was asked and answered. */
static void log_call(const struct tool_job *job, const struct tool_ask *ask, double seconds,
                     const struct error *e) {
    const char *who = job->who ? job->who : "-";
    if (e->status)
        log_warn("tool %s of %s, key %s: failed in %.3f s: %.*s", ask->tool,
                 tool_server_name(ask->server), who, seconds, SHOWN_BYTES, e->text);
    else
        log_info("tool %s of %s, key %s: %zu bytes asked, %zu answered in %.3f s%s", ask->tool,
                 tool_server_name(ask->server), who, ask->arguments.size, ask->result.size, seconds,
                 ask->failed ? ", as an error" : "");
}

static const char *outcome_of(const struct tool_ask *ask, const struct error *e) {
    switch (e->status) {
        case STATUS_OK: return ask->failed ? "tool_error" : "ok";
        case STATUS_BUSY: return "timeout";
        case STATUS_CANCELLED: return "cancelled";
        default: return "failed";
    }
}

static void carry_out(struct tool_job *job, struct tool_ask *ask) {
    const struct tool_settings *settings = tools_settings(job->tools);
    double start = time_now();
    struct tool_wait wait = {.deadline = start + settings->timeout,
                             .most = (size_t)settings->max_result_bytes,
                             .most_option = "tools.max_result_bytes",
                             .unwanted = &job->unwanted,
                             .stopped = tools_stopped(job->tools)};
    struct text_span arguments = {ask->arguments.data, ask->arguments.size};
    struct tool_result result = {0};
    struct error e = {0};
    if (wait.deadline > job->deadline) wait.deadline = job->deadline;
    if (tool_wait_check(&wait, &e) == STATUS_OK)
        tool_server_call(ask->server, ask->tool, arguments, &wait, &result, &e);
    ask->result = result.text;
    ask->failed = result.failed;
    log_call(job, ask, time_now() - start, &e);
    tools_note_call(job->tools, ask->server, outcome_of(ask, &e));
    if (e.status == STATUS_OK) return;
    ask->failed = true;
    buffer_clear(&ask->result);
    buffer_printf(&ask->result, "The tool could not be called: %s", e.text);
}

/* Whether calls of the server may overtake each other: those of the turn only read, and it can
 * answer several at a time. */
static bool has_no_order(const struct tool_job *job, const struct tool_server *server) {
    if (tool_server_settings(server)->command.count > 0) return false;
    for (int i = 0; i < job->n; i++)
        if (job->asks[i].server == server && !job->asks[i].reads) return false;
    return true;
}

static int first_of(const struct tool_job *job, int i) {
    const struct tool_server *server = job->asks[i].server;
    int first = 0;
    if (has_no_order(job, server)) return i;
    while (job->asks[first].server != server) first++;
    return first;
}

/* Takes calls that nobody has taken, each with those that have to follow it. */
static void *carry_out_some(void *argument) {
    struct calling *calling = argument;
    struct tool_job *job = calling->job;
    for (int i = atomic_fetch_add(&calling->next, 1); i < job->n;
         i = atomic_fetch_add(&calling->next, 1)) {
        if (calling->first[i] != i) continue;
        for (int j = i; j < job->n; j++)
            if (calling->first[j] == i) carry_out(job, &job->asks[j]);
    }
    return NULL;
}

void tool_calls_carry_out(struct tool_job *job) {
    struct calling calling = {.job = job};
    pthread_t helpers[SIDE_BY_SIDE - 1];
    int n = 0;
    calling.first = xcalloc((size_t)job->n, sizeof *calling.first);
    for (int i = 0; i < job->n; i++) calling.first[i] = first_of(job, i);
    while (n < SIDE_BY_SIDE - 1 && n < job->n - 1 &&
           pthread_create(&helpers[n], NULL, carry_out_some, &calling) == 0)
        n++;
    carry_out_some(&calling);
    for (int i = 0; i < n; i++) pthread_join(helpers[i], NULL);
    free(calling.first);
}
