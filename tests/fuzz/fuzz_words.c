/* tests/fuzz/fuzz_words.c: any bytes as a text whose words are wanted: folded by tables, character
 * by character or in runs, it is what utf8proc folds it to. And as a query with operators. */
#include <string.h>

#include "config/text/unicode_fold.h"
#include "retrieval/words/word_demands.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The reader's next characters have to be the next of the folded text. */
static void expect(const struct mapped_buffer *folded, size_t *at, const char *bytes, size_t size) {
    CHECK(size <= folded->size - *at && memcmp(folded->text + *at, bytes, size) == 0);
    *at += size;
}

static void check_reader(struct text_span text, const struct mapped_buffer *folded, bool runs) {
    struct fold_reader reader;
    size_t at = 0;
    fold_reader_open(&reader, text);
    for (fold_reader_next(&reader); reader.place != FOLD_END;) {
        struct fold_run run = {.size = 0};
        if (runs && reader.place == FOLD_WITHIN) {
            fold_reader_run(&reader, &run);
            expect(folded, &at, run.bytes, run.size);
        } else {
            expect(folded, &at, reader.bytes, reader.length);
            fold_reader_next(&reader);
        }
    }
    CHECK(at == folded->size);
    fold_reader_close(&reader);
}

/* The text as a query with operators, asked of itself. */
static void check_demands(struct text_span text) {
    struct word_demands *demands;
    struct error e = {0};
    if (word_demands_parse(&demands, text, &e)) {
        CHECK(e.status == STATUS_INVALID && e.text[0] != '\0');
        return;
    }
    struct buffer lines = {0};
    bool excludes = false;
    for (int i = 0; i < demands->n; i++) excludes = excludes || demands->list[i].without;
    /* Excluded words stand in the text of the query. */
    CHECK(!excludes || !word_demands_allow(demands, text));
    word_demands_describe(demands, &lines);
    buffer_free(&lines);
    word_demands_free(demands);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { MOST_WORDS = 64 };
    struct text_span text = {(const char *)data, size};
    struct stretch stretch = {0};
    struct mapped_buffer folded = {0};
    struct word_text words[MOST_WORDS];
    unicode_fold(&stretch, text, &folded);
    check_reader(text, &folded, false);
    /* No run is longer than what is kept of it. */
    if (folded.size <= FOLD_RUN) check_reader(text, &folded, true);
    CHECK(words_split(text, words, MOST_WORDS) <= MOST_WORDS);
    check_demands(text);
    stretch_free(&stretch);
    mapped_free(&folded);
    return 0;
}
