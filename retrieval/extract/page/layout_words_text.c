/* retrieval/extract/page/layout_words_text.c: the words of a line as text: ligatures spelt out,
 * divided words joined, marks of notes set apart. See layout_private.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "config/base/utf8.h"
#include "retrieval/extract/page/layout_private.h"

/* Characters. */

/* The text in place of a character; NULL: itself. */
static const char *replacement(int32_t c) {
    static const char *const ligatures[] = {"ff", "fi", "fl", "ffi", "ffl", "st", "st"};
    if (c >= 0xfb00 && c <= 0xfb06) return ligatures[c - 0xfb00];
    if (c == 0xf0b7 || c == 0xf0a7) return "•"; /* of the fonts Symbol and Wingdings */
    bool is_nothing = c < 0x20 || c == 0x7f || c == 0xad || c == 0x200b || c == 0x200c ||
                      c == 0x2060 || c == 0xfeff;
    return is_nothing ? "" : NULL;
}

static void append_text(struct buffer *out, struct text_span text) {
    for (size_t at = 0; at < text.size;) {
        int32_t c;
        int n = utf8_read(text.text + at, text.size - at, &c);
        const char *other = c >= 0 ? replacement(c) : "\xef\xbf\xbd";
        if (other)
            buffer_append_string(out, other);
        else
            buffer_append(out, text.text + at, (size_t)n);
        at += (size_t)n;
    }
}

/* "2" as "²": no mark of a note, but a power or a unit. */
static void append_raised(struct buffer *out, struct text_span text) {
    static const char *const digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    for (size_t i = 0; i < text.size; i++) {
        char c = text.text[i];
        if (is_digit(c))
            buffer_append_string(out, digits[c - '0']);
        else if (c == '-')
            buffer_append_string(out, "⁻");
        else
            buffer_append(out, &c, 1);
    }
}

/* Words that are divided. */

/* Bytes of the hyphen at the end of a word; *soft: it stands there for the division alone. */
static size_t hyphen_size(struct text_span text, bool *soft) {
    *soft = span_ends_with(text, "\xc2\xad");
    if (*soft) return 2;
    if (span_ends_with(text, "-")) return 1;
    return span_ends_with(text, "‐") ? 3 : 0;
}

/* First parts of compounds, which are seldom written as one word. */
static bool begins_compound(struct text_span stem) {
    static const char *const parts[] = {"well", "self",  "high", "low",  "long",  "short", "half",
                                        "all",  "ex",    "full", "hard", "much",  "so",    "cross",
                                        "two",  "three", "four", "five", "first", "second"};
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        if (span_is(stem, parts[i])) return true;
    return memchr(stem.text, '-', stem.size) != NULL;
}

static bool is_small(struct text_span text) {
    int32_t c;
    if (text.size == 0) return false;
    utf8_read(text.text, text.size, &c);
    bool accented = (c >= 0xdf && c <= 0xff) || (c > 0xff && c < 0x180 && c % 2 == 1) ||
                    (c >= 0xfb00 && c <= 0xfb06);
    return (c >= 'a' && c <= 'z') || accented;
}

/* "long- and short-term" */
static bool is_conjunction(struct text_span text) {
    static const char *const words[] = {"and", "or", "und", "oder", "bis", "et", "ou", "i", "lub"};
    for (size_t i = 0; i < ARRAY_COUNT(words); i++)
        if (span_is(text, words[i])) return true;
    return false;
}

enum division { DIVISION_BLANK, DIVISION_JOIN, DIVISION_HYPHEN };

/* The end of a line, before the word `next`. */
static enum division judge_division(const struct document_words *vocabulary, struct text_span last,
                                    struct text_span next) {
    char joined[256];
    bool soft;
    size_t hyphen = hyphen_size(last, &soft);
    if (span_ends_with(last, "—") && last.size > 3) return DIVISION_HYPHEN;
    if (hyphen == 0 || last.size == hyphen || is_conjunction(next)) return DIVISION_BLANK;
    if (soft) return DIVISION_JOIN;
    struct text_span stem = {last.text, last.size - hyphen};
    if (is_digit(stem.text[stem.size - 1]) || !is_small(next)) return DIVISION_HYPHEN;
    if (stem.size + next.size + 1 > sizeof joined) return DIVISION_JOIN;
    memcpy(joined, stem.text, stem.size);
    memcpy(joined + stem.size, next.text, next.size);
    if (vocabulary_has(vocabulary, (struct text_span){joined, stem.size + next.size}))
        return DIVISION_JOIN;
    joined[stem.size] = '-';
    memcpy(joined + stem.size + 1, next.text, next.size);
    if (vocabulary_has(vocabulary, (struct text_span){joined, stem.size + 1 + next.size}))
        return DIVISION_HYPHEN;
    return begins_compound(stem) ? DIVISION_HYPHEN : DIVISION_JOIN;
}

/* A raised word that is the mark of a note: digits, a star, a dagger. */
static bool is_note_mark(struct text_span text) {
    if (span_is(text, "*") || span_is(text, "**") || span_is(text, "†") || span_is(text, "‡"))
        return true;
    size_t digits = 0;
    while (digits < text.size && is_digit(text.text[digits])) digits++;
    return digits > 0 && digits == text.size && digits < 4;
}

static struct page_rect box_of(const struct layout_word *words, int n) {
    struct page_rect box = words[0].shown;
    bool has_plain = false;
    for (int i = 0; i < n; i++) {
        if (words[i].raised) continue;
        if (!has_plain) box = words[i].shown;
        has_plain = true;
        rect_extend(&box, &words[i].shown);
    }
    return box;
}

/* How many words one box holds: all of a line that is level as it is shown, else as many as do not
 * make it much higher than a word. */
static int count_boxed(const struct layout_word *words, int n) {
    const float highest = 1.6F;
    struct page_rect box = words[0].shown;
    float word = rect_height(&box);
    if (!words[0].askew) return n;
    for (int i = 1; i < n; i++) {
        word = fmaxf(word, rect_height(&words[i].shown));
        rect_extend(&box, &words[i].shown);
        if (rect_height(&box) > highest * word) return i;
    }
    return n;
}

bool layout_write_words(const struct text_sink *sink, const struct layout_word *words, int n,
                        const struct layout_word *next) {
    enum division division = DIVISION_BLANK;
    struct page_rect box = {0};
    int boxed = 0; /* words up to here have a box */
    bool soft, first = true;
    for (int i = 0; i < n; i++) {
        const struct layout_word *word = &words[i];
        struct text_span text = word->text;
        bool is_note = word->raised && is_note_mark(text);
        if (is_note && sink->drops_raised) continue;
        bool begins = i >= boxed;
        if (begins && !first)
            marks_add(sink->marks, MARK_BOX_END, 0, sink->text->size,
                      mark_point(box.right, box.bottom));
        if (!first && !word->glued) buffer_append(sink->text, " ", 1);
        first = false;
        if (begins) boxed = i + count_boxed(word, n - i);
        if (begins) box = box_of(word, boxed - i);
        if (begins)
            marks_add(sink->marks, MARK_BOX, 0, sink->text->size, mark_point(box.left, box.top));
        if (i == n - 1 && next) division = judge_division(sink->vocabulary, text, next->text);
        if (division == DIVISION_JOIN) text.size -= hyphen_size(text, &soft);
        marks_add(sink->marks, MARK_BOX_WORD, 0, sink->text->size,
                  mark_point(word->shown.left, word->shown.right));
        if (is_note && i > 0)
            append_raised(sink->text, text);
        else
            append_text(sink->text, text);
    }
    if (!first)
        marks_add(sink->marks, MARK_BOX_END, 0, sink->text->size,
                  mark_point(box.right, box.bottom));
    return division == DIVISION_BLANK;
}

void layout_fill_cell(struct page_layout *layout, struct table *table, struct layout_word *words,
                      int n) {
    struct text_sink sink = {
        .text = &table->text, .marks = &table->marks, .vocabulary = &layout->vocabulary};
    int *row_of = xcalloc((size_t)n + 1, sizeof *row_of);
    layout_gather_rows(words, n, row_of);
    for (int first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && row_of[end] == row_of[first]; end++) continue;
        const struct layout_word *next = end < n ? &words[end] : NULL;
        bool blank = layout_write_words(&sink, words + first, end - first, next);
        if (next && blank) buffer_append(sink.text, " ", 1);
    }
    free(row_of);
}
