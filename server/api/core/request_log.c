/* server/api/core/request_log.c: see request_log.h. */
#include "server/api/core/request_log.h"

#include <string.h>

#include "config/base/log.h"
#include "config/json/json_writer.h"

bool request_id_is_good(const char *id) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
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
    struct trace_context t;
    memset(&t, 0, sizeof t);
    if (size < 55 || header[2] != '-' || header[35] != '-' || header[52] != '-') return false;
    if (strspn(header, "0123456789abcdef") != 2 || strspn(header + 53, "0123456789abcdef") != 2) return false;
    memcpy(version, header, 2);
    memcpy(flags, header + 53, 2);
    version[2] = flags[2] = '\0';
    if (strcmp(version, "ff") == 0 || (strcmp(version, "00") == 0 && size != 55) || (size > 55 && header[55] != '-'))
        return false;
    if (!read_digits(header + 3, 32, t.trace_id) || !read_digits(header + 36, 16, t.parent_id)) return false;
    t.sampled = strchr("13579bdf", flags[1]) != NULL;
    *out = t;
    return true;
}

static const char *key_name(const struct request_record *r) {
    return r->principal->key ? r->principal->key->name : NULL;
}

/* The log's escapes make one line of it. */
static void log_text(const struct request_record *r) {
    struct buffer more = {0};
    buffer_append_string(&more, r->why);
    if (key_name(r)) buffer_printf(&more, " key=%s", key_name(r));
    if (r->trace.trace_id[0]) buffer_printf(&more, " trace=%s", r->trace.trace_id);
    if (r->body.size > 0) buffer_printf(&more, " body=%.*s", (int)r->body.size, r->body.text);
    log_info("%s %s %s %d %.0f ms%s", r->id, r->method, r->path, r->status, 1000 * r->seconds,
             more.data ? more.data : "");
    buffer_free(&more);
}

static void put_reason(struct json_writer *w, const char *why) {
    size_t size = strlen(why);
    if (size > 3) put_key_string_n(w, "reason", why + 2, size - 3); /* " (the client left)" */
}

static void put_trace(struct json_writer *w, const struct trace_context *t) {
    if (t->trace_id[0] == '\0') return;
    put_key_string(w, "trace_id", t->trace_id);
    put_key_string(w, "parent_id", t->parent_id);
    put_key_bool(w, "sampled", t->sampled);
}

static void log_json(const struct request_record *r) {
    struct buffer line = {0};
    struct json_writer w;
    char address[ADDRESS_TEXT_BYTES];
    address_print(&r->address, address);
    put_begin(&w, &line);
    put_object(&w);
    put_key_string(&w, "event", "request");
    put_key_string(&w, "id", r->id);
    put_key_string(&w, "client", address);
    if (key_name(r)) put_key_string(&w, "key", key_name(r));
    put_key_string(&w, "method", r->method);
    put_key_string(&w, "path", r->path);
    put_key_int(&w, "status", r->status);
    put_reason(&w, r->why);
    put_key(&w, "seconds");
    put_rounded(&w, r->seconds, 6);
    put_key_int(&w, "bytes_in", (int64_t)r->bytes_in);
    put_key_int(&w, "bytes_out", (int64_t)r->bytes_out);
    if (r->principal->work) {
        put_key_int(&w, "tokens_read", atomic_load(&r->principal->work->tokens_read));
        put_key_int(&w, "tokens_written", atomic_load(&r->principal->work->tokens_written));
    }
    put_trace(&w, &r->trace);
    if (r->body.size > 0) put_key_string_n(&w, "body", r->body.text, r->body.size);
    put_object_end(&w);
    log_members(LOG_LEVEL_INFO, line.data + 1, line.size - 2);
    buffer_free(&line);
}

void request_record_log(const struct request_record *r) {
    if (log_format() == LOG_FORMAT_JSON)
        log_json(r);
    else
        log_text(r);
}
