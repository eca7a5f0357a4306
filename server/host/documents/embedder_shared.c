/* server/host/documents/embedder_shared.c: see embedder_shared.h. */
#include "server/host/documents/embedder_shared.h"

#include <pthread.h>
#include <stdlib.h>

struct shared_embedder {
    struct embedder inner;
    pthread_mutex_t lock;
};

static _Thread_local double seconds_spent;

static enum status embed_shared(void *self, const struct embed_request *request, struct error *e) {
    struct shared_embedder *embedder = self;
    double start = time_now();
    pthread_mutex_lock(&embedder->lock);
    enum status status = embedder_embed(&embedder->inner, request, e);
    pthread_mutex_unlock(&embedder->lock);
    seconds_spent += time_now() - start;
    return status;
}

/* Reading a picture needs nothing that embedding changes. */
static enum status read_shared(const void *self, struct text_span file,
                               struct embedder_picture *out, struct error *e) {
    const struct shared_embedder *embedder = self;
    return embedder_read_picture(&embedder->inner, file, out, e);
}

void embedder_share(struct embedder *embedder) {
    struct shared_embedder *shared_embedder = xcalloc(1, sizeof *shared_embedder);
    shared_embedder->inner = *embedder;
    pthread_mutex_init(&shared_embedder->lock, NULL);
    embedder->self = shared_embedder;
    embedder->embed = embed_shared;
    embedder->read_picture = read_shared;
}

void embedder_unshare(struct embedder *embedder) {
    struct shared_embedder *shared_embedder = embedder->self;
    if (embedder->embed != embed_shared) return;
    *embedder = shared_embedder->inner;
    pthread_mutex_destroy(&shared_embedder->lock);
    free(shared_embedder);
}

double embedder_shared_seconds(void) { return seconds_spent; }
