/* retrieval/extract/page/layout_rules.c: tables between lines. Lines that cross make a grid; a
 * place of the grid that no line parts from its neighbour is one cell with it. See
 * layout_private.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/page/layout_private.h"

static const float TOLERANCE = 3;           /* points, between lines that are one, or that touch */
enum { MAX_LINES = 200, MAX_RULES = 1500 }; /* of a grid each way, of a page */

/* A rule along one axis. */
struct rule {
    float at, start, end; /* across, along */
    int group;
};
struct rule_list {
    struct rule *list;
    int n;
};

static int compare_rules(const void *left, const void *right) {
    const struct rule *a = left, *b = right;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    return (a->start > b->start) - (a->start < b->start);
}

/* Pieces of one line, and the two edges of a thick one, become one rule. */
static void join_pieces(struct rule_list *rules) {
    int kept = 0;
    qsort(rules->list, (size_t)rules->n, sizeof *rules->list, compare_rules);
    for (int i = 0; i < rules->n; i++) {
        struct rule *rule = &rules->list[i], *same = NULL;
        for (int j = kept - 1; j >= 0 && rule->at - rules->list[j].at < TOLERANCE && !same; j--)
            if (rule->start < rules->list[j].end + TOLERANCE &&
                rule->end > rules->list[j].start - TOLERANCE)
                same = &rules->list[j];
        if (same) {
            same->start = fminf(same->start, rule->start);
            same->end = fmaxf(same->end, rule->end);
            continue;
        }
        rules->list[kept] = *rule;
        kept++;
    }
    rules->n = kept;
}

static void take_rules(const struct page_words *words, struct rule_list *across,
                       struct rule_list *down) {
    across->list = xcalloc((size_t)words->n_rules + 1, sizeof *across->list);
    down->list = xcalloc((size_t)words->n_rules + 1, sizeof *down->list);
    for (int i = 0; i < words->n_rules && i < MAX_RULES; i++) {
        const struct page_rect *box = &words->rules[i].box;
        bool lies = rect_width(box) > rect_height(box);
        struct rule rule = {.at = lies ? rect_middle(box) : rect_center(box),
                            .start = lies ? box->left : box->top,
                            .end = lies ? box->right : box->bottom};
        struct rule_list *list = lies ? across : down;
        list->list[list->n] = rule;
        list->n++;
    }
    join_pieces(across);
    join_pieces(down);
}

/* Rules that touch are of one grid. */

static bool rules_cross(const struct rule *across, const struct rule *down) {
    return down->at > across->start - TOLERANCE && down->at < across->end + TOLERANCE &&
           across->at > down->start - TOLERANCE && across->at < down->end + TOLERANCE;
}

static void spread(struct rule_list *across, struct rule_list *down, bool lies, int first,
                   int group) {
    int *open = xcalloc((size_t)(across->n + down->n) + 1, sizeof *open), n = 1;
    open[0] = lies ? first : across->n + first;
    (lies ? across : down)->list[first].group = group;
    while (n > 0) {
        n--;
        bool is_across = open[n] < across->n;
        const struct rule *rule =
            is_across ? &across->list[open[n]] : &down->list[open[n] - across->n];
        struct rule_list *others = is_across ? down : across;
        for (int i = 0; i < others->n; i++) {
            struct rule *other = &others->list[i];
            bool cross = other->group == 0 &&
                         (is_across ? rules_cross(rule, other) : rules_cross(other, rule));
            if (!cross) continue;
            other->group = group;
            open[n] = is_across ? across->n + i : i;
            n++;
        }
    }
    free(open);
}

static int group_rules(struct rule_list *across, struct rule_list *down) {
    int groups = 0;
    for (int i = 0; i < across->n; i++)
        if (across->list[i].group == 0) {
            groups++;
            spread(across, down, true, i, groups);
        }
    return groups;
}

/* One grid. */

struct ruled_grid {
    const struct rule_list *across, *down;
    int group;
    float x[MAX_LINES], y[MAX_LINES]; /* lines */
    int n_x, n_y;
    int *cell_of; /* [(n_y - 1) x (n_x - 1)] the place in which the place's cell begins */
};

static int compare_places(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

static void list_places(const struct rule_list *rules, const struct rule_list *others, int group,
                        float *places, int *n) {
    float least = INFINITY, most = -INFINITY;
    int found = 0, kept = 0;
    for (int i = 0; i < rules->n && found < MAX_LINES - 2; i++)
        if (rules->list[i].group == group) {
            places[found] = rules->list[i].at;
            found++;
        }
    for (int i = 0; i < others->n; i++)
        if (others->list[i].group == group) {
            least = fminf(least, others->list[i].start);
            most = fmaxf(most, others->list[i].end);
        }
    /* A table may be open at its sides. */
    places[found] = least;
    places[found + 1] = most;
    found += 2;
    qsort(places, (size_t)found, sizeof *places, compare_places);
    for (int i = 0; i < found; i++) {
        if (kept > 0 && places[i] - places[kept - 1] < 2 * TOLERANCE) continue;
        places[kept] = places[i];
        kept++;
    }
    *n = kept;
}

/* Whether a line at `at` parts what lies between start and end, most of it. */
static bool is_parted(const struct rule_list *rules, int group, float at, float start, float end) {
    float covered = 0;
    for (int i = 0; i < rules->n; i++) {
        const struct rule *rule = &rules->list[i];
        if (rule->group != group || fabsf(rule->at - at) >= 2 * TOLERANCE) continue;
        covered += fmaxf(0, fminf(rule->end, end) - fmaxf(rule->start, start));
    }
    return covered > 0.6F * (end - start);
}

static bool parted_right(const struct ruled_grid *grid, int row, int column) {
    return is_parted(grid->down, grid->group, grid->x[column + 1], grid->y[row], grid->y[row + 1]);
}

static bool parted_below(const struct ruled_grid *grid, int row, int column) {
    return is_parted(grid->across, grid->group, grid->y[row + 1], grid->x[column],
                     grid->x[column + 1]);
}

static bool row_follows(const struct ruled_grid *grid, int row, int first, int end) {
    int columns = grid->n_x - 1;
    if (row + 2 > grid->n_y - 1) return false;
    for (int column = first; column < end; column++) {
        bool inner = column + 1 < end;
        if (parted_below(grid, row, column) || grid->cell_of[(row + 1) * columns + column] >= 0 ||
            (inner && parted_right(grid, row + 1, column)))
            return false;
    }
    return true;
}

static void find_cells(struct ruled_grid *grid) {
    int columns = grid->n_x - 1, rows = grid->n_y - 1;
    grid->cell_of = xcalloc((size_t)columns * (size_t)rows + 1, sizeof *grid->cell_of);
    for (int i = 0; i < columns * rows; i++) grid->cell_of[i] = -1;
    for (int i = 0; i < columns * rows; i++) {
        int row = i / columns, column = i % columns, end = column + 1, last = row;
        if (grid->cell_of[i] >= 0) continue;
        while (end < columns && grid->cell_of[row * columns + end] < 0 &&
               !parted_right(grid, row, end - 1))
            end++;
        while (row_follows(grid, last, column, end)) last++;
        for (int r = row; r <= last; r++)
            for (int c = column; c < end; c++) grid->cell_of[r * columns + c] = i;
    }
}

static int find_place(const float *places, int n, float at) {
    for (int i = 0; i + 1 < n; i++)
        if (at >= places[i] && at < places[i + 1]) return i;
    return -1;
}

/* Words to cells. */

struct placed_word {
    struct layout_word word;
    int cell;
};

static int compare_placed(const void *left, const void *right) {
    const struct placed_word *a = left, *b = right;
    return a->cell - b->cell;
}

/* The words within the grid, by cells; they are taken from the page's. */
static int take_words(const struct ruled_grid *grid, struct page_words *words,
                      struct placed_word *placed) {
    int n = 0, kept = 0;
    for (int i = 0; i < words->n; i++) {
        const struct layout_word *word = &words->list[i];
        int column = find_place(grid->x, grid->n_x, rect_center(&word->box)),
            row = find_place(grid->y, grid->n_y, rect_middle(&word->box));
        if (column >= 0 && row >= 0) {
            placed[n] = (struct placed_word){*word, grid->cell_of[row * (grid->n_x - 1) + column]};
            n++;
        } else {
            words->list[kept] = *word;
            kept++;
        }
    }
    words->n = kept;
    qsort(placed, (size_t)n, sizeof *placed, compare_placed);
    return n;
}

static int count_filled(const struct ruled_grid *grid, const struct page_words *words, int *cells) {
    bool *filled = xcalloc((size_t)(grid->n_x * grid->n_y) + 1, sizeof *filled);
    int n = 0, lines = (grid->n_x - 1) * (grid->n_y - 1);
    for (int i = 0; i < words->n; i++) {
        int column = find_place(grid->x, grid->n_x, rect_center(&words->list[i].box)),
            row = find_place(grid->y, grid->n_y, rect_middle(&words->list[i].box));
        if (column >= 0 && row >= 0) filled[grid->cell_of[row * (grid->n_x - 1) + column]] = true;
    }
    *cells = 0;
    for (int i = 0; i < lines; i++) {
        n += filled[i];
        *cells += grid->cell_of[i] == i;
    }
    free(filled);
    return n;
}

static void size_cell(const struct ruled_grid *grid, int place, struct table_cell *cell) {
    int columns = grid->n_x - 1, rows = grid->n_y - 1, row = place / columns,
        column = place % columns, end = column, last = row;
    while (end < columns && grid->cell_of[row * columns + end] == place) end++;
    while (last < rows && grid->cell_of[last * columns + column] == place) last++;
    cell->columns = (uint32_t)(end - column);
    cell->rows = (uint32_t)(last - row);
}

static void add_cells(struct page_layout *layout, const struct ruled_grid *grid,
                      struct placed_word *placed, int n, struct table *table) {
    int columns = grid->n_x - 1, at = 0;
    struct layout_word *words = xcalloc((size_t)n + 1, sizeof *words);
    for (int place = 0; place < columns * (grid->n_y - 1); place++) {
        if (grid->cell_of[place] != place) continue;
        int n_words = 0, letters = 0, bold = 0;
        for (; at < n && placed[at].cell == place; at++) {
            words[n_words] = placed[at].word;
            letters += (int)words[n_words].text.size;
            bold += words[n_words].source->bold ? (int)words[n_words].text.size : 0;
            n_words++;
        }
        struct table_cell *cell =
            table_begin_cell(table, (uint32_t)(place / columns), (uint32_t)(place % columns));
        size_cell(grid, place, cell);
        cell->head = letters > 0 && 2 * bold > letters;
        layout_fill_cell(layout, table, words, n_words);
        table_end_cell(table);
    }
    free(words);
}

static void add_grid(struct page_layout *layout, int page, const struct ruled_grid *grid) {
    struct page_words *words = &layout->words[page];
    struct placed_word *placed = xcalloc((size_t)words->n + 1, sizeof *placed);
    struct layout_table table = {
        .page = page,
        .box = {grid->x[0], grid->y[0], grid->x[grid->n_x - 1], grid->y[grid->n_y - 1]}};
    int n = take_words(grid, words, placed);
    add_cells(layout, grid, placed, n, &table.table);
    table_find_heads(&table.table);
    buffer_append(&layout->tables, &table, sizeof table);
    free(placed);
}

/* Whether one row of the grid holds rows of text that no lines part: most of them fill most of its
 * columns. */
static bool row_holds_rows(const struct ruled_grid *grid, const struct page_words *words, int row) {
    struct layout_word *inside = xcalloc((size_t)words->n + 1, sizeof *inside);
    int *row_of = xcalloc((size_t)words->n + 1, sizeof *row_of), n = 0, rows = 0, filled = 0,
        first = 0;
    for (int i = 0; i < words->n; i++) {
        const struct page_rect *box = &words->list[i].box;
        if (find_place(grid->y, grid->n_y, rect_middle(box)) != row ||
            find_place(grid->x, grid->n_x, rect_center(box)) < 0)
            continue;
        inside[n] = words->list[i];
        n++;
    }
    layout_gather_rows(inside, n, row_of);
    for (int i = 0, last = -1; i < n; i++) {
        bool begins = i == 0 || row_of[i] != row_of[i - 1];
        int column = find_place(grid->x, grid->n_x, rect_center(&inside[i].box));
        rows += begins;
        first += begins && column == 0;
        filled += begins || column != last;
        last = column;
    }
    free(inside);
    free(row_of);
    return rows >= 3 && 10 * first >= 7 * rows && 10 * filled >= 6 * rows * (grid->n_x - 1);
}

static bool has_loose_rows(const struct ruled_grid *grid, const struct page_words *words) {
    if (grid->n_y > 5) return false;
    for (int row = 0; row + 1 < grid->n_y; row++)
        if (row_holds_rows(grid, words, row)) return true;
    return false;
}

/* A grid of one column is a box around text, or shades behind rows. One that holds rows without
 * lines between them is cut by its white strips. */
static void read_group(struct page_layout *layout, int page, struct ruled_grid *grid) {
    list_places(grid->down, grid->across, grid->group, grid->x, &grid->n_x);
    list_places(grid->across, grid->down, grid->group, grid->y, &grid->n_y);
    if (grid->n_x < 3 || grid->n_y < 3 || !isfinite(grid->x[0]) || !isfinite(grid->y[0])) return;
    find_cells(grid);
    int cells, filled = count_filled(grid, &layout->words[page], &cells);
    if (filled >= 4 && 4 * filled >= cells && !has_loose_rows(grid, &layout->words[page]))
        add_grid(layout, page, grid);
    free(grid->cell_of);
    grid->cell_of = NULL;
}

void layout_find_ruled(struct page_layout *layout, int page) {
    struct rule_list across = {0}, down = {0};
    struct ruled_grid *grid = xcalloc(1, sizeof *grid);
    take_rules(&layout->words[page], &across, &down);
    int groups = group_rules(&across, &down);
    for (int group = 1; group <= groups && layout->words[page].n > 0; group++) {
        *grid = (struct ruled_grid){.across = &across, .down = &down, .group = group};
        read_group(layout, page, grid);
    }
    free(across.list);
    free(down.list);
    free(grid);
}
