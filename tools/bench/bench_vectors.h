/* tools/bench/bench_vectors.h: vectors that lie as those of text do, made of numbers alone.
 *
 * MiniLM's vectors of 20 105 chunks of manuals were measured: their mean has length 0.37, the
 * variance along the i-th principal axis falls as (i + 1)^-0.65 exp(-i / 200), chunks of one
 * document (41 of them) have a cosine of 0.55 in the median, the nearest chunk one of 0.74. Made
 * vectors have these figures. */
#pragma once

#include <stdint.h>

struct made_vectors {
    int dim;
    float *deviations;  /* [dim] along each axis, before it is turned */
    float *reflections; /* [REFLECTIONS, dim] unit vectors */
};

void made_vectors_open(struct made_vectors *made, int dim);
void made_vectors_close(struct made_vectors *made);
/* Chunk `number`, of all, which is in that document: row [dim] of unit length, the same whichever
 * thread makes it. */
void made_vector(const struct made_vectors *made, float *row, uint64_t document, uint64_t number);
