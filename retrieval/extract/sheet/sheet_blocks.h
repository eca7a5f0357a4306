/* retrieval/extract/sheet/sheet_blocks.h: a sheet's cells cut into blocks, each a table or some
 * lines: at what the file calls a table, and at empty rows and columns. */
#pragma once

#include "retrieval/extract/sheet/sheet.h"

struct sheet_block {
    struct sheet_range range;        /* of its cells */
    struct sheet_range seen;         /* the same without hidden rows and columns */
    size_t first, n;                 /* of sheet.cells */
    const struct sheet_table *named; /* NULL: the file does not name it */
};

/* Orders the sheet's cells block by block, in each by row and column, and appends the blocks from
 * the top left on. Of two cells with one address the first stays. */
void sheet_split(struct sheet *sheet, struct buffer *blocks);

static inline const struct sheet_cell *block_cells(const struct sheet *sheet,
                                                   const struct sheet_block *block) {
    return (const struct sheet_cell *)(const void *)sheet->cells.data + block->first;
}
