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

static void put_value(struct settings *s, const char *name, const struct yaml_item *item) {
    char text[64], *end;
    struct text_span value = item->text;
    if (!item->plain || value.size >= sizeof text) return settings_put_text(s, name, value);
    memcpy(text, value.text, value.size);
    text[value.size] = '\0';
    if (strcmp(text, "true") == 0 || strcmp(text, "True") == 0) return settings_put_bool(s, name, true);
    if (strcmp(text, "false") == 0 || strcmp(text, "False") == 0) return settings_put_bool(s, name, false);
    if (text[0] == '\0' || strcmp(text, "null") == 0 || strcmp(text, "~") == 0) return;
    long long number = strtoll(text, &end, 10);
    if (*end == '\0') return settings_put_int(s, name, number);
    double real = strtod(text, &end);
    if (*end == '\0') return settings_put_real(s, name, real);
    settings_put_text(s, name, value);
}

/* The path of the maps around, and this name. */
static void take_key(struct yaml_path *p, struct text_span key) {
    p->names.size = p->n > 1 ? p->ends[p->n - 2] : 0;
    if (p->names.size > 0) buffer_append_string(&p->names, ".");
    buffer_append(&p->names, key.text, key.size);
    buffer_append(&p->names, "", 1);
    p->names.size--;
    p->ends[p->n - 1] = p->names.size;
    p->nameless = memchr(key.text, '\0', key.size) != NULL;
}

static void take_text(struct yaml_path *p, struct settings *s, const struct yaml_item *item) {
    if (p->lists > 0 || p->n == 0) return;
    if (p->key)
        take_key(p, item->text);
    else if (!p->nameless && item->kind == YAML_TEXT)
        put_value(s, p->names.data, item);
    p->key = !p->key;
}

/* A map or list is the value of a key, or a key itself, which names nothing. */
static void open_inner(struct yaml_path *p, bool map) {
    if (p->lists > 0 || !map || p->key || p->nameless || p->n == DEPTH_LIMIT) {
        p->lists++;
        return;
    }
    p->n++;
    p->key = true;
}

static void close_inner(struct yaml_path *p) {
    bool passed = p->lists > 0;
    p->lists -= passed;
    p->n -= !passed;
    if (p->lists > 0) return;
    p->nameless = passed && p->key;
    p->key = !p->nameless;
}

enum status yaml_read(struct settings *s, struct text_span text, const char *name, struct error *e) {
    struct yaml_path path = {0};
    struct yaml_reader *r;
    struct yaml_item item = {.kind = YAML_MAP};
    if (yaml_open(&r, text, name, e)) return e->status;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && item.kind != YAML_END) {
        status = yaml_next(r, &item, e);
        if (status) break;
        switch (item.kind) {
            case YAML_MAP:
            case YAML_LIST: open_inner(&path, item.kind == YAML_MAP); break;
            case YAML_MAP_END:
            case YAML_LIST_END: close_inner(&path); break;
            case YAML_TEXT:
            case YAML_REFERENCE: take_text(&path, s, &item); break;
            case YAML_END: break;
        }
    }
    yaml_close(r);
    buffer_free(&path.names);
    return status;
}
