/* server/host/prompt/passage_list.c: see passage_list.h. */
#include "server/host/prompt/passage_list.h"

#include "config/base/utf8.h"
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

/* Growing. */

/* A token has no more bytes than this as a rule, so more of a text is not encoded. */
enum { TOKEN_BYTES = 16 };

static bool same_text(const struct hit *left, const struct hit *right) {
    return left->version == right->version && strcmp(left->document, right->document) == 0;
}

static struct text_range find_section(const struct passage_growth *growth, const struct hit *hit) {
    const struct text_range own = {hit->start, hit->end};
    struct text_range section = marks_find_section(hit->marks, hit->source, own);
    if (growth->min_confidence > 0)
        section = marks_keep_sure(hit->marks, section, own, growth->min_confidence);
    for (int i = 0; i < growth->n_earlier; i++) {
        const struct hit *earlier = &growth->earlier[i];
        if (!same_text(earlier, hit)) continue;
        if (earlier->end <= hit->start && earlier->end > section.start)
            section.start = earlier->end;
        if (earlier->start >= hit->end && earlier->start < section.end)
            section.end = earlier->start;
    }
    return section;
}

/* The part of the section that so many tokens may reach. */
static struct text_range bound_section(struct text_range section, const struct hit *hit,
                                       int tokens) {
    uint64_t most = (uint64_t)tokens * TOKEN_BYTES;
    if (hit->start - section.start > most) section.start = hit->start - most;
    if (section.end - hit->end > most) section.end = hit->end + most;
    while (section.start < hit->start && !utf8_begins(hit->source.text[section.start]))
        section.start++;
    while (section.end > hit->end && section.end < hit->source.size &&
           !utf8_begins(hit->source.text[section.end]))
        section.end--;
    return section;
}

/* From a cut to whole sentences, towards the hit. */
static void trim_growth(const struct hit *hit, struct text_range section,
                        struct text_range *grown) {
    const struct text_span source = hit->source;
    while (grown->start > section.start && grown->start < hit->start &&
           !sentence_starts(source, grown->start))
        grown->start++;
    while (grown->end < section.end && grown->end > hit->end && !sentence_ends(source, grown->end))
        grown->end--;
    while (grown->start < hit->start && is_blank(source.text[grown->start])) grown->start++;
    while (grown->end > hit->end && is_blank(source.text[grown->end - 1])) grown->end--;
}

/* As many tokens on both sides; one of them takes what the other does not need. */
static struct text_range share_room(const struct hit *hit, struct text_range reach,
                                    const struct tokens *before, const struct tokens *behind,
                                    int room) {
    struct text_range grown = reach;
    int n_before = min_int(before->n, max_int(room / 2, room - behind->n)),
        n_behind = min_int(behind->n, room - n_before);
    if (n_before == 0)
        grown.start = hit->start;
    else if (n_before < before->n)
        grown.start += before->starts[before->n - n_before];
    if (n_behind < behind->n) grown.end = hit->end + behind->starts[n_behind];
    return grown;
}

void passage_grow(const struct passage_growth *growth, struct hit *hit, int tokens) {
    struct tokens before = {0}, behind = {0};
    struct error e;
    if (hit->source.text == NULL || hit->start >= hit->end || tokens <= 0) return;
    const char *text = hit->source.text;
    struct text_range section = find_section(growth, hit),
                      reach = bound_section(section, hit, tokens), grown;
    enum status status = tokenizer_encode(growth->tokenizer, text + reach.start,
                                          hit->start - reach.start, TOKENIZER_PLAIN, &before, &e);
    if (status == STATUS_OK)
        status = tokenizer_encode(growth->tokenizer, text + hit->end, reach.end - hit->end,
                                  TOKENIZER_PLAIN, &behind, &e);
    if (status == STATUS_OK) {
        grown = share_room(hit, reach, &before, &behind, tokens);
        trim_growth(hit, section, &grown);
        hit->start = grown.start;
        hit->end = grown.end;
        hit->text = (struct text_span){text + hit->start, hit->end - hit->start};
    }
    tokens_free(&before);
    tokens_free(&behind);
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
