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

static bool is_wanted(const struct embedding_thread *thread, const struct embedding_job *job) {
    return !worker_is_stopped(thread->worker) && !(job->cancelled && atomic_load(job->cancelled));
}

static bool is_picture(const struct embedding_job *job, int i) {
    return job->pictures && job->pictures[i].pixels;
}

/* Texts from i on that can be embedded together. */
static int count_alike(const struct embedding_job *job, int i) {
    int most = i == 0 && job->first != job->others ? 1 : min_int(TEXTS_AT_ONCE, job->n - i), n = 1;
    if (job->n == 0 || job->pictures == NULL) return most;
    if (is_picture(job, i)) most = min_int(most, PICTURES_AT_ONCE);
    while (n < most && is_picture(job, i + n) == is_picture(job, i)) n++;
    return n;
}

static enum status embed_some(struct embedding_thread *thread, struct embedding_job *job, int n) {
    bool seen = n > 0 && is_picture(job, job->n_done);
    struct embed_request request = {
        .texts = job->texts + job->n_done,
        .pictures = seen ? job->pictures + job->n_done : NULL,
        .n = n,
        .query = job->query,
        .role = job->n_done == 0 ? job->first : job->others,
        .raw = true,
        .vectors = job->vectors + (size_t)job->n_done * (size_t)thread->embedder->dim,
        .sparse = job->sparse};
    if (principal_is_late(&job->principal, time_now()))
        return error_set(&job->error, STATUS_CANCELLED,
                         "the vectors did not come in time (option server.request_timeout)");
    if (!is_wanted(thread, job))
        return error_set(&job->error, STATUS_CANCELLED, "the embedding was cancelled");
    return n > 0 ? embedder_embed(thread->embedder, &request, &job->error) : STATUS_OK;
}

static bool work(void *context, struct turn *turn) {
    struct embedding_thread *thread = context;
    struct embedding_job *job = (struct embedding_job *)turn;
    int n = count_alike(job, job->n_done);
    double start = time_now();
    job->status = embed_some(thread, job, n);
    double seconds = time_now() - start;
    bool over = job->status != STATUS_OK || job->n_done + n == job->n;

    pthread_mutex_lock(&thread->lock);
    thread->n_texts -= over ? job->n - job->n_done : n;
    if (n > 0) thread->seconds_per_text += text_weight * (seconds / n - thread->seconds_per_text);
    pthread_mutex_unlock(&thread->lock);
    job->n_done += n;
    return over;
}

static void end_job(struct turn *turn) {
    struct embedding_job *job = (struct embedding_job *)turn;
    job->done(job);
}

static uint64_t client_of(const struct turn *turn) {
    return ((const struct embedding_job *)turn)->principal.client;
}

enum status embedding_thread_open(struct embedding_thread **out, const struct embedder *embedder,
                                  int capacity, struct error *e) {
    struct embedding_thread *thread = xcalloc(1, sizeof *thread);
    thread->embedder = embedder;
    pthread_mutex_init(&thread->lock, NULL);
    struct worker_options options = {.thread = "the embedding thread",
                                     .jobs = "requests for embeddings",
                                     .capacity = capacity,
                                     .work = work,
                                     .done = end_job,
                                     .client = client_of,
                                     .context = thread};
    if (worker_open(&thread->worker, &options, e)) {
        embedding_thread_close(thread);
        return e->status;
    }
    *out = thread;
    return STATUS_OK;
}

void embedding_thread_stop(struct embedding_thread *thread) {
    if (thread) worker_stop(thread->worker);
}

void embedding_thread_close(struct embedding_thread *thread) {
    if (thread == NULL) return;
    worker_close(thread->worker);
    pthread_mutex_destroy(&thread->lock);
    free(thread);
}

static void count_texts(struct embedding_thread *thread, int n) {
    pthread_mutex_lock(&thread->lock);
    thread->n_texts += n;
    pthread_mutex_unlock(&thread->lock);
}

enum status embedding_thread_ask(struct embedding_thread *thread, struct embedding_job *job,
                                 struct error *e) {
    int n = job->n; /* the job may be over, and gone, when worker_ask returns */
    count_texts(thread, n);
    enum status status = worker_ask(thread->worker, &job->turn, e);
    if (status) count_texts(thread, -n);
    return status;
}

/* Requests take turns, so the first to be over needs about its part of all turns. */
int embedding_thread_retry_after(struct embedding_thread *thread) {
    int n_jobs = worker_count_jobs(thread->worker);
    pthread_mutex_lock(&thread->lock);
    double seconds = (double)thread->n_texts / max_int(1, n_jobs) * thread->seconds_per_text;
    pthread_mutex_unlock(&thread->lock);
    return (int)fmin(fmax(ceil(seconds), 1), RETRY_MOST);
}
