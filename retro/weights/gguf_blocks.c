/* retro/weights/gguf_blocks.c: blocks of quantised weights as GGUF files hold them. See
 * gguf_blocks.h. */
#include "retro/weights/gguf_blocks.h"

#include <math.h>
#include <string.h>

#include "kernels/mxfp4.h"

enum { RUN = QUANTISE_BLOCK, HALF = RUN / 2, SUPER = 256, RUNS = SUPER / RUN };

static float read_half(const uint8_t *p) { return f16_to_f32((uint16_t)(p[0] | p[1] << 8)); }

static void set_run(struct block_run *run, float unit, int multiple, float offset) {
    run->unit = unit;
    run->multiple[0] = run->multiple[1] = multiple;
    run->offset[0] = run->offset[1] = offset;
}

/* 16 bytes: the low nibbles are the first half of the run, the high ones the second. */
static void split_nibbles(int8_t q[RUN], const uint8_t *bytes, int subtract) {
    for (int j = 0; j < HALF; j++) {
        q[j] = (int8_t)((bytes[j] & 15) - subtract);
        q[j + HALF] = (int8_t)((bytes[j] >> 4) - subtract);
    }
}

/* Bit j of 32 is the fifth bit of q[j]. */
static void add_fifth_bits(int8_t q[RUN], const uint8_t *bits) {
    for (int j = 0; j < RUN; j++) q[j] = (int8_t)(q[j] + ((bits[j / 8] >> j % 8 & 1) << 4));
}

static void unpack_q8_0(const uint8_t *b, struct block_run *run) {
    set_run(run, read_half(b), 1, 0);
    memcpy(run->q, b + 2, RUN);
}

static void unpack_q4_0(const uint8_t *b, struct block_run *run) {
    set_run(run, read_half(b), 1, 0);
    split_nibbles(run->q, b + 2, 8);
}

static void unpack_q4_1(const uint8_t *b, struct block_run *run) {
    set_run(run, read_half(b), 1, read_half(b + 2));
    split_nibbles(run->q, b + 4, 0);
}

static void unpack_q5_0(const uint8_t *b, struct block_run *run) {
    set_run(run, read_half(b), 1, 0);
    split_nibbles(run->q, b + 6, 16);
    add_fifth_bits(run->q, b + 2);
}

static void unpack_q5_1(const uint8_t *b, struct block_run *run) {
    set_run(run, read_half(b), 1, read_half(b + 2));
    split_nibbles(run->q, b + 8, 0);
    add_fifth_bits(run->q, b + 4);
}

/* Reads run i of a block of 256 with two bits a weight: the run lies at bit 2 (i % 4) of 32 bytes.
 */
static void read_pairs(int8_t q[RUN], const uint8_t *bytes, int i) {
    const uint8_t *at = bytes + i / 4 * RUN;
    for (int j = 0; j < RUN; j++) q[j] = (int8_t)(at[j] >> 2 * (i % 4) & 3);
}

/* u8 scale and minimum[16], 4 bits each; 2-bit q[64]; f16 d, dmin. */
static void unpack_q2_k(const uint8_t *b, struct block_run *run) {
    float d = read_half(b + 80), dmin = read_half(b + 82);
    for (int i = 0; i < RUNS; i++) {
        run[i].unit = d;
        for (int h = 0; h < 2; h++) {
            run[i].multiple[h] = b[2 * i + h] & 15;
            run[i].offset[h] = -(dmin * (float)(b[2 * i + h] >> 4));
        }
        read_pairs(run[i].q, b + 16, i);
    }
}

/* Third bits[32]; 2-bit q[64]; sixteen 6-bit scales[12]: four low bits each, then two high bits;
 * f16 d. */
static void unpack_q3_k(const uint8_t *b, struct block_run *run) {
    const uint8_t *scales = b + 96;
    for (int i = 0; i < RUNS; i++) {
        set_run(&run[i], read_half(b + 108), 0, 0);
        for (int h = 0; h < 2; h++) {
            int s = 2 * i + h, low = scales[s % 8] >> (s < 8 ? 0 : 4) & 15,
                high = scales[8 + s % 4] >> 2 * (s / 4) & 3;
            run[i].multiple[h] = (low | high << 4) - 32;
        }
        read_pairs(run[i].q, b + 32, i);
        for (int j = 0; j < RUN; j++) run[i].q[j] = (int8_t)(run[i].q[j] - (b[j] >> i & 1 ? 0 : 4));
    }
}

/* Eight 6-bit scales and minimums in 12 bytes, of run i. */
static void read_scale_pair(const uint8_t *s, int i, int *scale, int *minimum) {
    if (i < 4) {
        *scale = s[i] & 63;
        *minimum = s[i + 4] & 63;
    } else {
        *scale = (s[i + 4] & 15) | s[i - 4] >> 6 << 4;
        *minimum = s[i + 4] >> 4 | s[i] >> 6 << 4;
    }
}

/* Runs 2i and 2i + 1 are the low and the high nibbles of 32 bytes. */
static void read_nibbles(int8_t q[RUN], const uint8_t *bytes, int i) {
    const uint8_t *at = bytes + i / 2 * RUN;
    for (int j = 0; j < RUN; j++) q[j] = (int8_t)(at[j] >> 4 * (i % 2) & 15);
}

static void set_scale_pair(struct block_run *run, const uint8_t *b, int i) {
    int scale, minimum;
    read_scale_pair(b + 4, i, &scale, &minimum);
    set_run(run, read_half(b), scale, -(read_half(b + 2) * (float)minimum));
}

/* f16 d, dmin; scales and minimums[12]; nibbles[128]. */
static void unpack_q4_k(const uint8_t *b, struct block_run *run) {
    for (int i = 0; i < RUNS; i++) {
        set_scale_pair(&run[i], b, i);
        read_nibbles(run[i].q, b + 16, i);
    }
}

/* The same with fifth bits[32] before the nibbles. */
static void unpack_q5_k(const uint8_t *b, struct block_run *run) {
    for (int i = 0; i < RUNS; i++) {
        set_scale_pair(&run[i], b, i);
        read_nibbles(run[i].q, b + 48, i);
        for (int j = 0; j < RUN; j++)
            run[i].q[j] = (int8_t)(run[i].q[j] + ((b[16 + j] >> i & 1) << 4));
    }
}

/* Nibbles[128]; fifth and sixth bits[64]; int8 scales[16]; f16 d. Each half of the block has runs
 * 0, 1 in the low nibbles of its 64 bytes and 2, 3 in the high ones. */
static void unpack_q6_k(const uint8_t *b, struct block_run *run) {
    for (int i = 0; i < RUNS; i++) {
        const uint8_t *low = b + i / 4 * 64 + i % 2 * RUN, *high = b + 128 + i / 4 * RUN;
        int shift = i % 4 / 2 * 4;
        set_run(&run[i], read_half(b + 208), 0, 0);
        for (int h = 0; h < 2; h++) run[i].multiple[h] = (int8_t)b[192 + 2 * i + h];
        for (int j = 0; j < RUN; j++)
            run[i].q[j] =
                (int8_t)(((low[j] >> shift & 15) | (high[j] >> 2 * (i % 4) & 3) << 4) - 32);
    }
}

/* The 16 levels of the IQ4 types. */
static const int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

static void nibbles_look_up(int8_t q[RUN]) {
    for (int j = 0; j < RUN; j++) q[j] = levels[q[j]];
}

static void unpack_iq4_nl(const uint8_t *b, struct block_run *run) {
    set_run(run, read_half(b), 1, 0);
    split_nibbles(run->q, b + 2, 0);
    nibbles_look_up(run->q);
}

/* f16 d; high two bits of eight scales: u16; low four bits[4]; nibbles[128], 16 bytes a run. */
static void unpack_iq4_xs(const uint8_t *b, struct block_run *run) {
    int high = b[2] | b[3] << 8;
    for (int i = 0; i < RUNS; i++) {
        int scale = (b[4 + i / 2] >> 4 * (i % 2) & 15) | (high >> 2 * i & 3) << 4;
        set_run(&run[i], read_half(b), scale - 32, 0);
        split_nibbles(run[i].q, b + 8 + i * HALF, 0);
        nibbles_look_up(run[i].q);
    }
}

/* A byte that stands for a power of two, and codes of e2m1, whose doubled numbers are whole. */
static void unpack_mxfp4(const uint8_t *b, struct block_run *run) {
    set_run(run, 0.5f * mxfp4_scale(b[0]), 1, 0);
    split_nibbles(run->q, b + 1, 0);
    for (int j = 0; j < RUN; j++) run->q[j] = (int8_t)mxfp4_doubled(run->q[j]);
}

static const struct block_form forms[] = {
    {0, "F32", 1, 4, DTYPE_F32, DTYPE_F32, BLOCKS_EXACT, 0, NULL},
    {1, "F16", 1, 2, DTYPE_F16, DTYPE_F16, BLOCKS_EXACT, 0, NULL},
    {30, "BF16", 1, 2, DTYPE_BF16, DTYPE_BF16, BLOCKS_EXACT, 0, NULL},
    {8, "Q8_0", RUN, 34, DTYPE_INT8, DTYPE_INT8, BLOCKS_EXACT, -128, unpack_q8_0},
    {2, "Q4_0", RUN, 18, DTYPE_INT4, DTYPE_INT4, BLOCKS_EXACT, -8, unpack_q4_0},
    {3, "Q4_1", RUN, 20, DTYPE_INT4, DTYPE_INT4, BLOCKS_EXACT, 0, unpack_q4_1},
    {6, "Q5_0", RUN, 22, DTYPE_INT8, DTYPE_INT8, BLOCKS_EXACT, -16, unpack_q5_0},
    {7, "Q5_1", RUN, 24, DTYPE_INT8, DTYPE_INT8, BLOCKS_REQUANTISED, 0, unpack_q5_1},
    {10, "Q2_K", SUPER, 84, DTYPE_INT8, DTYPE_INT8, BLOCKS_REQUANTISED, 0, unpack_q2_k},
    {11, "Q3_K", SUPER, 110, DTYPE_INT8, DTYPE_INT8, BLOCKS_EXACT, -4, unpack_q3_k},
    {12, "Q4_K", SUPER, 144, DTYPE_INT4, DTYPE_Q4_K, BLOCKS_ROUNDED, 0, unpack_q4_k},
    {13, "Q5_K", SUPER, 176, DTYPE_INT8, DTYPE_Q5_K, BLOCKS_REQUANTISED, 0, unpack_q5_k},
    {14, "Q6_K", SUPER, 210, DTYPE_INT8, DTYPE_Q6_K, BLOCKS_REQUANTISED, -32, unpack_q6_k},
    {20, "IQ4_NL", RUN, 18, DTYPE_INT8, DTYPE_INT8, BLOCKS_EXACT, -127, unpack_iq4_nl},
    {23, "IQ4_XS", SUPER, 136, DTYPE_INT8, DTYPE_INT8, BLOCKS_ROUNDED, -127, unpack_iq4_xs},
    {39, "MXFP4", RUN, 17, DTYPE_MXFP4, DTYPE_MXFP4, BLOCKS_EXACT, -MXFP4_LARGEST, unpack_mxfp4},
};

const struct block_form *block_form_find(uint32_t type) {
    for (size_t i = 0; i < ARRAY_COUNT(forms); i++)
        if (forms[i].type == type) return &forms[i];
    return NULL;
}

void block_form_names(struct buffer *out) {
    for (size_t i = 0; i < ARRAY_COUNT(forms); i++)
        buffer_printf(out, "%s%s", i ? ", " : "", forms[i].name);
}

static void widen_run(float w[RUN], const struct block_run *run) {
    for (int h = 0; h < 2; h++) {
        float scale = run->unit * (float)run->multiple[h], offset = run->offset[h];
        for (int j = h * HALF; j < (h + 1) * HALF; j++) w[j] = scale * (float)run->q[j] + offset;
    }
}

void blocks_widen(float *w, const struct block_form *form, const void *row, int n) {
    struct block_run runs[RUNS];
    const uint8_t *block = row;
    if (block_form_plain(form)) {
        dtype_convert(w, DTYPE_F32, row, form->dtype, (size_t)n);
        return;
    }
    for (int at = 0; at < n; at += form->elements, block += form->bytes) {
        form->unpack(block, runs);
        for (int i = 0; i < form->elements / RUN; i++) widen_run(w + at + i * RUN, &runs[i]);
    }
}

static bool half_fits(float v, uint16_t *out) {
    *out = f32_to_f16(v);
    return (*out & 0x7c00) != 0x7c00;
}

/* The integers multiple * q of the run, its unit for a scale: false when they need more than 8
 * bits. 128 alone does not: then all signs change. */
static bool run_to_int8_exact(int8_t *q, uint16_t *scale, const struct block_run *run) {
    int p[RUN], low = 0, high = 0;
    if (run->offset[0] != 0 || run->offset[1] != 0) return false;
    for (int j = 0; j < RUN; j++) {
        p[j] = run->multiple[j / HALF] * run->q[j];
        low = min_int(low, p[j]);
        high = max_int(high, p[j]);
    }
    int sign = high == 128 ? -1 : 1;
    if (sign * low > 127 || low < -128 || high > 128) return false;
    for (int j = 0; j < RUN; j++) q[j] = (int8_t)(sign * p[j]);
    return half_fits((float)sign * run->unit, scale);
}

static bool run_to_int8(int8_t *q, uint16_t *scale, const struct block_run *run) {
    if (run_to_int8_exact(q, scale, run)) return true;
    if (run->offset[0] == 0 && run->offset[1] == 0 && run->multiple[0] == run->multiple[1]) {
        memcpy(q, run->q, RUN);
        return half_fits(run->unit * (float)run->multiple[0], scale);
    }
    float w[RUN];
    widen_run(w, run);
    return quantise_row(DTYPE_INT8, (struct quantised_row){.values = q, .scales = scale}, w, NULL,
                        RUN);
}

static bool run_to_int4(uint8_t *q, uint16_t *scale, uint16_t *minimum, const struct block_run *run,
                        int low) {
    float step = run->unit * (float)run->multiple[0];
    for (int j = 0; j < RUN; j += 2)
        q[j / 2] = (uint8_t)((run->q[j] - low) | (run->q[j + 1] - low) << 4);
    return half_fits(step, scale) && half_fits(run->offset[0] + step * (float)low, minimum);
}

static bool store_run(enum dtype dtype, struct quantised_row to, const struct block_run *run,
                      int low) {
    if (dtype == DTYPE_INT4) return run_to_int4(to.values, to.scales, to.minimums, run, low);
    return run_to_int8(to.values, to.scales, run);
}

/* The block in our order: exponents apart, and two neighbours a byte. False: the exponent is no
 * number. */
static bool store_mxfp4(struct quantised_row to, const uint8_t *block) {
    int8_t codes[RUN];
    uint8_t *values = to.values, *exponent = (uint8_t *)to.scales;
    split_nibbles(codes, block + 1, 0);
    for (int j = 0; j < HALF; j++) values[j] = (uint8_t)(codes[2 * j] | codes[2 * j + 1] << 4);
    *exponent = block[0];
    return *exponent <= MXFP4_MOST;
}

static void measure_run(struct deviation *lost, enum dtype dtype, struct quantised_row stored,
                        const struct block_run *run) {
    float w[RUN], back[RUN];
    widen_run(w, run);
    dequantise_row(back, dtype, stored, RUN);
    deviation_add(lost, w, back, RUN);
}

bool blocks_quantise(enum dtype dtype, struct quantised_row to, const struct block_form *form,
                     const void *row, int n, struct deviation *lost) {
    struct block_run runs[RUNS];
    const uint8_t *block = row;
    CHECK(!block_form_plain(form) && n % form->elements == 0 &&
          (dtype == DTYPE_INT8 || dtype == form->dtype || dtype == form->kernel));
    if (dtype_kquant(dtype)) {
        memcpy(to.values, row, block_row_bytes(form, n));
        return true;
    }
    for (int at = 0; at < n; at += form->elements, block += form->bytes) {
        form->unpack(block, runs);
        for (int i = 0; i < form->elements / RUN; i++) {
            struct quantised_row here = quantised_row_at(to, dtype, RUN, at / RUN + i);
            bool stored = dtype == DTYPE_MXFP4 ? store_mxfp4(here, block)
                                               : store_run(dtype, here, &runs[i], form->low);
            if (!stored) return false;
            if (lost) measure_run(lost, dtype, here, &runs[i]);
        }
    }
    return true;
}
