/* retrieval/extract/page/layout_align.c: tables without lines: rows that white strips cut into
 * short cells. See layout_private.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retrieval/extract/page/layout_private.h"

/* Cells. */

struct cell_words {
    int first, end;   /* words */
    int column, last; /* columns that it covers */
    bool bold;
};

struct table_row {
    struct cell_words cells[MAX_COLUMNS];
    int n;
    struct page_rect box;
    bool begins; /* not a further line of the row above */
    bool numeric;
};

struct aligned_grid {
    const struct aligned_rows *rows;
    struct strip strips[MAX_COLUMNS]; /* [n_strips] */
    int n_strips;
    struct table_row *list; /* [rows->n_rows] */
    int head_rows;
    bool ruled; /* a line parts the heads from the rows */
};

/* White strips of the rows below the heads: those that few lines cross. */
static void refine_strips(struct aligned_grid *grid, const struct strip *strips, int n_strips) {
    enum { BINS = 2048 };
    const struct aligned_rows *rows = grid->rows;
    int *cover = xcalloc(BINS + 1, sizeof *cover), most = max_int(1, rows->n_rows / 6), start = -1;
    struct page_rect box = rows->rows[0].box;
    for (int i = 0; i < rows->n_rows; i++) rect_extend(&box, &rows->rows[i].box);
    float step = fmaxf(rect_width(&box), 1) / BINS, size = rows->words[rows->rows[0].first].size;
    for (int i = rows->rows[0].first; i < rows->rows[rows->n_rows - 1].end; i++) {
        const struct page_rect *word = &rows->words[i].box;
        int from = max_int(0, (int)((word->left - box.left) / step)),
            to = min_int(BINS, (int)((word->right - box.left) / step) + 1);
        cover[min_int(from, BINS)]++;
        cover[to]--;
    }
    if (rows->n_rows < 4) most = 0;
    for (int bin = 0, depth = 0; bin < BINS; bin++) {
        depth += cover[bin];
        bool white = depth <= most;
        if (white && start < 0) start = bin;
        if (white || start < 0) continue;
        bool wide = (float)(bin - start) * step >= 0.5F * size && start > 0;
        if (wide && grid->n_strips < MAX_COLUMNS - 1) {
            grid->strips[grid->n_strips] =
                (struct strip){box.left + (float)start * step, box.left + (float)bin * step};
            grid->n_strips++;
        }
        start = -1;
    }
    free(cover);
    if (grid->n_strips >= n_strips) return;
    memcpy(grid->strips, strips, (size_t)n_strips * sizeof *strips);
    grid->n_strips = n_strips;
}

/* The words of a row that no wide gap parts. */
static void list_cells(const struct aligned_grid *grid, int row) {
    const struct aligned_rows *rows = grid->rows;
    const struct cut_row *cut = &rows->rows[row];
    struct table_row *out = &grid->list[row];
    out->box = cut->box;
    for (int at = cut->first, end; at < cut->end; at = end) {
        float right = rows->words[at].box.right;
        int last = strip_column(grid->strips, grid->n_strips, rect_center(&rows->words[at].box)),
            column = last;
        for (int strip = 0; strip < grid->n_strips; strip++)
            if (rows->words[at].box.left < grid->strips[strip].left &&
                rows->words[at].box.right > grid->strips[strip].right) {
                column = min_int(column, strip);
                last = max_int(last, strip + 1);
            }
        for (end = at + 1; end < cut->end; end++) {
            const struct layout_word *word = &rows->words[end];
            int next = strip_column(grid->strips, grid->n_strips, rect_center(&word->box));
            bool near = word->box.left - right < 0.5F * word->size;
            if (next > last && !near) break;
            last = max_int(last, next);
            right = fmaxf(right, word->box.right);
        }
        if (out->n == MAX_COLUMNS) break;
        struct cell_words *cell = &out->cells[out->n];
        *cell = (struct cell_words){at, end, column, last, true};
        for (int i = at; i < end; i++) {
            cell->bold = cell->bold && rows->words[i].source->bold;
            out->numeric |=
                column > 0 && text_is_numeric(rows->words[i].text) && rows->words[i].text.size != 4;
        }
        out->n++;
    }
}

/* Heads. */

static bool has_rule_below(const struct aligned_grid *grid, int row, float *left, float *right) {
    const struct aligned_rows *rows = grid->rows;
    float top = rows->rows[row].box.bottom - 3,
          bottom = row + 1 < rows->n_rows ? rows->rows[row + 1].box.top + 3 : top + 8;
    float from = (*left + *right) / 2;
    for (int i = 0; i < rows->on->n_rules; i++) {
        const struct page_rect *rule = &rows->on->rules[i].box;
        float y = rect_middle(rule);
        bool under = rect_width(rule) > 4 * rect_height(rule) && y > top && y < bottom &&
                     rule->left < from && rule->right > from;
        if (!under) continue;
        *left = rule->left;
        *right = rule->right;
        return true;
    }
    return false;
}

/* Rows over the first that has numbers; at least the first, at most those above a line. */
static void count_heads(struct aligned_grid *grid) {
    int n = grid->rows->n_rows, heads = 0;
    const struct page_rect *first = &grid->rows->rows[0].box;
    while (heads < n && heads < 4 && !grid->list[heads].numeric) heads++;
    bool numbers = heads < n && heads < 4;
    for (int i = 0; i < 4 && i + 1 < n; i++) {
        float left = first->left, right = first->right;
        if (!has_rule_below(grid, i, &left, &right) || right - left < 0.8F * rect_width(first))
            continue;
        grid->head_rows = i + 1;
        grid->ruled = true;
        return;
    }
    grid->head_rows = numbers && heads > 0 ? heads : 1;
}

/* Columns that have text below the heads, from one on, and where they are. */
static float column_middle(const struct aligned_grid *grid, int column, bool *found) {
    struct page_rect box = {INFINITY, 0, -INFINITY, 0};
    for (int i = grid->head_rows; i < grid->rows->n_rows; i++)
        for (int j = 0; j < grid->list[i].n; j++) {
            const struct cell_words *cell = &grid->list[i].cells[j];
            if (cell->column != column || cell->last != column) continue;
            for (int k = cell->first; k < cell->end; k++)
                rect_extend(&box, &grid->rows->words[k].box);
        }
    *found = box.right > box.left;
    return rect_center(&box);
}

static struct page_rect cell_box(const struct aligned_grid *grid, const struct cell_words *cell) {
    struct page_rect box = grid->rows->words[cell->first].box;
    for (int i = cell->first; i < cell->end; i++) rect_extend(&box, &grid->rows->words[i].box);
    return box;
}

/* A head covers the columns under the line below it, or else those that are nearer to it than to
 * the next head. */
static void spread_head(struct aligned_grid *grid, int row, int index) {
    struct table_row *heads = &grid->list[row];
    struct cell_words *cell = &heads->cells[index];
    struct page_rect box = cell_box(grid, cell);
    float left = box.left, right = box.right;
    bool ruled = has_rule_below(grid, row, &left, &right) &&
                 right - left < 0.9F * rect_width(&grid->rows->rows[row].box) + 20;
    for (int column = 0; column <= grid->n_strips; column++) {
        bool found;
        float middle = column_middle(grid, column, &found), nearest = INFINITY;
        int best = -1;
        if (!found || (column == 0 && heads->cells[0].column > 0)) continue;
        for (int i = 0; i < heads->n; i++) {
            struct page_rect other = cell_box(grid, &heads->cells[i]);
            float distance = fabsf(rect_center(&other) - middle);
            if (distance < nearest) {
                nearest = distance;
                best = i;
            }
        }
        bool mine = ruled ? middle > left && middle < right : best == index;
        if (!mine) continue;
        cell->column = min_int(cell->column, column);
        cell->last = max_int(cell->last, column);
    }
}

/* Only where another row of heads names the columns one by one. */
static void spread_heads(struct aligned_grid *grid) {
    for (int row = 0; row + 1 < grid->head_rows; row++) {
        struct table_row *heads = &grid->list[row];
        if (heads->n >= grid->list[grid->head_rows - 1].n && heads->n > grid->n_strips) continue;
        for (int i = 0; i < heads->n; i++) spread_head(grid, row, i);
        for (int i = 0; i + 1 < heads->n; i++)
            heads->cells[i].last = min_int(heads->cells[i].last, heads->cells[i + 1].column - 1);
        for (int i = 0; i < heads->n; i++)
            heads->cells[i].last = max_int(heads->cells[i].last, heads->cells[i].column);
    }
}

/* Rows. */

static float row_pitch(const struct aligned_grid *grid, int row) {
    return grid->list[row].box.bottom - grid->list[row - 1].box.bottom;
}

/* The least distance of lines: within a cell they stand closer than rows do. */
static float least_pitch(const struct aligned_grid *grid) {
    float least = INFINITY;
    for (int i = grid->head_rows + 1; i < grid->rows->n_rows; i++)
        least = fminf(least, row_pitch(grid, i));
    return least;
}

static bool is_number(const struct aligned_grid *grid, const struct cell_words *cell) {
    for (int i = cell->first; i < cell->end; i++)
        if (!text_is_numeric(grid->rows->words[i].text)) return false;
    return cell->column > 0;
}

/* Whether the row has a number below one of the row above: numbers go on in no second line. */
static bool counts_on(const struct aligned_grid *grid, int row) {
    const struct table_row *here = &grid->list[row], *above = &grid->list[row - 1];
    for (int i = 0; i < here->n; i++)
        for (int j = 0; j < above->n && is_number(grid, &here->cells[i]); j++)
            if (above->cells[j].column == here->cells[i].column &&
                is_number(grid, &above->cells[j]))
                return true;
    return false;
}

static bool is_further_line(const struct aligned_grid *grid, int i, float least, bool parted) {
    const struct table_row *row = &grid->list[i];
    float left = row->box.left, right = row->box.right;
    if (has_rule_below(grid, i - 1, &left, &right)) return false;
    bool close = row_pitch(grid, i) < 1.2F * least;
    bool has_first = row->n > 0 && row->cells[0].column == 0;
    if (parted) return close && !(has_first && counts_on(grid, i));
    if (!has_first) return !row->numeric && close;
    const struct layout_word *word = &grid->rows->words[row->cells[0].first];
    char c = word->text.text[0];
    return row->n == 1 && c >= 'a' && c <= 'z' && close;
}

/* Whether rows stand apart from each other: some distances are larger than the least. */
static bool has_parted_rows(const struct aligned_grid *grid, float least) {
    int close = 0, apart = 0;
    for (int i = grid->head_rows + 1; i < grid->rows->n_rows; i++) {
        float pitch = row_pitch(grid, i);
        close += pitch < 1.15F * least;
        apart += pitch > 1.25F * least;
    }
    return close > 0 && apart > close / 3 && apart > 1;
}

/* A further line of heads that stand over one column each. */
static bool is_further_head(const struct aligned_grid *grid, int i) {
    const struct table_row *above = &grid->list[i - 1];
    float left = above->box.left, right = above->box.right,
          size = grid->rows->words[grid->rows->rows[i].first].size;
    if (row_pitch(grid, i) > 1.4F * size || has_rule_below(grid, i - 1, &left, &right))
        return false;
    for (int j = 0; j < above->n; j++)
        if (above->cells[j].last > above->cells[j].column) return false;
    return true;
}

static void find_rows(struct aligned_grid *grid) {
    float least = least_pitch(grid);
    bool parted = has_parted_rows(grid, least);
    for (int i = 0; i < grid->rows->n_rows; i++) {
        bool head = i > 0 && i < grid->head_rows, first = i == 0 || i == grid->head_rows;
        bool further =
            head ? is_further_head(grid, i) : !first && is_further_line(grid, i, least, parted);
        grid->list[i].begins = !further;
    }
}

/* Writing the cells. */

struct cell_place {
    struct layout_word *words;
    int n;
};

/* The lines of rows [first, end) in a column that begins there. */
static int gather_cell(const struct aligned_grid *grid, int first, int end, int column,
                       struct layout_word *words, struct table_cell *facts) {
    int n = 0, last = column;
    bool bold = true;
    for (int row = first; row < end; row++)
        for (int i = 0; i < grid->list[row].n; i++) {
            const struct cell_words *cell = &grid->list[row].cells[i];
            if (cell->column != column) continue;
            last = max_int(last, cell->last);
            bold = bold && cell->bold;
            for (int k = cell->first; k < cell->end; k++) {
                words[n] = grid->rows->words[k];
                n++;
            }
        }
    facts->columns = (uint32_t)(last - column + 1);
    facts->head = n > 0 && bold;
    return n;
}

static void add_row(struct page_layout *layout, struct aligned_grid *grid, const int span[2],
                    int number, struct table *table) {
    int most = grid->rows->rows[span[1] - 1].end - grid->rows->rows[span[0]].first;
    struct layout_word *words = xcalloc((size_t)most + 1, sizeof *words);
    for (int column = 0; column <= grid->n_strips; column++) {
        struct table_cell facts = {0};
        int n = gather_cell(grid, span[0], span[1], column, words, &facts);
        if (n == 0) continue;
        struct table_cell *cell = table_begin_cell(table, (uint32_t)number, (uint32_t)column);
        cell->columns = facts.columns;
        cell->head = facts.head;
        layout_fill_cell(layout, table, words, n);
        table_end_cell(table);
    }
    free(words);
}

/* A name of rows that stands in the first of them alone covers those below that have none. */
static void stretch_names(struct table *table, uint32_t n_rows) {
    struct table_cell *cells = (void *)table->cells.data, *name = NULL;
    size_t n = table->cells.size / sizeof *cells;
    for (size_t i = 0; i < n; i++) {
        if (cells[i].row < table->head_rows) continue;
        bool begins_row = i == 0 || cells[i - 1].row != cells[i].row;
        if (cells[i].column == 0 && begins_row) name = &cells[i];
        bool bare = begins_row && cells[i].column == 1 && name && cells[i].row < n_rows;
        if (bare) name->rows = cells[i].row - name->row + 1;
    }
}

int aligned_add_table(struct page_layout *layout, const struct aligned_rows *rows,
                      const struct strip *strips, int n_strips) {
    struct aligned_grid grid = {.rows = rows};
    struct layout_table made = {.page = rows->page, .box = rows->rows[0].box};
    int number = 0, heads = 0;
    refine_strips(&grid, strips, n_strips);
    grid.list = xcalloc((size_t)rows->n_rows, sizeof *grid.list);
    for (int i = 0; i < rows->n_rows; i++) list_cells(&grid, i);
    count_heads(&grid);
    spread_heads(&grid);
    find_rows(&grid);
    for (int first = 0, end; first < rows->n_rows; first = end, number++) {
        for (end = first + 1; end < rows->n_rows && !grid.list[end].begins; end++) continue;
        add_row(layout, &grid, (const int[2]){first, end}, number, &made.table);
    }
    for (int i = 0; i < rows->n_rows; i++) rect_extend(&made.box, &rows->rows[i].box);
    for (int i = 0; i < grid.head_rows; i++) heads += grid.list[i].begins;
    made.table.head_rows = number > heads ? (uint32_t)heads : 0;
    if (made.table.head_rows == 1 && !grid.ruled && !table_row_names(&made.table, 0))
        made.table.head_rows = 0;
    made.table.head_columns = 1;
    stretch_names(&made.table, (uint32_t)number);
    table_find_columns(&made.table);
    free(grid.list);
    buffer_append(&layout->tables, &made, sizeof made);
    return (int)(layout->tables.size / sizeof made) - 1;
}
