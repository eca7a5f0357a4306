/* retro/grammar/schema_bounds.c: decimals between two bounds. Digits are compared from the left, at
 * each length of the part before the point: as long as a number has the digits of a bound, the next
 * digit is bounded too; after that, every digit may follow. */
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

static int digit_range(struct grammar_draft *draft, int first, int last) {
    struct symbol_set set = {{0}};
    for (int i = first; i <= last; i++) symbol_set_add(&set, '0' + i);
    return expr_set(draft, &set);
}

static int any_digits(struct grammar_draft *draft, int min, int max) {
    return expr_repeat(draft, digit_range(draft, 0, 9), min, max);
}

static int digit_at(const struct bound_digits *digits, int i) {
    return i < digits->n ? digits->digits[i] - '0' : 0;
}

static bool rest_is_zero(const struct bound_digits *digits, int i) {
    for (; i < digits->n; i++)
        if (digits->digits[i] != '0') return false;
    return true;
}

/* Whether a number may end behind i digits that are those of the bounds that are still close. */
static bool may_end(const struct range_search *search, int i, bool close_low, bool close_high) {
    if (i < search->before) return false;
    if (close_low && (!rest_is_zero(search->low, i) || search->low->excluded)) return false;
    return !close_high || !rest_is_zero(search->high, i) || !search->high->excluded;
}

static int digits_from(const struct range_search *search, int i, bool close_low, bool close_high);

/* All that may follow digit i - 1, where no bound is close. */
static int free_rest(const struct range_search *search, int i) {
    struct grammar_draft *draft = search->d;
    int fraction = EXPR_EMPTY;
    if (i > search->before) return any_digits(draft, 0, -1);
    if (search->fractions)
        fraction = expr_repeat(
            draft, EXPR_SEQUENCE_OF(draft, expr_word(draft, "."), any_digits(draft, 1, -1)), 0, 1);
    return EXPR_SEQUENCE_OF(draft, any_digits(draft, search->before - i, search->before - i),
                            fraction);
}

/* Digit i and what follows. */
static int digit_and_rest(const struct range_search *search, int i, bool close_low,
                          bool close_high) {
    struct grammar_draft *draft = search->d;
    int low = close_low ? digit_at(search->low, i) : 0,
        high = close_high ? digit_at(search->high, i) : 9;
    struct expr_list all = {0};
    if (i == 0 && search->before > 1) low = max_int(low, 1);
    for (int digit = low; digit <= high;) {
        bool at_low = close_low && digit == digit_at(search->low, i),
             at_high = close_high && digit == digit_at(search->high, i);
        int last = at_low || at_high                                 ? digit
                   : close_high && high == digit_at(search->high, i) ? high - 1
                                                                     : high;
        int rest = at_low || at_high ? digits_from(search, i + 1, at_low, at_high)
                                     : free_rest(search, i + 1);
        expr_list_add(&all, EXPR_SEQUENCE_OF(draft, digit_range(draft, digit, last), rest));
        digit = last + 1;
    }
    int expr = expr_either(draft, all.items, all.n);
    free(all.items);
    return expr;
}

/* All digits of the bounds are there: a number may only grow by zeros, or by anything behind a low
 * bound. */
static int beyond_digits(const struct range_search *search, bool close_low, bool close_high) {
    struct grammar_draft *draft = search->d;
    int zeros = expr_repeat(draft, expr_word(draft, "0"), 0, -1);
    if (close_high)
        return search->high->excluded || (close_low && search->low->excluded) ? EXPR_NOTHING
                                                                              : zeros;
    if (close_low && search->low->excluded)
        return EXPR_SEQUENCE_OF(draft, zeros, digit_range(draft, 1, 9), any_digits(draft, 0, -1));
    return any_digits(draft, 0, -1);
}

static int digits_from(const struct range_search *search, int i, bool close_low, bool close_high) {
    struct grammar_draft *draft = search->d;
    int known = search->before,
        end = may_end(search, i, close_low, close_high) ? EXPR_EMPTY : EXPR_NOTHING;
    if (close_low) known = max_int(known, search->low->n);
    if (close_high) known = max_int(known, search->high->n);
    if (i < search->before) return digit_and_rest(search, i, close_low, close_high);
    if (!search->fractions) return end;
    if (i > search->before && i >= known)
        return EXPR_EITHER_OF(draft, end, beyond_digits(search, close_low, close_high));
    if (i > search->before)
        return EXPR_EITHER_OF(draft, end, digit_and_rest(search, i, close_low, close_high));
    /* The point, and one digit at least. */
    return EXPR_EITHER_OF(draft, end,
                          EXPR_SEQUENCE_OF(draft, expr_word(draft, "."),
                                           digit_and_rest(search, i, close_low, close_high)));
}

static void read_digits(struct bound_digits *digits, const char *text, bool excluded) {
    const char *point = strchr(text, '.');
    *digits = (struct bound_digits){.excluded = excluded};
    for (; *text && digits->n < MOST_DIGITS - 1; text++) {
        if (text == point) digits->before = digits->n;
        if (*text < '0' || *text > '9') continue;
        digits->digits[digits->n] = *text;
        digits->n++;
    }
    if (point == NULL) digits->before = digits->n;
}

/* Numbers without sign; high NULL: without end. */
static int unsigned_range(struct grammar_draft *draft, const struct bound_digits *low,
                          const struct bound_digits *high, bool fractions) {
    struct expr_list all = {0};
    int longest = high ? high->before : low->before;
    for (int before = low->before; before <= longest; before++) {
        bool at_low = before == low->before, at_high = high && before == high->before;
        const struct range_search search = {draft, at_low ? low : NULL, at_high ? high : NULL,
                                            before, fractions};
        expr_list_add(&all, at_low || at_high ? digits_from(&search, 0, at_low, at_high)
                                              : EXPR_SEQUENCE_OF(draft, digit_range(draft, 1, 9),
                                                                 free_rest(&search, 1)));
    }
    if (high == NULL) {
        const struct range_search search = {draft, NULL, NULL, 1, fractions};
        int more = any_digits(draft, longest, -1);
        expr_list_add(
            &all, EXPR_SEQUENCE_OF(draft, digit_range(draft, 1, 9), more, free_rest(&search, 1)));
    }
    int expr = expr_either(draft, all.items, all.n);
    free(all.items);
    return expr;
}

static bool is_negative(const char *text) { return text[0] == '-'; }

static bool is_zero(const struct bound_digits *digits) { return rest_is_zero(digits, 0); }

int number_range(struct grammar_draft *draft, const struct number_bounds *bounds) {
    struct bound_digits low, high, zero;
    struct expr_list all = {0};
    bool below = bounds->low == NULL || is_negative(bounds->low),
         above = bounds->high == NULL || !is_negative(bounds->high);
    if (bounds->low) read_digits(&low, bounds->low, bounds->low_excluded);
    if (bounds->high) read_digits(&high, bounds->high, bounds->high_excluded);
    read_digits(&zero, "0", false);
    if (above)
        expr_list_add(&all, unsigned_range(draft, below ? &zero : &low, bounds->high ? &high : NULL,
                                           bounds->fractions));
    zero.excluded = true; /* -0 is no number of ours */
    if (!bounds->fractions) read_digits(&zero, "1", false);
    bool up_to_zero = bounds->high == NULL || !is_negative(bounds->high) || is_zero(&high);
    if (below)
        expr_list_add(
            &all, EXPR_SEQUENCE_OF(draft, expr_word(draft, "-"),
                                   unsigned_range(draft, up_to_zero ? &zero : &high,
                                                  bounds->low ? &low : NULL, bounds->fractions)));
    int expr = expr_either(draft, all.items, all.n);
    free(all.items);
    return expr;
}
