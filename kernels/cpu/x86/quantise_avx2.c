/* kernels/cpu/x86/quantise_avx2.c: rounding activations to int8 for AVX2 and everything above it:
 * bitwise what quantise_generic does. */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/variants.h"

/* The largest |x| as its bits: they order as the magnitudes do, and infinities and NaN come last.
 */
static __m256i largest_add(__m256i top, const float *from) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    return _mm256_max_epi32(
        top, _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(from)), magnitude));
}
static int largest_bits(__m256i top) {
    __m128i half = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}

/* The largest of n, a multiple of 32; false where one is not finite. */
static bool largest_find(float *largest, const float *from, int n) {
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < n; i += 8) top = largest_add(top, from + i);
    int bits = largest_bits(top);
    memcpy(largest, &bits, sizeof bits);
    return bits < INPUT_NOT_FINITE;
}

/* Thirty-two numbers become bytes; packing works in 128-bit lanes, so the fours are put in order
 * behind it. */
static __m256i block_round(const float *from, float inverse) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i q[4];
    if (inverse == 0) return _mm256_setzero_si256();
    for (int i = 0; i < 4; i++)
        q[i] = _mm256_cvtps_epi32(
            _mm256_mul_ps(_mm256_loadu_ps(from + 8 * i), _mm256_set1_ps(inverse)));
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    return _mm256_permutevar8x32_epi32(bytes, order);
}

static int four_sum(__m128i v) {
    v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1)));
}

/* The sums of the first and of the last sixteen bytes. */
static void bytes_sum(__m256i q, int sums[2]) {
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    sums[0] = four_sum(_mm256_castsi256_si128(fours));
    sums[1] = four_sum(_mm256_extracti128_si256(fours, 1));
}

void quantise_avx2(struct input_block *to, int step, const float *from, int blocks,
                   enum dtype weights) {
    for (int b = 0; b < blocks; b++, to += step, from += QUANTISE_BLOCK) {
        float largest;
        bool finite = largest_find(&largest, from, QUANTISE_BLOCK);
        __m256i q = block_round(from, input_begin(to, largest, finite, weights));
        int sums[2];
        bytes_sum(q, sums);
        _mm256_storeu_si256((__m256i *)to->q, q);
        input_finish(to, sums[0] + sums[1], weights);
    }
}

void quantise_supers_avx2(struct super_input *to, int step, const float *from, int supers,
                          enum dtype weights) {
    for (int s = 0; s < supers; s++, to += step, from += SUPER_BLOCK) {
        float largest;
        bool finite = largest_find(&largest, from, SUPER_BLOCK);
        float inverse = input_inverse(largest, finite);
        for (int b = 0; b < SUPER_BLOCKS; b++) {
            __m256i q = block_round(from + b * QUANTISE_BLOCK, inverse);
            int sums[2];
            bytes_sum(q, sums);
            _mm256_storeu_si256((__m256i *)(to->q + b * QUANTISE_BLOCK), q);
            if (weights == DTYPE_Q6_K) {
                super_input_finish(to, 2 * b, sums[0], weights);
                super_input_finish(to, 2 * b + 1, sums[1], weights);
            } else {
                super_input_finish(to, b, sums[0] + sums[1], weights);
            }
        }
        to->scale = input_scale(largest, finite);
    }
}
