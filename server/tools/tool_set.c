/* server/tools/tool_set.c: the tools that a request is told of. See tools.h. */
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "server/tools/tools_private.h"

/* Rights. */

static bool may_use(const struct tool_server *server, const struct key *key) {
    const struct json_list *keys = &tool_server_settings(server)->keys;
    char *const *names = keys->items;
    if (key == NULL) return true;
    for (size_t i = 0; i < keys->count; i++)
        if (strcmp(names[i], "*") == 0 || strcmp(names[i], key->name) == 0) return true;
    return false;
}

static bool has_server(const struct tool_set *set, const struct tool_server *server) {
    for (int i = 0; i < set->n; i++)
        if (set->picks[i].server == server) return true;
    return false;
}

static void add_pick(struct tool_set *set, struct tool_pick pick) {
    set->picks = xgrow(set->picks, set->n, &set->capacity, sizeof *set->picks);
    set->picks[set->n] = pick;
    set->n++;
}

/* A copy, which outlives the request's own. */
static struct json *copy_names(const struct json *names) {
    struct buffer text = {0};
    struct json_writer w;
    struct json *out = NULL;
    struct error e;
    if (!json_is_list(names)) return NULL;
    put_begin(&w, &text);
    put_json(&w, names);
    CHECK(json_parse(&out, (struct text_span){text.data, text.size}, "names", &e) == STATUS_OK);
    buffer_free(&text);
    return out;
}

static bool lists(const struct json *only, const char *name) {
    if (only == NULL) return true;
    for (size_t i = 0; i < json_count(only); i++)
        if (json_text_is(json_item(only, i), name)) return true;
    return false;
}

/* The same words whether a server is another key's or not there at all. */
enum status tool_set_add(struct tool_set *set, const struct key *key, struct text_span name,
                         const struct json *only, struct error *e) {
    struct tool_server *server = tools_find(set->tools, name);
    struct tool_list *list;
    if (server == NULL || !may_use(server, key))
        return error_set(e, STATUS_NOT_FOUND,
                         "there is no server of tools called %.*s that this key may use (option "
                         "tools.mcp)",
                         (int)(name.size < 100 ? name.size : 100), name.text ? name.text : "");
    if (has_server(set, server)) return STATUS_OK;
    list = tools_list(set->tools, server, e);
    if (list == NULL) {
        e->status = STATUS_BUSY;
        return error_prefix(e, "the server of tools %s", tool_server_name(server));
    }
    add_pick(set, (struct tool_pick){server, list, copy_names(only)});
    return STATUS_OK;
}

void tool_set_add_all(struct tool_set *set, const struct key *key) {
    struct tool_server *server;
    for (int i = 0; (server = tools_item(set->tools, i)) != NULL; i++) {
        struct error e;
        struct tool_list *list = may_use(server, key) ? tools_list(set->tools, server, &e) : NULL;
        if (list) add_pick(set, (struct tool_pick){server, list, NULL});
    }
}

void tool_set_free(struct tool_set *set) {
    for (int i = 0; i < set->n; i++) {
        tool_list_release(set->picks[i].list);
        json_close(set->picks[i].only);
    }
    free(set->picks);
    *set = (struct tool_set){0};
}

/* The tools of a set. */

int tool_set_count(const struct tool_set *set) {
    int n = 0;
    for (int i = 0; i < set->n; i++)
        for (int j = 0; j < set->picks[i].list->n; j++)
            n += lists(set->picks[i].only, set->picks[i].list->tools[j].name);
    return n;
}

void tool_set_put(const struct tool_set *set, struct json_writer *w) {
    for (int i = 0; i < set->n; i++) {
        const struct tool_list *list = set->picks[i].list;
        for (int j = 0; j < list->n; j++) {
            const struct buffer *json = &list->tools[j].json;
            if (lists(set->picks[i].only, list->tools[j].name))
                put_raw(w, (struct text_span){json->data, json->size});
        }
    }
}

static const struct tool *find_in(const struct tool_pick *pick, const char *name) {
    const struct tool *found = NULL;
    struct buffer told = {0};
    for (int i = 0; i < pick->list->n && found == NULL; i++) {
        const struct tool *tool = &pick->list->tools[i];
        buffer_clear(&told);
        tool_name_print(tool_server_name(pick->server), tool->name, &told);
        if (strcmp(told.data, name) == 0 && lists(pick->only, tool->name)) found = tool;
    }
    buffer_free(&told);
    return found;
}

const struct tool *tool_set_find(const struct tool_set *set, const char *name,
                                 struct tool_server **server) {
    for (int i = 0; i < set->n; i++) {
        const struct tool *tool = find_in(&set->picks[i], name);
        *server = set->picks[i].server;
        if (tool) return tool;
    }
    return NULL;
}

const char *tool_server_name(const struct tool_server *server) {
    return tool_server_settings(server)->name;
}
