/* server/doors/mcp/words.h: the small languages of MCP here: URIs of documents, cursors of lists,
 * values of headers. */
#pragma once

#include "config/base/buffer.h"

/* A URI of ours names one of these:
 *
 *     retro://documents/ID                     a document
 *     retro://documents/ID/pages/PAGE          one of its pages, from 1
 *     retro://documents/ID/bytes/START-END     bytes of its text, END exclusive
 *     retro://paths/PATH                       the document of that name
 *
 * ID and PATH are one segment each: all but letters, digits and "-._~" is percent-encoded. */
enum mcp_place { MCP_WHOLE, MCP_PAGE, MCP_BYTES, MCP_PATH };
struct mcp_uri {
    enum mcp_place place;
    struct buffer name; /* the id or the path, decoded: UTF-8 without NUL */
    int64_t page, start, end;
};
/* False: it is none of ours. Free it either way. */
bool mcp_uri_parse(struct mcp_uri *uri, struct text_span text);
void mcp_uri_free(struct mcp_uri *uri);
void mcp_uri_print(const char *id, struct buffer *out);
void mcp_uri_print_bytes(const char *id, uint64_t start, uint64_t end, struct buffer *out);
/* Appends text as one segment of a URI. */
void mcp_segment_print(const char *text, struct buffer *out);

/* A cursor holds the last id of the page before, so that documents which come or go shift none out
 * of the pages. `list` says of which list: a cursor of another one is refused. */
void mcp_cursor_print(const char *list, const char *last, struct buffer *out);
/* Appends the id to *last; false: it is no cursor of that list. */
bool mcp_cursor_parse(const char *list, struct text_span text, struct buffer *last);

/* Appends a header's value as it was meant: "=?base64?...?=" is decoded. False: it cannot be. */
bool mcp_header_decode(const char *value, struct buffer *out);
