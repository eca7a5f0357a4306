/* server/reading/retrieval_thread.c: embeds and searches for everyone. See retrieval_thread.h. */
#include "server/reading/retrieval_thread.h"

#include <stdlib.h>
#include <string.h>

#include "retrieval/index/index.h"
#include "server/host/documents/embedder_shared.h"
#include "server/reading/word_preparer.h"

/* Queries of one batch; one lookup may be larger and then goes alone. */
enum { BATCH_QUERIES = 256 };

struct retrieval_thread {
    struct retriever *retriever;
    int threads;
    pthread_t thread;
    bool running;
    struct bell bell;
    struct queue queue;
    pthread_mutex_t
        lock; /* guards stopped, against a lookup that comes in while stopping, and metrics */
    bool stopped;
    struct retrieval_metrics metrics;
    struct lookup **batch; /* [capacity] */
    struct lookup *next;   /* taken from the queue, did not fit the last batch */
    struct word_preparer preparer;
    struct lookup **parked; /* [n_parked], at most capacity: taken from the queue, wait for words */
    int n_parked;
};

static void finish(struct lookup *lookup, enum status status, const struct error *e) {
    lookup->status = status;
    if (status) lookup->error = *e;
    lookup->done(lookup);
}

static void finish_cancelled(struct lookup *lookup) {
    struct error e;
    finish(lookup, error_set(&e, STATUS_CANCELLED, "the retrieval was cancelled"), &e);
}

static bool is_cancelled(const struct lookup *lookup) {
    return lookup->cancelled && atomic_load(lookup->cancelled);
}

/* Whether it is to wait for words, while others are answered. */
static bool is_delayed(struct retrieval_thread *thread, struct lookup *lookup) {
    if (lookup->snapshot == NULL) lookup->snapshot = retriever_hold(thread->retriever);
    return !is_cancelled(lookup) &&
           word_preparer_delays(&thread->preparer, lookup->queries, lookup->n, lookup->snapshot);
}

/* The first that waits no more; NULL: there is none. */
static struct lookup *take_parked(struct retrieval_thread *thread) {
    for (int i = 0; i < thread->n_parked; i++) {
        struct lookup *lookup = thread->parked[i];
        if (is_delayed(thread, lookup)) continue;
        thread->n_parked--;
        memmove(thread->parked + i, thread->parked + i + 1,
                (size_t)(thread->n_parked - i) * sizeof(struct lookup *));
        return lookup;
    }
    return NULL;
}

static struct lookup *take(struct retrieval_thread *thread) {
    struct lookup *lookup = thread->next;
    thread->next = NULL;
    if (lookup == NULL) lookup = take_parked(thread);
    if (lookup == NULL) lookup = queue_take(&thread->queue);
    while (lookup && thread->n_parked < thread->queue.capacity && is_delayed(thread, lookup)) {
        thread->parked[thread->n_parked] = lookup;
        thread->n_parked++;
        lookup = queue_take(&thread->queue);
    }
    return lookup;
}

/* Fills thread->batch with waiting lookups; returns how many, and their queries in *n_queries. */
static int collect(struct retrieval_thread *thread, int *n_queries) {
    int n = 0;
    struct lookup *lookup;
    *n_queries = 0;
    while (n < thread->queue.capacity && (lookup = take(thread)) != NULL) {
        if (is_cancelled(lookup)) {
            finish_cancelled(lookup);
            continue;
        }
        if (n > 0 && *n_queries + lookup->n > BATCH_QUERIES) {
            thread->next = lookup;
            break;
        }
        thread->batch[n] = lookup;
        n++;
        *n_queries += lookup->n;
    }
    return n;
}

/* A batch of n lookups began at `start` and is done now; `embed` seconds of it were the embedder's.
 */
static void note_search(struct retrieval_thread *thread, int n, double start, double embed) {
    double all = time_now() - start;
    pthread_mutex_lock(&thread->lock);
    for (int i = 0; i < n; i++)
        histogram_note(&thread->metrics.queue, start - thread->batch[i]->asked);
    histogram_note(&thread->metrics.embed, embed);
    histogram_note(&thread->metrics.search, all - embed);
    pthread_mutex_unlock(&thread->lock);
}

/* Recalls what was read before, and notes of what state the lookup's hits are. */
static void recall(struct retrieval_thread *thread, struct lookup *lookup) {
    uint64_t version = 0;
    const char *latest = NULL;
    retriever_recall(thread->retriever, lookup->recall);
    for (int i = 0; i < lookup->n; i++) {
        for (int j = 0; j < lookup->hits[i].n; j++) {
            struct hit *hit = &lookup->hits[i].list[j];
            if (latest == NULL || hit->source.text != latest) version = hit_version(hit);
            latest = hit->source.text;
            hit->version = version;
        }
    }
}

static void search(struct retrieval_thread *thread, int n, int n_queries) {
    struct error e = {0};
    struct retriever_query *queries = xcalloc((size_t)n_queries, sizeof *queries);
    struct hits *hits = xcalloc((size_t)n_queries, sizeof *hits);
    int filled = 0;
    for (int i = 0; i < n; i++) {
        struct lookup *lookup = thread->batch[i];
        for (int j = 0; j < lookup->n; j++) {
            queries[filled] = lookup->queries[j];
            queries[filled].snapshot = lookup->snapshot;
            queries[filled].cancelled = lookup->cancelled;
            filled++;
        }
    }

    double start = time_now(), embedded = embedder_shared_seconds();
    enum status status = retriever_search(thread->retriever, queries, n_queries, hits, &e);
    note_search(thread, n, start, embedder_shared_seconds() - embedded);

    int at = 0;
    for (int i = 0; i < n; i++) {
        struct lookup *lookup = thread->batch[i];
        if (status == STATUS_OK) memcpy(lookup->hits, hits + at, (size_t)lookup->n * sizeof *hits);
        at += lookup->n;
        if (status == STATUS_OK && lookup->recall) recall(thread, lookup);
        finish(lookup, status, &e);
    }
    free(queries);
    free(hits);
}

static bool is_stopped(struct retrieval_thread *thread) {
    pthread_mutex_lock(&thread->lock);
    bool stopped = thread->stopped;
    pthread_mutex_unlock(&thread->lock);
    return stopped;
}

static void *run(void *argument) {
    struct retrieval_thread *thread = argument;
    index_set_threads(thread->threads);
    while (!is_stopped(thread)) {
        int n_queries, n = collect(thread, &n_queries);
        if (n > 0)
            search(thread, n, n_queries);
        else
            bell_wait(&thread->bell);
    }
    for (int i = 0; i < thread->n_parked; i++) finish_cancelled(thread->parked[i]);
    thread->n_parked = 0;
    if (thread->next) finish_cancelled(thread->next);
    for (struct lookup *lookup = queue_take(&thread->queue); lookup;
         lookup = queue_take(&thread->queue))
        finish_cancelled(lookup);
    return NULL;
}

enum status retrieval_thread_open(struct retrieval_thread **out, struct retriever *retriever,
                                  int capacity, int threads, struct error *e) {
    struct retrieval_thread *thread = xcalloc(1, sizeof *thread);
    thread->retriever = retriever;
    thread->threads = threads;
    bell_open(&thread->bell);
    queue_open(&thread->queue, capacity, &thread->bell);
    pthread_mutex_init(&thread->lock, NULL);
    thread->batch = xcalloc((size_t)capacity, sizeof(struct lookup *));
    thread->parked = xcalloc((size_t)capacity, sizeof(struct lookup *));
    enum status status = word_preparer_open(&thread->preparer, retriever, &thread->bell, e);
    thread->running =
        status == STATUS_OK && pthread_create(&thread->thread, NULL, run, thread) == 0;
    if (status == STATUS_OK && !thread->running)
        status = error_set(e, STATUS_NO_MEMORY, "the retrieval thread could not be started");
    if (status)
        retrieval_thread_close(thread);
    else
        *out = thread;
    return status;
}

void retrieval_thread_stop(struct retrieval_thread *thread) {
    if (thread == NULL || !thread->running) return;
    pthread_mutex_lock(&thread->lock);
    thread->stopped = true;
    pthread_mutex_unlock(&thread->lock);
    bell_ring(&thread->bell);
    pthread_join(thread->thread, NULL);
    thread->running = false;
}

void retrieval_thread_close(struct retrieval_thread *thread) {
    if (thread == NULL) return;
    retrieval_thread_stop(thread);
    word_preparer_close(&thread->preparer);
    queue_close(&thread->queue);
    bell_close(&thread->bell);
    pthread_mutex_destroy(&thread->lock);
    free(thread->batch);
    free(thread->parked);
    free(thread);
}

struct snapshot *retrieval_thread_hold(struct retrieval_thread *thread) {
    return retriever_hold(thread->retriever);
}

enum status retrieval_thread_ask(struct retrieval_thread *thread, struct lookup *lookup,
                                 struct error *e) {
    enum status status = STATUS_OK;
    lookup->asked = time_now();
    pthread_mutex_lock(&thread->lock);
    if (thread->stopped)
        status = error_set(e, STATUS_BUSY, "the server is stopping");
    else if (!queue_put(&thread->queue, (void *[]){lookup}, 1))
        status =
            error_set(e, STATUS_BUSY, "%d searches are waiting already", thread->queue.capacity);
    pthread_mutex_unlock(&thread->lock);
    return status;
}

void retrieval_thread_metrics(struct retrieval_thread *thread, struct retrieval_metrics *out) {
    pthread_mutex_lock(&thread->lock);
    *out = thread->metrics;
    pthread_mutex_unlock(&thread->lock);
}
