/* retrieval/words/words_once.c: see words_once.h. */
#include "retrieval/words/words_once.h"

#include <time.h>

/* A cancellation rings no bell, so it is looked for that often. */
enum { LOOK_NANOSECONDS = 20000000 };

void words_once_open(struct words_once *o) {
    *o = (struct words_once){0};
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->ended, NULL);
}

void words_once_close(struct words_once *o) {
    words_free(o->words);
    pthread_cond_destroy(&o->ended);
    pthread_mutex_destroy(&o->lock);
}

bool words_once_has(struct words_once *o) {
    pthread_mutex_lock(&o->lock);
    bool has = o->words != NULL;
    pthread_mutex_unlock(&o->lock);
    return has;
}

static bool is_cancelled(const struct words_request *r) { return r->cancelled && atomic_load(r->cancelled); }

/* Under the lock, which is open while it waits. */
static void wait_for_maker(struct words_once *o, const struct words_request *r) {
    while (o->making && !is_cancelled(r)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NANOSECONDS;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&o->ended, &o->lock, &until);
    }
}

/* Under the lock, which is open while the words are made. */
static enum status make_unlocked(struct words_once *o, const struct words_request *r, struct error *e) {
    struct words *made = NULL;
    o->making = true;
    pthread_mutex_unlock(&o->lock);
    enum status status = words_make(&made, r->source, r->context, r->n, e);
    pthread_mutex_lock(&o->lock);
    o->words = made;
    o->making = false;
    pthread_cond_broadcast(&o->ended);
    return status;
}

enum status words_once_get(struct words_once *o, const struct words_request *request, const struct words **out,
                           struct error *e) {
    enum status status = STATUS_OK;
    pthread_mutex_lock(&o->lock);
    wait_for_maker(o, request);
    if (o->making)
        status = error_set(e, STATUS_CANCELLED, "the words of %lld chunks are not made yet", (long long)request->n);
    else if (o->words == NULL)
        status = make_unlocked(o, request, e);
    *out = o->words;
    pthread_mutex_unlock(&o->lock);
    return status;
}
