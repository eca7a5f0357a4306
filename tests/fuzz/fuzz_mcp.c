/* tests/fuzz/fuzz_mcp.c: what clients of MCP send: messages, URIs, cursors, values of headers, and
 * arguments of tools. The first byte says which. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "server/api/fields/fields.h"
#include "server/doors/mcp/message.h"
#include "server/doors/mcp/tools.h"
#include "server/doors/mcp/words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct request_limits limits = {.retrieval = {.max_k = 4, .max_filter_bytes = 4096},
                                             .metadata = {100, 4096}};

static void check_fault(struct mcp_fault *fault) {
    struct buffer out = {0};
    struct json *json;
    struct error e;
    CHECK(fault->code < 0 && fault->message[0] != '\0');
    mcp_fault_write(fault, NULL, &out);
    CHECK(json_parse(&json, (struct text_span){out.data, out.size}, "", &e) == STATUS_OK);
    json_close(json);
    buffer_free(&out);
    mcp_fault_free(fault);
}

/* An id comes back as a value that is the same as before. */
static void check_message(const struct mcp_message *message, const struct json *json) {
    struct json *id;
    struct error e;
    CHECK(message->kind == MCP_RESPONSE || message->method != NULL);
    CHECK((message->kind == MCP_REQUEST) == (message->id.size > 0));
    if (message->id.size == 0) return;
    struct text_span text = {message->id.data, message->id.size};
    CHECK(json_parse_any(&id, text, "", &e) == STATUS_OK);
    const struct json *before = json_member(json, "id");
    CHECK(json_kind(id) == json_kind(before) && json_int(id) == json_int(before));
    CHECK(json_count(id) == json_count(before));
    json_close(id);
}

static void try_message(struct text_span text) {
    struct mcp_fault fault = {0};
    struct mcp_message message = {0};
    struct json *json = mcp_body_parse(text, &fault);
    if (json && mcp_message_read(&message, json, &fault))
        check_message(&message, json);
    else
        check_fault(&fault);
    mcp_message_free(&message);
    json_close(json);
    mcp_looks_at_documents(text);
}

/* A URI that is read is printed, and read as the same again. */
static void try_uri(struct text_span text) {
    struct mcp_uri uri, again;
    struct buffer out = {0};
    if (mcp_uri_parse(&uri, text)) {
        CHECK(uri.name.size > 0 && strlen(uri.name.data) == uri.name.size);
        CHECK(utf8_is_valid(uri.name.data, uri.name.size));
        CHECK(uri.place != MCP_BYTES || (uri.start >= 0 && uri.start <= uri.end));
        CHECK(uri.place != MCP_PAGE || uri.page > 0);
        mcp_uri_print(uri.name.data, &out);
        CHECK(mcp_uri_parse(&again, (struct text_span){out.data, out.size}));
        CHECK(again.place == MCP_WHOLE && strcmp(again.name.data, uri.name.data) == 0);
        mcp_uri_free(&again);
    }
    buffer_free(&out);
    mcp_uri_free(&uri);
}

/* A cursor is of one list, and holds an id. */
static void try_cursor(struct text_span text) {
    struct buffer last = {0}, again = {0}, other = {0};
    if (mcp_cursor_parse("documents", text, &last)) {
        CHECK(last.size > 0 && strlen(last.data) == last.size);
        CHECK(!mcp_cursor_parse("tools", text, &other));
        mcp_cursor_print("documents", last.data, &again);
        CHECK(again.size >= 4);
    }
    buffer_free(&last);
    buffer_free(&again);
    buffer_free(&other);
}

static void try_header(struct text_span text) {
    struct buffer out = {0};
    char *value = xstrndup(text.text, text.size);
    mcp_header_decode(value, &out);
    CHECK(out.size <= text.size);
    buffer_free(&out);
    free(value);
}

/* A table of arguments says why it does not take them. */
static void try_arguments(const struct json_table *table, size_t bytes, struct text_span text) {
    struct failure failure = {0};
    struct error e;
    struct json *json;
    if (json_parse(&json, text, "", &e)) return;
    void *arguments = xcalloc(1, bytes);
    if (!fields_parse(table, arguments, json, &limits, &failure)) CHECK(failure.message[0] != '\0');
    failure_free(&failure);
    json_table_free(table, arguments);
    free(arguments);
    json_close(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    struct text_span text = {(const char *)data + 1, size - 1};
    switch (data[0] % 6) {
        case 0: try_message(text); break;
        case 1: try_uri(text); break;
        case 2: try_cursor(text); break;
        case 3: try_header(text); break;
        case 4: try_arguments(&mcp_read_table, 256, text); break;
        default: try_arguments(&mcp_id_table, 64, text);
    }
    return 0;
}
