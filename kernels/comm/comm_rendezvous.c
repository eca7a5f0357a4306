/* kernels/comm/comm_rendezvous.c: the meeting of ranks. See comm_rendezvous.h.
 *
 * Rank k connects to rank 0 and says who it is and where it listens. When all have come, rank 0
 * tells everyone where all are, and each rank connects to those between 0 and itself. */
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
    GUESTS = 2 * COMM_MAX_RANKS, /* connections that have not said it yet; the oldest makes room for
                                    another */
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

static struct text_span secret_of(const struct meeting *meeting) {
    return (struct text_span){meeting->secret.data ? meeting->secret.data : "",
                              meeting->secret.size};
}

static double greeting_deadline(const struct meeting *meeting) {
    double soon = time_now() + GREETING_S;
    return soon < meeting->deadline ? soon : meeting->deadline;
}

static enum status secret_read(struct meeting *meeting, struct error *e) {
    const char *path = meeting->o->secret_file;
    if (path == NULL || path[0] == '\0') return STATUS_OK;
    if (file_read(path, SECRET_MOST, &meeting->secret, e))
        return error_prefix(e, "parallel.secret_file");
    while (meeting->secret.size > 0 &&
           strchr("\r\n", meeting->secret.data[meeting->secret.size - 1]))
        meeting->secret.size--;
    if (meeting->secret.size >= SECRET_LEAST) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "parallel.secret_file %s has %zu bytes; %d is the least. openssl rand -hex 32 "
                     "makes a secret",
                     path, meeting->secret.size, SECRET_LEAST);
}

/* Fails where others than this machine's users could come. */
static enum status secret_check(const struct meeting *meeting, int fd, struct error *e) {
    if (meeting->secret.size > 0 || tcp_is_local(fd)) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "other machines reach parallel.rendezvous %s: give all ranks a "
                     "parallel.secret_file with the same "
                     "secret; openssl rand -hex 32 makes one",
                     meeting->o->rendezvous);
}

static enum status meeting_listen(struct meeting *meeting, const char *address, struct error *e) {
    snprintf(meeting->self.address, sizeof meeting->self.address, "%s", address);
    snprintf(meeting->self.port, sizeof meeting->self.port, "%d",
             atoi(meeting->leader.port) + meeting->o->rank);
    if (tcp_listen(&meeting->listener, &meeting->self, e))
        return error_prefix(e, "rank %d", meeting->o->rank);
    return secret_check(meeting, meeting->listener, e);
}

/* Guests. */

static void guest_remove(struct meeting *meeting, int i) {
    meeting->n--;
    memmove(&meeting->guests[i], &meeting->guests[i + 1],
            (size_t)(meeting->n - i) * sizeof *meeting->guests);
}

/* Says why, where there is something to say, and ends the connection. */
static void guest_refuse(struct meeting *meeting, int i, const char *why) {
    struct guest *guest = &meeting->guests[i];
    struct buffer text = {0};
    tcp_address(guest->fd, false, meeting->last_address, sizeof meeting->last_address);
    meeting->strangers++;
    if (why) {
        refusal_print(&text, why);
        tcp_write(guest->fd, (struct text_span){text.data, text.size}, 0);
    }
    buffer_free(&text);
    tcp_close(&guest->fd);
    guest_remove(meeting, i);
}

/* False when nobody is at the door. */
static bool guest_accept(struct meeting *meeting) {
    struct buffer text = {0};
    struct error e;
    int fd = tcp_accept(meeting->listener);
    if (fd < 0) return false;
    if (meeting->n == GUESTS) guest_refuse(meeting, 0, NULL);
    struct guest *guest = &meeting->guests[meeting->n];
    *guest = (struct guest){.fd = fd, .until = greeting_deadline(meeting)};
    meeting->n++;
    if (nonce_make(guest->nonce, &e) == STATUS_OK) challenge_print(&text, guest->nonce);
    if (text.size == 0 || !tcp_write(fd, (struct text_span){text.data, text.size}, 0))
        guest_refuse(meeting, meeting->n - 1, NULL);
    buffer_free(&text);
    return true;
}

/* True when the guest has said all that it is to say; one that says something else is gone. */
static bool guest_listen(struct meeting *meeting, int i) {
    struct guest *guest = &meeting->guests[i];
    ssize_t n = recv(guest->fd, guest->text + guest->size, sizeof guest->text - 1 - guest->size, 0);
    if (n > 0) guest->size += (size_t)n;
    guest->text[guest->size] = '\0';
    bool whole = guest->size >= 2 && memcmp(guest->text + guest->size - 2, "\n\n", 2) == 0;
    if (n <= 0 || strlen(guest->text) != guest->size ||
        (!whole && guest->size == sizeof guest->text - 1)) {
        guest_refuse(meeting, i, NULL);
        return false;
    }
    return whole;
}

static int poll_milliseconds(const struct meeting *meeting) {
    double left = meeting->deadline - time_now();
    return left > 1e-3 * POLL_MS ? POLL_MS : max_int(0, (int)(1e3 * left) + 1);
}

/* A guest with the secret, which is a rank: its socket, and what it said. -1 when none has come
 * within POLL_MS. */
static int rank_accept(struct meeting *meeting, struct greeting *greeting) {
    struct pollfd polled[GUESTS + 1] = {{.fd = meeting->listener, .events = POLLIN}};
    bool proven;
    for (int i = 0; i < meeting->n; i++)
        polled[i + 1] = (struct pollfd){.fd = meeting->guests[i].fd, .events = POLLIN};
    if (poll(polled, (nfds_t)meeting->n + 1, poll_milliseconds(meeting)) < 0) return -1;
    for (int i = meeting->n - 1; i >= 0; i--) {
        struct guest *guest = &meeting->guests[i];
        if (polled[i + 1].revents == 0 && time_now() >= guest->until)
            guest_refuse(meeting, i, NULL);
        if (polled[i + 1].revents == 0 || !guest_listen(meeting, i)) continue;
        if (!greeting_read(greeting, &proven, guest->text, guest->nonce, secret_of(meeting))) {
            guest_refuse(meeting, i, "this is not the greeting of a rank");
        } else if (!proven) {
            guest_refuse(
                meeting, i,
                "this rank has another secret; give all ranks the same parallel.secret_file");
        } else {
            int fd = guest->fd;
            guest_remove(meeting, i);
            return fd;
        }
    }
    for (int i = 0; i < GUESTS && polled[0].revents && guest_accept(meeting); i++) continue;
    return -1;
}

static bool rank_welcome(const struct meeting *meeting, int fd, const struct greeting *greeting) {
    struct buffer text = {0};
    welcome_print(&text, greeting, secret_of(meeting));
    bool sent = tcp_write(fd, (struct text_span){text.data, text.size}, greeting_deadline(meeting));
    buffer_free(&text);
    return sent;
}

/* Takes fd as the connection to the rank that greeted. */
static void rank_take(struct meeting *meeting, int fd, const struct greeting *greeting) {
    int *place = &meeting->links->sockets[greeting->channel][greeting->rank];
    tcp_close(place);
    *place = fd;
    if (!rank_welcome(meeting, fd, greeting)) tcp_close(place);
}

/* Drops connections to ranks that have ended meanwhile. */
static bool rank_is_missing(struct meeting *meeting, int r) {
    bool missing = false;
    for (int c = 0; c < CHANNELS && r != meeting->o->rank; c++) {
        int *fd = &meeting->links->sockets[c][r];
        if (*fd >= 0 && tcp_ended(*fd)) tcp_close(fd);
        missing = missing || *fd < 0;
    }
    return missing;
}

static int ranks_count_missing(struct meeting *meeting) {
    int missing = 0;
    for (int r = 0; r < meeting->size; r++) missing += rank_is_missing(meeting, r);
    return missing;
}

static void ranks_print_missing(struct meeting *meeting, struct buffer *out, bool came,
                                const char *words) {
    size_t before = out->size;
    for (int r = meeting->o->rank + 1; r < meeting->size; r++) {
        if (!rank_is_missing(meeting, r) || (meeting->links->seats[r].machine[0] != '\0') != came)
            continue;
        if (out->size == before) buffer_append_string(out, words);
        buffer_printf(out, " %d", r);
    }
}

static enum status ranks_missing_error(struct meeting *meeting, struct error *e) {
    struct buffer missing = {0};
    ranks_print_missing(meeting, &missing, false, "; did not come:");
    ranks_print_missing(
        meeting, &missing, true,
        meeting->o->rank == 0 ? "; came and ended:" : "; met rank 0 and cannot reach this one:");
    if (meeting->strangers > 0)
        buffer_printf(&missing, "; %d connections were refused, the last from %s",
                      meeting->strangers, meeting->last_address);
    error_set(e, STATUS_IO,
              "rank %d on %s waited %g s (parallel.timeout) at %s port %s for the others of %d "
              "ranks%.400s",
              meeting->o->rank, meeting->self.machine, meeting->o->timeout, meeting->self.address,
              meeting->self.port, meeting->size, missing.data ? missing.data : "");
    buffer_free(&missing);
    return e->status;
}

/* Rank 0. */

static enum status rank_check(const struct meeting *meeting, const struct greeting *greeting,
                              struct error *e) {
    const struct comm_options *options = meeting->o;
    const struct seat *seat = &meeting->links->seats[greeting->rank];
    if (strcmp(greeting->version, RETRO_VERSION) != 0)
        return error_set(e, STATUS_INVALID,
                         "rank %d on %s (%s) has version %s; rank 0 has version " RETRO_VERSION,
                         greeting->rank, greeting->seat.machine, greeting->seat.address,
                         greeting->version);
    if (greeting->tensor != options->size || greeting->pipeline != options->stages)
        return error_set(e, STATUS_INVALID,
                         "rank %d on %s (%s) has parallel.tensor %d, parallel.pipeline %d; rank 0 "
                         "has parallel.tensor "
                         "%d, parallel.pipeline %d. Give all ranks the same",
                         greeting->rank, greeting->seat.machine, greeting->seat.address,
                         greeting->tensor, greeting->pipeline, options->size, options->stages);
    if (greeting->rank < 1 || greeting->rank >= meeting->size || greeting->channel < 0 ||
        greeting->channel >= CHANNELS)
        return error_set(e, STATUS_INVALID, "another process came as rank %d; ranks are 0 .. %d",
                         greeting->rank, meeting->size - 1);
    int there = meeting->links->sockets[greeting->channel][greeting->rank];
    if (there >= 0 && !tcp_ended(there))
        return error_set(e, STATUS_INVALID,
                         "two processes came as rank %d, on %s (%s) and on %s (%s): give each a "
                         "parallel.rank of its own",
                         greeting->rank, seat->machine, seat->address, greeting->seat.machine,
                         greeting->seat.address);
    return STATUS_OK;
}

static enum status ranks_gather(struct meeting *meeting, struct error *e) {
    while (ranks_count_missing(meeting) > 0) {
        struct greeting greeting;
        if (time_now() >= meeting->deadline) return ranks_missing_error(meeting, e);
        int fd = rank_accept(meeting, &greeting);
        if (fd < 0) continue;
        if (rank_check(meeting, &greeting, e)) {
            struct buffer text = {0};
            refusal_print(&text, e->text);
            tcp_write(fd, (struct text_span){text.data, text.size}, greeting_deadline(meeting));
            buffer_free(&text);
            tcp_close(&fd);
            return e->status;
        }
        meeting->links->seats[greeting.rank] = greeting.seat;
        rank_take(meeting, fd, &greeting);
    }
    return STATUS_OK;
}

/* Everyone learns where all are, or why nothing comes of it. */
static enum status meeting_lead(struct meeting *meeting, struct error *e) {
    struct buffer text = {0};
    const char *address =
        meeting->o->host && meeting->o->host[0] ? meeting->o->host : meeting->leader.address;
    if (meeting_listen(meeting, address, e)) return e->status;
    meeting->links->seats[0] = meeting->self;
    enum status status = ranks_gather(meeting, e);
    if (status)
        refusal_print(&text, e->text);
    else
        seats_print(&text, meeting->links->seats, meeting->size);
    for (int r = 1; r < meeting->size; r++) {
        int fd = meeting->links->sockets[CHANNEL_DATA][r];
        bool sent = fd >= 0 && tcp_write(fd, (struct text_span){text.data, text.size},
                                         greeting_deadline(meeting));
        if (!sent && !status)
            status = error_set(e, STATUS_IO, "rank %d on %s (%s) ended when all ranks had come", r,
                               meeting->links->seats[r].machine, meeting->links->seats[r].address);
    }
    buffer_free(&text);
    return status;
}

/* The other ranks. */

/* Greets over a new connection, and checks the answer. */
static enum status rank_greet(struct meeting *meeting, int fd, int channel, struct error *e) {
    const struct comm_options *options = meeting->o;
    char nonce[NONCE_TEXT], answer[GREETING_MOST];
    struct greeting greeting = {
        options->rank, options->size, options->stages, channel, RETRO_VERSION, meeting->self, ""};
    struct buffer text = {0};
    if (!tcp_read(fd, answer, sizeof answer, greeting_deadline(meeting)) ||
        !challenge_read(nonce, answer))
        return error_set(e, STATUS_CORRUPT, "it does not greet like a rank");
    if (nonce_make(greeting.nonce, e)) return e->status;
    greeting_print(&text, &greeting, nonce, secret_of(meeting));
    bool answered =
        tcp_write(fd, (struct text_span){text.data, text.size}, greeting_deadline(meeting)) &&
        tcp_read(fd, answer, sizeof answer, greeting_deadline(meeting));
    buffer_free(&text);
    if (!answered) return error_set(e, STATUS_IO, "it ended the connection");
    return welcome_read(answer, &greeting, secret_of(meeting), e);
}

/* Where this rank is reached: at the address with which it reaches rank 0, unless it was given one.
 */
static enum status rank_sit(struct meeting *meeting, int fd, struct error *e) {
    char address[sizeof meeting->self.address];
    if (meeting->listener >= 0) return STATUS_OK;
    if (meeting->o->host && meeting->o->host[0])
        snprintf(address, sizeof address, "%s", meeting->o->host);
    else
        tcp_address(fd, true, address, sizeof address);
    return meeting_listen(meeting, address, e);
}

static enum status rank_join_channel(struct meeting *meeting, int *fd, int channel,
                                     const struct seat *seat, struct error *e) {
    if (tcp_open(fd, seat, greeting_deadline(meeting), e)) return e->status;
    if (rank_sit(meeting, *fd, e)) return e->status = STATUS_INVALID;
    return rank_greet(meeting, *fd, channel, e);
}

/* Where all others are, or why nothing comes of the meeting. */
static enum status seats_receive(struct meeting *meeting, double deadline, struct error *e) {
    char text[LIST_MOST];
    if (!tcp_read(meeting->links->sockets[CHANNEL_DATA][0], text, sizeof text, deadline))
        return error_set(e, STATUS_IO, "it ended the connection");
    return seats_read(meeting->links->seats, meeting->size, text, e);
}

/* All connections to a rank before this one. After STATUS_INVALID there is no use in another
 * attempt. */
static enum status rank_join(struct meeting *meeting, int r, const struct seat *seat,
                             struct error *e) {
    enum { REASON_S = 1 };
    enum status status = STATUS_OK;
    struct error why;
    for (int c = 0; c < CHANNELS && status == STATUS_OK; c++)
        status = rank_join_channel(meeting, &meeting->links->sockets[c][r], c, seat, e);
    /* Rank 0 may have given the meeting up meanwhile; it says so on the first connection. */
    bool unclear = status != STATUS_OK && status != STATUS_INVALID;
    if (unclear && r == 0 && meeting->links->sockets[CHANNEL_DATA][0] >= 0 &&
        seats_receive(meeting, time_now() + REASON_S, &why) == STATUS_INVALID) {
        *e = why;
        status = e->status;
    }
    for (int c = 0; c < CHANNELS && status; c++) tcp_close(&meeting->links->sockets[c][r]);
    return status;
}

/* One attempt: the connections to rank 0, and where all others are. Waits as long as rank 0 is
 * there. */
static enum status leader_meet(struct meeting *meeting, struct error *e) {
    if (rank_join(meeting, 0, &meeting->leader, e)) return e->status;
    if (!tcp_wait(meeting->links->sockets[CHANNEL_DATA][0], POLLIN, meeting->deadline))
        return error_set(e, STATUS_IO, "it is there, and not all other ranks have come");
    return seats_receive(meeting, greeting_deadline(meeting), e);
}

/* Connections to the ranks before this one, and from those behind it. */
static enum status others_meet(struct meeting *meeting, struct error *e) {
    for (int r = 1; r < meeting->o->rank; r++) {
        const struct seat *seat = &meeting->links->seats[r];
        while (rank_join(meeting, r, seat, e)) {
            if (e->status == STATUS_INVALID || time_now() >= meeting->deadline)
                return error_prefix(e, "rank %d on %s cannot join rank %d on %s (%s port %s)",
                                    meeting->o->rank, meeting->self.machine, r, seat->machine,
                                    seat->address, seat->port);
            poll(NULL, 0, POLL_MS);
        }
    }
    while (ranks_count_missing(meeting) > 0) {
        struct greeting greeting;
        if (rank_is_missing(meeting, 0))
            return error_set(e, STATUS_IO, "rank 0 ended when all ranks had come");
        if (time_now() >= meeting->deadline) return ranks_missing_error(meeting, e);
        int fd = rank_accept(meeting, &greeting);
        if (fd >= 0 && greeting.rank > meeting->o->rank && greeting.rank < meeting->size &&
            greeting.channel >= 0 && greeting.channel < CHANNELS)
            rank_take(meeting, fd, &greeting);
        else
            tcp_close(&fd);
    }
    return STATUS_OK;
}

static enum status meeting_follow(struct meeting *meeting, struct error *e) {
    struct error why;
    while (leader_meet(meeting, &why)) {
        for (int c = 0; c < CHANNELS; c++) tcp_close(&meeting->links->sockets[c][0]);
        if (why.status == STATUS_INVALID) {
            *e = why;
            return e->status;
        }
        if (time_now() >= meeting->deadline)
            return error_set(e, STATUS_IO,
                             "rank %d on %s waited %g s (parallel.timeout) for rank 0 at %s: %s",
                             meeting->o->rank, meeting->self.machine, meeting->o->timeout,
                             meeting->o->rendezvous, why.text);
        poll(NULL, 0, POLL_MS);
    }
    return others_meet(meeting, e);
}

static void meeting_end(struct meeting *meeting, bool failed) {
    while (meeting->n > 0) guest_refuse(meeting, meeting->n - 1, NULL);
    for (int r = 0; r < meeting->size && failed; r++)
        for (int c = 0; c < CHANNELS; c++) tcp_close(&meeting->links->sockets[c][r]);
    tcp_close(&meeting->listener);
    buffer_free(&meeting->secret);
    free(meeting);
}

enum status comm_rendezvous(struct rank_links *links, const struct comm_options *options,
                            struct error *e) {
    struct meeting *meeting = xcalloc(1, sizeof *meeting);
    *meeting = (struct meeting){.o = options,
                                .size = options->size * options->stages,
                                .listener = -1,
                                .deadline = time_now() + options->timeout,
                                .links = links};
    memset(links, 0, sizeof *links);
    for (int r = 0; r < meeting->size; r++)
        for (int c = 0; c < CHANNELS; c++) links->sockets[c][r] = -1;
    seat_name_machine(&meeting->self);
    enum status status = endpoint_parse(&meeting->leader, options->rendezvous, e);
    if (status == STATUS_OK) status = secret_read(meeting, e);
    if (status == STATUS_OK)
        status = options->rank == 0 ? meeting_lead(meeting, e) : meeting_follow(meeting, e);
    meeting_end(meeting, status != STATUS_OK);
    return status;
}
