/* config/yaml/yaml_reader.h: YAML read item by item. Nothing is looked up or made: a reference is
 * an item, and a tag that would make an object is an error. */
#pragma once

#include "config/base/buffer.h"

enum yaml_kind {
    YAML_END,
    YAML_MAP,
    YAML_MAP_END,
    YAML_LIST,
    YAML_LIST_END,
    YAML_TEXT,
    YAML_REFERENCE
};

struct yaml_item {
    enum yaml_kind kind;
    struct text_span text; /* of YAML_TEXT; the name of a YAML_REFERENCE. Until the next item */
    bool plain;            /* a text without quotes, which may stand for a number */
    int depth;             /* of maps and lists around it; a key and its value have the same */
};

struct yaml_reader;
/* Of the first document in a text, which is borrowed; `name` is for messages. */
enum status yaml_open(struct yaml_reader **out, struct text_span text, const char *name,
                      struct error *e);
/* Keys of a map come before their values. STATUS_CORRUPT where it is no YAML, STATUS_TOO_LARGE
 * where it lies too deep, STATUS_UNSUPPORTED for a tag that makes an object of Python's, and for a
 * reference within something that is referred to, by which a few lines become gigabytes. All name
 * the line. */
enum status yaml_next(struct yaml_reader *reader, struct yaml_item *item, struct error *e);
void yaml_close(struct yaml_reader *reader);
