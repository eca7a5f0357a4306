/* retrieval/extract/text/records.c: tables (CSV, TSV) and lines of JSON: each record is a document,
 * which shows the line that it begins on. The first record of a table names its columns. */
#include <stdlib.h>
#include <string.h>

#include "config/json/json_value.h"
#include "retrieval/extract/extract_private.h"
#include "retrieval/tables/cell_value.h"

/* "name: value" lines. */

enum { MAX_TITLE = 200 };

static bool is_title_name(const char *name) {
    return strcasecmp(name, "title") == 0 || strcasecmp(name, "name") == 0 ||
           strcasecmp(name, "subject") == 0;
}

/* Where a value comes from. */
struct record_place {
    size_t line;        /* that its record begins on */
    size_t row, column; /* of a table, from 1; 0: it is none */
};

static void add_value(struct document_text *text, const char *name, const char *value,
                      const struct record_place *place) {
    while (*value && strchr(" \t\r\n", *value)) value++;
    size_t size = strlen(value);
    while (size > 0 && strchr(" \t\r\n", value[size - 1])) size--;
    if (size == 0) return;
    marks_add(&text->marks, MARK_LINE, 0, text->text.size, place->line);
    if (name[0]) buffer_printf(&text->text, "%s: ", name);
    if (place->row > 0) marks_add_cell(&text->marks, text->text.size, place->row, place->column);
    buffer_append(&text->text, value, size);
    if (memchr(value, '\n', size)) marks_add(&text->marks, MARK_NO_LINE, 0, text->text.size, 0);
    buffer_append(&text->text, "\n", 1);
    if (text->title.size == 0 && is_title_name(name) && size <= MAX_TITLE)
        buffer_append(&text->title, value, size);
}

static void write_record(struct child_writer *writer, struct document_text *text, size_t line) {
    struct buffer part = {0};
    buffer_printf(&part, "#%zu", line);
    buffer_append(&text->title, "", 0);
    if (text->text.size > 0) child_write_document(writer, part.data, text);
    buffer_free(&part);
    document_text_clear(text);
}

/* Tables. */

struct table_reader {
    const char *at, *end;
    char delimiter;
    size_t line;           /* of *at, from 1 */
    struct buffer *fields; /* [n_fields] of the record that was read last, and room behind them */
    int n_fields, capacity;
};

/* The character that the first line has most of, outside quotes. */
static char find_delimiter(const char *text, size_t size) {
    static const char candidates[] = ",;\t|";
    size_t counts[sizeof candidates] = {0}, best = 0;
    bool quoted = false;
    for (size_t i = 0; i < size && (quoted || text[i] != '\n'); i++) {
        const char *found = text[i] ? strchr(candidates, text[i]) : NULL;
        if (text[i] == '"') quoted = !quoted;
        if (found && !quoted) counts[found - candidates]++;
    }
    for (size_t i = 1; i < sizeof candidates - 1; i++) best = counts[i] > counts[best] ? i : best;
    return candidates[best];
}

static struct buffer *add_field(struct table_reader *reader) {
    if (reader->n_fields == reader->capacity) {
        int before = reader->capacity;
        reader->fields =
            xgrow(reader->fields, reader->n_fields, &reader->capacity, sizeof *reader->fields);
        memset(reader->fields + before, 0,
               (size_t)(reader->capacity - before) * sizeof *reader->fields);
    }
    struct buffer *field = &reader->fields[reader->n_fields];
    reader->n_fields++;
    buffer_clear(field);
    return field;
}

/* Quotes within quotes are doubled. */
static void read_quoted(struct table_reader *reader, struct buffer *field) {
    reader->at++;
    while (reader->at < reader->end) {
        char c = *reader->at;
        bool doubled = c == '"' && reader->at + 1 < reader->end && reader->at[1] == '"';
        reader->at += doubled ? 2 : 1;
        if (c == '"' && !doubled) return;
        reader->line += c == '\n';
        buffer_append(field, &c, 1);
    }
}

static void read_field(struct table_reader *reader) {
    struct buffer *field = add_field(reader);
    if (reader->at < reader->end && *reader->at == '"' && reader->delimiter != '\t')
        read_quoted(reader, field);
    const char *start = reader->at;
    while (reader->at < reader->end && *reader->at != reader->delimiter && *reader->at != '\n')
        reader->at++;
    buffer_append(field, start, (size_t)(reader->at - start));
}

static bool read_record(struct table_reader *reader) {
    reader->n_fields = 0;
    if (reader->at >= reader->end) return false;
    read_field(reader);
    while (reader->at < reader->end && *reader->at == reader->delimiter) {
        reader->at++;
        read_field(reader);
    }
    reader->line += reader->at < reader->end;
    reader->at += reader->at < reader->end;
    return true;
}

static void free_fields(struct buffer *fields, int n) {
    for (int i = 0; i < n; i++) buffer_free(&fields[i]);
    free(fields);
}

/* A record that is longer than a passage says its first fields again in each part. */
enum { PART_BYTES = 110, NAME_BYTES = 60, MOST_NAMES = 2 };

/* How many fields at the beginning of a record name it: one, or two texts. */
static int count_record_names(const struct table_reader *reader) {
    int n = 0;
    while (n < MOST_NAMES && n < reader->n_fields) {
        const struct buffer *field = &reader->fields[n];
        struct text_span text = {field->data, field->size};
        bool is_text = cell_value_read(text, DECIMAL_POINT).kind == CELL_TEXT;
        if (field->size == 0 || field->size > NAME_BYTES || (n > 0 && !is_text)) break;
        n++;
        if (!is_text) break;
    }
    return n;
}

/* The fields that name the record once more, which are not marked as cells again. */
static void begin_part(struct document_text *text, const struct table_reader *reader,
                       const struct buffer *names, int n, const struct record_place *place) {
    struct record_place again = {.line = place->line};
    marks_add_block(&text->marks, BLOCK_PARAGRAPH, text->text.size);
    for (int i = 0; i < n; i++) add_value(text, names[i].data, reader->fields[i].data, &again);
}

static void add_fields(struct document_text *text, const struct table_reader *reader,
                       const struct buffer *names, int n_names, struct record_place *place) {
    int naming = min_int(count_record_names(reader), n_names);
    size_t start = 0;
    for (int i = 0; i < reader->n_fields; i++) {
        const char *name = i < n_names ? names[i].data : "";
        size_t size = strlen(name) + reader->fields[i].size + 3;
        place->column = (size_t)i + 1;
        if (i > naming && naming > 0 && size <= PART_BYTES && reader->fields[i].size > 0 &&
            text->text.size - start + size > PART_BYTES) {
            start = text->text.size;
            begin_part(text, reader, names, naming, place);
        }
        add_value(text, name, reader->fields[i].data, place);
    }
}

/* A first line "sep=;" tells Excel the delimiter, and is no record. */
static void skip_delimiter_line(struct table_reader *reader) {
    const char *at = reader->at;
    bool told = reader->end - at > 5 && strncmp(at, "sep=", 4) == 0;
    const char *after = told ? at + 5 + (at[5] == '\r') : at;
    if (!told || after == reader->end || *after != '\n') return;
    reader->delimiter = at[4];
    reader->at = after + 1;
    reader->line++;
}

static void write_table(struct table_reader *reader, const char *note,
                        struct child_writer *writer) {
    struct document_text text = {.note = note};
    if (!read_record(reader)) return;
    struct buffer *names = reader->fields;
    int n_names = reader->n_fields, capacity = reader->capacity;
    for (int i = 0; i < n_names; i++)
        while (names[i].size > 0 && strchr(" \r", names[i].data[names[i].size - 1])) {
            names[i].size--;
            names[i].data[names[i].size] = '\0';
        }
    reader->fields = NULL;
    reader->n_fields = reader->capacity = 0;
    struct record_place place = {.line = reader->line, .row = 2};
    for (; read_record(reader); place.row++) {
        add_fields(&text, reader, names, n_names, &place);
        write_record(writer, &text, place.line);
        place.line = reader->line;
    }
    document_text_free(&text);
    free_fields(names, capacity);
    free_fields(reader->fields, reader->capacity);
}

/* Lines of JSON. */

enum { MOST_NESTED = 8 }; /* objects within each other */

/* Members of an object within the record are called "outer.inner". */
static void add_json(struct document_text *text, const char *name, const struct json *json,
                     const struct record_place *place, int depth) {
    char shown[JSON_SHOWN_SIZE];
    if (json_is_text(json)) {
        add_value(text, name, json_text(json).text, place);
    } else if (json_is_numeric(json) || json_kind(json) == JSON_KIND_BOOL) {
        add_value(text, name, json_shown(json, shown), place);
    } else if (depth < MOST_NESTED && json_is_list(json)) {
        for (size_t i = 0; i < json_count(json); i++)
            add_json(text, name, json_item(json, i), place, depth + 1);
    } else if (depth < MOST_NESTED && json_kind(json) == JSON_KIND_OBJECT) {
        struct buffer inner = {0};
        for (struct json_entry it = {0}; json_next(json, &it);) {
            buffer_clear(&inner);
            buffer_printf(&inner, "%s.%s", name, it.name.text);
            add_json(text, inner.data, it.value, place, depth + 1);
        }
        buffer_free(&inner);
    }
}

/* An object whose text is in one member is that text; of any other its members are shown. */
static void add_object(struct document_text *document_text, const struct json *object,
                       const struct record_place *place) {
    static const char *const text_names[] = {"text", "content", "contents", "body"};
    for (size_t i = 0; i < ARRAY_COUNT(text_names); i++) {
        struct text_span text = json_text(json_member(object, text_names[i]));
        if (text.size == 0) continue;
        struct text_span title = json_text(json_member(object, "title"));
        add_value(document_text, "", text.text, place);
        if (title.size > 0 && title.size <= MAX_TITLE)
            buffer_append(&document_text->title, title.text, title.size);
        return;
    }
    for (struct json_entry it = {0}; json_next(object, &it);)
        add_json(document_text, it.name.text, it.value, place, 0);
}

static void write_lines(const struct extract_file *file, const struct document_text *text,
                        struct child_writer *writer) {
    struct document_text document_text = {.note = text->note};
    const char *at = text->text.data, *end = at + text->text.size;
    struct error why;
    for (size_t line = 1; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)),
                   *next = newline ? newline + 1 : end;
        struct text_span record = {at, (size_t)((newline ? newline : end) - at)};
        struct record_place place = {.line = line};
        struct json *object;
        at = next;
        if (strspn(record.text, " \t\r") >= record.size) continue;
        if (json_parse_any(&object, record, "record", &why)) {
            struct error named;
            error_set(&named, STATUS_INVALID, "%s#%zu: %s", file->name, line, why.text);
            child_write_skipped(writer, &named);
            continue;
        }
        if (json_is_text(object))
            add_value(&document_text, "", json_text(object).text, &place);
        else
            add_object(&document_text, object, &place);
        json_close(object);
        write_record(writer, &document_text, line);
    }
    document_text_free(&document_text);
}

enum status extract_records(const struct extract_file *file, struct child_writer *writer,
                            struct error *e) {
    struct document_text text = {0};
    struct extract_file as_text = *file;
    as_text.kind = DOCUMENT_TEXT;
    enum status status = extract_text(&as_text, &text, e);
    struct text_span span = {text.text.data, text.text.size};
    struct table_reader reader = {
        .at = span.text, .end = span.text + span.size, .delimiter = '\t', .line = 1};
    if (status == STATUS_OK && file->kind == DOCUMENT_CSV)
        reader.delimiter = find_delimiter(span.text, span.size);
    if (status == STATUS_OK && file->kind == DOCUMENT_CSV) skip_delimiter_line(&reader);
    if (status == STATUS_OK && file->kind == DOCUMENT_JSONL)
        write_lines(file, &text, writer);
    else if (status == STATUS_OK)
        write_table(&reader, text.note, writer);
    document_text_free(&text);
    return status;
}
