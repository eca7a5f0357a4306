/* retrieval/extract/sheet/sheet_heads.h: which rows and columns of a block of a sheet name the
 * others. */
#pragma once

#include "retrieval/extract/page/table_text.h"
#include "retrieval/extract/sheet/sheet_blocks.h"

/* The merged ranges of a sheet by the cell at their top left. */
struct sheet_merges {
    const struct sheet_range *list; /* [n], in order of rows, then of columns */
    size_t n;
};
/* NULL: the cell covers itself alone. */
const struct sheet_range *merge_find(const struct sheet_merges *merges,
                                     const struct sheet_cell *cell);

struct block_heads {
    size_t titles;     /* rows above the table that hold one text each */
    uint32_t rows;     /* of heads, below the titles */
    uint32_t columns;  /* of heads */
    bool list;         /* no table: a text in each row */
    bool goes_on;      /* below an empty row, under the heads of the block before */
    bool groups_below; /* the first column says a name once for the rows below it */
};
/* `before` is the block above it whose heads it may go on under; NULL: there is none. */
struct block_heads block_find_heads(const struct sheet *sheet, const struct sheet_block *block,
                                    const struct sheet_block *before,
                                    const struct sheet_merges *merges);
