/* server/doors/mcp/message.h: one message of JSON-RPC as MCP has it, and why one is refused. */
#pragma once

#include "config/json/json_writer.h"

/* Codes of JSON-RPC, and of MCP. */
enum mcp_code {
    MCP_NOT_JSON = -32700,
    MCP_NO_REQUEST = -32600,
    MCP_NO_METHOD = -32601,
    MCP_BAD_PARAMS = -32602,
    MCP_INTERNAL = -32603,
    MCP_NOT_FOUND = -32002,  /* a resource, in versions to 2025-11-25 */
    MCP_HEADERS = -32020,    /* headers and body differ */
    MCP_NO_VERSION = -32022, /* a version that is not spoken */
};

/* Why there is no result. Zero-initialised: nothing has failed. */
struct mcp_fault {
    int code;        /* enum mcp_code; 0: nothing has failed */
    int http;        /* status code; 0: as the version of the protocol has it for the code */
    int retry_after; /* seconds; 0: not known to help */
    char *message;
    char *requested; /* the version, with MCP_NO_VERSION */
};
/* Fills in an empty fault. Always false, so that a check that fails is one line. */
bool mcp_fault_set(struct mcp_fault *fault, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void mcp_fault_free(struct mcp_fault *fault);

enum mcp_kind { MCP_REQUEST, MCP_NOTIFICATION, MCP_RESPONSE };

struct mcp_message {
    struct json *json; /* owned: the document; NULL: it belongs to a batch */
    enum mcp_kind kind;
    struct buffer id;          /* as JSON, of the type that it came in; empty: it has none */
    const char *method;        /* of requests and notifications */
    const struct json *params; /* an object; NULL: none */
    const struct json *meta;   /* params._meta, an object; NULL: none */
};

enum { MCP_MOST_VALUES = 200000 }; /* of one message: a document's metadata and filters are below */

/* The document of a body, which the caller closes; NULL with *fault set. */
struct json *mcp_body_parse(struct text_span text, struct mcp_fault *fault);
/* Reads one message of it, which *message borrows from. On false *fault is set, and the id is there
 * where it could be read. Free it either way. */
bool mcp_message_read(struct mcp_message *message, const struct json *json,
                      struct mcp_fault *fault);
void mcp_message_free(struct mcp_message *message);

/* Writes the object of an error, with the id ("" or NULL: null). */
void mcp_fault_write(const struct mcp_fault *fault, const char *id, struct buffer *out);

/* Versions that are spoken. */
extern const char mcp_modern_version[], mcp_newest_old_version[], mcp_batch_version[];
/* One of those that shake hands, as a constant; NULL: it is none. */
const char *mcp_version_known(const char *version);
/* All of them, newest first, as an array. */
void mcp_versions_write(struct json_writer *w);
