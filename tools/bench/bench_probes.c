/* tools/bench/bench_probes.c: loops that do nothing but read memory or multiply in registers, one
 * for each instruction set: the limits that kernels are measured against. See bench.h. */
#include <string.h>

#include "tools/bench/bench.h"

#if CPU_X86
#include <immintrin.h>
#endif
#if CPU_ARM
#include <arm_neon.h>
#endif

/* Chains of results that do not wait for each other: more than any instruction's latency. */
enum { PLAIN_CHAINS = 16, CHAINS = 12 };

static uint64_t read_plain(const char *p, size_t bytes) {
    uint64_t sums[4] = {0};
    const uint64_t *words = (const uint64_t *)p;
    for (size_t i = 0; i < bytes / sizeof *words; i += 4)
        for (size_t j = 0; j < 4; j++) sums[j] ^= words[i + j];
    return sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
}

static double multiply_plain(int steps) {
    float x[PLAIN_CHAINS];
    for (int j = 0; j < PLAIN_CHAINS; j++) x[j] = (float)j;
    for (int i = 0; i < steps; i++)
#pragma GCC unroll 16
        for (int j = 0; j < PLAIN_CHAINS; j++) x[j] = x[j] * 0.5f + 1.0f;
    double sum = 0;
    for (int j = 0; j < PLAIN_CHAINS; j++) sum += (double)x[j];
    return sum;
}

#if CPU_X86
__attribute__((target("avx2"))) static uint64_t read_avx2(const char *p, size_t bytes) {
    __m256i sums[8];
    for (int j = 0; j < 8; j++) sums[j] = _mm256_setzero_si256();
    for (size_t i = 0; i < bytes; i += sizeof sums)
#pragma GCC unroll 8
        for (size_t j = 0; j < 8; j++)
            sums[j] = _mm256_xor_si256(sums[j], _mm256_load_si256((const __m256i *)(p + i) + j));
    for (int j = 1; j < 8; j++) sums[0] = _mm256_xor_si256(sums[0], sums[j]);
    return (uint64_t)_mm256_extract_epi64(sums[0], 0);
}

__attribute__((target("avx512f"))) static uint64_t read_avx512(const char *p, size_t bytes) {
    __m512i sums[8];
    for (int j = 0; j < 8; j++) sums[j] = _mm512_setzero_si512();
    for (size_t i = 0; i < bytes; i += sizeof sums)
#pragma GCC unroll 8
        for (size_t j = 0; j < 8; j++)
            sums[j] = _mm512_xor_si512(sums[j], _mm512_load_si512((const char *)p + i + 64 * j));
    for (int j = 1; j < 8; j++) sums[0] = _mm512_xor_si512(sums[0], sums[j]);
    return (uint64_t)_mm512_reduce_or_epi64(sums[0]);
}

/* A probe of one instruction set: CHAINS registers x, each `step` of which multiplies. */
#define MULTIPLY_PROBE(name, isa, type, zero, add, sum, step) \
    __attribute__((target(isa))) static double name(int steps) { \
        type x[CHAINS]; \
        for (int j = 0; j < CHAINS; j++) x[j] = zero; \
        for (int i = 0; i < steps; i++) \
            _Pragma("GCC unroll 12") for (int j = 0; j < CHAINS; j++) x[j] = step; \
        for (int j = 1; j < CHAINS; j++) x[0] = add(x[0], x[j]); \
        return (double)sum; \
    }

MULTIPLY_PROBE(multiply_avx2, "avx2,fma", __m256, _mm256_set1_ps((float)j), _mm256_add_ps,
               _mm256_cvtss_f32(x[0]),
               _mm256_fmadd_ps(x[j], _mm256_set1_ps(0.5f), _mm256_set1_ps(1)))
MULTIPLY_PROBE(multiply_avx512, "avx512f", __m512, _mm512_set1_ps((float)j), _mm512_add_ps,
               _mm512_cvtss_f32(x[0]),
               _mm512_fmadd_ps(x[j], _mm512_set1_ps(0.5f), _mm512_set1_ps(1)))
MULTIPLY_PROBE(bf16_avx512, "avx512f,avx512bf16", __m512, _mm512_set1_ps((float)j), _mm512_add_ps,
               _mm512_cvtss_f32(x[0]),
               _mm512_dpbf16_ps(x[j], (__m512bh)_mm512_set1_epi32(1),
                                (__m512bh)_mm512_set1_epi32(2)))
/* The multiplied bytes are the sums themselves: a product that never changes would be taken out of
 * the loop. */
MULTIPLY_PROBE(int8_avx2, "avx2", __m256i, _mm256_set1_epi32(j), _mm256_add_epi32,
               _mm_cvtsi128_si32(_mm256_castsi256_si128(x[0])),
               _mm256_add_epi32(x[j],
                                _mm256_madd_epi16(_mm256_maddubs_epi16(x[j], _mm256_set1_epi8(3)),
                                                  _mm256_set1_epi16(1))))
MULTIPLY_PROBE(int8_avx512, "avx512f,avx512bw", __m512i, _mm512_set1_epi32(j), _mm512_add_epi32,
               _mm_cvtsi128_si32(_mm512_castsi512_si128(x[0])),
               _mm512_add_epi32(x[j],
                                _mm512_madd_epi16(_mm512_maddubs_epi16(x[j], _mm512_set1_epi8(3)),
                                                  _mm512_set1_epi16(1))))
MULTIPLY_PROBE(int8_avxvnni, "avx2,avxvnni", __m256i, _mm256_set1_epi32(j), _mm256_add_epi32,
               _mm_cvtsi128_si32(_mm256_castsi256_si128(x[0])),
               _mm256_dpbusd_avx_epi32(x[j], _mm256_set1_epi8(2), _mm256_set1_epi8(3)))
MULTIPLY_PROBE(int8_avx512vnni, "avx512f,avx512vnni", __m512i, _mm512_set1_epi32(j),
               _mm512_add_epi32, _mm_cvtsi128_si32(_mm512_castsi512_si128(x[0])),
               _mm512_dpbusd_epi32(x[j], _mm512_set1_epi8(2), _mm512_set1_epi8(3)))

enum { TILE_SUMS = 4, TILE_STEP = TILE_SUMS * 2 * 16 * 16 * 32 }; /* of f32, in tiles; operations */

__attribute__((target("amx-tile,amx-bf16"))) static double bf16_amx(int steps) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t line_bytes[16];
        uint8_t rows[16];
    } shapes = {.palette = 1};
    float sums[16][16];
    for (int i = 0; i < TILE_SUMS + 2; i++) {
        shapes.rows[i] = 16;
        shapes.line_bytes[i] = 64;
    }
    __asm__ volatile("" ::: "memory"); /* compilers do not know that all of it is read */
    _tile_loadconfig(&shapes);
    for (int i = 0; i < steps; i++) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_stored(0, sums, sizeof sums[0]);
    __asm__ volatile("" ::: "memory");
    _tile_release();
    return (double)sums[0][0];
}

/* Operations a step: a multiplication and an addition for each of 4 bytes, 2 bf16 or one f32 a
 * lane. */
enum { LANES_AVX2 = CHAINS * 8, LANES_AVX512 = CHAINS * 16 };
#endif

#if CPU_ARM
enum { ARM_CHAINS = 16, LANES_NEON = ARM_CHAINS * 4 };

static uint64_t read_neon(const char *p, size_t bytes) {
    uint64x2_t sums[8];
    for (int j = 0; j < 8; j++) sums[j] = vdupq_n_u64(0);
    for (size_t i = 0; i < bytes; i += sizeof sums)
#pragma GCC unroll 8
        for (size_t j = 0; j < 8; j++)
            sums[j] =
                veorq_u64(sums[j], vld1q_u64((const uint64_t *)(const void *)(p + i) + 2 * j));
    for (int j = 1; j < 8; j++) sums[0] = veorq_u64(sums[0], sums[j]);
    return vgetq_lane_u64(sums[0], 0) ^ vgetq_lane_u64(sums[0], 1);
}

/* A probe of one instruction set: ARM_CHAINS registers x, each `step` of which multiplies. */
#define NEON_PROBE(name, attribute, type, zero, add, sum, step) \
    attribute static double name(int steps) { \
        type x[ARM_CHAINS]; \
        for (int j = 0; j < ARM_CHAINS; j++) x[j] = zero; \
        for (int i = 0; i < steps; i++) \
            _Pragma("GCC unroll 16") for (int j = 0; j < ARM_CHAINS; j++) x[j] = step; \
        for (int j = 1; j < ARM_CHAINS; j++) x[0] = add(x[0], x[j]); \
        return (double)sum; \
    }
#define ARM_SET(extensions) __attribute__((target("arch=armv8.2-a" extensions)))

/* A product of bytes is one instruction that the kernels use, or the four that stand for it. The
 * multiplied bytes are the sums themselves there, as above. */
NEON_PROBE(multiply_neon, , float32x4_t, vdupq_n_f32((float)j), vaddq_f32, vgetq_lane_f32(x[0], 0),
           vfmaq_f32(vdupq_n_f32(1), x[j], vdupq_n_f32(0.5f)))
NEON_PROBE(int8_neon, , int32x4_t, vdupq_n_s32(j), vaddq_s32, vgetq_lane_s32(x[0], 0),
           vpadalq_s16(x[j],
                       vpaddq_s16(vmull_s8(vget_low_s8(vreinterpretq_s8_s32(x[j])), vdup_n_s8(3)),
                                  vmull_high_s8(vreinterpretq_s8_s32(x[j]), vdupq_n_s8(3)))))
NEON_PROBE(int8_dotprod, ARM_SET("+dotprod"), int32x4_t, vdupq_n_s32(j), vaddq_s32,
           vgetq_lane_s32(x[0], 0), vdotq_s32(x[j], vdupq_n_s8(2), vdupq_n_s8(3)))
NEON_PROBE(int8_i8mm, ARM_SET("+i8mm"), int32x4_t, vdupq_n_s32(j), vaddq_s32,
           vgetq_lane_s32(x[0], 0), vmmlaq_s32(x[j], vdupq_n_s8(2), vdupq_n_s8(3)))
NEON_PROBE(bf16_bf16, ARM_SET("+bf16"), float32x4_t, vdupq_n_f32((float)j), vaddq_f32,
           vgetq_lane_f32(x[0], 0),
           vbfmmlaq_f32(x[j], vreinterpretq_bf16_u16(vdupq_n_u16(1)),
                        vreinterpretq_bf16_u16(vdupq_n_u16(2))))

/* Operations a step and lane: SMMLA multiplies and adds eight bytes for each of its four sums,
 * BFMMLA four bf16. */
#endif

static const struct bench_probe probes[] = {
#if CPU_X86
    {"amx",
     read_avx512,
     {{multiply_avx512, 2 * LANES_AVX512},
      {bf16_amx, TILE_STEP},
      {int8_avx512vnni, 8 * LANES_AVX512}}},
    {"avx512bf16",
     read_avx512,
     {{multiply_avx512, 2 * LANES_AVX512},
      {bf16_avx512, 4 * LANES_AVX512},
      {int8_avx512vnni, 8 * LANES_AVX512}}},
    {"avx512vnni",
     read_avx512,
     {{multiply_avx512, 2 * LANES_AVX512},
      {multiply_avx512, 2 * LANES_AVX512},
      {int8_avx512vnni, 8 * LANES_AVX512}}},
    {"avx512",
     read_avx512,
     {{multiply_avx512, 2 * LANES_AVX512},
      {multiply_avx512, 2 * LANES_AVX512},
      {int8_avx512, 8 * LANES_AVX512}}},
    {"avxvnni",
     read_avx2,
     {{multiply_avx2, 2 * LANES_AVX2},
      {multiply_avx2, 2 * LANES_AVX2},
      {int8_avxvnni, 8 * LANES_AVX2}}},
    {"avx2",
     read_avx2,
     {{multiply_avx2, 2 * LANES_AVX2},
      {multiply_avx2, 2 * LANES_AVX2},
      {int8_avx2, 8 * LANES_AVX2}}},
#endif
#if CPU_ARM
    {"bf16",
     read_neon,
     {{multiply_neon, 2 * LANES_NEON}, {bf16_bf16, 8 * LANES_NEON}, {int8_i8mm, 16 * LANES_NEON}}},
    {"i8mm",
     read_neon,
     {{multiply_neon, 2 * LANES_NEON},
      {multiply_neon, 2 * LANES_NEON},
      {int8_i8mm, 16 * LANES_NEON}}},
    {"dotprod",
     read_neon,
     {{multiply_neon, 2 * LANES_NEON},
      {multiply_neon, 2 * LANES_NEON},
      {int8_dotprod, 8 * LANES_NEON}}},
    {"neon",
     read_neon,
     {{multiply_neon, 2 * LANES_NEON},
      {multiply_neon, 2 * LANES_NEON},
      {int8_neon, 8 * LANES_NEON}}},
#endif
    {"",
     read_plain,
     {{multiply_plain, 2 * PLAIN_CHAINS},
      {multiply_plain, 2 * PLAIN_CHAINS},
      {multiply_plain, 2 * PLAIN_CHAINS}}},
};

const struct bench_probe *bench_probe_of(const char *kernels) {
    size_t i = 0;
    while (strstr(kernels, probes[i].kernels) == NULL) i++;
    return &probes[i];
}
