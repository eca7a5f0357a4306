/* server/threads/tally.h: a counter with a few labels whose values are few, as Prometheus reads it.
 * Whoever owns one guards it. */
#pragma once

#include "config/base/buffer.h"

enum { TALLY_LABELS = 3, TALLY_ROWS = 128 };

struct tally_row {
    const char *values[TALLY_LABELS];
    int64_t n;
};

struct tally_form {
    const char *name, *help;
    const char *labels[TALLY_LABELS]; /* NULL behind the last */
};

/* Zero-initialise. */
struct tally {
    struct tally_row rows[TALLY_ROWS];
    int n;
};

/* `values` are as many as the form has labels, need no escape, and outlive the tally. A value that
 * has no room, because more values come than are told apart, is not counted. */
void tally_add(struct tally *tally, const struct tally_form *form, const char *const *values,
               int n);
void tally_print(const struct tally *tally, const struct tally_form *form, struct buffer *out);
