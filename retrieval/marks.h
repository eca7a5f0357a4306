/* retrieval/marks.h: what is known of places in a document's text beside the text: where its pages
 * and blocks begin, which line of the file stands where, which words are headings, and where on a
 * page a line and its words stand. A document is stored with its marks; a place is looked up in
 * them when it is shown. */
#pragma once

#include "config/base/buffer.h"

enum mark_kind {
    MARK_PAGE = 1, /* value: the page that begins here, from 1 */
    MARK_LINE,     /* value: the line of the file that begins here, from 1; every newline behind it
                      begins the next */
    MARK_NO_LINE,  /* what follows is not as it lies in the file: no line is known */
    MARK_HEADING,  /* value: bytes of the heading, which are part of the text; level: 1 ..
                    * MARK_LEVELS
                    */
    MARK_BLOCK,    /* level: enum block_kind of the block that begins here and ends with the next */
    MARK_PAGE_SIZE,  /* value: width and height of the page that begins here (mark_point) */
    MARK_CONFIDENCE, /* value: 1 .. 100, how sure OCR is of the page that begins here */
    MARK_BOX,        /* value: left and top of a line of the page that begins here (mark_point) */
    MARK_BOX_WORD,   /* value: left and right of a word within the line that begins here */
    MARK_BOX_END,    /* value: right and bottom of the line, whose text ends here */
    MARK_CELL,       /* value: row, column: that of the cell whose text begins here, both from 1, as
                        in the file */
    MARK_READER,     /* the first, at 0: what read the file (extract/reader.h). level: enum
                        document_reader; value: versions; column: what was there to read it by */
    MARK_KIND_COUNT
};
enum { MARK_LEVELS = 6 };

/* The parts of a document that are not to be torn. */
enum block_kind {
    BLOCK_PARAGRAPH = 1,
    BLOCK_HEADING,
    BLOCK_LIST_ITEM,
    BLOCK_TABLE_HEAD, /* the names of a table's columns, or its caption */
    BLOCK_TABLE_ROW,
    BLOCK_CODE,
    BLOCK_CAPTION,
    BLOCK_FOOTNOTE,
    BLOCK_CONTENTS, /* a table of contents, which is not embedded */
    BLOCK_KIND_COUNT
};

/* 12 bytes, little endian, as it is stored. */
struct mark {
    uint32_t at; /* byte of the text */
    uint8_t kind, level;
    uint16_t column; /* of MARK_CELL and MARK_READER, else 0 */
    uint32_t value;
};
_Static_assert(sizeof(struct mark) == 12, "marks are stored as they are");

/* In points from the left top corner of the page as a viewer shows it: cropped and turned. */
struct page_rect {
    float left, top, right, bottom;
};

/* Marks in the order of their places. They need not be aligned. */
struct mark_span {
    const void *bytes;
    uint32_t n;
};

/* The first fault of marks of a text of so many bytes; NULL: there is none. */
const char *marks_fault(struct mark_span marks, uint64_t text_size);
/* Appends a mark to a buffer of them. A place beyond 4 GiB is not marked. */
void marks_add(struct buffer *marks, enum mark_kind kind, int level, size_t at, size_t value);
/* Begins a block at byte `at`. */
static inline void marks_add_block(struct buffer *marks, enum block_kind kind, size_t at) {
    marks_add(marks, MARK_BLOCK, (int)kind, at, 0);
}
/* A cell of a table in the file, whose text begins at byte `at`; row and column from 1. */
void marks_add_cell(struct buffer *marks, size_t at, size_t row, size_t column);
/* Appends the letters of a column, from 1: "AB" for 28. */
void marks_print_column(struct buffer *out, size_t column);
/* Two lengths in points as the value of a mark: quarters of a point, 0 .. 16383.75 each. */
uint32_t mark_point(float first, float second);
static inline float mark_point_first(uint32_t value) { return (float)(value & 0xffff) / 4; }
static inline float mark_point_second(uint32_t value) { return (float)(value >> 16) / 4; }
static inline struct mark_span marks_of(const struct buffer *marks) {
    return (struct mark_span){marks->data, (uint32_t)(marks->size / sizeof(struct mark))};
}
/* Mark i of n. */
struct mark mark_read(struct mark_span marks, uint32_t i);
/* The first mark at byte `at` or behind it; marks.n: there is none. */
uint32_t marks_seek(struct mark_span marks, uint64_t at);
bool marks_equal(struct mark_span left, struct mark_span right);
/* The same but for what read the document: its chunks and what is embedded of them are the same. */
bool marks_alike(struct mark_span left, struct mark_span right);
/* How sure OCR is of what stands at bytes [start, end): of the least sure page, 1 .. 100. 0: none
 * of it was read by OCR. */
int marks_confidence(struct mark_span marks, uint64_t start, uint64_t end);

/* The headings over a place, by their level, as marks are passed on the way to it; size 0: none. */
struct heading_path {
    struct text_span of_level[MARK_LEVELS + 1];
};
/* A mark of kind MARK_HEADING of the text: it ends those of its level and below it. */
void heading_path_pass(struct heading_path *path, const struct mark *mark, struct text_span text);

struct document_place {
    uint32_t page, line; /* 0: not known */
    struct text_span
        headings[MARK_LEVELS]; /* [n_headings] from the outermost to the one over the place */
    int n_headings;
};
/* The place of byte `at` of the text, whose marks have no fault. Blanks there belong to what
 * follows them, and so does what a heading begins with. */
struct document_place place_find(struct mark_span marks, struct text_span text, uint64_t at);
/* The place of bytes [start, end): where they begin, under the headings over the beginning of their
 * last third, for a passage may begin with the last words of the section before its own. */
struct document_place place_find_passage(struct mark_span marks, struct text_span text,
                                         uint64_t start, uint64_t end);

/* Where a part of a text stands on its pages: one for each line that it has words of. */
struct page_box {
    uint32_t page;
    float page_width, page_height; /* points; 0: not known */
    struct page_rect rect;
};
/* The rectangles of bytes [start, end) of a text whose marks have no fault: those of whole words.
 * Appends struct page_box, in the order of the text; nothing where the document has none. */
void place_find_boxes(struct mark_span marks, uint64_t start, uint64_t end, struct buffer *boxes);

/* Bytes [start, end) of a text. */
struct text_range {
    uint64_t start, end;
};
/* Where a page, from 1, stands in a text of so many bytes; false: it has no such page. */
bool marks_find_page(struct mark_span marks, uint64_t text_size, uint32_t page,
                     struct text_range *out);
/* The section of bytes `part` of a text: from the line of the last heading at its beginning or
 * before to that of the first heading behind its end; where there is none, from and to the text's
 * ends. */
struct text_range marks_find_section(struct mark_span marks, struct text_span text,
                                     struct text_range part);
/* As much of the section around bytes `part` as stands on no page of which OCR was less sure than
 * `least`; `part` stays whole. */
struct text_range marks_keep_sure(struct mark_span marks, struct text_range section,
                                  struct text_range part, int least);
/* The last page's number; 0: none is known. */
uint32_t marks_last_page(struct mark_span marks);
