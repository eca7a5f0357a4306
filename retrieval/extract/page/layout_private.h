/* retrieval/extract/page/layout_private.h: between the steps of page_layout.c. Each step is a file:
 *
 *     layout_words    what is seen of a page, turned upright; drop capitals, wide-set words
 *     layout_repeats  heads, feet and numbers of pages
 *     layout_rules    tables between rules
 *     layout_cut      columns and bands: words to regions in the order of reading
 *     layout_align    tables without rules, and layout_align_kind, which rows are one
 *     layout_lines    words of a region to lines
 *     layout_blocks   lines to headings, paragraphs, items, code, notes
 *     layout_text     blocks to text and marks
 */
#pragma once

#include "retrieval/extract/page/page_layout.h"
#include "retrieval/extract/page/table_text.h"
#include "retrieval/extract/page/vocabulary.h"

/* A word where the layout puts it: on a page that was turned upright. */
struct layout_word {
    const struct page_word *source;
    struct text_span text;
    struct page_rect box;   /* in the turned frame */
    struct page_rect shown; /* on the page as it is shown */
    float size;
    bool glued;  /* no blank stands before it */
    bool raised; /* above the line, smaller: the mark of a note */
    bool askew;  /* its line is not level on the page as it is shown */
};

/* Words that stand on one line of a region. */
struct layout_line {
    const struct layout_word *words; /* [n], from left to right */
    int n;
    int page; /* index in pages.list */
    struct page_rect box;
    float size;  /* of most of its letters */
    float pitch; /* points from this line's foot to that of the line before; 0: the first */
    bool bold;   /* most of its letters */
    bool fixed;
    int region;        /* lines of a column or a band have one number */
    float left, right; /* edges of the region */
    int table;         /* index in layout.tables, in place of words; -1: a line of words */
    bool aside;        /* of a box beside the text */
};

struct layout_table {
    struct table table;
    int page;
    struct page_rect box;
    bool goes_on; /* from the page before: its heads are not written */
};

/* A part that is not torn. */
struct layout_block {
    enum block_kind kind;
    int level;        /* of a heading */
    int first, n;     /* lines */
    int table;        /* index; -1: lines */
    int note;         /* of a footnote: its number; 0: it has none, or is none */
    int goes_on;      /* the block that goes on with its sentence, in another column or on another
                         page; -1: none */
    int behind;       /* the block that this one is written behind, as a note is; -1: none */
    int next_behind;  /* the next block that is written behind the same one; -1: none */
    int first_behind; /* the first that is written behind this one; -1: none */
    bool written;
};

struct page_layout {
    const struct pages *pages;
    struct document_text *out;
    struct buffer lines;      /* struct layout_line, in the order of reading */
    struct buffer tables;     /* struct layout_table */
    struct buffer blocks;     /* struct layout_block */
    struct page_words *words; /* [pages->n] */
    struct document_words vocabulary;
    float body_size; /* of most letters of the document */
    int n_regions;
};

/* The words that are seen on one page. The list does not move while lines point to it. */
struct page_words {
    struct layout_word *list; /* [n] */
    int n;
    struct page_rule *rules; /* [n_rules], turned likewise */
    int n_rules;
    int turned;          /* quarter turns of the page's text */
    float width, height; /* of the page, turned likewise */
};

static inline struct layout_line *layout_lines(const struct page_layout *layout, int *n) {
    *n = (int)(layout->lines.size / sizeof(struct layout_line));
    return (struct layout_line *)(void *)layout->lines.data;
}
static inline struct layout_block *layout_blocks(const struct page_layout *layout, int *n) {
    *n = (int)(layout->blocks.size / sizeof(struct layout_block));
    return (struct layout_block *)(void *)layout->blocks.data;
}
static inline struct layout_table *layout_table(const struct page_layout *layout, int i) {
    return &((struct layout_table *)(void *)layout->tables.data)[i];
}

static inline float rect_middle(const struct page_rect *box) {
    return (box->top + box->bottom) / 2;
}
static inline float rect_center(const struct page_rect *box) {
    return (box->left + box->right) / 2;
}
static inline bool rect_holds(const struct page_rect *outer, float x, float y) {
    return x >= outer->left && x <= outer->right && y >= outer->top && y <= outer->bottom;
}
void rect_extend(struct page_rect *box, const struct page_rect *by);

/* layout_words.c: the words of pages->list[page] that are seen, upright. */
void page_words_read(const struct page *page, struct page_words *words);
void page_words_free(struct page_words *words);

/* layout_repeats.c: takes heads, feet and numbers of pages out of layout->words. */
void layout_drop_repeats(struct page_layout *layout);

/* layout_lines.c: sorts words into rows from the top, each from the left, in place; row_of[i] is
 * that of word i then. */
void layout_gather_rows(struct layout_word *words, int n, int *row_of);
/* The words and tables of a region become lines, behind those that are there. */
struct layout_region {
    struct layout_word *words; /* [n] */
    const int *tables;         /* [n_tables] of layout->tables, from the top */
    int n, n_tables;
    struct page_rect box;
    int page;
    bool aside;
};
void layout_add_region(struct page_layout *layout, const struct layout_region *region);

/* layout_rules.c: makes tables of the words between rules, which are taken from the page's. */
void layout_find_ruled(struct page_layout *layout, int page);
/* layout_cut.c: the regions of a page, in the order of reading. */
void layout_cut_page(struct page_layout *layout, int page);

/* layout_join.c: a table that goes on overleaf takes the heads of its beginning; where they are
 * repeated there they are not written again. */
void layout_join_tables(struct page_layout *layout);

/* layout_align_kind.c: rows of words that white strips cut into columns. */
struct cut_row {
    int first, end; /* words */
    struct page_rect box;
};
struct strip {
    float left, right;
};
struct aligned_rows {
    struct layout_word *words;
    const struct cut_row *rows; /* [n_rows], from the top */
    int n_rows, page;
    const struct page_words *on; /* the page's rules */
};
/* The rows between strips. */
enum aligned_kind {
    ALIGNED_COLUMNS, /* of prose */
    ALIGNED_TABLE,
    ALIGNED_LINES, /* code, contents, formulas: read line by line */
};
enum aligned_kind aligned_kind(const struct aligned_rows *rows, const struct strip *strips,
                               int n_strips);
/* The column of x, from 0. */
int strip_column(const struct strip *strips, int n_strips, float x);
/* A number, or a sign in place of one. */
bool text_is_numeric(struct text_span text);
enum { MAX_COLUMNS = 41 };
/* layout_align.c: adds the table; its number. */
int aligned_add_table(struct page_layout *layout, const struct aligned_rows *rows,
                      const struct strip *strips, int n_strips);
/* The words of a cell, line by line. Their order changes. */
void layout_fill_cell(struct page_layout *layout, struct table *table, struct layout_word *words,
                      int n);

/* layout_blocks.c: lines to layout->blocks, all of them paragraphs, tables, code or items. */
void layout_find_blocks(struct page_layout *layout);
/* layout_kinds.c: which of the blocks are headings, captions or contents. */
void layout_find_kinds(struct page_layout *layout);
/* layout_notes.c: which are notes, behind which block they belong, and which go on elsewhere. */
void layout_place_notes(struct page_layout *layout);
/* Whether a line begins as an item of a list does: "- ", "2. ", "(b) ". */
bool line_has_marker(const struct layout_line *line);
bool text_is_marker(struct text_span text);
/* "Table 3." before what the table shows; the same of figures. */
bool words_are_caption(const struct layout_word *words, int n);
/* Dots alone: "." "....." "…" */
bool text_is_leader(struct text_span text);
/* The last word's last character is one of these. */
bool line_ends_with(const struct layout_line *line, const char *const *endings);
bool line_ends_sentence(const struct layout_line *line);
/* layout_text.c: the blocks to text and marks. */
void layout_write(struct page_layout *layout);
/* Appends words of one line, with the marks of their boxes. `next` is what the line goes on with,
 * to which a divided word is joined; NULL: nothing. True: a blank belongs between the two. */
struct text_sink {
    struct buffer *text, *marks;
    const struct document_words *vocabulary;
    bool drops_raised; /* marks of notes, whose notes follow, are left out */
};
bool layout_write_words(const struct text_sink *sink, const struct layout_word *words, int n,
                        const struct layout_word *next);
