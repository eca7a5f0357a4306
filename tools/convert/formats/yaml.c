/* tools/convert/formats/yaml.c: configurations in YAML. See yaml.h. */
#include "tools/convert/formats/yaml.h"

#include <stdlib.h>
#include <string.h>

#include "config/yaml/yaml_reader.h"

enum { DEPTH_LIMIT = 16 };

/* Maps that are open. */
struct yaml_path {
    size_t ends[DEPTH_LIMIT]; /* of their names in the path */
    int n, lists;             /* lists that are open, whose items are passed over */
    struct buffer names;      /* "outer.inner" */
    bool key;                 /* the next text is one */
    bool nameless;            /* the latest key is no name */
};

static void put_value(struct settings *settings, const char *name, const struct yaml_item *item) {
    char text[64], *end;
    struct text_span value = item->text;
    if (!item->plain || value.size >= sizeof text) return settings_put_text(settings, name, value);
    memcpy(text, value.text, value.size);
    text[value.size] = '\0';
    if (strcmp(text, "true") == 0 || strcmp(text, "True") == 0)
        return settings_put_bool(settings, name, true);
    if (strcmp(text, "false") == 0 || strcmp(text, "False") == 0)
        return settings_put_bool(settings, name, false);
    if (text[0] == '\0' || strcmp(text, "null") == 0 || strcmp(text, "~") == 0) return;
    long long number = strtoll(text, &end, 10);
    if (*end == '\0') return settings_put_int(settings, name, number);
    double real = strtod(text, &end);
    if (*end == '\0') return settings_put_real(settings, name, real);
    settings_put_text(settings, name, value);
}

/* The path of the maps around, and this name. */
static void take_key(struct yaml_path *path, struct text_span key) {
    path->names.size = path->n > 1 ? path->ends[path->n - 2] : 0;
    if (path->names.size > 0) buffer_append_string(&path->names, ".");
    buffer_append(&path->names, key.text, key.size);
    buffer_append(&path->names, "", 1);
    path->names.size--;
    path->ends[path->n - 1] = path->names.size;
    path->nameless = memchr(key.text, '\0', key.size) != NULL;
}

static void take_text(struct yaml_path *path, struct settings *settings,
                      const struct yaml_item *item) {
    if (path->lists > 0 || path->n == 0) return;
    if (path->key)
        take_key(path, item->text);
    else if (!path->nameless && item->kind == YAML_TEXT)
        put_value(settings, path->names.data, item);
    path->key = !path->key;
}

/* A map or list is the value of a key, or a key itself, which names nothing. */
static void open_inner(struct yaml_path *path, bool map) {
    if (path->lists > 0 || !map || path->key || path->nameless || path->n == DEPTH_LIMIT) {
        path->lists++;
        return;
    }
    path->n++;
    path->key = true;
}

static void close_inner(struct yaml_path *path) {
    bool passed = path->lists > 0;
    path->lists -= passed;
    path->n -= !passed;
    if (path->lists > 0) return;
    path->nameless = passed && path->key;
    path->key = !path->nameless;
}

enum status yaml_read(struct settings *settings, struct text_span text, const char *name,
                      struct error *e) {
    struct yaml_path path = {0};
    struct yaml_reader *reader;
    struct yaml_item item = {.kind = YAML_MAP};
    if (yaml_open(&reader, text, name, e)) return e->status;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && item.kind != YAML_END) {
        status = yaml_next(reader, &item, e);
        if (status) break;
        switch (item.kind) {
            case YAML_MAP:
            case YAML_LIST: open_inner(&path, item.kind == YAML_MAP); break;
            case YAML_MAP_END:
            case YAML_LIST_END: close_inner(&path); break;
            case YAML_TEXT:
            case YAML_REFERENCE: take_text(&path, settings, &item); break;
            case YAML_END: break;
        }
    }
    yaml_close(reader);
    buffer_free(&path.names);
    return status;
}
