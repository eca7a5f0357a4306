/* server/tools/tool_list.c: the tools of a server, as they are told to a model. See tool_reply.h.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "server/tools/tool_reply.h"

enum {
    TOOLS_MOST = 128,
    TOOL_BYTES_MOST = 256 << 10, /* of all tools of a server: each prompt has them */
    NAME_MOST = 64               /* of the letters that clients and templates take */
};

struct tool_list *tool_list_open(void) {
    struct tool_list *list = xcalloc(1, sizeof *list);
    atomic_init(&list->references, 1);
    return list;
}

void tool_list_hold(struct tool_list *list) { atomic_fetch_add(&list->references, 1); }

void tool_list_release(struct tool_list *list) {
    if (list == NULL || atomic_fetch_sub(&list->references, 1) != 1) return;
    for (int i = 0; i < list->n; i++) {
        free(list->tools[i].name);
        buffer_free(&list->tools[i].json);
    }
    free(list->tools);
    free(list);
}

/* A name of letters that all clients take: others become "_". */
void tool_name_print(const char *server, const char *tool, struct buffer *out) {
    buffer_printf(out, "%s__", server);
    for (const char *at = tool; *at; at++) {
        bool good = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                    (*at >= '0' && *at <= '9') || *at == '-' || *at == '_';
        buffer_append(out, good ? at : "_", 1);
    }
}

static bool is_allowed(const struct tool_names *names, const char *name) {
    for (size_t i = 0; i < names->n; i++)
        if (strcmp(names->allowed[i], name) == 0) return true;
    return false;
}

static bool is_there(const struct tool_list *list, const char *name) {
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->tools[i].name, name) == 0) return true;
    return false;
}

static void write_tool(struct buffer *out, const struct json *tool, const char *name) {
    const struct json *description = json_member(tool, "description");
    struct json_writer w;
    put_begin_spaced(&w, out);
    put_object(&w);
    put_key_string(&w, "type", "function");
    put_key_object(&w, "function");
    put_key_string(&w, "name", name);
    if (json_is_text(description)) {
        put_key(&w, "description");
        put_json(&w, description);
    }
    put_key(&w, "parameters");
    put_json(&w, json_member(tool, "inputSchema"));
    put_object_end(&w);
    put_object_end(&w);
}

static enum status add_tool(struct tool_list *list, const struct json *tool,
                            const struct tool_names *names, struct error *e) {
    const char *own = json_word(json_member(tool, "name"));
    struct buffer name = {0};
    if (own == NULL || own[0] == '\0')
        return error_set(e, STATUS_INVALID, "the list of tools has one without a name");
    if (!is_allowed(names, own) || is_there(list, own)) return STATUS_OK;
    if (json_kind(json_member(tool, "inputSchema")) != JSON_KIND_OBJECT)
        return error_set(e, STATUS_INVALID, "the tool %.100s has no inputSchema that is an object",
                         own);
    tool_name_print(names->server, own, &name);
    if (name.size > NAME_MOST) {
        error_set(e, STATUS_INVALID, "the name %.200s has more than %d letters", name.data,
                  NAME_MOST);
        buffer_free(&name);
        return e->status;
    }
    list->tools = xgrow(list->tools, list->n, &list->capacity, sizeof *list->tools);
    struct tool *added = &list->tools[list->n];
    const struct json *annotations = json_member(tool, "annotations");
    *added = (struct tool){.name = xstrdup(own),
                           .reads = json_bool(json_member(annotations, "readOnlyHint"))};
    list->n++;
    write_tool(&added->json, tool, name.data);
    list->bytes += added->json.size;
    buffer_free(&name);
    return STATUS_OK;
}

enum status tool_list_add(struct tool_list *list, const struct json *result,
                          const struct tool_names *names, struct error *e) {
    const struct json *tools = json_member(result, "tools");
    if (!json_is_list(tools))
        return error_set(e, STATUS_INVALID, "tools/list has no list of tools");
    for (size_t i = 0; i < json_count(tools); i++) {
        if (add_tool(list, json_item(tools, i), names, e)) return e->status;
        if (list->n > TOOLS_MOST || list->bytes > TOOL_BYTES_MOST)
            return error_set(e, STATUS_TOO_LARGE,
                             "its allowed tools are more than %d, or have more than %d bytes",
                             TOOLS_MOST, TOOL_BYTES_MOST);
    }
    return STATUS_OK;
}
