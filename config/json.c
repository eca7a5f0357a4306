/* config/json.c: parsing JSON with errors that say where. See json.h. */
#include "config/json.h"

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
