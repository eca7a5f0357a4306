/* retrieval/extract/sheet/number_format.h: numbers and dates as a workbook's number formats show
 * them: sections by sign or condition, literals, digits, groups, per cent, exponents, dates.
 * Fractions are shown as decimals. */
#pragma once

#include "config/base/buffer.h"

/* The code of a format that workbooks name by its number alone; NULL: it is not built in. */
const char *number_format_built_in(int id);
/* Whether a number in this format is a day or a time. */
bool number_format_is_date(const char *code);
/* Appends a number as a format shows it. Where that is less than there is, the number itself
 * follows in brackets, as cell_value_read takes it: "28.6 (28.60813)", "Mar-24 (2024-03-01)". */
void number_format_write(const char *code, double number, bool from_1904, struct buffer *out);
