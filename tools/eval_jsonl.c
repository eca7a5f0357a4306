/* tools/eval_jsonl.c: files of one JSON record a line (eval.h). */
#include <stdio.h>
#include <string.h>

#include "tools/eval.h"

static enum status read_line(const char *text, size_t size, const char *where, eval_record_function *read,
                             void *context, struct error *e) {
    json_t *record = NULL;
    if (json_load_text(&record, text, size, where, e)) return e->status;
    enum status status = read(context, record, e);
    if (status) error_prefix(e, "%s", where);
    json_decref(record);
    return status;
}

enum status eval_read_jsonl(const char *path, eval_record_function *read, void *context, struct error *e) {
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
        if (size > 0) status = read_line(at, size, where.data, read, context, e);
        at = stop ? stop + 1 : end;
    }
    buffer_free(&where);
    file_map_close(&map);
    return status;
}
