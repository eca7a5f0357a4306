/* tests/unit/test_chunk_ends.c: chunks end with blocks and sentences: no row, item or line of code
 * is torn that fits into a chunk, a heading stands with what follows it, contents are in no chunk,
 * and whatever the text, chunks are in order and within it. Tokens are words here. */
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retrieval/chunk_ends.h"
#include "retrieval/extract/extract.h"
#include "tests/folder.h"

enum { MOST_TOKENS = 4096 };

/* A text with a token for each word, which has the blanks before it. */
struct worded {
    struct text_span text;
    struct buffer marks;
    uint32_t starts[MOST_TOKENS];
    int n;
};

static void find_words(struct worded *w, struct text_span text) {
    size_t at = 0;
    w->text = text;
    w->n = 0;
    while (at < text.size && w->n < MOST_TOKENS) {
        w->starts[w->n] = (uint32_t)at;
        w->n++;
        while (at < text.size && is_blank(text.text[at])) at++;
        while (at < text.size && !is_blank(text.text[at])) at++;
    }
}

static void read_text(struct worded *w, enum document_kind kind, const char *text) {
    *w = (struct worded){0};
    find_words(w, (struct text_span){text, strlen(text)});
    document_mark(kind, w->text, &w->marks);
}

static int cut(const struct worded *w, int length, struct chunk_range *chunks) {
    struct chunk_source source = {w->text, marks_of(&w->marks), w->starts, w->n};
    struct buffer ranges = {0};
    int n = chunks_cut(&source, CHUNKS_TEXT, length, &ranges);
    memcpy(chunks, ranges.data, ranges.size);
    buffer_free(&ranges);
    struct collection_document document = {
        .text = w->text, .n = w->n, .chunks = chunks, .n_chunks = n};
    assert_null(document_chunks_fault(&document, CHUNKS_TEXT, length));
    return n;
}

/* The words of each chunk begin and end as expected; NULL behind the last. */
struct expected_chunk {
    const char *begin, *end;
};

static void expect_chunks(enum document_kind kind, const char *text, int length,
                          const struct expected_chunk *expected) {
    struct worded w;
    struct chunk_range chunks[MOST_TOKENS];
    read_text(&w, kind, text);
    int n = cut(&w, length, chunks);
    for (int i = 0; i < n; i++) {
        struct text_span part = {text + chunks[i].start, chunks[i].end - chunks[i].start};
        while (part.size > 0 && is_blank(part.text[0])) part.text++, part.size--;
        while (part.size > 0 && is_blank(part.text[part.size - 1])) part.size--;
        if (expected[i].begin == NULL || !span_starts_with(part, expected[i].begin) ||
            !span_ends_with(part, expected[i].end))
            fail_msg("chunk %d is \"%.*s\"", i, (int)part.size, part.text);
    }
    assert_null(expected[n].begin);
    buffer_free(&w.marks);
}

static void test_sentences(void **state) {
    (void)state;
    expect_chunks(DOCUMENT_TEXT,
                  "One two three four. Five six seven eight. Nine ten eleven.\n\nA second "
                  "paragraph stands here. It ends.\n",
                  8,
                  (struct expected_chunk[]){
                      {"One", "eight."}, {"Nine", "here."}, {"It", "ends."}, {NULL, NULL}});
    /* A sentence that is longer than a chunk ends at words. */
    expect_chunks(DOCUMENT_TEXT, "one two three four five six seven", 3,
                  (struct expected_chunk[]){
                      {"one", "three"}, {"four", "six"}, {"seven", "seven"}, {NULL, NULL}});
}

static void test_rows(void **state) {
    (void)state;
    static const char table[] =
        "| boat | day | week |\n|---|---|---|\n| Kayak | 180 | 290 |\n"
        "| Tern 1 | 200 | 310 |\n| Heron | 90 | 120 |\n";
    expect_chunks(
        DOCUMENT_MARKDOWN, table, 16,
        (struct expected_chunk[]){{"| boat", "290 |"}, {"| Tern", "120 |"}, {NULL, NULL}});
    /* A head never stands alone where a row fits beside it. */
    expect_chunks(
        DOCUMENT_MARKDOWN, table, 20,
        (struct expected_chunk[]){{"| boat", "290 |"}, {"| Tern", "120 |"}, {NULL, NULL}});
}

static void test_items_and_code(void **state) {
    (void)state;
    expect_chunks(
        DOCUMENT_MARKDOWN,
        "- take one. Then two.\n- stir them well now\n- rest it\n\n```\nint a = 1;\nint "
        "b = 2;\n```\n",
        8,
        (struct expected_chunk[]){
            {"- take", "two."}, {"- stir", "it"}, {"```", "1;"}, {"int b", "```"}, {NULL, NULL}});
}

static void test_headings(void **state) {
    (void)state;
    static const char text[] =
        "# Boats\n\nAll of our boats are safe and clean.\n\n## Kayaks\n\n"
        "A kayak is small. It costs little to rent.\n";
    expect_chunks(
        DOCUMENT_MARKDOWN, text, 12,
        (struct expected_chunk[]){{"# Boats", "clean."}, {"## Kayaks", "rent."}, {NULL, NULL}});
    expect_chunks(
        DOCUMENT_RST,
        "Boats\n=====\n\nAll of our boats are safe and clean.\n\nKayaks\n------\n\nA kayak "
        "is small. It costs little.\n",
        12, (struct expected_chunk[]){{"Boats", "clean."}, {"Kayaks", "little."}, {NULL, NULL}});
}

static void test_contents(void **state) {
    (void)state;
    static const char text[] = "Boats are here. 1 Kayaks .... 3 2 Canoes .... 9 Kayaks are small.";
    struct worded w = {0};
    struct chunk_range chunks[8];
    find_words(&w, (struct text_span){text, sizeof text - 1});
    marks_add_block(&w.marks, BLOCK_PARAGRAPH, 0);
    marks_add_block(&w.marks, BLOCK_CONTENTS, 16);
    marks_add_block(&w.marks, BLOCK_PARAGRAPH, 48);
    assert_int_equal(cut(&w, 8, chunks), 2);
    assert_int_equal(chunks[0].end, 15);
    assert_memory_equal(text + chunks[1].start, " Kayaks are small.", 18);
    /* A document of contents alone is found by them. */
    buffer_clear(&w.marks);
    marks_add_block(&w.marks, BLOCK_CONTENTS, 0);
    assert_true(cut(&w, 8, chunks) > 0);
    buffer_free(&w.marks);
}

static void test_grid(void **state) {
    (void)state;
    struct worded w;
    struct buffer ranges = {0};
    read_text(&w, DOCUMENT_TEXT, "a b. c d e f. g");
    struct chunk_source source = {w.text, marks_of(&w.marks), w.starts, w.n};
    assert_int_equal(chunks_cut(&source, CHUNKS_GRID, 3, &ranges), 3);
    struct collection_document document = {
        .text = w.text,
        .n = w.n,
        .chunks = (const struct chunk_range *)(const void *)ranges.data,
        .n_chunks = 3};
    assert_null(document_chunks_fault(&document, CHUNKS_GRID, 3));
    assert_non_null(document_chunks_fault(&document, CHUNKS_GRID, 4));
    buffer_free(&ranges);
    buffer_free(&w.marks);
}

/* Whatever the text and its marks: chunks follow each other, and none is torn in a row that fits.
 */
static void test_random(void **state) {
    (void)state;
    static const char *const pieces[] = {"word ", "end. ", "\n",  "\n\n",  "# Head\n", "- item ",
                                         "| a |", "---",   "```", "    ",  "====\n",   "12. ",
                                         "\n| ",  "x",     "\t",  "\u00e9"};
    struct chunk_range *chunks = malloc(MOST_TOKENS * sizeof *chunks);
    uint32_t seed = 7;
    for (int round = 0; round < 400; round++) {
        struct buffer text = {0};
        struct worded w;
        for (int i = 0; i < 200; i++) {
            seed = seed * 1664525U + 1013904223U;
            buffer_append_string(&text, pieces[(seed >> 16) % ARRAY_COUNT(pieces)]);
        }
        read_text(&w, round % 2 ? DOCUMENT_MARKDOWN : DOCUMENT_RST, text.data);
        assert_null(marks_fault(marks_of(&w.marks), w.text.size));
        cut(&w, 1 + round % 20, chunks);
        buffer_free(&w.marks);
        buffer_free(&text);
    }
    free(chunks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sentences),      cmocka_unit_test(test_rows),
        cmocka_unit_test(test_items_and_code), cmocka_unit_test(test_headings),
        cmocka_unit_test(test_contents),       cmocka_unit_test(test_grid),
        cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
