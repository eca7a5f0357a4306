/* server/doors/messages/tool_changes.c: see tool_changes.h. */
#include "server/doors/messages/tool_changes.h"

#include <stdlib.h>

#include "config/base/text.h"

static bool type_is(const struct json *block, const char *type) {
    return json_text_is(json_member(block, "type"), type);
}

bool tool_change_is(const struct json *block) {
    return type_is(block, "tool_reference") || type_is(block, "tool_addition") ||
           type_is(block, "tool_removal");
}

static int find(const struct tool_changes *changes, struct text_span name) {
    uint64_t hash = lookup_hash(name.text, name.size);
    size_t at = 0;
    int i = lookup_next(&changes->by_name, hash, &at);
    while (i >= 0 && !span_equals(changes->list[i].name, name))
        i = lookup_next(&changes->by_name, hash, &at);
    return i;
}

const struct tool_change *tool_change_find(const struct tool_changes *changes,
                                           struct text_span name) {
    int i = name.text ? find(changes, name) : -1;
    return i >= 0 ? &changes->list[i] : NULL;
}

static void note(struct tool_changes *changes, struct tool_change change) {
    int i = find(changes, change.name);
    if (i < 0) {
        i = changes->n;
        changes->list = xgrow(changes->list, changes->n, &changes->capacity, sizeof *changes->list);
        lookup_add(&changes->by_name, lookup_hash(change.name.text, change.name.size), i);
        changes->n++;
    } else if (change.definition == NULL) {
        change.definition = changes->list[i].definition;
    }
    changes->list[i] = change;
}

static void say(struct conversation *conversation, const struct tool_change *change) {
    struct buffer text = {0};
    buffer_append_string(&text, "[The tool ");
    buffer_append(&text, change->name.text, change->name.size);
    buffer_append_string(&text, change->is_there ? " can be called now.]" : " is gone.]");
    conversation_say(conversation, (struct text_span){text.data, text.size});
    buffer_free(&text);
}

/* A tool is named in a result, and within the block of a change in a message. */
bool tool_change_read(struct tool_changes *changes, const struct json *block,
                      struct conversation *conversation) {
    const struct json *tool = json_member(block, "tool"), *name = json_member(block, "tool_name");
    struct tool_change change = {.is_there = !type_is(block, "tool_removal")};
    if (!type_is(block, "tool_reference")) {
        if (type_is(tool, "tool_definition")) change.definition = json_member(tool, "definition");
        name = json_member(change.definition ? change.definition : tool, "name");
    }
    if (!json_is_text(name)) return false;
    change.name = json_text(name);
    note(changes, change);
    say(conversation, &change);
    return true;
}

void tool_changes_free(struct tool_changes *changes) {
    free(changes->list);
    lookup_free(&changes->by_name);
    *changes = (struct tool_changes){0};
}
