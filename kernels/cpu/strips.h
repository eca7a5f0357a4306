/* kernels/cpu/strips.h: strips: the columns of a packed tile that one vector of quads holds, LANES
 * of them: a tile in AVX-512 registers, half of one in AVX2's, a quarter in NEON's; include after a
 * dots header. */
#pragma once

#include <string.h>

#include "kernels/cpu/compiler.h"
#include "kernels/cpu/layout.h"

enum { TILE_STRIPS = TILE_COLUMNS / LANES, STRIP_BYTES = LANES * QUAD };

typedef uint8_t exponents_of __attribute__((vector_size(LANES)));
typedef uint32_t powers_of __attribute__((vector_size(LANES * QUAD)));

/* 2^(byte - 127) of each of LANES bytes (mxfp4_scale). */
ALWAYS_INLINE struct floats floats_load_exponents(const uint8_t *p) {
    exponents_of bytes;
    struct floats scales;
    memcpy(&bytes, p, sizeof bytes);
    powers_of bits = __builtin_convertvector(bytes, powers_of) << 23;
    memcpy(&scales, &bits, sizeof scales);
    return scales;
}
