/* kernels/kquants.c: reading GGUF's super-blocks. See kquants.h. */
#include "kernels/kquants.h"

#include <string.h>

/* Where things lie in a super-block: in Q4_K and Q5_K, then in Q6_K. */
enum {
    PACKED_AT = 4,
    FIFTH_AT = 16,
    UPPER_AT = 128,
    SCALES_AT = 192,
    D_AT = 208,
};

static uint16_t half_read(const uint8_t *from) { return (uint16_t)(from[0] | from[1] << 8); }

/* Eight scales and eight minimums of 6 bits in 12 bytes: the first four of each have a byte, the
 * others their lower four bits in the last bytes and their upper two in those of the first. */
static void scales_read(struct super_block *to, const uint8_t *packed) {
    for (int i = 0; i < 4; i++) {
        to->scales[i] = packed[i] & 63;
        to->minimums[i] = packed[4 + i] & 63;
        to->scales[4 + i] = (int16_t)((packed[8 + i] & 15) | packed[i] >> 6 << 4);
        to->minimums[4 + i] = (uint8_t)(packed[8 + i] >> 4 | packed[4 + i] >> 6 << 4);
    }
}

/* Parts 2 i and 2 i + 1 are the low and the high halves of the same 32 bytes; bit p of `fifth`
 * belongs to part p. */
static void five_bits_read(struct super_block *to, enum dtype dtype, const uint8_t *from) {
    const uint8_t *fifth = from + FIFTH_AT, *q = dtype == DTYPE_Q5_K ? fifth + 32 : fifth;
    to->d = half_read(from);
    to->dmin = half_read(from + 2);
    scales_read(to, from + PACKED_AT);
    for (int p = 0; p < 8; p++)
        for (int k = 0; k < 32; k++) {
            int low = q[p / 2 * 32 + k] >> 4 * (p & 1) & 15;
            to->q[p * 32 + k] =
                (uint8_t)(dtype == DTYPE_Q5_K ? low | (fifth[k] >> p & 1) << 4 : low);
        }
}

/* Each half of 128 columns is four runs of 32: run r has its lower four bits in run r % 2 of the
 * half's 64 bytes, and its upper two in bits 2 r of the half's 32. */
static void six_bits_read(struct super_block *to, const uint8_t *from) {
    to->d = half_read(from + D_AT);
    for (int i = 0; i < SUPER_PARTS; i++) to->scales[i] = (int8_t)from[SCALES_AT + i];
    for (int i = 0; i < SUPER_BLOCK; i++) {
        int half = i / 128, run = i / 32 % 4, k = i % 32;
        int low = from[half * 64 + run % 2 * 32 + k] >> 4 * (run / 2) & 15;
        int high = from[UPPER_AT + half * 32 + k] >> 2 * run & 3;
        to->q[i] = (uint8_t)(low | high << 4);
    }
}

void super_block_read(struct super_block *to, enum dtype dtype, const void *from) {
    CHECK(dtype_kquant(dtype));
    memset(to, 0, sizeof *to);
    if (dtype == DTYPE_Q6_K)
        six_bits_read(to, from);
    else
        five_bits_read(to, dtype, from);
}

void super_block_widen(float *to, enum dtype dtype, const struct super_block *block) {
    const int part = super_part(dtype), centre = dtype == DTYPE_Q6_K ? KQUANT_CENTRE : 0;
    const float d = f16_to_f32(block->d), dmin = f16_to_f32(block->dmin);
    for (int k = 0; k < SUPER_BLOCK; k++) {
        float scale = d * (float)block->scales[k / part],
              minimum = dmin * (float)block->minimums[k / part];
        to[k] = scale * (float)(block->q[k] - centre) - minimum;
    }
}

void kquants_widen(float *to, enum dtype dtype, const void *from, int n) {
    CHECK(n % SUPER_BLOCK == 0);
    const char *blocks = from;
    for (int i = 0; i < n; i += SUPER_BLOCK, blocks += super_block_bytes(dtype)) {
        struct super_block block;
        super_block_read(&block, dtype, blocks);
        super_block_widen(to + i, dtype, &block);
    }
}
