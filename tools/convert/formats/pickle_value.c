/* tools/convert/formats/pickle_value.c: looking into what a pickle holds. See pickle.h. */
#include <string.h>

#include "config/base/text.h"
#include "tools/convert/formats/pickle.h"

bool pickle_is(const struct pickle_value *value, enum pickle_kind kind) {
    return value && value->kind == kind;
}

bool pickle_text_is(const struct pickle_value *value, const char *text) {
    return value && (value->kind == PICKLE_TEXT || value->kind == PICKLE_GLOBAL) &&
           span_is(value->text, text);
}

const struct pickle_value *pickle_item(const struct pickle_value *value, size_t i) {
    if (value == NULL ||
        (value->kind != PICKLE_LIST && value->kind != PICKLE_TUPLE && value->kind != PICKLE_SET))
        return NULL;
    return i < value->count ? value->items[i] : NULL;
}

size_t pickle_pairs(const struct pickle_value *value) {
    bool mapped =
        value && (value->kind == PICKLE_DICT || (value->kind == PICKLE_OBJECT && value->mapped));
    return mapped ? value->count / 2 : 0;
}

const struct pickle_value *pickle_key(const struct pickle_value *value, size_t i) {
    return i < pickle_pairs(value) ? value->items[2 * i] : NULL;
}

const struct pickle_value *pickle_pair_value(const struct pickle_value *value, size_t i) {
    return i < pickle_pairs(value) ? value->items[2 * i + 1] : NULL;
}

const struct pickle_value *pickle_member(const struct pickle_value *value, const char *key) {
    for (size_t i = pickle_pairs(value); i > 0; i--) {
        const struct pickle_value *pickle_value = pickle_key(value, i - 1);
        if (pickle_value->kind == PICKLE_TEXT && span_is(pickle_value->text, key))
            return pickle_pair_value(value, i - 1);
    }
    return NULL;
}

const struct pickle_value *pickle_attributes(const struct pickle_value *object) {
    if (!pickle_is(object, PICKLE_OBJECT)) return NULL;
    const struct pickle_value *state = object->state;
    if (pickle_is(state, PICKLE_TUPLE) && state->count == 2)
        state = pickle_is(state->items[1], PICKLE_DICT) ? state->items[1] : state->items[0];
    return state;
}

const struct pickle_value *pickle_attribute(const struct pickle_value *object, const char *name) {
    return pickle_member(pickle_attributes(object), name);
}

bool pickle_is_object(const struct pickle_value *value, const char *class_name) {
    if (!pickle_is(value, PICKLE_OBJECT) || !pickle_is(value->class, PICKLE_GLOBAL)) return false;
    struct text_span whole = value->class->text;
    size_t n = strlen(class_name);
    if (whole.size < n || memcmp(whole.text + whole.size - n, class_name, n) != 0) return false;
    return whole.size == n || whole.text[whole.size - n - 1] == '.';
}
