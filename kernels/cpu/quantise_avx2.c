/* kernels/cpu/quantise_avx2.c: rounding activations to int8 for AVX2 and everything above it: bitwise what
 * quantise_generic does. */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/variants.h"

/* The largest |x| of a block as its bits: they order as the magnitudes do, and infinities and NaN come last. */
static int largest_bits(const __m256 v[4]) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) top = _mm256_max_epi32(top, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
    __m128i half = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}

/* Thirty-two integers become bytes; packing works in 128-bit lanes, so the fours are put in order behind it. */
static __m256i round_block(const __m256 v[4], float inverse) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i q[4];
    for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    return _mm256_permutevar8x32_epi32(bytes, order);
}

static int sum_bytes(__m256i q) {
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}

void quantise_avx2(struct input_block *to, int step, const float *from, int blocks, enum dtype weights) {
    for (int b = 0; b < blocks; b++, to += step, from += QUANTISE_BLOCK) {
        __m256 v[4];
        for (int i = 0; i < 4; i++) v[i] = _mm256_loadu_ps(from + 8 * i);
        int bits = largest_bits(v);
        float largest;
        memcpy(&largest, &bits, sizeof largest);
        bool finite = bits < INPUT_NOT_FINITE;
        float inverse = input_inverse(largest, finite);
        __m256i q = inverse == 0 ? _mm256_setzero_si256() : round_block(v, inverse);
        _mm256_storeu_si256((__m256i *)to->q, q);
        to->scale = input_scale(largest, finite);
        input_finish(to, sum_bytes(q), weights);
    }
}
