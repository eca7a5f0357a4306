/* server/reading/word_preparer.c: see word_preparer.h. */
#include "server/reading/word_preparer.h"

/* Takes what was asked for, held by the preparer; NULL: it is to end. */
static struct snapshot *wait_for_snapshot(struct word_preparer *preparer) {
    pthread_mutex_lock(&preparer->lock);
    while (preparer->snapshot == NULL && !preparer->stopped)
        pthread_cond_wait(&preparer->asked, &preparer->lock);
    struct snapshot *snapshot = preparer->stopped ? NULL : preparer->snapshot;
    pthread_mutex_unlock(&preparer->lock);
    return snapshot;
}

static void *prepare_words(void *argument) {
    struct word_preparer *preparer = argument;
    for (struct snapshot *snapshot = wait_for_snapshot(preparer); snapshot;
         snapshot = wait_for_snapshot(preparer)) {
        struct error e;
        enum status status = retriever_make_words(preparer->retriever, snapshot, &e);
        if (status) log_warn("words of documents: %s", e.text);
        pthread_mutex_lock(&preparer->lock);
        if (status) preparer->given_up = snapshot->version;
        preparer->snapshot = NULL;
        pthread_mutex_unlock(&preparer->lock);
        snapshot_release(snapshot);
        bell_ring(preparer->bell);
    }
    return NULL;
}

enum status word_preparer_open(struct word_preparer *preparer, struct retriever *retriever,
                               struct bell *bell, struct error *e) {
    *preparer = (struct word_preparer){.retriever = retriever, .bell = bell, .given_up = -1};
    pthread_mutex_init(&preparer->lock, NULL);
    pthread_cond_init(&preparer->asked, NULL);
    preparer->running = pthread_create(&preparer->thread, NULL, prepare_words, preparer) == 0;
    return preparer->running
               ? STATUS_OK
               : error_set(e, STATUS_NO_MEMORY, "the thread of words could not be started");
}

void word_preparer_close(struct word_preparer *preparer) {
    pthread_mutex_lock(&preparer->lock);
    preparer->stopped = true;
    pthread_cond_signal(&preparer->asked);
    pthread_mutex_unlock(&preparer->lock);
    if (preparer->running) pthread_join(preparer->thread, NULL);
    snapshot_release(preparer->snapshot);
    pthread_cond_destroy(&preparer->asked);
    pthread_mutex_destroy(&preparer->lock);
}

static bool need_words(const struct retriever_query *queries, int n) {
    for (int i = 0; i < n; i++)
        if (query_ranks_words(&queries[i])) return true;
    return false;
}

bool word_preparer_delays(struct word_preparer *preparer, const struct retriever_query *queries,
                          int n, struct snapshot *snapshot) {
    if (!need_words(queries, n) || retriever_has_words(preparer->retriever, snapshot)) return false;
    pthread_mutex_lock(&preparer->lock);
    bool given_up = preparer->given_up == snapshot->version;
    if (!given_up && preparer->snapshot == NULL) {
        preparer->snapshot = snapshot_hold(snapshot);
        pthread_cond_signal(&preparer->asked);
    }
    pthread_mutex_unlock(&preparer->lock);
    return !given_up;
}
