/* tests/unit/test_pages.c: pages that were read: their text, what they need, and that records keep
 * them; rows of tables; a PDF without its library. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "retrieval/extract/extract_private.h"
#include "retrieval/extract/page/page_needs.h"
#include "retrieval/extract/page/page_record.h"
#include "retrieval/extract/page/table_text.h"
#include "retrieval/extract/pdf/pdf_library.h"

/* Poppler's libraries keep what they have of fonts until the end of the process. A build with
 * LeakSanitizer asks this. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:libfontconfig.so\nleak:libcairo.so\n";
}

static struct text_span span_of(const char *text) { return (struct text_span){text, strlen(text)}; }

static void expect_text(const struct document_text *out, const char *text) {
    assert_non_null(out->text.data);
    assert_string_equal(out->text.data, text);
    assert_null(marks_fault(marks_of(&out->marks), out->text.size));
}

/* Tables. */

static void add(struct table *table, uint32_t row, uint32_t column, const char *text) {
    table_add_cell(table, row, column, span_of(text));
}

static void add_wide(struct table *table, uint32_t row, uint32_t column, uint32_t columns,
                     const char *text) {
    table_add_cell(table, row, column, span_of(text))->columns = columns;
}

static void test_merged_heads(void **state) {
    struct table table = {.source_row = 3, .source_column = 2};
    struct document_text out = {0};
    (void)state;
    add_wide(&table, 0, 2, 2, "2019");
    add(&table, 1, 0, "Coast");
    add(&table, 1, 1, "Town");
    add(&table, 1, 2, "Spring");
    add(&table, 1, 3, "Autumn");
    table_add_cell(&table, 2, 0, span_of("Northern\n coast"))->rows = 2;
    add(&table, 2, 1, "Oakhurst");
    add(&table, 2, 2, "28,608");
    add(&table, 2, 3, "61,937");
    add(&table, 3, 1, "Penbury");
    add(&table, 3, 3, "12");
    table_find_heads(&table);
    assert_int_equal(table.head_rows, 2);
    assert_int_equal(table.head_columns, 2);
    table_write(&table, &out);
    expect_text(&out,
                "2019\nCoast | Town | Spring | Autumn\n"
                "Northern coast, Oakhurst | 2019, Spring: 28,608 | 2019, Autumn: 61,937\n"
                "Northern coast, Penbury | 2019, Autumn: 12\n");
    bool found = false;
    struct mark_span marks = marks_of(&out.marks);
    for (uint32_t i = 0; i < marks.n; i++) {
        struct mark mark = mark_read(marks, i);
        if (mark.kind != MARK_CELL || strncmp(out.text.data + mark.at, "61,937", 6) != 0) continue;
        assert_int_equal(mark.value, 5);
        assert_int_equal(mark.column, 5);
        found = true;
    }
    assert_true(found);
    document_text_free(&out);
    table_free(&table);
}

static void test_wide_rows(void **state) {
    struct table ordered = {0};
    struct document_text out = {0};
    char text[64];
    (void)state;
    for (uint32_t i = 0; i < 30; i++) {
        snprintf(text, sizeof text, i == 0 ? "Boat" : "column %u", i);
        add(&ordered, 0, i, text);
    }
    for (uint32_t i = 0; i < 30; i++) {
        snprintf(text, sizeof text, i == 0 ? "Kayak" : "%u0", i);
        add(&ordered, 1, i, text);
    }
    table_find_heads(&ordered);
    table_write_rows(&ordered, &out);
    int lines = 0;
    for (const char *at = out.text.data; *at; at = strchr(at, '\n') + 1, lines++) {
        assert_true(strncmp(at, "Kayak | column", 14) == 0);
        assert_true(strcspn(at, "\n") < 220);
    }
    assert_true(lines > 2);
    assert_non_null(strstr(out.text.data, "column 29: 290\n"));
    document_text_free(&out);
    table_free(&ordered);
}

/* A cell that says it covers everything costs no more than a row. */
static void test_hostile_cells(void **state) {
    struct table table = {0};
    struct document_text out = {0};
    (void)state;
    add(&table, 0, 0, "a");
    add_wide(&table, 1, 1, UINT32_MAX, "wide");
    struct table_cell *tall = table_add_cell(&table, 2, UINT32_MAX - 1, span_of("far"));
    tall->rows = tall->columns = UINT32_MAX;
    add(&table, UINT32_MAX - 1, 0, "b");
    table_find_heads(&table);
    table_write(&table, &out);
    assert_null(marks_fault(marks_of(&out.marks), out.text.size));
    assert_true(out.text.size < 1 << 20);
    document_text_free(&out);
    table_free(&table);
}

/* Pages. */

static void add_word(struct page *page, float left, float top, const char *text) {
    struct page_word word = {.box = {left, top, left + 6 * (float)strlen(text), top + 10},
                             .font_size = 10,
                             .confidence = 100};
    page_add_word(page, span_of(text), &word);
}

static struct page *add_page(struct pages *pages) {
    struct page *page = pages_add(pages, pages->n + 1);
    page->width = 600;
    page->height = 800;
    return page;
}

static void test_records(void **state) {
    struct pages pages = {0}, again = {0};
    struct buffer records = {0};
    struct error e;
    (void)state;
    struct page *page = add_page(&pages);
    add_word(page, 70, 90, "Two");
    add_word(page, 100, 90, "words.");
    page_add_rule(page, &(struct page_rect){1, 2, 3, 4});
    record_add_bookmark(&records, span_of("Two"), 1, 1);
    record_add_page(&records, page);
    struct text_span bytes = {records.data, records.size};
    assert_int_equal(records_read(bytes, &again, &e), STATUS_OK);
    assert_int_equal(again.n, 1);
    assert_memory_equal(again.list[0].words.data, page->words.data, page->words.size);
    assert_int_equal(again.list[0].rules.size, page->rules.size);
    assert_int_equal(again.bookmarks.size, sizeof(struct page_bookmark));
    pages_free(&again);
    for (bytes.size = 1; bytes.size < records.size; bytes.size++) {
        enum status status = records_read(bytes, &again, &e);
        assert_true(status == STATUS_CORRUPT || again.n == 0);
        pages_free(&again);
    }
    buffer_free(&records);
    pages_free(&pages);
}

static void test_lines(void **state) {
    struct pages pages = {0};
    struct document_text out = {0};
    struct buffer boxes = {0};
    (void)state;
    struct page *page = add_page(&pages);
    add_word(page, 130, 102, "ends.");
    add_word(page, 70, 90, "A");
    add_word(page, 100, 90, "sen-");
    add_word(page, 70, 102, "tence");
    pages_lay_out(&pages, &out);
    expect_text(&out, "A sentence ends.\n");
    place_find_boxes(marks_of(&out.marks), 2, 10, &boxes);
    const struct page_box *list = (const void *)boxes.data;
    assert_int_equal(boxes.size, 2 * sizeof *list);
    assert_float_equal(list[0].rect.left, 100, 0.3);
    assert_float_equal(list[1].rect.right, 100, 0.3);
    assert_float_equal(list[1].page_height, 800, 0.3);
    buffer_free(&boxes);
    document_text_free(&out);
    pages_free(&pages);
}

static void test_needs(void **state) {
    struct pages pages = {0};
    (void)state;
    struct page *page = add_page(&pages);
    assert_int_equal(page_judge(page).need, PAGE_IS_EMPTY);
    page_add_picture(page, &(struct page_rect){0, 0, 600, 800});
    assert_int_equal(page_judge(page).need, PAGE_HAS_NO_TEXT);
    add_word(page, 500, 20, "B-0012");
    assert_int_equal(page_judge(page).need, PAGE_HAS_A_STAMP);
    for (int i = 0; i < 100; i++)
        add_word(page, 70 + 50 * (float)(i % 10), 90 + 12 * (float)(i / 10), "harbour");
    assert_int_equal(page_judge(page).need, PAGE_NEEDS_NOTHING);
    for (int i = 0; i < 400; i++) add_word(page, 70, 300, "\xee\x80\x81\xee\x80\x82\xee\x80\x83");
    assert_int_equal(page_judge(page).need, PAGE_HAS_GIBBERISH);
    pages_free(&pages);
}

/* The library. */

static bool is_missing;

void *dlopen(const char *file, int mode) {
    void *(*open)(const char *, int);
    *(void **)&open = dlsym(RTLD_NEXT, "dlopen");
    return is_missing && file && strstr(file, "poppler") ? open("libnot-there.so", mode)
                                                         : open(file, mode);
}

static void test_missing(void **state) {
    struct error e = {0};
    (void)state;
    is_missing = true;
    assert_int_equal(pdf_open_library("a.pdf", &e), STATUS_UNSUPPORTED);
    is_missing = false;
    assert_non_null(strstr(
        e.text, "a.pdf: it needs the library Poppler; install the package libpoppler-glib8"));
}

static void test_letters(void **state) {
    struct error e = {0};
    (void)state;
    if (pdf_open_library("a.pdf", &e)) skip();
    assert_true(pdf_draws_letters());
    assert_true(pdf_draws_letters());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merged_heads),  cmocka_unit_test(test_wide_rows),
        cmocka_unit_test(test_hostile_cells), cmocka_unit_test(test_records),
        cmocka_unit_test(test_lines),         cmocka_unit_test(test_needs),
        cmocka_unit_test(test_missing),       cmocka_unit_test(test_letters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
