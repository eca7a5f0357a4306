/* server/tools/http_link.c: a server of tools behind a URL: a message is a POST, its answer a body
 * or an event of a stream. See tool_link.h. */
#include <string.h>

#include "server/tools/tool_link.h"

#if HAVE_CURL
#include <stdlib.h>
#include <strings.h>

#include "config/base/text.h"
#include "config/web/curl.h"
#include "server/fetch/web_guard.h"

/* One request on its way. */
struct http_transfer {
    const struct http_link *link;
    const struct tool_message *message;
    const struct tool_wait *wait;
    struct tool_reply *out;
    struct web_guard guard;
    CURL *handle;
    struct curl_slist *headers;
    struct buffer body;
    struct tool_events events;
    bool streams; /* the body is a stream of events */
    bool too_large;
    bool answered;        /* *out is the answer */
    struct error problem; /* with what came */
    struct http_said *said;
};

/* The URL. */

enum status http_link_open(struct http_link *link, const char *url, struct error *e) {
    char *host = NULL, *port = NULL, *user = NULL;
    char text[300];
    curl_start();
    *link = (struct http_link){.url = url};
    CURLU *parsed = curl_url();
    CHECK(parsed != NULL);
    bool good = curl_url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK &&
                curl_url_get(parsed, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
                curl_url_get(parsed, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                curl_url_get(parsed, CURLUPART_USER, &user, 0) != CURLUE_OK;
    enum status status = STATUS_OK;
    if (good) snprintf(text, sizeof text, "%.255s:%s", host, port);
    if (!good)
        status = error_set(e, STATUS_INVALID, "%.200s is no URL that can be called%s", url,
                           user ? ": it has a user's name or password" : "");
    else
        status = host_rule_parse(&link->rule, text, e);
    curl_free(host);
    curl_free(port);
    curl_free(user);
    curl_url_cleanup(parsed);
    return status;
}

void http_link_free(struct http_link *link) { buffer_free(&link->token); }

/* Callbacks of libcurl. */

static bool take_answer(struct http_transfer *ask, struct text_span text) {
    enum status status = tool_reply_read(ask->out, text, ask->message->id, &ask->problem);
    ask->answered = status == STATUS_OK && ask->out->kind == TOOL_REPLY_ANSWER;
    if (!ask->answered) tool_reply_free(ask->out);
    return status == STATUS_OK && !ask->answered;
}

/* Whether more is wanted. */
static bool take_events(struct http_transfer *ask) {
    struct text_span stream = {ask->body.data, ask->body.size};
    struct buffer event = {0};
    bool more = true;
    while (more && tool_events_next(&ask->events, stream, &event))
        more = take_answer(ask, (struct text_span){event.data, event.size});
    buffer_free(&event);
    return more;
}

static size_t take_body(char *bytes, size_t size, size_t n, void *context) {
    struct http_transfer *ask = context;
    size_t more = size * n;
    char *type = NULL;
    ask->too_large = more > ask->wait->most - ask->body.size;
    if (ask->too_large) return 0;
    buffer_append(&ask->body, bytes, more);
    curl_easy_getinfo(ask->handle, CURLINFO_CONTENT_TYPE, &type);
    ask->streams = type && strncasecmp(type, "text/event-stream", 17) == 0;
    return ask->streams && !take_events(ask) ? 0 : more;
}

/* A session's name is visible ASCII. */
static bool is_visible(struct text_span text) {
    for (size_t i = 0; i < text.size; i++)
        if (text.text[i] <= ' ' || text.text[i] > '~') return false;
    return text.size > 0;
}

static size_t take_header(char *bytes, size_t size, size_t n, void *context) {
    static const char name[] = "mcp-session-id:";
    struct http_transfer *ask = context;
    struct text_span line = {bytes, size * n};
    size_t from = sizeof name - 1;
    if (line.size < from || strncasecmp(bytes, name, from) != 0) return size * n;
    while (from < line.size && line.text[from] == ' ') from++;
    while (line.size > from && is_blank(line.text[line.size - 1])) line.size--;
    struct text_span value = {line.text + from, line.size - from};
    if (!is_visible(value) || value.size >= TOOL_SESSION_BYTES) return size * n;
    memcpy(ask->said->session, value.text, value.size);
    ask->said->session[value.size] = '\0';
    return size * n;
}

/* One transfer. */

static void add_header(struct http_transfer *ask, const char *name, const char *value) {
    struct buffer line = {0};
    buffer_printf(&line, "%s: %s", name, value);
    struct curl_slist *more = curl_slist_append(ask->headers, line.data);
    CHECK(more != NULL);
    ask->headers = more;
    buffer_free(&line);
}

static void add_headers(struct http_transfer *ask) {
    const struct http_link *link = ask->link;
    const struct tool_message *message = ask->message;
    add_header(ask, "Content-Type", "application/json");
    add_header(ask, "Accept", "application/json, text/event-stream");
    add_header(ask, "Expect", "");
    if (link->version[0]) add_header(ask, "MCP-Protocol-Version", link->version);
    if (link->session[0]) add_header(ask, "Mcp-Session-Id", link->session);
    if (link->modern) add_header(ask, "Mcp-Method", message->method);
    if (link->modern && message->name) add_header(ask, "Mcp-Name", message->name);
    if (link->token.size == 0) return;
    struct buffer bearer = {0};
    buffer_printf(&bearer, "Bearer %s", link->token.data);
    add_header(ask, "Authorization", bearer.data);
    buffer_free(&bearer);
}

static void set_up(struct http_transfer *ask) {
    CURL *h = ask->handle;
    ask->guard = (struct web_guard){.rule = &ask->link->rule};
    web_guard_set(h, &ask->guard);
    add_headers(ask);
    curl_easy_setopt(h, CURLOPT_URL, ask->link->url);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, ask->headers);
    curl_easy_setopt(h, CURLOPT_POSTFIELDS, ask->message->text.text);
    curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)ask->message->text.size);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, ask);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, ask);
}

/* Until libcurl is done or the caller is. */
static enum status run(CURLM *multi, const struct tool_wait *wait, CURLcode *code,
                       struct error *e) {
    int running = 1, left = 0;
    while (running > 0) {
        if (tool_wait_check(wait, e)) return e->status;
        CHECK(curl_multi_perform(multi, &running) == CURLM_OK);
        if (running > 0) curl_multi_poll(multi, NULL, 0, TOOL_LOOK_MILLISECONDS, NULL);
    }
    CURLMsg *message = curl_multi_info_read(multi, &left);
    *code = message ? message->data.result : CURLE_GOT_NOTHING;
    return STATUS_OK;
}

static enum status transfer(struct http_transfer *ask, CURLcode *code, struct error *e) {
    CURLM *multi = curl_multi_init();
    ask->handle = curl_easy_init();
    CHECK(multi != NULL && ask->handle != NULL);
    set_up(ask);
    CHECK(curl_multi_add_handle(multi, ask->handle) == CURLM_OK);
    enum status status = run(multi, ask->wait, code, e);
    curl_multi_remove_handle(multi, ask->handle);
    curl_multi_cleanup(multi);
    return status;
}

static enum status explain(const struct http_transfer *ask, CURLcode code, struct error *e) {
    if (ask->too_large)
        return error_set(e, STATUS_TOO_LARGE, "it sent more than %zu bytes (option %s)",
                         ask->wait->most, ask->wait->most_option);
    if (ask->guard.kept_out)
        return error_set(e, STATUS_INVALID,
                         "its host has no public address: a server in your own network is named "
                         "by its address");
    return error_set(e, STATUS_IO, "%s", curl_easy_strerror(code));
}

/* Reads what came, once all of it is there; an answer in a stream has been read already. */
static enum status read_answer(struct http_transfer *ask, int http, struct error *e) {
    struct text_span body = {ask->body.data, ask->body.size};
    bool wanted = ask->message->id != 0;
    if (http / 100 == 3)
        return error_set(e, STATUS_INVALID,
                         "it answered with a redirection, which is not followed");
    if (http / 100 == 2 && !wanted) return STATUS_OK;
    if (!ask->streams && wanted && body.size > 0) take_answer(ask, body);
    if (ask->answered) return STATUS_OK;
    if (http / 100 != 2)
        return error_set(e, STATUS_INVALID, "it answered with HTTP status %d", http);
    if (ask->problem.status) return *e = ask->problem, e->status;
    return error_set(e, STATUS_INVALID, "what it sent has no answer to the request");
}

enum status http_link_ask(const struct http_link *link, const struct tool_message *message,
                          const struct tool_wait *wait, struct tool_reply *out,
                          struct http_said *said, struct error *e) {
    struct http_transfer ask = {
        .link = link, .message = message, .wait = wait, .out = out, .said = said};
    CURLcode code = CURLE_OK;
    long status_code = 0;
    *out = (struct tool_reply){0};
    *said = (struct http_said){0};
    enum status status = transfer(&ask, &code, e);
    curl_easy_getinfo(ask.handle, CURLINFO_RESPONSE_CODE, &status_code);
    said->http = (int)status_code;
    bool cut = code == CURLE_WRITE_ERROR && (ask.answered || ask.problem.status);
    if (status == STATUS_OK && code != CURLE_OK && !cut)
        status = explain(&ask, code, e);
    else if (status == STATUS_OK)
        status = read_answer(&ask, said->http, e);
    curl_easy_cleanup(ask.handle);
    curl_slist_free_all(ask.headers);
    tool_events_free(&ask.events);
    buffer_free(&ask.body);
    if (status) tool_reply_free(out);
    return status;
}

#else

static enum status no_curl(struct error *e) {
    return error_set(e, STATUS_UNSUPPORTED,
                     "this build has no libcurl, which a server by its url needs; make deps "
                     "installs it");
}

enum status http_link_open(struct http_link *link, const char *url, struct error *e) {
    *link = (struct http_link){.url = url};
    return no_curl(e);
}

void http_link_free(struct http_link *link) { buffer_free(&link->token); }

enum status http_link_ask(const struct http_link *link, const struct tool_message *message,
                          const struct tool_wait *wait, struct tool_reply *out,
                          struct http_said *said, struct error *e) {
    (void)link, (void)message, (void)wait;
    *said = (struct http_said){0};
    *out = (struct tool_reply){0};
    return no_curl(e);
}
#endif
