/* retrieval/extract/page/layout_blocks.c: where one paragraph ends and the next begins. See
 * layout_private.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "config/base/utf8.h"
#include "retrieval/extract/page/layout_private.h"

/* Words. */

static bool is_bullet(struct text_span text) {
    static const char *const bullets[] = {"•", "◦", "▪", "■", "□",           "●", "○",
                                          "‣", "⁃", "∙", "·", "-",           "–", "—",
                                          "*", "►", "➢", "✓", "\xef\x82\xb7"};
    for (size_t i = 0; i < ARRAY_COUNT(bullets); i++)
        if (span_is(text, bullets[i])) return true;
    return false;
}

/* "12." "a)" "(iv)" */
static bool is_number(struct text_span text) {
    bool opened = text.size > 2 && text.text[0] == '(';
    size_t at = opened, digits = 0, letters = 0;
    while (at < text.size && is_digit(text.text[at])) at++, digits++;
    while (digits == 0 && at < text.size && strchr("abcdefghivx", text.text[at])) at++, letters++;
    bool closed =
        at + 1 == text.size && (text.text[at] == ')' || (text.text[at] == '.' && !opened));
    return closed && ((digits > 0 && digits < 4) || (letters > 0 && letters < 5)) &&
           (letters < 2 || text.text[opened] == 'i' || text.text[opened] == 'v' ||
            text.text[opened] == 'x');
}

bool text_is_marker(struct text_span text) { return is_bullet(text) || is_number(text); }

bool text_is_leader(struct text_span text) {
    if (span_is(text, "…")) return true;
    for (size_t i = 0; i < text.size; i++)
        if (text.text[i] != '.') return false;
    return text.size > 0;
}

bool line_has_marker(const struct layout_line *line) {
    if (line->n < 2) return false;
    return text_is_marker(line->words[0].text);
}

/* The last word that is no mark of a note. */
static struct text_span last_text(const struct layout_line *line) {
    int i = line->n - 1;
    while (i > 0 && line->words[i].raised) i--;
    return i >= 0 ? line->words[i].text : (struct text_span){"", 0};
}

bool line_ends_with(const struct layout_line *line, const char *const *endings) {
    struct text_span text = last_text(line);
    for (; *endings; endings++)
        if (span_ends_with(text, *endings)) return true;
    return false;
}

bool line_ends_sentence(const struct layout_line *line) {
    static const char *const endings[] = {".",  "!",  "?",  ":",  ".”", ".\"", "?”",
                                          "!”", ".)", ".’", "”.", ").", NULL};
    return line_ends_with(line, endings);
}

static bool starts_small(const struct layout_line *line) {
    char c = line->n > 0 ? line->words[0].text.text[0] : ' ';
    return c >= 'a' && c <= 'z';
}

/* Paragraphs. */

struct grouping {
    struct page_layout *layout;
    const struct layout_line *lines;
    float *pitches; /* [n] the usual pitch around each line */
    int n;
};

static int compare_floats(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

/* The least of usual distances in a region: a quarter of them are smaller. */
static void find_pitches(struct grouping *grouping) {
    float *sorted = xcalloc((size_t)grouping->n + 1, sizeof *sorted);
    for (int first = 0, end; first < grouping->n; first = end) {
        int n = 0;
        float size = grouping->lines[first].size, usual = 1.3F * size;
        for (end = first; end < grouping->n; end++) {
            const struct layout_line *line = &grouping->lines[end];
            bool same = line->region == grouping->lines[first].region &&
                        fabsf(line->size - size) < 0.1F * size;
            if (end > first && !same) break;
            if (line->pitch > 0.7F * size && line->pitch < 2.5F * size && end > first) {
                sorted[n] = line->pitch;
                n++;
            }
        }
        qsort(sorted, (size_t)n, sizeof *sorted, compare_floats);
        if (n > 1) usual = sorted[n / 3];
        for (int i = first; i < end; i++) grouping->pitches[i] = usual;
    }
    free(sorted);
}

/* Whether the next line's first word would have stood on this one: whoever broke it there meant
 * to. */
static bool has_room(const struct layout_line *line, const struct layout_line *next) {
    float word = next->n > 0 ? rect_width(&next->words[0].box) : 0;
    return line->box.right + word + 0.8F * line->size < line->right;
}

static bool is_other_type(const struct layout_line *line, const struct layout_line *next) {
    return fabsf(line->size - next->size) > 0.07F * line->size || line->fixed != next->fixed ||
           line->bold != next->bold;
}

/* Lines of a block hang at one edge from the second on. */
static bool is_indented(const struct grouping *grouping, const struct layout_block *block,
                        const struct layout_line *next) {
    const struct layout_line *first = &grouping->lines[block->first],
                             *line = &grouping->lines[block->first + block->n - 1];
    float step = 0.8F * line->size;
    if (block->n == 1) {
        bool hangs = line_has_marker(first) || starts_small(next) || !line_ends_sentence(line);
        return next->box.left > line->box.left + step && !hangs;
    }
    return next->box.left > line->box.left + step &&
           (line_ends_sentence(line) || !starts_small(next));
}

static bool is_centered(const struct layout_line *line) {
    float left = line->box.left - line->left, right = line->right - line->box.right;
    return left > line->size && right > line->size && fabsf(left - right) < 2 * line->size;
}

static bool breaks_code(const struct grouping *grouping, const struct layout_line *next, int i) {
    return next->pitch > 2.6F * grouping->pitches[i];
}

/* Whether line i begins a new block behind this one, which ends with line i - 1. */
static bool begins_block(const struct grouping *grouping, const struct layout_block *block, int i) {
    const struct layout_line *line = &grouping->lines[i - 1], *next = &grouping->lines[i];
    if (next->table >= 0 || line->table >= 0 || next->region != line->region) return true;
    if (is_other_type(line, next)) return true;
    if (next->fixed && line->fixed) return breaks_code(grouping, next, i);
    if (next->pitch > 1.3F * fmaxf(grouping->pitches[i], line->size)) return true;
    bool ends = line_ends_sentence(line), room = has_room(line, next);
    if (line_has_marker(next) &&
        (ends || room || block->kind == BLOCK_LIST_ITEM || !starts_small(next)) &&
        (block->kind == BLOCK_LIST_ITEM || room ||
         next->box.left > line->box.left + 0.5F * line->size))
        return true;
    if (is_centered(line) && is_centered(next)) return false;
    if (is_indented(grouping, block, next)) return true;
    if (block->kind == BLOCK_LIST_ITEM &&
        next->box.left < grouping->lines[block->first].box.left - 0.5F * line->size)
        return true;
    return room && ends && !starts_small(next);
}

static void begin_block(struct grouping *grouping, int i) {
    const struct layout_line *line = &grouping->lines[i];
    struct layout_block block = {.kind = BLOCK_PARAGRAPH,
                                 .first = i,
                                 .n = 1,
                                 .table = line->table,
                                 .goes_on = -1,
                                 .behind = -1,
                                 .next_behind = -1,
                                 .first_behind = -1};
    if (line->table >= 0)
        block.kind = BLOCK_TABLE_ROW;
    else if (line->fixed)
        block.kind = BLOCK_CODE;
    else if (line_has_marker(line))
        block.kind = BLOCK_LIST_ITEM;
    buffer_append(&grouping->layout->blocks, &block, sizeof block);
}

void layout_find_blocks(struct page_layout *layout) {
    struct grouping grouping = {.layout = layout};
    grouping.lines = layout_lines(layout, &grouping.n);
    grouping.pitches = xcalloc((size_t)grouping.n + 1, sizeof *grouping.pitches);
    find_pitches(&grouping);
    for (int i = 0; i < grouping.n; i++) {
        int n;
        struct layout_block *blocks = layout_blocks(layout, &n);
        if (n == 0 || begins_block(&grouping, &blocks[n - 1], i))
            begin_block(&grouping, i);
        else
            blocks[n - 1].n++;
    }
    free(grouping.pitches);
}
