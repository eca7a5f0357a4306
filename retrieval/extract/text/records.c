/* retrieval/extract/text/records.c: tables (CSV, TSV) and lines of JSON: each record is a document, which shows the
 * line that it begins on. The first record of a table names its columns. */
#include <stdlib.h>
#include <string.h>

#include "config/json/json_value.h"
#include "retrieval/extract/extract_private.h"

/* "name: value" lines. */

enum { MAX_TITLE = 200 };

static bool is_title_name(const char *name) {
    return strcasecmp(name, "title") == 0 || strcasecmp(name, "name") == 0 || strcasecmp(name, "subject") == 0;
}

static void add_value(struct document_text *d, const char *name, const char *value, size_t line) {
    while (*value && strchr(" \t\r\n", *value)) value++;
    size_t size = strlen(value);
    while (size > 0 && strchr(" \t\r\n", value[size - 1])) size--;
    if (size == 0) return;
    marks_add(&d->marks, MARK_LINE, 0, d->text.size, line);
    if (name[0]) buffer_printf(&d->text, "%s: ", name);
    buffer_append(&d->text, value, size);
    if (memchr(value, '\n', size)) marks_add(&d->marks, MARK_NO_LINE, 0, d->text.size, 0);
    buffer_append(&d->text, "\n", 1);
    if (d->title.size == 0 && is_title_name(name) && size <= MAX_TITLE) buffer_append(&d->title, value, size);
}

static void write_record(struct child_writer *w, struct document_text *d, size_t line) {
    struct buffer part = {0};
    buffer_printf(&part, "#%zu", line);
    buffer_append(&d->title, "", 0);
    if (d->text.size > 0) child_write_document(w, part.data, d);
    buffer_free(&part);
    document_text_clear(d);
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

static struct buffer *add_field(struct table_reader *t) {
    if (t->n_fields == t->capacity) {
        int before = t->capacity;
        t->fields = xgrow(t->fields, t->n_fields, &t->capacity, sizeof *t->fields);
        memset(t->fields + before, 0, (size_t)(t->capacity - before) * sizeof *t->fields);
    }
    struct buffer *field = &t->fields[t->n_fields];
    t->n_fields++;
    buffer_clear(field);
    return field;
}

/* Quotes within quotes are doubled. */
static void read_quoted(struct table_reader *t, struct buffer *field) {
    t->at++;
    while (t->at < t->end) {
        char c = *t->at;
        bool doubled = c == '"' && t->at + 1 < t->end && t->at[1] == '"';
        t->at += doubled ? 2 : 1;
        if (c == '"' && !doubled) return;
        t->line += c == '\n';
        buffer_append(field, &c, 1);
    }
}

static void read_field(struct table_reader *t) {
    struct buffer *field = add_field(t);
    if (t->at < t->end && *t->at == '"' && t->delimiter != '\t') read_quoted(t, field);
    const char *start = t->at;
    while (t->at < t->end && *t->at != t->delimiter && *t->at != '\n') t->at++;
    buffer_append(field, start, (size_t)(t->at - start));
}

static bool read_record(struct table_reader *t) {
    t->n_fields = 0;
    if (t->at >= t->end) return false;
    read_field(t);
    while (t->at < t->end && *t->at == t->delimiter) {
        t->at++;
        read_field(t);
    }
    t->line += t->at < t->end;
    t->at += t->at < t->end;
    return true;
}

static void free_fields(struct buffer *fields, int n) {
    for (int i = 0; i < n; i++) buffer_free(&fields[i]);
    free(fields);
}

static void write_table(struct table_reader *t, const char *note, struct child_writer *w) {
    struct document_text d = {.note = note};
    if (!read_record(t)) return;
    struct buffer *names = t->fields;
    int n_names = t->n_fields, capacity = t->capacity;
    for (int i = 0; i < n_names; i++)
        while (names[i].size > 0 && strchr(" \r", names[i].data[names[i].size - 1])) {
            names[i].size--;
            names[i].data[names[i].size] = '\0';
        }
    t->fields = NULL;
    t->n_fields = t->capacity = 0;
    for (size_t line = t->line; read_record(t); line = t->line) {
        for (int i = 0; i < t->n_fields; i++) add_value(&d, i < n_names ? names[i].data : "", t->fields[i].data, line);
        write_record(w, &d, line);
    }
    document_text_free(&d);
    free_fields(names, capacity);
    free_fields(t->fields, t->capacity);
}

/* Lines of JSON. */

static void add_json(struct document_text *d, const char *name, const struct json *v, size_t line) {
    char shown[JSON_SHOWN_SIZE];
    if (json_is_text(v))
        add_value(d, name, json_text(v).text, line);
    else if (json_is_numeric(v) || json_kind(v) == JSON_KIND_BOOL)
        add_value(d, name, json_shown(v, shown), line);
    else if (json_is_list(v))
        for (size_t i = 0; i < json_count(v); i++)
            if (json_is_text(json_item(v, i))) add_value(d, name, json_text(json_item(v, i)).text, line);
}

/* An object whose text is in one member is that text; of any other its members are shown. */
static void add_object(struct document_text *d, const struct json *object, size_t line) {
    static const char *const text_names[] = {"text", "content", "contents", "body"};
    for (size_t i = 0; i < ARRAY_COUNT(text_names); i++) {
        struct text_span text = json_text(json_member(object, text_names[i]));
        if (text.size == 0) continue;
        struct text_span title = json_text(json_member(object, "title"));
        add_value(d, "", text.text, line);
        if (title.size > 0 && title.size <= MAX_TITLE) buffer_append(&d->title, title.text, title.size);
        return;
    }
    for (struct json_entry it = {0}; json_next(object, &it);) add_json(d, it.name.text, it.value, line);
}

static void write_lines(const struct extract_file *f, const struct document_text *text, struct child_writer *w) {
    struct document_text d = {.note = text->note};
    const char *at = text->text.data, *end = at + text->text.size;
    struct error why;
    for (size_t line = 1; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *next = newline ? newline + 1 : end;
        struct text_span record = {at, (size_t)((newline ? newline : end) - at)};
        struct json *object;
        at = next;
        if (strspn(record.text, " \t\r") >= record.size) continue;
        if (json_parse_any(&object, record, "record", &why)) {
            struct error named;
            error_set(&named, STATUS_INVALID, "%s#%zu: %s", f->name, line, why.text);
            child_write_skipped(w, &named);
            continue;
        }
        if (json_is_text(object))
            add_value(&d, "", json_text(object).text, line);
        else
            add_object(&d, object, line);
        json_close(object);
        write_record(w, &d, line);
    }
    document_text_free(&d);
}

enum status extract_records(const struct extract_file *f, struct child_writer *w, struct error *e) {
    struct document_text text = {0};
    struct extract_file as_text = *f;
    as_text.kind = DOCUMENT_TEXT;
    enum status status = extract_text(&as_text, &text, e);
    struct text_span span = {text.text.data, text.text.size};
    struct table_reader t = {.at = span.text, .end = span.text + span.size, .delimiter = '\t', .line = 1};
    if (status == STATUS_OK && f->kind == DOCUMENT_CSV) t.delimiter = find_delimiter(span.text, span.size);
    if (status == STATUS_OK && f->kind == DOCUMENT_JSONL)
        write_lines(f, &text, w);
    else if (status == STATUS_OK)
        write_table(&t, text.note, w);
    document_text_free(&text);
    return status;
}
