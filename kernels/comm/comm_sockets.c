/* kernels/comm/comm_sockets.c: ranks that are processes joined by a TCP connection each, which met at a file: where
 * there is no launcher. The end of a rank is the end of its connections, which the others see at once. See
 * comm_pairs.h. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/comm/comm_pairs.h"
#include "kernels/comm/comm_rendezvous.h"

/* SLEEP_MS is the longest wait for something to move, so that time limits are looked at. GRACE_S is the time that the
 * others may take to say that all is over when one rank has gone already. */
enum { SLEEP_MS = 100, GRACE_S = 1 };

/* Bytes that are to go or to come, the first of them next. */
struct post_queue {
    struct {
        char *at;
        size_t left;
    } posts[TRANSPORT_POSTS];
    int n;
};

struct peer {
    struct post_queue out, in;
    double gone; /* when its connection was seen to have ended, while nothing was expected of it; 0: it has not */
};

struct sockets {
    struct transport base;
    int fds[COMM_MAX_RANKS]; /* -1: this rank itself */
    struct peer peers[COMM_MAX_RANKS];
};

static struct sockets *sockets_of(struct transport *t) { return (struct sockets *)t; }

static void queue_post(struct post_queue *q, const void *data, size_t bytes) {
    CHECK(q->n < TRANSPORT_POSTS);
    q->posts[q->n].at = (char *)(uintptr_t)data; /* nothing writes to bytes that go out */
    q->posts[q->n].left = bytes;
    q->n++;
}

static void sockets_send(struct transport *t, int to, const void *data, size_t bytes) {
    queue_post(&sockets_of(t)->peers[to].out, data, bytes);
}

static void sockets_receive(struct transport *t, int from, void *data, size_t bytes) {
    queue_post(&sockets_of(t)->peers[from].in, data, bytes);
}

/* n is the result of send or recv. True when it is worth to go on at once. */
static bool queue_take_moved(struct transport *t, struct post_queue *q, int rank, ssize_t n) {
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
        transport_fail(t, "lost rank %d, which has ended or cannot be reached: %s", rank,
                       n < 0 ? strerror(errno) : "its connection is closed");
        return false;
    }
    q->posts[0].at += n;
    q->posts[0].left -= (size_t)n;
    if (q->posts[0].left == 0) {
        memmove(&q->posts[0], &q->posts[1], sizeof q->posts - sizeof q->posts[0]);
        q->n--;
    }
    return true;
}

static bool sockets_look(struct transport *t) {
    struct sockets *s = sockets_of(t);
    bool done = true;
    for (int r = 0; r < t->size; r++) {
        struct post_queue *out = &s->peers[r].out, *in = &s->peers[r].in;
        while (out->n &&
               queue_take_moved(t, out, r, send(s->fds[r], out->posts[0].at, out->posts[0].left, MSG_NOSIGNAL)))
            continue;
        while (in->n && queue_take_moved(t, in, r, recv(s->fds[r], in->posts[0].at, in->posts[0].left, 0))) continue;
        done = done && out->n == 0 && in->n == 0;
    }
    return done;
}

/* A rank that has gone while nothing is expected of it may have been let go a moment before this one is. */
static void peer_notice_gone(struct transport *t, int r, bool ended) {
    struct peer *peer = &sockets_of(t)->peers[r];
    double now = time_now();
    if (ended && peer->gone == 0) peer->gone = now;
    if (peer->gone > 0 && now - peer->gone > GRACE_S)
        transport_fail(t, "lost rank %d, which has ended or cannot be reached", r);
}

static void sockets_sleep(struct transport *t) {
    struct sockets *s = sockets_of(t);
    struct pollfd polled[COMM_MAX_RANKS];
    for (int r = 0; r < t->size; r++) {
        const struct peer *peer = &s->peers[r];
        int events = POLLRDHUP | (peer->in.n ? POLLIN : 0) | (peer->out.n ? POLLOUT : 0);
        polled[r] = (struct pollfd){.fd = peer->gone > 0 ? -1 : s->fds[r], .events = (short)events};
    }
    poll(polled, (nfds_t)t->size, SLEEP_MS);
    for (int r = 0; r < t->size; r++)
        peer_notice_gone(t, r, s->peers[r].in.n == 0 && (polled[r].revents & (POLLRDHUP | POLLHUP | POLLERR)));
}

/* Reads nothing but the sockets' numbers, which never change. */
static enum status sockets_check(const struct transport *t, struct error *e) {
    const struct sockets *s = (const struct sockets *)t;
    struct pollfd polled[COMM_MAX_RANKS];
    for (int r = 0; r < t->size; r++) polled[r] = (struct pollfd){.fd = s->fds[r], .events = POLLRDHUP};
    poll(polled, (nfds_t)t->size, 0);
    for (int r = 0; r < t->size; r++)
        if (polled[r].revents)
            return error_set(e, STATUS_DEVICE, "rank %d of %d lost rank %d, which has ended or cannot be reached",
                             t->rank, t->size, r);
    return STATUS_OK;
}

static void sockets_close(struct transport *t) {
    struct sockets *s = sockets_of(t);
    for (int r = 0; r < t->size; r++)
        if (s->fds[r] >= 0) close(s->fds[r]);
    free(s);
}

static const struct transport_ops sockets_ops = {
    .name = "sockets",
    .send = sockets_send,
    .receive = sockets_receive,
    .look = sockets_look,
    .sleep = sockets_sleep,
    .check = sockets_check,
    .close = sockets_close,
};

enum status comm_open_sockets(struct comm **out, const struct comm_options *o, struct error *e) {
    struct sockets *s = xcalloc(1, sizeof *s);
    s->base = (struct transport){.ops = &sockets_ops, .rank = o->rank, .size = o->size * o->stages};
    snprintf(s->base.machine, sizeof s->base.machine, "%s", o->host);
    if (comm_rendezvous(s->fds, o, e)) {
        free(s);
        return e->status;
    }
    return comm_open_pairs(out, &s->base, o, e);
}
