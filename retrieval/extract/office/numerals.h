/* retrieval/extract/office/numerals.h: numbers of list items and notes as documents show them. */
#pragma once

#include "config/base/buffer.h"

enum numeral_kind {
    NUMERAL_DECIMAL,
    NUMERAL_LOWER_LETTER,
    NUMERAL_UPPER_LETTER,
    NUMERAL_LOWER_ROMAN,
    NUMERAL_UPPER_ROMAN
};
void numeral_write(struct buffer *out, enum numeral_kind kind, int number);
