/* tests/fuzz/fuzz_sentences.c: any bytes as a text: its sentences stand one behind the other, leave
 * nothing but blanks, and both ends of each are the borders of one. */
#include "config/text/sentences.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_blanks(struct text_span text, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++) CHECK(is_blank(text.text[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct text_span text = {(const char *)data, size};
    struct sentence sentence;
    size_t at = 0, before = 0;
    while (sentence_next(text, &at, &sentence)) {
        CHECK(before <= sentence.begin && sentence.begin < sentence.end && sentence.end <= at);
        CHECK(at <= size && !is_blank(text.text[sentence.begin]));
        CHECK(!is_blank(text.text[sentence.end - 1]));
        check_blanks(text, before, sentence.begin);
        before = sentence.end;
    }
    check_blanks(text, before, size);
    for (size_t i = 0; i < size && i < 200; i++) (void)sentence_starts(text, i);
    return 0;
}
