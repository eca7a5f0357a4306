/* kernels/cpu/x86/math_avx512.c: elementwise functions for avx512; see math_vector.h, row_math.h and sample_weights.h.
 */
#include "kernels/cpu/x86/simd_avx512.h"

#include "kernels/cpu/math_vector.h"
#include "kernels/cpu/row_math.h"
#include "kernels/cpu/sample_weights.h"
#include "kernels/cpu/variants.h"

void activate_avx512(float *y, const float *x, int n, enum activation activation) {
    activate_vector(y, x, n, activation);
}

void softcap_avx512(float *x, int n, float cap) { softcap_vector(x, n, cap); }

void exp_avx512(float *y, const float *x, int n) { exp_vector(y, x, n); }

void keys_avx512(uint32_t *keys, const float *logits, int n) { sample_keys(keys, logits, n); }
uint32_t top_avx512(const float *logits, int n) { return sample_top(logits, n); }

void weights_avx512(uint64_t *w, const float *logits, int n, double largest, double temperature) {
    sample_weights(w, logits, n, largest, temperature);
}

void norm_avx512(const struct norm_args *a, int row) { norm_row(a, row); }
void square_avx512(const struct square_rows_args *a, int row) { square_row(a, row); }
void add_avx512(const struct add_args *a, int row) { add_row(a, row); }
void scale_avx512(float *y, const float *x, int n, float scale) { scale_row(y, x, n, scale); }
void halve_avx512(uint16_t *to, const float *from, int n) { halve_row(to, from, n); }
