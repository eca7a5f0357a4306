/* retrieval/extract/sheet/legacy.c: Word's DOC, Excel's XLS and PowerPoint's PPT of before 2007,
 * by the programs catdoc, xls2csv and catppt of the package catdoc, in the sandbox. */
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/extract_private.h"
#include "retrieval/extract/sheet/sheet.h"

static enum status run_program(const struct extract_file *file, char *const *argv,
                               struct buffer *printed, struct error *e) {
    struct child_program program = {.argv = argv, .package = "catdoc", .input = file->bytes};
    enum status status = child_run_program(file, &program, printed, e);
    if (status) return status;
    buffer_append(printed, "", 0);
    for (size_t i = 0; i < printed->size; i++)
        if (printed->data[i] == '\0' || printed->data[i] == '\r') printed->data[i] = ' ';
    if (!utf8_is_valid(printed->data, printed->size)) extract_repair(printed);
    return STATUS_OK;
}

/* Each line that was printed is a paragraph. */
static void add_lines(const struct buffer *printed, struct document_text *out) {
    const char *at = printed->data, *end = at + printed->size;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((newline ? newline : end) - at);
        struct text_span line = {at, size};
        while (line.size > 0 && strchr(" \t\f", line.text[line.size - 1])) line.size--;
        if (line.size > 0) {
            marks_add_block(&out->marks, BLOCK_PARAGRAPH, out->text.size);
            buffer_append(&out->text, line.text, line.size);
            buffer_append_string(&out->text, "\n");
        }
        at += size + (newline != NULL);
    }
}

enum status extract_doc(const struct extract_file *file, struct document_text *out,
                        struct error *e) {
    bool is_slides = file->kind == DOCUMENT_PPT;
    char *document[] = {(char[]){"catdoc"}, (char[]){"-w"}, (char[]){"-d"}, (char[]){"utf-8"},
                        NULL};
    char *slides[] = {(char[]){"catppt"}, (char[]){"-d"}, (char[]){"utf-8"}, NULL};
    struct buffer printed = {0};
    enum status status = run_program(file, is_slides ? slides : document, &printed, e);
    if (status == STATUS_OK) add_lines(&printed, out);
    buffer_free(&printed);
    return status;
}

/* xls2csv prints every value in quotes, a quote in it doubled, and a form feed behind a sheet. */

static const char *add_value(struct sheet *sheet, const char *at, const char *end,
                             struct sheet_cell *cell) {
    size_t start = sheet->text.size;
    bool quoted = at < end && *at == '"';
    at += quoted;
    while (at < end) {
        bool doubled = quoted && *at == '"' && at + 1 < end && at[1] == '"';
        if (quoted && *at == '"' && !doubled) break;
        if (!quoted && strchr(",\n\f", *at)) break;
        buffer_append(&sheet->text, at, 1);
        at += doubled ? 2 : 1;
    }
    size_t size = sheet->text.size - start;
    cell->number = size > 0 && strspn(sheet->text.data + start, "0123456789.-+eE%") == size;
    sheet_add_cell(sheet, cell, start);
    return quoted && at < end ? at + 1 : at;
}

/* Names of sheets are not printed. */
static void add_sheets(const struct buffer *printed, struct document_text *out) {
    const char *at = printed->data, *end = at + printed->size;
    while (end > at && strchr(" \n\f", end[-1])) end--;
    struct sheet sheet = {.n_before = 0};
    struct sheet_cell cell = {.row = 1, .column = 1};
    for (size_t number = 1; at < end;) {
        cell.seen_row = cell.row;
        cell.seen_column = cell.column;
        if (strchr(",\n\f", *at) == NULL) at = add_value(&sheet, at, end, &cell);
        char c = at < end ? *at : '\f';
        at += at < end;
        cell.column = c == ',' ? cell.column + 1 : 1;
        cell.row += c == '\n';
        if (c != '\f') continue;
        buffer_printf(&sheet.name, "Sheet %zu", number);
        sheet_write(&sheet, number > 1 || at < end, out);
        sheet_clear(&sheet);
        cell.row = 1;
        number++;
    }
    sheet_free(&sheet);
}

enum status extract_xls(const struct extract_file *file, struct document_text *out,
                        struct error *e) {
    char *argv[] = {(char[]){"xls2csv"},
                    (char[]){"-d"},
                    (char[]){"utf-8"},
                    (char[]){"-f"},
                    (char[]){"%Y-%m-%d"},
                    (char[]){"-q"},
                    (char[]){"3"},
                    (char[]){"-b"},
                    (char[]){"\f"},
                    (char[]){"/proc/self/fd/0"},
                    NULL}; /* it needs a name */
    struct buffer printed = {0};
    enum status status = run_program(file, argv, &printed, e);
    if (status == STATUS_OK) add_sheets(&printed, out);
    buffer_free(&printed);
    return status;
}
