/* server/host/prompt/passage_list.c: see passage_list.h. */
#include "server/host/prompt/passage_list.h"

#include "config/base/text.h"

#include <string.h>

/* Sentences. */

/* Whether text[0, end) ends with the full stop, question or exclamation mark of Chinese and
 * Japanese. */
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

void passage_widen(struct hit *hit) {
    struct text_span source = hit->source;
    if (source.text == NULL || hit->start >= hit->end) return;
    size_t first = hit->start > PASSAGE_WIDEN_BYTES ? hit->start - PASSAGE_WIDEN_BYTES : 0,
           start = hit->start;
    size_t last =
        source.size - hit->end > PASSAGE_WIDEN_BYTES ? hit->end + PASSAGE_WIDEN_BYTES : source.size;
    size_t end = hit->end;
    while (end > start + 1 && is_blank(source.text[end - 1])) end--;
    while (start + 1 < end && is_blank(source.text[start])) start++;
    while (start > first && !sentence_starts(source, start)) start--;
    while (end < last && !sentence_ends(source, end)) end++;
    if (sentence_starts(source, start)) hit->start = start;
    if (sentence_ends(source, end)) hit->end = end;
    hit->text = (struct text_span){source.text + hit->start, hit->end - hit->start};
}

/* The list. */

static bool touches(const struct hit *left, const struct hit *right) {
    const struct hit *first = left->start <= right->start ? left : right,
                     *second = first == left ? right : left;
    uint64_t at = first->end;
    while (at < second->start && is_blank(first->source.text[at])) at++;
    return at >= second->start;
}

/* The more similar of the two, grown to hold both. */
static struct hit join(const struct hit *left, const struct hit *right) {
    struct hit joined = right->similarity > left->similarity ? *right : *left;
    joined.start = left->start < right->start ? left->start : right->start;
    joined.end = left->end > right->end ? left->end : right->end;
    joined.by = left->by | right->by;
    joined.text = (struct text_span){joined.source.text + joined.start, joined.end - joined.start};
    return joined;
}

int passage_list_add(struct hit *list, int n, struct hit hit) {
    int kept = 0, place = -1, behind = n;
    for (int i = 0; i < n; i++) {
        struct hit other = list[i];
        bool same = strcmp(other.document, hit.document) == 0;
        if (same && hit.source.text && touches(&other, &hit)) {
            hit = join(&other, &hit);
            if (place < 0) place = kept;
            continue;
        }
        if (same && place < 0 && other.start > hit.start) place = kept;
        list[kept] = other;
        kept++;
        if (same) behind = kept;
    }
    if (place < 0) place = min_int(behind, kept);
    memmove(list + place + 1, list + place, (size_t)(kept - place) * sizeof *list);
    list[place] = hit;
    return kept + 1;
}
