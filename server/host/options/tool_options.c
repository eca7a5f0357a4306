/* server/host/options/tool_options.c: rows of tools of others. See tool_options.h. */
#include "server/host/options/tool_options.h"

#include <string.h>

#include "server/access/hosts.h"

/* With "__" and the name of a tool behind it, a name of the 64 letters that clients take. */
enum { SERVER_NAME_MOST = 24 };

#define TEXT(member) \
    { #member, JSON_TEXT, JSON_AT(struct tool_server_settings, member), .text = "" }
#define TEXTS(member) \
    { \
#member, JSON_LIST, JSON_AT(struct tool_server_settings, member), \
            .item = &option_text_item, .item_size = sizeof(char *) \
    }
static const struct json_field server_fields[] = {
    TEXT(token_file),
    {"name", JSON_TEXT, JSON_AT(struct tool_server_settings, name), .required = true},
    TEXT(url),
    TEXTS(command),
    TEXTS(tools),
    TEXTS(keys),
};
static const struct json_table server_table = JSON_TABLE(server_fields);
static const struct json_field server_item = {"server", JSON_STRUCT, .table = &server_table};

static const struct json_choice use_choices[] = {
    {"asked", TOOLS_ASKED}, {"always", TOOLS_ALWAYS}, {NULL, 0}};

static const struct option_row tools_rows[] = {
    OPTION_STRUCTS(struct tool_settings, mcp, &server_item, sizeof(struct tool_server_settings),
                   true,
                   "MCP servers whose tools the models may call, each {\"name\", \"url\" or "
                   "\"command\", \"tools\", \"keys\", \"token_file\"}: tools and keys by name, "
                   "keys [\"*\"]: all of them; empty: no server is called"),
    OPTION_CHOICE(struct tool_settings, use, TOOLS_ASKED, use_choices,
                  "the chats that are told of these tools: those that ask for them (mcp), or all "
                  "that bring no tools of their own"),
    OPTION_INT(struct tool_settings, max_turns, 8, 1, 64,
               "turns of one answer that may end with calls of these tools"),
    OPTION_INT(struct tool_settings, max_calls, 32, 1, 1024, "calls of one answer"),
    OPTION_INT(struct tool_settings, timeout, 30, 1, 3600, "seconds that one call may take"),
    OPTION_INT(struct tool_settings, max_seconds, 120, 1, 86400,
               "seconds that the calls of one answer may take together"),
    OPTION_INT(struct tool_settings, max_result_bytes, 256 << 10, 1024, 64 << 20,
               "bytes that a server may send for one call; more are an error that the model reads"),
    OPTION_INT(struct tool_settings, max_result_tokens, 4096, 16, 1 << 20,
               "tokens of one result that the model reads; it is told how many were cut"),
    OPTION_INT(struct tool_settings, max_tokens, 200000, 1, 1 << 30,
               "tokens that the turns of one answer may read and write together, before it has to "
               "end without calls"),
    OPTION_INT(struct tool_settings, max_running, 64, 1, 1024,
               "answers whose calls are carried out at a time, of which a client has half"),
};
const struct option_section tools_section = {"tools", tools_rows, (int)ARRAY_COUNT(tools_rows)};

/* Checks. */

static bool is_name(const char *text, size_t most) {
    size_t size = strlen(text);
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '_' || c == '-';
        if (!good) return false;
    }
    return size > 0 && size <= most;
}

/* The name stands before "__", at which it ends. */
static enum status check_name(const struct tool_server_settings *server, struct error *e) {
    if (is_name(server->name, SERVER_NAME_MOST) && !strstr(server->name, "__")) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "tools.mcp: the name \"%.100s\" must be 1 to %d letters, digits, \"-\" and "
                     "\"_\", without \"__\"",
                     server->name, SERVER_NAME_MOST);
}

static enum status check_tools(const struct tool_server_settings *server, struct error *e) {
    char *const *names = server->tools.items;
    if (server->tools.count == 0)
        return error_set(e, STATUS_INVALID,
                         "tools.mcp: %s has no \"tools\": list the names of those that may be "
                         "called",
                         server->name);
    for (size_t i = 0; i < server->tools.count; i++)
        if (names[i][0] == '\0' || strlen(names[i]) > 128)
            return error_set(e, STATUS_INVALID,
                             "tools.mcp: %s: the name of a tool has 1 to 128 bytes", server->name);
    return STATUS_OK;
}

static enum status check_server(const struct tool_server_settings *server, struct error *e) {
    bool calls = server->url[0] != '\0', starts = server->command.count > 0;
    if (check_name(server, e) || check_tools(server, e)) return e->status;
    if (calls == starts)
        return error_set(e, STATUS_INVALID,
                         "tools.mcp: %s has %s: a server is called by \"url\", or started by "
                         "\"command\", a list of the program and its arguments",
                         server->name, calls ? "both url and command" : "neither url nor command");
    if (calls && strncmp(server->url, "http://", 7) != 0 &&
        strncmp(server->url, "https://", 8) != 0)
        return error_set(e, STATUS_INVALID, "tools.mcp: the url of %s is no http: or https: URL",
                         server->name);
    if (starts && ((char *const *)server->command.items)[0][0] != '/')
        return error_set(e, STATUS_INVALID,
                         "tools.mcp: the command of %s must begin with the whole path of a "
                         "program: it is started without your environment",
                         server->name);
    if (starts && server->token_file[0])
        return error_set(e, STATUS_INVALID,
                         "tools.mcp: %s has a token_file, which is sent to a url, not to a command",
                         server->name);
    return STATUS_OK;
}

enum status tool_settings_check(const struct tool_settings *settings, struct error *e) {
    const struct tool_server_settings *servers = settings->mcp.items;
    for (size_t i = 0; i < settings->mcp.count; i++) {
        if (check_server(&servers[i], e)) return e->status;
        for (size_t j = 0; j < i; j++)
            if (strcmp(servers[i].name, servers[j].name) == 0)
                return error_set(e, STATUS_INVALID, "tools.mcp: two servers are called %s",
                                 servers[i].name);
    }
    return STATUS_OK;
}
