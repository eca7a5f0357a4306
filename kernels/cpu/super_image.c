/* kernels/cpu/super_image.c: GGUF's super-blocks in the packed order. See super_image.h,
 * kernels/kquants.h, layout.h.
 */
#include "kernels/cpu/super_image.h"

#include <string.h>

/* Masks of four bytes at once. */
#define NIBBLES 0x0f0f0f0fu
#define SIX_BITS 0x3f3f3f3fu
#define TWO_BITS 0x03030303u
#define ONE_BIT 0x01010101u

enum { HALF_QUADS = BLOCK_QUADS / 2 };

/* Block b, whose values are the low or the high halves of `q`, with quad i + 4 beside quad i. */
static void nibbles_place(uint32_t *to, const uint32_t q[BLOCK_QUADS], bool high) {
    int shift = high ? 4 : 0;
    for (int i = 0; i < HALF_QUADS; i++)
        to[i] = (q[i] >> shift & NIBBLES) | (q[i + HALF_QUADS] >> shift & NIBBLES) << 4;
}

static uint32_t fifth_place(const uint32_t fifth[BLOCK_QUADS], int block) {
    uint32_t bits = 0;
    for (int i = 0; i < BLOCK_QUADS; i++) bits |= (fifth[i] >> block & ONE_BIT) << i;
    return bits;
}

static void image_make_five(struct super_image *to, enum dtype dtype, const char *from) {
    const bool five = dtype == DTYPE_Q5_K;
    uint32_t packed[3], fifth[BLOCK_QUADS], q[SUPER_BLOCKS / 2][BLOCK_QUADS], *out = to->words;
    memcpy(&to->d, from, sizeof to->d);
    memcpy(&to->dmin, from + 2, sizeof to->dmin);
    memcpy(packed, from + 4, sizeof packed);
    from += 4 + sizeof packed;
    if (five) {
        memcpy(fifth, from, sizeof fifth);
        from += sizeof fifth;
    }
    memcpy(q, from, sizeof q);

    uint32_t scales = (packed[2] & NIBBLES) | (packed[0] >> 6 & TWO_BITS) << 4;
    uint32_t minimums = (packed[2] >> 4 & NIBBLES) | (packed[1] >> 6 & TWO_BITS) << 4;
    *out++ = (packed[0] & SIX_BITS) | (minimums & TWO_BITS) << 6;
    *out++ = scales | (minimums >> 2 & TWO_BITS) << 6;
    *out++ = (packed[1] & SIX_BITS) | (minimums >> 4 & TWO_BITS) << 6;
    for (int b = 0; b < SUPER_BLOCKS; b++) {
        nibbles_place(out, q[b / 2], b % 2 != 0);
        out += HALF_QUADS;
        if (five) *out++ = fifth_place(fifth, b);
    }
}

static void image_make_six(struct super_image *to, const char *from) {
    uint32_t q[2][2][BLOCK_QUADS], upper[2][BLOCK_QUADS], *out = to->words;
    memcpy(q, from, sizeof q);
    from += sizeof q;
    memcpy(upper, from, sizeof upper);
    from += sizeof upper;
    memcpy(out, from, SUPER_PARTS);
    memcpy(&to->d, from + SUPER_PARTS, sizeof to->d);
    to->dmin = 0;
    out += SUPER_PARTS / sizeof *out;
    for (int b = 0; b < SUPER_BLOCKS; b++) {
        const uint32_t *bits = upper[b / 4];
        const int run = b % 4;
        nibbles_place(out, q[b / 4][run % 2], run >= 2);
        out += HALF_QUADS;
        for (int i = 0; i < HALF_QUADS; i += 2)
            *out++ = (bits[i] >> 2 * run & TWO_BITS) |
                     (bits[i + HALF_QUADS] >> 2 * run & TWO_BITS) << 2 |
                     (bits[i + 1] >> 2 * run & TWO_BITS) << 4 |
                     (bits[i + 1 + HALF_QUADS] >> 2 * run & TWO_BITS) << 6;
    }
}

void super_image_make(struct super_image *to, enum dtype dtype, const char *from) {
    if (dtype == DTYPE_Q6_K)
        image_make_six(to, from);
    else
        image_make_five(to, dtype, from);
}
