/* tests/unit/test_pdf_picture.c: pages of a PDF as pictures: their size, and files that are none.
 */
#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/pdf/pdf_picture.h"
#include "tests/folder.h"

static struct sandbox_limits usual(void) {
    return (struct sandbox_limits){
        .memory = (size_t)512 << 20, .seconds = 60, .until = time_now() + 300};
}

/* A page of so many points with a black bar, and one that has no size. The library makes the table
 * of objects itself. */
static void make_file(struct buffer *file, int width, int height) {
    static const char bar[] = "0 g 10 10 30 5 re f";
    buffer_printf(file,
                  "%%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
                  "2 0 obj<</Type/Pages/Kids[3 0 R 5 0 R]/Count 2>>endobj\n"
                  "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 %d %d]/Contents 4 0 R>>endobj\n"
                  "4 0 obj<</Length %zu>>stream\n%s\nendstream endobj\n"
                  "5 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 100 200]/Rotate 90>>endobj\n"
                  "trailer<</Root 1 0 R/Size 6>>\n%%%%EOF\n",
                  width, height, sizeof bar - 1, bar);
}

static struct text_span span_of(const struct buffer *bytes) {
    return (struct text_span){bytes->data, bytes->size};
}

/* The width or the height that a PNG says it has. */
static int read_side(const struct buffer *png, size_t at) {
    const unsigned char *b = (const unsigned char *)png->data + at;
    return b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
}

static void expect_size(struct text_span file, int number, int width, int height) {
    struct pdf_picture picture = {0};
    struct error e = {0};
    struct sandbox_limits limits = usual();
    if (pdf_picture_draw(&picture, &(struct pdf_pictured){.name = "a.pdf", .bytes = file}, number,
                         &limits, &e))
        fail_msg("%s", e.text);
    assert_int_equal(picture.n_pages, 2);
    assert_memory_equal(picture.png.data, "\x89PNG\r\n\x1a\n", 8);
    assert_int_equal(read_side(&picture.png, 16), width);
    assert_int_equal(read_side(&picture.png, 20), height);
    buffer_free(&picture.png);
}

static void expect_failure(struct text_span file, int number, struct sandbox_limits limits,
                           enum status status, const char *words) {
    struct pdf_picture picture = {0};
    struct error e = {0};
    assert_int_equal(
        pdf_picture_draw(&picture, &(struct pdf_pictured){.name = "a.pdf", .bytes = file}, number,
                         &limits, &e),
        status);
    if (strstr(e.text, words) == NULL) fail_msg("\"%s\" is not in \"%s\"", words, e.text);
    assert_int_equal(picture.png.size, 0);
    buffer_free(&picture.png);
}

static void test_sizes(void **state) {
    (void)state;
    struct buffer file = {0};
    make_file(&file, 300, 100);
    expect_size(span_of(&file), 1, 600, 200);
    expect_size(span_of(&file), 2, 400, 200); /* turned */
    buffer_clear(&file);
    make_file(&file, 14000, 70);
    expect_size(span_of(&file), 1, PDF_PICTURE_SIDE, 10);
    buffer_free(&file);
}

static void test_failures(void **state) {
    (void)state;
    struct buffer file = {0};
    make_file(&file, 300, 100);
    expect_failure(span_of(&file), 3, usual(), STATUS_NOT_FOUND, "a.pdf has 2 pages");
    expect_failure(span_of(&file), 0, usual(), STATUS_NOT_FOUND, "counted from 1");
    expect_failure((struct text_span){"no PDF", 6}, 1, usual(), STATUS_INVALID, "is no PDF");
    expect_failure((struct text_span){file.data, 40}, 1, usual(), STATUS_INVALID, "a.pdf");
    buffer_free(&file);
}

static void test_an_end_is_obeyed(void **state) {
    (void)state;
    atomic_bool cancelled = true;
    struct buffer file = {0};
    struct sandbox_limits limits = usual();
    make_file(&file, 300, 100);
    limits.cancelled = &cancelled;
    expect_failure(span_of(&file), 1, limits, STATUS_CANCELLED, "");
    buffer_free(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes),
                                       cmocka_unit_test(test_failures),
                                       cmocka_unit_test(test_an_end_is_obeyed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
