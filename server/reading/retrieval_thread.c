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
    pthread_mutex_t lock; /* guards stopped, against a lookup that comes in while stopping, and metrics */
    bool stopped;
    struct retrieval_metrics metrics;
    struct lookup **batch; /* [capacity] */
    struct lookup *next;   /* taken from the queue, did not fit the last batch */
    struct word_preparer preparer;
    struct lookup **parked; /* [n_parked], at most capacity: taken from the queue, wait for words */
    int n_parked;
};

static void finish(struct lookup *l, enum status status, const struct error *e) {
    l->status = status;
    if (status) l->error = *e;
    l->done(l);
}

static void finish_cancelled(struct lookup *l) {
    struct error e;
    finish(l, error_set(&e, STATUS_CANCELLED, "the retrieval was cancelled"), &e);
}

static bool is_cancelled(const struct lookup *l) { return l->cancelled && atomic_load(l->cancelled); }

/* Whether it is to wait for words, while others are answered. */
static bool is_delayed(struct retrieval_thread *t, struct lookup *l) {
    if (l->snapshot == NULL) l->snapshot = retriever_hold(t->retriever);
    return !is_cancelled(l) && word_preparer_delays(&t->preparer, l->queries, l->n, l->snapshot);
}

/* The first that waits no more; NULL: there is none. */
static struct lookup *take_parked(struct retrieval_thread *t) {
    for (int i = 0; i < t->n_parked; i++) {
        struct lookup *l = t->parked[i];
        if (is_delayed(t, l)) continue;
        t->n_parked--;
        memmove(t->parked + i, t->parked + i + 1, (size_t)(t->n_parked - i) * sizeof(struct lookup *));
        return l;
    }
    return NULL;
}

static struct lookup *take(struct retrieval_thread *t) {
    struct lookup *l = t->next;
    t->next = NULL;
    if (l == NULL) l = take_parked(t);
    if (l == NULL) l = queue_take(&t->queue);
    while (l && t->n_parked < t->queue.capacity && is_delayed(t, l)) {
        t->parked[t->n_parked] = l;
        t->n_parked++;
        l = queue_take(&t->queue);
    }
    return l;
}

/* Fills t->batch with waiting lookups; returns how many, and their queries in *n_queries. */
static int collect(struct retrieval_thread *t, int *n_queries) {
    int n = 0;
    struct lookup *l;
    *n_queries = 0;
    while (n < t->queue.capacity && (l = take(t)) != NULL) {
        if (is_cancelled(l)) {
            finish_cancelled(l);
            continue;
        }
        if (n > 0 && *n_queries + l->n > BATCH_QUERIES) {
            t->next = l;
            break;
        }
        t->batch[n] = l;
        n++;
        *n_queries += l->n;
    }
    return n;
}

/* A batch of n lookups began at `start` and is done now; `embed` seconds of it were the embedder's. */
static void note_search(struct retrieval_thread *t, int n, double start, double embed) {
    double all = time_now() - start;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < n; i++) histogram_note(&t->metrics.queue, start - t->batch[i]->asked);
    histogram_note(&t->metrics.embed, embed);
    histogram_note(&t->metrics.search, all - embed);
    pthread_mutex_unlock(&t->lock);
}

static void search(struct retrieval_thread *t, int n, int n_queries) {
    struct error e = {0};
    struct retriever_query *queries = xcalloc((size_t)n_queries, sizeof *queries);
    struct hits *hits = xcalloc((size_t)n_queries, sizeof *hits);
    int filled = 0;
    for (int i = 0; i < n; i++) {
        struct lookup *l = t->batch[i];
        for (int j = 0; j < l->n; j++) {
            queries[filled] = l->queries[j];
            queries[filled].snapshot = l->snapshot;
            queries[filled].cancelled = l->cancelled;
            filled++;
        }
    }

    double start = time_now(), embedded = embedder_shared_seconds();
    enum status status = retriever_search(t->retriever, queries, n_queries, hits, &e);
    note_search(t, n, start, embedder_shared_seconds() - embedded);

    int at = 0;
    for (int i = 0; i < n; i++) {
        struct lookup *l = t->batch[i];
        if (status == STATUS_OK) memcpy(l->hits, hits + at, (size_t)l->n * sizeof *hits);
        at += l->n;
        finish(l, status, &e);
    }
    free(queries);
    free(hits);
}

static bool is_stopped(struct retrieval_thread *t) {
    pthread_mutex_lock(&t->lock);
    bool stopped = t->stopped;
    pthread_mutex_unlock(&t->lock);
    return stopped;
}

static void *run(void *argument) {
    struct retrieval_thread *t = argument;
    index_set_threads(t->threads);
    while (!is_stopped(t)) {
        int n_queries, n = collect(t, &n_queries);
        if (n > 0)
            search(t, n, n_queries);
        else
            bell_wait(&t->bell);
    }
    for (int i = 0; i < t->n_parked; i++) finish_cancelled(t->parked[i]);
    t->n_parked = 0;
    if (t->next) finish_cancelled(t->next);
    for (struct lookup *l = queue_take(&t->queue); l; l = queue_take(&t->queue)) finish_cancelled(l);
    return NULL;
}

enum status retrieval_thread_open(struct retrieval_thread **out, struct retriever *retriever, int capacity, int threads,
                                  struct error *e) {
    struct retrieval_thread *t = xcalloc(1, sizeof *t);
    t->retriever = retriever;
    t->threads = threads;
    bell_open(&t->bell);
    queue_open(&t->queue, capacity, &t->bell);
    pthread_mutex_init(&t->lock, NULL);
    t->batch = xcalloc((size_t)capacity, sizeof(struct lookup *));
    t->parked = xcalloc((size_t)capacity, sizeof(struct lookup *));
    enum status status = word_preparer_open(&t->preparer, retriever, &t->bell, e);
    t->running = status == STATUS_OK && pthread_create(&t->thread, NULL, run, t) == 0;
    if (status == STATUS_OK && !t->running)
        status = error_set(e, STATUS_NO_MEMORY, "the retrieval thread could not be started");
    if (status)
        retrieval_thread_close(t);
    else
        *out = t;
    return status;
}

void retrieval_thread_stop(struct retrieval_thread *t) {
    if (t == NULL || !t->running) return;
    pthread_mutex_lock(&t->lock);
    t->stopped = true;
    pthread_mutex_unlock(&t->lock);
    bell_ring(&t->bell);
    pthread_join(t->thread, NULL);
    t->running = false;
}

void retrieval_thread_close(struct retrieval_thread *t) {
    if (t == NULL) return;
    retrieval_thread_stop(t);
    word_preparer_close(&t->preparer);
    queue_close(&t->queue);
    bell_close(&t->bell);
    pthread_mutex_destroy(&t->lock);
    free(t->batch);
    free(t->parked);
    free(t);
}

struct snapshot *retrieval_thread_hold(struct retrieval_thread *t) {
    return retriever_hold(t->retriever);
}

enum status retrieval_thread_ask(struct retrieval_thread *t, struct lookup *l, struct error *e) {
    enum status status = STATUS_OK;
    l->asked = time_now();
    pthread_mutex_lock(&t->lock);
    if (t->stopped)
        status = error_set(e, STATUS_BUSY, "the server is stopping");
    else if (!queue_put(&t->queue, (void *[]){l}, 1))
        status = error_set(e, STATUS_BUSY, "%d searches are waiting already", t->queue.capacity);
    pthread_mutex_unlock(&t->lock);
    return status;
}

void retrieval_thread_metrics(struct retrieval_thread *t, struct retrieval_metrics *out) {
    pthread_mutex_lock(&t->lock);
    *out = t->metrics;
    pthread_mutex_unlock(&t->lock);
}
