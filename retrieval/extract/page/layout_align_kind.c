/* retrieval/extract/page/layout_align_kind.c: whether rows that white strips cut are a table,
 * columns of prose, or lines. See layout_private.h. */
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retrieval/extract/page/layout_private.h"

bool text_is_numeric(struct text_span text) {
    size_t digits = 0, letters = 0;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.text[i];
        digits += is_digit(c);
        letters += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    }
    return (digits > 0 && digits >= letters) || span_is(text, "-") || span_is(text, "–") ||
           span_is(text, "%");
}

int strip_column(const struct strip *strips, int n_strips, float x) {
    int column = 0;
    while (column < n_strips && x > (strips[column].left + strips[column].right) / 2) column++;
    return column;
}

/* Whether they are a table. */

struct aligned_column {
    int cells, words, letters, numbers, counting;
    long last; /* the last whole number */
};

static void read_cell(const struct aligned_rows *rows, int first, int end,
                      struct aligned_column *facts) {
    bool numeric = true;
    for (int i = first; i < end; i++) {
        struct text_span text = rows->words[i].text;
        facts->words++;
        facts->letters += (int)text.size;
        numeric = numeric && text_is_numeric(text);
    }
    facts->cells++;
    facts->numbers += numeric;
    struct text_span text = rows->words[first].text;
    char digits[8] = {0}, *rest = digits;
    if (end - first != 1 || text.size >= sizeof digits) return;
    memcpy(digits, text.text, text.size);
    long number = strtol(digits, &rest, 10);
    if (*rest || number < facts->last) return;
    facts->counting++;
    facts->last = number;
}

/* Rows of which several columns have text. */
static int read_columns(const struct aligned_rows *rows, const struct strip *strips, int n_strips,
                        struct aligned_column *facts) {
    int matched = 0;
    for (int i = 0; i < rows->n_rows; i++) {
        int filled = 0;
        for (int at = rows->rows[i].first, end; at < rows->rows[i].end; at = end) {
            int column = strip_column(strips, n_strips, rect_center(&rows->words[at].box));
            for (end = at + 1; end < rows->rows[i].end; end++)
                if (strip_column(strips, n_strips, rect_center(&rows->words[end].box)) != column)
                    break;
            read_cell(rows, at, end, &facts[column]);
            filled++;
        }
        matched += filled > 1;
    }
    return matched;
}

/* Titles and the numbers of their pages. */
static bool is_contents(const struct aligned_column *facts, int n) {
    const struct aligned_column *last = &facts[n - 1];
    return n <= 3 && last->cells > 2 && last->counting == last->cells &&
           facts[n - 2].words > facts[n - 2].cells;
}

static bool is_code(const struct aligned_rows *rows) {
    int fixed = 0, n = rows->rows[rows->n_rows - 1].end - rows->rows[0].first;
    for (int i = rows->rows[0].first; i < rows->rows[rows->n_rows - 1].end; i++)
        fixed += rows->words[i].source->fixed_pitch;
    return 2 * fixed > n;
}

static bool is_formula(const struct aligned_rows *rows) {
    for (int i = rows->rows[0].first; i < rows->rows[rows->n_rows - 1].end; i++)
        if (span_is(rows->words[i].text, "=")) return true;
    return false;
}

/* A column of numbers that count on, beside lines of prose. */
static bool counts_lines(const struct aligned_column *facts, int columns) {
    const struct aligned_column *first = &facts[0];
    if (first->cells < 4 || first->counting < first->cells) return false;
    for (int i = 1; i < columns; i++)
        if (facts[i].words < 5 * facts[i].cells) return false;
    return true;
}

/* Whether the columns' cells are as short as a table's. */
static bool is_table(const struct aligned_column *facts, int columns, int n_rows, int matched) {
    int brief = 0, numeric = 0, prose = 0;
    for (int i = 0; i < columns; i++) {
        const struct aligned_column *column = &facts[i];
        if (column->cells == 0) continue;
        bool numbers = 2 * column->numbers > column->cells;
        numeric += numbers;
        brief += numbers ||
                 (2 * column->words <= 5 * column->cells && column->letters <= 22 * column->cells);
        prose += !numbers && 2 * column->words > 9 * column->cells && column->cells > 2;
    }
    if (3 * matched < n_rows) return false;
    if (n_rows < 3) return numeric > 0 && brief == columns;
    if (prose >= 2 && numeric == 0) return false;
    return 2 * brief >= columns;
}

/* Rows of prose that end before the second column: names with a mark at the right, and what is said
 * of them below. */
static int count_loose(const struct aligned_rows *rows, const struct strip *strips) {
    int loose = 0;
    for (int i = 0; i < rows->n_rows; i++) {
        const struct cut_row *row = &rows->rows[i];
        loose += row->end - row->first > 4 && row->box.right < strips[0].right;
    }
    return loose;
}

/* The least strip between columns of few rows: words of prose stand as far apart by chance. */
static bool strips_are_wide(const struct aligned_rows *rows, const struct strip *strips,
                            int n_strips) {
    float size = rows->words[rows->rows[0].first].size;
    for (int i = 0; i < n_strips; i++)
        if (strips[i].right - strips[i].left < 1.2F * size) return false;
    return true;
}

enum aligned_kind aligned_kind(const struct aligned_rows *rows, const struct strip *strips,
                               int n_strips) {
    struct aligned_column facts[MAX_COLUMNS] = {{0}};
    int columns = n_strips + 1, matched = read_columns(rows, strips, n_strips, facts);
    if (is_code(rows) || is_contents(facts, columns)) return ALIGNED_LINES;
    if (is_formula(rows)) return rows->n_rows < 12 ? ALIGNED_LINES : ALIGNED_COLUMNS;
    if (rows->n_rows < 2 || counts_lines(facts, columns)) return ALIGNED_COLUMNS;
    int last = facts[columns - 1].cells;
    bool tags = last > 0 && facts[columns - 1].words <= 3 * last && 3 * last < 2 * rows->n_rows &&
                facts[columns - 1].numbers == 0;
    if (tags && 4 * count_loose(rows, strips) >= rows->n_rows) return ALIGNED_LINES;
    if (rows->n_rows < 4 && !strips_are_wide(rows, strips, n_strips)) return ALIGNED_COLUMNS;
    bool sparse = 2 * matched < rows->n_rows && 2 * facts[0].cells < rows->n_rows;
    bool table = !sparse && is_table(facts, columns, rows->n_rows, matched);
    return table ? ALIGNED_TABLE : ALIGNED_COLUMNS;
}
