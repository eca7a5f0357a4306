/* server/tools/tools.h: tools of others: the servers of option tools.mcp, the tools of them that a
 * request may call, and calls, which are carried out in threads of their own. No thread that serves
 * connections or writes answers waits for a server. */
#pragma once

#include "server/access/key.h"
#include "server/host/options/tool_options.h"
#include "server/tools/tool_reply.h"

struct tools;
struct tool_server;

/* Asks every server for its tools, in the background. The settings are borrowed. */
enum status tools_open(struct tools **out, const struct tool_settings *settings, struct error *e);
/* Ends all that is under way, as cancelled; later jobs are refused. NULL: nothing. */
void tools_stop(struct tools *tools);
void tools_close(struct tools *tools);
const struct tool_settings *tools_settings(const struct tools *tools);

/* The tools that one request is told of. */
struct tool_pick {
    struct tool_server *server;
    struct tool_list *list; /* a reference */
    struct json *only;      /* owned: a list of the names that were asked for; NULL: all */
};
struct tool_set {
    struct tools *tools;
    struct tool_pick *picks; /* [n] */
    int n, capacity;
};
/* Adds a server by its name, or of them the tools that `only` lists. STATUS_NOT_FOUND: there is
 * none that the key may use. STATUS_BUSY: its tools are not known. */
enum status tool_set_add(struct tool_set *set, const struct key *key, struct text_span name,
                         const struct json *only, struct error *e);
/* Adds all that the key may use and whose tools are known. */
void tool_set_add_all(struct tool_set *set, const struct key *key);
void tool_set_free(struct tool_set *set);
int tool_set_count(const struct tool_set *set); /* of tools */
/* Writes them as items of a chat's list "tools". */
void tool_set_put(const struct tool_set *set, struct json_writer *w);
/* The tool that a model calls by this name; NULL: there is none. *server: who has it. */
const struct tool *tool_set_find(const struct tool_set *set, const char *name,
                                 struct tool_server **server);
const char *tool_server_name(const struct tool_server *server);

/* One call, and what came of it. */
struct tool_ask {
    struct tool_server *server;
    const char *tool;        /* its own name, of the set */
    bool reads;              /* its server says that it only reads */
    struct buffer arguments; /* JSON */
    struct buffer result;    /* what came, or why nothing did */
    bool failed;
};

/* Calls of one turn, some of them side by side. The owner fills in the first part, and keeps it
 * until `done`. */
struct tool_job {
    struct tool_ask *asks; /* [n] */
    int n;
    uint64_t client; /* whose it is: a client has no more than half of all jobs */
    const char *who; /* the key's name, for the log; NULL: none */
    double deadline; /* of all calls together */
    atomic_bool unwanted;
    /* Called once, in a thread of its own, when all calls are over; it may take its time, and looks
     * at `unwanted` and tools_are_stopped meanwhile. */
    void (*done)(struct tool_job *job);
    struct tools *tools; /* the thread's, and so is the next */
    struct tool_job *next;
};
/* STATUS_BUSY: too many jobs run, or the server stops; then `done` is not called. */
enum status tools_ask(struct tools *tools, struct tool_job *job, struct error *e);
bool tools_are_stopped(struct tools *tools);

/* Counts a call by how it ended, a constant string of few; and the counters of all calls, as
 * Prometheus reads them. NULL: nothing. */
void tools_note_call(struct tools *tools, const struct tool_server *server, const char *outcome);
void tools_print_counts(struct tools *tools, struct buffer *out);
