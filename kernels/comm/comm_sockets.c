/* kernels/comm/comm_sockets.c: ranks that are processes joined by TCP connections, which met at an address
 * (comm_rendezvous.h): where there is no launcher. They watch each other (comm_watch.h). See comm_pairs.h. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/comm/comm_pairs.h"
#include "kernels/comm/comm_rendezvous.h"
#include "kernels/comm/comm_tcp.h"

/* SLEEP_MS is the longest wait for something to move, so that time limits are looked at. GRACE_S is the time that the
 * reason may take to come when a connection has ended already. */
enum { SLEEP_MS = 100, GRACE_S = 2 };

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
};

struct sockets {
    struct transport base;
    int fds[COMM_MAX_RANKS]; /* -1: this rank itself */
    struct peer peers[COMM_MAX_RANKS];
    struct rank_watch *watch;
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

/* The reason that the watch knows, or what was seen here. */
static void connection_lost(struct transport *t, int rank, const char *seen) {
    struct error why;
    if (watch_outcome(sockets_of(t)->watch, GRACE_S, &why))
        t->failure = why;
    else
        transport_fail(t, "lost %s, which has ended or cannot be reached: %s", t->names[rank], seen);
}

/* n is the result of send or recv. True when it is worth to go on at once. */
static bool queue_take_moved(struct transport *t, struct post_queue *q, int rank, ssize_t n) {
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
        connection_lost(t, rank, n < 0 ? strerror(errno) : "its connection is closed");
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
    for (int r = 0; r < t->size && t->failure.status == STATUS_OK; r++) {
        struct post_queue *out = &s->peers[r].out, *in = &s->peers[r].in;
        while (out->n &&
               queue_take_moved(t, out, r, send(s->fds[r], out->posts[0].at, out->posts[0].left, MSG_NOSIGNAL)))
            continue;
        while (in->n && queue_take_moved(t, in, r, recv(s->fds[r], in->posts[0].at, in->posts[0].left, 0))) continue;
        done = done && out->n == 0 && in->n == 0;
    }
    if (!done && t->failure.status == STATUS_OK && watch_failed(s->watch)) watch_outcome(s->watch, 0, &t->failure);
    if (done) watch_wait(s->watch, WATCH_NOBODY);
    return done;
}

static int first_pending(const struct transport *t) {
    const struct sockets *s = (const struct sockets *)t;
    for (int r = 0; r < t->size; r++)
        if (s->peers[r].in.n || s->peers[r].out.n) return r;
    return -1;
}

static void sockets_sleep(struct transport *t) {
    struct sockets *s = sockets_of(t);
    struct pollfd polled[COMM_MAX_RANKS];
    for (int r = 0; r < t->size; r++) {
        int events = (s->peers[r].in.n ? POLLIN : 0) | (s->peers[r].out.n ? POLLOUT : 0);
        polled[r] = (struct pollfd){.fd = events ? s->fds[r] : -1, .events = (short)events};
    }
    watch_wait(s->watch, first_pending(t));
    poll(polled, (nfds_t)t->size, SLEEP_MS);
}

static int sockets_waits_for(struct transport *t) {
    int whom = first_pending(t);
    return whom < 0 ? whom : watch_culprit(sockets_of(t)->watch, whom);
}

static void sockets_failed(struct transport *t) { watch_fail(sockets_of(t)->watch, &t->failure); }

static enum status sockets_check(const struct transport *t, struct error *e) {
    return watch_check(((const struct sockets *)t)->watch, e);
}

static void sockets_close(struct transport *t) {
    struct sockets *s = sockets_of(t);
    watch_close(s->watch);
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
    .waits_for = sockets_waits_for,
    .failed = sockets_failed,
    .check = sockets_check,
    .close = sockets_close,
};

static void machine_print(char *text, size_t size, const struct seat *seat) {
    snprintf(text, size, "%s (%s)", seat->machine, seat->address);
}

static enum status sockets_join(struct sockets *s, const struct comm_options *o, struct error *e) {
    struct transport *t = &s->base;
    struct rank_links *links = xcalloc(1, sizeof *links);
    if (comm_rendezvous(links, o, e)) {
        free(links);
        return e->status;
    }
    for (int r = 0; r < t->size; r++) {
        char machine[sizeof t->machine];
        machine_print(machine, sizeof machine, &links->seats[r]);
        transport_name(t, r, machine);
    }
    machine_print(t->machine, sizeof t->machine, &links->seats[o->rank]);
    memcpy(s->fds, links->sockets[CHANNEL_DATA], sizeof s->fds);
    const struct watched_ranks watched = {.rank = t->rank,
                                          .size = t->size,
                                          .sockets = links->sockets[CHANNEL_WATCH],
                                          .names = (const char(*)[RANK_NAME])t->names,
                                          .timeout = o->timeout};
    enum status status = watch_open(&s->watch, &watched, e);
    for (int r = 0; r < t->size && status; r++) tcp_close(&s->fds[r]);
    free(links);
    return status;
}

enum status comm_open_sockets(struct comm **out, const struct comm_options *o, struct error *e) {
    struct sockets *s = xcalloc(1, sizeof *s);
    s->base = (struct transport){.ops = &sockets_ops, .rank = o->rank, .size = o->size * o->stages};
    if (sockets_join(s, o, e)) {
        free(s);
        return e->status;
    }
    return comm_open_pairs(out, &s->base, o, e);
}
