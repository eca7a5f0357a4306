/* server/doors/mcp/tools.h: the tools, a row each, and what their files share. */
#pragma once

#include "server/doors/mcp/call.h"

struct mcp_tool {
    const char *name, *title, *description;
    enum documents_access access;   /* that the server and the key must give */
    const struct json_table *table; /* of its arguments, by which they are read as well */
    const char *required;           /* arguments that must be there: "id", "a b" */
    const char *output;             /* properties of what it answers, in JSON Schema */
    const char *always;             /* of these, members that are always there, as an array */
    bool reads, destroys;           /* what annotations say */
    int most_characters;            /* of its answer; 0: few */
    /* The answer that has the tool's object as its body; NULL with *failure set. */
    struct answer *(*open)(struct mcp_call *call, const struct json *arguments,
                           struct failure *failure);
};

/* The schema of a table of arguments as one object: plain types, nothing but properties at its top.
 */
void mcp_schema_write(struct json_writer *w, const struct mcp_tool *tool,
                      const struct request_limits *limits);

/* The arguments of a tool that takes a document's id alone; json_table_free. */
struct id_arguments {
    char *id;
};
extern const struct json_table mcp_read_table, mcp_list_table, mcp_id_table;
typedef struct answer *mcp_tool_opener(struct mcp_call *call, const struct json *arguments,
                                       struct failure *failure);
mcp_tool_opener mcp_tool_search;                           /* searching.c */
mcp_tool_opener mcp_tool_read, mcp_tool_fetch;             /* reading.c */
mcp_tool_opener mcp_tool_list;                             /* listing.c */
mcp_tool_opener mcp_tool_add, mcp_tool_delete;             /* tools.c */
mcp_tool_opener mcp_tool_table_list, mcp_tool_table_query; /* table_tools.c */

/* "url" and "uri" of a document, for the object that is open; bytes [start, end) of it, or all
 * where both are 0. The url is the uri where the server has no address. */
void mcp_put_links(struct json_writer *w, const char *address, const char *id, uint64_t start,
                   uint64_t end);
