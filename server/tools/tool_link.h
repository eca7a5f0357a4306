/* server/tools/tool_link.h: the two ways to a server of tools: requests over HTTP, and lines to a
 * process. Each call waits in the caller's thread, for so long and for so many bytes as the caller
 * allows, and looks every few milliseconds whether anybody still wants the answer. */
#pragma once

#include <pthread.h>

#include "server/access/hosts.h"
#include "server/tools/tool_reply.h"

/* How long a caller waits, and for how much. */
struct tool_wait {
    double deadline;
    size_t most;                 /* bytes of an answer */
    const char *most_option;     /* in errors */
    const atomic_bool *unwanted; /* true: nobody waits any more; borrowed */
    const atomic_bool *stopped;  /* the same of all callers; borrowed */
};
/* STATUS_CANCELLED, or STATUS_BUSY where the deadline has passed; else STATUS_OK. */
enum status tool_wait_check(const struct tool_wait *wait, struct error *e);
/* The lock, or why it was not waited for. */
enum status tool_wait_lock(const struct tool_wait *wait, pthread_mutex_t *lock, struct error *e);
enum { TOOL_LOOK_MILLISECONDS = 50 };

/* One message to a server. */
struct tool_message {
    const char *method, *name; /* name: of the tool that it calls; NULL: none */
    int64_t id;                /* 0: a notification, which nobody answers */
    struct text_span text;     /* JSON on one line */
};

/* Over HTTP. */

enum { TOOL_SESSION_BYTES = 256 };
struct http_link {
    const char *url;                  /* borrowed */
    struct buffer token;              /* a secret that is sent as the key; size 0: none */
    struct host_rule rule;            /* by which the URL's host is called */
    char version[32];                 /* MCP-Protocol-Version; "": not known yet */
    bool modern;                      /* that version has headers of its own */
    char session[TOOL_SESSION_BYTES]; /* Mcp-Session-Id; "": there is none */
};
/* STATUS_INVALID: the URL cannot be called. STATUS_UNSUPPORTED in a build without libcurl. */
enum status http_link_open(struct http_link *link, const char *url, struct error *e);
void http_link_free(struct http_link *link);
/* The head of an answer. */
struct http_said {
    int http;                         /* its status; 0: none came */
    char session[TOOL_SESSION_BYTES]; /* that it begins; "": none */
};
/* Sends a message. Of a request the answer is read into *out, which is freed by the caller. */
enum status http_link_ask(const struct http_link *link, const struct tool_message *message,
                          const struct tool_wait *wait, struct tool_reply *out,
                          struct http_said *said, struct error *e);

/* To a process. */

struct child_link {
    int pid; /* 0: it does not run */
    int to, from;
    struct buffer unread;
    size_t taken; /* bytes of it that were read as lines */
    size_t seen;  /* bytes behind them without an end of line */
};
/* Starts the program of argv, which ends with NULL: without an environment of ours, in the folder
 * "/", in a session of its own. */
enum status child_link_open(struct child_link *link, char *const *argv, struct error *e);
/* Ends it, and all that it started in its session's group. */
void child_link_close(struct child_link *link);
enum status child_link_ask(struct child_link *link, const struct tool_message *message,
                           const struct tool_wait *wait, struct tool_reply *out, struct error *e);
