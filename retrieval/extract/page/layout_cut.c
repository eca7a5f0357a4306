/* retrieval/extract/page/layout_cut.c: a page to regions in the order of reading: bands from the
 * top, which white strips cut into columns from the left, and these again. A line over both columns
 * ends the band above it. See layout_private.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retrieval/extract/page/layout_bands.h"

enum { MAX_DEPTH = 8 };

static void add_part_table(struct part *part, int table) {
    part->tables[part->n_tables] = table;
    part->n_tables++;
}

static struct page_rect no_box(void) {
    return (struct page_rect){INFINITY, INFINITY, -INFINITY, -INFINITY};
}

static void list_rows(const struct part *part, struct part_rows *rows) {
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

/* Columns. */

static struct page_rect part_box(const struct page_cutter *cutter, const struct part *part) {
    struct page_rect box = no_box();
    for (int i = 0; i < part->n; i++) rect_extend(&box, &part->words[i].box);
    for (int i = 0; i < part->n_tables; i++)
        rect_extend(&box, &layout_table(cutter->layout, part->tables[i])->box);
    return box;
}

static void add_region(struct page_cutter *cutter, const struct part *part, bool aside) {
    struct layout_region region = {.words = part->words,
                                   .n = part->n,
                                   .tables = part->tables,
                                   .n_tables = part->n_tables,
                                   .page = cutter->page,
                                   .box = part_box(cutter, part),
                                   .aside = aside};
    if (part->n > 0 || part->n_tables > 0) layout_add_region(cutter->layout, &region);
}

static void cut_part(struct page_cutter *cutter, const struct part *part, int depth);

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
static bool is_aside(const struct page_cutter *cutter, const struct part *part, float widest) {
    struct page_rect box = part_box(cutter, part);
    float size = usual_size(part);
    return part->n > 0 && rect_width(&box) < 0.6F * widest &&
           fabsf(size - cutter->size) > 0.07F * cutter->size && size < 1.3F * cutter->size;
}

static void cut_columns(struct page_cutter *cutter, const struct part *part,
                        const struct band *band, int depth) {
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
                add_part_table(one, part->tables[table]);
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

static struct part part_of_band(const struct page_cutter *cutter, const struct part *part,
                                const struct part_rows *rows, const struct band *band,
                                int *tables) {
    int first = rows->list[band->first].first, end = rows->list[band->end - 1].end;
    float top = band->first > 0 ? rows->list[band->first].box.top : -INFINITY,
          bottom = band->end < rows->n ? rows->list[band->end].box.top : INFINITY;
    struct part one = {.words = part->words + first, .n = end - first, .tables = tables};
    for (int i = 0; i < part->n_tables; i++) {
        float middle = rect_middle(&layout_table(cutter->layout, part->tables[i])->box);
        if (middle >= top && middle < bottom) add_part_table(&one, part->tables[i]);
    }
    return one;
}

static void take_band(struct page_cutter *cutter, const struct part *part,
                      const struct part_rows *rows, struct band *band, int depth) {
    int *tables = xcalloc((size_t)part->n_tables + 1, sizeof *tables);
    struct part one = part_of_band(cutter, part, rows, band, tables);
    struct aligned_rows aligned = {.words = part->words,
                                   .rows = rows->list + band->first,
                                   .n_rows = band->end - band->first,
                                   .page = cutter->page,
                                   .on = cutter->on};
    enum aligned_kind kind = ALIGNED_COLUMNS;
    if (band->n_strips > 0 && one.n_tables == 0)
        kind = aligned_kind(&aligned, band->strips, band->n_strips);
    if (kind == ALIGNED_TABLE) {
        tables[0] = aligned_add_table(cutter->layout, &aligned, band->strips, band->n_strips);
        struct part table = {.tables = tables, .n_tables = 1};
        add_region(cutter, &table, false);
    } else if (band->n_strips > 0 && kind == ALIGNED_COLUMNS && depth < MAX_DEPTH) {
        cut_columns(cutter, &one, band, depth);
    } else {
        add_region(cutter, &one, false);
    }
    free(tables);
}

/* Bands without strips that follow one another are one. */
static void cut_part(struct page_cutter *cutter, const struct part *part, int depth) {
    struct part_rows rows;
    struct band band, solid = {.first = 0, .end = 0};
    list_rows(part, &rows);
    if (rows.n == 0) add_region(cutter, part, false);
    for (int first = 0; first < rows.n; first = band.end) {
        band = (struct band){.first = first};
        band_extend(cutter, part, &rows, &band);
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

static void add_asides(struct page_cutter *cutter) {
    const struct part *asides = (const void *)cutter->asides.data;
    for (size_t i = 0; i < cutter->asides.size / sizeof *asides; i++) {
        add_region(cutter, &asides[i], true);
        free(asides[i].tables);
    }
    buffer_free(&cutter->asides);
}

static int compare_tops(const void *left, const void *right, void *context) {
    const struct page_layout *layout = context;
    float a = layout_table(layout, *(const int *)left)->box.top,
          b = layout_table(layout, *(const int *)right)->box.top;
    return (a > b) - (a < b);
}

void layout_cut_page(struct page_layout *layout, int page) {
    struct page_words *words = &layout->words[page];
    int n_tables = (int)(layout->tables.size / sizeof(struct layout_table));
    struct part part = {.words = words->list, .n = words->n};
    struct page_cutter cutter = {.layout = layout, .on = words, .page = page};
    part.tables = xcalloc((size_t)n_tables + 1, sizeof *part.tables);
    for (int i = 0; i < n_tables; i++)
        if (layout_table(layout, i)->page == page) add_part_table(&part, i);
    qsort_r(part.tables, (size_t)part.n_tables, sizeof *part.tables, compare_tops, layout);
    cutter.size = usual_size(&part);
    if (part.n > 0 || part.n_tables > 0) cut_part(&cutter, &part, 0);
    add_asides(&cutter);
    free(part.tables);
}
