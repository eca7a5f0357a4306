/* server/pictures/picture_thread.h: a thread that makes pixels of the files of pictures for
 * requests, as a model that writes or an embedder reads them, once those that a request names by
 * URLs are fetched. It decodes and resizes, one picture at a time, so that a client that leaves is
 * noticed, and no client waits for all pictures of another (turns.h). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "retrieval/embedder.h"
#include "server/access/principal.h"
#include "server/fetch/fetcher.h"
#include "server/host/prompt/picture_input.h"
#include "server/pictures/picture_set.h"
#include "server/threads/turns.h"
#include "server/threads/waker.h"

struct picture_thread;

/* The reader of a job's pictures: one of the two. */
struct picture_reader {
    const struct picture_input *picture_input;
    const struct embedder *embedder;
};

/* A picture's file as it came, and what became of it. */
struct picture_file {
    struct buffer bytes;  /* owned */
    struct text_span url; /* a data: URL with the bytes, which outlives the job; its text NULL:
                             `bytes` has them */
    char *web;          /* owned: the URL that it is fetched from; NULL: it came with the request */
    struct fetch fetch; /* of that */
    const char *of;     /* in errors: "message", whose `number` has it; NULL: nothing is said */
    size_t number;
    int place; /* in the set, when the job is over; -1: it could not be read, or there is none */
    struct embedder_picture pixels; /* owned: of an embedder's */
    struct error error;             /* why it could not be read */
};

/* The pictures of one request. The asker and the thread have a reference each. */
struct picture_job {
    struct turn turn; /* first: one is cast to the other; the thread's, as n_done is */
    int n_done;
    struct principal principal; /* held: who asks, and until when */
    struct picture_reader reader;
    struct picture_file *files; /* [n] */
    int n;
    bool skips; /* a picture that cannot be read is left out; else the job ends with its error */
    struct picture_set
        *set; /* what is ready; the asker's to read when the job is over; NULL: an embedder reads */
    struct picture_thread *thread;   /* that it was given to */
    atomic_int n_fetching;           /* files that are not there yet */
    size_t fetched_before;           /* bytes that earlier jobs of the same request have fetched */
    atomic_size_t bytes_left;        /* that may be fetched */
    atomic_bool cancelled, unwanted; /* the asker left; and no file is to be fetched any more */
    atomic_int references;
    pthread_mutex_t lock; /* guards the next two, and the error while files are fetched */
    bool over;
    struct waker waker;
    struct error error; /* STATUS_OK: all pictures are in the set */
};

/* With room for n files and one reference; `waker` is called when the job is over. */
struct picture_job *picture_job_open(const struct picture_reader *reader, int n,
                                     struct principal who, struct waker waker);
/* Nobody waits any more: waker is not called after this returns. */
void picture_job_cancel(struct picture_job *job);
/* Nobody waits for the pictures: the job is over soon, and waker is called. */
void picture_job_hurry(struct picture_job *job);
bool picture_job_is_over(struct picture_job *job);
/* Bytes that were fetched for it and for earlier jobs of the request, when it is over. */
size_t picture_job_fetched(const struct picture_job *job);
void picture_job_release(struct picture_job *job); /* NULL: nothing */

struct picture_thread_options {
    int capacity;            /* jobs that may wait */
    struct fetcher *fetcher; /* borrowed; NULL: no job has files to fetch */
    size_t fetched_bytes;    /* that may be fetched for a request */
};
enum status picture_thread_open(struct picture_thread **out,
                                const struct picture_thread_options *options, struct error *e);
/* Ends the thread. Jobs that still wait end with STATUS_CANCELLED, later ones are refused. */
void picture_thread_stop(struct picture_thread *thread);
void picture_thread_close(struct picture_thread *thread);
/* Takes a reference of a job that has its files. STATUS_BUSY when `capacity` jobs wait or the
 * thread was stopped. */
enum status picture_thread_ask(struct picture_thread *thread, struct picture_job *job,
                               struct error *e);
