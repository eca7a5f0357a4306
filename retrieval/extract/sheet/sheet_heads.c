/* retrieval/extract/sheet/sheet_heads.c: see sheet_heads.h. */
#include "retrieval/extract/sheet/sheet_heads.h"

#include <stdlib.h>
#include <string.h>

#include "retrieval/tables/cell_value.h"

enum { MOST_HEADS = 6, MOST_HEAD_COLUMNS = 3, MOST_COUNTED = 64, MOST_TITLES = 6 };

const struct sheet_range *merge_find(const struct sheet_merges *merges,
                                     const struct sheet_cell *cell) {
    size_t low = 0, high = merges->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct sheet_range *range = &merges->list[middle];
        bool before =
            range->top < cell->row || (range->top == cell->row && range->left < cell->column);
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < merges->n && merges->list[low].top == cell->row &&
                 merges->list[low].left == cell->column;
    return found ? &merges->list[low] : NULL;
}

/* A row of a block. */
struct block_row {
    size_t first, n;
    size_t numbers; /* years are names as often as numbers, and do not count */
    size_t behind;  /* cells that are not in the first column */
    bool bold, has_wide;
    uint32_t reach; /* the last row that one of its cells covers */
};

static bool is_year(const struct sheet *sheet, const struct sheet_cell *cell) {
    const char *text = sheet->text.data + cell->text;
    return cell->size == 4 && (memcmp(text, "19", 2) == 0 || memcmp(text, "20", 2) == 0) &&
           strspn(text, "0123456789") >= 4;
}

/* The row of a block that begins with this cell of it. */
static struct block_row read_row(const struct sheet *sheet, const struct sheet_block *block,
                                 size_t first, const struct sheet_merges *merges) {
    const struct sheet_cell *cells = block_cells(sheet, block);
    struct block_row row = {.first = first, .bold = true};
    for (size_t i = first; i < block->n && cells[i].row == cells[first].row; i++) {
        const struct sheet_range *merge = merge_find(merges, &cells[i]);
        row.n++;
        row.behind += cells[i].column > block->range.left;
        row.numbers += cells[i].number && !is_year(sheet, &cells[i]);
        row.bold = row.bold && cells[i].bold;
        row.has_wide = row.has_wide || (merge && merge->right > merge->left);
        if (merge && merge->bottom > row.reach) row.reach = merge->bottom;
    }
    return row;
}

/* A text alone at the left, above a table. One that stands to the right, or covers some columns,
 * is a head. */
static bool row_is_title(const struct sheet *sheet, const struct sheet_block *block,
                         const struct block_row *row, const struct sheet_merges *merges) {
    const struct sheet_cell *cell = block_cells(sheet, block) + row->first;
    const struct sheet_range *merge = merge_find(merges, cell);
    bool covers_all = merge && merge->right >= block->range.right;
    return row->n == 1 && row->numbers == 0 && cell->column == block->range.left &&
           (merge == NULL || merge->right == merge->left || covers_all);
}

static size_t count_titles(const struct sheet *sheet, const struct sheet_block *block,
                           const struct sheet_merges *merges) {
    size_t titles = 0, at = 0;
    if (block->named) return 0;
    while (at < block->n && titles < MOST_TITLES) {
        struct block_row row = read_row(sheet, block, at, merges);
        if (!row_is_title(sheet, block, &row, merges) || at + 1 >= block->n) break;
        titles++;
        at++;
    }
    return titles;
}

/* Whether the second of two columns says one thing in one row and another in the next, as a form
 * does: then no row names its columns. */
static bool is_form(const struct sheet *sheet, const struct sheet_block *block, size_t first) {
    const struct sheet_cell *cells = block_cells(sheet, block);
    size_t n = 0;
    bool kinds[CELL_DATE + 1] = {false};
    if (block->range.right - block->range.left != 1 || cells[first].bold) return false;
    for (size_t i = first; i < block->n && i < first + MOST_COUNTED; i++) {
        if (cells[i].column == block->range.left || cells[i].row == cells[first].row) continue;
        struct text_span text = {sheet->text.data + cells[i].text, cells[i].size};
        enum cell_kind kind = cell_value_read(text, DECIMAL_POINT).kind;
        kinds[cells[i].number && kind == CELL_TEXT ? CELL_NUMBER : kind] = true;
        n++;
    }
    int different = kinds[CELL_TEXT] + kinds[CELL_NUMBER] + kinds[CELL_DATE];
    return different > 1 && n < MOST_COUNTED / 4;
}

/* Whether the row below a row of heads is one, too. */
static bool is_next_head(const struct block_row *above, const struct block_row *row,
                         const struct block_row *below, uint32_t number) {
    if (row->numbers > 0 || row->n == 0) return false;
    if (above->has_wide || above->reach >= number) return true;
    if (above->bold && row->bold && below->n > 0 && !below->bold) return true;
    bool sparse = above->behind < row->behind;
    return sparse && (row->bold || below->numbers > 0);
}

static uint32_t count_heads(const struct sheet *sheet, const struct sheet_block *block,
                            size_t first, const struct sheet_merges *merges) {
    const struct sheet_cell *cells = block_cells(sheet, block);
    struct block_row row = read_row(sheet, block, first, merges);
    uint32_t top = cells[first].row, reach = row.reach, heads = 1;
    if (block->named) return block->named->head_rows;
    if (row.numbers > 0 && (!row.bold || row.numbers == row.n)) return 0;
    if (is_form(sheet, block, first)) return 0;
    while (heads < MOST_HEADS && row.first + row.n < block->n) {
        struct block_row next = read_row(sheet, block, row.first + row.n, merges), below = {0};
        uint32_t number = cells[next.first].row;
        if (next.first + next.n < block->n)
            below = read_row(sheet, block, next.first + next.n, merges);
        row.reach = reach;
        if (!is_next_head(&row, &next, &below, number)) break;
        heads = number - top + 1;
        if (next.reach > reach) reach = next.reach;
        row = next;
    }
    return heads;
}

/* The first column, and each behind one in which a name covers several rows. */
static uint32_t count_head_columns(const struct sheet *sheet, const struct sheet_block *block,
                                   size_t first, const struct sheet_merges *merges) {
    const struct sheet_cell *cells = block_cells(sheet, block);
    uint32_t columns = 1;
    bool covers[MOST_HEAD_COLUMNS] = {false};
    size_t numbers[MOST_HEAD_COLUMNS + 2] = {0}, texts[MOST_HEAD_COLUMNS + 2] = {0};
    for (size_t i = first; i < block->n; i++) {
        uint32_t column = cells[i].column - block->range.left;
        if (column > MOST_HEAD_COLUMNS) continue;
        numbers[column] += cells[i].number;
        texts[column] += !cells[i].number;
        if (column >= MOST_HEAD_COLUMNS || cells[i].number || merges->n == 0) continue;
        const struct sheet_range *merge = merge_find(merges, &cells[i]);
        covers[column] =
            covers[column] || (merge && merge->bottom > merge->top && merge->left == merge->right);
    }
    for (uint32_t i = 0; i < MOST_HEAD_COLUMNS && covers[i]; i++) columns = i + 2;
    while (columns > 1 && numbers[columns - 1] > texts[columns - 1]) columns--;
    return columns;
}

/* A first column that is empty in most rows but the first, beside one of names that is full. */
static bool finds_groups(const struct sheet *sheet, const struct sheet_block *block, size_t first) {
    const struct sheet_cell *cells = block_cells(sheet, block);
    size_t rows = 0, filled = 0, beside = 0;
    bool begins = first < block->n && cells[first].column == block->range.left;
    for (size_t i = first; i < block->n; i++) {
        bool text = !cells[i].number;
        rows += i == first || cells[i].row != cells[i - 1].row;
        filled += text && cells[i].column == block->range.left;
        beside += text && cells[i].column == block->range.left + 1;
    }
    bool three = block->range.right - block->range.left >= 2;
    return begins && three && filled * 2 <= rows && filled > 0 && beside == rows;
}

/* Where the rows begin, behind titles and heads. */
static size_t find_body(const struct sheet *sheet, const struct sheet_block *block, size_t first,
                        uint32_t heads) {
    const struct sheet_cell *cells = block_cells(sheet, block);
    uint32_t top = first < block->n ? cells[first].row : 0;
    while (first < block->n && cells[first].row < top + heads) first++;
    return first;
}

/* Numbers that stand where the block above an empty row has its columns. */
static bool goes_on(const struct sheet *sheet, const struct sheet_block *block,
                    const struct sheet_block *before, const struct sheet_merges *merges) {
    if (before == NULL || block->named || block->seen.top != before->seen.bottom + 2) return false;
    if (block->range.left < before->range.left || block->range.right > before->range.right)
        return false;
    struct block_row row = read_row(sheet, block, 0, merges);
    return row.n > 1 && row.numbers > 0;
}

struct block_heads block_find_heads(const struct sheet *sheet, const struct sheet_block *block,
                                    const struct sheet_block *before,
                                    const struct sheet_merges *merges) {
    struct block_heads heads = {.columns = 1};
    if (block->range.left == block->range.right && block->named == NULL) {
        heads.list = true;
        return heads;
    }
    heads.goes_on = goes_on(sheet, block, before, merges);
    if (heads.goes_on) return heads;
    heads.titles = count_titles(sheet, block, merges);
    heads.rows = count_heads(sheet, block, heads.titles, merges);
    size_t body = find_body(sheet, block, heads.titles, heads.rows);
    heads.columns = count_head_columns(sheet, block, body, merges);
    heads.groups_below = heads.columns == 1 && finds_groups(sheet, block, body);
    if (heads.groups_below) heads.columns = 2;
    return heads;
}
