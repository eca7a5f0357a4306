/* tools/eval/support_plant.c: see support_plant.h. */
#include "tools/eval/support_plant.h"

#include <ctype.h>
#include <stdlib.h>

#include "config/base/memory.h"

/* Words. */

static bool is_word_byte(char c) { return isalnum((unsigned char)c) || c == '_' || (c & 0x80); }

/* The word of blanks' making from byte *at on, without marks around it; false: there is none. */
static bool next_word(struct text_span text, size_t *at, struct text_span *word) {
    static const char before[] = "([{\"'`", behind[] = ".,;:!?]}\"'`";
    while (*at < text.size && is_blank(text.text[*at])) ++*at;
    size_t begin = *at, end = begin;
    while (end < text.size && !is_blank(text.text[end])) end++;
    *at = end;
    if (begin == end) return false;
    while (begin < end && strchr(before, text.text[begin])) begin++;
    while (end > begin && strchr(behind, text.text[end - 1])) end--;
    *word = (struct text_span){text.text + begin, end - begin};
    return true;
}

static int count_words(struct text_span text) {
    struct text_span word;
    size_t at = 0;
    int n = 0;
    while (next_word(text, &at, &word)) n++;
    return n;
}

/* True sentences. */

bool plant_true(struct text_span text, bool cut, size_t *at, struct text_span *out) {
    struct sentence sentence;
    while (sentence_next(text, at, &sentence)) {
        bool whole = !cut || (sentence.begin > 0 && sentence.end < text.size);
        *out = (struct text_span){text.text + sentence.begin, sentence.end - sentence.begin};
        if (whole && count_words(*out) >= QUOTED_WORDS) return true;
    }
    return false;
}

/* False sentences. */

bool plant_numbers(struct text_span sentence, struct buffer *out) {
    bool changed = false;
    for (size_t i = 0; i < sentence.size; i++) {
        char c = sentence.text[i];
        if (is_digit(c)) c = (char)('0' + (c - '0' + 1 + (int)(i % 8)) % 10);
        changed = changed || is_digit(c);
        buffer_append(out, &c, 1);
    }
    return changed;
}

static bool is_name(struct text_span text, struct text_span word) {
    int capitals = 0, others = 0;
    if (word.size < 2) return false;
    if (word.text[0] == '-') return isalpha((unsigned char)word.text[word.size - 1]) != 0;
    for (size_t i = 0; i < word.size; i++) {
        capitals += isupper((unsigned char)word.text[i]) != 0;
        others += word.text[i] == '_' || word.text[i] == '(';
    }
    return others > 0 || capitals > 1 || (capitals == 1 && word.text > text.text + 1);
}

/* The first name of the text that `without` has not. */
static bool find_name(struct text_span text, struct text_span without, struct text_span *name) {
    size_t at = 0;
    while (next_word(text, &at, name)) {
        bool is_new =
            without.size == 0 || memmem(without.text, without.size, name->text, name->size) == NULL;
        if (is_name(text, *name) && is_new) return true;
    }
    return false;
}

bool plant_name(struct text_span sentence, struct text_span other, struct buffer *out) {
    struct text_span name, put;
    if (!find_name(sentence, (struct text_span){0}, &name) || !find_name(other, sentence, &put))
        return false;
    size_t before = (size_t)(name.text - sentence.text), behind = before + name.size;
    buffer_append(out, sentence.text, before);
    buffer_append(out, put.text, put.size);
    buffer_append(out, sentence.text + behind, sentence.size - behind);
    return true;
}

/* Quotes. */

/* Letters and digits in lower case, a blank before, between and behind words. */
static void append_folded(struct text_span text, struct buffer *out) {
    buffer_append(out, " ", 1);
    for (size_t i = 0; i < text.size; i++) {
        char c = (char)tolower((unsigned char)text.text[i]);
        if (is_word_byte(c))
            buffer_append(out, &c, 1);
        else if (out->data[out->size - 1] != ' ')
            buffer_append(out, " ", 1);
    }
    if (out->data[out->size - 1] != ' ') buffer_append(out, " ", 1);
}

/* The end of n words of a folded text behind the blank at `at`, their last blank included; 0: there
 * are fewer. */
static size_t words_end(const struct buffer *folded, size_t at, int n) {
    for (; n > 0 && at + 1 < folded->size; n--) {
        at++;
        while (folded->data[at] != ' ') at++;
    }
    return n == 0 ? at + 1 : 0;
}

bool plant_quotes(struct text_span sentence, struct text_span text) {
    struct buffer said = {0}, read = {0};
    append_folded(sentence, &said);
    append_folded(text, &read);
    int n = 0;
    for (size_t i = 1; i < said.size; i++) n += said.data[i] == ' ';
    if (n > QUOTED_WORDS) n = QUOTED_WORDS;
    bool found = false;
    for (size_t at = 0, end; n > 0 && !found && (end = words_end(&said, at, n)) > 0;) {
        found = memmem(read.data, read.size, said.data + at, end - at) != NULL;
        at = words_end(&said, at, 1) - 1;
    }
    buffer_free(&said);
    buffer_free(&read);
    return found;
}
