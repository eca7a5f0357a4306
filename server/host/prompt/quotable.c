/* server/host/prompt/quotable.c: see quotable.h. */
#include "server/host/prompt/quotable.h"

#include "config/base/text.h"

static bool is_blank_at(struct text_span text, size_t at) { return is_blank(text.text[at]); }

struct passage_text quotable_text(const struct hit *hit, struct text_span text) {
    struct passage_text shown = {.text = text};
    size_t end = hit->start + text.size;
    if (hit->path == NULL || text.size == 0) return shown;
    if (hit->source.text == NULL) {
        shown.torn_start = hit->start > 0;
        shown.torn_end = true;
        return shown;
    }
    shown.torn_start =
        hit->start > 0 && !is_blank_at(hit->source, hit->start - 1) && !is_blank_at(text, 0);
    shown.torn_end = end < hit->source.size && !is_blank_at(hit->source, end) &&
                     !is_blank_at(text, text.size - 1);
    return shown;
}
