/* retro/run/cache/session_text.h: a text that a session is about to read, and all that its rows are
 * computed from. */
#pragma once

#include <stdint.h>

/* The name of a row that a text brings as it is, not as an id: two rows with one name are equal.
 * Row `row` of a picture, by 128 bits of the SHA-256 of all that its rows are made from. */
struct row_name {
    int32_t picture[4];
    int32_t row;
};

/* Rows from `row` on depend on the text of a document. */
struct read_document {
    uint64_t document; /* its key */
    int row;
};
/* Is given the key of a document. */
typedef void document_key_taker(void *context, uint64_t document);

/* The neighbours of one closed chunk: ids [k, r], row by row, each a neighbour chunk and its
 * continuation padded with the end-of-document id. k = 0: nothing was found or retrieval is off,
 * cross attention is skipped (z = y). */
struct neighbor_tokens {
    const int32_t *ids;
    int k;
};

/* A text that a session is about to read. */
struct session_text {
    const int32_t *ids; /* [n] its rows from the first on; -1 - i is given row i */
    int n;
    const int32_t *positions;     /* as a step_item has them; NULL: the rows' numbers */
    const struct row_name *names; /* of the given rows; NULL: nothing is known of these */
    const struct neighbor_tokens *neighbors; /* of all chunks that these rows close */
    const int32_t *source;                   /* [n_source] */
    int n_source;
};
