/* retrieval/extract/text/html_tables.h: tables of HTML, which are not what lays a page out. */
#pragma once

#include <libxml/tree.h>

#include "retrieval/extract/extract.h"

/* Appends the text of a cell or caption. */
typedef void html_cell_writer(xmlNode *cell, struct buffer *text);

/* Whether a <table> holds data: it has heads or a caption, or several rows of short cells. */
bool html_is_table(xmlNode *table);
/* Writes its rows, with the heads of each. */
void html_write_table(xmlNode *table, html_cell_writer *write_cell, struct document_text *out);
