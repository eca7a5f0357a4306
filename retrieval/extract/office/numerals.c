/* retrieval/extract/office/numerals.c: see numerals.h. */
#include "retrieval/extract/office/numerals.h"

static void write_letter(struct buffer *out, char first, int number) {
    char letter = (char)(first + (number - 1) % 26);
    for (int i = 0; i <= (number - 1) / 26 && i < 4; i++) buffer_append(out, &letter, 1);
}

static void write_roman(struct buffer *out, bool upper, int number) {
    static const struct {
        int value;
        const char *lower, *upper;
    } parts[] = {{1000, "m", "M"}, {900, "cm", "CM"}, {500, "d", "D"}, {400, "cd", "CD"},
                 {100, "c", "C"},  {90, "xc", "XC"},  {50, "l", "L"},  {40, "xl", "XL"},
                 {10, "x", "X"},   {9, "ix", "IX"},   {5, "v", "V"},   {4, "iv", "IV"},
                 {1, "i", "I"}};
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        for (; number >= parts[i].value; number -= parts[i].value)
            buffer_append_string(out, upper ? parts[i].upper : parts[i].lower);
}

void numeral_write(struct buffer *out, enum numeral_kind kind, int number) {
    bool roman = kind == NUMERAL_LOWER_ROMAN || kind == NUMERAL_UPPER_ROMAN;
    if (kind == NUMERAL_DECIMAL || number < 1 || (roman && number > 3999))
        buffer_printf(out, "%d", number);
    else if (roman)
        write_roman(out, kind == NUMERAL_UPPER_ROMAN, number);
    else
        write_letter(out, kind == NUMERAL_UPPER_LETTER ? 'A' : 'a', number);
}
