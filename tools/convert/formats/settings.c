/* tools/convert/formats/settings.c: names with plain values. See settings.h. */
#include "tools/convert/formats/settings.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_LIMIT = 8, COUNT_LIMIT = 1 << 14, TEXT_LIMIT = 4096 };

void settings_free(struct settings *settings) {
    for (int i = 0; i < settings->n; i++) {
        free(settings->list[i].name);
        free(settings->list[i].text);
        free(settings->list[i].origin);
    }
    free(settings->list);
    lookup_free(&settings->places);
    *settings = (struct settings){0};
}

/* The place of a name in the list; -1: it is not there. */
static int find_place(const struct settings *settings, const char *name) {
    uint64_t hash = lookup_hash(name, strlen(name));
    size_t at = 0;
    for (int i; (i = lookup_next(&settings->places, hash, &at)) >= 0;)
        if (strcmp(settings->list[i].name, name) == 0) return i;
    return -1;
}

static struct setting *settings_place(struct settings *settings, const char *name) {
    int i = find_place(settings, name);
    if (i >= 0) {
        free(settings->list[i].text);
        free(settings->list[i].origin);
        settings->list[i] = (struct setting){.name = settings->list[i].name};
        return &settings->list[i];
    }
    lookup_add(&settings->places, lookup_hash(name, strlen(name)), settings->n);
    settings->list =
        xgrow(settings->list, settings->n, &settings->capacity, sizeof *settings->list);
    settings->list[settings->n] = (struct setting){.name = xstrdup(name)};
    settings->n++;
    return &settings->list[settings->n - 1];
}

void settings_put_int(struct settings *settings, const char *name, int64_t number) {
    struct setting *put = settings_place(settings, name);
    put->kind = SETTING_INT;
    put->number = number;
    put->real = (double)number;
}

void settings_put_real(struct settings *settings, const char *name, double real) {
    struct setting *put = settings_place(settings, name);
    put->kind = SETTING_REAL;
    put->real = real;
}

void settings_put_bool(struct settings *settings, const char *name, bool truth) {
    struct setting *put = settings_place(settings, name);
    put->kind = SETTING_BOOL;
    put->number = truth;
}

void settings_put_text(struct settings *settings, const char *name, struct text_span text) {
    struct setting *put = settings_place(settings, name);
    put->kind = SETTING_TEXT;
    put->text = xstrndup(text.text, text.size);
}

void settings_copy(struct settings *settings, const char *name, const struct setting *value) {
    switch (value->kind) {
        case SETTING_BOOL: settings_put_bool(settings, name, value->number != 0); break;
        case SETTING_INT: settings_put_int(settings, name, value->number); break;
        case SETTING_REAL: settings_put_real(settings, name, value->real); break;
        case SETTING_TEXT:
            settings_put_text(settings, name, (struct text_span){value->text, strlen(value->text)});
            break;
        case SETTING_NONE: break;
    }
}

void settings_say(struct settings *settings, const char *name, const char *origin) {
    struct setting *put = (struct setting *)(uintptr_t)settings_find(settings, name);
    free(put->origin);
    put->origin = xstrdup(origin);
}

/* "outer.inner", freed by the caller. */
static char *join(const char *outer, struct text_span inner) {
    struct buffer name = {0};
    if (outer) buffer_printf(&name, "%s.", outer);
    buffer_append(&name, inner.text, inner.size);
    buffer_append(&name, "", 0);
    return name.data ? name.data : xstrdup("");
}

/* "module.Class(argument)" of an enumeration's value: it is no plain value, but it is said. */
static void put_call(struct settings *settings, const char *name,
                     const struct pickle_value *value) {
    const struct pickle_value *argument = pickle_item(value->arguments, 0);
    struct buffer text = {0};
    bool number = pickle_is(argument, PICKLE_INT), word = pickle_is(argument, PICKLE_TEXT);
    if (!pickle_is(value->class, PICKLE_GLOBAL) || (!number && !word) ||
        argument->text.size > TEXT_LIMIT)
        return;
    buffer_printf(&text, "%.*s(", (int)value->class->text.size, value->class->text.text);
    if (number)
        buffer_printf(&text, "%lld)", (long long)argument->number);
    else
        buffer_printf(&text, "%.*s)", (int)argument->text.size, argument->text.text);
    settings_put_text(settings, name, (struct text_span){text.data, text.size});
    buffer_free(&text);
}

/* A walk through a pickle: dicts that hold one another would have no end. */
struct pickle_walk {
    struct settings *settings;
    int seen;
};

/* NeMo's configurations are OmegaConf's: maps have their pairs in _content, and values are nodes
 * that have them in _val. */
static const struct pickle_value *unwrap_node(const struct pickle_value *pickle_value) {
    const struct pickle_value *content = pickle_attribute(pickle_value, "_content"),
                              *value = pickle_attribute(pickle_value, "_val");
    return content ? content : value ? value : pickle_value;
}

static void put_pickle_at(struct pickle_walk *walk, const char *outer,
                          const struct pickle_value *pickle_value, int depth) {
    struct settings *settings = walk->settings;
    const struct pickle_value *inner = pickle_attributes(pickle_value);
    if (depth == 0) return;
    if (pickle_pairs(pickle_value) == 0 && inner) pickle_value = inner;
    for (size_t i = 0; i < pickle_pairs(pickle_value) && walk->seen < COUNT_LIMIT; i++) {
        const struct pickle_value *key = pickle_key(pickle_value, i),
                                  *value = unwrap_node(pickle_pair_value(pickle_value, i));
        walk->seen++;
        if (key->kind != PICKLE_TEXT || key->text.size > TEXT_LIMIT) continue;
        char *name = join(outer, key->text);
        switch (value->kind) {
            case PICKLE_BOOL: settings_put_bool(settings, name, value->number != 0); break;
            case PICKLE_INT: settings_put_int(settings, name, value->number); break;
            case PICKLE_REAL: settings_put_real(settings, name, value->real); break;
            case PICKLE_GLOBAL:
            case PICKLE_TEXT:
                if (value->text.size <= TEXT_LIMIT) settings_put_text(settings, name, value->text);
                break;
            case PICKLE_OBJECT: put_call(settings, name, value); /* fall through */
            case PICKLE_DICT: put_pickle_at(walk, name, value, depth - 1); break;
            default: break;
        }
        free(name);
    }
}

void settings_put_pickle(struct settings *settings, const struct pickle_value *value) {
    struct pickle_walk walk = {.settings = settings};
    if (value) put_pickle_at(&walk, NULL, unwrap_node(value), DEPTH_LIMIT);
}

static void put_json_at(struct settings *settings, const char *outer, const struct json *object) {
    for (struct json_entry it = {0}; json_next(object, &it);) {
        char *name = join(outer, it.name);
        switch (json_kind(it.value)) {
            case JSON_KIND_BOOL: settings_put_bool(settings, name, json_bool(it.value)); break;
            case JSON_KIND_INT: settings_put_int(settings, name, json_int(it.value)); break;
            case JSON_KIND_REAL: settings_put_real(settings, name, json_double(it.value)); break;
            case JSON_KIND_TEXT: settings_put_text(settings, name, json_text(it.value)); break;
            case JSON_KIND_OBJECT: put_json_at(settings, name, it.value); break;
            default: break;
        }
        free(name);
    }
}

void settings_put_json(struct settings *settings, const struct json *object) {
    put_json_at(settings, NULL, object);
}

const struct setting *settings_find(const struct settings *settings, const char *name) {
    int i = find_place(settings, name);
    return i >= 0 ? &settings->list[i] : NULL;
}

bool settings_int(const struct settings *settings, const char *name, int64_t *out) {
    const struct setting *found = settings_find(settings, name);
    if (found == NULL || found->kind != SETTING_INT) return false;
    *out = found->number;
    return true;
}

bool settings_real(const struct settings *settings, const char *name, double *out) {
    const struct setting *found = settings_find(settings, name);
    if (found == NULL || (found->kind != SETTING_INT && found->kind != SETTING_REAL)) return false;
    *out = found->real;
    return true;
}

bool settings_bool(const struct settings *settings, const char *name, bool *out) {
    const struct setting *found = settings_find(settings, name);
    if (found == NULL || found->kind != SETTING_BOOL) return false;
    *out = found->number != 0;
    return true;
}

const char *settings_text(const struct settings *settings, const char *name) {
    const struct setting *found = settings_find(settings, name);
    return found && found->kind == SETTING_TEXT ? found->text : NULL;
}

bool settings_true(const struct settings *settings, const char *name) {
    bool truth = false;
    return settings_bool(settings, name, &truth) && truth;
}
