/* retrieval/extract/sheet/xlsx.c: Excel's XLSX: the sheets in their order, read as a stream. */
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retrieval/extract/office/xml.h"
#include "retrieval/extract/sheet/format_dates.h"
#include "retrieval/extract/sheet/number_format.h"
#include "retrieval/extract/sheet/sheet.h"
#include "retrieval/extract/sheet/xlsx_book.h"

enum cell_type {
    TYPE_NUMBER,
    TYPE_SHARED,
    TYPE_INLINE,
    TYPE_STRING,
    TYPE_BOOL,
    TYPE_ERROR,
    TYPE_DATE
};

struct xlsx_reader {
    const struct office_parts *parts;
    struct xlsx_book book;
    struct sheet sheet;
    struct buffer value; /* of an attribute */

    /* The row and the cell that are open. */
    struct sheet_cell cell;
    enum cell_type type;
    size_t style;
    size_t hidden_above; /* rows */
    bool row_is_hidden, row_has_lost;
    size_t n_columns; /* descriptions of columns, of which there cannot be more than columns */
    uint32_t hidden_before[SHEET_COLUMNS + 2]; /* columns that are hidden left of each */
    bool in_value, in_formula, in_text, has_formula;
    int spoken;
    struct buffer shown, formula;
};

/* Columns and rows. */

static size_t read_size(struct xlsx_reader *reader, const struct xml_event *event,
                        const char *name) {
    return xml_attribute(event, name, &reader->value) ? strtoul(reader->value.data, NULL, 10) : 0;
}

/* Rows and columns say so of themselves. */
static bool is_hidden(struct xlsx_reader *reader, const struct xml_event *event) {
    return !reader->parts->file->limits.hidden_sheets &&
           xml_attribute(event, "hidden", &reader->value) && xlsx_is_true(&reader->value);
}

static void take_columns(struct xlsx_reader *reader, const struct xml_event *event) {
    if (!is_hidden(reader, event)) return;
    size_t first = read_size(reader, event, "min"), last = read_size(reader, event, "max");
    reader->n_columns++;
    if (last > SHEET_COLUMNS) last = SHEET_COLUMNS;
    if (reader->n_columns > SHEET_COLUMNS) return;
    for (size_t i = first; i <= last && i > 0; i++) reader->hidden_before[i] = 1;
}

/* From a flag for each column to the number of those before it; the flag moves to the top bit. */
static void count_hidden_columns(struct xlsx_reader *reader) {
    uint32_t before = 0;
    for (size_t i = 1; i <= SHEET_COLUMNS; i++) {
        bool hidden = reader->hidden_before[i] == 1;
        reader->hidden_before[i] = before | (hidden ? 1U << 31 : 0);
        before += hidden;
    }
}

static bool column_is_hidden(const struct xlsx_reader *reader, uint32_t column) {
    return column <= SHEET_COLUMNS && reader->hidden_before[column] >> 31;
}

static void open_row(struct xlsx_reader *reader, const struct xml_event *event) {
    size_t number = reader->cell.row + (size_t)1;
    if (xml_attribute(event, "r", &reader->value)) number = strtoul(reader->value.data, NULL, 10);
    reader->cell.row = number > 0 && number <= SHEET_ROWS ? (uint32_t)number : SHEET_ROWS + 1;
    reader->cell.column = 0;
    reader->row_is_hidden = is_hidden(reader, event);
    reader->row_has_lost = false;
    reader->hidden_above += reader->row_is_hidden;
}

/* Cells. */

static enum cell_type read_type(struct xlsx_reader *reader, const struct xml_event *event) {
    static const struct {
        const char *name;
        enum cell_type type;
    } types[] = {{"s", TYPE_SHARED}, {"inlineStr", TYPE_INLINE}, {"str", TYPE_STRING},
                 {"b", TYPE_BOOL},   {"e", TYPE_ERROR},          {"d", TYPE_DATE}};
    if (!xml_attribute(event, "t", &reader->value)) return TYPE_NUMBER;
    for (size_t i = 0; i < ARRAY_COUNT(types); i++)
        if (strcmp(reader->value.data, types[i].name) == 0) return types[i].type;
    return TYPE_NUMBER;
}

static void open_cell(struct xlsx_reader *reader, const struct xml_event *event) {
    struct sheet_range place;
    struct sheet_cell *cell = &reader->cell;
    cell->column++;
    if (xml_attribute(event, "r", &reader->value) && sheet_read_range(reader->value.data, &place)) {
        cell->row = place.top;
        cell->column = place.left;
    }
    reader->type = read_type(reader, event);
    reader->style = read_size(reader, event, "s");
    reader->has_formula = false;
    buffer_clear(&reader->shown);
    buffer_clear(&reader->formula);
}

static const struct xlsx_style *style_of(const struct xlsx_reader *reader) {
    static const struct xlsx_style general = {.code = "General"};
    return reader->style < (size_t)reader->book.n_styles ? &reader->book.styles[reader->style]
                                                         : &general;
}

static void write_number(struct xlsx_reader *reader) {
    const struct xlsx_style *style = style_of(reader);
    char *end;
    double number = strtod(reader->shown.data, &end);
    if (end == reader->shown.data) { /* damage is shown as it is */
        buffer_append(&reader->sheet.text, reader->shown.data, reader->shown.size);
        return;
    }
    reader->cell.number = true;
    number_format_write(style->code, number, reader->book.from_1904, &reader->sheet.text);
}

/* "2024-03-05T00:00:00" as "2024-03-05". */
static void write_iso(struct xlsx_reader *reader) {
    struct buffer *text = &reader->sheet.text, *shown = &reader->shown;
    size_t size = shown->size;
    if (span_ends_with((struct text_span){shown->data, size}, "Z")) size--;
    size_t day = size > 10 && shown->data[10] == 'T' ? 10 : size;
    buffer_append(text, shown->data, day);
    struct text_span time = {shown->data + day + (day < size), day < size ? size - day - 1 : 0};
    if (time.size > 0 && !span_starts_with(time, "00:00:00"))
        buffer_printf(text, " %.*s", (int)(time.size > 8 ? 8 : time.size), time.text);
    reader->cell.number = true;
}

/* A formula without a value is shown as it is, or by the cell that it shares one with. */
static void write_formula(struct xlsx_reader *reader) {
    struct buffer *text = &reader->sheet.text;
    buffer_append_string(text, "=");
    buffer_append(text, reader->formula.data, reader->formula.size);
    if (reader->formula.size == 0) buffer_append_string(text, "(a formula)");
    buffer_append_string(text, " (not computed)");
    reader->cell.number = true;
    reader->sheet.not_computed++;
}

static bool is_zero(const struct buffer *shown) {
    return shown->size > 0 && strspn(shown->data, "0.") == shown->size;
}

static void write_value(struct xlsx_reader *reader) {
    struct buffer *text = &reader->sheet.text;
    struct text_span shared;
    bool no_value =
        reader->shown.size == 0 || (reader->book.not_computed && is_zero(&reader->shown));
    if (reader->has_formula && no_value && reader->type != TYPE_STRING) {
        write_formula(reader);
        return;
    }
    if (reader->shown.size == 0) return;
    switch (reader->type) {
        case TYPE_SHARED:
            if (xlsx_find_string(&reader->book, strtoul(reader->shown.data, NULL, 10), &shared))
                buffer_append(text, shared.text, shared.size);
            break;
        case TYPE_BOOL:
            buffer_append_string(text, xlsx_is_true(&reader->shown) ? "TRUE" : "FALSE");
            break;
        case TYPE_DATE: write_iso(reader); break;
        case TYPE_NUMBER: write_number(reader); break;
        case TYPE_INLINE:
        case TYPE_STRING:
            xlsx_unescape(&reader->shown, 0);
            buffer_append(text, reader->shown.data, reader->shown.size);
            break;
        case TYPE_ERROR: buffer_append(text, reader->shown.data, reader->shown.size); break;
    }
}

static void close_cell(struct xlsx_reader *reader) {
    struct sheet *sheet = &reader->sheet;
    struct sheet_cell *cell = &reader->cell;
    size_t start = sheet->text.size;
    bool hidden = column_is_hidden(reader, cell->column);
    bool empty = reader->shown.size == 0 && !reader->has_formula;
    if (cell->row > SHEET_ROWS || cell->column > SHEET_COLUMNS || empty) return;
    if (reader->row_is_hidden || hidden) {
        sheet->hidden_rows += reader->row_is_hidden && !reader->row_has_lost;
        reader->row_has_lost = true;
        if (hidden && !reader->row_is_hidden) reader->hidden_before[cell->column] |= 1U << 30;
        return;
    }
    cell->number = false;
    cell->bold = style_of(reader)->bold;
    cell->seen_column = cell->column - (reader->hidden_before[cell->column] & 0xffff);
    cell->seen_row =
        cell->row > reader->hidden_above ? cell->row - (uint32_t)reader->hidden_above : 1;
    write_value(reader);
    sheet_add_cell(sheet, cell, start);
}

/* Hidden columns that hold anything. */
static void count_lost_columns(struct xlsx_reader *reader) {
    for (size_t i = 1; i <= SHEET_COLUMNS; i++)
        reader->sheet.hidden_columns += (reader->hidden_before[i] >> 30 & 1);
}

/* Events. */

static void take_text(struct xlsx_reader *reader, const char *text) {
    if (reader->in_formula) buffer_append_string(&reader->formula, text);
    if (reader->in_value || (reader->in_text && reader->spoken == 0))
        buffer_append_string(&reader->shown, text);
}

static void take_open(struct xlsx_reader *reader, const struct xml_event *event) {
    struct sheet_range range;
    if (xml_is(event, "col")) take_columns(reader, event);
    if (xml_is(event, "sheetData")) count_hidden_columns(reader);
    if (xml_is(event, "row")) open_row(reader, event);
    if (xml_is(event, "c")) open_cell(reader, event);
    if (xml_is(event, "v")) reader->in_value = true;
    if (xml_is(event, "f")) reader->in_formula = reader->has_formula = true;
    if (xml_is(event, "t")) reader->in_text = true;
    if (xml_is(event, "rPh")) reader->spoken++;
    if (xml_is(event, "mergeCell") && xml_attribute(event, "ref", &reader->value) &&
        sheet_read_range(reader->value.data, &range))
        sheet_add_merge(&reader->sheet, &range);
}

static void take_close(struct xlsx_reader *reader, const struct xml_event *event) {
    if (xml_is(event, "c")) close_cell(reader);
    if (xml_is(event, "v")) reader->in_value = false;
    if (xml_is(event, "f")) reader->in_formula = false;
    if (xml_is(event, "t")) reader->in_text = false;
    if (xml_is(event, "rPh")) reader->spoken--;
    if (xml_is(event, "sheetData")) count_lost_columns(reader);
}

static void take_sheet(void *context, const struct xml_event *event) {
    struct xlsx_reader *reader = context;
    if (event->kind == XML_EVENT_TEXT) take_text(reader, event->text);
    if (event->kind == XML_EVENT_OPEN) take_open(reader, event);
    if (event->kind == XML_EVENT_CLOSE) take_close(reader, event);
}

/* Tables that the file names, and remarks. */

static void take_table(void *context, const struct xml_event *event) {
    struct xlsx_reader *reader = context;
    struct sheet_table table = {.head_rows = 1};
    if (event->kind != XML_EVENT_OPEN || !xml_is(event, "table")) return;
    if (!xml_attribute(event, "ref", &reader->value) ||
        !sheet_read_range(reader->value.data, &table.range))
        return;
    if (xml_attribute(event, "headerRowCount", &reader->value))
        table.head_rows = reader->value.data[0] == '0' ? 0 : 1;
    bool named = xml_attribute(event, "displayName", &reader->value) ||
                 xml_attribute(event, "name", &reader->value);
    if (named && reader->value.size < sizeof table.name)
        memcpy(table.name, reader->value.data, reader->value.size + 1);
    buffer_append(&reader->sheet.tables, &table, sizeof table);
}

static void take_remark(void *context, const struct xml_event *event) {
    struct xlsx_reader *reader = context;
    struct sheet *sheet = &reader->sheet;
    struct sheet_range place;
    bool opens = event->kind == XML_EVENT_OPEN;
    if (event->kind == XML_EVENT_TEXT && reader->in_text && reader->spoken == 0)
        buffer_append_string(&sheet->text, event->text);
    if (xml_is(event, "t")) reader->in_text = opens;
    if (xml_is(event, "rPh")) reader->spoken += opens ? 1 : -1;
    if (!xml_is(event, "comment")) return;
    if (opens) {
        reader->cell.text = (uint32_t)sheet->text.size;
        reader->cell.row = 0;
        if (xml_attribute(event, "ref", &reader->value) &&
            sheet_read_range(reader->value.data, &place)) {
            reader->cell.row = place.top;
            reader->cell.column = place.left;
        }
        return;
    }
    struct sheet_remark remark = {.row = reader->cell.row,
                                  .column = reader->cell.column,
                                  .text = reader->cell.text,
                                  .size = (uint32_t)(sheet->text.size - reader->cell.text)};
    if (remark.row > 0 && remark.size > 0 && sheet->text.size < UINT32_MAX)
        buffer_append(&sheet->remarks, &remark, sizeof remark);
}

static void read_beside(struct xlsx_reader *reader, const char *sheet, const char *type,
                        xml_taker *take) {
    struct part_list links = {0};
    struct buffer name = {0};
    struct error unreadable;
    int i = 0;
    if (office_read_links(reader->parts, sheet, &links, &unreadable) == STATUS_OK)
        for (const char *target; (target = part_list_find_type(&links, type, &i));) {
            resolve_name(sheet, target, &name);
            const struct buffer *part = office_find(reader->parts, name.data);
            if (part) xml_read(name.data, office_span(part), take, reader, &unreadable);
        }
    buffer_free(&name);
    part_list_free(&links);
}

static void begin_sheet(struct xlsx_reader *reader, const char *name) {
    sheet_clear(&reader->sheet);
    buffer_append_string(&reader->sheet.name, name);
    reader->cell = (struct sheet_cell){.row = 0};
    reader->hidden_above = reader->n_columns = 0;
    reader->in_value = reader->in_formula = reader->in_text = false;
    reader->spoken = 0;
    memset(reader->hidden_before, 0, sizeof reader->hidden_before);
}

/* One sheet; a damaged one is left out, named, with what could be read of it. */
static void read_sheet(struct xlsx_reader *reader, const struct xlsx_sheet_name *sheet, bool named,
                       struct document_text *out) {
    struct buffer name = {0};
    struct error why;
    const char *target = part_list_find(&reader->book.links, sheet->id);
    if (target) resolve_name(reader->book.path.data, target, &name);
    const struct buffer *part = target ? office_find(reader->parts, name.data) : NULL;
    if (part == NULL) {
        document_text_lose(out, "sheet \"%s\": the file does not have it", sheet->name);
        buffer_free(&name);
        return;
    }
    begin_sheet(reader, sheet->name);
    if (xml_read(name.data, office_span(part), take_sheet, reader, &why))
        document_text_lose(out, "sheet \"%s\": damaged: what is behind the damage is left out",
                           sheet->name);
    read_beside(reader, name.data, "/table", take_table);
    reader->in_text = false;
    read_beside(reader, name.data, "/comments", take_remark);
    sheet_write(&reader->sheet, named, out);
    buffer_free(&name);
}

static void xlsx_reader_free(struct xlsx_reader *reader) {
    xlsx_book_free(&reader->book);
    sheet_free(&reader->sheet);
    buffer_free(&reader->value);
    buffer_free(&reader->shown);
    buffer_free(&reader->formula);
    free(reader);
}

enum status sheet_read_xlsx(const struct office_parts *parts, struct document_text *out,
                            struct error *e) {
    struct xlsx_reader *reader = xcalloc(1, sizeof *reader);
    reader->parts = parts;
    enum status status = xlsx_book_read(&reader->book, parts, e);
    int n_shown = 0;
    bool all = parts->file->limits.hidden_sheets;
    for (int i = 0; i < reader->book.n_sheets; i++)
        n_shown += all || !reader->book.sheets[i].hidden;
    for (int i = 0; i < reader->book.n_sheets && status == STATUS_OK; i++) {
        const struct xlsx_sheet_name *sheet = &reader->book.sheets[i];
        if (all || !sheet->hidden)
            read_sheet(reader, sheet, n_shown > 1, out);
        else
            sheet_lose_hidden(sheet->name, out);
    }
    if (status == STATUS_OK && out->text.size == 0 && out->losses.size > 0)
        status = error_set(e, STATUS_INVALID, "%s: nothing in it that is read: %s",
                           parts->file->name, out->losses.data);
    office_title(parts, "docProps/core.xml", &out->title);
    xlsx_reader_free(reader);
    return status;
}
