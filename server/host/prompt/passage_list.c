/* server/host/prompt/passage_list.c: see passage_list.h. */
#include "server/host/prompt/passage_list.h"

#include "config/base/text.h"

#include <string.h>

/* Sentences. */

/* Whether text[0, end) ends with the full stop, question or exclamation mark of Chinese and Japanese. */
static bool ends_with_wide_mark(struct text_span text, size_t end) {
    static const char *const marks[] = {"\u3002", "\uff01", "\uff1f"};
    for (size_t i = 0; i < ARRAY_COUNT(marks); i++) {
        size_t n = strlen(marks[i]);
        if (end >= n && memcmp(text.text + end - n, marks[i], n) == 0) return true;
    }
    return false;
}

/* Whether text[0, end) ends with . ! or ?, and quotes and brackets that close behind it. */
static bool ends_with_mark(struct text_span text, size_t end) {
    while (end > 0 && strchr("\"')]*_", text.text[end - 1]) && text.text[end - 1]) end--;
    return end > 0 && strchr(".!?", text.text[end - 1]) && text.text[end - 1];
}

/* Whether the blanks from `at` on hold an empty line. */
static bool parts_paragraphs(struct text_span text, size_t at) {
    int lines = 0;
    for (; at < text.size && is_blank(text.text[at]); at++) lines += text.text[at] == '\n';
    return lines > 1;
}

static bool sentence_ends(struct text_span text, size_t end) {
    if (end == text.size || ends_with_wide_mark(text, end)) return true;
    if (!is_blank(text.text[end])) return false;
    return parts_paragraphs(text, end) || ends_with_mark(text, end);
}

static bool sentence_starts(struct text_span text, size_t at) {
    size_t end = at;
    while (end > 0 && is_blank(text.text[end - 1])) end--;
    return end == 0 || (!is_blank(text.text[at]) && sentence_ends(text, end));
}

void passage_widen(struct hit *h) {
    struct text_span source = h->source;
    if (source.text == NULL || h->start >= h->end) return;
    size_t first = h->start > PASSAGE_WIDEN_BYTES ? h->start - PASSAGE_WIDEN_BYTES : 0, start = h->start;
    size_t last = source.size - h->end > PASSAGE_WIDEN_BYTES ? h->end + PASSAGE_WIDEN_BYTES : source.size;
    size_t end = h->end;
    while (end > start + 1 && is_blank(source.text[end - 1])) end--;
    while (start + 1 < end && is_blank(source.text[start])) start++;
    while (start > first && !sentence_starts(source, start)) start--;
    while (end < last && !sentence_ends(source, end)) end++;
    if (sentence_starts(source, start)) h->start = start;
    if (sentence_ends(source, end)) h->end = end;
    h->text = (struct text_span){source.text + h->start, h->end - h->start};
}

/* The list. */

static bool touches(const struct hit *a, const struct hit *b) {
    const struct hit *first = a->start <= b->start ? a : b, *second = first == a ? b : a;
    uint64_t at = first->end;
    while (at < second->start && is_blank(first->source.text[at])) at++;
    return at >= second->start;
}

/* The more similar of the two, grown to hold both. */
static struct hit join(const struct hit *a, const struct hit *b) {
    struct hit joined = b->similarity > a->similarity ? *b : *a;
    joined.start = a->start < b->start ? a->start : b->start;
    joined.end = a->end > b->end ? a->end : b->end;
    joined.by = a->by | b->by;
    joined.text = (struct text_span){joined.source.text + joined.start, joined.end - joined.start};
    return joined;
}

int passage_list_add(struct hit *list, int n, struct hit h) {
    int kept = 0, place = -1, behind = n;
    for (int i = 0; i < n; i++) {
        struct hit other = list[i];
        bool same = strcmp(other.document, h.document) == 0;
        if (same && h.source.text && touches(&other, &h)) {
            h = join(&other, &h);
            if (place < 0) place = kept;
            continue;
        }
        if (same && place < 0 && other.start > h.start) place = kept;
        list[kept] = other;
        kept++;
        if (same) behind = kept;
    }
    if (place < 0) place = min_int(behind, kept);
    memmove(list + place + 1, list + place, (size_t)(kept - place) * sizeof *list);
    list[place] = h;
    return kept + 1;
}
