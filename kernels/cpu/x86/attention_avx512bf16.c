/* kernels/cpu/x86/attention_avx512bf16.c: attention over keys and values of 16 bits and fewer on
 * vdpbf16ps, which adds the products of two pairs of bf16 to an f32: queries, weights of keys, keys
 * and values are rounded to bf16, sums are f32. Over f32 keys and values, and for exact calls, the
 * kernels of avx512 serve. See attention_vector.h. */
#include <stdbool.h>

#include "kernels/cpu/x86/simd_avx512.h"

#define CELL 2

/* x y + sum, of both bf16 of each lane, the second first. Subnormal numbers count as zero. */
static inline struct vec cell_fma(struct vec x, struct vec y, struct vec sum) {
    return (struct vec){_mm512_dpbf16_ps(sum.a, (__m512bh)x.a, (__m512bh)y.a)};
}
static inline __m512i cells_rounded(struct vec low, struct vec high) {
    return (__m512i)_mm512_cvtne2ps_pbh(high.a, low.a);
}
/* Lane i holds columns 2 i and 2 i + 1 of the 32. */
static inline struct vec cells_of_columns(struct vec low, struct vec high) {
    return (struct vec){_mm512_castsi512_ps(cells_rounded(low, high))};
}
/* Lane i holds column i of both. */
static inline struct vec cells_of_keys(struct vec first, struct vec second) {
    const __m512i by_turns =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (struct vec){
        _mm512_castsi512_ps(_mm512_permutexvar_epi16(by_turns, cells_rounded(first, second)))};
}
/* One of both; the other is zero. */
static inline struct vec cells_keep(struct vec cells, bool second) {
    int kept = second ? (int)0xffff0000 : 0xffff;
    return (struct vec){_mm512_and_ps(cells.a, _mm512_castsi512_ps(_mm512_set1_epi32(kept)))};
}

#include "kernels/cpu/attention_vector.h"
#include "kernels/cpu/variants.h"

void attention_avx512bf16(const struct attention_range *range) {
    if (range->k.dtype == DTYPE_F32 || range->exact)
        attention_avx512(range);
    else
        attention_vector(range);
}
