/* server/host/options/tool_options.h: the options of tools of others: servers of MCP whose tools
 * the models may call. */
#pragma once

#include "config/options/options.h"

/* The chats that are told of the tools. */
enum tools_use {
    TOOLS_ASKED, /* those that ask for them */
    TOOLS_ALWAYS /* all that bring no tools of their own */
};

/* A server of tools.mcp: by its address, or by the command that starts it. Strings are owned and
 * never NULL. */
struct tool_server_settings {
    char *token_file; /* first: its relative path is put below the file's folder */
    char *name;
    char *url;
    struct json_list command; /* of char *: the program and its arguments */
    struct json_list tools;   /* of char *: by the names that the server gives them */
    struct json_list keys;    /* of char *: names of keys, or "*" */
};

struct tool_settings {
    struct json_list mcp; /* of struct tool_server_settings */
    int use;              /* enum tools_use */
    int max_turns, max_calls;
    int timeout, max_seconds; /* of one call; of all that one answer waits for */
    int max_result_bytes, max_result_tokens;
    int max_tokens;  /* read and written in all turns of an answer */
    int max_running; /* answers whose calls are carried out at a time */
};
extern const struct option_section tools_section;

/* Checks what no single row says: names, and that a server is either an address or a command. */
enum status tool_settings_check(const struct tool_settings *settings, struct error *e);
