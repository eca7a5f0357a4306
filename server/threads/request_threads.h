/* server/threads/request_threads.h: threads that read requests and write answers, so that the
 * threads which serve connections do neither: what a body costs is the client's choice, and /livez
 * must not wait for it. Clients take turns (turns.h), and no client has all threads at a time where
 * there are several. The jobs are the caller's, and begin with a struct turn. */
#pragma once

#include "server/threads/turns.h"

struct request_threads;

struct request_threads_options {
    int threads;
    int capacity; /* jobs that may wait */
    /* Does one job, in one of the threads; the job may be asked for again from within. */
    void (*work)(struct turn *job);
    uint64_t (*client)(const struct turn *job);
};
enum status request_threads_open(struct request_threads **out,
                                 const struct request_threads_options *options, struct error *e);
/* False when `capacity` jobs wait or request_threads_stop was called; then `work` is not called. */
bool request_threads_ask(struct request_threads *threads, struct turn *job);
/* The same for a job that was let in before, which is always taken. Nothing comes after
 * request_threads_stop. */
void request_threads_ask_again(struct request_threads *threads, struct turn *job);
/* Takes back a job that waits; false: it does not, or no longer. */
bool request_threads_take_back(struct request_threads *threads, struct turn *job);
/* Does what waits, and ends the threads. */
void request_threads_stop(struct request_threads *threads);
void request_threads_close(struct request_threads *threads); /* NULL: nothing */
