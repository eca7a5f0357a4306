/* server/schedule/embedding_thread.c: see embedding_thread.h. */
#include "server/schedule/embedding_thread.h"

#include <stdlib.h>

#include "server/schedule/queue.h"

/* Texts at a time: some forwards of an embedder on a CPU, between which a client may leave. */
enum { TEXTS_AT_ONCE = 32 };

struct embedding_thread {
    const struct embedder *embedder;
    pthread_t thread;
    bool running;
    struct bell bell;
    struct queue queue;
    atomic_bool stopped;
    pthread_mutex_t lock; /* so that nothing is put once stopped is set */
};

static bool is_wanted(const struct embedding_thread *t, const struct embedding_job *j) {
    return !atomic_load(&t->stopped) && !(j->cancelled && atomic_load(j->cancelled));
}

/* Texts from i on that can be embedded together. */
static int count_alike(const struct embedding_job *j, int i) {
    return i == 0 && j->first != j->others ? 1 : min_int(TEXTS_AT_ONCE, j->n - i);
}

static enum status embed_all(struct embedding_thread *t, struct embedding_job *j) {
    size_t dim = (size_t)t->embedder->dim;
    int done = 0;
    while (done < j->n) {
        struct embed_request request = {.texts = j->texts + done,
                                        .n = count_alike(j, done),
                                        .role = done == 0 ? j->first : j->others,
                                        .vectors = j->vectors + (size_t)done * dim};
        if (!is_wanted(t, j)) return error_set(&j->error, STATUS_CANCELLED, "the embedding was cancelled");
        if (embedder_embed(t->embedder, &request, &j->error)) return j->error.status;
        done += request.n;
    }
    return STATUS_OK;
}

static void *run_embedding(void *argument) {
    struct embedding_thread *t = argument;
    for (;;) {
        struct embedding_job *j = queue_take(&t->queue);
        if (j) {
            j->status = embed_all(t, j);
            j->done(j);
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
    bell_open(&t->bell);
    queue_open(&t->queue, capacity, &t->bell);
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
    queue_close(&t->queue);
    bell_close(&t->bell);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

enum status embedding_thread_ask(struct embedding_thread *t, struct embedding_job *j, struct error *e) {
    enum status status = STATUS_OK;
    pthread_mutex_lock(&t->lock);
    if (atomic_load(&t->stopped))
        status = error_set(e, STATUS_BUSY, "the server is stopping");
    else if (!queue_put(&t->queue, (void *[]){j}, 1))
        status = error_set(e, STATUS_BUSY, "%d requests for embeddings are waiting already", t->queue.capacity);
    pthread_mutex_unlock(&t->lock);
    return status;
}
