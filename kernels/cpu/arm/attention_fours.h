/* kernels/cpu/arm/attention_fours.h: how attention sums cells (attention_rows.h) four at a time,
 * the width of a register; include after simd_neon.h and, where a cell is no float, after its
 * functions. */
#pragma once

#include "kernels/cpu/arm/simd_neon.h"

#ifndef CELL
#define cells_fma_four vfmaq_f32
#define cells_fma_four_lane vfmaq_laneq_f32
#endif

/* A score of attention is summed in one register, four cells apart: a tile of four keys and two
 * rows has room beside their values, where four registers a sum leave room for one row. */
#define SCORES_IN_FOURS
struct score_sum {
    float32x4_t v;
};
static inline struct score_sum score_zero(void) { return (struct score_sum){vdupq_n_f32(0)}; }
/* sum + the products of sixteen cells, four of them after another. */
static inline struct score_sum score_add(struct vec x, struct vec y, struct score_sum sum) {
    UNROLLED
    for (int i = 0; i < 4; i++) sum.v = cells_fma_four(sum.v, x.r[i], y.r[i]);
    return sum;
}
/* The scores of four sums: neighbours first. */
static inline void scores_store(float to[4], const struct score_sum *sums) {
    vst1q_f32(to, vpaddq_f32(vpaddq_f32(sums[0].v, sums[1].v), vpaddq_f32(sums[2].v, sums[3].v)));
}

/* Four cells, of which an instruction names one. */
#define MULTIPLIES_BY_LANE
struct four {
    float32x4_t v;
};
static inline struct four four_load(const float *p) { return (struct four){vld1q_f32(p)}; }
#define LANE_FMA(lane) \
    { VEC_EACH(cells_fma_four_lane(z.r[i], y.r[i], x.v, lane)); }
/* z + x[lane] y; `lane` is a constant where loops are unrolled. */
ALWAYS_INLINE struct vec cell_fma_lane(struct four x, const int lane, struct vec y, struct vec z) {
    switch (lane) {
        case 0: LANE_FMA(0);
        case 1: LANE_FMA(1);
        case 2: LANE_FMA(2);
        default: LANE_FMA(3);
    }
}
