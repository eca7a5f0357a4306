/* server/tools/http_link.c: a server of tools behind a URL: a message is a POST, its answer a body or
 * an event of a stream. See tool_link.h. */
#include <string.h>

#include "server/tools/tool_link.h"

#if HAVE_CURL
#include <stdlib.h>
#include <strings.h>

#include "config/base/text.h"
#include "config/web/curl.h"
#include "server/fetch/web_guard.h"

/* One request on its way. */
struct exchange {
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
    char *session;        /* where a session is noted; NULL: nowhere */
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

static bool take_answer(struct exchange *exchange, struct text_span text) {
    enum status status =
        tool_reply_read(exchange->out, text, exchange->message->id, &exchange->problem);
    exchange->answered = status == STATUS_OK && exchange->out->kind == TOOL_REPLY_ANSWER;
    if (!exchange->answered) tool_reply_free(exchange->out);
    return status == STATUS_OK && !exchange->answered;
}

/* Whether more is wanted. */
static bool take_events(struct exchange *exchange) {
    struct text_span stream = {exchange->body.data, exchange->body.size};
    struct buffer event = {0};
    bool more = true;
    while (more && tool_events_next(&exchange->events, stream, &event))
        more = take_answer(exchange, (struct text_span){event.data, event.size});
    buffer_free(&event);
    return more;
}

static size_t take_body(char *bytes, size_t size, size_t n, void *context) {
    struct exchange *exchange = context;
    size_t more = size * n;
    char *type = NULL;
    exchange->too_large = more > exchange->wait->most - exchange->body.size;
    if (exchange->too_large) return 0;
    buffer_append(&exchange->body, bytes, more);
    curl_easy_getinfo(exchange->handle, CURLINFO_CONTENT_TYPE, &type);
    exchange->streams = type && strncasecmp(type, "text/event-stream", 17) == 0;
    return exchange->streams && !take_events(exchange) ? 0 : more;
}

/* A session's name is visible ASCII. */
static bool is_visible(struct text_span text) {
    for (size_t i = 0; i < text.size; i++)
        if (text.text[i] <= ' ' || text.text[i] > '~') return false;
    return text.size > 0;
}

static size_t take_header(char *bytes, size_t size, size_t n, void *context) {
    static const char name[] = "mcp-session-id:";
    struct exchange *exchange = context;
    struct text_span line = {bytes, size * n};
    size_t from = sizeof name - 1;
    if (exchange->session == NULL || line.size < from || strncasecmp(bytes, name, from) != 0)
        return size * n;
    while (from < line.size && line.text[from] == ' ') from++;
    while (line.size > from && is_blank(line.text[line.size - 1])) line.size--;
    struct text_span value = {line.text + from, line.size - from};
    if (!is_visible(value) || value.size >= TOOL_SESSION_BYTES) return size * n;
    memcpy(exchange->session, value.text, value.size);
    exchange->session[value.size] = '\0';
    return size * n;
}

/* One transfer. */

static void add_header(struct exchange *exchange, const char *name, const char *value) {
    struct buffer line = {0};
    buffer_printf(&line, "%s: %s", name, value);
    struct curl_slist *more = curl_slist_append(exchange->headers, line.data);
    CHECK(more != NULL);
    exchange->headers = more;
    buffer_free(&line);
}

static void add_headers(struct exchange *exchange) {
    const struct http_link *link = exchange->link;
    const struct tool_message *message = exchange->message;
    add_header(exchange, "Content-Type", "application/json");
    add_header(exchange, "Accept", "application/json, text/event-stream");
    add_header(exchange, "Expect", "");
    if (link->version[0]) add_header(exchange, "MCP-Protocol-Version", link->version);
    if (link->session[0]) add_header(exchange, "Mcp-Session-Id", link->session);
    if (link->modern) add_header(exchange, "Mcp-Method", message->method);
    if (link->modern && message->name) add_header(exchange, "Mcp-Name", message->name);
    if (link->token.size == 0) return;
    struct buffer bearer = {0};
    buffer_printf(&bearer, "Bearer %s", link->token.data);
    add_header(exchange, "Authorization", bearer.data);
    buffer_free(&bearer);
}

static void set_up(struct exchange *exchange) {
    CURL *h = exchange->handle;
    exchange->guard = (struct web_guard){.rule = &exchange->link->rule};
    web_guard_set(h, &exchange->guard);
    add_headers(exchange);
    curl_easy_setopt(h, CURLOPT_URL, exchange->link->url);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, exchange->headers);
    curl_easy_setopt(h, CURLOPT_POSTFIELDS, exchange->message->text.text);
    curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)exchange->message->text.size);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, exchange);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, exchange);
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

static enum status transfer(struct exchange *exchange, CURLcode *code, struct error *e) {
    CURLM *multi = curl_multi_init();
    exchange->handle = curl_easy_init();
    CHECK(multi != NULL && exchange->handle != NULL);
    set_up(exchange);
    CHECK(curl_multi_add_handle(multi, exchange->handle) == CURLM_OK);
    enum status status = run(multi, exchange->wait, code, e);
    curl_multi_remove_handle(multi, exchange->handle);
    curl_multi_cleanup(multi);
    return status;
}

static enum status explain(const struct exchange *exchange, CURLcode code, struct error *e) {
    if (exchange->too_large)
        return error_set(e, STATUS_TOO_LARGE, "it sent more than %zu bytes (option %s)",
                         exchange->wait->most, exchange->wait->most_option);
    if (exchange->guard.kept_out)
        return error_set(e, STATUS_INVALID,
                         "its host has no public address: a server in your own network is named "
                         "by its address");
    return error_set(e, STATUS_IO, "%s", curl_easy_strerror(code));
}

/* What came, once all of it is there; an answer in a stream has been read already. */
static enum status read_answer(struct exchange *exchange, int http, struct error *e) {
    struct text_span body = {exchange->body.data, exchange->body.size};
    bool wanted = exchange->message->id != 0;
    if (http / 100 == 3)
        return error_set(e, STATUS_INVALID, "it answered with a redirection, which is not followed");
    if (http / 100 == 2 && !wanted) return STATUS_OK;
    if (!exchange->streams && wanted && body.size > 0) take_answer(exchange, body);
    if (exchange->answered) return STATUS_OK;
    if (http / 100 != 2)
        return error_set(e, STATUS_INVALID, "it answered with HTTP status %d", http);
    if (exchange->problem.status) return *e = exchange->problem, e->status;
    return error_set(e, STATUS_INVALID, "what it sent has no answer to the request");
}

enum status http_link_ask(const struct http_link *link, const struct tool_message *message,
                          const struct tool_wait *wait, struct tool_reply *out, int *http,
                          char *session, struct error *e) {
    struct exchange exchange = {
        .link = link, .message = message, .wait = wait, .out = out, .session = session};
    CURLcode code = CURLE_OK;
    long status_code = 0;
    *out = (struct tool_reply){0};
    enum status status = transfer(&exchange, &code, e);
    curl_easy_getinfo(exchange.handle, CURLINFO_RESPONSE_CODE, &status_code);
    *http = (int)status_code;
    bool cut = code == CURLE_WRITE_ERROR && (exchange.answered || exchange.problem.status);
    if (status == STATUS_OK && code != CURLE_OK && !cut)
        status = explain(&exchange, code, e);
    else if (status == STATUS_OK)
        status = read_answer(&exchange, *http, e);
    curl_easy_cleanup(exchange.handle);
    curl_slist_free_all(exchange.headers);
    tool_events_free(&exchange.events);
    buffer_free(&exchange.body);
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
                          const struct tool_wait *wait, struct tool_reply *out, int *http,
                          char *session, struct error *e) {
    (void)link, (void)message, (void)wait, (void)http, (void)session;
    *out = (struct tool_reply){0};
    return no_curl(e);
}
#endif
