/* retrieval/extract/sheet/xlsx_book.c: see xlsx_book.h. */
#include "retrieval/extract/sheet/xlsx_book.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/utf8.h"
#include "retrieval/extract/office/xml.h"
#include "retrieval/extract/sheet/number_format.h"

/* As many as spreadsheet programs take. */
enum { MOST_STYLES = 65536, MOST_FORMATS = 4096, MOST_SHEETS = 4096 };

bool xlsx_is_true(const struct buffer *value) {
    return strcmp(value->data, "1") == 0 || strcasecmp(value->data, "true") == 0 ||
           strcasecmp(value->data, "on") == 0;
}

/* The workbook. */

struct book_reader {
    struct xlsx_book *book;
    struct buffer value;
};

static void add_sheet(struct book_reader *reader, const struct xml_event *event) {
    struct xlsx_book *book = reader->book;
    struct xlsx_sheet_name sheet = {.hidden = false};
    if (book->n_sheets == MOST_SHEETS || !xml_attribute(event, "id", &reader->value)) return;
    sheet.id = xstrdup(reader->value.data);
    xml_attribute(event, "name", &reader->value);
    sheet.name = xstrdup(reader->value.data ? reader->value.data : "");
    if (xml_attribute(event, "state", &reader->value))
        sheet.hidden = strcasecmp(reader->value.data, "visible") != 0;
    book->sheets =
        xgrow(book->sheets, book->n_sheets, &book->sheets_capacity, sizeof *book->sheets);
    book->sheets[book->n_sheets] = sheet;
    book->n_sheets++;
}

static void take_book(void *context, const struct xml_event *event) {
    struct book_reader *reader = context;
    if (event->kind != XML_EVENT_OPEN) return;
    if (xml_is(event, "workbookPr") && xml_attribute(event, "date1904", &reader->value))
        reader->book->from_1904 = xlsx_is_true(&reader->value);
    if (xml_is(event, "calcPr") && xml_attribute(event, "fullCalcOnLoad", &reader->value))
        reader->book->not_computed = xlsx_is_true(&reader->value);
    if (xml_is(event, "sheet")) add_sheet(reader, event);
}

/* Strings. */

struct string_reader {
    struct xlsx_book *book;
    bool in_text;
    int spoken; /* open: how a text is pronounced is no part of it */
    size_t start;
};

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The character that "_x000D_" stands for; -1: these bytes are themselves. */
static int read_escape(const char *text, size_t size) {
    int c = 0;
    if (size < 7 || text[0] != '_' || text[1] != 'x' || text[6] != '_') return -1;
    for (int i = 2; i < 6; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0) return -1;
        c = c * 16 + digit;
    }
    return c;
}

void xlsx_unescape(struct buffer *text, size_t start) {
    size_t to = start;
    for (size_t from = start; from < text->size;) {
        int c = text->data[from] == '_' ? read_escape(text->data + from, text->size - from) : -1;
        if (c < 0) {
            text->data[to] = text->data[from];
            to++;
            from++;
            continue;
        }
        /* A character of UTF-8 is shorter than its escape; halves of pairs and NUL become blanks.
         */
        bool is_text = c >= 0x20 && (c < 0xd800 || c >= 0xe000);
        uint32_t shown = is_text ? (uint32_t)c : ' ';
        size_t n = shown < 0x80 ? 1 : shown < 0x800 ? 2 : 3;
        static const uint8_t leads[] = {0, 0x00, 0xc0, 0xe0};
        for (size_t i = n; i > 0; i--) {
            text->data[to + i - 1] =
                (char)(i == 1 ? (leads[n] | (shown & 0xff)) : (0x80 | (shown & 0x3f)));
            shown >>= 6;
        }
        to += n;
        from += 7;
    }
    if (text->size > 0) text->data[to] = '\0';
    text->size = to;
}

static void take_string(void *context, const struct xml_event *event) {
    struct string_reader *reader = context;
    struct buffer *strings = &reader->book->strings;
    bool opens = event->kind == XML_EVENT_OPEN;
    if (event->kind == XML_EVENT_TEXT) {
        if (reader->in_text && reader->spoken == 0) buffer_append_string(strings, event->text);
        return;
    }
    if (xml_is(event, "t")) reader->in_text = opens;
    if (xml_is(event, "rPh")) reader->spoken += opens ? 1 : -1;
    if (!xml_is(event, "si")) return;
    if (opens) {
        reader->start = strings->size;
        return;
    }
    xlsx_unescape(strings, reader->start);
    uint32_t end = strings->size < UINT32_MAX ? (uint32_t)strings->size : UINT32_MAX;
    buffer_append(&reader->book->string_ends, &end, sizeof end);
}

bool xlsx_find_string(const struct xlsx_book *book, size_t i, struct text_span *text) {
    const uint32_t *ends = (const uint32_t *)(const void *)book->string_ends.data;
    size_t n = book->string_ends.size / sizeof *ends;
    if (i >= n) return false;
    size_t start = i > 0 ? ends[i - 1] : 0;
    *text = (struct text_span){book->strings.data + start, ends[i] - start};
    return true;
}

/* Styles. */

struct xlsx_style_reader {
    struct xlsx_book *book;
    struct buffer value;
    bool in_formats, in_fonts, in_fills, in_cells;
    struct buffer bold, filled; /* a byte for each font, each fill */
};

static void add_format(struct xlsx_style_reader *reader, const struct xml_event *event) {
    struct xlsx_book *book = reader->book;
    if (book->n_formats == MOST_FORMATS || !xml_attribute(event, "numFmtId", &reader->value))
        return;
    struct xlsx_format format = {.id = atoi(reader->value.data)};
    if (!xml_attribute(event, "formatCode", &reader->value)) return;
    format.code = xstrdup(reader->value.data);
    book->formats =
        xgrow(book->formats, book->n_formats, &book->formats_capacity, sizeof *book->formats);
    book->formats[book->n_formats] = format;
    book->n_formats++;
}

static const char *find_code(const struct xlsx_book *book, int id) {
    for (int i = 0; i < book->n_formats; i++)
        if (book->formats[i].id == id) return book->formats[i].code;
    const char *code = number_format_built_in(id);
    return code ? code : "General";
}

static bool find_flag(struct xlsx_style_reader *reader, const struct xml_event *event,
                      const char *name, const struct buffer *flags) {
    if (!xml_attribute(event, name, &reader->value)) return false;
    size_t i = strtoul(reader->value.data, NULL, 10);
    return i < flags->size && flags->data[i];
}

static void add_style(struct xlsx_style_reader *reader, const struct xml_event *event) {
    struct xlsx_book *book = reader->book;
    if (book->n_styles == MOST_STYLES) return;
    int id = xml_attribute(event, "numFmtId", &reader->value) ? atoi(reader->value.data) : 0;
    struct xlsx_style style = {.code = find_code(book, id)};
    style.is_date = number_format_is_date(style.code);
    style.bold = find_flag(reader, event, "fontId", &reader->bold) ||
                 find_flag(reader, event, "fillId", &reader->filled);
    book->styles =
        xgrow(book->styles, book->n_styles, &book->styles_capacity, sizeof *book->styles);
    book->styles[book->n_styles] = style;
    book->n_styles++;
}

static void set_last(struct buffer *flags, bool value) {
    if (flags->size > 0) flags->data[flags->size - 1] = value;
}

static void take_font(struct xlsx_style_reader *reader, const struct xml_event *event) {
    if (event->kind != XML_EVENT_OPEN) return;
    if (xml_is(event, "font")) buffer_append(&reader->bold, "\0", 1);
    if (!xml_is(event, "b")) return;
    set_last(&reader->bold,
             !xml_attribute(event, "val", &reader->value) || xlsx_is_true(&reader->value));
}

static void take_fill(struct xlsx_style_reader *reader, const struct xml_event *event) {
    if (event->kind != XML_EVENT_OPEN) return;
    if (xml_is(event, "fill")) buffer_append(&reader->filled, "\0", 1);
    if (xml_is(event, "patternFill") && xml_attribute(event, "patternType", &reader->value))
        set_last(&reader->filled, strcmp(reader->value.data, "solid") == 0);
}

static void take_xlsx_style(void *context, const struct xml_event *event) {
    struct xlsx_style_reader *reader = context;
    bool opens = event->kind == XML_EVENT_OPEN;
    if (xml_is(event, "numFmts")) reader->in_formats = opens;
    if (xml_is(event, "fonts")) reader->in_fonts = opens;
    if (xml_is(event, "fills")) reader->in_fills = opens;
    if (xml_is(event, "cellXfs")) reader->in_cells = opens;
    if (reader->in_formats && opens && xml_is(event, "numFmt")) add_format(reader, event);
    if (reader->in_fonts) take_font(reader, event);
    if (reader->in_fills) take_fill(reader, event);
    if (reader->in_cells && opens && xml_is(event, "xf")) add_style(reader, event);
}

/* All. */

static enum status read_part(const struct xlsx_book *book, const struct office_parts *parts,
                             const char *type, xml_taker *take, void *context, struct error *e) {
    struct buffer name = {0};
    int i = 0;
    const char *target = part_list_find_type(&book->links, type, &i);
    if (target) resolve_name(book->path.data, target, &name);
    const struct buffer *part = target ? office_find(parts, name.data) : NULL;
    enum status status =
        part ? xml_read(parts->file->name, office_span(part), take, context, e) : STATUS_OK;
    buffer_free(&name);
    return status;
}

enum status xlsx_book_read(struct xlsx_book *book, const struct office_parts *parts,
                           struct error *e) {
    const struct buffer *part;
    struct book_reader books = {.book = book};
    struct string_reader strings = {.book = book};
    struct xlsx_style_reader styles = {.book = book};
    struct error unreadable;
    office_main_part(parts, "xl/workbook.xml", &book->path);
    enum status status = office_require(parts, book->path.data, &part, e);
    if (status == STATUS_OK) status = office_read_links(parts, book->path.data, &book->links, e);
    if (status == STATUS_OK)
        status = xml_read(parts->file->name, office_span(part), take_book, &books, e);
    if (status == STATUS_OK)
        status = read_part(book, parts, "/sharedStrings", take_string, &strings, e);
    /* Without its styles a sheet shows plain numbers. */
    if (status == STATUS_OK)
        read_part(book, parts, "/styles", take_xlsx_style, &styles, &unreadable);
    buffer_free(&books.value);
    buffer_free(&styles.value);
    buffer_free(&styles.bold);
    buffer_free(&styles.filled);
    return status;
}

void xlsx_book_free(struct xlsx_book *book) {
    for (int i = 0; i < book->n_sheets; i++) {
        free(book->sheets[i].name);
        free(book->sheets[i].id);
    }
    for (int i = 0; i < book->n_formats; i++) free(book->formats[i].code);
    free(book->sheets);
    free(book->formats);
    free(book->styles);
    part_list_free(&book->links);
    buffer_free(&book->path);
    buffer_free(&book->strings);
    buffer_free(&book->string_ends);
}
