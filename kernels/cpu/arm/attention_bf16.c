/* kernels/cpu/arm/attention_bf16.c: attention over keys and values of 16 bits and fewer on BFDOT,
 * which adds the products of two pairs of bf16 to an f32: queries, weights of keys, keys and values
 * are rounded to bf16, sums are f32. Over f32 keys and values, and for exact calls, the kernels of
 * NEON serve. See attention_vector.h. */
#include <stdbool.h>

#include "kernels/cpu/arm/simd_neon.h"

#define CELL 2

static inline bfloat16x8_t cells_four(float32x4_t cells) { return vreinterpretq_bf16_f32(cells); }
/* sum + x y, of both bf16 of each lane. */
static inline float32x4_t cells_fma_four(float32x4_t sum, float32x4_t x, float32x4_t y) {
    return vbfdotq_f32(sum, cells_four(x), cells_four(y));
}
#define cells_fma_four_lane(sum, x, y, lane) \
    vbfdotq_laneq_f32(sum, cells_four(x), cells_four(y), lane)
static inline struct vec cell_fma(struct vec x, struct vec y, struct vec sum) {
    VEC_EACH(cells_fma_four(sum.r[i], x.r[i], y.r[i]));
}

static inline uint16x8_t round_eight(float32x4_t low, float32x4_t high) {
    return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(low), high));
}
/* Lane i holds columns 2 i and 2 i + 1 of the 32. */
static inline struct vec cells_of_columns(struct vec low, struct vec high) {
    return (struct vec){{vreinterpretq_f32_u16(round_eight(low.r[0], low.r[1])),
                         vreinterpretq_f32_u16(round_eight(low.r[2], low.r[3])),
                         vreinterpretq_f32_u16(round_eight(high.r[0], high.r[1])),
                         vreinterpretq_f32_u16(round_eight(high.r[2], high.r[3]))}};
}
/* Lane i holds column i of both. */
static inline struct vec cells_of_keys(struct vec first, struct vec second) {
    struct vec cells;
    UNROLLED
    for (int i = 0; i < 2; i++) {
        uint16x8_t one = round_eight(first.r[2 * i], first.r[2 * i + 1]),
                   other = round_eight(second.r[2 * i], second.r[2 * i + 1]);
        cells.r[2 * i] = vreinterpretq_f32_u16(vzip1q_u16(one, other));
        cells.r[2 * i + 1] = vreinterpretq_f32_u16(vzip2q_u16(one, other));
    }
    return cells;
}
/* One of both; the other is zero. */
static inline struct vec cells_keep(struct vec cells, bool second) {
    const uint32x4_t kept = vdupq_n_u32(second ? 0xffff0000 : 0xffff);
    VEC_EACH(vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(cells.r[i]), kept)));
}

#include "kernels/cpu/arm/attention_fours.h"
#include "kernels/cpu/attention_vector.h"
#include "kernels/cpu/variants.h"

void attention_bf16(const struct attention_range *range) {
    if (range->k.dtype == DTYPE_F32 || range->exact)
        attention_neon(range);
    else
        attention_vector(range);
}
