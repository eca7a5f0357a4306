/* retro/run/cross/chunk_name.h: names of what the neighbour encoder makes of a chunk. The encoder
 * reads the neighbours' tokens and the decoder's rows of the chunk at the first retro layer
 * (docs/spec/retro-model.md 6). No row below that layer's cross attention depends on any neighbour,
 * so these rows follow from the ids up to the chunk's end and from where its chunks end: the same
 * ids, ends and neighbours give the same bits. */
#pragma once

#include "config/base/buffer.h"
#include "config/base/sha256.h"
#include "retro/run/cache/session_text.h"

/* SHA-256: what has the same name was computed from the same. */
struct chunk_name {
    uint8_t bytes[SHA256_BYTES];
};

/* The ids of one session, as far as names depend on them; zeros: of none. */
struct chunk_history {
    struct chunk_name closed; /* of whoever may find chunks, and of the rows of all closed chunks */
    struct buffer open;       /* int32_t each: ids of the open chunk's rows so far */
    int rows, closed_rows;    /* of all ids; of closed chunks */
    bool lost;                /* a row had no id: later chunks have no names */
};

/* Of no rows; sessions of one scope have the same names. */
void chunk_history_begin(struct chunk_history *history, uint32_t scope);
void chunk_history_free(struct chunk_history *history);
/* The next row has this id. */
void chunk_history_add(struct chunk_history *history, int32_t id);
/* The next row is given: it has no id. */
void chunk_history_lose(struct chunk_history *history);
/* The latest row closes a chunk. */
void chunk_history_close(struct chunk_history *history);
/* The name of the latest closed chunk with these neighbours of r ids; false: it has none. */
bool chunk_history_name(const struct chunk_history *history,
                        const struct neighbor_tokens *neighbors, int r, struct chunk_name *name);
