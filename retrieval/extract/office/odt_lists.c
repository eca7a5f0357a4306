/* retrieval/extract/office/odt_lists.c: see odt_lists.h. */
#include "retrieval/extract/office/odt_lists.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "retrieval/extract/office/numerals.h"

enum { MOST_STYLES = 4096 };

static int read_number(struct odt_lists *lists, const struct xml_event *event, const char *name,
                       int least, int most) {
    int n = xml_attribute(event, name, &lists->value) ? atoi(lists->value.data) : least;
    return max_int(least, min_int(n, most));
}

static void add_style(struct odt_lists *lists, const struct xml_event *event) {
    bool added;
    if (lists->n == MOST_STYLES || !xml_attribute(event, "name", &lists->value)) return;
    int64_t *place =
        key_set_put(&lists->by_name, hash_bytes(lists->value.data, lists->value.size, 0),
                    lists->value.size, &added);
    *place = lists->n;
    lists->styles = xgrow(lists->styles, lists->n, &lists->capacity, sizeof *lists->styles);
    lists->styles[lists->n] = (struct odt_list_style){.levels = {{0}}};
    lists->n++;
}

static void copy_affix(struct odt_lists *lists, const struct xml_event *event, const char *name,
                       char to[8]) {
    if (!xml_attribute(event, name, &lists->value) || lists->value.size >= 8) return;
    memcpy(to, lists->value.data, lists->value.size + 1);
}

void odt_take_list_style(struct odt_lists *lists, const struct xml_event *event) {
    if (event->kind != XML_EVENT_OPEN) return;
    if (xml_is(event, "list-style")) add_style(lists, event);
    bool numbered = xml_is(event, "list-level-style-number");
    if (lists->n == 0 || (!numbered && !xml_is(event, "list-level-style-bullet"))) return;
    struct odt_level *level =
        &lists->styles[lists->n - 1].levels[read_number(lists, event, "level", 1, ODT_LEVELS) - 1];
    *level =
        (struct odt_level){.start = read_number(lists, event, "start-value", 1, 1000000),
                           .shown = read_number(lists, event, "display-levels", 1, ODT_LEVELS)};
    if (!numbered) {
        memcpy(level->prefix, "-", 2);
        return;
    }
    if (xml_attribute(event, "num-format", &lists->value)) level->format = lists->value.data[0];
    copy_affix(lists, event, "num-prefix", level->prefix);
    copy_affix(lists, event, "num-suffix", level->suffix);
}

static const struct odt_level *level_of(const struct odt_lists *lists, int depth) {
    static const struct odt_level bullet = {.prefix = "-", .start = 1, .shown = 1};
    return lists->style >= 0 && depth < ODT_LEVELS ? &lists->styles[lists->style].levels[depth]
                                                   : &bullet;
}

static void open_list(struct odt_lists *lists, const struct xml_event *event) {
    bool goes_on = xml_attribute(event, "continue-numbering", &lists->value) &&
                   strcmp(lists->value.data, "true") == 0;
    if (lists->depth == 0) lists->style = -1;
    if (xml_attribute(event, "style-name", &lists->value)) {
        const int64_t *place =
            key_set_number(&lists->by_name, hash_bytes(lists->value.data, lists->value.size, 0),
                           lists->value.size);
        if (place) lists->style = (int)*place;
    }
    if (!goes_on && lists->depth < ODT_LEVELS) lists->counts[lists->depth] = 0;
    lists->depth++;
}

void odt_take_list(struct odt_lists *lists, const struct xml_event *event) {
    bool opens = event->kind == XML_EVENT_OPEN;
    if (xml_is(event, "list") && opens) open_list(lists, event);
    if (xml_is(event, "list") && event->kind == XML_EVENT_CLOSE) lists->depth--;
    if (xml_is(event, "list-header")) lists->label_due = false;
    if (!xml_is(event, "list-item")) return;
    int depth = lists->depth - 1;
    lists->label_due = opens;
    if (!opens || depth < 0 || depth >= ODT_LEVELS) return;
    int start = level_of(lists, depth)->start;
    lists->counts[depth] = lists->counts[depth] == 0 ? max_int(start, 1) : lists->counts[depth] + 1;
}

static void write_number(struct buffer *label, char format, int number) {
    static const char letters[] = "1aAiI";
    static const enum numeral_kind kinds[] = {NUMERAL_DECIMAL, NUMERAL_LOWER_LETTER,
                                              NUMERAL_UPPER_LETTER, NUMERAL_LOWER_ROMAN,
                                              NUMERAL_UPPER_ROMAN};
    const char *found = format ? strchr(letters, format) : NULL;
    if (found) numeral_write(label, kinds[found - letters], number);
}

void odt_write_label(struct odt_lists *lists, struct buffer *label) {
    int depth = lists->depth - 1;
    if (!lists->label_due || depth < 0 || depth >= ODT_LEVELS) return;
    lists->label_due = false;
    const struct odt_level *level = level_of(lists, depth);
    buffer_append_string(label, level->prefix);
    for (int i = max_int(0, depth + 1 - level->shown); i <= depth && level->format; i++) {
        write_number(label, level_of(lists, i)->format, lists->counts[i]);
        if (i < depth) buffer_append_string(label, ".");
    }
    buffer_append_string(label, level->suffix);
    if (label->size > 0) buffer_append_string(label, " ");
}

void odt_lists_free(struct odt_lists *lists) {
    free(lists->styles);
    key_set_free(&lists->by_name);
    buffer_free(&lists->value);
}
