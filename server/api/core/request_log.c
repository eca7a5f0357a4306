/* server/api/core/request_log.c: see request_log.h. */
#include "server/api/core/request_log.h"

#include <string.h>

#include "config/base/log.h"
#include "config/json/json_writer.h"

bool request_id_is_good(const char *id) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t size = strspn(id, letters);
    return size > 0 && size < REQUEST_ID_BYTES && id[size] == '\0';
}

/* `n` lower-case hexadecimal digits, not all of them 0. */
static bool read_digits(const char *from, size_t n, char *to) {
    if (strspn(from, "0123456789abcdef") < n || strspn(from, "0") >= n) return false;
    memcpy(to, from, n);
    to[n] = '\0';
    return true;
}

/* version-trace-parent-flags: 2, 32, 16 and 2 digits. A later version may have more behind them. */
bool trace_parse(struct trace_context *out, const char *header) {
    size_t size = strlen(header);
    char flags[3], version[3];
    struct trace_context context;
    memset(&context, 0, sizeof context);
    if (size < 55 || header[2] != '-' || header[35] != '-' || header[52] != '-') return false;
    if (strspn(header, "0123456789abcdef") != 2 || strspn(header + 53, "0123456789abcdef") != 2)
        return false;
    memcpy(version, header, 2);
    memcpy(flags, header + 53, 2);
    version[2] = flags[2] = '\0';
    if (strcmp(version, "ff") == 0 || (strcmp(version, "00") == 0 && size != 55) ||
        (size > 55 && header[55] != '-'))
        return false;
    if (!read_digits(header + 3, 32, context.trace_id) ||
        !read_digits(header + 36, 16, context.parent_id))
        return false;
    context.sampled = strchr("13579bdf", flags[1]) != NULL;
    *out = context;
    return true;
}

static const char *key_name(const struct request_record *record) {
    return record->principal->key ? record->principal->key->name : NULL;
}

/* The log's escapes make one line of it. */
static void log_text(const struct request_record *record) {
    struct buffer more = {0};
    buffer_append_string(&more, record->why);
    if (key_name(record)) buffer_printf(&more, " key=%s", key_name(record));
    if (record->trace.trace_id[0]) buffer_printf(&more, " trace=%s", record->trace.trace_id);
    if (record->body.size > 0)
        buffer_printf(&more, " body=%.*s", (int)record->body.size, record->body.text);
    log_info("%s %s %s %d %.0f ms%s", record->id, record->method, record->path, record->status,
             1000 * record->seconds, more.data ? more.data : "");
    buffer_free(&more);
}

static void put_reason(struct json_writer *w, const char *why) {
    size_t size = strlen(why);
    if (size > 3) put_key_string_n(w, "reason", why + 2, size - 3); /* " (the client left)" */
}

static void put_trace(struct json_writer *w, const struct trace_context *context) {
    if (context->trace_id[0] == '\0') return;
    put_key_string(w, "trace_id", context->trace_id);
    put_key_string(w, "parent_id", context->parent_id);
    put_key_bool(w, "sampled", context->sampled);
}

static void log_json(const struct request_record *record) {
    struct buffer line = {0};
    struct json_writer w;
    char address[ADDRESS_TEXT_BYTES];
    address_print(&record->address, address);
    put_begin(&w, &line);
    put_object(&w);
    put_key_string(&w, "event", "request");
    put_key_string(&w, "id", record->id);
    put_key_string(&w, "client", address);
    if (key_name(record)) put_key_string(&w, "key", key_name(record));
    put_key_string(&w, "method", record->method);
    put_key_string(&w, "path", record->path);
    put_key_int(&w, "status", record->status);
    put_reason(&w, record->why);
    put_key(&w, "seconds");
    put_rounded(&w, record->seconds, 6);
    put_key_int(&w, "bytes_in", (int64_t)record->bytes_in);
    put_key_int(&w, "bytes_out", (int64_t)record->bytes_out);
    if (record->principal->work) {
        put_key_int(&w, "tokens_read", atomic_load(&record->principal->work->tokens_read));
        put_key_int(&w, "tokens_written", atomic_load(&record->principal->work->tokens_written));
    }
    put_trace(&w, &record->trace);
    if (record->body.size > 0) put_key_string_n(&w, "body", record->body.text, record->body.size);
    put_object_end(&w);
    log_members(LOG_LEVEL_INFO, line.data + 1, line.size - 2);
    buffer_free(&line);
}

void request_record_log(const struct request_record *record) {
    if (log_format() == LOG_FORMAT_JSON)
        log_json(record);
    else
        log_text(record);
}
