/* server/schedule/embedding_thread.c: see embedding_thread.h. */
#include "server/schedule/embedding_thread.h"

#include <math.h>
#include <stdlib.h>

#include "server/schedule/queue.h"

/* Texts at a time: some forwards of an embedder on a CPU, between which a client may leave. */
enum { TEXTS_AT_ONCE = 32, PICTURES_AT_ONCE = 4, RETRY_MOST = 60 };
static const double text_weight = 0.1; /* of the latest texts in the mean time of one */

struct embedding_thread {
    const struct embedder *embedder;
    pthread_t thread;
    bool running;
    struct bell bell;
    int capacity;
    atomic_bool stopped;
    pthread_mutex_t lock; /* guards the rest, and that nothing comes once stopped is set */
    struct turns turns;
    int n_jobs;
    int64_t n_texts; /* of these, not embedded yet */
    double seconds_per_text;
};

static bool is_wanted(const struct embedding_thread *t, const struct embedding_job *j) {
    return !atomic_load(&t->stopped) && !(j->cancelled && atomic_load(j->cancelled));
}

/* Texts from i on that can be embedded together. */
static int count_alike(const struct embedding_job *j, int i) {
    int most = i == 0 && j->first != j->others ? 1 : min_int(TEXTS_AT_ONCE, j->n - i), n = 1;
    if (j->pictures == NULL) return most;
    if (j->pictures[i]) most = min_int(most, PICTURES_AT_ONCE);
    while (n < most && j->pictures[i + n] == j->pictures[i]) n++;
    return n;
}

static enum status embed_some(struct embedding_thread *t, struct embedding_job *j, int n) {
    struct embed_request request = {.texts = j->texts + j->n_done,
                                    .n = n,
                                    .query = j->query,
                                    .pictures = n > 0 && j->pictures && j->pictures[j->n_done],
                                    .role = j->n_done == 0 ? j->first : j->others,
                                    .vectors = j->vectors + (size_t)j->n_done * (size_t)t->embedder->dim};
    if (principal_is_late(&j->principal, time_now()))
        return error_set(&j->error, STATUS_CANCELLED,
                         "the vectors did not come in time (option server.request_timeout)");
    if (!is_wanted(t, j)) return error_set(&j->error, STATUS_CANCELLED, "the embedding was cancelled");
    return n > 0 ? embedder_embed(t->embedder, &request, &j->error) : STATUS_OK;
}

static struct embedding_job *take_job(struct embedding_thread *t) {
    pthread_mutex_lock(&t->lock);
    struct turn *turn = turns_take(&t->turns);
    pthread_mutex_unlock(&t->lock);
    return (struct embedding_job *)turn;
}

/* The job waits for its next turn. False when it is over. */
static bool put_back(struct embedding_thread *t, struct embedding_job *j, int n, double seconds) {
    bool over = j->status != STATUS_OK || j->n_done + n == j->n;
    struct turn *turn = &j->turn;
    pthread_mutex_lock(&t->lock);
    turns_end(&t->turns, turn);
    t->n_texts -= over ? j->n - j->n_done : n;
    if (n > 0) t->seconds_per_text += text_weight * (seconds / n - t->seconds_per_text);
    j->n_done += n;
    if (over)
        t->n_jobs--;
    else
        turns_add(&t->turns, j->principal.client, &turn, 1);
    pthread_mutex_unlock(&t->lock);
    return !over;
}

static void *run_embedding(void *argument) {
    struct embedding_thread *t = argument;
    for (;;) {
        struct embedding_job *j = take_job(t);
        if (j) {
            int n = count_alike(j, j->n_done);
            double start = time_now();
            j->status = embed_some(t, j, n);
            if (!put_back(t, j, n, time_now() - start)) j->done(j);
        } else if (atomic_load(&t->stopped)) {
            return NULL;
        } else {
            bell_wait(&t->bell);
        }
    }
}

enum status embedding_thread_open(struct embedding_thread **out, const struct embedder *embedder, int capacity,
                                  struct error *e) {
    struct embedding_thread *t = xcalloc(1, sizeof *t);
    t->embedder = embedder;
    t->capacity = capacity;
    bell_open(&t->bell);
    turns_open(&t->turns);
    pthread_mutex_init(&t->lock, NULL);
    t->running = pthread_create(&t->thread, NULL, run_embedding, t) == 0;
    if (!t->running) {
        embedding_thread_close(t);
        return error_set(e, STATUS_NO_MEMORY, "the embedding thread could not be started");
    }
    *out = t;
    return STATUS_OK;
}

void embedding_thread_stop(struct embedding_thread *t) {
    if (t == NULL || !t->running) return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->stopped, true);
    pthread_mutex_unlock(&t->lock);
    bell_ring(&t->bell);
    pthread_join(t->thread, NULL);
    t->running = false;
}

void embedding_thread_close(struct embedding_thread *t) {
    if (t == NULL) return;
    embedding_thread_stop(t);
    turns_close(&t->turns);
    bell_close(&t->bell);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

enum status embedding_thread_ask(struct embedding_thread *t, struct embedding_job *j, struct error *e) {
    enum status status = STATUS_OK;
    struct turn *turn = &j->turn;
    pthread_mutex_lock(&t->lock);
    if (atomic_load(&t->stopped)) {
        status = error_set(e, STATUS_BUSY, "the server is stopping");
    } else if (t->n_jobs == t->capacity) {
        status = error_set(e, STATUS_BUSY, "%d requests for embeddings are waiting already", t->capacity);
    } else {
        turns_add(&t->turns, j->principal.client, &turn, 1);
        t->n_jobs++;
        t->n_texts += j->n;
    }
    pthread_mutex_unlock(&t->lock);
    if (status == STATUS_OK) bell_ring(&t->bell);
    return status;
}

/* Requests take turns, so the first to be over needs about its share of all turns. */
int embedding_thread_retry_after(struct embedding_thread *t) {
    pthread_mutex_lock(&t->lock);
    double seconds = (double)t->n_texts / max_int(1, t->n_jobs) * t->seconds_per_text;
    pthread_mutex_unlock(&t->lock);
    return (int)fmin(fmax(ceil(seconds), 1), RETRY_MOST);
}
