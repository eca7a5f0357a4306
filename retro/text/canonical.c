/* retro/text/canonical.c: see canonical.h. */
#include "retro/text/canonical.h"

static bool is_ascii_punctuation(int32_t c) { return c < 128 && unicode_is_punctuation(c); }

/* Appends what stays of a text in lower case. */
static void squeeze(const struct mapped_text *lower, struct mapped_buffer *out) {
    size_t blank =
        lower->size; /* where the latest white space is that waits for a word behind it */
    for (size_t at = 0; at < lower->size;) {
        int32_t c = 0;
        int n = utf8_read(lower->text + at, lower->size - at, &c);
        if (unicode_is_space(c)) {
            blank = at;
        } else if (!is_ascii_punctuation(c)) {
            if (blank < at && out->size > 0)
                mapped_append(out, " ", 1, mapped_origin(lower, blank));
            blank = lower->size;
            mapped_append(out, lower->text + at, (size_t)n, mapped_origin(lower, at));
        }
        at += (size_t)n;
    }
}

void canonical_text(const struct mapped_text *text, struct mapped_buffer *out) {
    struct mapped_buffer lower = {0};
    unicode_lowercase(text, &lower);
    struct mapped_text view = mapped_view(&lower);
    squeeze(&view, out);
    mapped_free(&lower);
}
