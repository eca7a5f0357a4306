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

enum status yaml_open(struct yaml_reader **out, struct text_span text, const char *name,
                      struct error *e) {
    struct yaml_reader *reader = xcalloc(1, sizeof *reader);
    *out = NULL;
    reader->name = name;
    reader->anchored = -1;
    if (!yaml_parser_initialize(&reader->parser)) {
        free(reader);
        return error_set(e, STATUS_NO_MEMORY, "%s: no memory for YAML", name);
    }
    yaml_parser_set_encoding(&reader->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader->parser, (const unsigned char *)text.text, text.size);
    *out = reader;
    return STATUS_OK;
}

void yaml_close(struct yaml_reader *reader) {
    if (reader == NULL) return;
    yaml_event_delete(&reader->event);
    yaml_parser_delete(&reader->parser);
    free(reader);
}

static size_t line_of(const struct yaml_reader *reader) {
    return reader->event.start_mark.line + 1;
}

/* "!!python/object/apply:os.system" and its like; "!!python/tuple" is a list. */
static enum status check_tag(const struct yaml_reader *reader, const yaml_char_t *tag,
                             struct error *e) {
    static const char *const makers[] = {"python/object", "python/name", "python/module"};
    for (size_t i = 0; tag && i < ARRAY_COUNT(makers); i++)
        if (strstr((const char *)tag, makers[i]))
            return error_set(e, STATUS_UNSUPPORTED,
                             "%s: line %zu has a tag that makes an object of Python's: refused, "
                             "nothing of it was run",
                             reader->name, line_of(reader));
    return STATUS_OK;
}

static enum status enter(struct yaml_reader *reader, const yaml_char_t *anchor,
                         const yaml_char_t *tag, struct error *e) {
    if (check_tag(reader, tag, e)) return e->status;
    if (reader->depth == DEPTH_LIMIT)
        return error_set(e, STATUS_TOO_LARGE, "%s: line %zu lies in more than %d maps and lists",
                         reader->name, line_of(reader), DEPTH_LIMIT);
    if (anchor && reader->anchored < 0) reader->anchored = reader->depth;
    reader->depth++;
    return STATUS_OK;
}

static void leave(struct yaml_reader *reader) {
    reader->depth--;
    if (reader->depth == reader->anchored) reader->anchored = -1;
}

static enum status refer(const struct yaml_reader *reader, struct yaml_item *item,
                         struct error *e) {
    const char *name = (const char *)reader->event.data.alias.anchor;
    item->text = (struct text_span){name, strlen(name)};
    if (reader->anchored < 0) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s: line %zu refers to something within what is referred to itself, by which "
                     "such files grow "
                     "without bound: refused",
                     reader->name, line_of(reader));
}

/* The item of the latest event; *found: it is one. */
static enum status take_event(struct yaml_reader *reader, struct yaml_item *item, bool *found,
                              struct error *e) {
    const yaml_event_t *event = &reader->event;
    *item = (struct yaml_item){.depth = reader->depth};
    *found = true;
    switch (event->type) {
        case YAML_SCALAR_EVENT:
            item->kind = YAML_TEXT;
            item->text = (struct text_span){(const char *)event->data.scalar.value,
                                            event->data.scalar.length};
            item->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
            return check_tag(reader, event->data.scalar.tag, e);
        case YAML_ALIAS_EVENT: item->kind = YAML_REFERENCE; return refer(reader, item, e);
        case YAML_MAPPING_START_EVENT:
            item->kind = YAML_MAP;
            return enter(reader, event->data.mapping_start.anchor, event->data.mapping_start.tag,
                         e);
        case YAML_SEQUENCE_START_EVENT:
            item->kind = YAML_LIST;
            return enter(reader, event->data.sequence_start.anchor, event->data.sequence_start.tag,
                         e);
        case YAML_MAPPING_END_EVENT:
        case YAML_SEQUENCE_END_EVENT:
            leave(reader);
            *item = (struct yaml_item){
                .kind = event->type == YAML_MAPPING_END_EVENT ? YAML_MAP_END : YAML_LIST_END,
                .depth = reader->depth};
            return STATUS_OK;
        case YAML_DOCUMENT_END_EVENT:
        case YAML_STREAM_END_EVENT: return STATUS_OK;
        default: *found = false; return STATUS_OK;
    }
}

enum status yaml_next(struct yaml_reader *reader, struct yaml_item *item, struct error *e) {
    bool found = false;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && !found) {
        yaml_event_delete(&reader->event);
        if (!yaml_parser_parse(&reader->parser, &reader->event)) {
            const char *why = reader->parser.problem;
            return error_set(e, STATUS_CORRUPT, "%s: line %zu is no YAML: %s", reader->name,
                             reader->parser.problem_mark.line + 1, why ? why : "no reason given");
        }
        status = take_event(reader, item, &found, e);
    }
    return status;
}
