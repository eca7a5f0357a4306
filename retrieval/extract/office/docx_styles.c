/* retrieval/extract/office/docx_styles.c: see docx_styles.h. */
#include "retrieval/extract/office/docx_styles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/hash.h"
#include "retrieval/extract/office/numerals.h"
#include "retrieval/extract/office/xml.h"

/* As many as a program makes; a style's parents are looked up through all of them. */
enum { MOST_STYLES = 4096, MOST_LISTS = 4096, MOST_NOTES = 65536, MOST_PARENTS = 16 };

struct style_reader {
    struct docx_styles *styles;
    struct docx_style style;
    struct buffer value;
    struct docx_list *list;
    int depth;
    bool in_text;
    const char *note_kind; /* the element that a note is */
    int note;              /* its id; -1: none is open */
    bool at_end;           /* notes are those of the document's end */
    size_t note_start;
};

/* Things that are looked up by an id. */
enum name_kind { NAME_STYLE = 1, NAME_LIST, NAME_NUMBER, NAME_NOTE, NAME_END_NOTE };

static void name_thing(struct docx_styles *styles, enum name_kind kind, uint64_t id, int place) {
    bool added;
    int64_t *number = key_set_put(&styles->by_name, id, kind, &added);
    if (added) *number = place;
}

/* -1: there is none. */
static int find_thing(const struct docx_styles *styles, enum name_kind kind, uint64_t id) {
    const int64_t *number = key_set_number(&styles->by_name, id, kind);
    return number ? (int)*number : -1;
}

static void copy_value(char *to, size_t size, const struct buffer *value) {
    size_t n = value->size < size ? value->size : size - 1;
    memcpy(to, value->data ? value->data : "", n);
    to[n] = '\0';
}

static int read_number(struct style_reader *reader, const struct xml_event *event,
                       const char *name) {
    return xml_attribute(event, name, &reader->value) ? atoi(reader->value.data) : 0;
}

/* Styles: their ids are of the writer's language, their names are English. */

static void close_style(struct style_reader *reader) {
    struct docx_styles *styles = reader->styles;
    if (reader->style.id[0] == '\0' || styles->n_styles == MOST_STYLES) return;
    styles->styles =
        xgrow(styles->styles, styles->n_styles, &styles->styles_capacity, sizeof *styles->styles);
    styles->styles[styles->n_styles] = reader->style;
    name_thing(styles, NAME_STYLE, hash_bytes(reader->style.id, strlen(reader->style.id), 0),
               styles->n_styles);
    styles->n_styles++;
}

static void take_style(void *context, const struct xml_event *event) {
    struct style_reader *reader = context;
    struct docx_style *style = &reader->style;
    if (xml_is(event, "style")) {
        if (event->kind == XML_EVENT_CLOSE) {
            close_style(reader);
            return;
        }
        *style = (struct docx_style){.level = -1};
        if (xml_attribute(event, "styleId", &reader->value))
            copy_value(style->id, sizeof style->id, &reader->value);
    }
    if (event->kind != XML_EVENT_OPEN) return;
    if (xml_is(event, "basedOn") && xml_attribute(event, "val", &reader->value))
        copy_value(style->parent, sizeof style->parent, &reader->value);
    if (xml_is(event, "name") && xml_attribute(event, "val", &reader->value)) {
        const char *name = reader->value.data;
        if (strncasecmp(name, "heading ", 8) == 0 && name[8] >= '1' && name[8] <= '9')
            style->level = name[8] - '0';
        if (strcasecmp(name, "title") == 0) style->level = 1;
        style->is_contents = strncasecmp(name, "toc ", 4) == 0;
    }
    if (xml_is(event, "outlineLvl") && xml_attribute(event, "val", &reader->value)) {
        char digit = reader->value.data[0];
        if (digit >= '0' && digit <= '8') style->level = digit - '0' + 1;
        if (digit == '9') style->level = 0;
    }
    if (xml_is(event, "numId")) style->list = read_number(reader, event, "val");
    if (xml_is(event, "ilvl")) style->depth = read_number(reader, event, "val");
}

static struct docx_style *find_style(const struct docx_styles *styles, const char *id) {
    int place = find_thing(styles, NAME_STYLE, hash_bytes(id, strlen(id), 0));
    return place >= 0 ? &styles->styles[place] : NULL;
}

const struct docx_style *docx_find_style(const struct docx_styles *styles, const char *id) {
    return find_style(styles, id);
}

/* A style that says nothing of it has the level and list of its parent. */
static void inherit(struct docx_styles *styles) {
    for (int i = 0; i < styles->n_styles; i++) {
        struct docx_style *style = &styles->styles[i], *parent = style;
        for (int up = 0; up < MOST_PARENTS && parent && parent->parent[0]; up++) {
            parent = find_style(styles, parent->parent);
            if (parent && style->level < 0) style->level = parent->level;
            if (parent && style->list == 0) {
                style->list = parent->list;
                style->depth = parent->depth;
            }
        }
        style->level = max_int(style->level, 0);
    }
}

/* Lists. */

static void open_list(struct style_reader *reader, const struct xml_event *event) {
    struct docx_styles *styles = reader->styles;
    reader->list = NULL;
    if (styles->n_lists == MOST_LISTS) return;
    styles->lists =
        xgrow(styles->lists, styles->n_lists, &styles->lists_capacity, sizeof *styles->lists);
    reader->list = &styles->lists[styles->n_lists];
    *reader->list = (struct docx_list){.id = read_number(reader, event, "abstractNumId")};
    for (int i = 0; i < DOCX_LEVELS; i++) reader->list->levels[i].start = 1;
    name_thing(styles, NAME_LIST, (uint64_t)reader->list->id, styles->n_lists);
    styles->n_lists++;
    reader->depth = 0;
}

static void add_number(struct style_reader *reader, int list) {
    struct docx_styles *styles = reader->styles;
    if (styles->n_numbers == 0) return;
    styles->numbers[styles->n_numbers - 1].list = list;
}

static void open_number(struct style_reader *reader, const struct xml_event *event) {
    struct docx_styles *styles = reader->styles;
    if (styles->n_numbers == MOST_LISTS) return;
    styles->numbers = xgrow(styles->numbers, styles->n_numbers, &styles->numbers_capacity,
                            sizeof *styles->numbers);
    styles->numbers[styles->n_numbers] =
        (struct docx_number){.id = read_number(reader, event, "numId")};
    name_thing(styles, NAME_NUMBER, (uint64_t)styles->numbers[styles->n_numbers].id,
               styles->n_numbers);
    styles->n_numbers++;
    reader->list = NULL;
}

static void take_numbering(void *context, const struct xml_event *event) {
    struct style_reader *reader = context;
    if (event->kind != XML_EVENT_OPEN) return;
    if (xml_is(event, "abstractNum")) open_list(reader, event);
    if (xml_is(event, "num")) open_number(reader, event);
    if (xml_is(event, "abstractNumId")) add_number(reader, read_number(reader, event, "val"));
    if (xml_is(event, "lvl")) {
        int depth = read_number(reader, event, "ilvl");
        reader->depth = depth < 0 || depth >= DOCX_LEVELS ? 0 : depth;
    }
    if (reader->list == NULL || !xml_attribute(event, "val", &reader->value)) return;
    struct docx_level *level = &reader->list->levels[reader->depth];
    if (xml_is(event, "start")) level->start = atoi(reader->value.data);
    if (xml_is(event, "numFmt")) copy_value(level->format, sizeof level->format, &reader->value);
    if (xml_is(event, "lvlText")) copy_value(level->text, sizeof level->text, &reader->value);
}

static struct docx_list *find_list(const struct docx_styles *styles, int number) {
    int place = find_thing(styles, NAME_NUMBER, (uint64_t)number);
    if (place >= 0) place = find_thing(styles, NAME_LIST, (uint64_t)styles->numbers[place].list);
    return place >= 0 ? &styles->lists[place] : NULL;
}

static enum numeral_kind kind_of(const char *format) {
    static const struct {
        const char *name;
        enum numeral_kind kind;
    } kinds[] = {{"lowerLetter", NUMERAL_LOWER_LETTER},
                 {"upperLetter", NUMERAL_UPPER_LETTER},
                 {"lowerRoman", NUMERAL_LOWER_ROMAN},
                 {"upperRoman", NUMERAL_UPPER_ROMAN}};
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++)
        if (strcmp(format, kinds[i].name) == 0) return kinds[i].kind;
    return NUMERAL_DECIMAL;
}

static void write_label(const struct docx_list *list, int depth, struct buffer *label) {
    for (const char *at = list->levels[depth].text; *at; at++) {
        int of = at[0] == '%' && at[1] >= '1' && at[1] <= '9' ? at[1] - '1' : -1;
        if (of < 0) {
            buffer_append(label, at, 1);
            continue;
        }
        numeral_write(label, kind_of(list->levels[of].format), list->counts[of]);
        at++;
    }
    if (label->size > 0) buffer_append_string(label, " ");
}

void docx_number_item(struct docx_styles *styles, int number, int depth, struct buffer *label) {
    struct docx_list *list = find_list(styles, number);
    if (list == NULL || depth < 0 || depth >= DOCX_LEVELS) return;
    const char *format = list->levels[depth].format;
    if (strcmp(format, "bullet") == 0) {
        buffer_append_string(label, "- ");
        return;
    }
    for (int i = 0; i <= depth; i++)
        if (list->counts[i] == 0) list->counts[i] = list->levels[i].start - (i == depth);
    list->counts[depth]++;
    for (int i = depth + 1; i < DOCX_LEVELS; i++) list->counts[i] = 0;
    if (strcmp(format, "none") != 0) write_label(list, depth, label);
}

/* Notes. */

static void open_note(struct style_reader *reader, const struct xml_event *event) {
    bool is_line = xml_attribute_is(event, "type", "separator") ||
                   xml_attribute_is(event, "type", "continuationSeparator") ||
                   xml_attribute_is(event, "type", "continuationNotice");
    reader->note = is_line ? -1 : read_number(reader, event, "id");
    reader->note_start = reader->styles->note_text.size;
}

static void close_note(struct style_reader *reader) {
    struct docx_styles *styles = reader->styles;
    if (reader->note < 0 || styles->n_notes == MOST_NOTES) return;
    styles->notes =
        xgrow(styles->notes, styles->n_notes, &styles->notes_capacity, sizeof *styles->notes);
    styles->notes[styles->n_notes] =
        (struct docx_note){reader->note_start, styles->note_text.size - reader->note_start};
    name_thing(styles, reader->at_end ? NAME_END_NOTE : NAME_NOTE, (uint64_t)reader->note,
               styles->n_notes);
    styles->n_notes++;
}

static void take_note(void *context, const struct xml_event *event) {
    struct style_reader *reader = context;
    struct buffer *text = &reader->styles->note_text;
    bool opens = event->kind == XML_EVENT_OPEN;
    if (event->kind == XML_EVENT_TEXT && reader->in_text) buffer_append_string(text, event->text);
    if (xml_is(event, "t")) reader->in_text = opens;
    if (xml_is(event, "p") && !opens) buffer_append_string(text, " ");
    if (xml_is(event, reader->note_kind) && opens) open_note(reader, event);
    if (xml_is(event, reader->note_kind) && event->kind == XML_EVENT_CLOSE) close_note(reader);
}

struct text_span docx_find_note(const struct docx_styles *styles, int id, bool at_end) {
    int place = find_thing(styles, at_end ? NAME_END_NOTE : NAME_NOTE, (uint64_t)id);
    if (place < 0) return (struct text_span){"", 0};
    return (struct text_span){styles->note_text.data + styles->notes[place].start,
                              styles->notes[place].size};
}

/* All. */

static void read_part(const struct office_parts *parts, const char *main, const char *name,
                      xml_taker *take, struct style_reader *reader) {
    const char *slash = strrchr(main, '/');
    struct buffer path = {0};
    struct error unreadable;
    buffer_printf(&path, "%.*s%s", slash ? (int)(slash - main) + 1 : 0, main, name);
    const struct buffer *part = office_find(parts, path.data);
    if (part) xml_read(path.data, office_span(part), take, reader, &unreadable);
    buffer_free(&path);
}

void docx_styles_read(struct docx_styles *styles, const struct office_parts *parts,
                      const char *main) {
    struct style_reader reader = {.styles = styles};
    read_part(parts, main, "styles.xml", take_style, &reader);
    inherit(styles);
    read_part(parts, main, "numbering.xml", take_numbering, &reader);
    reader.note_kind = "footnote";
    read_part(parts, main, "footnotes.xml", take_note, &reader);
    reader.note_kind = "endnote";
    reader.at_end = true;
    read_part(parts, main, "endnotes.xml", take_note, &reader);
    buffer_free(&reader.value);
}

void docx_styles_free(struct docx_styles *styles) {
    free(styles->styles);
    free(styles->lists);
    free(styles->numbers);
    free(styles->notes);
    buffer_free(&styles->note_text);
    key_set_free(&styles->by_name);
}
