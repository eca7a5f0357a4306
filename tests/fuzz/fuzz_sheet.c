/* tests/fuzz/fuzz_sheet.c: bytes as the parts of a spreadsheet. The first byte chooses XLSX or ODS;
 * the rest, cut at zero bytes, is the sheet, the strings, the styles, a table and remarks. The text
 * that comes out is valid, its marks lead into it, and its tables can be asked. */
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/office/office.h"
#include "retrieval/tables/table_ask.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char workbook[] =
    "<workbook xmlns:r='r'><calcPr fullCalcOnLoad='1'/><sheets><sheet name='One' r:id='s'/>"
    "<sheet name='Two' r:id='s' state='hidden'/></sheets></workbook>";
static const char links[] =
    "<Relationships><Relationship Id='s' Type='x/worksheet' Target='sheet.xml'/>"
    "<Relationship Id='t' Type='x/sharedStrings' Target='strings.xml'/>"
    "<Relationship Id='u' Type='x/styles' Target='styles.xml'/></Relationships>";
static const char beside[] =
    "<Relationships><Relationship Id='a' Type='x/table' Target='table.xml'/>"
    "<Relationship Id='b' Type='x/comments' Target='remarks.xml'/></Relationships>";

static void add_part(struct office_parts *parts, const char *name, const char *text, size_t size) {
    parts->list = xgrow(parts->list, parts->n, &parts->capacity, sizeof *parts->list);
    parts->list[parts->n] = (struct office_part){.name = xstrdup(name)};
    buffer_append(&parts->list[parts->n].bytes, text, size);
    buffer_append(&parts->list[parts->n].bytes, "", 0);
    parts->n++;
}

static void add_parts(struct office_parts *parts, const char *text, size_t size) {
    static const char *const names[] = {"xl/sheet.xml", "xl/strings.xml", "xl/styles.xml",
                                        "xl/table.xml", "xl/remarks.xml"};
    add_part(parts, "content.xml", text, strnlen(text, size));
    add_part(parts, "xl/workbook.xml", workbook, sizeof workbook - 1);
    add_part(parts, "xl/_rels/workbook.xml.rels", links, sizeof links - 1);
    add_part(parts, "xl/_rels/sheet.xml.rels", beside, sizeof beside - 1);
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        size_t n = strnlen(text, size);
        add_part(parts, names[i], text, n);
        n += n < size;
        text += n;
        size -= n;
    }
}

static void ask(const struct document_text *out) {
    struct data_tables tables = {0};
    struct stored_document document = {.id = "x",
                                       .path = "x",
                                       .text = {out->text.data, out->text.size},
                                       .marks = marks_of(&out->marks)};
    data_tables_read(&tables, &document);
    for (int i = 0; i < tables.n && i < 3; i++) {
        struct table_reply reply = {0};
        struct error e;
        struct table_question question = {.limit = 5, .n_measures = 2};
        const struct data_table *table = &tables.list[i];
        if (table->n_columns == 0) continue;
        question.measures[0].column = table->columns[0].name.data;
        question.measures[0].kind = MEASURE_MAX;
        question.groups[0] = table->columns[table->n_columns - 1].name.data;
        question.n_groups = 1;
        enum status status = table_ask(table, &question, &reply, &e);
        CHECK(status == STATUS_OK || (e.status == status && e.status != STATUS_INTERNAL));
        table_reply_free(&reply);
    }
    data_tables_free(&tables);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct extract_file file = {.name = "sheet", .limits = {.bytes = 1 << 24}};
    struct office_parts parts = {.file = &file};
    struct document_text out = {0};
    struct error e = {0};
    if (size < 2) return 0;
    add_parts(&parts, (const char *)data + 1, size - 1);
    enum status status =
        data[0] % 2 ? sheet_read_xlsx(&parts, &out, &e) : sheet_read_ods(&parts, &out, &e);
    CHECK(status == STATUS_OK || (e.status == status && e.text[0] != '\0'));
    CHECK(out.text.size == 0 || utf8_is_valid(out.text.data, out.text.size));
    CHECK(marks_fault(marks_of(&out.marks), out.text.size) == NULL);
    if (status == STATUS_OK && out.text.size > 0) ask(&out);
    document_text_free(&out);
    for (int i = 0; i < parts.n; i++) {
        free(parts.list[i].name);
        buffer_free(&parts.list[i].bytes);
    }
    free(parts.list);
    return 0;
}
