/* kernels/cpu/rope.c: rotary position embedding in place (spec 4.4). The angle is the f32 product, as in training; its
 * sine and cosine are taken in double, so nothing but the angle's own rounding is left. */
#include <math.h>

#include "kernels/cpu/cpu.h"

static void rope_row(const void *context, int i, int thread) {
    (void)thread;
    const struct rope_args *a = context;
    int half = a->rotated / 2;
    for (int p = 0; p < half; p++) {
        float angle = (float)a->positions[i] * a->inv_freq[p];
        float c = (float)cos((double)angle), s = (float)sin((double)angle);
        int first = a->interleaved ? 2 * p : p, second = a->interleaved ? 2 * p + 1 : p + half;
        for (int head = 0; head < a->heads; head++) {
            float *x = row_f32(a->x, i) + (int64_t)head * a->head_dim;
            float u = x[first], v = x[second];
            x[first] = u * c - v * s;
            x[second] = v * c + u * s;
        }
    }
}

void cpu_rope(struct backend *b, const struct rope_args *a) {
    cpu_run(b, a->x.rows * (10.0 + a->heads) * a->rotated, a->x.rows, rope_row, a);
}
