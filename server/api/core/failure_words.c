/* server/api/core/failure_words.c: failures as the clients of each protocol read them:
 *     OpenAI     {"error": {"message", "type", "param", "code"}}
 *     Anthropic  {"type": "error", "error": {"type", "message"}, "request_id"}
 *     Ollama     {"error": "message"} */
#include <string.h>

#include "config/json/json_writer.h"
#include "server/api/core/failure.h"

enum { OVERLOADED = 529 }; /* Anthropic's 503: clients come back later */

enum failure_words failure_words_of(const char *path) {
    static const struct {
        const char *path; /* and all below it */
        enum failure_words words;
    } rows[] = {{"/v1/messages", WORDS_ANTHROPIC}, {"/api", WORDS_OLLAMA}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        size_t size = strlen(rows[i].path);
        if (strncmp(path, rows[i].path, size) == 0 && (path[size] == '\0' || path[size] == '/'))
            return rows[i].words;
    }
    return WORDS_OPENAI;
}

int failure_status(const struct failure *failure) {
    bool overloaded = failure->form.words == WORDS_ANTHROPIC && failure->http == 503;
    return overloaded ? OVERLOADED : failure->http;
}

/* OpenAI's words. */
static const char *openai_type(int http) {
    switch (http) {
        case 401: return "authentication_error";
        case 403: return "permission_error";
        case 429: return "rate_limit_error";
        default: return http < 500 ? "invalid_request_error" : "server_error";
    }
}

static const char *anthropic_type(int http) {
    switch (http) {
        case 401: return "authentication_error";
        case 403: return "permission_error";
        case 404: return "not_found_error";
        case 413: return "request_too_large";
        case 429: return "rate_limit_error";
        case OVERLOADED: return "overloaded_error";
        default: return http < 500 ? "invalid_request_error" : "api_error";
    }
}

static void write_openai(struct json_writer *w, const struct failure *failure) {
    put_key_object(w, "error");
    put_key_string(w, "message", failure->message);
    put_key_string(w, "type", openai_type(failure->http));
    put_key_string(w, "param", failure->param[0] ? failure->param : NULL);
    put_key_string(w, "code", failure->code);
    put_object_end(w);
}

static void write_anthropic(struct json_writer *w, const struct failure *failure) {
    put_key_string(w, "type", "error");
    put_key_object(w, "error");
    put_key_string(w, "type", anthropic_type(failure_status(failure)));
    put_key_string(w, "message", failure->message);
    put_object_end(w);
    put_key_string(w, "request_id", failure->form.request);
}

void failure_write(const struct failure *failure, struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    switch (failure->form.words) {
        case WORDS_OPENAI: write_openai(&w, failure); break;
        case WORDS_ANTHROPIC: write_anthropic(&w, failure); break;
        case WORDS_OLLAMA: put_key_string(&w, "error", failure->message); break;
    }
    put_object_end(&w);
}
