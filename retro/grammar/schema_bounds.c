/* retro/grammar/schema_bounds.c: decimals between two bounds. Digits are compared from the left, at each length of the
 * part before the point: as long as a number has the digits of a bound, the next digit is bounded too; after that,
 * every digit may follow. */
#include <stdlib.h>
#include <string.h>

#include "retro/grammar/schema_private.h"

enum { MOST_DIGITS = 80 };

/* The digits of one bound: `before` the point, and all after it. */
struct bound_digits {
    char digits[MOST_DIGITS];
    int before, n;
    bool excluded;
};

/* Numbers without sign of one length before the point. */
struct range_search {
    struct grammar_draft *d;
    const struct bound_digits *low, *high; /* NULL: no bound at this length */
    int before;
    bool fractions;
};

static int digit_range(struct grammar_draft *d, int first, int last) {
    struct symbol_set set = {{0}};
    for (int i = first; i <= last; i++) symbol_set_add(&set, '0' + i);
    return expr_set(d, &set);
}

static int any_digits(struct grammar_draft *d, int min, int max) {
    return expr_repeat(d, digit_range(d, 0, 9), min, max);
}

static int digit_at(const struct bound_digits *b, int i) { return i < b->n ? b->digits[i] - '0' : 0; }

static bool rest_is_zero(const struct bound_digits *b, int i) {
    for (; i < b->n; i++)
        if (b->digits[i] != '0') return false;
    return true;
}

/* Whether a number may end behind i digits that are those of the bounds that are still close. */
static bool may_end(const struct range_search *s, int i, bool close_low, bool close_high) {
    if (i < s->before) return false;
    if (close_low && (!rest_is_zero(s->low, i) || s->low->excluded)) return false;
    return !close_high || !rest_is_zero(s->high, i) || !s->high->excluded;
}

static int digits_from(const struct range_search *s, int i, bool close_low, bool close_high);

/* All that may follow digit i - 1, where no bound is close. */
static int free_rest(const struct range_search *s, int i) {
    struct grammar_draft *d = s->d;
    int fraction = EXPR_EMPTY;
    if (i > s->before) return any_digits(d, 0, -1);
    if (s->fractions) fraction = expr_repeat(d, EXPR_SEQUENCE_OF(d, expr_word(d, "."), any_digits(d, 1, -1)), 0, 1);
    return EXPR_SEQUENCE_OF(d, any_digits(d, s->before - i, s->before - i), fraction);
}

/* Digit i and what follows. */
static int digit_and_rest(const struct range_search *s, int i, bool close_low, bool close_high) {
    struct grammar_draft *d = s->d;
    int low = close_low ? digit_at(s->low, i) : 0, high = close_high ? digit_at(s->high, i) : 9;
    struct expr_list all = {0};
    if (i == 0 && s->before > 1) low = max_int(low, 1);
    for (int digit = low; digit <= high;) {
        bool at_low = close_low && digit == digit_at(s->low, i), at_high = close_high && digit == digit_at(s->high, i);
        int last = at_low || at_high ? digit : close_high && high == digit_at(s->high, i) ? high - 1 : high;
        int rest = at_low || at_high ? digits_from(s, i + 1, at_low, at_high) : free_rest(s, i + 1);
        expr_list_add(&all, EXPR_SEQUENCE_OF(d, digit_range(d, digit, last), rest));
        digit = last + 1;
    }
    int expr = expr_either(d, all.items, all.n);
    free(all.items);
    return expr;
}

/* All digits of the bounds are there: a number may only grow by zeros, or by anything behind a low bound. */
static int beyond_digits(const struct range_search *s, bool close_low, bool close_high) {
    struct grammar_draft *d = s->d;
    int zeros = expr_repeat(d, expr_word(d, "0"), 0, -1);
    if (close_high) return s->high->excluded || (close_low && s->low->excluded) ? EXPR_NOTHING : zeros;
    if (close_low && s->low->excluded) return EXPR_SEQUENCE_OF(d, zeros, digit_range(d, 1, 9), any_digits(d, 0, -1));
    return any_digits(d, 0, -1);
}

static int digits_from(const struct range_search *s, int i, bool close_low, bool close_high) {
    struct grammar_draft *d = s->d;
    int known = s->before, end = may_end(s, i, close_low, close_high) ? EXPR_EMPTY : EXPR_NOTHING;
    if (close_low) known = max_int(known, s->low->n);
    if (close_high) known = max_int(known, s->high->n);
    if (i < s->before) return digit_and_rest(s, i, close_low, close_high);
    if (!s->fractions) return end;
    if (i > s->before && i >= known) return EXPR_EITHER_OF(d, end, beyond_digits(s, close_low, close_high));
    if (i > s->before) return EXPR_EITHER_OF(d, end, digit_and_rest(s, i, close_low, close_high));
    /* The point, and one digit at least. */
    return EXPR_EITHER_OF(d, end, EXPR_SEQUENCE_OF(d, expr_word(d, "."), digit_and_rest(s, i, close_low, close_high)));
}

static void read_digits(struct bound_digits *b, const char *text, bool excluded) {
    const char *point = strchr(text, '.');
    *b = (struct bound_digits){.excluded = excluded};
    for (; *text && b->n < MOST_DIGITS - 1; text++) {
        if (text == point) b->before = b->n;
        if (*text < '0' || *text > '9') continue;
        b->digits[b->n] = *text;
        b->n++;
    }
    if (point == NULL) b->before = b->n;
}

/* Numbers without sign; high NULL: without end. */
static int unsigned_range(struct grammar_draft *d, const struct bound_digits *low, const struct bound_digits *high,
                          bool fractions) {
    struct expr_list all = {0};
    int longest = high ? high->before : low->before;
    for (int before = low->before; before <= longest; before++) {
        bool at_low = before == low->before, at_high = high && before == high->before;
        const struct range_search s = {d, at_low ? low : NULL, at_high ? high : NULL, before, fractions};
        expr_list_add(&all, at_low || at_high ? digits_from(&s, 0, at_low, at_high)
                                              : EXPR_SEQUENCE_OF(d, digit_range(d, 1, 9), free_rest(&s, 1)));
    }
    if (high == NULL) {
        const struct range_search s = {d, NULL, NULL, 1, fractions};
        int more = any_digits(d, longest, -1);
        expr_list_add(&all, EXPR_SEQUENCE_OF(d, digit_range(d, 1, 9), more, free_rest(&s, 1)));
    }
    int expr = expr_either(d, all.items, all.n);
    free(all.items);
    return expr;
}

static bool is_negative(const char *text) { return text[0] == '-'; }

static bool is_zero(const struct bound_digits *b) { return rest_is_zero(b, 0); }

int number_range(struct grammar_draft *d, const struct number_bounds *b) {
    struct bound_digits low, high, zero;
    struct expr_list all = {0};
    bool below = b->low == NULL || is_negative(b->low), above = b->high == NULL || !is_negative(b->high);
    if (b->low) read_digits(&low, b->low, b->low_excluded);
    if (b->high) read_digits(&high, b->high, b->high_excluded);
    read_digits(&zero, "0", false);
    if (above) expr_list_add(&all, unsigned_range(d, below ? &zero : &low, b->high ? &high : NULL, b->fractions));
    zero.excluded = true; /* -0 is no number of ours */
    if (!b->fractions) read_digits(&zero, "1", false);
    bool up_to_zero = b->high == NULL || !is_negative(b->high) || is_zero(&high);
    if (below)
        expr_list_add(
            &all, EXPR_SEQUENCE_OF(d, expr_word(d, "-"),
                                   unsigned_range(d, up_to_zero ? &zero : &high, b->low ? &low : NULL, b->fractions)));
    int expr = expr_either(d, all.items, all.n);
    free(all.items);
    return expr;
}
