/* server/doors/mcp/stdio.h: MCP over standard input and output: a message a line. One thread reads
 * lines, and polls and writes answers in the order in which they come to be. */
#pragma once

#include "server/doors/mcp/mcp.h"

/* How far the documents are. */
enum mcp_documents { MCP_DOCUMENTS_OPENING, MCP_DOCUMENTS_OPEN, MCP_DOCUMENTS_FAILED };

struct mcp_stdio {
    struct mcp *mcp;
    const struct principal *who;
    int input, output;
    int stop;    /* can be read once the program is to end */
    int wake;    /* an eventfd, to which whoever changes `documents` writes, as answers do */
    size_t most; /* bytes of a line */
    const atomic_int *documents; /* enum mcp_documents; messages that need them wait until then */
    const char *problem;         /* why they failed, once they have */
};
/* Returns when the input has ended, when `stop` says so, or when nobody reads the output. Messages
 * that came before the end of the input have a second to be answered. */
void mcp_stdio_run(const struct mcp_stdio *stdio);
