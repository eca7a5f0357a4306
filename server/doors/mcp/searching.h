/* server/doors/mcp/searching.h: searches on behalf of a call. */
#pragma once

#include "server/api/documents/search.h"
#include "server/doors/mcp/call.h"

/* Takes the request. NULL with *failure set where the search cannot begin. */
struct answer *mcp_search(struct mcp_call *call, struct search_request *request,
                          struct search_writer writer, struct failure *failure);
