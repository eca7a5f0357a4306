/* retrieval/extract/page/layout_cut.c: a page to regions in the order of reading: bands from the
 * top, which white strips cut into columns from the left, and these again. A line over both columns
 * ends the band above it. See layout_private.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retrieval/extract/page/layout_private.h"

enum {
    BINS = 1024,     /* over the width of a region */
    MAX_STRIPS = 40, /* in a band */
    MAX_DEPTH = 8,
};

struct part {
    struct layout_word *words; /* [n] */
    int *tables;               /* [n_tables] of layout->tables */
    int n, n_tables;
};

struct cutter {
    struct layout *layout;
    const struct page_words *on;
    int page;
    struct buffer asides; /* struct layout_region, to be added last */
    float text_width;     /* of the page */
    float size;           /* of most of its letters */
};

/* Rows of one part, and the tables beside and between them. */
struct rows {
    struct cut_row *list;
    int n;
    struct page_rect box;
};

static struct page_rect no_box(void) {
    return (struct page_rect){INFINITY, INFINITY, -INFINITY, -INFINITY};
}

static void list_rows(const struct part *part, struct rows *rows) {
    int *row_of = xcalloc((size_t)part->n + 1, sizeof *row_of);
    rows->list = xcalloc((size_t)part->n + 1, sizeof *rows->list);
    rows->n = 0;
    rows->box = no_box();
    layout_gather_rows(part->words, part->n, row_of);
    for (int first = 0, end; first < part->n; first = end) {
        struct page_rect box = part->words[first].box;
        for (end = first; end < part->n && row_of[end] == row_of[first]; end++)
            rect_extend(&box, &part->words[end].box);
        rows->list[rows->n] = (struct cut_row){first, end, box};
        rect_extend(&rows->box, &box);
        rows->n++;
    }
    free(row_of);
}

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
static void cover_row(struct cover *cover, const struct cutter *cutter, const struct part *part,
                      const struct cut_row *row) {
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

struct band {
    int first, end; /* rows */
    struct strip strips[MAX_STRIPS];
    int n_strips; /* 0: lines over the whole width */
};

static float least_strip(const struct cutter *cutter, int n_rows) {
    if (n_rows >= 6) return 0.45F * cutter->size;
    return n_rows >= 3 ? 0.9F * cutter->size : 1.8F * cutter->size;
}

/* Rows of the band with words on both sides of a strip, and on each. */
static void count_sides(const struct part *part, const struct rows *rows, const struct band *band,
                        const struct strip *strip, int counts[3]) {
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

/* What stands before a strip may be the marks of a list, which are no column. */
static bool is_marker_column(const struct part *part, const struct rows *rows,
                             const struct band *band, const struct strip *strip) {
    int marks = 0, others = 0;
    for (int i = band->first; i < band->end; i++)
        for (int j = rows->list[i].first; j < rows->list[i].end; j++) {
            const struct layout_word *word = &part->words[j];
            if (rect_center(&word->box) > strip->left) break;
            bool mark = j == rows->list[i].first && text_is_marker(word->text);
            marks += mark;
            others += !mark;
        }
    return marks > 0 && others <= marks / 4;
}

static void keep_supported(const struct part *part, const struct rows *rows, struct band *band) {
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

static float row_gap(const struct rows *rows, int i) {
    return i > 0 ? rows->list[i].box.top - rows->list[i - 1].box.bottom : 0;
}

static float usual_gap(const struct rows *rows) {
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

/* Whether row i is a heading over columns that does not reach the strip between them: larger or
 * bold, with room above it in both, and nothing beside it. */
static bool is_heading_row(const struct cutter *cutter, const struct part *part,
                           const struct rows *rows, int i) {
    const struct cut_row *row = &rows->list[i];
    const struct layout_word *word = &part->words[row->first];
    bool strong = word->size > 1.12F * cutter->size || word->source->bold;
    bool half = row->box.right < rect_center(&rows->box);
    return strong && half && row_gap(rows, i) > usual_gap(rows) + 0.5F * cutter->size;
}

static bool is_left_alone(const struct part *part, const struct cut_row *row,
                          const struct band *band) {
    return rect_center(&part->words[row->end - 1].box) < band->strips[0].left;
}

/* A heading, or the end of a paragraph, before columns begin is none of them. */
static void trim_band(const struct cutter *cutter, const struct part *part, const struct rows *rows,
                      struct band *band) {
    int first = band->first, end = first;
    while (end + 2 < band->end && is_left_alone(part, &rows->list[end], band)) end++;
    struct aligned_rows aligned = {.words = part->words,
                                   .rows = rows->list + end,
                                   .n_rows = band->end - end,
                                   .page = cutter->page,
                                   .on = cutter->on};
    bool table = aligned_is_table(&aligned, band->strips, band->n_strips);
    for (int i = end; i > first; i--) {
        const struct layout_word *word = &part->words[rows->list[i - 1].first];
        bool strong = word->size > 1.12F * cutter->size || word->source->bold,
             apart = row_gap(rows, i) > usual_gap(rows) + 0.6F * cutter->size;
        if (!table && !strong && !apart) continue;
        band->end = i;
        band->n_strips = 0;
        return;
    }
    while (table && band->end > first + 3 &&
           is_left_alone(part, &rows->list[band->end - 1], band) &&
           (rows->list[band->end - 1].end - rows->list[band->end - 1].first > 3 ||
            row_gap(rows, band->end - 1) > usual_gap(rows) + 0.6F * cutter->size))
        band->end--;
}

/* The longest band from row `first` on that a white strip goes through. */
static void extend_band(const struct cutter *cutter, const struct part *part,
                        const struct rows *rows, struct band *band) {
    struct cover *cover = xcalloc(1, sizeof *cover);
    struct strip strips[MAX_STRIPS];
    cover->box = rows->box;
    for (band->end = band->first; band->end < rows->n; band->end++) {
        uint16_t before[BINS];
        bool splits = band->end > band->first + 2 && is_heading_row(cutter, part, rows, band->end);
        if (splits) break;
        memcpy(before, cover->bins, sizeof before);
        cover_row(cover, cutter, part, &rows->list[band->end]);
        if (find_strips(cover, 0, 0.45F * cutter->size, true, strips) > 0) continue;
        memcpy(cover->bins, before, sizeof before);
        break;
    }
    band->n_strips = 0;
    int n = band->end - band->first;
    if (n > 1) band->n_strips = find_strips(cover, 0, least_strip(cutter, n), false, band->strips);
    free(cover);
    keep_supported(part, rows, band);
    if (band->n_strips > 0) trim_band(cutter, part, rows, band);
    if (band->end == band->first) band->end++;
}

/* Columns. */

static struct page_rect part_box(const struct cutter *cutter, const struct part *part) {
    struct page_rect box = no_box();
    for (int i = 0; i < part->n; i++) rect_extend(&box, &part->words[i].box);
    for (int i = 0; i < part->n_tables; i++)
        rect_extend(&box, &layout_table(cutter->layout, part->tables[i])->box);
    return box;
}

static void add_region(struct cutter *cutter, const struct part *part, bool aside) {
    struct layout_region region = {.words = part->words,
                                   .n = part->n,
                                   .tables = part->tables,
                                   .n_tables = part->n_tables,
                                   .page = cutter->page,
                                   .box = part_box(cutter, part),
                                   .aside = aside};
    if (part->n > 0 || part->n_tables > 0) layout_add_region(cutter->layout, &region);
}

static void cut_part(struct cutter *cutter, const struct part *part, int depth);

static int column_of(const struct band *band, const struct page_rect *box) {
    int column = 0;
    while (column < band->n_strips && rect_center(box) > band->strips[column].left) column++;
    return column;
}

struct word_column {
    struct layout_word word;
    int column, order;
};

static int compare_columns(const void *left, const void *right) {
    const struct word_column *a = left, *b = right;
    return a->column != b->column ? a->column - b->column : a->order - b->order;
}

static void sort_columns(const struct band *band, struct layout_word *words, int n) {
    struct word_column *sorted = xcalloc((size_t)n + 1, sizeof *sorted);
    for (int i = 0; i < n; i++)
        sorted[i] = (struct word_column){words[i], column_of(band, &words[i].box), i};
    qsort(sorted, (size_t)n, sizeof *sorted, compare_columns);
    for (int i = 0; i < n; i++) words[i] = sorted[i].word;
    free(sorted);
}

/* Numbers of lines in the margin: nothing else, and each larger than the one before. */
static bool is_line_numbers(const struct part *part) {
    long last = -1;
    if (part->n < 4) return false;
    for (int i = 0; i < part->n; i++) {
        const struct layout_word *word = &part->words[i];
        char digits[8] = {0};
        if (word->text.size >= sizeof digits) return false;
        memcpy(digits, word->text.text, word->text.size);
        char *end;
        long number = strtol(digits, &end, 10);
        if (*end || number <= last) return false;
        last = number;
    }
    return true;
}

static float usual_size(const struct part *part) {
    float sum = 0;
    size_t letters = 0;
    for (int i = 0; i < part->n; i++) {
        sum += part->words[i].size * (float)part->words[i].text.size;
        letters += part->words[i].text.size;
    }
    return letters > 0 ? sum / (float)letters : 0;
}

/* A narrow column in another size of type stands beside the text, and is not its next column. */
static bool is_aside(const struct cutter *cutter, const struct part *part, float widest) {
    struct page_rect box = part_box(cutter, part);
    float size = usual_size(part);
    return part->n > 0 && rect_width(&box) < 0.6F * widest &&
           fabsf(size - cutter->size) > 0.07F * cutter->size && size < 1.3F * cutter->size;
}

static void cut_columns(struct cutter *cutter, const struct part *part, const struct band *band,
                        int depth) {
    struct part columns[MAX_STRIPS + 1];
    float widest = 0;
    sort_columns(band, part->words, part->n);
    for (int column = 0, at = 0, table = 0; column <= band->n_strips; column++) {
        struct part *one = &columns[column];
        *one = (struct part){.words = part->words + at};
        while (at < part->n && column_of(band, &part->words[at].box) == column) at++, one->n++;
        one->tables = xcalloc((size_t)part->n_tables + 1, sizeof *one->tables);
        for (table = 0; table < part->n_tables; table++)
            if (column_of(band, &layout_table(cutter->layout, part->tables[table])->box) == column)
                one->tables[one->n_tables++] = part->tables[table];
        struct page_rect box = part_box(cutter, one);
        if (one->n > 0) widest = fmaxf(widest, rect_width(&box));
    }
    for (int column = 0; column <= band->n_strips; column++) {
        struct part *one = &columns[column];
        bool numbers = column == 0 && is_line_numbers(one);
        if (!numbers && is_aside(cutter, one, widest))
            buffer_append(&cutter->asides, one, sizeof *one);
        else if (!numbers)
            cut_part(cutter, one, depth + 1);
        if (numbers || !is_aside(cutter, one, widest)) free(one->tables);
    }
}

/* A part. */

static struct part part_of_band(const struct cutter *cutter, const struct part *part,
                                const struct rows *rows, const struct band *band, int *tables) {
    int first = rows->list[band->first].first, end = rows->list[band->end - 1].end;
    float top = band->first > 0 ? rows->list[band->first].box.top : -INFINITY,
          bottom = band->end < rows->n ? rows->list[band->end].box.top : INFINITY;
    struct part one = {.words = part->words + first, .n = end - first, .tables = tables};
    for (int i = 0; i < part->n_tables; i++) {
        float middle = rect_middle(&layout_table(cutter->layout, part->tables[i])->box);
        if (middle >= top && middle < bottom) one.tables[one.n_tables++] = part->tables[i];
    }
    return one;
}

static void take_band(struct cutter *cutter, const struct part *part, const struct rows *rows,
                      struct band *band, int depth) {
    int *tables = xcalloc((size_t)part->n_tables + 1, sizeof *tables);
    struct part one = part_of_band(cutter, part, rows, band, tables);
    struct aligned_rows aligned = {.words = part->words,
                                   .rows = rows->list + band->first,
                                   .n_rows = band->end - band->first,
                                   .page = cutter->page,
                                   .on = cutter->on};
    if (band->n_strips > 0 && one.n_tables == 0 &&
        aligned_is_table(&aligned, band->strips, band->n_strips)) {
        tables[0] = aligned_add_table(cutter->layout, &aligned, band->strips, band->n_strips);
        struct part table = {.tables = tables, .n_tables = 1};
        add_region(cutter, &table, false);
    } else if (band->n_strips > 0 && depth < MAX_DEPTH) {
        cut_columns(cutter, &one, band, depth);
    } else {
        add_region(cutter, &one, false);
    }
    free(tables);
}

/* Bands without strips that follow one another are one. */
static void cut_part(struct cutter *cutter, const struct part *part, int depth) {
    struct rows rows;
    struct band band, solid = {.first = 0, .end = 0};
    list_rows(part, &rows);
    if (rows.n == 0) add_region(cutter, part, false);
    for (int first = 0; first < rows.n; first = band.end) {
        band = (struct band){.first = first};
        extend_band(cutter, part, &rows, &band);
        if (band.n_strips == 0) {
            solid.end = band.end;
            continue;
        }
        if (solid.end > solid.first) take_band(cutter, part, &rows, &solid, depth);
        take_band(cutter, part, &rows, &band, depth);
        solid.first = solid.end = band.end;
    }
    if (solid.end > solid.first) take_band(cutter, part, &rows, &solid, depth);
    free(rows.list);
}

static void add_asides(struct cutter *cutter) {
    const struct part *asides = (const void *)cutter->asides.data;
    for (size_t i = 0; i < cutter->asides.size / sizeof *asides; i++) {
        add_region(cutter, &asides[i], true);
        free(asides[i].tables);
    }
    buffer_free(&cutter->asides);
}

static int compare_tops(const void *left, const void *right, void *context) {
    const struct layout *layout = context;
    float a = layout_table(layout, *(const int *)left)->box.top,
          b = layout_table(layout, *(const int *)right)->box.top;
    return (a > b) - (a < b);
}

void layout_cut_page(struct layout *layout, int page) {
    struct page_words *words = &layout->words[page];
    int n_tables = (int)(layout->tables.size / sizeof(struct layout_table));
    struct part part = {.words = words->list, .n = words->n};
    struct cutter cutter = {.layout = layout, .on = words, .page = page};
    part.tables = xcalloc((size_t)n_tables + 1, sizeof *part.tables);
    for (int i = 0; i < n_tables; i++)
        if (layout_table(layout, i)->page == page) part.tables[part.n_tables++] = i;
    qsort_r(part.tables, (size_t)part.n_tables, sizeof *part.tables, compare_tops, layout);
    cutter.size = usual_size(&part);
    if (part.n > 0 || part.n_tables > 0) cut_part(&cutter, &part, 0);
    add_asides(&cutter);
    free(part.tables);
}
