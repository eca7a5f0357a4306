/* retrieval/extract/sheet/format_dates.h: days and times of spreadsheets: the number of days since
 * the end of 1899, or since 1904. */
#pragma once

#include "config/base/buffer.h"

struct sheet_time {
    int year, month, day, hour, minute, second; /* day 0: the number is less than a day */
    int weekday;                                /* 0: Sunday */
    double fraction;                            /* of the second */
    double days;                                /* the number itself */
};
/* False: the number is no day of the years 1900 to 9999. */
bool sheet_time_of(double days, bool from_1904, bool to_seconds, struct sheet_time *time);
/* Appends "2024-03-05", "2024-03-05 17:30:00", or "17:30:00" of less than a day. */
void sheet_time_write(const struct sheet_time *time, struct buffer *out);
/* Appends a time as a section of a format shows it: "d. mmmm yyyy", "[h]:mm". */
void format_time(struct text_span section, const struct sheet_time *time, struct buffer *out);
