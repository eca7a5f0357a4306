/* retrieval/extract/sheet/format_dates.c: see format_dates.h. */
#include "retrieval/extract/sheet/format_dates.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Day 60 is the 29th of February 1900, which never was: the first spreadsheet had it. */
enum { FALSE_DAY = 60, DAYS_TO_1970 = 25569, DAYS_TO_1904 = 1462, LAST_DAY = 2958465 };

/* Year, month and day of a day since 1970, by eras of 400 years. */
static void split_day(int64_t day, struct sheet_time *time) {
    int64_t shifted = day + 719468, era = shifted / 146097, of_era = shifted - era * 146097;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100),
            month = (5 * of_year + 2) / 153;
    time->day = (int)(of_year - (153 * month + 2) / 5 + 1);
    time->month = (int)(month < 10 ? month + 3 : month - 9);
    time->year = (int)(year + era * 400 + (time->month <= 2));
}

bool sheet_time_of(double days, bool from_1904, bool to_seconds, struct sheet_time *time) {
    *time = (struct sheet_time){.days = days};
    if (!(days >= 0) || days >= LAST_DAY + 1.0) return false;
    double whole = floor(days), seconds = (days - whole) * 86400;
    double rounded = to_seconds ? floor(seconds + 0.5) : floor(seconds + 1e-6);
    if (rounded >= 86400) {
        rounded -= 86400;
        whole += 1;
    }
    time->fraction = to_seconds || seconds < rounded ? 0 : seconds - rounded;
    time->hour = (int)(rounded / 3600);
    time->minute = (int)(fmod(rounded, 3600) / 60);
    time->second = (int)fmod(rounded, 60);
    if (from_1904) whole += DAYS_TO_1904;
    /* Day 1 is called a Sunday by spreadsheets, though the first of January 1900 was a Monday. */
    time->weekday = (int)(((int64_t)whole + 6) % 7);
    if (whole < 1) return true;
    if (whole == FALSE_DAY) {
        time->year = 1900, time->month = 2, time->day = 29;
        return true;
    }
    split_day((int64_t)whole - DAYS_TO_1970 + (whole < FALSE_DAY), time);
    return true;
}

void sheet_time_write(const struct sheet_time *time, struct buffer *out) {
    bool has_time = time->hour || time->minute || time->second;
    if (time->day > 0) buffer_printf(out, "%04d-%02d-%02d", time->year, time->month, time->day);
    if (time->day > 0 && has_time) buffer_append(out, " ", 1);
    if (time->day == 0 || has_time)
        buffer_printf(out, "%02d:%02d:%02d", time->hour, time->minute, time->second);
}

static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};
static const char *const weekdays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                       "Thursday", "Friday", "Saturday"};

struct time_writer {
    const struct sheet_time *time;
    struct buffer *out;
    bool half_days;   /* the section has AM/PM */
    bool behind_hour; /* the period before was an hour: m is minutes */
};

static bool has_half_days(struct text_span section) {
    for (size_t i = 0; i + 2 < section.size; i++) {
        bool quoted = section.text[i] == '"';
        if (quoted) {
            const char *end = memchr(section.text + i + 1, '"', section.size - i - 1);
            if (end == NULL) return false;
            i = (size_t)(end - section.text);
            continue;
        }
        if (strncasecmp(section.text + i, "a/p", 3) == 0) return true;
        if (section.size - i >= 5 && strncasecmp(section.text + i, "am/pm", 5) == 0) return true;
    }
    return false;
}

/* Whether the next letter of a period is an s: then an m before it is minutes. */
static bool seconds_follow(struct text_span rest) {
    for (size_t i = 0; i < rest.size; i++) {
        int c = tolower((unsigned char)rest.text[i]);
        if (c == 's') return true;
        if (c == 'y' || c == 'm' || c == 'd' || c == 'h' || c == '"') return false;
    }
    return false;
}

static void write_month(const struct time_writer *writer, size_t n) {
    int month = writer->time->month;
    const char *name = month > 0 ? months[month - 1] : "January";
    if (n <= 2) buffer_printf(writer->out, n == 1 ? "%d" : "%02d", month > 0 ? month : 1);
    if (n == 3) buffer_append(writer->out, name, 3);
    if (n == 4) buffer_append_string(writer->out, name);
    if (n >= 5) buffer_append(writer->out, name, 1);
}

static void write_day(const struct time_writer *writer, size_t n) {
    const char *name = weekdays[writer->time->weekday];
    if (n <= 2) buffer_printf(writer->out, n == 1 ? "%d" : "%02d", writer->time->day);
    if (n == 3) buffer_append(writer->out, name, 3);
    if (n >= 4) buffer_append_string(writer->out, name);
}

static void write_hour(const struct time_writer *writer, size_t n) {
    int hour = writer->time->hour;
    if (writer->half_days) hour = hour % 12 == 0 ? 12 : hour % 12;
    buffer_printf(writer->out, n == 1 ? "%d" : "%02d", hour);
}

static void write_period(struct time_writer *writer, char letter, size_t n, bool minutes) {
    const struct sheet_time *time = writer->time;
    switch (letter) {
        case 'y':
        case 'e':
            buffer_printf(writer->out, n <= 2 && letter == 'y' ? "%02d" : "%04d",
                          n <= 2 && letter == 'y' ? time->year % 100 : time->year);
            break;
        case 'm':
            if (minutes)
                buffer_printf(writer->out, n == 1 ? "%d" : "%02d", time->minute);
            else
                write_month(writer, n);
            break;
        case 'd': write_day(writer, n); break;
        case 'h': write_hour(writer, n); break;
        case 's': buffer_printf(writer->out, n == 1 ? "%d" : "%02d", time->second); break;
        default: break;
    }
}

/* "[h]": all hours that have gone by; the m and s behind it are those of the last hour. */
static void write_elapsed(const struct time_writer *writer, char letter, size_t n) {
    double seconds = floor(writer->time->days * 86400 + 0.5);
    double unit = letter == 'h' ? 3600 : letter == 'm' ? 60 : 1;
    buffer_printf(writer->out, "%0*.0f", (int)n, floor(seconds / unit));
}

/* "[h]" or what else stands in brackets: "[$-407]", "[Red]"; its end. */
static size_t write_bracket(struct time_writer *writer, struct text_span rest) {
    const char *end = memchr(rest.text, ']', rest.size);
    if (end == NULL) return rest.size;
    size_t n = (size_t)(end - rest.text) - 1;
    int letter = n > 0 ? tolower((unsigned char)rest.text[1]) : 0;
    bool same = n > 0 && strchr("hms", letter) != NULL;
    for (size_t i = 1; i <= n && same; i++) same = tolower((unsigned char)rest.text[i]) == letter;
    if (same) write_elapsed(writer, (char)letter, n);
    if (same) writer->behind_hour = letter == 'h';
    return n + 2;
}

/* Fractions of a second: ".000" behind an s. */
static size_t write_fraction(const struct time_writer *writer, struct text_span rest) {
    size_t n = 1;
    while (n < rest.size && rest.text[n] == '0' && n < 7) n++;
    char digits[16];
    snprintf(digits, sizeof digits, "%.*f", (int)n - 1, writer->time->fraction);
    if (n > 1) buffer_append_string(writer->out, strchr(digits, '.') ? strchr(digits, '.') : "");
    if (n == 1) buffer_append(writer->out, ".", 1);
    return n;
}

/* AM/PM or A/P; 0: there is none here. */
static size_t write_half_day(const struct time_writer *writer, struct text_span rest) {
    bool late = writer->time->hour >= 12;
    if (rest.size >= 5 && strncasecmp(rest.text, "am/pm", 5) == 0) {
        buffer_append_string(writer->out, late ? "PM" : "AM");
        return 5;
    }
    if (rest.size < 3 || strncasecmp(rest.text, "a/p", 3) != 0) return 0;
    buffer_append_string(writer->out, late ? "P" : "A");
    return 3;
}

static size_t write_literal(const struct time_writer *writer, struct text_span rest) {
    char c = rest.text[0];
    if (c == '"') {
        const char *end = memchr(rest.text + 1, '"', rest.size - 1);
        size_t size = end ? (size_t)(end - rest.text) - 1 : rest.size - 1;
        buffer_append(writer->out, rest.text + 1, size);
        return size + (end ? 2 : 1);
    }
    if ((c == '\\' || c == '_' || c == '*') && rest.size > 1) {
        if (c == '\\') buffer_append(writer->out, rest.text + 1, 1);
        return 2;
    }
    if (c != '@' && c != '0' && c != '#' && c != '?') buffer_append(writer->out, &c, 1);
    return 1;
}

/* A run of one letter: y, m, d, h, s; its size. */
static size_t write_run(struct time_writer *writer, struct text_span rest) {
    char letter = (char)tolower((unsigned char)rest.text[0]);
    size_t n = 1;
    while (n < rest.size && tolower((unsigned char)rest.text[n]) == letter) n++;
    struct text_span behind = {rest.text + n, rest.size - n};
    bool minutes = letter == 'm' && n <= 2 && (writer->behind_hour || seconds_follow(behind));
    write_period(writer, letter, n, minutes);
    writer->behind_hour = letter == 'h';
    return n;
}

void format_time(struct text_span section, const struct sheet_time *time, struct buffer *out) {
    struct time_writer writer = {.time = time, .out = out, .half_days = has_half_days(section)};
    for (size_t at = 0; at < section.size;) {
        struct text_span rest = {section.text + at, section.size - at};
        char c = (char)tolower((unsigned char)rest.text[0]);
        size_t half = c == 'a' ? write_half_day(&writer, rest) : 0;
        bool behind_second = at > 0 && tolower((unsigned char)section.text[at - 1]) == 's';
        if (half > 0)
            at += half;
        else if (c == '[')
            at += write_bracket(&writer, rest);
        else if (c == '.' && behind_second)
            at += write_fraction(&writer, rest);
        else if (strchr("ymdhse", c) && c)
            at += write_run(&writer, rest);
        else
            at += write_literal(&writer, rest);
    }
}
