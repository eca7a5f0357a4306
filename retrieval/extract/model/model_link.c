/* retrieval/extract/model/model_link.c: see model_link.h. */
#include "retrieval/extract/model/model_link.h"

#if HAVE_CURL
#include <string.h>

#include "config/json/json_value.h"
#include "config/web/curl.h"

enum { MOST_ANSWER = 4 << 20, MOST_REASON = 200 };
static const double connect_seconds = 10;

struct model_transfer {
    const struct model_call *call;
    struct buffer *answer;
    bool too_large;
};

static size_t take_body(char *bytes, size_t size, size_t n, void *context) {
    struct model_transfer *transfer = context;
    transfer->too_large = size * n > MOST_ANSWER - transfer->answer->size;
    if (transfer->too_large) return 0;
    buffer_append(transfer->answer, bytes, size * n);
    return size * n;
}

static bool is_set(const atomic_bool *flag) { return flag && atomic_load(flag); }

static bool is_unwanted(const struct model_call *call) {
    return is_set(call->cancelled) || is_set(call->stopped);
}

/* Asked by libcurl about once a second, and more often while bytes come. */
static int look_up(void *context, curl_off_t down_all, curl_off_t down, curl_off_t up_all,
                   curl_off_t up) {
    const struct model_transfer *transfer = context;
    (void)down_all;
    (void)down;
    (void)up_all;
    (void)up;
    return is_unwanted(transfer->call);
}

static struct curl_slist *add_header(struct curl_slist *headers, const char *line) {
    struct curl_slist *more = curl_slist_append(headers, line);
    CHECK(more != NULL);
    return more;
}

static struct curl_slist *make_headers(const struct model_call *call) {
    struct curl_slist *headers = add_header(NULL, "Content-Type: application/json");
    headers = add_header(headers, "Expect:");
    if (call->key == NULL || call->key[0] == '\0') return headers;
    struct buffer line = {0};
    buffer_printf(&line, "Authorization: Bearer %s", call->key);
    headers = add_header(headers, line.data);
    explicit_bzero(line.data, line.size);
    buffer_free(&line);
    return headers;
}

/* No redirection is followed, and no proxy of the environment used: pages go where the operator
 * said. */
static void set_up(CURL *handle, struct model_transfer *transfer, const char *url, double seconds) {
    const struct model_call *call = transfer->call;
    curl_confine(handle);
    curl_limit(handle, seconds, connect_seconds);
    curl_easy_setopt(handle, CURLOPT_URL, url);
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, call->body.text);
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body.size);
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, look_up);
    curl_easy_setopt(handle, CURLOPT_XFERINFODATA, transfer);
}

/* People are shown the plain letters of a refusal. */
static void append_plain(struct buffer *out, const char *text) {
    for (size_t i = 0; text[i] && i < MOST_REASON; i++) {
        bool plain = text[i] >= ' ' && text[i] <= '~';
        buffer_append(out, plain ? &text[i] : "?", 1);
    }
}

static enum status explain_refusal(const struct buffer *answer, long http, struct error *e) {
    struct json *said = NULL;
    struct error ignored;
    struct buffer reason = {0};
    struct text_span text = {answer->data ? answer->data : "", answer->size};
    if (json_parse(&said, text, "answer", &ignored) == STATUS_OK) {
        const char *message = json_word(json_member(json_member(said, "error"), "message"));
        if (message) append_plain(&reason, message);
    }
    json_close(said);
    error_set(e, STATUS_INVALID, "its server answered with HTTP status %ld%s%s", http,
              reason.size > 0 ? ": " : "", reason.size > 0 ? reason.data : "");
    buffer_free(&reason);
    return e->status;
}

static enum status judge(CURL *handle, CURLcode code, const struct model_transfer *transfer,
                         struct error *e) {
    long http = 0;
    if (is_unwanted(transfer->call)) return error_set(e, STATUS_CANCELLED, "interrupted");
    if (transfer->too_large)
        return error_set(e, STATUS_INVALID, "its server sent more than %d bytes", MOST_ANSWER);
    if (code == CURLE_OPERATION_TIMEDOUT && time_now() >= transfer->call->until)
        return error_set(e, STATUS_IO, "it takes too long");
    if (code != CURLE_OK)
        return error_set(e, STATUS_IO, "its server was not reached: %s", curl_easy_strerror(code));
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &http);
    return http / 100 == 2 ? STATUS_OK : explain_refusal(transfer->answer, http, e);
}

enum status model_link_post(const struct model_call *call, struct buffer *answer, struct error *e) {
    struct model_transfer transfer = {.call = call, .answer = answer};
    struct buffer url = {0};
    size_t size = strlen(call->url);
    double seconds = call->until - time_now();
    if (seconds <= 0) return error_set(e, STATUS_IO, "it takes too long");
    while (size > 0 && call->url[size - 1] == '/') size--;
    buffer_append(&url, call->url, size);
    buffer_append_string(&url, "/chat/completions");
    curl_start();
    CURL *handle = curl_easy_init();
    CHECK(handle != NULL);
    struct curl_slist *headers = make_headers(call);
    set_up(handle, &transfer, url.data, seconds);
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
    enum status status = judge(handle, curl_easy_perform(handle), &transfer, e);
    curl_easy_cleanup(handle);
    curl_slist_free_all(headers);
    buffer_free(&url);
    return status;
}

#else

enum status model_link_post(const struct model_call *call, struct buffer *answer, struct error *e) {
    (void)call;
    (void)answer;
    return error_set(e, STATUS_UNSUPPORTED,
                     "this build has no libcurl, which extract.reader model needs; make deps "
                     "installs it");
}
#endif
