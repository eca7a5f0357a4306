/* kernels/comm/comm_rendezvous.c: the meeting of ranks. See comm_rendezvous.h.
 *
 * Rank k connects to rank 0 and says who it is and where it listens. When all have come, rank 0 tells everyone where
 * all are, and each rank connects to those between 0 and itself. */
#include "kernels/comm/comm_rendezvous.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "kernels/comm/comm_tcp.h"

enum {
    POLL_MS = 50,                /* between two attempts */
    GREETING_S = 5,              /* that a connection may take to say who it is */
    GUESTS = 2 * COMM_MAX_RANKS, /* connections that have not said it yet; the oldest makes room for another */
    SECRET_LEAST = 16,           /* bytes */
    SECRET_MOST = 4096
};

/* A connection of somebody who has not shown who it is. */
struct guest {
    int fd;
    double until;
    char nonce[NONCE_TEXT], text[GREETING_MOST];
    size_t size;
};

struct meeting {
    const struct comm_options *o;
    int size, listener;
    double deadline;
    struct buffer secret;
    struct seat leader, self;
    struct rank_links *links;
    struct guest guests[GUESTS]; /* the first n, the oldest first */
    int n;
    int strangers;         /* guests that were sent away */
    char last_address[64]; /* of the last of them */
};

static struct text_span secret_of(const struct meeting *m) {
    return (struct text_span){m->secret.data ? m->secret.data : "", m->secret.size};
}

static double greeting_deadline(const struct meeting *m) {
    double soon = time_now() + GREETING_S;
    return soon < m->deadline ? soon : m->deadline;
}

static enum status secret_read(struct meeting *m, struct error *e) {
    const char *path = m->o->secret_file;
    if (path == NULL || path[0] == '\0') return STATUS_OK;
    if (file_read(path, SECRET_MOST, &m->secret, e)) return error_prefix(e, "parallel.secret_file");
    while (m->secret.size > 0 && strchr("\r\n", m->secret.data[m->secret.size - 1])) m->secret.size--;
    if (m->secret.size >= SECRET_LEAST) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "parallel.secret_file %s has %zu bytes; %d is the least. openssl rand -hex 32 makes a secret",
                     path, m->secret.size, SECRET_LEAST);
}

/* Fails where others than this machine's users could come. */
static enum status secret_check(const struct meeting *m, int fd, struct error *e) {
    if (m->secret.size > 0 || tcp_is_local(fd)) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "other machines reach parallel.rendezvous %s: give all ranks a parallel.secret_file with the same "
                     "secret; openssl rand -hex 32 makes one",
                     m->o->rendezvous);
}

static enum status meeting_listen(struct meeting *m, const char *address, struct error *e) {
    snprintf(m->self.address, sizeof m->self.address, "%s", address);
    snprintf(m->self.port, sizeof m->self.port, "%d", atoi(m->leader.port) + m->o->rank);
    if (tcp_listen(&m->listener, &m->self, e)) return error_prefix(e, "rank %d", m->o->rank);
    return secret_check(m, m->listener, e);
}

/* Guests. */

static void guest_remove(struct meeting *m, int i) {
    m->n--;
    memmove(&m->guests[i], &m->guests[i + 1], (size_t)(m->n - i) * sizeof *m->guests);
}

/* Says why, where there is something to say, and ends the connection. */
static void guest_refuse(struct meeting *m, int i, const char *why) {
    struct guest *g = &m->guests[i];
    struct buffer text = {0};
    tcp_address(g->fd, false, m->last_address, sizeof m->last_address);
    m->strangers++;
    if (why) {
        refusal_print(&text, why);
        tcp_write(g->fd, (struct text_span){text.data, text.size}, 0);
    }
    buffer_free(&text);
    tcp_close(&g->fd);
    guest_remove(m, i);
}

/* False when nobody is at the door. */
static bool guest_accept(struct meeting *m) {
    struct buffer text = {0};
    struct error e;
    int fd = tcp_accept(m->listener);
    if (fd < 0) return false;
    if (m->n == GUESTS) guest_refuse(m, 0, NULL);
    struct guest *g = &m->guests[m->n];
    *g = (struct guest){.fd = fd, .until = greeting_deadline(m)};
    m->n++;
    if (nonce_make(g->nonce, &e) == STATUS_OK) challenge_print(&text, g->nonce);
    if (text.size == 0 || !tcp_write(fd, (struct text_span){text.data, text.size}, 0)) guest_refuse(m, m->n - 1, NULL);
    buffer_free(&text);
    return true;
}

/* True when the guest has said all that it is to say; one that says something else is gone. */
static bool guest_listen(struct meeting *m, int i) {
    struct guest *g = &m->guests[i];
    ssize_t n = recv(g->fd, g->text + g->size, sizeof g->text - 1 - g->size, 0);
    if (n > 0) g->size += (size_t)n;
    g->text[g->size] = '\0';
    bool whole = g->size >= 2 && memcmp(g->text + g->size - 2, "\n\n", 2) == 0;
    if (n <= 0 || strlen(g->text) != g->size || (!whole && g->size == sizeof g->text - 1)) {
        guest_refuse(m, i, NULL);
        return false;
    }
    return whole;
}

static int poll_milliseconds(const struct meeting *m) {
    double left = m->deadline - time_now();
    return left > 1e-3 * POLL_MS ? POLL_MS : max_int(0, (int)(1e3 * left) + 1);
}

/* A guest with the secret, which is a rank: its socket, and what it said. -1 when none has come within POLL_MS. */
static int rank_accept(struct meeting *m, struct greeting *greeting) {
    struct pollfd polled[GUESTS + 1] = {{.fd = m->listener, .events = POLLIN}};
    bool proven;
    for (int i = 0; i < m->n; i++) polled[i + 1] = (struct pollfd){.fd = m->guests[i].fd, .events = POLLIN};
    if (poll(polled, (nfds_t)m->n + 1, poll_milliseconds(m)) < 0) return -1;
    for (int i = m->n - 1; i >= 0; i--) {
        struct guest *g = &m->guests[i];
        if (polled[i + 1].revents == 0 && time_now() >= g->until) guest_refuse(m, i, NULL);
        if (polled[i + 1].revents == 0 || !guest_listen(m, i)) continue;
        if (!greeting_read(greeting, &proven, g->text, g->nonce, secret_of(m))) {
            guest_refuse(m, i, "this is not the greeting of a rank");
        } else if (!proven) {
            guest_refuse(m, i, "this rank has another secret; give all ranks the same parallel.secret_file");
        } else {
            int fd = g->fd;
            guest_remove(m, i);
            return fd;
        }
    }
    for (int i = 0; i < GUESTS && polled[0].revents && guest_accept(m); i++) continue;
    return -1;
}

static bool rank_welcome(const struct meeting *m, int fd, const struct greeting *g) {
    struct buffer text = {0};
    welcome_print(&text, g, secret_of(m));
    bool sent = tcp_write(fd, (struct text_span){text.data, text.size}, greeting_deadline(m));
    buffer_free(&text);
    return sent;
}

/* Takes fd as the connection to the rank that greeted. */
static void rank_take(struct meeting *m, int fd, const struct greeting *g) {
    int *place = &m->links->sockets[g->channel][g->rank];
    tcp_close(place);
    *place = fd;
    if (!rank_welcome(m, fd, g)) tcp_close(place);
}

/* Drops connections to ranks that have ended meanwhile. */
static bool rank_is_missing(struct meeting *m, int r) {
    bool missing = false;
    for (int c = 0; c < CHANNELS && r != m->o->rank; c++) {
        int *fd = &m->links->sockets[c][r];
        if (*fd >= 0 && tcp_ended(*fd)) tcp_close(fd);
        missing = missing || *fd < 0;
    }
    return missing;
}

static int ranks_count_missing(struct meeting *m) {
    int missing = 0;
    for (int r = 0; r < m->size; r++) missing += rank_is_missing(m, r);
    return missing;
}

static void ranks_print_missing(struct meeting *m, struct buffer *out, bool came, const char *words) {
    size_t before = out->size;
    for (int r = m->o->rank + 1; r < m->size; r++) {
        if (!rank_is_missing(m, r) || (m->links->seats[r].machine[0] != '\0') != came) continue;
        if (out->size == before) buffer_append_string(out, words);
        buffer_printf(out, " %d", r);
    }
}

static enum status ranks_missing_error(struct meeting *m, struct error *e) {
    struct buffer missing = {0};
    ranks_print_missing(m, &missing, false, "; did not come:");
    ranks_print_missing(m, &missing, true,
                        m->o->rank == 0 ? "; came and ended:" : "; met rank 0 and cannot reach this one:");
    if (m->strangers > 0)
        buffer_printf(&missing, "; %d connections were refused, the last from %s", m->strangers, m->last_address);
    error_set(e, STATUS_IO,
              "rank %d on %s waited %g s (parallel.timeout) at %s port %s for the others of %d ranks%.400s", m->o->rank,
              m->self.machine, m->o->timeout, m->self.address, m->self.port, m->size, missing.data ? missing.data : "");
    buffer_free(&missing);
    return e->status;
}

/* Rank 0. */

static enum status rank_check(const struct meeting *m, const struct greeting *g, struct error *e) {
    const struct comm_options *o = m->o;
    const struct seat *seat = &m->links->seats[g->rank];
    if (strcmp(g->version, RETRO_VERSION) != 0)
        return error_set(e, STATUS_INVALID, "rank %d on %s (%s) has version %s; rank 0 has version " RETRO_VERSION,
                         g->rank, g->seat.machine, g->seat.address, g->version);
    if (g->tensor != o->size || g->pipeline != o->stages)
        return error_set(e, STATUS_INVALID,
                         "rank %d on %s (%s) has parallel.tensor %d, parallel.pipeline %d; rank 0 has parallel.tensor "
                         "%d, parallel.pipeline %d. Give all ranks the same",
                         g->rank, g->seat.machine, g->seat.address, g->tensor, g->pipeline, o->size, o->stages);
    if (g->rank < 1 || g->rank >= m->size || g->channel < 0 || g->channel >= CHANNELS)
        return error_set(e, STATUS_INVALID, "another process came as rank %d; ranks are 0 .. %d", g->rank, m->size - 1);
    int there = m->links->sockets[g->channel][g->rank];
    if (there >= 0 && !tcp_ended(there))
        return error_set(
            e, STATUS_INVALID,
            "two processes came as rank %d, on %s (%s) and on %s (%s): give each a parallel.rank of its own", g->rank,
            seat->machine, seat->address, g->seat.machine, g->seat.address);
    return STATUS_OK;
}

static enum status ranks_gather(struct meeting *m, struct error *e) {
    while (ranks_count_missing(m) > 0) {
        struct greeting g;
        if (time_now() >= m->deadline) return ranks_missing_error(m, e);
        int fd = rank_accept(m, &g);
        if (fd < 0) continue;
        if (rank_check(m, &g, e)) {
            struct buffer text = {0};
            refusal_print(&text, e->text);
            tcp_write(fd, (struct text_span){text.data, text.size}, greeting_deadline(m));
            buffer_free(&text);
            tcp_close(&fd);
            return e->status;
        }
        m->links->seats[g.rank] = g.seat;
        rank_take(m, fd, &g);
    }
    return STATUS_OK;
}

/* Everyone learns where all are, or why nothing comes of it. */
static enum status meeting_lead(struct meeting *m, struct error *e) {
    struct buffer text = {0};
    const char *address = m->o->host && m->o->host[0] ? m->o->host : m->leader.address;
    if (meeting_listen(m, address, e)) return e->status;
    m->links->seats[0] = m->self;
    enum status status = ranks_gather(m, e);
    if (status)
        refusal_print(&text, e->text);
    else
        seats_print(&text, m->links->seats, m->size);
    for (int r = 1; r < m->size; r++) {
        int fd = m->links->sockets[CHANNEL_DATA][r];
        bool sent = fd >= 0 && tcp_write(fd, (struct text_span){text.data, text.size}, greeting_deadline(m));
        if (!sent && !status)
            status = error_set(e, STATUS_IO, "rank %d on %s (%s) ended when all ranks had come", r,
                               m->links->seats[r].machine, m->links->seats[r].address);
    }
    buffer_free(&text);
    return status;
}

/* The other ranks. */

/* Greets over a new connection, and checks the answer. */
static enum status rank_greet(struct meeting *m, int fd, int channel, struct error *e) {
    const struct comm_options *o = m->o;
    char nonce[NONCE_TEXT], answer[GREETING_MOST];
    struct greeting g = {o->rank, o->size, o->stages, channel, RETRO_VERSION, m->self, ""};
    struct buffer text = {0};
    if (!tcp_read(fd, answer, sizeof answer, greeting_deadline(m)) || !challenge_read(nonce, answer))
        return error_set(e, STATUS_CORRUPT, "it does not greet like a rank");
    if (nonce_make(g.nonce, e)) return e->status;
    greeting_print(&text, &g, nonce, secret_of(m));
    bool answered = tcp_write(fd, (struct text_span){text.data, text.size}, greeting_deadline(m)) &&
                    tcp_read(fd, answer, sizeof answer, greeting_deadline(m));
    buffer_free(&text);
    if (!answered) return error_set(e, STATUS_IO, "it ended the connection");
    return welcome_read(answer, &g, secret_of(m), e);
}

/* Where this rank is reached: at the address with which it reaches rank 0, unless it was given one. */
static enum status rank_sit(struct meeting *m, int fd, struct error *e) {
    char address[sizeof m->self.address];
    if (m->listener >= 0) return STATUS_OK;
    if (m->o->host && m->o->host[0])
        snprintf(address, sizeof address, "%s", m->o->host);
    else
        tcp_address(fd, true, address, sizeof address);
    return meeting_listen(m, address, e);
}

static enum status rank_join_channel(struct meeting *m, int *fd, int channel, const struct seat *seat,
                                     struct error *e) {
    if (tcp_open(fd, seat, greeting_deadline(m), e)) return e->status;
    if (rank_sit(m, *fd, e)) return e->status = STATUS_INVALID;
    return rank_greet(m, *fd, channel, e);
}

/* Where all others are, or why nothing comes of the meeting. */
static enum status seats_receive(struct meeting *m, double deadline, struct error *e) {
    char text[LIST_MOST];
    if (!tcp_read(m->links->sockets[CHANNEL_DATA][0], text, sizeof text, deadline))
        return error_set(e, STATUS_IO, "it ended the connection");
    return seats_read(m->links->seats, m->size, text, e);
}

/* All connections to a rank before this one. After STATUS_INVALID there is no use in another attempt. */
static enum status rank_join(struct meeting *m, int r, const struct seat *seat, struct error *e) {
    enum { REASON_S = 1 };
    enum status status = STATUS_OK;
    struct error why;
    for (int c = 0; c < CHANNELS && status == STATUS_OK; c++)
        status = rank_join_channel(m, &m->links->sockets[c][r], c, seat, e);
    /* Rank 0 may have given the meeting up meanwhile; it says so on the first connection. */
    bool unclear = status != STATUS_OK && status != STATUS_INVALID;
    if (unclear && r == 0 && m->links->sockets[CHANNEL_DATA][0] >= 0 &&
        seats_receive(m, time_now() + REASON_S, &why) == STATUS_INVALID) {
        *e = why;
        status = e->status;
    }
    for (int c = 0; c < CHANNELS && status; c++) tcp_close(&m->links->sockets[c][r]);
    return status;
}

/* One attempt: the connections to rank 0, and where all others are. Waits as long as rank 0 is there. */
static enum status leader_meet(struct meeting *m, struct error *e) {
    if (rank_join(m, 0, &m->leader, e)) return e->status;
    if (!tcp_wait(m->links->sockets[CHANNEL_DATA][0], POLLIN, m->deadline))
        return error_set(e, STATUS_IO, "it is there, and not all other ranks have come");
    return seats_receive(m, greeting_deadline(m), e);
}

/* Connections to the ranks before this one, and from those behind it. */
static enum status others_meet(struct meeting *m, struct error *e) {
    for (int r = 1; r < m->o->rank; r++) {
        const struct seat *seat = &m->links->seats[r];
        while (rank_join(m, r, seat, e)) {
            if (e->status == STATUS_INVALID || time_now() >= m->deadline)
                return error_prefix(e, "rank %d on %s cannot join rank %d on %s (%s port %s)", m->o->rank,
                                    m->self.machine, r, seat->machine, seat->address, seat->port);
            poll(NULL, 0, POLL_MS);
        }
    }
    while (ranks_count_missing(m) > 0) {
        struct greeting g;
        if (rank_is_missing(m, 0)) return error_set(e, STATUS_IO, "rank 0 ended when all ranks had come");
        if (time_now() >= m->deadline) return ranks_missing_error(m, e);
        int fd = rank_accept(m, &g);
        if (fd >= 0 && g.rank > m->o->rank && g.rank < m->size && g.channel >= 0 && g.channel < CHANNELS)
            rank_take(m, fd, &g);
        else
            tcp_close(&fd);
    }
    return STATUS_OK;
}

static enum status meeting_follow(struct meeting *m, struct error *e) {
    struct error why;
    while (leader_meet(m, &why)) {
        for (int c = 0; c < CHANNELS; c++) tcp_close(&m->links->sockets[c][0]);
        if (why.status == STATUS_INVALID) {
            *e = why;
            return e->status;
        }
        if (time_now() >= m->deadline)
            return error_set(e, STATUS_IO, "rank %d on %s waited %g s (parallel.timeout) for rank 0 at %s: %s",
                             m->o->rank, m->self.machine, m->o->timeout, m->o->rendezvous, why.text);
        poll(NULL, 0, POLL_MS);
    }
    return others_meet(m, e);
}

static void meeting_end(struct meeting *m, bool failed) {
    while (m->n > 0) guest_refuse(m, m->n - 1, NULL);
    for (int r = 0; r < m->size && failed; r++)
        for (int c = 0; c < CHANNELS; c++) tcp_close(&m->links->sockets[c][r]);
    tcp_close(&m->listener);
    buffer_free(&m->secret);
    free(m);
}

enum status comm_rendezvous(struct rank_links *links, const struct comm_options *o, struct error *e) {
    struct meeting *m = xcalloc(1, sizeof *m);
    *m = (struct meeting){
        .o = o, .size = o->size * o->stages, .listener = -1, .deadline = time_now() + o->timeout, .links = links};
    memset(links, 0, sizeof *links);
    for (int r = 0; r < m->size; r++)
        for (int c = 0; c < CHANNELS; c++) links->sockets[c][r] = -1;
    seat_name_machine(&m->self);
    enum status status = endpoint_parse(&m->leader, o->rendezvous, e);
    if (status == STATUS_OK) status = secret_read(m, e);
    if (status == STATUS_OK) status = o->rank == 0 ? meeting_lead(m, e) : meeting_follow(m, e);
    meeting_end(m, status != STATUS_OK);
    return status;
}
