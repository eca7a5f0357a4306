/* kernels/cpu/supers_unpack.h: packed super-blocks taken apart, a strip of LANES columns at a time;
 * include after a dots header. */
#pragma once

#include "kernels/cpu/strips.h"

/* Lanes of 32 bits, for the compiler's own operators. */
typedef uint32_t words_of __attribute__((vector_size(LANES * QUAD), may_alias));
typedef int32_t whole_of __attribute__((vector_size(LANES * QUAD), may_alias));
typedef float float_of __attribute__((vector_size(LANES * QUAD), may_alias));

/* One super-block of one strip. */
struct panel_super {
    _Alignas(64) uint8_t values[SUPER_BLOCKS][BLOCK_QUADS][STRIP_BYTES];
    float_of scales[SUPER_PARTS]; /* d s */
    words_of minimums[4];   /* m of parts 0 and 2, 1 and 3, 4 and 6, 5 and 7 as 16 bits each */
    float_of minimum_scale; /* -dmin */
};

ALWAYS_INLINE words_of words_load(const uint8_t *line) { return (words_of)load_quads(line); }

/* Byte i of each lane. */
ALWAYS_INLINE words_of byte_of(words_of v, int i) { return (v >> (8 * i)) & 255u; }

/* `lines` are the strip's part of the lines before the values. */
ALWAYS_INLINE void scales_unpack(struct panel_super *to, const uint8_t *lines, const uint16_t *d,
                                 const enum dtype dtype) {
    float_of scale = (float_of)floats_load_f16(d).v;
    if (dtype == DTYPE_Q6_K) {
        for (int line = 0; line < 4; line++) {
            whole_of v = (whole_of)words_load(lines + line * LINE_BYTES);
            for (int i = 0; i < QUAD; i++)
                to->scales[line * QUAD + i] =
                    scale * __builtin_convertvector(v << (24 - 8 * i) >> 24, float_of);
        }
        return;
    }
    words_of first = words_load(lines), second = words_load(lines + LINE_BYTES);
    words_of third = words_load(lines + 2 * LINE_BYTES), minimums = third & 0x3f3f3f3fu;
    words_of others =
        (first >> 6 & 0x03030303u) | (second >> 4 & 0x0c0c0c0cu) | (third >> 2 & 0x30303030u);
    first &= 0x3f3f3f3fu;
    second &= 0x3f3f3f3fu;
    for (int i = 0; i < QUAD; i++) {
        to->scales[i] = scale * __builtin_convertvector((whole_of)byte_of(first, i), float_of);
        to->scales[QUAD + i] =
            scale * __builtin_convertvector((whole_of)byte_of(second, i), float_of);
    }
    to->minimums[0] = minimums & 0x00ff00ffu;
    to->minimums[1] = minimums >> 8 & 0x00ff00ffu;
    to->minimums[2] = others & 0x00ff00ffu;
    to->minimums[3] = others >> 8 & 0x00ff00ffu;
    to->minimum_scale = -(float_of)floats_load_f16(d + TILE_COLUMNS).v;
}

/* Quad `quad` of a packed block of 32, a byte for each weight; `block` is the strip's part of its
 * lines. */
ALWAYS_INLINE words_of quad_unpack(const uint8_t *block, const int quad, const enum dtype dtype) {
    const int halves = BLOCK_QUADS / 2, line = quad % halves;
    const bool high = quad >= halves;
    words_of v = words_load(block + line * LINE_BYTES);
    v = (high ? v >> 4 : v) & 0x0f0f0f0fu;
    block += halves * LINE_BYTES;
    if (dtype == DTYPE_Q5_K) {
        words_of bits = words_load(block);
        v |= (high ? bits >> line : bits << (4 - line)) & 0x10101010u;
    }
    if (dtype == DTYPE_Q6_K) {
        words_of bits = words_load(block + line / 2 * LINE_BYTES);
        const int from = line % 2 * 4 + high * 2;
        v |= (from < 4 ? bits << (4 - from) : bits >> (from - 4)) & 0x30303030u;
    }
    return v;
}
