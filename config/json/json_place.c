/* config/json/json_place.c: names and lines of places. A line is found by walking over the text
 * once more, which was parsed before: it is valid JSON without duplicate keys. See json_place.h. */
#include "config/json/json_place.h"

#include "config/json/json_raw.h"

void json_place_print(const struct json_place *place, struct buffer *out) {
    if (place == NULL) return;
    json_place_print(place->above, out);
    if (place->name == NULL)
        buffer_printf(out, "[%zu]", place->item);
    else
        buffer_printf(out, "%s%s", place->above ? "." : "", place->name);
}

/* From an object or a list to the member or item `place` of it: *value is its, *start where it
 * begins. */
static bool walk_into(const struct json_place *place, struct text_span *value, const char **start) {
    struct json_walk walk = json_walk_begin(*value);
    struct text_span name;
    if (walk.object != (place->name != NULL)) return false;
    for (size_t i = 0; json_walk_next(&walk, &name, value); i++) {
        *start = name.text;
        if (place->name ? json_token_is(name, place->name) : i == place->item) return true;
    }
    return false;
}

static bool walk_to(const struct json_place *place, struct text_span *value, const char **start) {
    if (place == NULL) return true;
    return walk_to(place->above, value, start) && walk_into(place, value, start);
}

int json_place_line(const struct json_place *place, struct text_span text) {
    struct text_span value = text;
    const char *start = text.text;
    if (place == NULL || !walk_to(place, &value, &start)) return 0;
    int line = 1;
    for (const char *at = text.text; at < start; at++) line += *at == '\n';
    return line;
}
