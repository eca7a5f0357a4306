/* retro/grammar/expr_chars.c: code points as bytes of UTF-8. A range is cut where the length of its
 * characters changes, and then where the leading bytes do, until each piece is one set of bytes
 * behind another. */
#include <stdlib.h>

#include "retro/grammar/expr.h"

static const struct char_range by_length[] = {
    {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};

static int char_length(int32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

/* Byte i of n of the character. */
static int char_byte(int32_t c, int i, int n) {
    static const int heads[] = {0, 0, 0xC0, 0xE0, 0xF0};
    int shift = 6 * (n - 1 - i);
    return i == 0 ? heads[n] | c >> shift : 0x80 | (c >> shift & 0x3F);
}

static int byte_range(struct grammar_draft *draft, int first, int last) {
    struct symbol_set set = {{0}};
    for (int b = first; b <= last; b++) symbol_set_add(&set, b);
    return expr_set(draft, &set);
}

/* Bytes i and after of the characters first .. last, which have n bytes, and those before i in
 * common. */
static int tail_of(struct grammar_draft *draft, int32_t first, int32_t last, int i, int n) {
    int from = char_byte(first, i, n), to = char_byte(last, i, n);
    int32_t below = ((int32_t)1 << (6 * (n - 1 - i))) - 1; /* what the bytes after i tell apart */
    struct expr_list pieces = {0};
    if (i == n - 1) return byte_range(draft, from, to);
    if (from == to)
        return EXPR_SEQUENCE_OF(draft, byte_range(draft, from, to),
                                tail_of(draft, first, last, i + 1, n));

    if ((first & below) != 0) {
        expr_list_add(&pieces, EXPR_SEQUENCE_OF(draft, byte_range(draft, from, from),
                                                tail_of(draft, first, first | below, i + 1, n)));
        from++;
    }
    bool cut = (last & below) != below;
    int whole = cut ? to - 1 : to;
    if (from <= whole)
        expr_list_add(&pieces,
                      EXPR_SEQUENCE_OF(draft, byte_range(draft, from, whole),
                                       tail_of(draft, last & ~below, last | below, i + 1, n)));
    if (cut)
        expr_list_add(&pieces, EXPR_SEQUENCE_OF(draft, byte_range(draft, to, to),
                                                tail_of(draft, last & ~below, last, i + 1, n)));
    int all = expr_either(draft, pieces.items, pieces.n);
    free(pieces.items);
    return all;
}

int expr_chars(struct grammar_draft *draft, const struct char_range *ranges, int n) {
    struct symbol_set ascii = {{0}};
    struct expr_list pieces = {0};
    for (int i = 0; i < n; i++) {
        for (int32_t c = ranges[i].first; c <= ranges[i].last && c < 0x80; c++)
            symbol_set_add(&ascii, (int)c);
        for (size_t k = 1; k < ARRAY_COUNT(by_length); k++) {
            int32_t first = ranges[i].first, last = ranges[i].last;
            if (first < by_length[k].first) first = by_length[k].first;
            if (last > by_length[k].last) last = by_length[k].last;
            if (first <= last)
                expr_list_add(&pieces, tail_of(draft, first, last, 0, char_length(first)));
        }
    }
    expr_list_add(&pieces, expr_set(draft, &ascii));
    int all = expr_either(draft, pieces.items, pieces.n);
    free(pieces.items);
    return all;
}

/* Runs of the first character end in one that is neither, or with the text. */
int expr_text_without(struct grammar_draft *draft, char first, char second) {
    int32_t low = first < second ? first : second, high = first < second ? second : first;
    const struct char_range other[] = {{1, first - 1}, {first + 1, 0x10FFFF}},
                            behind[] = {{1, low - 1}, {low + 1, high - 1}, {high + 1, 0x10FFFF}};
    int begin = expr_chars(draft, (struct char_range[]){{first, first}}, 1);
    int run = EXPR_SEQUENCE_OF(draft, expr_repeat(draft, begin, 1, -1),
                               expr_chars(draft, behind, ARRAY_COUNT(behind)));
    int unit = EXPR_EITHER_OF(draft, expr_chars(draft, other, ARRAY_COUNT(other)), run);
    return EXPR_SEQUENCE_OF(draft, expr_repeat(draft, unit, 0, -1),
                            expr_repeat(draft, begin, 0, -1));
}
