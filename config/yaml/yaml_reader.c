/* config/yaml/yaml_reader.c: the only file that includes libyaml. See yaml_reader.h. */
#include "config/yaml/yaml_reader.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { DEPTH_LIMIT = 64 };

struct yaml_reader {
    yaml_parser_t parser;
    yaml_event_t event; /* of the latest item */
    const char *name;
    int depth;
    int anchored; /* depth of the map or list that has an anchor and is open; -1: none */
};

enum status yaml_open(struct yaml_reader **out, struct text_span text, const char *name, struct error *e) {
    struct yaml_reader *r = xcalloc(1, sizeof *r);
    *out = NULL;
    r->name = name;
    r->anchored = -1;
    if (!yaml_parser_initialize(&r->parser)) {
        free(r);
        return error_set(e, STATUS_NO_MEMORY, "%s: no memory for YAML", name);
    }
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text.text, text.size);
    *out = r;
    return STATUS_OK;
}

void yaml_close(struct yaml_reader *r) {
    if (r == NULL) return;
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->parser);
    free(r);
}

static size_t line_of(const struct yaml_reader *r) { return r->event.start_mark.line + 1; }

/* "!!python/object/apply:os.system" and its like; "!!python/tuple" is a list. */
static enum status check_tag(const struct yaml_reader *r, const yaml_char_t *tag, struct error *e) {
    static const char *const makers[] = {"python/object", "python/name", "python/module"};
    for (size_t i = 0; tag && i < ARRAY_COUNT(makers); i++)
        if (strstr((const char *)tag, makers[i]))
            return error_set(e, STATUS_UNSUPPORTED,
                             "%s: line %zu has a tag that makes an object of Python's: refused, nothing of it was run",
                             r->name, line_of(r));
    return STATUS_OK;
}

static enum status enter(struct yaml_reader *r, const yaml_char_t *anchor, const yaml_char_t *tag, struct error *e) {
    if (check_tag(r, tag, e)) return e->status;
    if (r->depth == DEPTH_LIMIT)
        return error_set(e, STATUS_TOO_LARGE, "%s: line %zu lies in more than %d maps and lists", r->name, line_of(r),
                         DEPTH_LIMIT);
    if (anchor && r->anchored < 0) r->anchored = r->depth;
    r->depth++;
    return STATUS_OK;
}

static void leave(struct yaml_reader *r) {
    r->depth--;
    if (r->depth == r->anchored) r->anchored = -1;
}

static enum status refer(const struct yaml_reader *r, struct yaml_item *item, struct error *e) {
    const char *name = (const char *)r->event.data.alias.anchor;
    item->text = (struct text_span){name, strlen(name)};
    if (r->anchored < 0) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s: line %zu refers to something within what is referred to itself, by which such files grow "
                     "without bound: refused",
                     r->name, line_of(r));
}

/* The item of the latest event; *found: it is one. */
static enum status take_event(struct yaml_reader *r, struct yaml_item *item, bool *found, struct error *e) {
    const yaml_event_t *event = &r->event;
    *item = (struct yaml_item){.depth = r->depth};
    *found = true;
    switch (event->type) {
        case YAML_SCALAR_EVENT:
            item->kind = YAML_TEXT;
            item->text = (struct text_span){(const char *)event->data.scalar.value, event->data.scalar.length};
            item->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
            return check_tag(r, event->data.scalar.tag, e);
        case YAML_ALIAS_EVENT: item->kind = YAML_REFERENCE; return refer(r, item, e);
        case YAML_MAPPING_START_EVENT:
            item->kind = YAML_MAP;
            return enter(r, event->data.mapping_start.anchor, event->data.mapping_start.tag, e);
        case YAML_SEQUENCE_START_EVENT:
            item->kind = YAML_LIST;
            return enter(r, event->data.sequence_start.anchor, event->data.sequence_start.tag, e);
        case YAML_MAPPING_END_EVENT:
        case YAML_SEQUENCE_END_EVENT:
            leave(r);
            *item = (struct yaml_item){.kind = event->type == YAML_MAPPING_END_EVENT ? YAML_MAP_END : YAML_LIST_END,
                                       .depth = r->depth};
            return STATUS_OK;
        case YAML_DOCUMENT_END_EVENT:
        case YAML_STREAM_END_EVENT: return STATUS_OK;
        default: *found = false; return STATUS_OK;
    }
}

enum status yaml_next(struct yaml_reader *r, struct yaml_item *item, struct error *e) {
    bool found = false;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && !found) {
        yaml_event_delete(&r->event);
        if (!yaml_parser_parse(&r->parser, &r->event)) {
            const char *why = r->parser.problem;
            return error_set(e, STATUS_CORRUPT, "%s: line %zu is no YAML: %s", r->name, r->parser.problem_mark.line + 1,
                             why ? why : "no reason given");
        }
        status = take_event(r, item, &found, e);
    }
    return status;
}
