/* retrieval/extract/office/odt_lists.h: how the lists of OpenDocument files are numbered. */
#pragma once

#include "config/base/key_set.h"
#include "retrieval/extract/office/office.h"
#include "retrieval/extract/office/xml.h"

enum { ODT_LEVELS = 10 };

struct odt_level {
    char format, prefix[8],
        suffix[8];    /* format: '1', 'a', 'A', 'i', 'I'; 0: a bullet, or nothing */
    int start, shown; /* shown: levels whose numbers stand before it */
};
struct odt_list_style {
    struct odt_level levels[ODT_LEVELS];
};
/* Zero-initialise; free when done. */
struct odt_lists {
    struct odt_list_style *styles; /* [n] */
    int n, capacity;
    struct key_set by_name;
    struct buffer value;
    int level; /* that is read */
    /* Lists that are open. */
    int depth, counts[ODT_LEVELS], style; /* style -1: none */
    bool label_due;                       /* the next paragraph begins an item */
};
/* Takes what an element says of styles of lists. */
void odt_take_list_style(struct odt_lists *lists, const struct xml_event *event);
/* Takes the beginnings and ends of lists and their items. */
void odt_take_list(struct odt_lists *lists, const struct xml_event *event);
/* Appends what stands in front of the paragraph that is open: "2.1 ", "- ", nothing. */
void odt_write_label(struct odt_lists *lists, struct buffer *label);
void odt_lists_free(struct odt_lists *lists);
