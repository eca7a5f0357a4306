/* tools/convert/formats/settings.h: what a checkpoint says about its model besides tensors: names
 * with plain values, wherever they were written (a Namespace of arguments, a YAML file, a JSON
 * file). A dict within is "outer.inner". */
#pragma once

#include "config/base/lookup.h"
#include "config/json/json_value.h"
#include "tools/convert/formats/pickle.h"

enum setting_kind { SETTING_NONE, SETTING_BOOL, SETTING_INT, SETTING_REAL, SETTING_TEXT };

struct setting {
    char *name;
    enum setting_kind kind;
    int64_t number; /* of a bool: 0 or 1 */
    double real;    /* of a number of either kind */
    char *text;
    char *origin; /* where the value comes from, in words, or NULL */
};

/* Zero-initialise. */
struct settings {
    struct setting *list;
    int n, capacity;
    struct lookup_table places; /* of the list, by name */
};

void settings_free(struct settings *settings);
/* A later value of a name replaces an earlier one. */
void settings_put_int(struct settings *settings, const char *name, int64_t number);
void settings_put_real(struct settings *settings, const char *name, double real);
void settings_put_bool(struct settings *settings, const char *name, bool truth);
void settings_put_text(struct settings *settings, const char *name, struct text_span text);
/* The value of a setting, under a name of its own; nothing of one that has none. */
void settings_copy(struct settings *settings, const char *name, const struct setting *value);
/* Says where the value of a name that is there comes from. */
void settings_say(struct settings *settings, const char *name, const char *origin);
/* Every plain value of a dict or of an object's attributes; others are passed over. */
void settings_put_pickle(struct settings *settings, const struct pickle_value *value);
void settings_put_json(struct settings *settings, const struct json *object);

const struct setting *settings_find(const struct settings *settings,
                                    const char *name); /* NULL: absent, or None */
/* False, leaving *out, when there is none or it is of another kind. */
bool settings_int(const struct settings *settings, const char *name, int64_t *out);
bool settings_real(const struct settings *settings, const char *name, double *out);
bool settings_bool(const struct settings *settings, const char *name, bool *out);
const char *settings_text(const struct settings *settings, const char *name); /* NULL: none */
bool settings_true(const struct settings *settings, const char *name);        /* there and true */
