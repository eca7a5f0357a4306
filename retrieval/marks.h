/* retrieval/marks.h: what is known of places in a document's text beside the text: where its pages
 * begin, which line of the file stands where, which words are headings. A document is stored with
 * its marks; a place is looked up in them when it is shown. */
#pragma once

#include "config/base/buffer.h"

enum mark_kind {
    MARK_PAGE = 1, /* value: the page that begins here, from 1 */
    MARK_LINE,     /* value: the line of the file that begins here, from 1; every newline behind it
                      begins the next */
    MARK_NO_LINE,  /* what follows is not as it lies in the file: no line is known */
    MARK_HEADING /* value: bytes of the heading, which are part of the text; level: 1 .. MARK_LEVELS
                  */
};
enum { MARK_LEVELS = 6 };

/* 12 bytes, little endian, as it is stored. */
struct mark {
    uint32_t at; /* byte of the text */
    uint8_t kind, level;
    uint16_t zero;
    uint32_t value;
};
_Static_assert(sizeof(struct mark) == 12, "marks are stored as they are");

/* Marks in the order of their places. They need not be aligned. */
struct mark_span {
    const void *bytes;
    uint32_t n;
};

/* The first fault of marks of a text of so many bytes; NULL: there is none. */
const char *marks_fault(struct mark_span marks, uint64_t text_size);
/* Appends a mark to a buffer of them. A place beyond 4 GiB is not marked. */
void marks_add(struct buffer *marks, enum mark_kind kind, int level, size_t at, size_t value);
static inline struct mark_span marks_of(const struct buffer *marks) {
    return (struct mark_span){marks->data, (uint32_t)(marks->size / sizeof(struct mark))};
}
bool marks_equal(struct mark_span left, struct mark_span right);

struct document_place {
    uint32_t page, line; /* 0: not known */
    struct text_span
        headings[MARK_LEVELS]; /* [n_headings] from the outermost to the one over the place */
    int n_headings;
};
/* The place of byte `at` of the text, whose marks have no fault. Blanks there belong to what
 * follows them, and so does what a heading begins with. */
struct document_place place_find(struct mark_span marks, struct text_span text, uint64_t at);

/* Bytes [start, end) of a text. */
struct text_range {
    uint64_t start, end;
};
/* Where a page, from 1, stands in a text of so many bytes; false: it has no such page. */
bool marks_find_page(struct mark_span marks, uint64_t text_size, uint32_t page,
                     struct text_range *out);
/* The last page's number; 0: none is known. */
uint32_t marks_last_page(struct mark_span marks);
