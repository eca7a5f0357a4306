/* retrieval/marks.c: see marks.h. */
#include "retrieval/marks.h"

#include <string.h>

static struct mark mark_at(struct mark_span marks, uint32_t i) {
    struct mark mark;
    memcpy(&mark, (const char *)marks.bytes + (size_t)i * sizeof mark, sizeof mark);
    return mark;
}

static bool mark_is_sound(const struct mark *m, uint64_t text_size) {
    bool is_heading = m->kind == MARK_HEADING, counts = m->kind == MARK_PAGE || m->kind == MARK_LINE;
    if (m->zero != 0 || m->at > text_size) return false;
    if (is_heading) return m->level >= 1 && m->level <= MARK_LEVELS && m->value <= text_size - m->at;
    return m->level == 0 && (counts ? m->value > 0 && m->value <= INT32_MAX : m->kind == MARK_NO_LINE && m->value == 0);
}

const char *marks_fault(struct mark_span marks, uint64_t text_size) {
    uint32_t last = 0;
    for (uint32_t i = 0; i < marks.n; i++) {
        struct mark m = mark_at(marks, i);
        if (m.at < last) return "its marks are not in the order of the text";
        if (!mark_is_sound(&m, text_size)) return "a mark leads out of its text, or is of no known kind";
        last = m.at;
    }
    return NULL;
}

void marks_add(struct buffer *marks, enum mark_kind kind, int level, size_t at, size_t value) {
    if (at > UINT32_MAX || value > INT32_MAX) return;
    struct mark m = {.at = (uint32_t)at, .kind = (uint8_t)kind, .level = (uint8_t)level, .value = (uint32_t)value};
    buffer_append(marks, &m, sizeof m);
}

bool marks_equal(struct mark_span a, struct mark_span b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.bytes, b.bytes, (size_t)a.n * sizeof(struct mark)) == 0);
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

static void pass_heading(struct heading_path *path, const struct mark *m, struct text_span text) {
    path->of_level[m->level] = (struct text_span){text.text + m->at, m->value};
    for (int level = m->level + 1; level <= MARK_LEVELS; level++) path->of_level[level].size = 0;
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
        struct mark m = mark_at(marks, i);
        if (m.at > inside) break;
        if (m.kind == MARK_HEADING) pass_heading(&path, &m, text);
        if (m.at > here) continue;
        if (m.kind == MARK_PAGE) place.page = m.value;
        if (m.kind == MARK_LINE || m.kind == MARK_NO_LINE) line = m;
    }
    if (line.value > 0) place.line = line.value + count_newlines(text, line.at, here);
    for (int level = 1; level <= MARK_LEVELS; level++)
        if (path.of_level[level].size > 0) {
            place.headings[place.n_headings] = path.of_level[level];
            place.n_headings++;
        }
    return place;
}
