/* server/tools/tool_server.c: see tool_server.h. */
#include "server/tools/tool_server.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"

#define MODERN_VERSION "2026-07-28"
#define OLD_VERSION "2025-11-25"

enum {
    LIST_PAGES = 16,
    LIST_BYTES = 1 << 20,  /* of a page of tools */
    TOKEN_BYTES = 4 << 10, /* of the file of a key */
    GREETING_SECONDS = 5   /* before a server that says nothing is greeted in the older way */
};

enum era { ERA_UNKNOWN, ERA_MODERN, ERA_OLD };

struct tool_server {
    const struct tool_server_settings *settings;
    char **argv;           /* [..., NULL] of a command; NULL: a URL */
    pthread_mutex_t asked; /* held while a process is asked, and while a server is greeted */
    struct child_link child;
    struct http_link http; /* `lock` guards version, modern and session */
    pthread_mutex_t lock;  /* guards the rest */
    enum era era;
    int64_t last_id;
    struct tool_list *list; /* a reference; NULL: there is none */
    struct error problem;   /* why there is none */
    double asked_at;        /* when that became known; 0: never */
};

/* Opening. */

static enum status read_token(struct tool_server *server, struct error *e) {
    const char *path = server->settings->token_file;
    struct buffer *token = &server->http.token;
    if (path[0] == '\0') return STATUS_OK;
    if (file_read(path, TOKEN_BYTES, token, e)) return e->status;
    while (token->size > 0 && is_blank(token->data[token->size - 1])) token->size--;
    for (size_t i = 0; i < token->size; i++)
        if (token->data[i] <= ' ' || token->data[i] > '~')
            return error_set(e, STATUS_INVALID, "%s: a key is one word of visible ASCII", path);
    if (token->size == 0) return error_set(e, STATUS_INVALID, "%s: there is no key in it", path);
    token->data[token->size] = '\0';
    return STATUS_OK;
}

static void copy_command(struct tool_server *server) {
    const struct json_list *command = &server->settings->command;
    server->argv = xcalloc(command->count + 1, sizeof(char *));
    for (size_t i = 0; i < command->count; i++) server->argv[i] = ((char **)command->items)[i];
}

enum status tool_server_open(struct tool_server **out, const struct tool_server_settings *settings,
                             struct error *e) {
    struct tool_server *server = xcalloc(1, sizeof *server);
    enum status status = STATUS_OK;
    server->settings = settings;
    server->child = (struct child_link){.to = -1, .from = -1};
    pthread_mutex_init(&server->asked, NULL);
    pthread_mutex_init(&server->lock, NULL);
    if (settings->command.count > 0)
        copy_command(server);
    else if ((status = http_link_open(&server->http, settings->url, e)) == STATUS_OK)
        status = read_token(server, e);
    if (status == STATUS_OK) {
        *out = server;
        return STATUS_OK;
    }
    tool_server_close(server);
    return error_prefix(e, "tools.mcp: %s", settings->name);
}

void tool_server_close(struct tool_server *server) {
    if (server == NULL) return;
    child_link_close(&server->child);
    http_link_free(&server->http);
    tool_list_release(server->list);
    pthread_mutex_destroy(&server->asked);
    pthread_mutex_destroy(&server->lock);
    free(server->argv);
    free(server);
}

const struct tool_server_settings *tool_server_settings(const struct tool_server *server) {
    return server->settings;
}

/* Messages. */

static int64_t next_id(struct tool_server *server) {
    pthread_mutex_lock(&server->lock);
    int64_t id = ++server->last_id;
    pthread_mutex_unlock(&server->lock);
    return id;
}

static void put_client(struct json_writer *w, const char *key) {
    put_key_object(w, key);
    put_key_string(w, "name", "retro-server");
    put_key_string(w, "version", RETRO_VERSION);
    put_object_end(w);
}

static void put_meta(struct json_writer *w) {
    put_key_object(w, "_meta");
    put_key_string(w, "io.modelcontextprotocol/protocolVersion", MODERN_VERSION);
    put_key_object(w, "io.modelcontextprotocol/clientCapabilities");
    put_object_end(w);
    put_client(w, "io.modelcontextprotocol/clientInfo");
    put_object_end(w);
}

/* One request, as it is written: its parameters are open between the two. */
struct request {
    struct tool_message message;
    struct buffer text;
    struct json_writer w;
    bool modern;
};

static void request_begin(struct request *request, const char *method, int64_t id, bool modern) {
    *request = (struct request){.message = {.method = method, .id = id}, .modern = modern};
    put_begin(&request->w, &request->text);
    put_object(&request->w);
    put_key_string(&request->w, "jsonrpc", "2.0");
    if (id) put_key_int(&request->w, "id", id);
    put_key_string(&request->w, "method", method);
    put_key_object(&request->w, "params");
}

static void request_end(struct request *request) {
    if (request->modern) put_meta(&request->w);
    put_object_end(&request->w);
    put_object_end(&request->w);
    request->message.text = (struct text_span){request->text.data, request->text.size};
}

/* The answer of a process. One that was given up is still busy with it, and would keep the next
 * asker waiting: it ends, and is started again. */
static enum status ask_child(struct tool_server *server, const struct tool_message *message,
                             const struct tool_wait *wait, struct tool_reply *out,
                             struct error *e) {
    enum status status = child_link_ask(&server->child, message, wait, out, e);
    if (status == STATUS_OK) return status;
    tool_reply_free(out);
    child_link_close(&server->child);
    pthread_mutex_lock(&server->lock);
    server->era = ERA_UNKNOWN;
    pthread_mutex_unlock(&server->lock);
    return status;
}

/* Greeting. */

static bool speaks_modern(const struct tool_reply *reply) {
    const struct json *versions = json_member(reply->result, "supportedVersions");
    for (size_t i = 0; i < json_count(versions); i++)
        if (json_text_is(json_item(versions, i), MODERN_VERSION)) return true;
    return false;
}

/* The way that a message goes, and how its answer began. */
struct sending {
    const struct http_link *link;
    const struct tool_wait *wait;
    struct http_said said;
};

static enum status send(struct tool_server *server, const struct tool_message *message,
                        struct sending *way, struct tool_reply *out, struct error *e) {
    if (server->argv) return ask_child(server, message, way->wait, out, e);
    return http_link_ask(way->link, message, way->wait, out, &way->said, e);
}

/* Whether the server speaks the latest version; one that does not is greeted in the older way. */
static enum status discover(struct tool_server *server, struct http_link *link,
                            const struct tool_wait *wait, bool *modern, struct error *e) {
    struct tool_wait greeting = *wait;
    struct sending way = {.link = link, .wait = &greeting};
    struct request request;
    struct tool_reply reply;
    double latest = time_now() + GREETING_SECONDS;
    if (greeting.deadline > latest) greeting.deadline = latest;
    snprintf(link->version, sizeof link->version, "%s", MODERN_VERSION);
    link->modern = true;
    request_begin(&request, "server/discover", next_id(server), true);
    request_end(&request);
    enum status status = send(server, &request.message, &way, &reply, e);
    *modern = status == STATUS_OK && speaks_modern(&reply);
    tool_reply_free(&reply);
    buffer_free(&request.text);
    if (status == STATUS_CANCELLED || status == STATUS_TOO_LARGE) return status;
    return tool_wait_check(wait, e);
}

static enum status begin_session(struct tool_server *server, struct http_link *link,
                                 const struct tool_wait *wait, struct error *e) {
    struct sending way = {.link = link, .wait = wait};
    struct request request;
    struct tool_reply reply;
    *link = (struct http_link){.url = link->url, .token = link->token, .rule = link->rule};
    request_begin(&request, "initialize", next_id(server), false);
    put_key_string(&request.w, "protocolVersion", OLD_VERSION);
    put_key_object(&request.w, "capabilities");
    put_object_end(&request.w);
    put_client(&request.w, "clientInfo");
    request_end(&request);
    enum status status = send(server, &request.message, &way, &reply, e);
    memcpy(link->session, way.said.session, sizeof link->session);
    if (status == STATUS_OK && reply.result == NULL) status = tool_reply_error(&reply, e);
    struct text_span version = json_text(json_member(reply.result, "protocolVersion"));
    if (status == STATUS_OK && (version.size == 0 || version.size >= sizeof link->version))
        status = error_set(e, STATUS_INVALID, "its answer to initialize has no protocolVersion");
    if (status == STATUS_OK) snprintf(link->version, sizeof link->version, "%s", version.text);
    tool_reply_free(&reply);
    buffer_free(&request.text);
    return status;
}

static enum status confirm_session(struct tool_server *server, const struct http_link *link,
                                   const struct tool_wait *wait, struct error *e) {
    struct sending way = {.link = link, .wait = wait};
    struct request request;
    struct tool_reply reply;
    request_begin(&request, "notifications/initialized", 0, false);
    request_end(&request);
    enum status status = send(server, &request.message, &way, &reply, e);
    buffer_free(&request.text);
    return status;
}

static enum era era_of(struct tool_server *server) {
    pthread_mutex_lock(&server->lock);
    enum era era = server->era;
    pthread_mutex_unlock(&server->lock);
    return era;
}

/* Starts a process that does not run, and greets a server that was not greeted; `asked` is held. */
static enum status greet(struct tool_server *server, const struct tool_wait *wait,
                         struct error *e) {
    struct http_link link = server->http;
    bool modern = false;
    if (server->argv && server->child.pid == 0 && child_link_open(&server->child, server->argv, e))
        return e->status;
    if (era_of(server) != ERA_UNKNOWN) return STATUS_OK;
    if (discover(server, &link, wait, &modern, e)) return e->status;
    if (server->argv && server->child.pid == 0 && child_link_open(&server->child, server->argv, e))
        return e->status; /* it ended over a message that it did not know */
    if (!modern &&
        (begin_session(server, &link, wait, e) || confirm_session(server, &link, wait, e)))
        return e->status;
    pthread_mutex_lock(&server->lock);
    server->http = link;
    server->era = modern ? ERA_MODERN : ERA_OLD;
    pthread_mutex_unlock(&server->lock);
    return STATUS_OK;
}

/* Asking. */

/* A method with its parameters. */
struct tool_question {
    const char *method, *name; /* name: of the tool that is called; NULL: none */
    void (*put)(struct json_writer *w, const void *context); /* the members of the parameters */
    const void *context;
    const struct tool_wait *wait;
};

static enum status ask_once(struct tool_server *server, const struct tool_question *question,
                            struct tool_reply *out, int *http, struct error *e) {
    struct request request;
    *out = (struct tool_reply){0};
    *http = 0;
    if (tool_wait_lock(question->wait, &server->asked, e)) return e->status;
    enum status status = greet(server, question->wait, e);
    pthread_mutex_lock(&server->lock);
    struct http_link link = server->http;
    bool modern = server->era == ERA_MODERN;
    pthread_mutex_unlock(&server->lock);
    if (server->argv == NULL) pthread_mutex_unlock(&server->asked);

    if (status == STATUS_OK) {
        struct sending way = {.link = &link, .wait = question->wait};
        request_begin(&request, question->method, next_id(server), modern);
        question->put(&request.w, question->context);
        request_end(&request);
        request.message.name = question->name;
        status = send(server, &request.message, &way, out, e);
        *http = way.said.http;
        buffer_free(&request.text);
    }
    if (server->argv) pthread_mutex_unlock(&server->asked);
    return status;
}

/* A session that the server does not know any more is begun anew, once. */
static enum status ask(struct tool_server *server, const struct tool_question *question,
                       struct tool_reply *out, struct error *e) {
    int http;
    enum status status = ask_once(server, question, out, &http, e);
    if (status != STATUS_OK && http == 404) {
        pthread_mutex_lock(&server->lock);
        server->era = ERA_UNKNOWN;
        pthread_mutex_unlock(&server->lock);
        status = ask_once(server, question, out, &http, e);
    }
    if (status == STATUS_OK && out->result == NULL) status = tool_reply_error(out, e);
    if (status) tool_reply_free(out);
    return status;
}

/* The list of tools. */

static void put_cursor(struct json_writer *w, const void *context) {
    const struct buffer *cursor = context;
    if (cursor->size > 0) put_key_string_n(w, "cursor", cursor->data, cursor->size);
}

static enum status read_list(struct tool_server *server, const struct tool_wait *wait,
                             struct tool_list *list, struct error *e) {
    const struct json_list *allowed = &server->settings->tools;
    const struct tool_names names = {server->settings->name, allowed->items, allowed->count};
    struct buffer cursor = {0};
    const struct tool_question question = {
        .method = "tools/list", .put = put_cursor, .context = &cursor, .wait = wait};
    enum status status = STATUS_OK;
    bool more = true;
    for (int page = 0; more && status == STATUS_OK && page < LIST_PAGES; page++) {
        struct tool_reply reply;
        status = ask(server, &question, &reply, e);
        if (status) break;
        struct text_span next = json_text(json_member(reply.result, "nextCursor"));
        status = tool_list_add(list, reply.result, &names, e);
        buffer_clear(&cursor);
        buffer_append(&cursor, next.text, next.size);
        more = next.size > 0;
        tool_reply_free(&reply);
    }
    buffer_free(&cursor);
    return status;
}

enum status tool_server_refresh(struct tool_server *server, const struct tool_wait *wait,
                                struct error *e) {
    struct tool_list *list = tool_list_open();
    struct tool_wait longer = *wait;
    longer.most = LIST_BYTES;
    longer.most_option = "none, for a list of tools";
    enum status status = read_list(server, &longer, list, e);
    bool read = status == STATUS_OK;
    if (read && list->n == 0)
        status = error_set(e, STATUS_NOT_FOUND, "it has none of the tools that tools.mcp allows");
    pthread_mutex_lock(&server->lock);
    if (read) {
        tool_list_release(server->list);
        server->list = status ? NULL : list;
    }
    server->problem = status ? *e : (struct error){0};
    server->asked_at = time_now();
    pthread_mutex_unlock(&server->lock);
    if (status) tool_list_release(list);
    return status;
}

struct tool_list *tool_server_list(struct tool_server *server, double *age, struct error *e) {
    pthread_mutex_lock(&server->lock);
    struct tool_list *list = server->list;
    if (list) tool_list_hold(list);
    *e = server->problem;
    *age = server->asked_at > 0 ? time_now() - server->asked_at : HUGE_VAL;
    pthread_mutex_unlock(&server->lock);
    if (list == NULL && e->status == STATUS_OK)
        error_set(e, STATUS_BUSY, "it has not answered yet");
    return list;
}

/* Calls. */

struct asked_call {
    const char *tool;
    struct text_span arguments;
};

static void put_call(struct json_writer *w, const void *context) {
    const struct asked_call *call = context;
    put_key_string(w, "name", call->tool);
    put_key(w, "arguments");
    put_raw(w, call->arguments);
}

enum status tool_server_call(struct tool_server *server, const char *tool,
                             struct text_span arguments, const struct tool_wait *wait,
                             struct tool_result *out, struct error *e) {
    struct asked_call call = {tool, arguments};
    const struct tool_question question = {"tools/call", tool, put_call, &call, wait};
    struct tool_reply reply = {0};
    enum status status = json_check(arguments) == JSON_KIND_OBJECT
                             ? ask(server, &question, &reply, e)
                             : error_set(e, STATUS_INVALID, "arguments must be an object");
    if (status == STATUS_OK) out->failed = tool_result_read(reply.result, &out->text);
    tool_reply_free(&reply);
    return status;
}
