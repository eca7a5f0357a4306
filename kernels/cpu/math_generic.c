/* kernels/cpu/math_generic.c: elementwise functions through libm: the reference of the vector
 * versions. */
#include <math.h>

#include "kernels/cpu/row_math.h"
#include "kernels/cpu/sample_weights.h"
#include "kernels/cpu/variants.h"

static float activate_one(float x, enum activation activation) {
    switch (activation) {
        case ACTIVATION_NONE: return x;
        case ACTIVATION_GELU_TANH:
            return 0.5f * x * (1.0f + tanhf(0.79788456f * x * (1.0f + 0.044715f * x * x)));
        case ACTIVATION_GELU_ERF: return 0.5f * x * erfcf(-0.70710678f * x);
        case ACTIVATION_SILU: return x / (1.0f + expf(-x));
        case ACTIVATION_RELU: return x < 0 ? 0 : x;
        case ACTIVATION_RELU_SQUARED: return x < 0 ? 0 : x * x;
        case ACTIVATION_QUICK_GELU: return x / (1.0f + expf(-1.702f * x));
        case ACTIVATION_SIGMOID: return 1 / (1.0f + expf(-x));
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

ROW_KERNELS(KERNEL_FUNCTION, generic)
