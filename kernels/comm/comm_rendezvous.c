/* kernels/comm/comm_rendezvous.c: the meeting of ranks at a file. See comm_rendezvous.h.
 *
 * Every rank listens. Rank k reads the file, connects to rank 0 and says who it is and where it listens. When all have
 * come, rank 0 sends everyone the list, and each rank connects to those between 0 and itself. */
#include "kernels/comm/comm_rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SECRET = 16,
    POLL_MS = 50,    /* between two looks at the file */
    GREETING_S = 5,  /* that a connection may take to say what it is */
    FILE_LIMIT = 512 /* bytes */
};

static const char heading[] = "retro-server ranks 1";

struct address {
    char host[200];
    char port[8];
};

/* The contents of the file. */
struct invitation {
    struct address leader;
    unsigned char asked[SECRET], answered[SECRET]; /* shown by who connects, and by who answers */
};

/* The first message over a new connection. Ranks are one program on one kind of machine, so structs go as they are. */
struct greeting {
    char heading[24];
    unsigned char secret[SECRET];
    int32_t rank, size, stages;
    struct address address;
};

struct list {
    struct error error; /* of the meeting */
    struct address ranks[COMM_MAX_RANKS];
};

struct meeting {
    const struct comm_options *o;
    int size, listener;
    double deadline;
    struct address self;
    struct invitation invitation;
    int *sockets;
    struct list list;
};

/* Sockets. */

static int socket_set_up(int fd) {
    int yes = 1, idle = 30, interval = 10, count = 3;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    /* A machine that is switched off ends no connection: after a minute of silence this does. */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    return fd;
}

/* True when fd is ready for `events` before the deadline. */
static bool socket_wait(int fd, short events, double deadline) {
    struct pollfd polled = {.fd = fd, .events = events};
    for (;;) {
        double left = deadline - time_now();
        int ready = poll(&polled, 1, left > 0 ? (int)(1e3 * left) + 1 : 0);
        if (ready != 0 && !(ready < 0 && errno == EINTR)) return ready > 0;
        if (left <= 0) return false;
    }
}

/* All bytes, before the deadline; false, too, when the other side ends the connection. */
static bool socket_write_all(int fd, const void *data, size_t bytes, double deadline) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t n = socket_wait(fd, POLLOUT, deadline) ? send(fd, at, bytes, MSG_NOSIGNAL) : -1;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool socket_read_all(int fd, void *data, size_t bytes, double deadline) {
    char *at = data;
    while (bytes > 0) {
        ssize_t n = socket_wait(fd, POLLIN, deadline) ? recv(fd, at, bytes, 0) : -1;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static struct addrinfo *address_find(const char *host, const char *port, int *code) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    *code = getaddrinfo(host, port, &hints, &found);
    return *code ? NULL : found;
}

static enum status listener_open(struct meeting *m, struct error *e) {
    int code;
    struct addrinfo *a = address_find(m->o->host, "0", &code);
    if (a == NULL) return error_set(e, STATUS_INVALID, "parallel.host \"%s\": %s", m->o->host, gai_strerror(code));
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    m->listener = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool ok = m->listener >= 0 && bind(m->listener, a->ai_addr, a->ai_addrlen) == 0 &&
              listen(m->listener, COMM_MAX_RANKS) == 0 &&
              getsockname(m->listener, (struct sockaddr *)&bound, &size) == 0;
    freeaddrinfo(a);
    if (!ok) return error_errno(e, "cannot listen for other ranks at parallel.host %s", m->o->host);
    snprintf(m->self.host, sizeof m->self.host, "%s", m->o->host);
    getnameinfo((struct sockaddr *)&bound, size, NULL, 0, m->self.port, sizeof m->self.port, NI_NUMERICSERV);
    return STATUS_OK;
}

/* A connection, or -1. */
static int address_connect(const struct address *to, double deadline) {
    int code, failed = 0;
    socklen_t size = sizeof failed;
    struct addrinfo *a = address_find(to->host, to->port, &code);
    if (a == NULL) return -1;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool ok = fd >= 0 && (connect(fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS) &&
              socket_wait(fd, POLLOUT, deadline) && getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) == 0 &&
              failed == 0;
    freeaddrinfo(a);
    if (ok) return socket_set_up(fd);
    if (fd >= 0) close(fd);
    return -1;
}

static void socket_close(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static double greeting_deadline(const struct meeting *m) {
    double soon = time_now() + GREETING_S;
    return soon < m->deadline ? soon : m->deadline;
}

/* The file. */

static void secret_print(struct buffer *b, const unsigned char *secret) {
    for (int i = 0; i < SECRET; i++) buffer_printf(b, "%02x", secret[i]);
}

static bool secret_scan(unsigned char *secret, const char *text) {
    for (int i = 0; i < SECRET; i++)
        if (sscanf(text + 2 * i, "%2hhx", &secret[i]) != 1) return false;
    return true;
}

/* Written beside it and renamed, so that nobody reads half of it; only its owner may. */
static enum status invitation_write(const struct meeting *m, struct error *e) {
    const struct invitation *v = &m->invitation;
    struct buffer text = {0}, path = {0};
    buffer_printf(&text, "%s\n", heading);
    secret_print(&text, v->asked);
    secret_print(&text, v->answered);
    buffer_printf(&text, "\n%s %s\n", v->leader.host, v->leader.port);
    buffer_printf(&path, "%s.%ld", m->o->rendezvous, (long)getpid());
    unlink(path.data);
    int fd = open(path.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, text.data, text.size) == (ssize_t)text.size;
    if (fd >= 0 && close(fd) != 0) ok = false;
    ok = ok && rename(path.data, m->o->rendezvous) == 0;
    if (!ok) {
        error_errno(e, "cannot write parallel.rendezvous %s", m->o->rendezvous);
        if (fd >= 0) unlink(path.data);
    }
    buffer_free(&text);
    buffer_free(&path);
    return ok ? STATUS_OK : e->status;
}

/* Reads the file as it is now; false when it is not there or is not one of ours. */
static bool invitation_read(const struct meeting *m, struct invitation *v) {
    struct buffer text = {0};
    struct error none;
    char first[sizeof heading], secrets[4 * SECRET + 1];
    memset(v, 0, sizeof *v);
    bool ok = file_read(m->o->rendezvous, FILE_LIMIT, &text, &none) == STATUS_OK && text.size > sizeof heading;
    if (ok) {
        snprintf(first, sizeof first, "%s", text.data);
        ok =
            strcmp(first, heading) == 0 &&
            sscanf(text.data + sizeof heading, "%64[0-9a-f] %199s %7s", secrets, v->leader.host, v->leader.port) == 3 &&
            strlen(secrets) == 4 * SECRET && secret_scan(v->asked, secrets) &&
            secret_scan(v->answered, secrets + 2 * SECRET);
    }
    buffer_free(&text);
    return ok;
}

static void invitation_remove(const struct meeting *m) {
    struct invitation now;
    if (invitation_read(m, &now) && memcmp(&now, &m->invitation, sizeof now) == 0) unlink(m->o->rendezvous);
}

/* Rank 0. */

static bool socket_hung_up(int fd) {
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static void address_terminate(struct address *a) { a->host[sizeof a->host - 1] = a->port[sizeof a->port - 1] = '\0'; }

/* True when a greeting is from a rank of this run; the rest of it may still be wrong. */
static bool greeting_is_ours(const struct meeting *m, const struct greeting *g) {
    return memcmp(g->heading, heading, sizeof heading) == 0 && memcmp(g->secret, m->invitation.asked, SECRET) == 0;
}

/* A connection whose greeting has the secret; -1 for others, and when none comes soon. */
static int rank_accept(const struct meeting *m, struct greeting *g) {
    double soon = time_now() + 1e-3 * POLL_MS;
    if (!socket_wait(m->listener, POLLIN, soon < m->deadline ? soon : m->deadline)) return -1;
    int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return -1;
    if (socket_read_all(fd, g, sizeof *g, greeting_deadline(m)) && greeting_is_ours(m, g)) {
        address_terminate(&g->address);
        return socket_set_up(fd);
    }
    close(fd);
    return -1;
}

static enum status rank_admit(struct meeting *m, int fd, const struct greeting *g, struct error *e) {
    const struct comm_options *o = m->o;
    if (g->size != o->size || g->stages != o->stages)
        return error_set(e, STATUS_INVALID,
                         "rank %d has parallel.tensor %d, parallel.pipeline %d; rank 0 has parallel.tensor %d, "
                         "parallel.pipeline %d. Give all ranks the same",
                         g->rank, g->size, g->stages, o->size, o->stages);
    if (g->rank < 1 || g->rank >= m->size)
        return error_set(e, STATUS_INVALID, "another process came as rank %d; ranks are 0 .. %d", g->rank, m->size - 1);
    if (m->sockets[g->rank] >= 0 && !socket_hung_up(m->sockets[g->rank]))
        return error_set(e, STATUS_INVALID, "two processes came as rank %d: give each a parallel.rank of its own",
                         g->rank);
    socket_close(&m->sockets[g->rank]);
    m->sockets[g->rank] = fd;
    m->list.ranks[g->rank] = g->address;
    return STATUS_OK;
}

static int ranks_count_missing(struct meeting *m) {
    int missing = 0;
    for (int r = 0; r < m->size; r++) {
        if (r == m->o->rank) continue;
        if (m->sockets[r] >= 0 && socket_hung_up(m->sockets[r])) socket_close(&m->sockets[r]);
        missing += m->sockets[r] < 0;
    }
    return missing;
}

static enum status ranks_missing_error(struct meeting *m, struct error *e) {
    struct buffer missing = {0};
    for (int r = 1; r < m->size; r++)
        if (m->sockets[r] < 0) buffer_printf(&missing, " %d", r);
    error_set(e, STATUS_IO,
              "rank 0 waited %g s (parallel.timeout) at parallel.rendezvous %s; of %d ranks there did not come:%.100s",
              m->o->timeout, m->o->rendezvous, m->size, missing.data);
    buffer_free(&missing);
    return e->status;
}

/* Ranks get the secret at once, which tells them that this is their rank 0, and the list when all are there. */
static enum status ranks_gather(struct meeting *m, struct error *e) {
    while (ranks_count_missing(m) > 0) {
        struct greeting g;
        if (time_now() >= m->deadline) return ranks_missing_error(m, e);
        int fd = rank_accept(m, &g);
        if (fd < 0) continue;
        bool answered = socket_write_all(fd, m->invitation.answered, SECRET, greeting_deadline(m));
        if (answered && rank_admit(m, fd, &g, e)) {
            m->list.error = *e;
            socket_write_all(fd, &m->list, sizeof m->list, greeting_deadline(m));
            close(fd);
            return e->status;
        }
        if (!answered) close(fd);
    }
    return STATUS_OK;
}

static enum status meeting_lead(struct meeting *m, struct error *e) {
    struct invitation *v = &m->invitation;
    v->leader = m->self;
    if (getrandom(v->asked, SECRET, 0) != SECRET || getrandom(v->answered, SECRET, 0) != SECRET)
        return error_errno(e, "no random numbers");
    if (invitation_write(m, e)) return e->status;
    enum status status = ranks_gather(m, e);
    if (status) m->list.error = *e;
    invitation_remove(m);
    for (int r = 1; r < m->size; r++)
        if (m->sockets[r] >= 0 && !socket_write_all(m->sockets[r], &m->list, sizeof m->list, greeting_deadline(m)) &&
            !status)
            status = error_set(e, STATUS_IO, "rank %d ended when all ranks had come", r);
    return status;
}

/* The other ranks. */

static struct greeting greeting_make(const struct meeting *m) {
    struct greeting g = {.rank = m->o->rank, .size = m->o->size, .stages = m->o->stages, .address = m->self};
    memcpy(g.heading, heading, sizeof heading);
    memcpy(g.secret, m->invitation.asked, SECRET);
    return g;
}

static int rank_greet(const struct meeting *m, const struct address *to) {
    struct greeting g = greeting_make(m);
    int fd = address_connect(to, greeting_deadline(m));
    if (fd >= 0 && !socket_write_all(fd, &g, sizeof g, greeting_deadline(m))) socket_close(&fd);
    return fd;
}

/* Waits for the list as long as rank 0 is there and the file is not replaced, which means that another has begun. */
static bool list_wait(struct meeting *m, int fd) {
    struct invitation now;
    while (!socket_wait(fd, POLLIN, time_now() + 1e-3 * POLL_MS)) {
        if (time_now() >= m->deadline) return false;
        if (invitation_read(m, &now) && memcmp(&now, &m->invitation, sizeof now) != 0) return false;
    }
    return socket_read_all(fd, &m->list, sizeof m->list, greeting_deadline(m));
}

/* One attempt: a connection to the rank 0 that wrote the file, and its list. */
static bool leader_meet(struct meeting *m) {
    unsigned char secret[SECRET];
    if (!invitation_read(m, &m->invitation)) return false;
    int fd = rank_greet(m, &m->invitation.leader);
    if (fd >= 0 && socket_read_all(fd, secret, SECRET, greeting_deadline(m)) &&
        memcmp(secret, m->invitation.answered, SECRET) == 0 && list_wait(m, fd)) {
        m->sockets[0] = fd;
        return true;
    }
    socket_close(&fd);
    return false;
}

/* Connections to the ranks before this one, and from those behind it. */
static enum status others_meet(struct meeting *m, struct error *e) {
    for (int r = 1; r < m->o->rank; r++) {
        m->sockets[r] = rank_greet(m, &m->list.ranks[r]);
        if (m->sockets[r] < 0)
            return error_set(e, STATUS_IO, "rank %d cannot reach rank %d at %s port %s (its parallel.host)", m->o->rank,
                             r, m->list.ranks[r].host, m->list.ranks[r].port);
    }
    while (ranks_count_missing(m) > 0) {
        struct greeting g;
        if (time_now() >= m->deadline)
            return error_set(e, STATUS_IO, "rank %d waited %g s (parallel.timeout) for later ranks to connect",
                             m->o->rank, m->o->timeout);
        int fd = rank_accept(m, &g);
        if (fd < 0) continue;
        if (g.rank > m->o->rank && g.rank < m->size && m->sockets[g.rank] < 0)
            m->sockets[g.rank] = fd;
        else
            close(fd);
    }
    return STATUS_OK;
}

static enum status meeting_follow(struct meeting *m, struct error *e) {
    while (!leader_meet(m)) {
        if (time_now() >= m->deadline)
            return error_set(
                e, STATUS_IO,
                "rank %d waited %g s (parallel.timeout) for rank 0 to invite it by parallel.rendezvous %s, "
                "and for all others to come",
                m->o->rank, m->o->timeout, m->o->rendezvous);
        poll(NULL, 0, POLL_MS);
    }
    m->list.error.text[sizeof m->list.error.text - 1] = '\0';
    for (int r = 0; r < m->size; r++) address_terminate(&m->list.ranks[r]);
    if (m->list.error.status) {
        *e = m->list.error;
        return e->status;
    }
    return others_meet(m, e);
}

enum status comm_rendezvous(int *sockets, const struct comm_options *o, struct error *e) {
    struct meeting *m = xcalloc(1, sizeof *m);
    *m = (struct meeting){
        .o = o, .size = o->size * o->stages, .listener = -1, .deadline = time_now() + o->timeout, .sockets = sockets};
    for (int r = 0; r < m->size; r++) sockets[r] = -1;
    enum status status = listener_open(m, e);
    if (status == STATUS_OK) status = o->rank == 0 ? meeting_lead(m, e) : meeting_follow(m, e);
    for (int r = 0; r < m->size && status; r++) socket_close(&sockets[r]);
    socket_close(&m->listener);
    free(m);
    return status;
}
