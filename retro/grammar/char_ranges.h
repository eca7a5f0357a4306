/* retro/grammar/char_ranges.h: sets of code points while they are written: [a-z0-9], [^"], \w. */
#pragma once

#include "retro/grammar/expr.h"

enum { CHAR_LAST = 0x10FFFF };

/* Zero-initialise, free `list`. */
struct char_ranges {
    struct char_range *list;
    int n, capacity;
};
void char_ranges_add(struct char_ranges *ranges, int32_t first, int32_t last);
/* Sorts them and joins those that touch. */
void char_ranges_sort(struct char_ranges *ranges);
/* Sorts them, and leaves all other code points. */
void char_ranges_negate(struct char_ranges *ranges);
