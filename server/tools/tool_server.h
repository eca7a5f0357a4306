/* server/tools/tool_server.h: one server of tools as a client of MCP sees it: which generation of
 * the protocol it speaks, its session, its tools, calls of these. Threads may call at the same
 * time; a server that is a process answers one after the other. */
#pragma once

#include "server/host/options/tool_options.h"
#include "server/tools/tool_link.h"

struct tool_server;

/* Reads the key's file, and checks the URL; nothing is called or started yet. The settings are
 * borrowed and outlive the server. */
enum status tool_server_open(struct tool_server **out, const struct tool_server_settings *settings,
                             struct error *e);
void tool_server_close(struct tool_server *server); /* NULL: nothing */
const struct tool_server_settings *tool_server_settings(const struct tool_server *server);

/* Asks for the list of tools, and keeps it; the one before stays where no answer comes. */
enum status tool_server_refresh(struct tool_server *server, const struct tool_wait *wait,
                                struct error *e);
/* A reference to the list as it was asked for last; NULL: it was not, or *e says why it could not
 * be. *age: seconds since then. */
struct tool_list *tool_server_list(struct tool_server *server, double *age, struct error *e);

/* A tool's result. */
struct tool_result {
    struct buffer text;
    bool failed; /* the tool says so */
};
/* Calls a tool with arguments that are a JSON object; the text is appended to out->text. An error
 * is the server's. */
enum status tool_server_call(struct tool_server *server, const char *tool,
                             struct text_span arguments, const struct tool_wait *wait,
                             struct tool_result *out, struct error *e);
