/* kernels/quantise.h: weights as 8 or 4 bits in blocks of 32 along a row, with an f16 scale a
 * block.
 *
 *     int8   w = scale q,              q in [-127, 127], one byte
 *     int4   w = scale q + minimum,    q in 0 .. 15, two a byte, the even index in the low half
 *
 * int8 rounds to nearest. int4 searches scale and minimum for the least sum of v[j] (w[j] -
 * stored[j])^2, where v is the importance of input column j: the mean of its squares over a text
 * makes that sum the expected squared error of the product. Without importance all columns count
 * alike. */
#pragma once

#include "kernels/tensor.h"

/* One row of n columns, n a multiple of 32: n or n / 2 bytes of values, n / 32 scales, for int4 as
 * many minimums. Rows of MXFP4, which none are rounded to, have bytes for scales (mxfp4.h). */
struct quantised_row {
    void *values;
    uint16_t *scales, *minimums;
};

/* Row i of a matrix whose row 0 is `first`. */
struct quantised_row quantised_row_at(struct quantised_row first, enum dtype dtype, int n,
                                      int64_t i);

/* False when a weight is not finite or so large that no f16 scale holds its block; the row is
 * unspecified then. importance is [n] and >= 0, or NULL; int8 does not look at it. */
bool quantise_row(enum dtype dtype, struct quantised_row to, const float *w,
                  const float *importance, int n);
void dequantise_row(float *w, enum dtype dtype, struct quantised_row from, int n);

/* How far an approximation is from the weights it stands for, summed over rows. */
struct deviation {
    double squared, total; /* sums of (w - approximation)^2 and of w^2 */
    double largest;        /* of |w - approximation| */
};
void deviation_add(struct deviation *deviation, const float *w, const float *approximation, int n);
double deviation_relative(
    const struct deviation *deviation); /* sqrt(squared / total), 0 for no weights */
