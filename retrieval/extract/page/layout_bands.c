/* retrieval/extract/page/layout_bands.c: rows that follow one another and that the same white
 * strips go through. See layout_bands.h. */
#include "retrieval/extract/page/layout_bands.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"

enum { BINS = 1024 }; /* over the width of a part */

/* White strips. */

struct cover {
    uint16_t bins[BINS]; /* rows that have a word there */
    struct page_rect box;
};

static int bin_of(const struct cover *cover, float x) {
    float width = rect_width(&cover->box);
    int bin = width > 0 ? (int)((x - cover->box.left) / width * BINS) : 0;
    return bin < 0 ? 0 : min_int(bin, BINS - 1);
}

static void cover_span(bool *row, const struct cover *cover, const struct page_rect *box) {
    int from = bin_of(cover, box->left), to = bin_of(cover, box->right);
    for (int bin = from; bin <= to; bin++) row[bin] = true;
}

/* Adds a row, and the tables that stand beside it. */
static void cover_row(struct cover *cover, const struct page_cutter *cutter,
                      const struct part *part, const struct cut_row *row) {
    bool covered[BINS] = {false};
    for (int i = row->first; i < row->end; i++) {
        struct page_rect box = part->words[i].box;
        bool after = i > row->first && text_is_leader(part->words[i - 1].text);
        /* Dots lead from a title to its page: there is no strip in them. */
        if (i > row->first && (after || text_is_leader(part->words[i].text)))
            box.left = fminf(box.left, part->words[i - 1].box.right);
        cover_span(covered, cover, &box);
    }
    for (int i = 0; i < part->n_tables; i++) {
        const struct page_rect *box = &layout_table(cutter->layout, part->tables[i])->box;
        if (box->top < row->box.bottom && box->bottom > row->box.top)
            cover_span(covered, cover, box);
    }
    for (int bin = 0; bin < BINS; bin++)
        if (covered[bin] && cover->bins[bin] < UINT16_MAX) cover->bins[bin]++;
}

/* The strips with at most `most` rows across them, at least so wide; those at the sides too where
 * they are as wide as a column. */
static int find_strips(const struct cover *cover, int most, float least, bool sides,
                       struct strip *strips) {
    float step = rect_width(&cover->box) / BINS;
    int n = 0, start = -1;
    for (int bin = 0; bin <= BINS; bin++) {
        bool white = bin < BINS && cover->bins[bin] <= most;
        if (white && start < 0) start = bin;
        if (white || start < 0) continue;
        float width = (float)(bin - start) * step;
        bool side = start == 0 || bin == BINS;
        bool wide = side ? sides && width > 0.15F * rect_width(&cover->box) : width >= least;
        if (wide && n < MAX_STRIPS) {
            strips[n] = (struct strip){cover->box.left + (float)start * step,
                                       cover->box.left + (float)bin * step};
            n++;
        }
        start = -1;
    }
    return n;
}

/* Bands. */

static float least_strip(const struct page_cutter *cutter, int n_rows) {
    if (n_rows >= 6) return 0.45F * cutter->size;
    return n_rows >= 3 ? 0.9F * cutter->size : 1.8F * cutter->size;
}

/* Rows of the band with words on both sides of a strip, and on each. */
static void count_sides(const struct part *part, const struct part_rows *rows,
                        const struct band *band, const struct strip *strip, int counts[3]) {
    counts[0] = counts[1] = counts[2] = 0;
    for (int i = band->first; i < band->end; i++) {
        bool left = false, right = false;
        for (int j = rows->list[i].first; j < rows->list[i].end; j++) {
            float x = rect_center(&part->words[j].box);
            left |= x < strip->left;
            right |= x > strip->right;
        }
        counts[0] += left;
        counts[1] += right;
        counts[2] += left && right;
    }
}

/* "3.1" before a title. */
static bool is_section_number(struct text_span text) {
    size_t dots = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (!is_digit(text.text[i]) && text.text[i] != '.') return false;
        dots += text.text[i] == '.';
    }
    return dots > 0 && text.size < 10;
}

/* Whether what follows the mark in its row is words. */
static bool leads_words(const struct part *part, const struct cut_row *row) {
    return row->first + 2 < row->end && !is_digit(part->words[row->first + 1].text.text[0]);
}

/* The marks of a list may stand before a strip, and are no column. */
static bool is_marker_column(const struct part *part, const struct part_rows *rows,
                             const struct band *band, const struct strip *strip) {
    int marks = 0, others = 0;
    for (int i = band->first; i < band->end; i++)
        for (int j = rows->list[i].first; j < rows->list[i].end; j++) {
            const struct layout_word *word = &part->words[j];
            if (rect_center(&word->box) > strip->left) break;
            bool first = j == rows->list[i].first;
            bool mark =
                first && (text_is_marker(word->text) ||
                          (is_section_number(word->text) && leads_words(part, &rows->list[i])));
            marks += mark;
            others += !mark;
        }
    return marks > 0 && others <= marks / 4;
}

static void keep_supported(const struct part *part, const struct part_rows *rows,
                           struct band *band) {
    int kept = 0;
    for (int i = 0; i < band->n_strips; i++) {
        int counts[3];
        count_sides(part, rows, band, &band->strips[i], counts);
        bool supported =
            counts[0] >= 2 && counts[1] >= 2 && (counts[2] > 0 || band->end - band->first > 4);
        if (!supported || is_marker_column(part, rows, band, &band->strips[i])) continue;
        band->strips[kept] = band->strips[i];
        kept++;
    }
    band->n_strips = kept;
}

static float row_gap(const struct part_rows *rows, int i) {
    return i > 0 ? rows->list[i].box.top - rows->list[i - 1].box.bottom : 0;
}

static float usual_gap(const struct part_rows *rows) {
    float sum = 0;
    int n = 0;
    for (int i = 1; i < rows->n; i++) {
        float gap = row_gap(rows, i);
        if (gap > 12) continue;
        sum += gap;
        n++;
    }
    return n > 0 ? sum / (float)n : 2;
}

/* A line of prose, from the left edge on and without a wide gap. */
static bool is_prose_row(const struct page_cutter *cutter, const struct part *part,
                         const struct part_rows *rows, int i) {
    const struct cut_row *row = &rows->list[i];
    if (row->box.left > rows->box.left + cutter->size) return false;
    for (int j = row->first + 1; j < row->end; j++)
        if (part->words[j].box.left - part->words[j - 1].box.right > 1.2F * cutter->size)
            return false;
    return true;
}

/* Whether a row from i on has words in the right half. */
static bool goes_right(const struct part_rows *rows, int i) {
    for (; i < rows->n; i++)
        if (rows->list[i].box.right > rect_center(&rows->box)) return true;
    return false;
}

/* Whether row i is a heading over columns that does not reach the strip between them: larger or
 * bold, with room above it in both, and nothing beside it. */
static bool is_heading_row(const struct page_cutter *cutter, const struct part *part,
                           const struct part_rows *rows, int i) {
    const struct cut_row *row = &rows->list[i];
    const struct layout_word *word = &part->words[row->first];
    bool strong = word->size > 1.12F * cutter->size || word->source->bold;
    bool half = row->box.right < rect_center(&rows->box);
    return strong && half && is_prose_row(cutter, part, rows, i) && goes_right(rows, i + 1) &&
           row_gap(rows, i) > usual_gap(rows) + 0.5F * cutter->size;
}

static bool is_left_alone(const struct part *part, const struct cut_row *row,
                          const struct band *band) {
    return rect_center(&part->words[row->end - 1].box) < band->strips[0].left;
}

/* Whether the last row of the band stands below its table. */
static bool ends_table(const struct page_cutter *cutter, const struct part *part,
                       const struct part_rows *rows, const struct band *band) {
    int last = band->end - 1, n = rows->list[last].end - rows->list[last].first;
    if (n > 4 && is_prose_row(cutter, part, rows, last)) return true;
    bool apart = row_gap(rows, last) > usual_gap(rows) + 0.6F * cutter->size;
    return is_left_alone(part, &rows->list[last], band) && (n > 3 || apart);
}

/* A heading, or the end of a paragraph, before columns begin is none of them. */
static void trim_band(const struct page_cutter *cutter, const struct part *part,
                      const struct part_rows *rows, struct band *band) {
    int first = band->first, end = first;
    while (end + 2 < band->end && is_left_alone(part, &rows->list[end], band)) end++;
    struct aligned_rows aligned = {.words = part->words,
                                   .rows = rows->list + end,
                                   .n_rows = band->end - end,
                                   .page = cutter->page,
                                   .on = cutter->on};
    bool table = aligned_kind(&aligned, band->strips, band->n_strips) == ALIGNED_TABLE;
    for (int i = end; i > first; i--) {
        const struct layout_word *word = &part->words[rows->list[i - 1].first];
        bool strong = word->size > 1.12F * cutter->size || word->source->bold,
             apart = row_gap(rows, i) > usual_gap(rows) + 0.6F * cutter->size;
        if (!table && !strong && !apart) continue;
        band->end = i;
        band->n_strips = 0;
        return;
    }
    while (table && band->end > first + 3 && ends_table(cutter, part, rows, band)) band->end--;
}

static int inner_strips(const struct cover *cover, const struct page_cutter *cutter) {
    struct strip strips[MAX_STRIPS];
    return find_strips(cover, 0, 0.45F * cutter->size, false, strips);
}

/* Whether rows [first, end) are a table between the strips that a cover has. */
static bool rows_are_table(const struct page_cutter *cutter, const struct part *part,
                           const struct part_rows *rows, const int span[2],
                           const struct cover *cover) {
    struct strip strips[MAX_STRIPS];
    struct aligned_rows aligned = {.words = part->words,
                                   .rows = rows->list + span[0],
                                   .n_rows = span[1] - span[0],
                                   .page = cutter->page,
                                   .on = cutter->on};
    int n = find_strips(cover, 0, 0.45F * cutter->size, false, strips);
    return n > 0 && aligned.n_rows > 1 && aligned_kind(&aligned, strips, n) == ALIGNED_TABLE;
}

/* Whether row i names the columns of another table: bold words with wide gaps between them, far
 * below what is above, of which some words are not bold. */
static bool begins_table(const struct page_cutter *cutter, const struct part *part,
                         const struct part_rows *rows, const struct band *band, int i) {
    const struct cut_row *row = &rows->list[i];
    int gaps = 0, plain = 0;
    if (row_gap(rows, i) < usual_gap(rows) + cutter->size) return false;
    for (int j = row->first; j < row->end; j++) {
        if (!part->words[j].source->bold) return false;
        gaps += j > row->first &&
                part->words[j].box.left - part->words[j - 1].box.right > 1.2F * cutter->size;
    }
    for (int j = rows->list[band->first].first; j < row->first; j++)
        plain += !part->words[j].source->bold;
    return gaps > 0 && plain > 0;
}

/* Adds the next row unless it closes the band: no strip is left, it is a heading over both columns,
 * or it is prose that crosses a strip of a table. */
static bool take_row(const struct page_cutter *cutter, const struct part *part,
                     const struct part_rows *rows, const struct band *band, struct cover *cover) {
    struct strip strips[MAX_STRIPS];
    struct cover before = *cover;
    int i = band->end, inner = inner_strips(cover, cutter);
    const struct cut_row *row = &rows->list[i];
    if (i > band->first + 2 && is_heading_row(cutter, part, rows, i)) return false;
    bool begins = words_are_caption(part->words + row->first, row->end - row->first) ||
                  (i > band->first && begins_table(cutter, part, rows, band, i));
    if (begins && i > band->first && inner > 0 &&
        rows_are_table(cutter, part, rows, (const int[2]){band->first, i}, cover))
        return false;
    cover_row(cover, cutter, part, &rows->list[i]);
    bool crosses = i >= band->first + 2 && inner_strips(cover, cutter) < inner &&
                   is_prose_row(cutter, part, rows, i) &&
                   rows_are_table(cutter, part, rows, (const int[2]){band->first, i}, &before);
    if (!crosses && find_strips(cover, 0, 0.45F * cutter->size, true, strips) > 0) return true;
    *cover = before;
    return false;
}

/* Whether the strips are more without the first row, which is prose above a table. */
static bool first_row_crosses(const struct page_cutter *cutter, const struct part *part,
                              const struct part_rows *rows, const struct band *band,
                              struct cover *cover) {
    int with = inner_strips(cover, cutter);
    if (band->end - band->first < 3 || !is_prose_row(cutter, part, rows, band->first)) return false;
    memset(cover->bins, 0, sizeof cover->bins);
    for (int i = band->first + 1; i < band->end; i++)
        cover_row(cover, cutter, part, &rows->list[i]);
    return inner_strips(cover, cutter) > with &&
           rows_are_table(cutter, part, rows, (const int[2]){band->first + 1, band->end}, cover);
}

/* The longest band from row `first` on that a white strip goes through; where there is none, the
 * one row. */
void band_extend(const struct page_cutter *cutter, const struct part *part,
                 const struct part_rows *rows, struct band *band) {
    enum { MANY_ROWS = 1000 };
    struct cover *cover = xcalloc(1, sizeof *cover);
    cover->box = rows->box;
    band->end = band->first;
    while (band->end < rows->n && take_row(cutter, part, rows, band, cover)) band->end++;
    band->n_strips = 0;
    int n = band->end - band->first;
    if (n > 1) band->n_strips = find_strips(cover, 0, least_strip(cutter, n), false, band->strips);
    keep_supported(part, rows, band);
    if (band->n_strips > 0 && first_row_crosses(cutter, part, rows, band, cover))
        band->n_strips = 0;
    if (band->n_strips > 0) trim_band(cutter, part, rows, band);
    bool alone = band->n_strips == 0 && rows->n < MANY_ROWS;
    if (band->end == band->first || alone) band->end = band->first + 1;
    free(cover);
}
