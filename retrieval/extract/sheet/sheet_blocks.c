/* retrieval/extract/sheet/sheet_blocks.c: see sheet_blocks.h. */
#include "retrieval/extract/sheet/sheet_blocks.h"

#include <stdlib.h>
#include <string.h>

/* Rows and columns are cut in turn. */
enum { MOST_CUTS = 4, MOST_NAMED = 64 };

static int compare_cells(const void *left, const void *right) {
    const struct sheet_cell *a = left, *b = right;
    if (a->row != b->row) return a->row < b->row ? -1 : 1;
    if (a->column != b->column) return a->column < b->column ? -1 : 1;
    return (a->text > b->text) - (a->text < b->text);
}

static struct sheet_cell *all_cells(struct sheet *sheet, size_t *n) {
    *n = sheet->cells.size / sizeof(struct sheet_cell);
    return (struct sheet_cell *)(void *)sheet->cells.data;
}

static void order_cells(struct sheet *sheet) {
    size_t n, kept = 0;
    struct sheet_cell *cells = all_cells(sheet, &n);
    if (!sheet->is_unordered) return;
    qsort(cells, n, sizeof *cells, compare_cells);
    for (size_t i = 0; i < n; i++) {
        bool again = kept > 0 && cells[kept - 1].row == cells[i].row &&
                     cells[kept - 1].column == cells[i].column;
        if (again) continue;
        cells[kept] = cells[i];
        kept++;
    }
    sheet->cells.size = kept * sizeof *cells;
    sheet->is_unordered = false;
}

struct splitter {
    struct sheet *sheet;
    struct sheet_cell *scratch; /* [all cells] */
    uint32_t part_of[SHEET_COLUMNS + 1];
    struct buffer blocks;
};

static void widen(uint32_t *low, uint32_t *high, uint32_t value) {
    if (*low == 0 || value < *low) *low = value;
    if (value > *high) *high = value;
}

static void add_block(struct buffer *blocks, const struct sheet_cell *cells, size_t first,
                      size_t n) {
    struct sheet_block block = {.first = first, .n = n};
    for (size_t i = first; i < first + n; i++) {
        widen(&block.range.top, &block.range.bottom, cells[i].row);
        widen(&block.range.left, &block.range.right, cells[i].column);
        widen(&block.seen.top, &block.seen.bottom, cells[i].seen_row);
        widen(&block.seen.left, &block.seen.right, cells[i].seen_column);
    }
    if (n > 0) buffer_append(blocks, &block, sizeof block);
}

static void split_rows(struct splitter *splitter, const struct sheet_block *block,
                       struct buffer *out) {
    size_t n, first = block->first, end = block->first + block->n;
    const struct sheet_cell *cells = all_cells(splitter->sheet, &n);
    for (size_t i = first + 1; i < end; i++) {
        if (cells[i].seen_row <= cells[i - 1].seen_row + 1) continue;
        add_block(out, cells, first, i - first);
        first = i;
    }
    add_block(out, cells, first, end - first);
}

/* Numbers the part that each column of the cells belongs to, from 1. A sheet may have as many
 * blocks as rows, so columns without cells are passed 64 at a time. */
static uint32_t number_columns(const struct sheet_cell *cells, size_t n, uint32_t *part_of) {
    uint64_t used[SHEET_COLUMNS / 64 + 1] = {0};
    uint32_t parts = 0, last = 0;
    for (size_t i = 0; i < n; i++)
        used[cells[i].seen_column / 64] |= (uint64_t)1 << cells[i].seen_column % 64;
    for (uint32_t word = 0; word < ARRAY_COUNT(used); word++)
        while (used[word]) {
            uint32_t column = word * 64 + (uint32_t)__builtin_ctzll(used[word]);
            used[word] &= used[word] - 1;
            parts += parts == 0 || column > last + 1;
            part_of[column] = parts;
            last = column;
        }
    return parts;
}

/* Cells go to the parts that their columns are in, and stay in order there. */
static void split_columns(struct splitter *splitter, const struct sheet_block *block,
                          struct buffer *out) {
    size_t total;
    struct sheet_cell *cells = all_cells(splitter->sheet, &total) + block->first;
    uint32_t *part_of = splitter->part_of;
    uint32_t parts = number_columns(cells, block->n, part_of);
    size_t *starts = xcalloc((size_t)parts + 2, sizeof *starts);
    for (size_t i = 0; i < block->n; i++) starts[part_of[cells[i].seen_column] + 1]++;
    for (uint32_t part = 1; part <= parts; part++) starts[part + 1] += starts[part];
    for (size_t i = 0; i < block->n; i++) {
        size_t *to = &starts[part_of[cells[i].seen_column]];
        splitter->scratch[*to] = cells[i];
        (*to)++;
    }
    memcpy(cells, splitter->scratch, block->n * sizeof *cells);
    for (uint32_t part = 1; part <= parts; part++) {
        size_t start = part > 1 ? starts[part - 1] : 0;
        add_block(out, cells - block->first, block->first + start, starts[part] - start);
    }
    free(starts);
}

static bool range_holds(const struct sheet_range *range, const struct sheet_cell *cell) {
    return cell->row >= range->top && cell->row <= range->bottom && cell->column >= range->left &&
           cell->column <= range->right;
}

/* Takes the cells of a table that the file names out of the others, which are [first, end); where
 * these go on. */
static size_t take_named(struct splitter *splitter, const struct sheet_table *table, size_t first) {
    size_t end, taken = 0, kept = 0;
    struct sheet_cell *cells = all_cells(splitter->sheet, &end);
    for (size_t i = first; i < end; i++) {
        bool inside = range_holds(&table->range, &cells[i]);
        if (inside) {
            cells[first + taken] = cells[i];
            taken++;
        } else {
            splitter->scratch[kept] = cells[i];
            kept++;
        }
    }
    memcpy(cells + first + taken, splitter->scratch, kept * sizeof *cells);
    size_t before = splitter->blocks.size;
    add_block(&splitter->blocks, cells, first, taken);
    if (splitter->blocks.size > before)
        ((struct sheet_block *)(void *)(splitter->blocks.data + before))->named = table;
    return first + taken;
}

static int compare_blocks(const void *left, const void *right) {
    const struct sheet_block *a = left, *b = right;
    if (a->range.top != b->range.top) return a->range.top < b->range.top ? -1 : 1;
    return (a->range.left > b->range.left) - (a->range.left < b->range.left);
}

static void cut_blocks(struct splitter *splitter, struct buffer *blocks, bool by_rows) {
    struct buffer out = {0};
    const struct sheet_block *list = (const struct sheet_block *)(const void *)blocks->data;
    for (size_t i = 0; i < blocks->size / sizeof *list; i++)
        if (by_rows)
            split_rows(splitter, &list[i], &out);
        else
            split_columns(splitter, &list[i], &out);
    buffer_free(blocks);
    *blocks = out;
}

void sheet_split(struct sheet *sheet, struct buffer *blocks) {
    size_t n, first = 0;
    order_cells(sheet);
    struct sheet_cell *cells = all_cells(sheet, &n);
    if (n == 0) return;
    struct splitter splitter = {.sheet = sheet};
    splitter.scratch = xcalloc(n, sizeof *cells);
    const struct sheet_table *named = (const struct sheet_table *)(void *)sheet->tables.data;
    size_t n_named = sheet->tables.size / sizeof *named;
    for (size_t i = 0; i < n_named && i < MOST_NAMED; i++)
        first = take_named(&splitter, &named[i], first);
    struct buffer rest = {0};
    add_block(&rest, cells, first, n - first);
    for (int cut = 0; cut < MOST_CUTS; cut++) cut_blocks(&splitter, &rest, cut % 2 == 0);
    buffer_append(&splitter.blocks, rest.data, rest.size);
    qsort(splitter.blocks.data, splitter.blocks.size / sizeof(struct sheet_block),
          sizeof(struct sheet_block), compare_blocks);
    buffer_append(blocks, splitter.blocks.data, splitter.blocks.size);
    buffer_free(&rest);
    buffer_free(&splitter.blocks);
    free(splitter.scratch);
}
