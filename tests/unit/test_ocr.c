/* tests/unit/test_ocr.c: what is done to the picture of a page before it is read by OCR. No library
 * is needed but for the last tests. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/ocr/ink.h"
#include "retrieval/extract/ocr/ocr_page.h"
#include "retrieval/extract/ocr/scan_file.h"
#include "retrieval/extract/page/page_layout.h"
#include "retrieval/extract/page/page_record.h"
#include "tests/folder.h"

enum { PAPER = 255, INK = 0 };

static void fill(struct grey *picture, int left, int top, int width, int height, int level) {
    for (int y = top; y < top + height; y++)
        memset(grey_row(picture, y) + left, level, (size_t)width);
}

static void make_paper(struct grey *picture, int width, int height) {
    grey_make(picture, width, height);
    memset(picture->pixels, PAPER, grey_size(picture));
}

/* Lines of bars that are like letters: all stand on the line, some rise above an x, and none stand
 * one below the other. */
static void make_page(struct grey *picture, int width, int height) {
    make_paper(picture, width, height);
    for (int y = 60; y + 60 < height; y += 40)
        for (int x = 40 + y * 13 % 17; x + 60 < width; x += 20 + (x + y) % 7) {
            int rise = (x * 7 + y * 3) % 5 < 2 ? 8 : 0;
            fill(picture, x, y - rise, 14, 16 + rise, INK);
        }
}

static void expect_near(float value, float wanted, float most) {
    if (fabsf(value - wanted) > most) fail_msg("%g is not near %g", (double)value, (double)wanted);
}

static void test_turns(void **state) {
    (void)state;
    struct grey picture;
    for (int quarters = 1; quarters < 4; quarters++) {
        make_paper(&picture, 70, 45);
        picture.pixels[3 * 70 + 5] = 1; /* at (5, 3) */
        grey_turn(&picture, quarters);
        int x = quarters == 1 ? 45 - 1 - 3 : quarters == 2 ? 70 - 1 - 5 : 3;
        int y = quarters == 1 ? 5 : quarters == 2 ? 45 - 1 - 3 : 70 - 1 - 5;
        assert_int_equal(grey_row(&picture, y)[x], 1);
        grey_turn(&picture, 4 - quarters);
        assert_int_equal(picture.width, 70);
        assert_int_equal(grey_row(&picture, 3)[5], 1);
        grey_free(&picture);
    }
}

static void test_rotation(void **state) {
    (void)state;
    struct grey picture;
    make_paper(&picture, 400, 400);
    fill(&picture, 300, 196, 8, 8, INK); /* right of the middle */
    grey_rotate(&picture, 30);           /* goes down clockwise */
    int x = 200 + (int)(104 * cos(M_PI / 6)), y = 200 + (int)(104 * sin(M_PI / 6));
    assert_true(grey_row(&picture, y)[x] < 64);
    assert_int_equal(grey_row(&picture, 200)[304], PAPER);
    grey_free(&picture);
}

static void test_sizes(void **state) {
    (void)state;
    struct grey picture;
    make_paper(&picture, 100, 60);
    fill(&picture, 0, 0, 50, 60, 100);
    grey_scale(&picture, 30, 20);
    assert_int_equal(grey_row(&picture, 10)[5], 100);
    assert_int_equal(grey_row(&picture, 10)[25], PAPER);
    grey_scale(&picture, 90, 41);
    assert_int_equal(picture.width, 90);
    assert_int_equal(grey_row(&picture, 20)[10], 100);
    assert_int_equal(grey_row(&picture, 40)[89], PAPER);
    grey_scale(&picture, 1, 1);
    assert_true(picture.pixels[0] > 100 && picture.pixels[0] < PAPER);
    grey_scale(&picture, 3, 2);
    grey_free(&picture);
}

static void test_noise(void **state) {
    (void)state;
    struct grey picture;
    make_page(&picture, 600, 400);
    struct grey_noise clean = grey_measure_noise(&picture);
    assert_true(clean.dots < 0.0005F);
    for (int i = 0; i < 4000; i++) {
        int at = (int)((unsigned)i * 2654435761U % (600U * 400U));
        picture.pixels[at] = i % 2 ? INK : PAPER;
    }
    assert_true(grey_measure_noise(&picture).dots > 0.003F);
    grey_median(&picture);
    assert_true(grey_measure_noise(&picture).dots < 0.0015F);
    grey_free(&picture);
    make_paper(&picture, 1, 1);
    grey_median(&picture);
    grey_blur(&picture);
    assert_true(grey_measure_noise(&picture).dots == 0);
    grey_even(&picture);
    grey_free(&picture);
}

static void test_light(void **state) {
    (void)state;
    struct grey picture;
    make_page(&picture, 900, 700);
    for (int y = 0; y < 700; y++)
        for (int x = 0; x < 900; x++) {
            uint8_t *pixel = grey_row(&picture, y) + x;
            *pixel = (uint8_t)(*pixel * (900 - x * 2 / 3) / 900);
        }
    grey_even(&picture);
    int threshold = grey_threshold(&picture), left = 40 + 60 * 13 % 17; /* of the first letter */
    assert_true(grey_row(&picture, 5)[895] >= threshold);
    assert_true(grey_row(&picture, 5)[895] > 240);
    assert_true(grey_row(&picture, 70)[left + 3] < threshold);
    grey_free(&picture);
}

static struct ink_lines find_lines(const struct grey *picture, float *letter) {
    struct buffer parts = {0};
    assert_true(ink_find_parts(picture, 128, 100000, &parts));
    *letter = ink_letter(&parts, picture);
    struct ink_lines lines = ink_find_lines(&parts, *letter);
    buffer_free(&parts);
    return lines;
}

static void test_lines(void **state) {
    (void)state;
    static const float angles[] = {0, 1.5F, -3, 8, -11};
    for (int quarters = 0; quarters < 4; quarters++)
        for (size_t i = 0; i < ARRAY_COUNT(angles); i++) {
            struct grey picture;
            float letter;
            make_page(&picture, 900, 700);
            grey_rotate(&picture, angles[i]);
            grey_turn(&picture, quarters);
            struct ink_lines lines = find_lines(&picture, &letter);
            assert_int_equal(lines.quarters, (4 - quarters) & 3);
            expect_near(lines.degrees, -angles[i], 0.15F);
            assert_true(lines.sureness > 2);
            grey_free(&picture);
        }
}

static void test_parts(void **state) {
    (void)state;
    struct grey picture;
    struct buffer parts = {0};
    make_paper(&picture, 40, 30);
    fill(&picture, 2, 2, 3, 10, INK); /* an L, and a bar that touches it by a corner */
    fill(&picture, 2, 12, 8, 2, INK);
    fill(&picture, 10, 14, 3, 3, INK);
    fill(&picture, 30, 20, 2, 2, INK);
    assert_true(ink_find_parts(&picture, 128, 10, &parts));
    assert_int_equal(parts.size, 2 * sizeof(struct ink_box));
    const struct ink_box *box = (const void *)parts.data;
    assert_true(box->left == 2 && box->top == 2 && box->right == 13 && box->bottom == 17);
    buffer_clear(&parts);
    for (int i = 0; i < 40 * 30; i += 2) picture.pixels[i] = (i / 40) % 2 ? PAPER : INK;
    assert_false(ink_find_parts(&picture, 128, 20, &parts));
    buffer_free(&parts);
    grey_free(&picture);
}

static void test_rules(void **state) {
    (void)state;
    struct grey picture;
    struct buffer rules = {0};
    make_page(&picture, 900, 700);
    fill(&picture, 100, 645, 700, 3, INK); /* below the last line */
    fill(&picture, 870, 60, 2, 500, INK);
    fill(&picture, 0, 670, 900, 25, INK); /* a bar is no rule */
    ink_find_rules(&picture, 128, 16, &rules);
    assert_int_equal(rules.size, 2 * sizeof(struct ink_box));
    const struct ink_box *boxes = (const void *)rules.data;
    assert_true(boxes[0].left == 100 && boxes[0].right == 800 && boxes[0].top == 645);
    assert_true(boxes[1].top == 60 && boxes[1].bottom == 560 && boxes[1].left == 870);
    ink_erase(&picture, boxes, 2);
    assert_int_equal(grey_row(&picture, 646)[400], PAPER);
    assert_int_equal(grey_row(&picture, 300)[870], PAPER);
    buffer_free(&rules);
    grey_free(&picture);
}

/* A box of the view lies where the picture has it. */
static void test_view(void **state) {
    (void)state;
    for (int quarters = 0; quarters < 4; quarters++) {
        struct grey picture;
        struct ocr_view view;
        make_page(&picture, 900, 700);
        fill(&picture, 400, 300, 60, 60, PAPER);
        fill(&picture, 420, 310, 20, 20, INK); /* one letter, alone */
        grey_turn(&picture, quarters);
        int width = picture.width, height = picture.height;
        ocr_view_make(&view, &picture);
        assert_int_equal(view.quarters, (4 - quarters) & 3);
        struct page_rect box = {420 * view.scale, 310 * view.scale, 440 * view.scale,
                                330 * view.scale};
        struct page_rect undone = ocr_view_undo(&view, &box);
        float x = (undone.left + undone.right) / 2, y = (undone.top + undone.bottom) / 2;
        float wanted_x[] = {430, (float)width - 320, (float)width - 430, 320};
        float wanted_y[] = {320, 430, (float)height - 320, (float)height - 430};
        expect_near(x, wanted_x[quarters], 1);
        expect_near(y, wanted_y[quarters], 1);
        ocr_view_free(&view);
    }
}

static void test_pages_of_tiff(void **state) {
    (void)state;
    static const char two[] =
        "II*\0\x08\0\0\0\0\0\x0e\0\0\0\0\0\0\0\0\0\0\0\0\0"; /* lists at 8 and 14 */
    static const char ring[] = "II*\0\x08\0\0\0\0\0\x08\0\0\0\0\0\0\0";
    static const char cut[] = "MM\0*\0\0\0\x10\xff\xff\0\0\0\0\0\0\xff\xff\0";
    static const char big[] = "II+\0\x08\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    assert_int_equal(scan_count_pages((struct text_span){two, sizeof two - 1}), 2);
    assert_int_equal(scan_count_pages((struct text_span){ring, sizeof ring - 1}), 10000);
    assert_int_equal(scan_count_pages((struct text_span){cut, sizeof cut - 1}), 1);
    assert_int_equal(scan_count_pages((struct text_span){big, sizeof big - 1}), 1);
    assert_int_equal(scan_count_pages((struct text_span){"\x89PNG", 4}), 1);
    assert_int_equal(scan_count_pages((struct text_span){"", 0}), 1);
}

static void test_languages(void **state) {
    (void)state;
    struct ocr_languages languages;
    struct error e;
    assert_int_equal(ocr_languages_parse(&languages, "eng+deu_frak", &e), STATUS_OK);
    assert_int_equal(languages.n, 2);
    assert_string_equal(languages.names[1], "deu_frak");
    assert_int_equal(ocr_languages_parse(&languages, "", &e), STATUS_OK);
    assert_int_equal(languages.n, 0);
    static const char *const wrong[] = {
        "eng+", "+eng", "../eng", "e ng", "a+b+c+d+e+f+g", "a_name_that_is_far_too_long_for_it"};
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++)
        assert_int_equal(ocr_languages_parse(&languages, wrong[i], &e), STATUS_INVALID);
}

/* Where the library or a model is not installed, the package is named. */
static void test_missing(void **state) {
    (void)state;
    struct ocr_languages none = {0}, unknown;
    struct ocr_engine *engine;
    struct error e;
    assert_int_equal(ocr_engine_open(&engine, &none, "libtesseract-that-is-not-there.so", &e),
                     STATUS_UNSUPPORTED);
    assert_non_null(strstr(e.text, "OCR is not installed: package tesseract-ocr"));
    assert_null(engine);
    assert_int_equal(ocr_languages_parse(&unknown, "xqz_vert", &e), STATUS_OK);
    assert_int_equal(ocr_engine_open(&engine, &unknown, NULL, &e), STATUS_UNSUPPORTED);
    bool is_there = strstr(e.text, "OCR is not installed") == NULL;
    if (is_there) assert_non_null(strstr(e.text, "package tesseract-ocr-xqz-vert"));
}

/* A page that lies askew: boxes of its words are those of the page as it is shown. */
static void test_tilt(void **state) {
    (void)state;
    struct pages pages = {0}, read = {0};
    struct document_text text = {0};
    struct buffer record = {0}, boxes = {0};
    struct error e;
    struct page *page = pages_add(&pages, 1);
    page->width = 600;
    page->height = 800;
    page->tilt = 5;
    page->confidence = 88;
    for (int i = 0; i < 8; i++)
        page_add_word(
            page, (struct text_span){"harbour", 7},
            &(struct page_word){.box = {(float)(40 + 65 * i), 100, (float)(95 + 65 * i), 112},
                                .font_size = 11,
                                .confidence = 90});
    record_add_page(&record, page);
    assert_int_equal(records_read((struct text_span){record.data, record.size}, &read, &e),
                     STATUS_OK);
    expect_near(read.list[0].tilt, 5, 0);
    pages_lay_out(&read, &text);
    assert_null(marks_fault(marks_of(&text.marks), text.text.size));
    place_find_boxes(marks_of(&text.marks), 0, text.text.size, &boxes);
    size_t n = boxes.size / sizeof(struct page_box);
    const struct page_box *box = (const void *)boxes.data;
    assert_true(n > 2); /* one box over all of the line would be 45 points high */
    for (size_t i = 0; i < n; i++) assert_true(box[i].rect.bottom - box[i].rect.top < 32);
    /* The line's beginning is left of the middle and goes up when the page is turned clockwise. */
    assert_true(box[0].rect.top < box[n - 1].rect.top);
    pages_free(&pages);
    pages_free(&read);
    document_text_free(&text);
    buffer_free(&record);
    buffer_free(&boxes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),     cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_sizes),     cmocka_unit_test(test_noise),
        cmocka_unit_test(test_light),     cmocka_unit_test(test_lines),
        cmocka_unit_test(test_parts),     cmocka_unit_test(test_rules),
        cmocka_unit_test(test_view),      cmocka_unit_test(test_pages_of_tiff),
        cmocka_unit_test(test_languages), cmocka_unit_test(test_missing),
        cmocka_unit_test(test_tilt)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
