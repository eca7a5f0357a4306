/* tests/fuzz/fuzz_word_index.c: any bytes as the words of 40 chunks. Whatever is opened is read
 * within its bytes, and what is checked as whole has nothing that cannot be read. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/words/word_cursor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHUNKS = 40, MOST_POSITIONS = 4, MOST_STEPS = 100000 };

static struct word_cursor cursor;

/* False: damage was met. */
static bool read_list(const struct words *words, const struct word_list *list, int *left) {
    uint32_t positions[MOST_POSITIONS];
    word_cursor_open(&cursor, words, list);
    for (; cursor.chunk != WORD_END && *left > 0; (*left)--) {
        CHECK(cursor.chunk < CHUNKS);
        CHECK(word_cursor_positions(&cursor, positions, MOST_POSITIONS) > 0);
        if (*left % 2)
            word_cursor_next(&cursor);
        else
            word_cursor_seek(&cursor, cursor.chunk + 2);
    }
    return cursor.damage == NULL;
}

static bool read_all(const struct words *words) {
    struct words_walk walk;
    struct word_list list;
    struct error e = {0};
    bool sound = true;
    int left = MOST_STEPS;
    words_walk_open(&walk, words, (struct text_span){"", 0});
    while (left > 0 && words_walk_next(&walk)) {
        left--;
        sound = read_list(words, &walk.list, &left) && sound;
    }
    enum status status = words_find(words, (struct text_span){"one", 3}, &list, &e);
    CHECK(status == STATUS_OK || e.text[0] != '\0');
    return sound && walk.damage == NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct words *words;
    struct error e = {0};
    /* In memory of their own: a read behind the end is seen. */
    char *bytes = xmalloc(size > 0 ? size : 1);
    memcpy(bytes, data, size);
    enum status status = words_open(&words, (struct text_span){bytes, size}, CHUNKS, "words", &e);
    if (status == STATUS_OK) {
        bool sound = read_all(words);
        status = words_check(words, &e);
        CHECK(status != STATUS_OK || sound);
        words_free(words);
    }
    CHECK(status == STATUS_OK || e.text[0] != '\0');
    free(bytes);
    return 0;
}
