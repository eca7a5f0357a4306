/* server/host/prompt/passage_list.c: see passage_list.h. */
#include "server/host/prompt/passage_list.h"

#include "config/text/sentences.h"

#include <string.h>

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
