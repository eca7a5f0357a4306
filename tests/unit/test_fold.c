/* tests/unit/test_fold.c: folding by tables is utf8proc's, for every character and across them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* cmocka wants the headers above first. */
#include <cmocka.h>

#include "config/text/unicode_fold.h"

static struct stretch stretch;
static struct mapped_buffer expected;
static struct buffer folded;

static enum fold_place place_of(int32_t c) {
    if (!unicode_is_word(c) && !unicode_is_numeric(c) && c < 0x10000) return FOLD_BETWEEN;
    bool alone = (c >= 0x2e80 && c < 0xe000) || (c >= 0x20000 && c < 0x40000);
    return alone ? FOLD_ALONE : FOLD_WITHIN;
}

static void check_equal(struct text_span text, const char *how) {
    if (folded.size == expected.size && memcmp(folded.data, expected.text, folded.size) == 0)
        return;
    struct buffer hex = {0};
    for (size_t i = 0; i < text.size; i++)
        buffer_printf(&hex, " %02x", (unsigned char)text.text[i]);
    fail_msg("%s:%s folds to \"%.*s\", not to \"%.*s\"", how, hex.data, (int)folded.size,
             folded.data, (int)expected.size, expected.text);
}

/* Character by character, and in runs where none is longer than FOLD_RUN. */
static void check_fold(struct text_span text, bool runs) {
    struct fold_reader reader;
    int32_t c;
    expected.size = 0;
    unicode_fold(&stretch, text, &expected);
    buffer_clear(&folded);
    fold_reader_open(&reader, text);
    for (fold_reader_next(&reader); reader.place != FOLD_END;) {
        bool within = reader.place == FOLD_WITHIN;
        assert_int_equal(utf8_read(reader.bytes, reader.length, &c), reader.length);
        assert_int_equal(reader.place, place_of(c));
        if (runs && within) {
            struct fold_run run = {.size = 0};
            fold_reader_run(&reader, &run);
            buffer_append(&folded, run.bytes, run.size);
            assert_int_equal(run.joined, memchr(run.bytes, '_', run.size) != NULL);
        } else {
            buffer_append(&folded, reader.bytes, reader.length);
            fold_reader_next(&reader);
        }
    }
    fold_reader_close(&reader);
    check_equal(text, runs ? "in runs" : "by characters");
}

static void add(struct buffer *text, int32_t c) {
    char bytes[4];
    buffer_append(text, bytes, unicode_write(c, bytes));
}

/* Every character alone, beside letters, before and behind marks, and decomposed: all that
 * composes anywhere does so here. */
static void test_every_character(void **state) {
    struct buffer text = {0};
    struct mapped_buffer parts = {0};
    (void)state;
    for (int32_t c = 0; c < 0x110000; c++) {
        char bytes[4];
        size_t n = unicode_write(c, bytes);
        const int32_t around[] = {c,      ' ', 'x',   c,     'y', ' ',   c,     c,      0x301,  ' ',
                                  0xE9,   c,   0x323, 'e',   c,   0x301, ' ',   0x1100, c,      ' ',
                                  0xAC00, c,   ' ',   0x915, c,   0x94D, 0x431, c,      0x4E00, c};
        if (n == 0) continue;
        buffer_clear(&text);
        parts.size = 0;
        for (size_t i = 0; i < ARRAY_COUNT(around); i++) add(&text, around[i]);
        unicode_normalise(&(struct mapped_text){.text = bytes, .size = n}, UNICODE_NFD, &parts);
        buffer_append_string(&text, " ");
        buffer_append(&text, parts.text, parts.size);
        add(&text, 0x316);
        buffer_append(&text, parts.text, parts.size);
        struct text_span all = {text.data, text.size};
        check_fold(all, false);
        if (c < 0x40000) check_fold(all, true); /* tables end there */
    }
    buffer_free(&text);
    mapped_free(&parts);
}

static uint32_t seed = 11;
static uint32_t draw(uint32_t below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

/* From where marks, letters with marks and parts of syllables are close together. */
static int32_t draw_character(void) {
    static const int32_t ranges[][2] = {{0x20, 0x7F},       {'A', 'z'},         {0x80, 0x250},
                                        {0x300, 0x370},     {0x300, 0x330},     {0x370, 0x530},
                                        {0x590, 0x670},     {0x900, 0xE60},     {0x1000, 0x10A0},
                                        {0x1100, 0x1200},   {0x1DC0, 0x2100},   {0x3000, 0x3100},
                                        {0x4E00, 0x4E20},   {0xA640, 0xA6A0},   {0xAC00, 0xAC40},
                                        {0xF900, 0x10000},  {0x11000, 0x11700}, {0x1D150, 0x1D180},
                                        {0x1E000, 0x1E030}, {0x2F800, 0x2FA20}, {0xE0100, 0xE0110}};
    const int32_t *range = ranges[draw(ARRAY_COUNT(ranges))];
    return range[0] + (int32_t)draw((uint32_t)(range[1] - range[0]));
}

static void test_random_texts(void **state) {
    struct buffer text = {0};
    (void)state;
    for (int i = 0; i < 300000; i++) {
        buffer_clear(&text);
        for (uint32_t n = draw(12); n > 0; n--) {
            if (draw(20) == 0)
                buffer_append(&text, &(char){(char)draw(256)}, 1);
            else
                add(&text, draw_character());
        }
        /* Cut off anywhere; 12 characters fold to few enough bytes, unless one is a sentence. */
        struct text_span all = {text.data ? text.data : "", text.size};
        if (all.size > 0 && draw(4) == 0) all.size -= draw(3) % all.size;
        check_fold(all, false);
        if (expected.size <= FOLD_RUN) check_fold(all, true);
    }
    buffer_free(&text);
}

/* A long word loses what finds no room, character by character. */
static void test_long_run(void **state) {
    struct fold_reader reader;
    struct fold_run run = {.size = 0};
    struct buffer text = {0};
    (void)state;
    for (int i = 0; i < FOLD_RUN - 1; i++) buffer_append_string(&text, "A");
    buffer_append_string(&text, "\u042F\u044FZ\u00DF_ end");
    fold_reader_open(&reader, (struct text_span){text.data, text.size});
    fold_reader_next(&reader);
    fold_reader_run(&reader, &run);
    assert_int_equal(run.size, FOLD_RUN);
    assert_int_equal(run.bytes[FOLD_RUN - 2], 'a');
    assert_int_equal(run.bytes[FOLD_RUN - 1], 'z');
    assert_true(run.joined);
    assert_int_equal(reader.place, FOLD_BETWEEN);
    fold_reader_close(&reader);
    buffer_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_character),
                                       cmocka_unit_test(test_random_texts),
                                       cmocka_unit_test(test_long_run)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    stretch_free(&stretch);
    mapped_free(&expected);
    buffer_free(&folded);
    return failed;
}
