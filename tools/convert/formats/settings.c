/* tools/convert/formats/settings.c: names with plain values. See settings.h. */
#include "tools/convert/formats/settings.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_LIMIT = 8, COUNT_LIMIT = 1 << 14, TEXT_LIMIT = 4096 };

void settings_free(struct settings *s) {
    for (int i = 0; i < s->n; i++) {
        free(s->list[i].name);
        free(s->list[i].text);
        free(s->list[i].origin);
    }
    free(s->list);
    lookup_free(&s->places);
    *s = (struct settings){0};
}

/* The place of a name in the list; -1: it is not there. */
static int find_place(const struct settings *s, const char *name) {
    uint64_t hash = lookup_hash(name, strlen(name));
    size_t at = 0;
    for (int i; (i = lookup_next(&s->places, hash, &at)) >= 0;)
        if (strcmp(s->list[i].name, name) == 0) return i;
    return -1;
}

static struct setting *settings_place(struct settings *s, const char *name) {
    int i = find_place(s, name);
    if (i >= 0) {
        free(s->list[i].text);
        free(s->list[i].origin);
        s->list[i] = (struct setting){.name = s->list[i].name};
        return &s->list[i];
    }
    lookup_add(&s->places, lookup_hash(name, strlen(name)), s->n);
    s->list = xgrow(s->list, s->n, &s->capacity, sizeof *s->list);
    s->list[s->n] = (struct setting){.name = xstrdup(name)};
    s->n++;
    return &s->list[s->n - 1];
}

void settings_put_int(struct settings *s, const char *name, int64_t number) {
    struct setting *put = settings_place(s, name);
    put->kind = SETTING_INT;
    put->number = number;
    put->real = (double)number;
}

void settings_put_real(struct settings *s, const char *name, double real) {
    struct setting *put = settings_place(s, name);
    put->kind = SETTING_REAL;
    put->real = real;
}

void settings_put_bool(struct settings *s, const char *name, bool truth) {
    struct setting *put = settings_place(s, name);
    put->kind = SETTING_BOOL;
    put->number = truth;
}

void settings_put_text(struct settings *s, const char *name, struct text_span text) {
    struct setting *put = settings_place(s, name);
    put->kind = SETTING_TEXT;
    put->text = xstrndup(text.text, text.size);
}

void settings_copy(struct settings *s, const char *name, const struct setting *value) {
    switch (value->kind) {
        case SETTING_BOOL: settings_put_bool(s, name, value->number != 0); break;
        case SETTING_INT: settings_put_int(s, name, value->number); break;
        case SETTING_REAL: settings_put_real(s, name, value->real); break;
        case SETTING_TEXT: settings_put_text(s, name, (struct text_span){value->text, strlen(value->text)}); break;
        case SETTING_NONE: break;
    }
}

void settings_say(struct settings *s, const char *name, const char *origin) {
    struct setting *put = (struct setting *)(uintptr_t)settings_find(s, name);
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
static void put_call(struct settings *s, const char *name, const struct pickle_value *v) {
    const struct pickle_value *argument = pickle_item(v->arguments, 0);
    struct buffer text = {0};
    bool number = pickle_is(argument, PICKLE_INT), word = pickle_is(argument, PICKLE_TEXT);
    if (!pickle_is(v->class, PICKLE_GLOBAL) || (!number && !word) || argument->text.size > TEXT_LIMIT) return;
    buffer_printf(&text, "%.*s(", (int)v->class->text.size, v->class->text.text);
    if (number)
        buffer_printf(&text, "%lld)", (long long)argument->number);
    else
        buffer_printf(&text, "%.*s)", (int)argument->text.size, argument->text.text);
    settings_put_text(s, name, (struct text_span){text.data, text.size});
    buffer_free(&text);
}

/* A walk through a pickle: dicts that hold one another would have no end. */
struct pickle_walk {
    struct settings *settings;
    int seen;
};

/* NeMo's configurations are OmegaConf's: maps have their pairs in _content, and values are nodes that have them in
 * _val. */
static const struct pickle_value *unwrap_node(const struct pickle_value *v) {
    const struct pickle_value *content = pickle_attribute(v, "_content"), *value = pickle_attribute(v, "_val");
    return content ? content : value ? value : v;
}

static void put_pickle_at(struct pickle_walk *w, const char *outer, const struct pickle_value *v, int depth) {
    struct settings *s = w->settings;
    const struct pickle_value *inner = pickle_attributes(v);
    if (depth == 0) return;
    if (pickle_pairs(v) == 0 && inner) v = inner;
    for (size_t i = 0; i < pickle_pairs(v) && w->seen < COUNT_LIMIT; i++) {
        const struct pickle_value *key = pickle_key(v, i), *value = unwrap_node(pickle_pair_value(v, i));
        w->seen++;
        if (key->kind != PICKLE_TEXT || key->text.size > TEXT_LIMIT) continue;
        char *name = join(outer, key->text);
        switch (value->kind) {
            case PICKLE_BOOL: settings_put_bool(s, name, value->number != 0); break;
            case PICKLE_INT: settings_put_int(s, name, value->number); break;
            case PICKLE_REAL: settings_put_real(s, name, value->real); break;
            case PICKLE_GLOBAL:
            case PICKLE_TEXT:
                if (value->text.size <= TEXT_LIMIT) settings_put_text(s, name, value->text);
                break;
            case PICKLE_OBJECT: put_call(s, name, value); /* fall through */
            case PICKLE_DICT: put_pickle_at(w, name, value, depth - 1); break;
            default: break;
        }
        free(name);
    }
}

void settings_put_pickle(struct settings *s, const struct pickle_value *v) {
    struct pickle_walk walk = {.settings = s};
    if (v) put_pickle_at(&walk, NULL, unwrap_node(v), DEPTH_LIMIT);
}

static void put_json_at(struct settings *s, const char *outer, const struct json *object) {
    for (struct json_entry it = {0}; json_next(object, &it);) {
        char *name = join(outer, it.name);
        switch (json_kind(it.value)) {
            case JSON_KIND_BOOL: settings_put_bool(s, name, json_bool(it.value)); break;
            case JSON_KIND_INT: settings_put_int(s, name, json_int(it.value)); break;
            case JSON_KIND_REAL: settings_put_real(s, name, json_double(it.value)); break;
            case JSON_KIND_TEXT: settings_put_text(s, name, json_text(it.value)); break;
            case JSON_KIND_OBJECT: put_json_at(s, name, it.value); break;
            default: break;
        }
        free(name);
    }
}

void settings_put_json(struct settings *s, const struct json *object) { put_json_at(s, NULL, object); }

const struct setting *settings_find(const struct settings *s, const char *name) {
    int i = find_place(s, name);
    return i >= 0 ? &s->list[i] : NULL;
}

bool settings_int(const struct settings *s, const char *name, int64_t *out) {
    const struct setting *found = settings_find(s, name);
    if (found == NULL || found->kind != SETTING_INT) return false;
    *out = found->number;
    return true;
}

bool settings_real(const struct settings *s, const char *name, double *out) {
    const struct setting *found = settings_find(s, name);
    if (found == NULL || (found->kind != SETTING_INT && found->kind != SETTING_REAL)) return false;
    *out = found->real;
    return true;
}

bool settings_bool(const struct settings *s, const char *name, bool *out) {
    const struct setting *found = settings_find(s, name);
    if (found == NULL || found->kind != SETTING_BOOL) return false;
    *out = found->number != 0;
    return true;
}

const char *settings_text(const struct settings *s, const char *name) {
    const struct setting *found = settings_find(s, name);
    return found && found->kind == SETTING_TEXT ? found->text : NULL;
}

bool settings_true(const struct settings *s, const char *name) {
    bool truth = false;
    return settings_bool(s, name, &truth) && truth;
}
