/* server/http/connection.h: the life of connections, as far as bytes and clocks know it.
 *
 * The HTTP library opens and closes sockets; it has one clock for all that a client may do, stops
 * accepting when it has enough, and closes a socket while the client still sends, which destroys
 * the answer on its way. So every connection is listed here, and a thread, the keeper, looks at the
 * list: it closes heads and bodies that come too slowly and connections that wait for nothing while
 * others wait for them, and it reads what clients still send to sockets that are closed already.
 * Sockets are shut down here and closed by the library, whose thread sees the end of the stream. */
#pragma once

#include "config/base/base.h"

enum {
    CONNECTION_RESERVE =
        8, /* beyond connection_limits.max: they answer operators when all others are busy */
    CONNECTION_LINGERING = 32, /* closed sockets that are still read; each is one open file */
};

struct connection_limits {
    int max;
    int max_per_client; /* 0: as many as there are */
    int idle_timeout;   /* seconds without a request, and without a byte of one */
    int head_timeout;   /* seconds from the first byte of a request to the end of its headers */
    int min_body_rate;  /* bytes per second, on average over each head_timeout seconds of a body; 0:
                           any */
    bool encrypted;     /* the keeper cannot tell a client why it is closed */
};

/* The phase of a connection. The server waits for the client in all but CONNECTION_ANSWER. */
enum connection_phase { CONNECTION_IDLE, CONNECTION_HEAD, CONNECTION_BODY, CONNECTION_ANSWER };

/* Why the keeper closed a connection. */
enum connection_end {
    CONNECTION_OPEN,
    CONNECTION_UNUSED,  /* idle_timeout passed, or others needed the slot */
    CONNECTION_LATE,    /* head_timeout passed; the client was told 408 */
    CONNECTION_TOO_SLOW /* min_body_rate; the client was told 408 */
};

struct connections;
struct connection;

enum status connections_open(struct connections **out, const struct connection_limits *limits,
                             struct error *e);
/* Every connection was closed before. */
void connections_close(struct connections *connections);

int connections_count(struct connections *connections);

/* Lists an open socket. With more than `max` of them the one that has been idle longest is closed,
 * but none that has been so for less than a second. Likewise of one client's with more than
 * `max_per_client`. */
struct connection *connection_open(struct connections *connections, int fd, uint64_t client);
/* To be called before the socket is closed. */
void connection_close(struct connection *connection);

/* False when the keeper has closed the connection: whatever comes from it now is to be dropped. */
bool connection_enter(struct connection *connection, enum connection_phase phase);
/* The request that comes, or is answered, on this connection, as its owner set it; NULL: none. For
 * the library's thread of this connection. */
void connection_set_request(struct connection *connection, void *request);
void *connection_request(const struct connection *connection);
/* So many more bytes of a body have come. */
void connection_progress(struct connection *connection, size_t bytes);
/* Whether more than `max` connections have a request in work: then this one is for operators only.
 */
bool connection_in_reserve(const struct connection *connection);
/* Whether its client had max_per_client connections when this one came, and has them still. */
bool connection_over_share(const struct connection *connection);
/* The client may still be sending when the socket is closed: read that for a while, so that it sees
 * the answer. */
void connection_linger(struct connection *connection);
enum connection_end connection_why(const struct connection *connection);
/* The status of a response that was sent past the library; 0: none was. */
void connection_refused(struct connection *connection, int status);
int connection_refused_with(const struct connection *connection);
/* Sends a whole response at once, past the library, which has no way to answer before the request
 * is complete. The caller has the library close the connection. */
void connection_reply(struct connection *connection, const char *bytes, size_t size);
