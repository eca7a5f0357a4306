/* server/http/connection.c: deadlines, slots and last words of connections. See connection.h. */
#include "server/http/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http/refusal.h"

enum {
    SWEEP_MS = 200,
    LINGER_BYTES = 128 << 20, /* of what a client still sends; then its socket is closed anyway */
    READ_BYTES = 1 << 20
};
static const double linger_seconds = 5, grace_seconds = 1;

struct connection {
    struct connections *list;
    struct connection *previous, *next;
    int fd;
    uint64_t client;
    void *request;
    enum connection_phase phase;
    enum connection_end why;
    bool linger;
    int refused;                /* status of a response that was sent past the library */
    double since;               /* of the phase; of the window of head_timeout seconds in CONNECTION_BODY */
    uint64_t idle_bytes;        /* that the kernel had received when the connection became idle */
    atomic_size_t body, window; /* bytes of the body, and how many there were when the window began */
};

struct lingering {
    int fd;
    double until;
    size_t bytes;
};

struct connections {
    struct connection_limits limits;
    pthread_mutex_t lock;
    struct connection *first;
    int n_live, n_busy; /* not closed by the keeper; with a request in work */
    struct lingering lingering[CONNECTION_LINGERING];
    int n_lingering;
    pthread_t keeper;
    int wake; /* eventfd; -1: none */
    bool running, stop;
};

/* Bytes that ever came. The library reads them at once, so nothing else tells whether a request has begun. */
static uint64_t socket_received(int fd) {
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_bytes_received : 0;
}

/* Connections. Called with the lock. */

static bool phase_is_busy(enum connection_phase phase) {
    return phase == CONNECTION_BODY || phase == CONNECTION_ANSWER;
}

static void connection_set(struct connection *c, enum connection_phase phase) {
    c->list->n_busy += phase_is_busy(phase) - phase_is_busy(c->phase);
    c->phase = phase;
    c->since = time_now();
    if (phase == CONNECTION_IDLE) c->idle_bytes = socket_received(c->fd);
    if (phase != CONNECTION_BODY) return;
    atomic_store(&c->body, 0);
    atomic_store(&c->window, 0);
}

/* Whether a request has begun on a connection that was idle. */
static void connection_look(struct connection *c) {
    if (c->why == CONNECTION_OPEN && c->phase == CONNECTION_IDLE && socket_received(c->fd) > c->idle_bytes)
        connection_set(c, CONNECTION_HEAD);
}

/* The library's thread, which waits for the socket, sees its end. */
static void connection_end(struct connection *c, enum connection_end why) {
    c->why = why;
    c->list->n_live--;
    c->list->n_busy -= phase_is_busy(c->phase);
    c->phase = CONNECTION_IDLE;
    shutdown(c->fd, SHUT_RDWR);
}

static void connection_refuse(struct connection *c, enum connection_end why) {
    const struct connection_limits *l = &c->list->limits;
    struct failure f = {0};
    struct buffer bytes = {0};
    if (why == CONNECTION_LATE)
        failure_set(&f, 408, "request_timeout", NULL,
                    "request line and headers did not come within %d seconds (option server.head_timeout)",
                    l->head_timeout);
    else
        failure_set(&f, 408, "request_timeout", NULL,
                    "less than %d bytes of the body came in a second, on average over %d seconds (options "
                    "server.min_body_rate, server.head_timeout)",
                    l->min_body_rate, l->head_timeout);
    refusal_write(&f, NULL, &bytes);
    ssize_t sent = l->encrypted ? 0 : send(c->fd, bytes.data, bytes.size, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)sent; /* a client that reads nothing is not waited for */
    failure_free(&f);
    buffer_free(&bytes);
    connection_end(c, why);
}

static void connection_sweep_body(struct connection *c, double now) {
    const struct connection_limits *l = &c->list->limits;
    size_t body = atomic_load(&c->body);
    if (l->min_body_rate == 0 || now - c->since < l->head_timeout) return;
    double rate = (double)(body - atomic_load(&c->window)) / (now - c->since);
    if (rate < l->min_body_rate) {
        connection_refuse(c, CONNECTION_TOO_SLOW);
        return;
    }
    c->since = now;
    atomic_store(&c->window, body);
}

static void connection_sweep(struct connection *c, double now) {
    const struct connection_limits *l = &c->list->limits;
    if (c->why != CONNECTION_OPEN) return;
    connection_look(c);
    if (c->phase == CONNECTION_IDLE && now - c->since >= l->idle_timeout) connection_end(c, CONNECTION_UNUSED);
    if (c->phase == CONNECTION_HEAD && now - c->since >= l->head_timeout) connection_refuse(c, CONNECTION_LATE);
    if (c->phase == CONNECTION_BODY) connection_sweep_body(c, now);
}

/* An idle connection goes before one that sends a head; of these the one that has been at it longest. */
static bool connection_goes_before(const struct connection *c, const struct connection *other) {
    if (other == NULL) return true;
    return c->phase != other->phase ? c->phase < other->phase : c->since < other->since;
}

/* A request may be on its way to a connection that is young. */
static bool connection_may_go(struct connection *c, double now) {
    connection_look(c);
    return c->why == CONNECTION_OPEN && !phase_is_busy(c->phase) && now - c->since >= grace_seconds;
}

static void connections_make_room(struct connections *s, double now) {
    while (s->n_live > s->limits.max) {
        struct connection *victim = NULL;
        for (struct connection *c = s->first; c; c = c->next)
            if (connection_may_go(c, now) && connection_goes_before(c, victim)) victim = c;
        if (victim == NULL) return;
        connection_end(victim, CONNECTION_UNUSED);
    }
}

/* Connections of its client that came before, newest first in the list. */
static int connection_rank(const struct connection *c) {
    int n = 0;
    for (const struct connection *older = c->next; older; older = older->next)
        n += older->client == c->client && older->why == CONNECTION_OPEN;
    return n;
}

static void connection_make_room(struct connection *c, double now) {
    struct connection *victim = NULL;
    if (c->list->limits.max_per_client == 0 || connection_rank(c) < c->list->limits.max_per_client) return;
    for (struct connection *older = c->next; older; older = older->next)
        if (older->client == c->client && connection_may_go(older, now) && connection_goes_before(older, victim))
            victim = older;
    if (victim) connection_end(victim, CONNECTION_UNUSED);
}

/* Closed sockets that are still read. Called with the lock. */

static void lingering_remove(struct connections *s, int i) {
    close(s->lingering[i].fd);
    s->n_lingering--;
    s->lingering[i] = s->lingering[s->n_lingering];
}

static void lingering_add(struct connections *s, int fd) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0), oldest = 0;
    if (copy < 0) return;
    for (int i = 1; i < s->n_lingering; i++)
        if (s->lingering[i].until < s->lingering[oldest].until) oldest = i;
    if (s->n_lingering == CONNECTION_LINGERING) lingering_remove(s, oldest);
    s->lingering[s->n_lingering] = (struct lingering){.fd = copy, .until = time_now() + linger_seconds};
    s->n_lingering++;
}

/* False when the socket is done with. MSG_TRUNC: TCP drops the bytes without copying them. */
static bool lingering_read(struct lingering *g) {
    ssize_t n = recv(g->fd, NULL, READ_BYTES, MSG_TRUNC | MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    g->bytes += (size_t)n;
    return n > 0 && g->bytes < LINGER_BYTES;
}

/* The keeper. */

static void keeper_wake(struct connections *s) {
    uint64_t one = 1;
    CHECK(write(s->wake, &one, sizeof one) == sizeof one);
}

/* Waits until a closed socket has bytes, or for the next sweep. */
static void keeper_wait(struct connections *s) {
    struct pollfd polled[1 + CONNECTION_LINGERING] = {{.fd = s->wake, .events = POLLIN}};
    uint64_t woken;
    pthread_mutex_lock(&s->lock);
    int n = s->n_lingering;
    for (int i = 0; i < n; i++) polled[1 + i] = (struct pollfd){.fd = s->lingering[i].fd, .events = POLLIN};
    pthread_mutex_unlock(&s->lock);
    poll(polled, (nfds_t)n + 1, SWEEP_MS);
    ssize_t got = polled[0].revents ? read(s->wake, &woken, sizeof woken) : 0;
    (void)got;
}

static void keeper_read(struct connections *s, double now) {
    for (int i = s->n_lingering - 1; i >= 0; i--)
        if (now >= s->lingering[i].until || !lingering_read(&s->lingering[i])) lingering_remove(s, i);
}

static void *keeper_run(void *argument) {
    struct connections *s = argument;
    double next_sweep = 0;
    for (;;) {
        keeper_wait(s);
        pthread_mutex_lock(&s->lock);
        double now = time_now();
        keeper_read(s, now);
        if (now >= next_sweep) {
            for (struct connection *c = s->first; c; c = c->next) connection_sweep(c, now);
            connections_make_room(s, now);
            next_sweep = now + 1e-3 * SWEEP_MS;
        }
        bool stop = s->stop;
        pthread_mutex_unlock(&s->lock);
        if (stop) return NULL;
    }
}

enum status connections_open(struct connections **out, const struct connection_limits *limits, struct error *e) {
    struct connections *s = xcalloc(1, sizeof *s);
    s->limits = *limits;
    pthread_mutex_init(&s->lock, NULL);
    s->wake = eventfd(0, EFD_CLOEXEC);
    if (s->wake >= 0) s->running = pthread_create(&s->keeper, NULL, keeper_run, s) == 0;
    if (!s->running) {
        enum status status = error_errno(e, "watching deadlines");
        connections_close(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

void connections_close(struct connections *s) {
    if (s == NULL) return;
    if (s->running) {
        pthread_mutex_lock(&s->lock);
        s->stop = true;
        pthread_mutex_unlock(&s->lock);
        keeper_wake(s);
        pthread_join(s->keeper, NULL);
    }
    CHECK(s->first == NULL);
    while (s->n_lingering > 0) lingering_remove(s, s->n_lingering - 1);
    if (s->wake >= 0) close(s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

int connections_count(struct connections *s) {
    pthread_mutex_lock(&s->lock);
    int n = s->n_live;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* The callbacks of the library's threads. */

struct connection *connection_open(struct connections *s, int fd, uint64_t client) {
    struct connection *c = xcalloc(1, sizeof *c);
    c->list = s;
    c->fd = fd;
    c->client = client;
    pthread_mutex_lock(&s->lock);
    c->next = s->first;
    if (s->first) s->first->previous = c;
    s->first = c;
    s->n_live++;
    c->phase = CONNECTION_IDLE;
    c->since = time_now();
    connection_make_room(c, c->since);
    connections_make_room(s, c->since);
    pthread_mutex_unlock(&s->lock);
    return c;
}

/* A socket that is closed with unread bytes resets the connection, and the client may lose the answer. */
void connection_close(struct connection *c) {
    struct connections *s = c->list;
    int unread = 0;
    pthread_mutex_lock(&s->lock);
    if (c->why == CONNECTION_OPEN) s->n_live--;
    s->n_busy -= phase_is_busy(c->phase);
    if (c->previous)
        c->previous->next = c->next;
    else
        s->first = c->next;
    if (c->next) c->next->previous = c->previous;
    bool linger = c->linger || (ioctl(c->fd, FIONREAD, &unread) == 0 && unread > 0);
    if (linger && c->why == CONNECTION_OPEN) lingering_add(s, c->fd);
    pthread_mutex_unlock(&s->lock);
    if (linger) keeper_wake(s);
    free(c);
}

bool connection_enter(struct connection *c, enum connection_phase phase) {
    pthread_mutex_lock(&c->list->lock);
    bool open = c->why == CONNECTION_OPEN;
    if (open && c->phase != phase) connection_set(c, phase);
    pthread_mutex_unlock(&c->list->lock);
    return open;
}

void connection_set_request(struct connection *c, void *request) { c->request = request; }

void *connection_request(const struct connection *c) { return c->request; }

void connection_progress(struct connection *c, size_t bytes) { atomic_fetch_add(&c->body, bytes); }

bool connection_in_reserve(const struct connection *c) {
    pthread_mutex_lock(&c->list->lock);
    bool in_reserve = c->list->n_busy > c->list->limits.max;
    pthread_mutex_unlock(&c->list->lock);
    return in_reserve;
}

bool connection_over_share(const struct connection *c) {
    int most = c->list->limits.max_per_client;
    if (most == 0) return false;
    pthread_mutex_lock(&c->list->lock);
    int rank = connection_rank(c);
    pthread_mutex_unlock(&c->list->lock);
    return rank >= most;
}

void connection_linger(struct connection *c) {
    pthread_mutex_lock(&c->list->lock);
    c->linger = true;
    pthread_mutex_unlock(&c->list->lock);
}

enum connection_end connection_why(const struct connection *c) {
    pthread_mutex_lock(&c->list->lock);
    enum connection_end why = c->why;
    pthread_mutex_unlock(&c->list->lock);
    return why;
}

void connection_refused(struct connection *c, int status) { c->refused = status; }

int connection_refused_with(const struct connection *c) { return c->refused; }

void connection_reply(struct connection *c, const char *bytes, size_t size) {
    ssize_t sent = send(c->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)sent; /* a client that reads nothing is not waited for */
}
