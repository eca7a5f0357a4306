/* retrieval/marks.c: see marks.h. */
#include "retrieval/marks.h"

#include <string.h>

static struct mark mark_at(struct mark_span marks, uint32_t i) {
    struct mark mark;
    memcpy(&mark, (const char *)marks.bytes + (size_t)i * sizeof mark, sizeof mark);
    return mark;
}

static bool mark_is_sound(const struct mark *mark, uint64_t text_size) {
    bool is_heading = mark->kind == MARK_HEADING,
         counts = mark->kind == MARK_PAGE || mark->kind == MARK_LINE;
    if (mark->zero != 0 || mark->at > text_size) return false;
    if (is_heading)
        return mark->level >= 1 && mark->level <= MARK_LEVELS &&
               mark->value <= text_size - mark->at;
    return mark->level == 0 && (counts ? mark->value > 0 && mark->value <= INT32_MAX
                                       : mark->kind == MARK_NO_LINE && mark->value == 0);
}

const char *marks_fault(struct mark_span marks, uint64_t text_size) {
    uint32_t last = 0;
    for (uint32_t i = 0; i < marks.n; i++) {
        struct mark mark = mark_at(marks, i);
        if (mark.at < last) return "its marks are not in the order of the text";
        if (!mark_is_sound(&mark, text_size))
            return "a mark leads out of its text, or is of no known kind";
        last = mark.at;
    }
    return NULL;
}

void marks_add(struct buffer *marks, enum mark_kind kind, int level, size_t at, size_t value) {
    if (at > UINT32_MAX || value > INT32_MAX) return;
    struct mark mark = {.at = (uint32_t)at,
                        .kind = (uint8_t)kind,
                        .level = (uint8_t)level,
                        .value = (uint32_t)value};
    buffer_append(marks, &mark, sizeof mark);
}

bool marks_equal(struct mark_span left, struct mark_span right) {
    return left.n == right.n && (left.n == 0 || memcmp(left.bytes, right.bytes,
                                                       (size_t)left.n * sizeof(struct mark)) == 0);
}

static uint32_t count_newlines(struct text_span text, size_t from, size_t end) {
    uint32_t n = 0;
    while (from < end) {
        const char *newline = memchr(text.text + from, '\n', end - from);
        if (newline == NULL) break;
        n++;
        from = (size_t)(newline - text.text) + 1;
    }
    return n;
}

/* The path of headings at each level; one of a level ends those below it. */
struct heading_path {
    struct text_span of_level[MARK_LEVELS + 1];
};

static void pass_heading(struct heading_path *path, const struct mark *mark,
                         struct text_span text) {
    path->of_level[mark->level] = (struct text_span){text.text + mark->at, mark->value};
    for (int level = mark->level + 1; level <= MARK_LEVELS; level++) path->of_level[level].size = 0;
}

/* The first byte from `at` on that is none of these. */
static size_t skip_all(struct text_span text, size_t at, const char *these) {
    while (at < text.size && text.text[at] && strchr(these, text.text[at])) at++;
    return at;
}

struct document_place place_find(struct mark_span marks, struct text_span text, uint64_t at) {
    struct document_place place = {0};
    struct heading_path path = {0};
    struct mark line = {0};
    size_t here = at < text.size ? (size_t)at : text.size;
    here = skip_all(text, here, " \t\r\n\f\v");
    size_t inside = skip_all(text, here, " \t\r\n\f\v#=-~*^+");
    for (uint32_t i = 0; i < marks.n; i++) {
        struct mark mark = mark_at(marks, i);
        if (mark.at > inside) break;
        if (mark.kind == MARK_HEADING) pass_heading(&path, &mark, text);
        if (mark.at > here) continue;
        if (mark.kind == MARK_PAGE) place.page = mark.value;
        if (mark.kind == MARK_LINE || mark.kind == MARK_NO_LINE) line = mark;
    }
    if (line.value > 0) place.line = line.value + count_newlines(text, line.at, here);
    for (int level = 1; level <= MARK_LEVELS; level++)
        if (path.of_level[level].size > 0) {
            place.headings[place.n_headings] = path.of_level[level];
            place.n_headings++;
        }
    return place;
}

bool marks_find_page(struct mark_span marks, uint64_t text_size, uint32_t page,
                     struct text_range *out) {
    bool found = false;
    *out = (struct text_range){0, text_size};
    for (uint32_t i = 0; i < marks.n; i++) {
        struct mark mark = mark_at(marks, i);
        if (mark.kind != MARK_PAGE) continue;
        if (found) {
            out->end = mark.at;
            return true;
        }
        found = mark.value == page;
        if (found) out->start = mark.at;
    }
    return found;
}

uint32_t marks_last_page(struct mark_span marks) {
    uint32_t last = 0;
    for (uint32_t i = 0; i < marks.n; i++) {
        struct mark mark = mark_at(marks, i);
        if (mark.kind == MARK_PAGE && mark.value > last) last = mark.value;
    }
    return last;
}
