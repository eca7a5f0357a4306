/* server/reading/word_preparer.c: see word_preparer.h. */
#include "server/reading/word_preparer.h"

/* Takes what was asked for, held by p; NULL: it is to end. */
static struct snapshot *wait_for_snapshot(struct word_preparer *p) {
    pthread_mutex_lock(&p->lock);
    while (p->snapshot == NULL && !p->stopped) pthread_cond_wait(&p->asked, &p->lock);
    struct snapshot *s = p->stopped ? NULL : p->snapshot;
    pthread_mutex_unlock(&p->lock);
    return s;
}

static void *prepare_words(void *argument) {
    struct word_preparer *p = argument;
    for (struct snapshot *s = wait_for_snapshot(p); s; s = wait_for_snapshot(p)) {
        struct error e;
        enum status status = retriever_make_words(p->retriever, s, &e);
        if (status) log_warn("words of documents: %s", e.text);
        pthread_mutex_lock(&p->lock);
        if (status) p->given_up = s->version;
        p->snapshot = NULL;
        pthread_mutex_unlock(&p->lock);
        snapshot_release(s);
        bell_ring(p->bell);
    }
    return NULL;
}

enum status word_preparer_open(struct word_preparer *p, struct retriever *retriever, struct bell *bell,
                               struct error *e) {
    *p = (struct word_preparer){.retriever = retriever, .bell = bell, .given_up = -1};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->asked, NULL);
    p->running = pthread_create(&p->thread, NULL, prepare_words, p) == 0;
    return p->running ? STATUS_OK : error_set(e, STATUS_NO_MEMORY, "the thread of words could not be started");
}

void word_preparer_close(struct word_preparer *p) {
    pthread_mutex_lock(&p->lock);
    p->stopped = true;
    pthread_cond_signal(&p->asked);
    pthread_mutex_unlock(&p->lock);
    if (p->running) pthread_join(p->thread, NULL);
    snapshot_release(p->snapshot);
    pthread_cond_destroy(&p->asked);
    pthread_mutex_destroy(&p->lock);
}

static bool need_words(const struct retriever_query *queries, int n) {
    for (int i = 0; i < n; i++)
        if (queries[i].choice.way != RETRIEVE_NEAREST) return true;
    return false;
}

bool word_preparer_delays(struct word_preparer *p, const struct retriever_query *queries, int n, struct snapshot *s) {
    if (!need_words(queries, n) || retriever_has_words(p->retriever, s)) return false;
    pthread_mutex_lock(&p->lock);
    bool given_up = p->given_up == s->version;
    if (!given_up && p->snapshot == NULL) {
        p->snapshot = snapshot_hold(s);
        pthread_cond_signal(&p->asked);
    }
    pthread_mutex_unlock(&p->lock);
    return !given_up;
}
