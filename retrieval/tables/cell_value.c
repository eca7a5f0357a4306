/* retrieval/tables/cell_value.c: see cell_value.h. */
#include "retrieval/tables/cell_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/text.h"

enum { MOST_DIGITS = 60, MOST_UNIT = 16 };

/* Bytes that are read from the left. */
struct cell_reader {
    const char *at, *end;
};

static bool take_text(struct cell_reader *reader, const char *text) {
    size_t size = strlen(text);
    if ((size_t)(reader->end - reader->at) < size || memcmp(reader->at, text, size) != 0)
        return false;
    reader->at += size;
    return true;
}

static bool take_any(struct cell_reader *reader, const char *const *texts, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (take_text(reader, texts[i])) return true;
    return false;
}

/* Blanks, those that do not break among them. */
static bool take_blank(struct cell_reader *reader) {
    static const char *const blanks[] = {" ", "\t", "\u00a0", "\u202f", "\u2009"};
    return take_any(reader, blanks, ARRAY_COUNT(blanks));
}

static void skip_blanks(struct cell_reader *reader) {
    while (take_blank(reader)) continue;
}

static struct text_span trim(struct text_span text) {
    struct cell_reader reader = {text.text, text.text + text.size};
    skip_blanks(&reader);
    size_t size = (size_t)(reader.end - reader.at);
    while (size > 0 && is_blank(reader.at[size - 1])) size--;
    while (size > 1 && memcmp(reader.at + size - 2, "\u00a0", 2) == 0) size -= 2;
    return (struct text_span){reader.at, size};
}

static bool span_is_any(struct text_span text, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (text.size == strlen(words[i]) && strncasecmp(text.text, words[i], text.size) == 0)
            return true;
    return false;
}

static bool is_placeholder(struct text_span text) {
    static const char *const words[] = {"-",    "\u2013", "\u2014", "--",    "---",
                                        "n/a",  "na",     "n.a.",   "k.A.",  "k. A.",
                                        "#N/A", "null",   "...",    "\u2026"};
    return text.size == 0 || span_is_any(text, words, ARRAY_COUNT(words));
}

static size_t count_digits(const struct cell_reader *reader) {
    size_t n = 0;
    while (reader->at + n < reader->end && is_digit(reader->at[n])) n++;
    return n;
}

/* A number as C writes one. */
struct plain_number {
    char text[MOST_DIGITS + 16];
    size_t size;
    bool grouped_by_mark, has_decimals;
    int groups;
    size_t last_group; /* digits */
};

static bool add_digits(struct plain_number *number, struct cell_reader *reader, size_t n) {
    if (number->size + n > MOST_DIGITS) return false;
    memcpy(number->text + number->size, reader->at, n);
    number->size += n;
    reader->at += n;
    return true;
}

/* A separator of thousands with the three digits behind it (India writes two). */
static bool take_group(struct plain_number *number, struct cell_reader *reader, char comma) {
    static const char *const others[] = {" ", "\u00a0", "\u202f", "\u2009", "'", "\u2019"};
    struct cell_reader ahead = *reader;
    bool by_mark = ahead.at < ahead.end && *ahead.at == comma;
    if (by_mark) ahead.at++;
    if (!by_mark && !take_any(&ahead, others, ARRAY_COUNT(others))) return false;
    size_t n = count_digits(&ahead);
    if (n != 3 && !(n == 2 && by_mark)) return false;
    number->grouped_by_mark = number->grouped_by_mark || by_mark;
    number->groups++;
    number->last_group = n;
    *reader = ahead;
    return add_digits(number, reader, n);
}

static bool take_decimals(struct plain_number *number, struct cell_reader *reader, char point) {
    if (reader->at == reader->end || *reader->at != point) return true;
    struct cell_reader ahead = {reader->at + 1, reader->end};
    size_t n = count_digits(&ahead);
    if (n == 0) return false;
    number->text[number->size] = '.';
    number->size++;
    number->has_decimals = true;
    *reader = ahead;
    return add_digits(number, reader, n);
}

static bool take_exponent(struct plain_number *number, struct cell_reader *reader) {
    struct cell_reader ahead = *reader;
    if (!take_text(&ahead, "e") && !take_text(&ahead, "E")) return true;
    char sign = ahead.at < ahead.end && *ahead.at == '-' ? '-' : '+';
    if (ahead.at < ahead.end && (*ahead.at == '-' || *ahead.at == '+')) ahead.at++;
    size_t n = count_digits(&ahead);
    if (n == 0 || n > 3) return true; /* a unit that begins with an e */
    number->text[number->size] = 'e';
    number->text[number->size + 1] = sign;
    number->size += 2;
    *reader = ahead;
    return add_digits(number, reader, n);
}

/* Digits with groups, decimals and an exponent. A code such as 00731 is no number. */
static bool take_number(struct cell_reader *reader, enum decimal_mark mark,
                        struct plain_number *number) {
    char point = mark == DECIMAL_COMMA ? ',' : '.', comma = mark == DECIMAL_COMMA ? '.' : ',';
    size_t n = count_digits(reader);
    if (n > 1 && reader->at[0] == '0') return false;
    if (n > MOST_DIGITS || !add_digits(number, reader, n)) return false;
    size_t first = n;
    while (first > 0 && first <= 3 && take_group(number, reader, comma)) continue;
    if (number->groups > 0 && number->last_group != 3) return false;
    if (!take_decimals(number, reader, point)) return false;
    if (number->size == 0) return false;
    return take_exponent(number, reader);
}

/* "EUR ", "$": what stands in front of a number. */
static struct text_span take_currency(struct cell_reader *reader) {
    static const char *const signs[] = {"$",      "\u20ac", "\u00a3", "\u00a5",
                                        "\u20b9", "\u20bd", "US$",    "\u20a9"};
    struct cell_reader ahead = *reader;
    size_t letters = 0;
    while (ahead.at + letters < ahead.end && ahead.at[letters] >= 'A' && ahead.at[letters] <= 'Z')
        letters++;
    struct text_span unit = {reader->at, 0};
    if (take_any(&ahead, signs, ARRAY_COUNT(signs)))
        unit.size = (size_t)(ahead.at - reader->at);
    else if (letters == 3 && ahead.end - ahead.at > 4 && ahead.at[3] == ' ')
        unit.size = 3;
    reader->at += unit.size;
    if (unit.size > 0) skip_blanks(reader);
    return unit;
}

static bool take_sign(struct cell_reader *reader, bool *negative) {
    bool minus = take_text(reader, "-") || take_text(reader, "\u2212");
    *negative = *negative || minus;
    return minus || take_text(reader, "+");
}

/* One word without digits: "kg", "km/h", "m\u00b2". */
static bool is_unit(struct text_span text) {
    if (text.size > MOST_UNIT) return false;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.text[i];
        bool odd = (unsigned char)c < 0x80 && strchr("-:;,|\\=<>()[]{}\"!?#&@_~", c) != NULL;
        if (is_digit(c) || is_blank(c) || odd) return false;
    }
    return true;
}

static bool take_suffix(struct cell_reader *reader, struct cell_value *value) {
    while (reader->end > reader->at && reader->end[-1] == '*') reader->end--;
    skip_blanks(reader);
    struct text_span rest =
        trim((struct text_span){reader->at, (size_t)(reader->end - reader->at)});
    value->percent = span_is(rest, "%");
    if (rest.size == 0) return true;
    if (!is_unit(rest) || (value->unit.size > 0 && !value->percent)) return false;
    value->unit = rest;
    return true;
}

static bool read_number(struct text_span text, enum decimal_mark mark, struct cell_value *value) {
    struct cell_reader reader = {text.text, text.text + text.size};
    struct plain_number number = {0};
    bool negative = false;
    bool in_brackets = text.size > 2 && text.text[0] == '(' && text.text[text.size - 1] == ')';
    reader.at += in_brackets;
    reader.end -= in_brackets;
    bool has_sign = take_sign(&reader, &negative);
    value->unit = take_currency(&reader);
    if (!has_sign) take_sign(&reader, &negative);
    if (!take_number(&reader, mark, &number) || !take_suffix(&reader, value)) return false;
    number.text[number.size] = '\0';
    value->number = strtod(number.text, NULL);
    if (!isfinite(value->number)) return false;
    if (value->percent) value->number /= 100;
    if (negative || in_brackets) value->number = -value->number;
    bool own = (number.grouped_by_mark && (number.has_decimals || number.groups > 1));
    value->marks_point = own && mark == DECIMAL_POINT;
    value->marks_comma = own && mark == DECIMAL_COMMA;
    value->kind = CELL_NUMBER;
    return true;
}

/* Dates: 2024-03-05, 2024-03-05 17:30 or :00, and 05.03.2024. */

static bool take_part(struct cell_reader *reader, size_t least, size_t most, int *part) {
    size_t n = count_digits(reader);
    if (n < least || n > most) return false;
    *part = 0;
    for (size_t i = 0; i < n; i++) *part = *part * 10 + (reader->at[i] - '0');
    reader->at += n;
    return true;
}

static bool is_day(const int date[3]) {
    static const int days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return date[1] >= 1 && date[1] <= 12 && date[2] >= 1 && date[2] <= days[date[1] - 1];
}

static bool take_day(struct cell_reader *reader, int date[3]) {
    struct cell_reader iso = *reader, dotted = *reader;
    if (take_part(&iso, 4, 4, &date[0]) && take_text(&iso, "-") &&
        take_part(&iso, 2, 2, &date[1]) && take_text(&iso, "-") &&
        take_part(&iso, 2, 2, &date[2])) {
        *reader = iso;
        return is_day(date);
    }
    if (take_part(&dotted, 1, 2, &date[2]) && take_text(&dotted, ".") &&
        take_part(&dotted, 1, 2, &date[1]) && take_text(&dotted, ".") &&
        take_part(&dotted, 4, 4, &date[0])) {
        *reader = dotted;
        return is_day(date);
    }
    return false;
}

static bool take_time(struct cell_reader *reader, int time[3]) {
    if (!take_text(reader, " ") && !take_text(reader, "T")) return false;
    if (!take_part(reader, 1, 2, &time[0]) || !take_text(reader, ":") ||
        !take_part(reader, 2, 2, &time[1]))
        return false;
    if (take_text(reader, ":") && !take_part(reader, 2, 2, &time[2])) return false;
    return time[0] < 24 && time[1] < 60 && time[2] < 60;
}

static bool read_date(struct text_span text, struct cell_value *value) {
    struct cell_reader reader = {text.text, text.text + text.size};
    int date[3], time[3] = {0};
    if (!take_day(&reader, date)) return false;
    bool has_time = reader.at < reader.end;
    if (has_time && (!take_time(&reader, time) || reader.at < reader.end)) return false;
    struct buffer iso = {0};
    buffer_printf(&iso, "%04d-%02d-%02d", date[0], date[1], date[2]);
    if (has_time) buffer_printf(&iso, " %02d:%02d:%02d", time[0], time[1], time[2]);
    memcpy(value->date, iso.data, iso.size < CELL_DATE_SIZE ? iso.size + 1 : CELL_DATE_SIZE);
    value->date[CELL_DATE_SIZE - 1] = '\0';
    buffer_free(&iso);
    value->kind = CELL_DATE;
    return true;
}

/* "28.6 kg (28.60813)": what is shown, and the plain value behind it; false: it has none. */
static bool split_plain(struct text_span text, struct text_span *shown, struct text_span *plain) {
    if (text.size < 4 || text.text[text.size - 1] != ')') return false;
    size_t open = text.size - 1;
    while (open > 0 && text.text[open] != '(') open--;
    if (open < 2 || text.text[open - 1] != ' ') return false;
    *shown = trim((struct text_span){text.text, open - 1});
    *plain = (struct text_span){text.text + open + 1, text.size - open - 2};
    return shown->size > 0;
}

static bool has_digit(struct text_span text) {
    for (size_t i = 0; i < text.size; i++)
        if (is_digit(text.text[i])) return true;
    return false;
}

/* A plain number is as cell_print_number has it. "Kayak (12)" is none, as "Kayak" is no number. */
static bool read_plain(struct text_span text, struct cell_value *value) {
    struct text_span shown, plain;
    struct cell_value of_shown = {0};
    if (!split_plain(text, &shown, &plain) || !has_digit(shown)) return false;
    if (read_date(plain, value)) return true;
    if (!read_number(shown, DECIMAL_POINT, &of_shown) &&
        !read_number(shown, DECIMAL_COMMA, &of_shown))
        return false;
    if (!read_number(plain, DECIMAL_POINT, value) || value->unit.size > 0) return false;
    value->unit = of_shown.unit;
    value->percent = of_shown.percent;
    value->marks_point = value->marks_comma = false;
    return true;
}

struct cell_value cell_value_read(struct text_span text, enum decimal_mark mark) {
    struct cell_value value = {.kind = CELL_TEXT};
    text = trim(text);
    if (is_placeholder(text)) return (struct cell_value){.kind = CELL_EMPTY};
    if (read_date(text, &value) || read_plain(text, &value)) return value;
    value = (struct cell_value){.kind = CELL_TEXT};
    if (read_number(text, mark, &value)) return value;
    return (struct cell_value){.kind = CELL_TEXT};
}

void cell_print_number(struct buffer *out, double number) {
    char text[400];
    snprintf(text, sizeof text, "%.15g", number);
    const char *exponent = strstr(text, "e-");
    int places = exponent ? atoi(exponent + 2) : 0;
    if (exponent && places <= 10) {
        int digits = (int)(exponent - text) - (text[0] == '-');
        snprintf(text, sizeof text, "%.*f", places + max_int(digits - 2, 0), number);
    }
    buffer_append_string(out, strcmp(text, "-0") == 0 ? "0" : text);
}
