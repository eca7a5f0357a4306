/* tests/unit/test_cells.c: what the text of a cell says, and tables out of marked text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/extract.h"
#include "retrieval/tables/data_table.h"
#include "retrieval/tables/ranges.h"
#include "tests/folder.h"

static void test_numbers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum decimal_mark mark;
        double number;
        const char *unit;
    } cases[] = {{"28,608", DECIMAL_POINT, 28608, ""},
                 {"1.234,50 \u20ac", DECIMAL_COMMA, 1234.5, "\u20ac"},
                 {"1 234,5", DECIMAL_COMMA, 1234.5, ""},
                 {"1\u202f234", DECIMAL_POINT, 1234, ""},
                 {"12,34,567", DECIMAL_POINT, 1234567, ""},
                 {"12.5%", DECIMAL_POINT, 0.125, "%"},
                 {"(1,234)", DECIMAL_POINT, -1234, ""},
                 {"$-5", DECIMAL_POINT, -5, "$"},
                 {"\u22125.5", DECIMAL_POINT, -5.5, ""},
                 {"EUR 7", DECIMAL_POINT, 7, "EUR"},
                 {"3 kg", DECIMAL_POINT, 3, "kg"},
                 {".5", DECIMAL_POINT, 0.5, ""},
                 {"1.5E+03", DECIMAL_POINT, 1500, ""},
                 {"290*", DECIMAL_POINT, 290, ""},
                 {"3.1 kg (3.14159)", DECIMAL_POINT, 3.14159, "kg"},
                 {"1.234 (1234)", DECIMAL_POINT, 1234, ""},
                 {"0", DECIMAL_POINT, 0, ""}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct cell_value value = cell_value_read(
            (struct text_span){cases[i].text, strlen(cases[i].text)}, cases[i].mark);
        bool same = value.kind == CELL_NUMBER && fabs(value.number - cases[i].number) < 1e-9 &&
                    value.unit.size == strlen(cases[i].unit) &&
                    memcmp(value.unit.text, cases[i].unit, value.unit.size) == 0;
        if (!same) fail_msg("%s is %g", cases[i].text, value.number);
    }
}

static void test_other_kinds(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum cell_kind kind;
    } cases[] = {{"", CELL_EMPTY},          {"-", CELL_EMPTY},
                 {" n/a ", CELL_EMPTY},     {"007", CELL_TEXT},
                 {"Kayak (12)", CELL_TEXT}, {"12 Main Street", CELL_TEXT},
                 {"10:30", CELL_TEXT},      {"1,23", CELL_TEXT},
                 {"A12", CELL_TEXT},        {"2024-03-05", CELL_DATE},
                 {"05.03.2024", CELL_DATE}, {"2024-03-05T17:30", CELL_DATE},
                 {"2024-13-05", CELL_TEXT}, {"Mar-24 (2024-03-01)", CELL_DATE},
                 {"2024-03", CELL_TEXT},    {"1-2", CELL_TEXT}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct text_span text = {cases[i].text, strlen(cases[i].text)};
        if (cell_value_read(text, DECIMAL_POINT).kind != cases[i].kind)
            fail_msg("%s", cases[i].text);
    }
    struct text_span date = {"Mar-24 (2024-03-01)", 19};
    assert_string_equal(cell_value_read(date, DECIMAL_POINT).date, "2024-03-01");
}

static void test_ranges(void **state) {
    (void)state;
    struct buffer out = {0};
    struct range_writer writer = {.sheet = "Orders 2023", .column = 28, .most = 2};
    static const uint32_t rows[] = {2, 3, 3, 4, 9, 12, 13};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) range_add(&writer, rows[i], &out);
    range_end(&writer, &out);
    assert_string_equal(out.data, "'Orders 2023'!AB2:AB4, 'Orders 2023'!AB9, ...");
    buffer_free(&out);
}

/* Lines of two groups, a head of two levels, a row that goes on, and a cell from above. */
static void test_lines(void **state) {
    (void)state;
    static const char text[] =
        "Region | Spring\n"
        "North | 2019, Spring: 1.5 | Note: a | b\n"
        "North | Sum: 4\n"
        "North | 2019, Spring: 2\n";
    struct buffer marks = {0};
    struct data_tables tables = {0};
    size_t line = 0;
    marks_add_block(&marks, BLOCK_TABLE_HEAD, 0);
    marks_add_cell(&marks, 0, 1, 1);
    marks_add_cell(&marks, 9, 1, 2);
    line = 16;
    marks_add_block(&marks, BLOCK_TABLE_ROW, line);
    marks_add_cell(&marks, line, 2, 1);
    marks_add_cell(&marks, line + 22, 2, 2);
    marks_add_cell(&marks, line + 34, 2, 3);
    line += 40;
    marks_add_block(&marks, BLOCK_TABLE_ROW, line);
    marks_add_cell(&marks, line, 2, 1);
    marks_add_cell(&marks, line + 13, 2, 4);
    line += 15;
    marks_add_block(&marks, BLOCK_TABLE_ROW, line);
    marks_add_cell(&marks, line, 2, 1);
    marks_add_cell(&marks, line + 22, 3, 2);
    struct stored_document document = {
        .id = "x", .path = "x", .text = {text, sizeof text - 1}, .marks = marks_of(&marks)};
    assert_null(marks_fault(document.marks, document.text.size));
    data_tables_read(&tables, &document);
    assert_int_equal(tables.n, 1);
    const struct data_table *table = &tables.list[0];
    assert_int_equal(table->n_rows, 2);
    assert_int_equal(table->n_columns, 4);
    static const char *const names[] = {"Region", "2019, Spring", "Note", "Sum"};
    for (int i = 0; i < 4; i++) assert_string_equal(table->columns[i].name.data, names[i]);
    size_t n;
    const struct data_cell *cells = data_cells(table, &n);
    assert_int_equal(n, 6);
    assert_memory_equal(data_cell_text(table, &cells[2]).text, "a | b", 5);
    assert_true(cells[4].copied && cells[4].row == 1 && cells[4].file_row == 2);
    assert_int_equal(data_table_find_column(table, "d"), 3);
    data_tables_free(&tables);
    buffer_free(&marks);
}

/* Tables of Markdown as document_mark marks them: escaped bars, emphasis, rows that are short and
 * long, empty cells, and bars that are no table. */
static void test_markdown(void **state) {
    (void)state;
    static const char text[] =
        "# Boats\n\n"
        "| Boat | *Price* | Note |\n| --- | --: | --- |\n"
        "| Kayak | 290 | a \\| b |\n| `Canoe` |  |\n| Raft | 310 | x | more |\n\n"
        "Words | of a line.\n\n"
        "| alone |\n\n"
        "| Day | Boats |\n|---|---|\n| 2024-05-01 | 3 |\n";
    struct buffer marks = {0};
    struct data_tables tables = {0};
    size_t n;
    document_mark(DOCUMENT_MARKDOWN, (struct text_span){text, sizeof text - 1}, &marks);
    struct stored_document document = {
        .id = "x", .path = "x.md", .text = {text, sizeof text - 1}, .marks = marks_of(&marks)};
    data_tables_read(&tables, &document);
    assert_int_equal(tables.n, 2);
    const struct data_table *table = &tables.list[0];
    assert_string_equal(table->name.data, "Boats");
    assert_int_equal(table->n_columns, 3);
    assert_string_equal(table->columns[1].name.data, "Price");
    assert_int_equal(table->columns[1].kind, CELL_NUMBER);
    assert_int_equal(table->n_rows, 3);
    const struct data_cell *cells = data_cells(table, &n);
    assert_int_equal(n, 7);
    assert_memory_equal(data_cell_text(table, &cells[2]).text, "a | b", 5);
    assert_memory_equal(data_cell_text(table, &cells[3]).text, "Canoe", 5);
    assert_int_equal(cells[5].file_row, 4);
    assert_int_equal(cells[5].file_column, 2);
    assert_int_equal(tables.list[1].columns[0].kind, CELL_DATE);
    data_tables_free(&tables);
    buffer_free(&marks);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers),
                                       cmocka_unit_test(test_other_kinds),
                                       cmocka_unit_test(test_ranges), cmocka_unit_test(test_lines),
                                       cmocka_unit_test(test_markdown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
