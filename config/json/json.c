/* config/json/json.c: parsing JSON with errors that say where. See json.h. */
#include "config/json/json.h"

#include <string.h>

enum status json_load_text(json_t **out, const char *text, size_t size, const char *name, struct error *e) {
    json_error_t at;
    *out = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &at);
    if (*out == NULL) return error_set(e, STATUS_INVALID, "%s:%d:%d: not JSON: %s", name, at.line, at.column, at.text);
    return STATUS_OK;
}

enum status json_load_path(json_t **out, const char *path, struct error *e) {
    struct buffer text = {0};
    *out = NULL;
    enum status status = file_read(path, JSON_FILE_LIMIT, &text, e);
    if (status == STATUS_OK) status = json_load_text(out, text.data, text.size, path, e);
    buffer_free(&text);
    return status;
}

static enum status read_line(const char *text, size_t size, const char *where, json_line_taker *take, void *context,
                             struct error *e) {
    json_t *record = NULL;
    if (json_load_text(&record, text, size, where, e)) return e->status;
    enum status status = take(context, record, e);
    if (status) error_prefix(e, "%s", where);
    json_decref(record);
    return status;
}

enum status json_read_lines(const char *path, json_line_taker *take, void *context, struct error *e) {
    struct file_map map;
    struct buffer where = {0};
    if (file_map_open(&map, path, e)) return e->status;
    enum status status = STATUS_OK;
    const char *at = (const char *)map.data, *end = at ? at + map.size : at;
    for (int line = 1; at < end && status == STATUS_OK; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((stop ? stop : end) - at);
        buffer_clear(&where);
        buffer_printf(&where, "%s:%d", path, line);
        if (size > 0) status = read_line(at, size, where.data, take, context, e);
        at = stop ? stop + 1 : end;
    }
    buffer_free(&where);
    file_map_close(&map);
    return status;
}
