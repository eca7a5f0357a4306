/* retrieval/extract/sheet/ods.c: OpenDocument's spreadsheets, ODS and flat .fods: what is shown
 * stands in the file as text, and the plain value beside it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/hash.h"
#include "config/base/key_set.h"
#include "config/base/text.h"
#include "retrieval/extract/office/office.h"
#include "retrieval/extract/office/xml.h"
#include "retrieval/extract/sheet/sheet.h"
#include "retrieval/tables/cell_value.h"

/* A cell or row may say that it stands any number of times; of a file so many cells are made. */
enum { MOST_REPEATED = 500000, MOST_CELL_REPEATS = 1000, MOST_BLANKS = 100 };

/* Lost: hidden, and something stands in it. */
enum column_state { COLUMN_SHOWN, COLUMN_HIDDEN, COLUMN_LOST };

struct ods_reader {
    struct document_text *out;
    struct sheet sheet;
    struct buffer value;  /* of an attribute */
    struct buffer hidden; /* names of tables' styles that are not shown, each between newlines */
    struct key_set bold;  /* names of cells' styles */
    struct buffer style;  /* the style that is read */
    size_t repeated, n_sheets;
    enum column_state columns_state[SHEET_COLUMNS + 1];
    int tables, skipped; /* open: tables lie within cells; what is no part of a sheet */
    bool all;            /* sheets, rows and columns, those that are hidden too */
    bool sheet_is_hidden;

    size_t column, row; /* from 1: of the cell or row that is open */
    size_t columns;     /* described */
    size_t row_repeats, hidden_above, hidden_before;
    size_t row_first; /* of sheet.cells */
    bool row_is_hidden, row_has_lost, in_heads;

    struct sheet_cell cell;
    size_t cell_repeats, text_start;
    uint32_t covers_rows, covers_columns;
    int paragraphs; /* open */
    bool has_text, in_cell, has_formula;
    char kind[16]; /* office:value-type */
    struct buffer plain, formula;
    struct buffer remark;
    int remarks; /* open */
};

static size_t read_count(struct ods_reader *reader, const struct xml_event *event,
                         const char *name) {
    size_t n =
        xml_attribute(event, name, &reader->value) ? strtoul(reader->value.data, NULL, 10) : 1;
    return n > 0 ? n : 1;
}

static bool is_collapsed(struct ods_reader *reader, const struct xml_event *event) {
    return !reader->all && xml_attribute(event, "visibility", &reader->value) &&
           strcmp(reader->value.data, "visible") != 0;
}

/* Styles: tables that are hidden, cells in bold or shaded. */

static void add_bold(struct ods_reader *reader) {
    if (reader->style.size > 0)
        key_set_add(&reader->bold, hash_bytes(reader->style.data, reader->style.size, 0),
                    hash_bytes(reader->style.data, reader->style.size, 1));
}

static void take_style(struct ods_reader *reader, const struct xml_event *event) {
    if (xml_is(event, "style")) xml_attribute(event, "name", &reader->style);
    if (xml_is(event, "table-properties") && xml_attribute(event, "display", &reader->value) &&
        strcmp(reader->value.data, "false") == 0)
        buffer_printf(&reader->hidden, "\n%s\n", reader->style.data ? reader->style.data : "");
    if (xml_is(event, "text-properties") && xml_attribute(event, "font-weight", &reader->value) &&
        strcmp(reader->value.data, "bold") == 0)
        add_bold(reader);
    if (xml_is(event, "table-cell-properties") &&
        xml_attribute(event, "background-color", &reader->value) &&
        strcmp(reader->value.data, "transparent") != 0 &&
        strcasecmp(reader->value.data, "#ffffff") != 0)
        add_bold(reader);
}

static bool is_bold(const struct ods_reader *reader, const struct buffer *style) {
    return key_set_number(&reader->bold, hash_bytes(style->data, style->size, 0),
                          hash_bytes(style->data, style->size, 1)) != NULL;
}

/* Sheets. */

static void open_sheet(struct ods_reader *reader, const struct xml_event *event) {
    reader->tables++;
    if (reader->tables > 1) return;
    struct buffer style = {0};
    sheet_clear(&reader->sheet);
    bool named = xml_attribute(event, "name", &reader->value);
    buffer_append_string(&reader->sheet.name, named ? reader->value.data : "");
    if (xml_attribute(event, "style-name", &reader->value))
        buffer_printf(&style, "\n%s\n", reader->value.data);
    reader->sheet_is_hidden = !reader->all && style.size > 0 && reader->hidden.size > 0 &&
                              strstr(reader->hidden.data, style.data) != NULL;
    buffer_free(&style);
    memset(reader->columns_state, 0, sizeof reader->columns_state);
    reader->columns = reader->row = reader->hidden_above = 0;
}

static void close_sheet(struct ods_reader *reader) {
    reader->tables--;
    if (reader->tables > 0) return;
    buffer_append(&reader->sheet.name, "", 0);
    if (reader->sheet_is_hidden)
        sheet_lose_hidden(reader->sheet.name.data, reader->out);
    else
        sheet_write(&reader->sheet, reader->n_sheets > 1, reader->out);
}

static void take_column(struct ods_reader *reader, const struct xml_event *event) {
    size_t n = read_count(reader, event, "number-columns-repeated");
    bool hidden = is_collapsed(reader, event);
    for (size_t i = 0; i < n && reader->columns < SHEET_COLUMNS; i++) {
        reader->columns++;
        reader->columns_state[reader->columns] = hidden ? COLUMN_HIDDEN : COLUMN_SHOWN;
    }
}

/* Rows. */

static void open_row(struct ods_reader *reader, const struct xml_event *event) {
    reader->row++;
    reader->row_repeats = read_count(reader, event, "number-rows-repeated");
    reader->row_is_hidden = is_collapsed(reader, event);
    reader->row_has_lost = false;
    reader->row_first = reader->sheet.cells.size / sizeof(struct sheet_cell);
    reader->column = reader->hidden_before = 0;
}

/* The row again, so often as it says, for as many cells as there may be. */
static void repeat_row(struct ods_reader *reader) {
    struct sheet *sheet = &reader->sheet;
    size_t n = sheet->cells.size / sizeof(struct sheet_cell) - reader->row_first;
    for (size_t i = 1; i < reader->row_repeats && n > 0; i++) {
        if (reader->repeated + n > MOST_REPEATED || reader->row + i > SHEET_ROWS) {
            sheet->is_full = sheet->is_full || reader->row + i <= SHEET_ROWS;
            return;
        }
        reader->repeated += n;
        for (size_t k = 0; k < n; k++) {
            struct sheet_cell cell =
                ((struct sheet_cell *)(void *)sheet->cells.data)[reader->row_first + k];
            cell.row += (uint32_t)i;
            cell.seen_row += (uint32_t)i;
            buffer_append(&sheet->cells, &cell, sizeof cell);
        }
    }
}

static void close_row(struct ods_reader *reader) {
    repeat_row(reader);
    if (reader->row_is_hidden) reader->hidden_above += reader->row_repeats;
    size_t more = reader->row_repeats - 1;
    reader->row =
        more > SHEET_ROWS || reader->row > SHEET_ROWS ? SHEET_ROWS + 1 : reader->row + more;
}

/* Cells. */

static void open_cell(struct ods_reader *reader, const struct xml_event *event) {
    static const char *const values[] = {"value", "date-value", "boolean-value", "string-value"};
    reader->in_cell = true;
    reader->has_text = false;
    reader->cell_repeats = read_count(reader, event, "number-columns-repeated");
    reader->covers_rows = (uint32_t)read_count(reader, event, "number-rows-spanned");
    reader->covers_columns = (uint32_t)read_count(reader, event, "number-columns-spanned");
    reader->text_start = reader->sheet.text.size;
    reader->cell = (struct sheet_cell){.bold = reader->in_heads};
    if (xml_attribute(event, "style-name", &reader->value))
        reader->cell.bold = reader->cell.bold || is_bold(reader, &reader->value);
    buffer_clear(&reader->plain);
    for (size_t i = 0; i < ARRAY_COUNT(values) && reader->plain.size == 0; i++)
        if (xml_attribute(event, values[i], &reader->value))
            buffer_append(&reader->plain, reader->value.data, reader->value.size);
    bool has_kind = xml_attribute(event, "value-type", &reader->value);
    snprintf(reader->kind, sizeof reader->kind, "%s", has_kind ? reader->value.data : "");
    reader->has_formula = xml_attribute(event, "formula", &reader->formula);
}

/* "2024-03-05T00:00:00" as "2024-03-05". */
static void shorten_date(struct buffer *date) {
    if (date->size < 11 || date->data[10] != 'T') return;
    date->data[10] = ' ';
    if (strncmp(date->data + 11, "00:00:00", 8) == 0) date->size = 10;
    if (date->size > 19) date->size = 19;
    date->data[date->size] = '\0';
}

/* Puts the plain value behind what is shown, where it says more. */
static void add_plain(struct ods_reader *reader) {
    struct buffer *text = &reader->sheet.text, *plain = &reader->plain;
    struct text_span shown = {text->data + reader->text_start, text->size - reader->text_start};
    struct cell_value value = cell_value_read(shown, DECIMAL_POINT);
    bool is_date = strcmp(reader->kind, "date") == 0;
    bool is_number = strcmp(reader->kind, "float") == 0 ||
                     strcmp(reader->kind, "percentage") == 0 ||
                     strcmp(reader->kind, "currency") == 0;
    reader->cell.number = is_date || is_number || strcmp(reader->kind, "time") == 0;
    if (is_date) {
        shorten_date(plain);
        struct cell_value meant =
            cell_value_read((struct text_span){plain->data, plain->size}, DECIMAL_POINT);
        bool same = value.kind == CELL_DATE && strcmp(value.date, meant.date) == 0;
        if (!same && meant.kind == CELL_DATE) buffer_printf(text, " (%s)", plain->data);
    } else if (is_number) {
        double number = strtod(plain->data, NULL);
        bool same =
            value.kind == CELL_NUMBER && fabs(value.number - number) <= 1e-14 * fabs(number);
        if (same || !isfinite(number)) return;
        buffer_append_string(text, " (");
        cell_print_number(text, number);
        buffer_append_string(text, ")");
    }
}

static void write_value(struct ods_reader *reader) {
    struct buffer *text = &reader->sheet.text, *plain = &reader->plain;
    bool is_shown = text->size > reader->text_start;
    if (is_shown && plain->size > 0) {
        add_plain(reader);
    } else if (!is_shown && plain->size > 0) {
        shorten_date(plain);
        buffer_append(text, plain->data, plain->size);
        reader->cell.number = strcmp(reader->kind, "string") != 0;
    } else if (!is_shown && reader->has_formula) {
        const char *formula = strchr(reader->formula.data, '=');
        buffer_printf(text, "%s (not computed)", formula ? formula : reader->formula.data);
        reader->cell.number = true;
        reader->sheet.not_computed++;
    }
}

/* The cell at the columns that it stands in. */
static void place_cell(struct ods_reader *reader, size_t end) {
    struct sheet *sheet = &reader->sheet;
    for (size_t i = 0; i < reader->cell_repeats; i++) {
        size_t column = reader->column + i + 1;
        if (column > SHEET_COLUMNS) return;
        if (i >= MOST_CELL_REPEATS || reader->repeated >= MOST_REPEATED) {
            document_text_lose(reader->out,
                               "sheet \"%s\": a value in row %zu stands %zu times, "
                               "of which %zu are read",
                               sheet->name.data, reader->row, reader->cell_repeats, i);
            return;
        }
        reader->repeated += i > 0;
        enum column_state *state = &reader->columns_state[column];
        bool hidden = *state != COLUMN_SHOWN;
        sheet->hidden_columns += *state == COLUMN_HIDDEN;
        if (hidden) *state = COLUMN_LOST;
        reader->hidden_before += hidden;
        if (hidden) continue;
        struct sheet_cell cell = reader->cell;
        cell.row = (uint32_t)reader->row;
        cell.column = (uint32_t)column;
        cell.seen_row = (uint32_t)(reader->row - reader->hidden_above);
        cell.seen_column = (uint32_t)(column - reader->hidden_before);
        sheet->text.size = end;
        sheet_add_cell(sheet, &cell, reader->text_start);
    }
}

static void add_span(struct ods_reader *reader) {
    uint64_t bottom = reader->row + (uint64_t)reader->covers_rows - 1;
    uint64_t right = reader->column + (uint64_t)reader->covers_columns;
    struct sheet_range range = {.top = (uint32_t)reader->row, .left = (uint32_t)reader->column + 1};
    range.bottom = (uint32_t)(bottom > SHEET_ROWS ? SHEET_ROWS : bottom);
    range.right = (uint32_t)(right > SHEET_COLUMNS ? SHEET_COLUMNS : right);
    sheet_add_merge(&reader->sheet, &range);
}

static void close_cell(struct ods_reader *reader) {
    struct sheet *sheet = &reader->sheet;
    bool outside = reader->row > SHEET_ROWS || reader->column >= SHEET_COLUMNS;
    reader->in_cell = false;
    if (!outside && !reader->row_is_hidden) write_value(reader);
    size_t end = sheet->text.size;
    if (end > reader->text_start && !outside) {
        if (reader->covers_rows > 1 || reader->covers_columns > 1) add_span(reader);
        place_cell(reader, end);
    } else {
        sheet->hidden_rows += reader->row_is_hidden && reader->has_text && !reader->row_has_lost;
        reader->row_has_lost = reader->row_has_lost || reader->has_text;
        sheet->text.size = reader->text_start;
        for (size_t i = 1; i <= reader->cell_repeats && reader->column + i <= SHEET_COLUMNS; i++)
            reader->hidden_before += reader->columns_state[reader->column + i] != COLUMN_SHOWN;
    }
    size_t next = reader->column + reader->cell_repeats;
    reader->column = next > SHEET_COLUMNS || next < reader->column ? SHEET_COLUMNS : next;
}

static void close_remark(struct ods_reader *reader) {
    struct sheet *sheet = &reader->sheet;
    struct sheet_remark remark = {.row = (uint32_t)reader->row,
                                  .column = (uint32_t)reader->column + 1,
                                  .text = (uint32_t)sheet->text.size,
                                  .size = (uint32_t)reader->remark.size};
    reader->remarks--;
    if (reader->remarks > 0 || reader->remark.size == 0 || sheet->text.size > UINT32_MAX) return;
    /* The remark comes before the cell's own text, which begins behind it. */
    buffer_append(&sheet->text, reader->remark.data, reader->remark.size);
    buffer_append(&sheet->remarks, &remark, sizeof remark);
    reader->text_start = sheet->text.size;
    buffer_clear(&reader->remark);
}

/* Events. */

static void add_text(struct ods_reader *reader, const char *text) {
    if (reader->skipped > 0 || !reader->in_cell || reader->paragraphs == 0) return;
    if (reader->remarks > 0) {
        buffer_append_string(&reader->remark, text);
    } else if (!reader->row_is_hidden) {
        buffer_append_string(&reader->sheet.text, text);
    }
    reader->has_text = true;
}

static bool is_skipped(const struct xml_event *event) {
    return xml_is(event, "tracked-changes") || xml_is(event, "shapes") ||
           xml_is(event, "dde-links") || xml_is(event, "creator") ||
           (xml_is(event, "date") && event->kind != XML_EVENT_TEXT);
}

static bool is_cell(const struct xml_event *event) {
    return xml_is(event, "table-cell") || xml_is(event, "covered-table-cell");
}

static void take_open(struct ods_reader *reader, const struct xml_event *event) {
    reader->skipped += is_skipped(event);
    if (reader->skipped > 0) return;
    if (reader->tables == 0) take_style(reader, event);
    if (xml_is(event, "table")) open_sheet(reader, event);
    if (xml_is(event, "annotation")) reader->remarks++;
    if (xml_is(event, "p")) {
        reader->paragraphs++;
        bool follows =
            reader->in_cell && reader->remarks == 0 && reader->sheet.text.size > reader->text_start;
        if (follows) add_text(reader, "\n");
        if (reader->remarks > 0 && reader->remark.size > 0) add_text(reader, " ");
    }
    if (xml_is(event, "tab") || xml_is(event, "line-break")) add_text(reader, " ");
    if (xml_is(event, "s")) {
        size_t n = read_count(reader, event, "c");
        for (size_t i = 0; i < n && i < MOST_BLANKS; i++) add_text(reader, " ");
    }
    if (reader->tables != 1) return;
    if (xml_is(event, "table-column")) take_column(reader, event);
    if (xml_is(event, "table-header-rows")) reader->in_heads = true;
    if (xml_is(event, "table-row")) open_row(reader, event);
    if (is_cell(event)) open_cell(reader, event);
}

static void take_close(struct ods_reader *reader, const struct xml_event *event) {
    reader->skipped -= is_skipped(event);
    if (reader->skipped > 0) return;
    if (xml_is(event, "table") && reader->tables > 0) close_sheet(reader);
    if (xml_is(event, "annotation")) close_remark(reader);
    if (xml_is(event, "p")) reader->paragraphs--;
    if (reader->tables != 1) return;
    if (xml_is(event, "table-header-rows")) reader->in_heads = false;
    if (xml_is(event, "table-row")) close_row(reader);
    if (is_cell(event)) close_cell(reader);
}

static void take_ods(void *context, const struct xml_event *event) {
    struct ods_reader *reader = context;
    if (event->kind == XML_EVENT_TEXT) add_text(reader, event->text);
    if (event->kind == XML_EVENT_OPEN) take_open(reader, event);
    if (event->kind == XML_EVENT_CLOSE) take_close(reader, event);
}

static size_t count_sheets(struct text_span xml) {
    static const char mark[] = "<table:table ";
    size_t n = 0;
    for (const char *at = xml.text; at; n++) {
        at = memmem(at, (size_t)(xml.text + xml.size - at), mark, sizeof mark - 1);
        if (at == NULL) break;
        at += sizeof mark - 1;
    }
    return n;
}

enum status sheet_read_ods(const struct office_parts *parts, struct document_text *out,
                           struct error *e) {
    const struct buffer *content;
    if (office_require(parts, "content.xml", &content, e)) return e->status;
    struct ods_reader *reader = xcalloc(1, sizeof *reader);
    struct text_span xml = office_span(content);
    reader->out = out;
    reader->all = parts->file->limits.hidden_sheets;
    reader->n_sheets = count_sheets(xml);
    enum status status = xml_read(parts->file->name, xml, take_ods, reader, e);
    if (status == STATUS_OK && out->text.size == 0 && out->losses.size > 0)
        status = error_set(e, STATUS_INVALID, "%s: nothing in it that is read: %s",
                           parts->file->name, out->losses.data);
    office_title(parts, "meta.xml", &out->title);
    sheet_free(&reader->sheet);
    key_set_free(&reader->bold);
    buffer_free(&reader->value);
    buffer_free(&reader->hidden);
    buffer_free(&reader->style);
    buffer_free(&reader->plain);
    buffer_free(&reader->formula);
    buffer_free(&reader->remark);
    free(reader);
    return status;
}
