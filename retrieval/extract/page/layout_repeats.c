/* retrieval/extract/page/layout_repeats.c: heads, feet and numbers of pages: what stands at the
 * same height on several pages near one another, numbers taken as equal. See layout_private.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "config/base/text.h"
#include "retrieval/extract/page/layout_private.h"

/* The parts of a page in which they stand. */
static const float MARGIN = 0.15F;
/* Points that their heights may differ by. */
static const float SLACK = 6;
enum {
    LINES_EACH = 3,  /* at the top, and at the foot */
    WINDOW = 8,      /* pages before and behind in which they repeat */
    LEAST_PAGES = 3, /* of a document in which anything is left out */
};

struct edge_line {
    uint64_t key;
    float middle;
    int first, end; /* words of the page, sorted by rows */
    bool number;    /* nothing but a number */
    bool apart;     /* there is room between it and the text */
    bool repeats;
};

struct edge_lines {
    struct edge_line list[2 * LINES_EACH];
    int n;
};

/* Keys. */

static bool is_roman(struct text_span text) {
    for (size_t i = 0; i < text.size; i++)
        if (strchr("ivxlc", text.text[i]) == NULL || text.text[i] == '\0') return false;
    return text.size > 0 && text.size < 7;
}

/* The text with each number as "#". */
static void append_key(struct buffer *key, struct text_span text) {
    if (is_roman(text)) {
        buffer_append(key, "#", 1);
        return;
    }
    for (size_t i = 0; i < text.size; i++) {
        bool digit = is_digit(text.text[i]);
        if (digit && key->size > 0 && key->data[key->size - 1] == '#') continue;
        buffer_append(key, digit ? "#" : text.text + i, 1);
    }
}

static bool is_number_key(const struct buffer *key) {
    bool number = false;
    for (size_t i = 0; i < key->size; i++) {
        if (key->data[i] == '#')
            number = true;
        else if (strchr("-/|. []()", key->data[i]) == NULL && (key->data[i] & 0x80) == 0)
            return false;
    }
    return number;
}

static struct edge_line make_line(const struct layout_word *words, int first, int end) {
    struct buffer key = {0};
    struct edge_line line = {.first = first, .end = end};
    struct page_rect box = words[first].box;
    for (int i = first; i < end; i++) {
        append_key(&key, words[i].text);
        rect_extend(&box, &words[i].box);
    }
    line.middle = rect_middle(&box);
    line.number = is_number_key(&key) && end - first <= 4 && rect_width(&box) < 100;
    line.key = hash_bytes(key.data, key.size, 0);
    buffer_free(&key);
    return line;
}

/* Lines at the edges of a page. */

struct row_span {
    int first, end;
    float top, bottom;
};

static int list_rows(struct page_words *words, struct row_span *rows) {
    int *row_of = xcalloc((size_t)words->n + 1, sizeof *row_of), n = 0;
    layout_gather_rows(words->list, words->n, row_of);
    for (int first = 0, end; first < words->n; first = end) {
        struct page_rect box = words->list[first].box;
        for (end = first; end < words->n && row_of[end] == row_of[first]; end++)
            rect_extend(&box, &words->list[end].box);
        rows[n] = (struct row_span){first, end, box.top, box.bottom};
        n++;
    }
    free(row_of);
    return n;
}

/* Rows i and j are neighbours; INFINITY where one of them is none. */
static float room_between(const struct row_span *rows, int n, int i, int j) {
    if (i < 0 || j < 0 || i >= n || j >= n) return INFINITY;
    return i < j ? rows[j].top - rows[i].bottom : rows[i].top - rows[j].bottom;
}

/* From the edge inwards: lines before the first one that has room behind it may be a head. */
static void take_edge(const struct page_words *words, const struct row_span *rows, int n,
                      bool at_top, struct edge_lines *lines) {
    int start = lines->n;
    for (int k = 0; k < n && k < LINES_EACH; k++) {
        int i = at_top ? k : n - 1 - k, next = at_top ? i + 1 : i - 1;
        float middle = (rows[i].top + rows[i].bottom) / 2, height = rows[i].bottom - rows[i].top;
        bool inside =
            at_top ? middle < MARGIN * words->height : middle > (1 - MARGIN) * words->height;
        if (!inside) break;
        lines->list[lines->n] = make_line(words->list, rows[i].first, rows[i].end);
        lines->n++;
        float room = room_between(rows, n, i, next),
              beyond = room_between(rows, n, next, at_top ? next + 1 : next - 1);
        bool apart = room > 0.5F * height && (beyond == INFINITY || room > 1.4F * beyond);
        for (int j = start; j < lines->n && apart; j++) lines->list[j].apart = true;
    }
}

static void find_edges(struct page_words *words, struct edge_lines *lines) {
    struct row_span *rows = xcalloc((size_t)words->n + 1, sizeof *rows);
    int n = list_rows(words, rows);
    take_edge(words, rows, n, true, lines);
    take_edge(words, rows, n, false, lines);
    free(rows);
}

/* Repetition. */

static bool page_has(const struct edge_lines *lines, const struct edge_line *line) {
    for (int i = 0; i < lines->n; i++)
        if (lines->list[i].key == line->key && fabsf(lines->list[i].middle - line->middle) < SLACK)
            return true;
    return false;
}

/* Whether enough pages around page i have the line, all or every other one. */
static bool line_repeats(const struct edge_lines *pages, int n, int i,
                         const struct edge_line *line) {
    int found = 0, of_all = 0, every_other = 0, of_others = 0;
    for (int j = max_int(0, i - WINDOW); j <= i + WINDOW && j < n; j++) {
        bool has = page_has(&pages[j], line), other = (j - i) % 2 == 0;
        found += has;
        of_all++;
        every_other += has && other;
        of_others += other;
    }
    int least = n <= 4 ? 2 : 3;
    if (found < least) return false;
    return 3 * found >= of_all || 3 * every_other >= 2 * of_others;
}

/* The words that repeat. */
static int count_repeated(const struct edge_lines *lines) {
    int n = 0;
    for (int i = 0; i < lines->n; i++)
        n += lines->list[i].repeats ? lines->list[i].end - lines->list[i].first : 0;
    return n;
}

static void drop_lines(struct page_words *words, const struct edge_lines *lines) {
    int kept = 0, n = words->n;
    for (int i = 0; i < n; i++) {
        bool dropped = false;
        for (int j = 0; j < lines->n; j++)
            dropped |=
                lines->list[j].repeats && i >= lines->list[j].first && i < lines->list[j].end;
        if (dropped) continue;
        words->list[kept] = words->list[i];
        kept++;
    }
    words->n = kept;
}

void layout_drop_repeats(struct page_layout *layout) {
    int n = layout->pages->n;
    if (n < LEAST_PAGES) return;
    struct edge_lines *pages = xcalloc((size_t)n, sizeof *pages);
    for (int i = 0; i < n; i++) find_edges(&layout->words[i], &pages[i]);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < pages[i].n; j++) {
            struct edge_line *line = &pages[i].list[j];
            line->repeats = (line->apart || line->number) && line_repeats(pages, n, i, line);
        }
    int words = 0, repeated = 0;
    for (int i = 0; i < n; i++) {
        words += (int)(layout->pages->list[i].words.size / sizeof(struct page_word));
        repeated += count_repeated(&pages[i]);
    }
    /* Pages of nothing but lines that are alike, as cards, are no heads of anything. */
    for (int i = 0; i < n && 2 * repeated < words; i++) drop_lines(&layout->words[i], &pages[i]);
    free(pages);
}
