/* server/reading/word_preparer.h: a thread that makes the words of a snapshot, which takes long
 * where there are many chunks, while the retrieval thread searches for those who need none. */
#pragma once

#include "retrieval/retriever.h"
#include "server/threads/queue.h"

struct word_preparer {
    struct retriever *retriever;
    struct bell *bell; /* of whoever waits */
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t asked;
    struct snapshot *snapshot; /* held: whose words are made; NULL: none */
    int64_t given_up; /* the version of a snapshot whose words could not be made; -1: none */
    bool stopped;
};
/* Both are borrowed. *preparer is closed on failure too. */
enum status word_preparer_open(struct word_preparer *preparer, struct retriever *retriever,
                               struct bell *bell, struct error *e);
void word_preparer_close(struct word_preparer *preparer);
/* Whether the lookup of these queries had better wait, as their words are not made yet. They are
 * made from now on, or those of another snapshot; the bell rings when these are. */
bool word_preparer_delays(struct word_preparer *preparer, const struct retriever_query *queries,
                          int n, struct snapshot *snapshot);
