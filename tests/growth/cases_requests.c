/* tests/growth/cases_requests.c: requests: arguments of a query string, biases, lists of inputs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/fields/completion_fields.h"
#include "server/api/fields/document_fields.h"
#include "server/api/fields/embedding_fields.h"
#include "server/doors/mcp/message.h"
#include "server/doors/mcp/words.h"
#include "tests/growth/growth.h"

static const struct request_limits limits = {.vocab = 1 << 20,
                                             .context = 1 << 20,
                                             .max_prompts = 1 << 20,
                                             .max_choices = 1,
                                             .max_stops = 1 << 20,
                                             .max_biases = 1 << 20,
                                             .retrieval = {.max_filter_bytes = 1 << 20},
                                             .metadata = {1 << 20, 1 << 20},
                                             .max_prompts_option = "server.max_prompts"};

static const struct request_limits *find_limits(void *context, const char *model,
                                                struct failure *f) {
    (void)context;
    (void)model;
    (void)f;
    return &limits;
}

static const struct request_models models = {find_limits, NULL, &limits};

static void run_completion(struct text_span text) {
    struct completion_request r;
    struct failure f = {0};
    completion_request_parse(&r, text.text, text.size, &models, &f);
    completion_request_free(&r);
    failure_free(&f);
}

static void run_embedding(struct text_span text) {
    struct embedding_request r;
    struct failure f = {0};
    embedding_request_parse(&r, &embedding_table, text.text, text.size, &models, &f);
    embedding_request_free(&r);
    failure_free(&f);
}

static void run_message(struct text_span text) {
    struct mcp_fault fault = {0};
    struct mcp_message message = {0};
    struct json *json = mcp_body_parse(text, &fault);
    if (json) mcp_message_read(&message, json, &fault);
    mcp_message_free(&message);
    mcp_fault_free(&fault);
    json_close(json);
}

static void run_uri(struct text_span text) {
    struct mcp_uri uri;
    mcp_uri_parse(&uri, text);
    mcp_uri_free(&uri);
}

/* Names of eight bytes, each with its NUL. */
enum { NAME_BYTES = 8 };

static void run_arguments(struct text_span text) {
    int n = (int)(text.size / NAME_BYTES);
    struct query_argument *arguments = xcalloc((size_t)n, sizeof *arguments);
    struct document_list_request r;
    struct failure f = {0};
    for (int i = 0; i < n; i++)
        arguments[i] = (struct query_argument){text.text + i * NAME_BYTES, "1"};
    document_list_parse(&r, arguments, n, &limits, &f);
    document_list_free(&r);
    failure_free(&f);
    free(arguments);
}

static void put_numbers(struct buffer *out, int n, const char *format) {
    for (int i = 0; i < n; i++) {
        if (i > 0) buffer_append_string(out, ",");
        buffer_printf(out, format, i);
    }
}

static void make_arguments(int n, struct buffer *out) {
    for (int i = 0; i < n; i++) {
        buffer_printf(out, "a%06d", i);
        buffer_append(out, "", 1);
    }
}
static void make_biases(int n, struct buffer *out) {
    buffer_append_string(out, "{\"prompt\":\"a\",\"logit_bias\":{");
    put_numbers(out, n, "\"%d\":1");
    buffer_append_string(out, "}}");
}
static void make_stops(int n, struct buffer *out) {
    buffer_append_string(out, "{\"prompt\":\"a\",\"stop\":[");
    put_numbers(out, n, "\"s%d\"");
    buffer_append_string(out, "]}");
}
static void make_ids(int n, struct buffer *out) {
    buffer_append_string(out, "{\"prompt\":[");
    put_numbers(out, n, "%d");
    buffer_append_string(out, "]}");
}
static void make_inputs(int n, struct buffer *out) {
    buffer_append_string(out, "{\"input\":[");
    put_numbers(out, n, "\"text %d\"");
    buffer_append_string(out, "]}");
}

static void make_message(int n, struct buffer *out) {
    buffer_append_string(out, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{");
    put_numbers(out, n, "\"k%d\":[1]");
    buffer_append_string(out, "}}");
}
static void make_uri(int n, struct buffer *out) {
    buffer_append_string(out, "retro://documents/");
    put_times(out, n, "%C3%A4");
}

static const struct growth_case cases[] = {
    {"mcp/message", 1000, make_message, run_message},
    {"mcp/uri", 5000, make_uri, run_uri},
    {"request/arguments", 1000, make_arguments, run_arguments},
    {"request/logit_bias", 500, make_biases, run_completion},
    {"request/stop", 500, make_stops, run_completion},
    {"request/ids", 1000, make_ids, run_completion},
    {"request/inputs", 500, make_inputs, run_embedding},
};
const struct growth_table request_growth = GROWTH_TABLE(cases);
