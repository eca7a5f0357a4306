/* retro/grammar/char_ranges.c: see char_ranges.h. */
#include "retro/grammar/char_ranges.h"

#include <stdlib.h>

void char_ranges_add(struct char_ranges *r, int32_t first, int32_t last) {
    r->list = xgrow(r->list, r->n, &r->capacity, sizeof *r->list);
    r->list[r->n] = (struct char_range){first, last};
    r->n++;
}

static int compare_ranges(const void *x, const void *y) {
    const struct char_range *a = x, *b = y;
    return (a->first > b->first) - (a->first < b->first);
}

void char_ranges_sort(struct char_ranges *r) {
    int n = 0;
    if (r->n > 1) qsort(r->list, (size_t)r->n, sizeof *r->list, compare_ranges);
    for (int i = 0; i < r->n; i++) {
        struct char_range next = r->list[i];
        if (n > 0 && next.first <= r->list[n - 1].last + 1) {
            if (next.last > r->list[n - 1].last) r->list[n - 1].last = next.last;
            continue;
        }
        r->list[n] = next;
        n++;
    }
    r->n = n;
}

void char_ranges_negate(struct char_ranges *r) {
    struct char_ranges others = {0};
    int32_t next = 0;
    char_ranges_sort(r);
    for (int i = 0; i < r->n; i++) {
        if (next < r->list[i].first) char_ranges_add(&others, next, r->list[i].first - 1);
        next = r->list[i].last + 1;
    }
    if (next <= CHAR_LAST) char_ranges_add(&others, next, CHAR_LAST);
    free(r->list);
    *r = others;
}
