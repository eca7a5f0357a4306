/* server/api/documents/byte_range.c: see byte_range.h. */
#include "server/api/documents/byte_range.h"

#include <string.h>
#include <strings.h>

#include "config/base/text.h"

/* Digits at *at, which moves behind them; a number that is too large is the largest. False where
 * there are none. */
static bool read_number(const char **at, uint64_t *number) {
    const char *start = *at;
    *number = 0;
    while (is_digit(**at)) {
        uint64_t digit = (uint64_t)(**at - '0');
        *number = *number > (UINT64_MAX - digit) / 10 ? UINT64_MAX : *number * 10 + digit;
        (*at)++;
    }
    return *at > start;
}

static const char *skip_blanks(const char *at) { return at + strspn(at, " \t"); }

/* "-n": the last n bytes. */
static struct byte_range read_last(const char *at, uint64_t size) {
    uint64_t n;
    if (!read_number(&at, &n) || *skip_blanks(at) != '\0')
        return (struct byte_range){RANGE_ALL, 0, size};
    if (n == 0) return (struct byte_range){RANGE_NONE, 0, 0};
    return (struct byte_range){RANGE_PART, n < size ? size - n : 0, size};
}

struct byte_range byte_range_read(const char *range, uint64_t size) {
    const struct byte_range all = {RANGE_ALL, 0, size};
    const char unit[] = "bytes=";
    uint64_t first, last = UINT64_MAX;
    if (range == NULL || strncasecmp(range, unit, sizeof unit - 1) != 0) return all;
    const char *at = skip_blanks(range + sizeof unit - 1);
    if (*at == '-') return read_last(at + 1, size);
    if (!read_number(&at, &first) || *at != '-') return all;
    at++;
    bool ended = read_number(&at, &last);
    if (*skip_blanks(at) != '\0' || (ended && last < first)) return all;
    if (first >= size) return (struct byte_range){RANGE_NONE, 0, 0};
    if (!ended || last >= size) last = size - 1;
    return (struct byte_range){RANGE_PART, first, last + 1};
}

bool entity_tags_have(const char *list, const char *tag) {
    size_t size = strlen(tag);
    if (list == NULL) return false;
    for (const char *at = list + strspn(list, " \t,"); *at; at += strspn(at, " \t,")) {
        if (*at == '*') return true;
        if (strncmp(at, "W/", 2) == 0) at += 2;
        size_t whole = strcspn(at, ","), n = whole;
        while (n > 0 && is_blank(at[n - 1])) n--;
        if (n == size && strncmp(at, tag, size) == 0) return true;
        at += whole; /* blanks of other kinds than are skipped above must not hold the loop */
    }
    return false;
}
