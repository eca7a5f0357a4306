/* server/api/core/shared_answer.h: answers that wait for the work of another thread, which may
 * still be at it when the client leaves: both sides hold a reference. */
#pragma once

#include "server/api/core/answer.h"
#include "server/pictures/picture_thread.h"

struct shared_answer {
    struct answer base;                         /* first */
    void (*free)(struct shared_answer *answer); /* the door's struct, which nobody holds any more */
    atomic_bool cancelled;                      /* nobody waits any more */
    atomic_int references;
    pthread_mutex_t lock; /* guards the next three */
    bool done;
    struct waker waker;
    struct picture_job *reading; /* a reference: pictures that the work begins with; NULL: none */
};

/* A zeroed answer of JSON gets one reference, its asker's. */
void shared_answer_init(struct shared_answer *shared_answer, const struct answer_ops *ops,
                        struct waker waker, void (*free)(struct shared_answer *shared_answer));
/* Before the work is handed out: it is not done, and the thread has a reference. */
void shared_answer_begin(struct shared_answer *answer);
/* The work was refused: the thread's reference comes back. */
void shared_answer_release(struct shared_answer *answer);
/* On the thread: there is something to tell of the work. */
void shared_answer_wake(struct shared_answer *answer);
/* On the thread: the work is done. Wakes the asker and gives the reference back. */
void shared_answer_finish(struct shared_answer *answer);
bool shared_answer_is_done(struct shared_answer *answer);
/* Takes a job of pictures in the place of the one before. */
void shared_answer_read(struct shared_answer *answer, struct picture_job *job);
/* Of struct answer_ops. */
void shared_answer_cancel(struct answer *base);
void shared_answer_close(struct answer *base);
