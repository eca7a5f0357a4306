/* server/reading/embedding_thread.c: see embedding_thread.h. */
#include "server/reading/embedding_thread.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "server/threads/worker.h"

/* Texts at a time: some forwards of an embedder on a CPU, between which a client may leave. */
enum { TEXTS_AT_ONCE = 32, PICTURES_AT_ONCE = 4, RETRY_MOST = 60 };
static const double text_weight = 0.1; /* of the latest texts in the mean time of one */

struct embedding_thread {
    const struct embedder *embedder;
    struct worker *worker;
    pthread_mutex_t lock; /* guards the rest */
    int64_t n_texts;      /* of the jobs that wait, not embedded yet */
    double seconds_per_text;
};

static bool is_wanted(const struct embedding_thread *t, const struct embedding_job *j) {
    return !worker_is_stopped(t->worker) && !(j->cancelled && atomic_load(j->cancelled));
}

static bool is_picture(const struct embedding_job *j, int i) { return j->pictures && j->pictures[i].pixels; }

/* Texts from i on that can be embedded together. */
static int count_alike(const struct embedding_job *j, int i) {
    int most = i == 0 && j->first != j->others ? 1 : min_int(TEXTS_AT_ONCE, j->n - i), n = 1;
    if (j->n == 0 || j->pictures == NULL) return most;
    if (is_picture(j, i)) most = min_int(most, PICTURES_AT_ONCE);
    while (n < most && is_picture(j, i + n) == is_picture(j, i)) n++;
    return n;
}

static enum status embed_some(struct embedding_thread *t, struct embedding_job *j, int n) {
    bool seen = n > 0 && is_picture(j, j->n_done);
    struct embed_request request = {.texts = j->texts + j->n_done,
                                    .pictures = seen ? j->pictures + j->n_done : NULL,
                                    .n = n,
                                    .query = j->query,
                                    .role = j->n_done == 0 ? j->first : j->others,
                                    .raw = true,
                                    .vectors = j->vectors + (size_t)j->n_done * (size_t)t->embedder->dim};
    if (principal_is_late(&j->principal, time_now()))
        return error_set(&j->error, STATUS_CANCELLED,
                         "the vectors did not come in time (option server.request_timeout)");
    if (!is_wanted(t, j)) return error_set(&j->error, STATUS_CANCELLED, "the embedding was cancelled");
    return n > 0 ? embedder_embed(t->embedder, &request, &j->error) : STATUS_OK;
}

static bool work(void *context, struct turn *turn) {
    struct embedding_thread *t = context;
    struct embedding_job *j = (struct embedding_job *)turn;
    int n = count_alike(j, j->n_done);
    double start = time_now();
    j->status = embed_some(t, j, n);
    double seconds = time_now() - start;
    bool over = j->status != STATUS_OK || j->n_done + n == j->n;

    pthread_mutex_lock(&t->lock);
    t->n_texts -= over ? j->n - j->n_done : n;
    if (n > 0) t->seconds_per_text += text_weight * (seconds / n - t->seconds_per_text);
    pthread_mutex_unlock(&t->lock);
    j->n_done += n;
    return over;
}

static void end_job(struct turn *turn) {
    struct embedding_job *j = (struct embedding_job *)turn;
    j->done(j);
}

static uint64_t client_of(const struct turn *turn) { return ((const struct embedding_job *)turn)->principal.client; }

enum status embedding_thread_open(struct embedding_thread **out, const struct embedder *embedder, int capacity,
                                  struct error *e) {
    struct embedding_thread *t = xcalloc(1, sizeof *t);
    t->embedder = embedder;
    pthread_mutex_init(&t->lock, NULL);
    struct worker_options o = {.thread = "the embedding thread",
                               .jobs = "requests for embeddings",
                               .capacity = capacity,
                               .work = work,
                               .done = end_job,
                               .client = client_of,
                               .context = t};
    if (worker_open(&t->worker, &o, e)) {
        embedding_thread_close(t);
        return e->status;
    }
    *out = t;
    return STATUS_OK;
}

void embedding_thread_stop(struct embedding_thread *t) {
    if (t) worker_stop(t->worker);
}

void embedding_thread_close(struct embedding_thread *t) {
    if (t == NULL) return;
    worker_close(t->worker);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static void count_texts(struct embedding_thread *t, int n) {
    pthread_mutex_lock(&t->lock);
    t->n_texts += n;
    pthread_mutex_unlock(&t->lock);
}

enum status embedding_thread_ask(struct embedding_thread *t, struct embedding_job *j, struct error *e) {
    int n = j->n; /* the job may be over, and gone, when worker_ask returns */
    count_texts(t, n);
    enum status status = worker_ask(t->worker, &j->turn, e);
    if (status) count_texts(t, -n);
    return status;
}

/* Requests take turns, so the first to be over needs about its part of all turns. */
int embedding_thread_retry_after(struct embedding_thread *t) {
    int n_jobs = worker_count_jobs(t->worker);
    pthread_mutex_lock(&t->lock);
    double seconds = (double)t->n_texts / max_int(1, n_jobs) * t->seconds_per_text;
    pthread_mutex_unlock(&t->lock);
    return (int)fmin(fmax(ceil(seconds), 1), RETRY_MOST);
}
