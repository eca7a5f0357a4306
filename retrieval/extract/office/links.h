/* retrieval/extract/office/links.h: parts of a zip of XML that name each other: by relationships,
 * in a list with an order of its own. */
#pragma once

#include "retrieval/extract/office/office.h"

struct named_part {
    char *id, *name, *type; /* name: as it is written, which resolve_name reads */
};

/* A list of names by ids, and the order of some of the ids: of slides, sheets, chapters.
 * Zero-initialise; free when done. */
struct part_list {
    struct named_part *list; /* [n] */
    int n, capacity;
    char **order; /* [n_order] ids */
    int n_order, order_capacity;
    struct buffer id, name, type; /* that are read */
};
/* Add what stands in `id`, `name` and `type`. */
void part_list_add(struct part_list *list);
void part_list_add_order(struct part_list *list);
/* NULL: no part has this id. */
const char *part_list_find(const struct part_list *list, const char *id);
/* The first whose type ends so ("/comments"), from *i on, which is left behind it; NULL: none. */
const char *part_list_find_type(const struct part_list *list, const char *end, int *i);
void part_list_free(struct part_list *list);

/* "a/b.opf" and "../c/d%20e.xhtml" to "c/d e.xhtml". */
void resolve_name(const char *base, const char *name, struct buffer *out);
/* The relationships of a part ("xl/workbook.xml"); a part may have none. */
enum status office_read_links(const struct office_parts *parts, const char *part,
                              struct part_list *list, struct error *e);
/* The part that the file begins with (xl/workbook.xml, word/document.xml), whatever it is called;
 * `usual` where the file does not say. */
void office_main_part(const struct office_parts *parts, const char *usual, struct buffer *name);
