/* retrieval/filter/facts.c: see facts.h. */
#include "retrieval/filter/facts.h"

#include <string.h>

/* In front of each fact: its name and its value follow. */
struct fact_head {
    uint32_t name_size, value_size;
    uint16_t kind, listed;
};

static void append_fact(struct buffer *out, struct text_span name, enum fact_kind kind, bool listed,
                        struct text_span value) {
    struct fact_head head = {.name_size = (uint32_t)name.size,
                             .value_size = (uint32_t)value.size,
                             .kind = (uint16_t)kind,
                             .listed = listed};
    buffer_append(out, &head, sizeof head);
    buffer_append(out, name.text, name.size);
    buffer_append(out, value.text, value.size);
}

static void append_value(struct buffer *out, struct text_span name, bool listed,
                         const struct json *json) {
    int64_t whole = json_int(json);
    double real = json_double(json);
    char truth = json_bool(json) ? 1 : 0;
    switch (json_kind(json)) {
        case JSON_KIND_BOOL:
            append_fact(out, name, FACT_BOOL, listed, (struct text_span){&truth, 1});
            break;
        case JSON_KIND_INT:
            append_fact(out, name, FACT_INT, listed,
                        (struct text_span){(const char *)&whole, sizeof whole});
            break;
        case JSON_KIND_REAL:
            append_fact(out, name, FACT_REAL, listed,
                        (struct text_span){(const char *)&real, sizeof real});
            break;
        case JSON_KIND_TEXT: append_fact(out, name, FACT_TEXT, listed, json_text(json)); break;
        default: break;
    }
}

enum status metadata_fits(const struct json *object, size_t bytes,
                          const struct metadata_limits *limits, struct error *e) {
    size_t n = 0;
    for (struct json_entry it = {0}; json_next(object, &it);)
        n += json_is_list(it.value) ? json_count(it.value) : 1;
    if (n > (size_t)limits->values)
        return error_set(
            e, STATUS_TOO_LARGE,
            "the metadata has %zu values, the limit is %d (option retrieval.max_metadata_values)",
            n, limits->values);
    if (bytes > (size_t)limits->bytes)
        return error_set(
            e, STATUS_TOO_LARGE,
            "the metadata has %zu bytes, the limit is %d (option retrieval.max_metadata_bytes)",
            bytes, limits->bytes);
    return STATUS_OK;
}

enum status facts_append(struct buffer *out, const char *metadata, struct error *e) {
    struct json *object;
    if (metadata == NULL || metadata[0] == '\0') return STATUS_OK;
    if (json_parse(&object, (struct text_span){metadata, strlen(metadata)}, "metadata", e))
        return e->status;
    enum status status = STATUS_OK;
    if (json_kind(object) != JSON_KIND_OBJECT)
        status =
            error_set(e, STATUS_INVALID, "metadata is %s, not an object", json_kind_name(object));
    for (struct json_entry it = {0}; status == STATUS_OK && json_next(object, &it);) {
        append_value(out, it.name, false, it.value);
        for (size_t i = 0; json_is_list(it.value) && i < json_count(it.value); i++)
            append_value(out, it.name, true, json_item(it.value, i));
    }
    json_close(object);
    return status;
}

bool facts_next(struct text_span facts, size_t *at, struct fact *out) {
    struct fact_head head;
    if (*at >= facts.size) return false;
    memcpy(&head, facts.text + *at, sizeof head);
    const char *name = facts.text + *at + sizeof head, *value = name + head.name_size;
    *at += sizeof head + head.name_size + head.value_size;
    *out = (struct fact){.name = {name, head.name_size},
                         .kind = (enum fact_kind)head.kind,
                         .listed = head.listed != 0};
    switch (out->kind) {
        case FACT_BOOL: out->truth = value[0] != 0; break;
        case FACT_INT: memcpy(&out->whole, value, sizeof out->whole); break;
        case FACT_REAL: memcpy(&out->real, value, sizeof out->real); break;
        case FACT_TEXT: out->text = (struct text_span){value, head.value_size}; break;
    }
    return true;
}

/* An integer against a real. The real is cut to a whole number where it is within the range of
 * integers. */
static int compare_mixed(int64_t whole, double real) {
    if (real >= 9223372036854775808.0) return -1;
    if (real < -9223372036854775808.0) return 1;
    int64_t cut = (int64_t)real;
    if (whole != cut) return whole < cut ? -1 : 1;
    double rest = real - (double)cut;
    return (rest < 0) - (rest > 0);
}

int fact_compare_numbers(const struct fact *left, const struct fact *right) {
    if (left->kind == FACT_INT && right->kind == FACT_INT)
        return (left->whole > right->whole) - (left->whole < right->whole);
    if (left->kind == FACT_REAL && right->kind == FACT_REAL)
        return (left->real > right->real) - (left->real < right->real);
    if (left->kind == FACT_INT) return compare_mixed(left->whole, right->real);
    return -compare_mixed(right->whole, left->real);
}

/* Dates. */

struct date_cursor {
    const char *at, *end;
};

/* `digits` digits between low and high. */
static bool take_number(struct date_cursor *cursor, int digits, int low, int high, int *out) {
    int n = 0;
    if (cursor->end - cursor->at < digits) return false;
    for (int i = 0; i < digits; i++) {
        char digit = cursor->at[i];
        if (digit < '0' || digit > '9') return false;
        n = n * 10 + (digit - '0');
    }
    cursor->at += digits;
    *out = n;
    return n >= low && n <= high;
}

static bool take_mark(struct date_cursor *cursor, char mark) {
    if (cursor->at == cursor->end || *cursor->at != mark) return false;
    cursor->at++;
    return true;
}

static int days_in_month(int year, int month) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leaps = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leaps ? 29 : days[month - 1];
}

/* Days since 1970-01-01 of the Gregorian calendar: whole years, then the months of this one. */
static int64_t count_days(int year, int month, int day) {
    int64_t before = year - 1;
    int64_t days = before * 365 + before / 4 - before / 100 + before / 400 - 719162;
    for (int m = 1; m < month; m++) days += days_in_month(year, m);
    return days + day - 1;
}

static bool take_fraction(struct date_cursor *cursor, int64_t *microseconds) {
    int64_t unit = 100000;
    if (!take_mark(cursor, '.')) return true;
    if (cursor->at == cursor->end || *cursor->at < '0' || *cursor->at > '9') return false;
    while (cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9') {
        *microseconds += (*cursor->at - '0') * unit;
        unit /= 10;
        cursor->at++;
    }
    return true;
}

/* Minutes that the clock is ahead of UTC. */
static bool take_zone(struct date_cursor *cursor, int *ahead) {
    int hours, minutes;
    *ahead = 0;
    if (cursor->at == cursor->end || take_mark(cursor, 'Z') || take_mark(cursor, 'z')) return true;
    bool east = take_mark(cursor, '+');
    if (!east && !take_mark(cursor, '-')) return false;
    if (!take_number(cursor, 2, 0, 23, &hours)) return false;
    take_mark(cursor, ':');
    if (!take_number(cursor, 2, 0, 59, &minutes)) return false;
    *ahead = (east ? 1 : -1) * (hours * 60 + minutes);
    return true;
}

static bool take_time(struct date_cursor *cursor, int64_t *microseconds) {
    int hour, minute, second = 0, ahead;
    int64_t fraction = 0;
    if (!take_number(cursor, 2, 0, 23, &hour) || !take_mark(cursor, ':') ||
        !take_number(cursor, 2, 0, 59, &minute))
        return false;
    if (take_mark(cursor, ':') &&
        (!take_number(cursor, 2, 0, 60, &second) || !take_fraction(cursor, &fraction)))
        return false;
    if (!take_zone(cursor, &ahead)) return false;
    *microseconds = ((int64_t)(hour * 60 + minute - ahead) * 60 + second) * 1000000 + fraction;
    return true;
}

bool fact_parse_date(struct text_span text, int64_t *microseconds) {
    struct date_cursor cursor = {text.text, text.text + text.size};
    int year, month, day;
    int64_t time = 0;
    if (!take_number(&cursor, 4, 1, 9999, &year) || !take_mark(&cursor, '-') ||
        !take_number(&cursor, 2, 1, 12, &month) || !take_mark(&cursor, '-') ||
        !take_number(&cursor, 2, 1, days_in_month(year, month), &day))
        return false;
    if (cursor.at < cursor.end && !take_mark(&cursor, 'T') && !take_mark(&cursor, 't') &&
        !take_mark(&cursor, ' '))
        return false;
    if (cursor.at > text.text + 10 && !take_time(&cursor, &time)) return false;
    *microseconds = count_days(year, month, day) * 86400 * 1000000 + time;
    return cursor.at == cursor.end;
}
