/* kernels/cpu/math_generic.c: elementwise functions through libm: the reference of the vector versions. */
#include <math.h>

#include "kernels/cpu/row_math.h"
#include "kernels/cpu/sample_weights.h"
#include "kernels/cpu/variants.h"

static float activate_one(float x, enum activation activation) {
    switch (activation) {
        case ACTIVATION_NONE: return x;
        case ACTIVATION_GELU_TANH: return 0.5f * x * (1.0f + tanhf(0.79788456f * x * (1.0f + 0.044715f * x * x)));
        case ACTIVATION_GELU_ERF: return 0.5f * x * erfcf(-0.70710678f * x);
        case ACTIVATION_SILU: return x / (1.0f + expf(-x));
        case ACTIVATION_RELU: return x < 0 ? 0 : x;
        case ACTIVATION_RELU_SQUARED: return x < 0 ? 0 : x * x;
        case ACTIVATION_QUICK_GELU: return x / (1.0f + expf(-1.702f * x));
    }
    return x;
}

void activate_generic(float *y, const float *x, int n, enum activation activation) {
    for (int i = 0; i < n; i++) y[i] = activate_one(x[i], activation);
}

void softcap_generic(float *x, int n, float cap) {
    for (int i = 0; i < n; i++) x[i] = cap * tanhf(x[i] / cap);
}

void exp_generic(float *y, const float *x, int n) {
    for (int i = 0; i < n; i++) y[i] = expf(x[i]);
}

void keys_generic(uint32_t *keys, const float *logits, int n) { sample_keys(keys, logits, n); }
uint32_t top_generic(const float *logits, int n) { return sample_top(logits, n); }

void weights_generic(uint64_t *w, const float *logits, int n, double largest, double temperature) {
    sample_weights(w, logits, n, largest, temperature);
}

void norm_generic(const struct norm_args *a, int row) { norm_row(a, row); }
void square_generic(const struct square_rows_args *a, int row) { square_row(a, row); }
void add_generic(const struct add_args *a, int row) { add_row(a, row); }
void scale_generic(float *y, const float *x, int n, float scale) { scale_row(y, x, n, scale); }
void halve_generic(uint16_t *to, const float *from, int n) { halve_row(to, from, n); }
