/* kernels/comm/comm_sockets.c: ranks that are processes joined by TCP connections, which met at an
 * address (comm_rendezvous.h): where there is no launcher. They watch each other (comm_watch.h).
 * See comm_pairs.h. */
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

/* SLEEP_MS is the longest wait for something to move, so that time limits are looked at. GRACE_S is
 * the time that the reason may take to come when a connection has ended already. */
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

static struct sockets *sockets_of(struct transport *transport) {
    return (struct sockets *)transport;
}

static void queue_post(struct post_queue *queue, const void *data, size_t bytes) {
    CHECK(queue->n < TRANSPORT_POSTS);
    queue->posts[queue->n].at = (char *)(uintptr_t)data; /* nothing writes to bytes that go out */
    queue->posts[queue->n].left = bytes;
    queue->n++;
}

static void sockets_send(struct transport *transport, int to, const void *data, size_t bytes) {
    queue_post(&sockets_of(transport)->peers[to].out, data, bytes);
}

static void sockets_receive(struct transport *transport, int from, void *data, size_t bytes) {
    queue_post(&sockets_of(transport)->peers[from].in, data, bytes);
}

/* The reason that the watch knows, or what was seen here. */
static void connection_lost(struct transport *transport, int rank, const char *seen) {
    struct error why;
    if (watch_outcome(sockets_of(transport)->watch, GRACE_S, &why))
        transport->failure = why;
    else
        transport_fail(transport, "lost %s, which has ended or cannot be reached: %s",
                       transport->names[rank], seen);
}

/* n is the result of send or recv. True when it is worth to go on at once. */
static bool queue_take_moved(struct transport *transport, struct post_queue *queue, int rank,
                             ssize_t n) {
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
        connection_lost(transport, rank, n < 0 ? strerror(errno) : "its connection is closed");
        return false;
    }
    queue->posts[0].at += n;
    queue->posts[0].left -= (size_t)n;
    if (queue->posts[0].left == 0) {
        memmove(&queue->posts[0], &queue->posts[1], sizeof queue->posts - sizeof queue->posts[0]);
        queue->n--;
    }
    return true;
}

static bool sockets_look(struct transport *transport) {
    struct sockets *sockets = sockets_of(transport);
    bool done = true;
    for (int r = 0; r < transport->size && transport->failure.status == STATUS_OK; r++) {
        struct post_queue *out = &sockets->peers[r].out, *in = &sockets->peers[r].in;
        while (out->n && queue_take_moved(transport, out, r,
                                          send(sockets->fds[r], out->posts[0].at,
                                               out->posts[0].left, MSG_NOSIGNAL)))
            continue;
        while (in->n &&
               queue_take_moved(transport, in, r,
                                recv(sockets->fds[r], in->posts[0].at, in->posts[0].left, 0)))
            continue;
        done = done && out->n == 0 && in->n == 0;
    }
    if (!done && transport->failure.status == STATUS_OK && watch_failed(sockets->watch))
        watch_outcome(sockets->watch, 0, &transport->failure);
    if (done) watch_wait(sockets->watch, WATCH_NOBODY);
    return done;
}

static int first_pending(const struct transport *transport) {
    const struct sockets *sockets = (const struct sockets *)transport;
    for (int r = 0; r < transport->size; r++)
        if (sockets->peers[r].in.n || sockets->peers[r].out.n) return r;
    return -1;
}

static void sockets_sleep(struct transport *transport) {
    struct sockets *sockets = sockets_of(transport);
    struct pollfd polled[COMM_MAX_RANKS];
    for (int r = 0; r < transport->size; r++) {
        int events =
            (sockets->peers[r].in.n ? POLLIN : 0) | (sockets->peers[r].out.n ? POLLOUT : 0);
        polled[r] = (struct pollfd){.fd = events ? sockets->fds[r] : -1, .events = (short)events};
    }
    watch_wait(sockets->watch, first_pending(transport));
    poll(polled, (nfds_t)transport->size, SLEEP_MS);
}

static int sockets_waits_for(struct transport *transport) {
    int whom = first_pending(transport);
    return whom < 0 ? whom : watch_culprit(sockets_of(transport)->watch, whom);
}

static void sockets_failed(struct transport *transport) {
    watch_fail(sockets_of(transport)->watch, &transport->failure);
}

static enum status sockets_check(const struct transport *transport, struct error *e) {
    return watch_check(((const struct sockets *)transport)->watch, e);
}

static void sockets_close(struct transport *transport) {
    struct sockets *sockets = sockets_of(transport);
    watch_close(sockets->watch);
    for (int r = 0; r < transport->size; r++)
        if (sockets->fds[r] >= 0) close(sockets->fds[r]);
    free(sockets);
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

static enum status sockets_join(struct sockets *sockets, const struct comm_options *options,
                                struct error *e) {
    struct transport *transport = &sockets->base;
    struct rank_links *links = xcalloc(1, sizeof *links);
    if (comm_rendezvous(links, options, e)) {
        free(links);
        return e->status;
    }
    for (int r = 0; r < transport->size; r++) {
        char machine[sizeof transport->machine];
        machine_print(machine, sizeof machine, &links->seats[r]);
        transport_name(transport, r, machine);
    }
    machine_print(transport->machine, sizeof transport->machine, &links->seats[options->rank]);
    memcpy(sockets->fds, links->sockets[CHANNEL_DATA], sizeof sockets->fds);
    const struct watched_ranks watched = {.rank = transport->rank,
                                          .size = transport->size,
                                          .sockets = links->sockets[CHANNEL_WATCH],
                                          .names = (const char(*)[RANK_NAME])transport->names,
                                          .timeout = options->timeout};
    enum status status = watch_open(&sockets->watch, &watched, e);
    for (int r = 0; r < transport->size && status; r++) tcp_close(&sockets->fds[r]);
    free(links);
    return status;
}

enum status comm_open_sockets(struct comm **out, const struct comm_options *options,
                              struct error *e) {
    struct sockets *sockets = xcalloc(1, sizeof *sockets);
    sockets->base = (struct transport){
        .ops = &sockets_ops, .rank = options->rank, .size = options->size * options->stages};
    if (sockets_join(sockets, options, e)) {
        free(sockets);
        return e->status;
    }
    return comm_open_pairs(out, &sockets->base, options, e);
}
