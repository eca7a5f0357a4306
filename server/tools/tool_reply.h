/* server/tools/tool_reply.h: what a server of tools sends, which is a stranger's: messages, events
 * of a stream, lists of tools, results of calls. Nothing here opens a connection. */
#pragma once

#include <stdatomic.h>

#include "config/json/json_writer.h"

/* A message, as far as whoever waits for the answer to a request is concerned. */
enum tool_reply_kind {
    TOOL_REPLY_ANSWER,  /* the answer that is waited for */
    TOOL_REPLY_REQUEST, /* the server asks for something itself */
    TOOL_REPLY_OTHER    /* a notification, or an answer to somebody else */
};

struct tool_reply {
    enum tool_reply_kind kind;
    struct json *json;         /* owned: the message */
    const struct json *result; /* of an answer; NULL: there is an error in its place */
    int64_t code;              /* of that error */
};

/* Reads one message; STATUS_INVALID says what it is instead. tool_reply_free it either way. */
enum status tool_reply_read(struct tool_reply *out, struct text_span text, int64_t id,
                            struct error *e);
/* The error of an answer, as STATUS_INVALID. */
enum status tool_reply_error(const struct tool_reply *reply, struct error *e);
void tool_reply_free(struct tool_reply *reply);
/* The answer to a request of the server's: an empty result to "ping", a refusal of all else. */
void tool_reply_put_refusal(const struct tool_reply *request, struct buffer *out);

/* Events of a stream that grows. Zeroed at first. */
struct tool_events {
    size_t at;          /* bytes that were read: whole lines */
    size_t seen;        /* bytes behind them without an end of line */
    struct buffer data; /* of the event that is not complete */
};
/* Moves the data of the next complete event to *event, which it clears first; false: there is none
 * yet. */
bool tool_events_next(struct tool_events *events, struct text_span stream, struct buffer *event);
void tool_events_free(struct tool_events *events);

/* One tool, as it is told to a model. */
struct tool {
    char *name;         /* the server's own */
    struct buffer json; /* {"type": "function", "function": {...}}, its name behind the server's */
    bool reads;         /* the server says that it only reads */
};

/* Counted, and constant once it is complete. */
struct tool_list {
    struct tool *tools; /* [n] */
    int n, capacity;
    size_t bytes; /* of their JSON */
    atomic_int references;
};
struct tool_list *tool_list_open(void);
void tool_list_hold(struct tool_list *list);
void tool_list_release(struct tool_list *list); /* NULL: nothing */

/* The tools that may be called of a server called `server`. */
struct tool_names {
    const char *server;
    char *const *allowed; /* [n] */
    size_t n;
};
/* Adds the allowed tools of a page of tools/list. STATUS_INVALID and STATUS_TOO_LARGE. */
enum status tool_list_add(struct tool_list *list, const struct json *result,
                          const struct tool_names *names, struct error *e);
/* The name that a model calls a tool by. */
void tool_name_print(const char *server, const char *tool, struct buffer *out);

/* Appends the text of a call's result. Whether the tool failed. */
bool tool_result_read(const struct json *result, struct buffer *text);
