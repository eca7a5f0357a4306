/* server/threads/worker.h: a thread that works for requests, a part of one at a time: between parts
 * a client that leaves is noticed, and clients take turns (turns.h). The jobs are the caller's, and
 * begin with a struct turn. */
#pragma once

#include "server/threads/turns.h"

struct worker;

struct worker_options {
    const char *thread, *jobs; /* in errors: "the embedding thread", "requests for embeddings" */
    int capacity;              /* jobs that may wait */
    /* Does one part, in the thread; true: the job is over. */
    bool (*work)(void *context, struct turn *job);
    /* Called once for a job that is over and has left the worker; must not block. */
    void (*done)(struct turn *job);
    uint64_t (*client)(const struct turn *job);
    void *context;
};
enum status worker_open(struct worker **out, const struct worker_options *options, struct error *e);
/* STATUS_BUSY when `capacity` jobs wait or the thread was stopped; then done is not called. */
enum status worker_ask(struct worker *worker, struct turn *job, struct error *e);
bool worker_is_stopped(const struct worker *worker);
int worker_count_jobs(struct worker *worker);
/* Ends the thread when every job is over: work looks at worker_is_stopped. Later jobs are refused.
 */
void worker_stop(struct worker *worker);
void worker_close(struct worker *worker); /* NULL: nothing */
