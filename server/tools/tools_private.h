/* server/tools/tools_private.h: what tools.c gives to tool_set.c. */
#pragma once

#include "server/tools/tool_server.h"
#include "server/tools/tools.h"

/* A server by its name, or by its number; NULL: there is none. */
struct tool_server *tools_find(struct tools *tools, struct text_span name);
struct tool_server *tools_item(struct tools *tools, int i);
/* A reference to its tools; NULL: *e says why they are not known. Old ones are asked for again in
 * the background. */
struct tool_list *tools_list(struct tools *tools, struct tool_server *server, struct error *e);
/* True: the server stops. */
const atomic_bool *tools_stopped(const struct tools *tools);

/* tool_calls.c: carries out the calls of a job, and returns when all are over. Calls of several
 * servers go side by side, and so do those of one server at a URL where all of them only read; else
 * the calls of a server follow each other in their order. */
void tool_calls_carry_out(struct tool_job *job);
