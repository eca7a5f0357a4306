/* config/text/unicode_ages.h: where the reference libraries' Unicode tables are older or newer than
 * ours. Private to the tokenizers; see unicode_ages.c for how the lists were made. */
#pragma once

#include "config/base/base.h"

bool age_not_nonspacing(int32_t c);  /* we say Mn, the reference does not */
bool age_not_control(int32_t c);     /* we say Cc, Cf or Co */
bool age_not_punctuation(int32_t c); /* we say P */
bool age_not_combining(int32_t c);   /* we give it a combining class */
bool age_not_decomposed(int32_t c);  /* we decompose it */
bool age_word(int32_t c);            /* a word's character for the reference, whatever we say */
int32_t age_lower_offset(int32_t c); /* to the lower case only the reference knows; 0: none */

extern const char age_letters[], age_numbers[];
