/* retro/grammar/char_ranges.c: see char_ranges.h. */
#include "retro/grammar/char_ranges.h"

#include <stdlib.h>

void char_ranges_add(struct char_ranges *ranges, int32_t first, int32_t last) {
    ranges->list = xgrow(ranges->list, ranges->n, &ranges->capacity, sizeof *ranges->list);
    ranges->list[ranges->n] = (struct char_range){first, last};
    ranges->n++;
}

static int compare_ranges(const void *x, const void *y) {
    const struct char_range *left = x, *right = y;
    return (left->first > right->first) - (left->first < right->first);
}

void char_ranges_sort(struct char_ranges *ranges) {
    int n = 0;
    if (ranges->n > 1) qsort(ranges->list, (size_t)ranges->n, sizeof *ranges->list, compare_ranges);
    for (int i = 0; i < ranges->n; i++) {
        struct char_range next = ranges->list[i];
        if (n > 0 && next.first <= ranges->list[n - 1].last + 1) {
            if (next.last > ranges->list[n - 1].last) ranges->list[n - 1].last = next.last;
            continue;
        }
        ranges->list[n] = next;
        n++;
    }
    ranges->n = n;
}

void char_ranges_negate(struct char_ranges *ranges) {
    struct char_ranges others = {0};
    int32_t next = 0;
    char_ranges_sort(ranges);
    for (int i = 0; i < ranges->n; i++) {
        if (next < ranges->list[i].first) char_ranges_add(&others, next, ranges->list[i].first - 1);
        next = ranges->list[i].last + 1;
    }
    if (next <= CHAR_LAST) char_ranges_add(&others, next, CHAR_LAST);
    free(ranges->list);
    *ranges = others;
}
