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
    int refused;  /* status of a response that was sent past the library */
    double since; /* of the phase; of the window of head_timeout seconds in CONNECTION_BODY */
    uint64_t idle_bytes; /* that the kernel had received when the connection became idle */
    atomic_size_t body,
        window; /* bytes of the body, and how many there were when the window began */
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

/* Bytes that ever came. The library reads them at once, so nothing else tells whether a request has
 * begun. */
static uint64_t socket_received(int fd) {
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_bytes_received : 0;
}

/* Connections. Called with the lock. */

static bool phase_is_busy(enum connection_phase phase) {
    return phase == CONNECTION_BODY || phase == CONNECTION_ANSWER;
}

static void connection_set(struct connection *connection, enum connection_phase phase) {
    connection->list->n_busy += phase_is_busy(phase) - phase_is_busy(connection->phase);
    connection->phase = phase;
    connection->since = time_now();
    if (phase == CONNECTION_IDLE) connection->idle_bytes = socket_received(connection->fd);
    if (phase != CONNECTION_BODY) return;
    atomic_store(&connection->body, 0);
    atomic_store(&connection->window, 0);
}

/* Whether a request has begun on a connection that was idle. */
static void connection_look(struct connection *connection) {
    if (connection->why == CONNECTION_OPEN && connection->phase == CONNECTION_IDLE &&
        socket_received(connection->fd) > connection->idle_bytes)
        connection_set(connection, CONNECTION_HEAD);
}

/* The library's thread, which waits for the socket, sees its end. */
static void connection_end(struct connection *connection, enum connection_end why) {
    connection->why = why;
    connection->list->n_live--;
    connection->list->n_busy -= phase_is_busy(connection->phase);
    connection->phase = CONNECTION_IDLE;
    shutdown(connection->fd, SHUT_RDWR);
}

static void connection_refuse(struct connection *connection, enum connection_end why) {
    const struct connection_limits *limits = &connection->list->limits;
    struct failure failure = {0};
    struct buffer bytes = {0};
    if (why == CONNECTION_LATE)
        failure_set(
            &failure, 408, "request_timeout", NULL,
            "request line and headers did not come within %d seconds (option server.head_timeout)",
            limits->head_timeout);
    else
        failure_set(
            &failure, 408, "request_timeout", NULL,
            "less than %d bytes of the body came in a second, on average over %d seconds (options "
            "server.min_body_rate, server.head_timeout)",
            limits->min_body_rate, limits->head_timeout);
    refusal_write(&failure, NULL, &bytes);
    ssize_t sent = limits->encrypted
                       ? 0
                       : send(connection->fd, bytes.data, bytes.size, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)sent; /* a client that reads nothing is not waited for */
    failure_free(&failure);
    buffer_free(&bytes);
    connection_end(connection, why);
}

static void connection_sweep_body(struct connection *connection, double now) {
    const struct connection_limits *limits = &connection->list->limits;
    size_t body = atomic_load(&connection->body);
    if (limits->min_body_rate == 0 || now - connection->since < limits->head_timeout) return;
    double rate = (double)(body - atomic_load(&connection->window)) / (now - connection->since);
    if (rate < limits->min_body_rate) {
        connection_refuse(connection, CONNECTION_TOO_SLOW);
        return;
    }
    connection->since = now;
    atomic_store(&connection->window, body);
}

static void connection_sweep(struct connection *connection, double now) {
    const struct connection_limits *limits = &connection->list->limits;
    if (connection->why != CONNECTION_OPEN) return;
    connection_look(connection);
    if (connection->phase == CONNECTION_IDLE && now - connection->since >= limits->idle_timeout)
        connection_end(connection, CONNECTION_UNUSED);
    if (connection->phase == CONNECTION_HEAD && now - connection->since >= limits->head_timeout)
        connection_refuse(connection, CONNECTION_LATE);
    if (connection->phase == CONNECTION_BODY) connection_sweep_body(connection, now);
}

/* An idle connection goes before one that sends a head; of these the one that has been at it
 * longest. */
static bool connection_goes_before(const struct connection *connection,
                                   const struct connection *other) {
    if (other == NULL) return true;
    return connection->phase != other->phase ? connection->phase < other->phase
                                             : connection->since < other->since;
}

/* A request may be on its way to a connection that is young. */
static bool connection_may_go(struct connection *connection, double now) {
    connection_look(connection);
    return connection->why == CONNECTION_OPEN && !phase_is_busy(connection->phase) &&
           now - connection->since >= grace_seconds;
}

static void connections_make_room(struct connections *connections, double now) {
    while (connections->n_live > connections->limits.max) {
        struct connection *victim = NULL;
        for (struct connection *connection = connections->first; connection;
             connection = connection->next)
            if (connection_may_go(connection, now) && connection_goes_before(connection, victim))
                victim = connection;
        if (victim == NULL) return;
        connection_end(victim, CONNECTION_UNUSED);
    }
}

/* Connections of its client that came before, newest first in the list. */
static int connection_rank(const struct connection *connection) {
    int n = 0;
    for (const struct connection *older = connection->next; older; older = older->next)
        n += older->client == connection->client && older->why == CONNECTION_OPEN;
    return n;
}

static void connection_make_room(struct connection *connection, double now) {
    struct connection *victim = NULL;
    if (connection->list->limits.max_per_client == 0 ||
        connection_rank(connection) < connection->list->limits.max_per_client)
        return;
    for (struct connection *older = connection->next; older; older = older->next)
        if (older->client == connection->client && connection_may_go(older, now) &&
            connection_goes_before(older, victim))
            victim = older;
    if (victim) connection_end(victim, CONNECTION_UNUSED);
}

/* Closed sockets that are still read. Called with the lock. */

static void lingering_remove(struct connections *connections, int i) {
    close(connections->lingering[i].fd);
    connections->n_lingering--;
    connections->lingering[i] = connections->lingering[connections->n_lingering];
}

static void lingering_add(struct connections *connections, int fd) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0), oldest = 0;
    if (copy < 0) return;
    for (int i = 1; i < connections->n_lingering; i++)
        if (connections->lingering[i].until < connections->lingering[oldest].until) oldest = i;
    if (connections->n_lingering == CONNECTION_LINGERING) lingering_remove(connections, oldest);
    connections->lingering[connections->n_lingering] =
        (struct lingering){.fd = copy, .until = time_now() + linger_seconds};
    connections->n_lingering++;
}

/* False when the socket is done with. MSG_TRUNC: TCP drops the bytes without copying them. */
static bool lingering_read(struct lingering *lingering) {
    ssize_t n = recv(lingering->fd, NULL, READ_BYTES, MSG_TRUNC | MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    lingering->bytes += (size_t)n;
    return n > 0 && lingering->bytes < LINGER_BYTES;
}

/* The keeper. */

static void keeper_wake(struct connections *connections) {
    uint64_t one = 1;
    CHECK(write(connections->wake, &one, sizeof one) == sizeof one);
}

/* Waits until a closed socket has bytes, or for the next sweep. */
static void keeper_wait(struct connections *connections) {
    struct pollfd polled[1 + CONNECTION_LINGERING] = {{.fd = connections->wake, .events = POLLIN}};
    uint64_t woken;
    pthread_mutex_lock(&connections->lock);
    int n = connections->n_lingering;
    for (int i = 0; i < n; i++)
        polled[1 + i] = (struct pollfd){.fd = connections->lingering[i].fd, .events = POLLIN};
    pthread_mutex_unlock(&connections->lock);
    poll(polled, (nfds_t)n + 1, SWEEP_MS);
    ssize_t got = polled[0].revents ? read(connections->wake, &woken, sizeof woken) : 0;
    (void)got;
}

static void keeper_read(struct connections *connections, double now) {
    for (int i = connections->n_lingering - 1; i >= 0; i--)
        if (now >= connections->lingering[i].until || !lingering_read(&connections->lingering[i]))
            lingering_remove(connections, i);
}

static void *keeper_run(void *argument) {
    struct connections *connections = argument;
    double next_sweep = 0;
    for (;;) {
        keeper_wait(connections);
        pthread_mutex_lock(&connections->lock);
        double now = time_now();
        keeper_read(connections, now);
        if (now >= next_sweep) {
            for (struct connection *connection = connections->first; connection;
                 connection = connection->next)
                connection_sweep(connection, now);
            connections_make_room(connections, now);
            next_sweep = now + 1e-3 * SWEEP_MS;
        }
        bool stop = connections->stop;
        pthread_mutex_unlock(&connections->lock);
        if (stop) return NULL;
    }
}

enum status connections_open(struct connections **out, const struct connection_limits *limits,
                             struct error *e) {
    struct connections *connections = xcalloc(1, sizeof *connections);
    connections->limits = *limits;
    pthread_mutex_init(&connections->lock, NULL);
    connections->wake = eventfd(0, EFD_CLOEXEC);
    if (connections->wake >= 0)
        connections->running =
            pthread_create(&connections->keeper, NULL, keeper_run, connections) == 0;
    if (!connections->running) {
        enum status status = error_errno(e, "watching deadlines");
        connections_close(connections);
        return status;
    }
    *out = connections;
    return STATUS_OK;
}

void connections_close(struct connections *connections) {
    if (connections == NULL) return;
    if (connections->running) {
        pthread_mutex_lock(&connections->lock);
        connections->stop = true;
        pthread_mutex_unlock(&connections->lock);
        keeper_wake(connections);
        pthread_join(connections->keeper, NULL);
    }
    CHECK(connections->first == NULL);
    while (connections->n_lingering > 0)
        lingering_remove(connections, connections->n_lingering - 1);
    if (connections->wake >= 0) close(connections->wake);
    pthread_mutex_destroy(&connections->lock);
    free(connections);
}

int connections_count(struct connections *connections) {
    pthread_mutex_lock(&connections->lock);
    int n = connections->n_live;
    pthread_mutex_unlock(&connections->lock);
    return n;
}

/* The callbacks of the library's threads. */

struct connection *connection_open(struct connections *connections, int fd, uint64_t client) {
    struct connection *connection = xcalloc(1, sizeof *connection);
    connection->list = connections;
    connection->fd = fd;
    connection->client = client;
    pthread_mutex_lock(&connections->lock);
    connection->next = connections->first;
    if (connections->first) connections->first->previous = connection;
    connections->first = connection;
    connections->n_live++;
    connection->phase = CONNECTION_IDLE;
    connection->since = time_now();
    connection_make_room(connection, connection->since);
    connections_make_room(connections, connection->since);
    pthread_mutex_unlock(&connections->lock);
    return connection;
}

/* A socket that is closed with unread bytes resets the connection, and the client may lose the
 * answer. */
void connection_close(struct connection *connection) {
    struct connections *connections = connection->list;
    int unread = 0;
    pthread_mutex_lock(&connections->lock);
    if (connection->why == CONNECTION_OPEN) connections->n_live--;
    connections->n_busy -= phase_is_busy(connection->phase);
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        connections->first = connection->next;
    if (connection->next) connection->next->previous = connection->previous;
    bool linger =
        connection->linger || (ioctl(connection->fd, FIONREAD, &unread) == 0 && unread > 0);
    if (linger && connection->why == CONNECTION_OPEN) lingering_add(connections, connection->fd);
    pthread_mutex_unlock(&connections->lock);
    if (linger) keeper_wake(connections);
    free(connection);
}

bool connection_enter(struct connection *connection, enum connection_phase phase) {
    pthread_mutex_lock(&connection->list->lock);
    bool open = connection->why == CONNECTION_OPEN;
    if (open && connection->phase != phase) connection_set(connection, phase);
    pthread_mutex_unlock(&connection->list->lock);
    return open;
}

void connection_set_request(struct connection *connection, void *request) {
    connection->request = request;
}

void *connection_request(const struct connection *connection) { return connection->request; }

void connection_progress(struct connection *connection, size_t bytes) {
    atomic_fetch_add(&connection->body, bytes);
}

bool connection_in_reserve(const struct connection *connection) {
    pthread_mutex_lock(&connection->list->lock);
    bool in_reserve = connection->list->n_busy > connection->list->limits.max;
    pthread_mutex_unlock(&connection->list->lock);
    return in_reserve;
}

bool connection_over_share(const struct connection *connection) {
    int most = connection->list->limits.max_per_client;
    if (most == 0) return false;
    pthread_mutex_lock(&connection->list->lock);
    int rank = connection_rank(connection);
    pthread_mutex_unlock(&connection->list->lock);
    return rank >= most;
}

void connection_linger(struct connection *connection) {
    pthread_mutex_lock(&connection->list->lock);
    connection->linger = true;
    pthread_mutex_unlock(&connection->list->lock);
}

enum connection_end connection_why(const struct connection *connection) {
    pthread_mutex_lock(&connection->list->lock);
    enum connection_end why = connection->why;
    pthread_mutex_unlock(&connection->list->lock);
    return why;
}

void connection_refused(struct connection *connection, int status) { connection->refused = status; }

int connection_refused_with(const struct connection *connection) { return connection->refused; }

void connection_reply(struct connection *connection, const char *bytes, size_t size) {
    ssize_t sent = send(connection->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)sent; /* a client that reads nothing is not waited for */
}
