/* config/text/unicode_case.h: letters whose upper or title case is several characters; the rest is
 * unicode.h's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The characters [3] that c becomes, the last ones 0 where there are fewer; NULL: no special case.
 */
const int32_t *unicode_special_case(int32_t c, bool title);
