/* server/threads/tally.c: see tally.h. */
#include "server/threads/tally.h"

#include <string.h>

static int count_labels(const struct tally_form *form) {
    int n = 0;
    while (n < TALLY_LABELS && form->labels[n]) n++;
    return n;
}

static bool is_same(const struct tally_row *row, const char *const *values, int n_labels) {
    for (int i = 0; i < n_labels; i++)
        if (strcmp(row->values[i], values[i]) != 0) return false;
    return true;
}

void tally_add(struct tally *tally, const struct tally_form *form, const char *const *values,
               int n) {
    int at = 0, n_labels = count_labels(form);
    while (at < tally->n && !is_same(&tally->rows[at], values, n_labels)) at++;
    if (at == TALLY_ROWS) return;
    if (at == tally->n) {
        tally->rows[at] = (struct tally_row){0};
        memcpy(tally->rows[at].values, values, (size_t)n_labels * sizeof *values);
        tally->n++;
    }
    tally->rows[at].n += n;
}

void tally_print(const struct tally *tally, const struct tally_form *form, struct buffer *out) {
    int n_labels = count_labels(form);
    buffer_printf(out, "# HELP %s %s\n# TYPE %s counter\n", form->name, form->help, form->name);
    for (int at = 0; at < tally->n; at++) {
        const struct tally_row *row = &tally->rows[at];
        buffer_printf(out, "%s{", form->name);
        for (int i = 0; i < n_labels; i++)
            buffer_printf(out, "%s%s=\"%s\"", i ? "," : "", form->labels[i], row->values[i]);
        buffer_printf(out, "} %lld\n", (long long)row->n);
    }
}
