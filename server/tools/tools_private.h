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
