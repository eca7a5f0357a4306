/* retro/pictures/resize_passes.c: the sums of weights and pixels, which are all the time that
 * resizing takes. The sums are of integers and exact, so every way to add them gives the same
 * bytes. */
#include <string.h>

#include "retro/pictures/resize_taps.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

static uint8_t sum_pixel(int32_t sum, int bits) {
    int32_t value = sum >> bits;
    return (uint8_t)max_int(0, min_int(value, 255));
}

static int32_t taps_weight(const struct resize_taps *taps, int i, int j) {
    size_t at = (size_t)i * (size_t)taps->stride + (size_t)j;
    return taps->high[at] * (1 << RESIZE_LOW_BITS) + taps->low[at];
}

/* One channel of output pixel i: its bytes lie `stride` apart from `at` on. */
static uint8_t sum_bytes(const uint8_t *at, size_t stride, const struct resize_taps *taps, int i) {
    int32_t sum = 1 << (taps->bits - 1);
    for (int j = 0; j < taps->count[i]; j++)
        sum += at[(size_t)j * stride] * taps_weight(taps, i, j);
    return sum_pixel(sum, taps->bits);
}

#if defined(__SSE2__)

/* Sums of four channels by the two parts of the weights. They wrap, and their joint sum does not.
 */
struct resize_sums {
    __m128i low, high;
};

/* Two weights side by side, in every pair of the register. */
static __m128i weights_pair(const int16_t *weights) {
    int32_t pair;
    memcpy(&pair, weights, sizeof pair);
    return _mm_set1_epi32(pair);
}

/* `pairs`: four channels of two pixels, side by side, as 16-bit numbers. */
static void sums_add(struct resize_sums *sums, __m128i pairs, __m128i low, __m128i high) {
    sums->low = _mm_add_epi32(sums->low, _mm_madd_epi16(pairs, low));
    sums->high = _mm_add_epi32(sums->high, _mm_madd_epi16(pairs, high));
}

static __m128i sums_finish(const struct resize_sums *sums, int bits) {
    __m128i sum = _mm_add_epi32(_mm_slli_epi32(sums->high, RESIZE_LOW_BITS), sums->low);
    sum = _mm_add_epi32(sum, _mm_set1_epi32(1 << (bits - 1)));
    return _mm_sra_epi32(sum, _mm_cvtsi32_si128(bits));
}

/* Four weights of a pixel: by twos, in every pair of a register. */
struct resize_weights {
    __m128i low[2], high[2];
};

static inline struct resize_weights weights_load(const int16_t *low, const int16_t *high) {
    __m128i low_four = _mm_loadl_epi64((const __m128i *)low),
            high_four = _mm_loadl_epi64((const __m128i *)high);
    return (struct resize_weights){
        {_mm_shuffle_epi32(low_four, 0x00), _mm_shuffle_epi32(low_four, 0x55)},
        {_mm_shuffle_epi32(high_four, 0x00), _mm_shuffle_epi32(high_four, 0x55)}};
}

/* Four pixels of three bytes each. */
static inline void sums_add_four(struct resize_sums *sums, const uint8_t *at,
                                 const struct resize_weights *weights) {
    const __m128i zero = _mm_setzero_si128();
    __m128i pixels = _mm_loadu_si128((const __m128i *)at);
    __m128i first = _mm_unpacklo_epi8(pixels, _mm_srli_si128(pixels, 3));
    __m128i last = _mm_unpacklo_epi8(_mm_srli_si128(pixels, 6), _mm_srli_si128(pixels, 9));
    sums_add(sums, _mm_unpacklo_epi8(first, zero), weights->low[0], weights->high[0]);
    sums_add(sums, _mm_unpacklo_epi8(last, zero), weights->low[1], weights->high[1]);
}

/* The sums of the lines are registers only where these loops vanish. */
#ifdef __clang__
#define EACH_LINE _Pragma("unroll") for (int line = 0; line < RESIZE_LINES; line++)
#else
#define EACH_LINE _Pragma("GCC unroll 4") for (int line = 0; line < RESIZE_LINES; line++)
#endif

/* Pixel i of each line, and a byte that means nothing. */
static inline __attribute__((always_inline)) void lines_pixels(int32_t pixels[RESIZE_LINES],
                                                               const struct resize_lines *lines,
                                                               const struct resize_taps *taps,
                                                               int i) {
    const int16_t *low = taps->low + (size_t)i * (size_t)taps->stride,
                  *high = taps->high + (size_t)i * (size_t)taps->stride;
    size_t at = 3 * (size_t)taps->first[i];
    struct resize_sums sums[RESIZE_LINES];
    EACH_LINE
    sums[line] = (struct resize_sums){_mm_setzero_si128(), _mm_setzero_si128()};
    for (int j = 0; j < taps->count[i]; j += RESIZE_TAPS) {
        struct resize_weights weights = weights_load(low + j, high + j);
        EACH_LINE
        sums_add_four(&sums[line], lines->in[line] + at + 3 * (size_t)j, &weights);
    }
    __m128i front =
        _mm_packs_epi32(sums_finish(&sums[0], taps->bits), sums_finish(&sums[1], taps->bits));
    __m128i back =
        _mm_packs_epi32(sums_finish(&sums[2], taps->bits), sums_finish(&sums[3], taps->bits));
    _mm_storeu_si128((__m128i *)pixels, _mm_packus_epi16(front, back));
}

/* The fourth byte of a pixel is covered by the next; the last pixel has none. */
void resize_rows(const struct resize_lines *lines, const struct resize_taps *taps, int to) {
    int32_t pixels[RESIZE_LINES];
    for (int i = 0; i < to - 1; i++) {
        lines_pixels(pixels, lines, taps, i);
        EACH_LINE memcpy(lines->out[line] + 3 * (size_t)i, &pixels[line], 4);
    }
    lines_pixels(pixels, lines, taps, to - 1);
    EACH_LINE memcpy(lines->out[line] + 3 * (size_t)(to - 1), &pixels[line], 3);
}

/* Sixteen bytes of row y. */
static void column_block(uint8_t *out, const uint8_t *at, size_t stride,
                         const struct resize_taps *taps, int y) {
    const __m128i zero = _mm_setzero_si128();
    const int16_t *low = taps->low + (size_t)y * (size_t)taps->stride,
                  *high = taps->high + (size_t)y * (size_t)taps->stride;
    struct resize_sums sums[4] = {{zero, zero}, {zero, zero}, {zero, zero}, {zero, zero}};
    for (int j = 0; j < taps->count[y]; j += 2) {
        const uint8_t *above = at + (size_t)j * stride,
                      *below = j + 1 < taps->count[y] ? above + stride : above;
        __m128i upper = _mm_loadu_si128((const __m128i *)above),
                lower = _mm_loadu_si128((const __m128i *)below);
        __m128i left = _mm_unpacklo_epi8(upper, lower), right = _mm_unpackhi_epi8(upper, lower);
        __m128i low_pair = weights_pair(low + j), high_pair = weights_pair(high + j);
        sums_add(&sums[0], _mm_unpacklo_epi8(left, zero), low_pair, high_pair);
        sums_add(&sums[1], _mm_unpackhi_epi8(left, zero), low_pair, high_pair);
        sums_add(&sums[2], _mm_unpacklo_epi8(right, zero), low_pair, high_pair);
        sums_add(&sums[3], _mm_unpackhi_epi8(right, zero), low_pair, high_pair);
    }
    __m128i front =
        _mm_packs_epi32(sums_finish(&sums[0], taps->bits), sums_finish(&sums[1], taps->bits));
    __m128i back =
        _mm_packs_epi32(sums_finish(&sums[2], taps->bits), sums_finish(&sums[3], taps->bits));
    _mm_storeu_si128((__m128i *)out, _mm_packus_epi16(front, back));
}

void resize_column(uint8_t *out, const uint8_t *pixels, int width, const struct resize_taps *taps,
                   int y, int above) {
    size_t stride = 3 * (size_t)width, x = 0;
    const uint8_t *top = pixels + (size_t)(taps->first[y] - above) * stride;
    for (; x + 16 <= stride; x += 16) column_block(out + x, top + x, stride, taps, y);
    for (; x < stride; x++) out[x] = sum_bytes(top + x, stride, taps, y);
}

#else

void resize_rows(const struct resize_lines *lines, const struct resize_taps *t, int to) {
    for (int line = 0; line < RESIZE_LINES; line++)
        for (int i = 0; i < to; i++) {
            const uint8_t *pixels = lines->in[line] + 3 * (size_t)t->first[i];
            for (size_t channel = 0; channel < 3; channel++)
                lines->out[line][3 * (size_t)i + channel] = sum_bytes(pixels + channel, 3, t, i);
        }
}

void resize_column(uint8_t *out, const uint8_t *pixels, int width, const struct resize_taps *t,
                   int y, int above) {
    size_t stride = 3 * (size_t)width;
    const uint8_t *top = pixels + (size_t)(t->first[y] - above) * stride;
    for (size_t x = 0; x < stride; x++) out[x] = sum_bytes(top + x, stride, t, y);
}

#endif
