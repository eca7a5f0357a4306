/* tests/unit/test_chunk_words.c: the words that chunks are found by: their own, then those of the
 * title and of the headings over them. */
#include <string.h>

#include "retrieval/words/chunk_words.h"
#include "tests/folder.h"

static const char text[] = "Intro.\nLocks\nTwo keys.\nDoors\nOak.\nBells\nBrass.";

static uint32_t at(const char *part) { return (uint32_t)(strstr(text, part) - text); }

static void expect_words(struct chunk_words_reader *reader, int chunk, const char *expected) {
    struct text_span words = chunk_words_read(reader, chunk);
    if (!span_equals(words, (struct text_span){expected, strlen(expected)}))
        fail_msg("\"%.*s\" where \"%s\" was expected", (int)words.size, words.text, expected);
}

/* A chunk has the headings that it begins with once, as its own text. */
static void test_headings(void **state) {
    struct buffer marks = {0};
    const struct chunk_range chunks[] = {{0, at("Locks"), 0, 1},
                                         {at("Locks"), at("Doors"), 1, 1},
                                         {at("Oak"), at("Bells"), 2, 1},
                                         {at("Brass"), (uint32_t)strlen(text), 3, 1}};
    (void)state;
    marks_add(&marks, MARK_HEADING, 1, at("Locks"), 5);
    marks_add(&marks, MARK_HEADING, 2, at("Doors"), 5);
    marks_add(&marks, MARK_HEADING, 1, at("Bells"), 5);
    struct collection_document document = {
        .path = "house/manual.txt",
        .title = "The house",
        .text = {text, strlen(text)},
        .marks = {marks.data, (uint32_t)(marks.size / sizeof(struct mark))},
        .chunks = chunks,
        .n_chunks = 4};
    struct chunk_words_reader reader = {.document = &document};
    expect_words(&reader, 0, "Intro.\n\nThe house");
    expect_words(&reader, 1, "Locks\nTwo keys.\n\nThe house");
    expect_words(&reader, 2, "Oak.\n\nThe house\nLocks\nDoors");
    expect_words(&reader, 3, "Brass.\nThe house\nBells");
    buffer_free(&reader.text);

    document.title = "";
    reader = (struct chunk_words_reader){.document = &document};
    expect_words(&reader, 0, "Intro.\n\nmanual.txt");
    buffer_free(&reader.text);
    buffer_free(&marks);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_headings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
