/* retrieval/extract/page/layout_lines.c: the words of a region to lines. See layout_private.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/page/layout_private.h"

/* The part of a word's box that its small letters fill: boxes of neighbouring lines may overlap. */
static struct page_rect core_of(const struct layout_word *word) {
    struct page_rect core = word->box;
    float cut = 0.2F * rect_height(&core);
    core.top += cut;
    core.bottom -= cut;
    return core;
}

static float overlap(const struct page_rect *a, const struct page_rect *b) {
    float shared = fminf(a->bottom, b->bottom) - fmaxf(a->top, b->top),
          least = fminf(rect_height(a), rect_height(b));
    return least > 0 ? shared / least : 0;
}

static int compare_middles(const void *left, const void *right) {
    const struct layout_word *a = left, *b = right;
    float x = rect_middle(&a->box), y = rect_middle(&b->box);
    return (x > y) - (x < y);
}

static int compare_lefts(const void *left, const void *right) {
    const struct layout_word *a = left, *b = right;
    return (a->box.left > b->box.left) - (a->box.left < b->box.left);
}

/* Lines that are being gathered. */

struct gathered_line {
    struct page_rect core; /* of its largest word */
};

struct numbered_word {
    struct layout_word word;
    int line;
};

enum { OPEN_LINES = 3 }; /* that a word may still belong to */

static int take_word(struct gathered_line *lines, int *n, const struct layout_word *word) {
    struct page_rect core = core_of(word);
    int best = -1;
    float most = 0.5F;
    for (int i = *n > OPEN_LINES ? *n - OPEN_LINES : 0; i < *n; i++) {
        float shared = overlap(&lines[i].core, &core);
        if (shared < most) continue;
        most = shared;
        best = i;
    }
    if (best < 0) {
        lines[*n].core = core;
        (*n)++;
        return *n - 1;
    }
    if (rect_height(&core) > rect_height(&lines[best].core)) lines[best].core = core;
    return best;
}

static int compare_numbered(const void *left, const void *right) {
    const struct numbered_word *a = left, *b = right;
    if (a->line != b->line) return a->line - b->line;
    return compare_lefts(&a->word, &b->word);
}

/* Whether a small word touches a larger one, to whose line it belongs though it is raised or
 * lowered. */
static bool touches(const struct layout_word *small, const struct layout_word *large) {
    float gap = fmaxf(small->box.left - large->box.right, large->box.left - small->box.right);
    return small->size < 0.82F * large->size && gap < 0.25F * large->size &&
           gap > -0.6F * large->size && overlap(&small->box, &large->box) > 0.2F;
}

/* Words [line[0], line[1]) are a line, from the left; whether the word at `at` touches one of them:
 * those that begin nearest to it are looked at. */
static bool touches_line(const struct numbered_word *words, const int line[2], int at) {
    enum { NEAR = 4 };
    int low = line[0], high = line[1];
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (words[middle].word.box.left < words[at].word.box.left)
            low = middle + 1;
        else
            high = middle;
    }
    for (int i = max_int(line[0], low - NEAR); i < min_int(line[1], low + NEAR); i++)
        if (touches(&words[at].word, &words[i].word)) return true;
    return false;
}

/* Words of small lines go to the neighbouring line that they touch. */
static void join_small(struct numbered_word *words, int n) {
    int before[2] = {0, 0}, here[2] = {0, 0}, next[2] = {0, 0};
    int *moved = xcalloc((size_t)n + 1, sizeof *moved);
    for (int i = 0; i < n; i++) moved[i] = words[i].line;
    while (next[0] < n) {
        next[1] = next[0];
        while (next[1] < n && words[next[1]].line == words[next[0]].line) next[1]++;
        for (int i = here[0]; i < here[1]; i++) {
            if (touches_line(words, next, i))
                moved[i] = words[next[0]].line;
            else if (touches_line(words, before, i))
                moved[i] = words[before[0]].line;
        }
        for (int i = next[0]; i < next[1]; i++)
            if (touches_line(words, here, i)) moved[i] = words[here[0]].line;
        memcpy(before, here, sizeof before);
        memcpy(here, next, sizeof here);
        next[0] = next[1];
    }
    for (int i = 0; i < n; i++) words[i].line = moved[i];
    free(moved);
}

void layout_gather_rows(struct layout_word *words, int n, int *row_of) {
    struct gathered_line *lines = xcalloc((size_t)n + 1, sizeof *lines);
    struct numbered_word *numbered = xcalloc((size_t)n + 1, sizeof *numbered);
    int n_lines = 0;
    if (n > 1) qsort(words, (size_t)n, sizeof *words, compare_middles);
    for (int i = 0; i < n; i++)
        numbered[i] = (struct numbered_word){words[i], take_word(lines, &n_lines, &words[i])};
    qsort(numbered, (size_t)n, sizeof *numbered, compare_numbered);
    join_small(numbered, n);
    qsort(numbered, (size_t)n, sizeof *numbered, compare_numbered);
    for (int i = 0; i < n; i++) {
        words[i] = numbered[i].word;
        row_of[i] = numbered[i].line;
    }
    free(lines);
    free(numbered);
}

/* Facts of a line. */

static int letters_of(const struct layout_word *word) {
    return (int)utf8_count(word->text.text, word->text.size);
}

static void weigh_line(struct layout_line *line) {
    int letters = 0, bold = 0, fixed = 0, most = 0;
    for (int i = 0; i < line->n; i++) {
        const struct layout_word *word = &line->words[i];
        int weight = letters_of(word), same = 0;
        letters += weight;
        bold += word->source->bold ? weight : 0;
        fixed += word->source->fixed_pitch ? weight : 0;
        for (int j = i; j < line->n && j < i + 32; j++)
            if (fabsf(line->words[j].size - word->size) < 0.25F)
                same += letters_of(&line->words[j]);
        if (same > most) {
            most = same;
            line->size = word->size;
        }
    }
    line->bold = bold * 2 > letters;
    line->fixed = fixed * 5 > letters * 4;
}

/* Small raised words that touch the one before. */
static void find_raised(struct layout_word *words, int n, float size) {
    for (int i = 0; i < n; i++) {
        struct layout_word *word = &words[i];
        const struct layout_word *near = i > 0 ? &words[i - 1] : n > 1 ? &words[1] : NULL;
        if (near == NULL || word->size > 0.82F * size) continue;
        bool touches = i == 0 || word->box.left - near->box.right < 0.18F * size;
        bool raised = word->box.bottom < near->box.bottom - 0.12F * size &&
                      rect_middle(&word->box) < rect_middle(&near->box);
        word->raised = touches && raised && !near->raised;
        if (word->raised && i > 0) word->glued = true;
    }
}

/* Letters that are set wide, "R E P O R T", with equal gaps: nothing else stands on the line. */
static void join_wide(struct layout_word *words, int n, float size) {
    float least = INFINITY;
    if (n < 4) return;
    for (int i = 0; i < n; i++)
        if (utf8_length(words[i].text.text, words[i].text.size) != (int)words[i].text.size) return;
    for (int i = 1; i < n; i++) least = fminf(least, words[i].box.left - words[i - 1].box.right);
    if (least <= 0 || least > 1.5F * size) return;
    for (int i = 1; i < n; i++)
        words[i].glued = words[i].box.left - words[i - 1].box.right < 1.5F * least + 0.1F * size;
}

static void add_line(struct page_layout *layout, const struct layout_region *region,
                     struct layout_word *words, int n) {
    struct layout_line line = {.words = words,
                               .n = n,
                               .page = region->page,
                               .box = words[0].box,
                               .region = layout->n_regions,
                               .left = region->box.left,
                               .right = region->box.right,
                               .table = -1,
                               .aside = region->aside};
    weigh_line(&line);
    find_raised(words, n, line.size);
    join_wide(words, n, line.size);
    line.box = (struct page_rect){INFINITY, INFINITY, -INFINITY, -INFINITY};
    for (int i = 0; i < n; i++)
        if (!words[i].raised || n == 1) rect_extend(&line.box, &words[i].box);
    if (!(line.box.right > line.box.left)) line.box = words[0].box;
    buffer_append(&layout->lines, &line, sizeof line);
}

static void measure_pitches(struct layout_line *lines, int first, int n) {
    for (int i = first + 1; i < n; i++)
        lines[i].pitch = fmaxf(lines[i].box.bottom - lines[i - 1].box.bottom, 0.01F);
}

/* A table in place of words. */
static void add_table(struct page_layout *layout, const struct layout_region *region, int table) {
    struct layout_line line = {.page = region->page,
                               .box = layout_table(layout, table)->box,
                               .region = layout->n_regions,
                               .left = region->box.left,
                               .right = region->box.right,
                               .table = table,
                               .aside = region->aside};
    buffer_append(&layout->lines, &line, sizeof line);
}

/* Tables of the region that lie above a line go before it. */
static int add_tables_above(struct page_layout *layout, const struct layout_region *region,
                            int done, float top) {
    while (done < region->n_tables &&
           rect_middle(&layout_table(layout, region->tables[done])->box) < top) {
        add_table(layout, region, region->tables[done]);
        done++;
    }
    return done;
}

void layout_add_region(struct page_layout *layout, const struct layout_region *region) {
    int *line_of = xcalloc((size_t)region->n + 1, sizeof *line_of), before, n, tables = 0;
    layout_lines(layout, &before);
    layout_gather_rows(region->words, region->n, line_of);
    for (int first = 0; first < region->n;) {
        int end = first;
        while (end < region->n && line_of[end] == line_of[first]) end++;
        tables = add_tables_above(layout, region, tables, rect_middle(&region->words[first].box));
        add_line(layout, region, region->words + first, end - first);
        first = end;
    }
    add_tables_above(layout, region, tables, INFINITY);
    struct layout_line *lines = layout_lines(layout, &n);
    measure_pitches(lines, before, n);
    layout->n_regions++;
    free(line_of);
}
