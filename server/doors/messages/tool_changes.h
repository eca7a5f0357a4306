/* server/doors/messages/tool_changes.h: tools that a conversation of Messages finds, adds and takes
 * away on its way: {"type": "tool_reference", "tool_name": ...} in a result, which a search of the
 * client's has found among the tools with "defer_loading"; tool_addition and tool_removal in a
 * message of the role system. */
#pragma once

#include "config/base/lookup.h"
#include "server/doors/shared/conversation.h"

struct tool_change {
    struct text_span name; /* of the request, as the definition is */
    bool is_there;
    const struct json *definition; /* NULL: it is among the request's tools */
};
/* Zero-initialise. */
struct tool_changes {
    struct tool_change *list; /* [n] a tool each, as it is after the last message */
    int n, capacity;
    struct lookup_table by_name;
};

/* Whether a block is one of these changes. */
bool tool_change_is(const struct json *block);
/* Notes it, and says it in the conversation. False: it cannot be read. */
bool tool_change_read(struct tool_changes *changes, const struct json *block,
                      struct conversation *conversation);
/* NULL: nothing has happened to the tool. */
const struct tool_change *tool_change_find(const struct tool_changes *changes,
                                           struct text_span name);
void tool_changes_free(struct tool_changes *changes);
