/* server/doors/mcp/reading.h: what readers and lists of documents share. */
#pragma once

/* The media type of a document's text, by its path. */
const char *mcp_media_type(const char *path);
