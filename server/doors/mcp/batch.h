/* server/doors/mcp/batch.h: several messages in one body. */
#pragma once

#include "server/doors/mcp/call.h"

enum { MCP_BATCH = 50 };

/* The answer to the message, which belongs to `owned`, which the answer closes; NULL: the message
 * is one of a batch, whose answer closes the document. */
struct answer *mcp_take(const struct mcp_request *request, const struct json *json,
                        struct json *owned);
/* The answers to all messages of a list, as one list; takes the document. */
struct answer *mcp_batch_open(const struct mcp_request *request, struct json *json);
