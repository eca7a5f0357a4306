/* retrieval/words/words_once.c: see words_once.h. */
#include "retrieval/words/words_once.h"

#include <time.h>

/* A cancellation rings no bell, so it is looked for that often. */
enum { LOOK_NANOSECONDS = 20000000 };

void words_once_open(struct words_once *once) {
    *once = (struct words_once){0};
    pthread_mutex_init(&once->lock, NULL);
    pthread_cond_init(&once->ended, NULL);
}

void words_once_close(struct words_once *once) {
    words_free(once->words);
    pthread_cond_destroy(&once->ended);
    pthread_mutex_destroy(&once->lock);
}

static bool is_cancelled(const struct words_request *request) {
    return request->cancelled && atomic_load(request->cancelled);
}

/* Under the lock, which is open while it waits. */
static void wait_for_maker(struct words_once *once, const struct words_request *request) {
    while (once->making && !is_cancelled(request)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NANOSECONDS;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&once->ended, &once->lock, &until);
    }
}

/* Under the lock, which is open while the words are made. */
static enum status make_unlocked(struct words_once *once, const struct words_request *request,
                                 struct error *e) {
    struct words *made = NULL;
    once->making = true;
    pthread_mutex_unlock(&once->lock);
    enum status status = words_make(&made, request->source, request->context, request->n, e);
    pthread_mutex_lock(&once->lock);
    once->words = made;
    once->making = false;
    pthread_cond_broadcast(&once->ended);
    return status;
}

enum status words_once_get(struct words_once *once, const struct words_request *request,
                           const struct words **out, struct error *e) {
    enum status status = STATUS_OK;
    pthread_mutex_lock(&once->lock);
    wait_for_maker(once, request);
    if (once->making)
        status = error_set(e, STATUS_CANCELLED, "the words of %lld chunks are not made yet",
                           (long long)request->n);
    else if (once->words == NULL)
        status = make_unlocked(once, request, e);
    *out = once->words;
    pthread_mutex_unlock(&once->lock);
    return status;
}
