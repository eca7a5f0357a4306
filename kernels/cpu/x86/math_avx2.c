/* kernels/cpu/x86/math_avx2.c: elementwise functions for avx2; see math_vector.h, row_math.h and sample_weights.h. */
#include "kernels/cpu/x86/simd_avx2.h"

#include "kernels/cpu/math_vector.h"
#include "kernels/cpu/row_math.h"
#include "kernels/cpu/sample_weights.h"
#include "kernels/cpu/variants.h"

void activate_avx2(float *y, const float *x, int n, enum activation activation) {
    activate_vector(y, x, n, activation);
}

void softcap_avx2(float *x, int n, float cap) { softcap_vector(x, n, cap); }

void exp_avx2(float *y, const float *x, int n) { exp_vector(y, x, n); }

void keys_avx2(uint32_t *keys, const float *logits, int n) { sample_keys(keys, logits, n); }
uint32_t top_avx2(const float *logits, int n) { return sample_top(logits, n); }

void weights_avx2(uint64_t *w, const float *logits, int n, double largest, double temperature) {
    sample_weights(w, logits, n, largest, temperature);
}

void norm_avx2(const struct norm_args *a, int row) { norm_row(a, row); }
void square_avx2(const struct square_rows_args *a, int row) { square_row(a, row); }
void add_avx2(const struct add_args *a, int row) { add_row(a, row); }
void scale_avx2(float *y, const float *x, int n, float scale) { scale_row(y, x, n, scale); }
void halve_avx2(uint16_t *to, const float *from, int n) { halve_row(to, from, n); }
