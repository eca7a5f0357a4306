/* server/http/exchange.h: one request and its answer, for the files of this folder that call
 * libmicrohttpd. The only file that includes it. */
#pragma once

#include <microhttpd.h>
#include <pthread.h>

#include "server/http/connection.h"
#include "server/http/http.h"
#include "server/http/watcher.h"
#include "server/threads/request_threads.h"

enum {
    HEADER_BYTES = 16 << 10, /* limit of request line and headers: more gets 431 */
    QUERY_ARGUMENTS = 64     /* of the query string, more than any route knows: more gets 400 */
};

struct http {
    struct http_options o;
    struct MHD_Daemon *daemon;
    struct watcher *watcher;
    struct connections *connections;
    struct request_threads *threads;
    uint64_t id_base;
    atomic_uint_fast64_t n_requests;
    atomic_int active; /* exchanges whose request came and whose answer is not yet sent */
};

/* Where an exchange is between its request's last byte and its answer's first one. */
enum exchange_work {
    WORK_NONE,    /* with the library's thread */
    WORK_QUEUED,  /* waiting for a request thread */
    WORK_RUNNING, /* in one */
    WORK_PAUSED,  /* waiting for its answer's waker */
    WORK_OVER     /* back with the library's thread */
};

/* One request and its answer. */
struct exchange {
    struct turn turn; /* first: a job of the request threads */
    struct http *http;
    struct MHD_Connection *connection;
    struct connection *life;
    const char
        *target; /* in the library's bytes, and its size there: both before they are decoded */
    size_t target_size;
    struct query_argument
        *arguments; /* [n_arguments], likewise, decoded; one more than there may be: too many */
    int n_arguments, arguments_capacity;
    bool begun;  /* its head is complete */
    bool active; /* its answer has begun to be made */
    bool last;   /* the connection ends with this answer */
    struct admission admission;
    struct net_address address; /* the client's */
    char id[REQUEST_ID_BYTES];
    struct trace_context trace;
    size_t bytes_in, bytes_out; /* of the bodies */
    struct buffer shown;        /* of the request's body, for the log */
    double started;
    char method[16], path[128]; /* for the log */
    struct buffer body;
    struct api_request request;
    struct answer *answer;
    struct buffer out; /* of the answer: polled, of which `sent` bytes are gone */
    size_t sent;
    bool complete;
    pthread_mutex_t lock; /* guards the next four, and answer while it is away */
    enum exchange_work work;
    bool woken;            /* while it was running */
    bool ready, suspended; /* with the library's thread */
    atomic_bool gone;      /* the client left */
    bool watched;
    struct watch watch;
};

/* work.c */
/* The request is complete: opens its answer, here or in a request thread. */
void exchange_ask(struct exchange *exchange, const char *method, const char *path);
/* Whether it is in a request thread, or waits for one: then it wakes later, and is no business of
 * the library's thread until then. */
bool exchange_is_away(struct exchange *exchange);
/* Continues with an answer that waited: the waker of every answer. */
void exchange_wake(void *context);
/* The client left. Called by the watcher. */
void exchange_leave(void *context);
/* For the request threads. */
void exchange_work(struct turn *job);
uint64_t exchange_client(const struct turn *job);

/* http.c */
/* Sends what the answer has; where that is nothing, suspends the connection. */
enum MHD_Result exchange_respond(struct exchange *exchange);

/* library_words.c */
/* Sends a whole response past the library. The caller has it close the connection; `id` of the
 * request may be NULL. */
void library_cut(struct MHD_Connection *connection, struct connection *life,
                 const struct failure *failure, const char *id);
/* MHD_queue_response, for responses of ours. */
enum MHD_Result library_queue(struct MHD_Connection *connection, unsigned status,
                              struct MHD_Response *response);

/* library_values.c */
/* STATUS_UNSUPPORTED where the library cannot be kept from reading freed memory. */
enum status library_values_open(struct error *e);

/* receive.c */
struct net_address connection_address(struct MHD_Connection *connection);

/* receive.c: what the library calls in this order. MHD_NO closes the connection. */
size_t text_unescape(void *context, struct MHD_Connection *connection, char *text);
void *exchange_make(void *context, const char *target, struct MHD_Connection *connection);
enum MHD_Result exchange_begin(struct exchange *exchange, const char *path, const char *method,
                               const char *version);
enum MHD_Result exchange_receive(struct exchange *exchange, const char *bytes, size_t *size);
/* From here to exchange_end() the exchange is active: stopping waits for it. A request whose body
 * never came is not. */
void exchange_activate(struct exchange *exchange);
const char *header_find(const struct exchange *exchange, const char *name);
