/* retrieval/extract/sheet/number_format.c: see number_format.h. */
#include "retrieval/extract/sheet/number_format.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/text.h"
#include "retrieval/extract/sheet/format_dates.h"
#include "retrieval/tables/cell_value.h"

enum { MOST_SECTIONS = 4, MOST_PLACES = 30 };

/* 14 and 22 are of the reader's country: they are shown as ISO has them. */
const char *number_format_built_in(int id) {
    static const char *const codes[] = {[0] = "General",
                                        [1] = "0",
                                        [2] = "0.00",
                                        [3] = "#,##0",
                                        [4] = "#,##0.00",
                                        [5] = "$#,##0;-$#,##0",
                                        [6] = "$#,##0;[Red]-$#,##0",
                                        [7] = "$#,##0.00;-$#,##0.00",
                                        [8] = "$#,##0.00;[Red]-$#,##0.00",
                                        [9] = "0%",
                                        [10] = "0.00%",
                                        [11] = "0.00E+00",
                                        [12] = "# ?/?",
                                        [13] =
                                            "# ?"
                                            "?/?"
                                            "?",
                                        [14] = "yyyy-mm-dd",
                                        [15] = "d-mmm-yy",
                                        [16] = "d-mmm",
                                        [17] = "mmm-yy",
                                        [18] = "h:mm AM/PM",
                                        [19] = "h:mm:ss AM/PM",
                                        [20] = "h:mm",
                                        [21] = "h:mm:ss",
                                        [22] = "yyyy-mm-dd hh:mm",
                                        [37] = "#,##0;(#,##0)",
                                        [38] = "#,##0;[Red](#,##0)",
                                        [39] = "#,##0.00;(#,##0.00)",
                                        [40] = "#,##0.00;[Red](#,##0.00)",
                                        [41] = "#,##0;-#,##0",
                                        [42] = "$#,##0;-$#,##0",
                                        [43] = "#,##0.00;-#,##0.00",
                                        [44] = "$#,##0.00;-$#,##0.00",
                                        [45] = "mm:ss",
                                        [46] = "[h]:mm:ss",
                                        [47] = "mm:ss.0",
                                        [48] = "##0.0E+0",
                                        [49] = "@"};
    if ((id >= 27 && id <= 36) || (id >= 50 && id <= 58)) return "yyyy-mm-dd";
    return id >= 0 && id < (int)ARRAY_COUNT(codes) ? codes[id] : NULL;
}

/* The size of what stands for itself at the beginning of a code: "kg", \x, _x, *x, [Red]; 0: a
 * placeholder. */
static size_t measure_literal(struct text_span code) {
    char c = code.text[0];
    const char *end = NULL;
    if (c == '"') end = memchr(code.text + 1, '"', code.size - 1);
    if (c == '[') end = memchr(code.text, ']', code.size);
    if (c == '"' || c == '[') return end ? (size_t)(end - code.text) + 1 : code.size;
    return c == '\\' || c == '_' || c == '*' ? (code.size > 1 ? 2 : 1) : 0;
}

static int split_sections(struct text_span code, struct text_span sections[MOST_SECTIONS]) {
    int n = 0;
    size_t start = 0, at = 0;
    while (at < code.size && n < MOST_SECTIONS - 1) {
        size_t literal = measure_literal((struct text_span){code.text + at, code.size - at});
        if (literal == 0 && code.text[at] == ';') {
            sections[n] = (struct text_span){code.text + start, at - start};
            n++;
            start = at + 1;
        }
        at += literal ? literal : 1;
    }
    sections[n] = (struct text_span){code.text + start, code.size - start};
    return n + 1;
}

static bool is_general(struct text_span section) {
    for (size_t at = 0; at < section.size;) {
        struct text_span rest = {section.text + at, section.size - at};
        size_t literal = measure_literal(rest);
        if (literal == 0 && rest.size >= 7 && strncasecmp(rest.text, "general", 7) == 0)
            return true;
        at += literal ? literal : 1;
    }
    return false;
}

static bool is_elapsed(struct text_span bracket) {
    size_t n = bracket.size;
    if (n < 3 || strchr("hmsHMS", bracket.text[1]) == NULL) return false;
    for (size_t i = 1; i + 1 < n; i++)
        if (tolower((unsigned char)bracket.text[i]) != tolower((unsigned char)bracket.text[1]))
            return false;
    return true;
}

/* The periods that a section names: those of a calendar or clock, or in brackets all that went by.
 */
struct named_periods {
    bool any, elapsed;
};

static struct named_periods find_periods(struct text_span section) {
    struct named_periods found = {0};
    for (size_t at = 0; at < section.size;) {
        struct text_span rest = {section.text + at, section.size - at};
        size_t literal = measure_literal(rest);
        found.elapsed = found.elapsed || (literal > 0 && rest.text[0] == '[' &&
                                          is_elapsed((struct text_span){rest.text, literal}));
        found.any = found.any || found.elapsed ||
                    (literal == 0 && rest.text[0] && strchr("ymdhsYMDHS", rest.text[0]));
        at += literal ? literal : 1;
    }
    return found;
}

static bool section_is_date(struct text_span section) {
    return !is_general(section) && find_periods(section).any;
}

bool number_format_is_date(const char *code) {
    struct text_span sections[MOST_SECTIONS];
    split_sections((struct text_span){code, strlen(code)}, sections);
    return section_is_date(sections[0]);
}

/* The section that shows a number, by its condition ("[>=100]"), else by its sign. */

static bool read_condition(struct text_span section, double number, bool *holds) {
    for (size_t at = 0; at < section.size && section.text[at] == '[';) {
        struct text_span rest = {section.text + at, section.size - at};
        size_t size = measure_literal(rest), n = 1;
        while (n < size && strchr("<>=", rest.text[n])) n++;
        if (n > 1) {
            double limit = strtod(rest.text + n, NULL);
            bool below = memchr(rest.text + 1, '<', n - 1) != NULL;
            bool above = memchr(rest.text + 1, '>', n - 1) != NULL;
            bool equal = memchr(rest.text + 1, '=', n - 1) != NULL;
            *holds = (below && number < limit) || (above && number > limit) ||
                     (equal && number == limit);
            return true;
        }
        at += size;
    }
    return false;
}

/* The section, and whether the number's sign is said by it. */
static struct text_span choose_section(struct text_span code, double number, bool *has_sign) {
    struct text_span sections[MOST_SECTIONS];
    int n = split_sections(code, sections), others = 0;
    bool holds = false;
    *has_sign = false;
    if (read_condition(sections[0], number, &holds)) {
        for (int i = 0; i < n; i++) {
            bool asks = read_condition(sections[i], number, &holds);
            others = i;
            if (!asks || holds) break;
        }
        *has_sign = number < 0 && others > 0;
        return sections[others];
    }
    *has_sign = number < 0 && n >= 2;
    if (number < 0 && n >= 2) return sections[1];
    return number == 0 && n >= 3 ? sections[2] : sections[0];
}

/* The placeholders of a section of digits. */
struct digit_plan {
    int whole, decimals, least_decimals; /* places in front of the point and behind it */
    int percents, thousands;             /* commas behind the last place: divided by 1000 each */
    bool grouped, has_exponent, has_text, has_fraction;
};

static bool is_place(char c) { return c == '0' || c == '#' || c == '?'; }

static void plan_place(struct digit_plan *plan, char c, bool behind_point, int *commas) {
    if (behind_point) {
        plan->decimals++;
        if (c != '#') plan->least_decimals = plan->decimals;
    } else {
        plan->grouped = plan->grouped || *commas > 0;
        plan->whole++;
    }
    *commas = 0;
}

static struct digit_plan plan_section(struct text_span section) {
    struct digit_plan plan = {0};
    bool behind_point = false;
    int commas = 0;
    for (size_t at = 0; at < section.size;) {
        struct text_span rest = {section.text + at, section.size - at};
        size_t literal = measure_literal(rest);
        char c = rest.text[0];
        at += literal ? literal : 1;
        if (literal > 0) continue;
        bool has_places = plan.whole + plan.decimals > 0;
        if (is_place(c) && !plan.has_exponent) plan_place(&plan, c, behind_point, &commas);
        if (c == ',' && has_places) commas++;
        if (c == '.') {
            plan.thousands += commas;
            commas = 0;
            behind_point = true;
        }
        plan.percents += c == '%';
        plan.has_text = plan.has_text || c == '@';
        plan.has_fraction = plan.has_fraction || (c == '/' && has_places);
        plan.has_exponent =
            plan.has_exponent || ((c == 'E' || c == 'e') && rest.size > 1 && has_places &&
                                  (rest.text[1] == '+' || rest.text[1] == '-'));
    }
    plan.thousands += commas;
    return plan;
}

/* Digits of the number, as many decimals as there are places, without those that need not be. */
struct shown_digits {
    char whole[400], decimals[MOST_PLACES + 1];
    int n_whole, n_decimals;
};

static struct shown_digits digits_of(double number, const struct digit_plan *plan) {
    struct shown_digits digits = {.n_whole = 0};
    char text[440];
    int places = min_int(plan->decimals, MOST_PLACES);
    snprintf(text, sizeof text, "%.*f", places, number);
    const char *point = strchr(text, '.');
    int whole = point ? (int)(point - text) : (int)strlen(text);
    int decimals = point ? (int)strlen(point + 1) : 0;
    while (decimals > plan->least_decimals && point[decimals] == '0') decimals--;
    bool is_zero = whole == 1 && text[0] == '0';
    digits.n_whole = is_zero ? 0 : min_int(whole, (int)sizeof digits.whole);
    memcpy(digits.whole, text, (size_t)digits.n_whole);
    digits.n_decimals = decimals;
    if (decimals > 0) memcpy(digits.decimals, point + 1, (size_t)decimals);
    return digits;
}

struct digit_writer {
    const struct digit_plan *plan;
    struct shown_digits digits;
    int places, decimals; /* that were passed */
    bool behind_point;
    struct buffer *out;
};

static void write_whole_digit(const struct digit_writer *writer, char digit, int from_right) {
    buffer_append(writer->out, &digit, 1);
    if (writer->plan->grouped && from_right > 0 && from_right % 3 == 0)
        buffer_append(writer->out, ",", 1);
}

/* A place in front of the point: the first has all digits that have no place of their own. */
static void write_whole_place(struct digit_writer *writer, char place) {
    int n = writer->digits.n_whole, right = writer->plan->whole - writer->places - 1;
    if (writer->places == 0)
        for (int i = 0; i < n - writer->plan->whole; i++)
            write_whole_digit(writer, writer->digits.whole[i], n - 1 - i);
    if (right < n)
        write_whole_digit(writer, writer->digits.whole[n - 1 - right], right);
    else if (place == '0')
        write_whole_digit(writer, '0', right);
    writer->places++;
}

static void write_place(struct digit_writer *writer, char place) {
    if (!writer->behind_point) {
        write_whole_place(writer, place);
        return;
    }
    if (writer->decimals < writer->digits.n_decimals)
        buffer_append(writer->out, &writer->digits.decimals[writer->decimals], 1);
    writer->decimals++;
}

static void write_point(struct digit_writer *writer) {
    if (writer->plan->whole == 0)
        buffer_append(writer->out, writer->digits.whole, (size_t)writer->digits.n_whole);
    writer->behind_point = true;
    if (writer->digits.n_decimals > 0 || writer->plan->decimals == 0)
        buffer_append(writer->out, ".", 1);
}

/* "kg", \x; of brackets a currency alone: [$\u20ac-407]. */
static void write_format_literal(struct text_span literal, struct buffer *out) {
    char c = literal.text[0];
    size_t n = literal.size;
    if (c == '"')
        buffer_append(out, literal.text + 1, n - 1 - (n > 1 && literal.text[n - 1] == '"'));
    if (c == '\\') buffer_append(out, literal.text + 1, n - 1);
    if (c == '_') buffer_append(out, " ", 1);
    if (c != '[' || n < 3 || literal.text[1] != '$') return;
    size_t size = 0;
    while (size < n - 3 && literal.text[2 + size] != '-') size++;
    buffer_append(out, literal.text + 2, size);
}

static void write_section(struct digit_writer *writer, struct text_span section) {
    for (size_t at = 0; at < section.size;) {
        struct text_span rest = {section.text + at, section.size - at};
        size_t literal = measure_literal(rest);
        char c = rest.text[0];
        at += literal ? literal : 1;
        if (literal > 0)
            write_format_literal((struct text_span){rest.text, literal}, writer->out);
        else if (is_place(c))
            write_place(writer, c);
        else if (c == '.' && writer->plan->whole + writer->plan->decimals > 0)
            write_point(writer);
        else if (c != ',' || writer->plan->whole + writer->plan->decimals == 0)
            buffer_append(writer->out, &c, 1);
    }
}

/* A mantissa with the decimals that the section has places for. */
static void write_exponent(const struct digit_plan *plan, double number, struct buffer *out) {
    char text[64];
    snprintf(text, sizeof text, "%.*E", min_int(plan->decimals, 20), number);
    buffer_append_string(out, text);
}

static void write_digits(struct text_span section, double number, struct buffer *out) {
    struct digit_plan plan = plan_section(section);
    if (plan.has_exponent) {
        write_exponent(&plan, number, out);
        return;
    }
    if (plan.has_text || plan.has_fraction) {
        cell_print_number(out, number);
        return;
    }
    for (int i = 0; i < plan.percents; i++) number *= 100;
    for (int i = 0; i < plan.thousands; i++) number /= 1000;
    /* 15 digits are what is meant: 1.005 is no 1.00499999999999989. */
    char meant[40];
    snprintf(meant, sizeof meant, "%.15g", number);
    double nudged = nextafter(strtod(meant, NULL), INFINITY);
    struct digit_writer writer = {.plan = &plan, .digits = digits_of(nudged, &plan), .out = out};
    write_section(&writer, section);
}

/* Shows a number, without its plain form. */
static void write_shown(struct text_span section, double number, bool says_sign,
                        struct buffer *out) {
    size_t start = out->size;
    double size = number < 0 ? -number : number;
    if (number < 0 && !says_sign) buffer_append(out, "-", 1);
    if (is_general(section))
        cell_print_number(out, size);
    else
        write_digits(section, size, out);
    while (out->size > start && out->data[out->size - 1] == ' ') out->size--;
    size_t blanks = 0;
    while (start + blanks < out->size && out->data[start + blanks] == ' ') blanks++;
    memmove(out->data + start, out->data + start + blanks, out->size - start - blanks);
    out->size -= blanks;
    buffer_append(out, "", 0);
}

static bool is_same_number(double left, double right) {
    return left == right || fabs(left - right) <= 1e-14 * fabs(right);
}

static void write_number(struct text_span section, double number, bool says_sign,
                         struct buffer *out) {
    size_t start = out->size;
    write_shown(section, number, says_sign, out);
    struct text_span shown = {out->data + start, out->size - start};
    struct cell_value value = cell_value_read(shown, DECIMAL_POINT);
    if (value.kind == CELL_NUMBER && is_same_number(value.number, number)) return;
    if (shown.size > 0) buffer_append_string(out, " (");
    cell_print_number(out, number);
    if (shown.size > 0) buffer_append_string(out, ")");
}

static void write_date(struct text_span section, double number, bool from_1904,
                       struct buffer *out) {
    struct sheet_time time;
    struct buffer iso = {0};
    size_t start = out->size;
    bool has_fraction = memmem(section.text, section.size, "s.0", 3) != NULL;
    if (!sheet_time_of(number, from_1904, !has_fraction, &time)) {
        cell_print_number(out, number);
        return;
    }
    format_time(section, &time, out);
    sheet_time_write(&time, &iso);
    struct text_span shown = {out->data + start, out->size - start};
    bool says_day = cell_value_read(shown, DECIMAL_POINT).kind == CELL_DATE;
    if (time.day > 0 && !says_day && !find_periods(section).elapsed)
        buffer_printf(out, " (%s)", iso.data);
    buffer_free(&iso);
}

void number_format_write(const char *code, double number, bool from_1904, struct buffer *out) {
    bool says_sign;
    struct text_span section =
        choose_section((struct text_span){code, strlen(code)}, number, &says_sign);
    if (section_is_date(section))
        write_date(section, number, from_1904, out);
    else
        write_number(section, number, says_sign, out);
}
