/* kernels/mxfp4.c: see mxfp4.h. */
#include "kernels/mxfp4.h"

void mxfp4_widen(float *to, const uint8_t *codes, const uint8_t *exponents, int n) {
    CHECK(n % QUANTISE_BLOCK == 0);
    for (int k = 0; k < n; k++) {
        float half = 0.5f * mxfp4_scale(exponents[k / QUANTISE_BLOCK]);
        to[k] = half * (float)mxfp4_doubled(codes[k / 2] >> 4 * (k & 1) & 15);
    }
}
