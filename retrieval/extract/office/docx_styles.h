/* retrieval/extract/office/docx_styles.h: the parts of a DOCX file beside its text: which styles
 * are headings or lists, how lists are numbered, and the notes. */
#pragma once

#include "config/base/key_set.h"
#include "retrieval/extract/office/office.h"

enum { DOCX_LEVELS = 9 };

struct docx_style {
    char id[64], parent[64];
    int level;        /* of a heading; 0: none, -1: that of its parent */
    int list, depth;  /* numId and ilvl; list 0: none */
    bool is_contents; /* of a line of a table of contents */
};
struct docx_level {
    int start;
    char format[24]; /* decimal, lowerLetter, bullet, ... */
    char text[64];   /* "%1.%2." */
};
struct docx_list { /* abstractNum */
    int id;
    struct docx_level levels[DOCX_LEVELS];
    int counts[DOCX_LEVELS];
};
struct docx_note {
    size_t start, size; /* bytes of note_text */
};

/* Zero-initialise; free when done. */
struct docx_styles {
    struct docx_style *styles; /* [n] */
    int n_styles, styles_capacity;
    struct docx_list *lists; /* [n] */
    int n_lists, lists_capacity;
    struct docx_number { /* num: a list as paragraphs name it */
        int id, list;
    } * numbers; /* [n] */
    int n_numbers, numbers_capacity;
    struct docx_note *notes; /* [n] */
    int n_notes, notes_capacity;
    struct buffer note_text;
    struct key_set by_name; /* the places of all of these in their arrays */
};
/* Parts that cannot be read are left out. `main` is the document's part. */
void docx_styles_read(struct docx_styles *styles, const struct office_parts *parts,
                      const char *main);
void docx_styles_free(struct docx_styles *styles);
/* NULL: there is no such style. */
const struct docx_style *docx_find_style(const struct docx_styles *styles, const char *id);
/* Counts one more item of a list, and appends what stands in front of it: "2.1 ", "- ". */
void docx_number_item(struct docx_styles *styles, int list, int depth, struct buffer *label);
/* The text of a note; of no bytes: there is none. */
struct text_span docx_find_note(const struct docx_styles *styles, int id, bool at_end);
