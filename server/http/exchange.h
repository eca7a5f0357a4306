/* server/http/exchange.h: one request and its answer, for the files of this folder that call libmicrohttpd. The only
 * file that includes it. */
#pragma once

#include <microhttpd.h>
#include <pthread.h>

#include "server/http/connection.h"
#include "server/http/http.h"
#include "server/http/watcher.h"

enum {
    HEADER_BYTES = 16 << 10, /* limit of request line and headers: more gets 431 */
    QUERY_ARGUMENTS = 64     /* of the query string, more than any route knows: more gets 400 */
};

struct http {
    struct http_options o;
    struct MHD_Daemon *daemon;
    struct watcher *watcher;
    struct connections *connections;
    int port;
    uint64_t id_base;
    atomic_uint_fast64_t n_requests;
    atomic_int active; /* exchanges with an answer that is not yet sent */
};

/* One request and its answer. */
struct exchange {
    struct http *http;
    struct MHD_Connection *connection;
    struct connection *life;
    const char *target; /* in the library's bytes, and its size there: both before they are decoded */
    size_t target_size;
    struct query_argument *arguments; /* [n_arguments], likewise, decoded; one more than there may be: too many */
    int n_arguments, arguments_capacity;
    bool begun; /* its head is complete */
    bool last;  /* the connection ends with this answer */
    struct admission admission;
    struct net_address address; /* the client's */
    char id[REQUEST_ID_BYTES];
    struct trace_context trace;
    size_t bytes_in, bytes_out; /* of the bodies */
    struct buffer shown;        /* of the request's body, for the log */
    double started;
    char method[16], path[128]; /* for the log */
    struct buffer body;
    struct answer *answer;
    struct buffer out; /* of the answer: polled, of which `sent` bytes are gone */
    size_t sent;
    bool complete;
    pthread_mutex_t lock; /* guards ready and suspended */
    bool ready, suspended;
    atomic_bool gone; /* the client left */
    bool watched;
    struct watch watch;
};

/* http.c */
/* Continues with an answer that waited: the waker of every answer. */
void exchange_wake(void *context);
/* Sends what the answer has; where that is nothing, suspends the connection. */
enum MHD_Result exchange_respond(struct exchange *x);

/* library_words.c */
/* Sends a whole response past the library. The caller has it close the connection; `id` of the request may be NULL. */
void library_cut(struct MHD_Connection *connection, struct connection *life, const struct failure *f, const char *id);
/* MHD_queue_response, for responses of ours. */
enum MHD_Result library_queue(struct MHD_Connection *connection, unsigned status, struct MHD_Response *response);

/* library_values.c */
/* STATUS_UNSUPPORTED where the library cannot be kept from reading freed memory. */
enum status library_values_open(struct error *e);

/* receive.c */
struct net_address connection_address(struct MHD_Connection *connection);

/* receive.c: what the library calls in this order. MHD_NO closes the connection. */
size_t text_unescape(void *context, struct MHD_Connection *connection, char *text);
void *exchange_make(void *context, const char *target, struct MHD_Connection *connection);
enum MHD_Result exchange_begin(struct exchange *x, const char *path, const char *method, const char *version);
enum MHD_Result exchange_receive(struct exchange *x, const char *bytes, size_t *size);
void exchange_open(struct exchange *x, const char *method, const char *path);
