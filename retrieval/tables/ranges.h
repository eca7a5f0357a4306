/* retrieval/tables/ranges.h: lists of cells as spreadsheets write them: "Counts!B2:B9, B12". */
#pragma once

#include "config/base/buffer.h"

/* Gathers cells of one column that come by rising rows. Zero-initialise. */
struct range_writer {
    const char *sheet;    /* in front of each range; "" : nothing */
    uint32_t column;      /* from 1 */
    uint32_t first, last; /* rows of the range that is open; 0: none */
    int n, most;          /* ranges, those that are written */
};
void range_add(struct range_writer *writer, uint32_t row, struct buffer *out);
/* Writes the range that is open; "..." where there were more than may be. */
void range_end(struct range_writer *writer, struct buffer *out);
