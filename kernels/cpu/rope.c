/* kernels/cpu/rope.c: rotary position embedding in place (spec 4.4). The angle is the f32 product,
 * as in training; its sine and cosine are taken in double, so nothing but the angle's own rounding
 * is left. */
#include <math.h>

#include "kernels/cpu/cpu.h"

/* Element pairs (first, second) of a head, `step` apart from one pair to the next, turn by the
 * angles. */
static void turn_head(float *first, float *second, int step, const float *cosine, const float *sine,
                      int pairs) {
#pragma omp simd
    for (int p = 0; p < pairs; p++) {
        float u = first[p * step], v = second[p * step];
        first[p * step] = u * cosine[p] - v * sine[p];
        second[p * step] = v * cosine[p] + u * sine[p];
    }
}

static void rope_row(const void *context, int i, int thread) {
    (void)thread;
    const struct rope_args *args = context;
    float cosine[ATTENTION_MAX_HEAD / 2], sine[ATTENTION_MAX_HEAD / 2];
    int half = args->rotated / 2, sections = args->sections > 0 ? args->sections : 1;
    const int32_t *positions = args->positions + (int64_t)i * sections;
    double scale = args->scale > 0 ? (double)args->scale : 1;
    if (args->grows_after > 0)
        scale *= 1 + (double)args->growth *
                         log(1 + (positions[0] + args->grows_ahead) / args->grows_after);
    for (int p = 0; p < half; p++) {
        int32_t position = positions[args->section_of ? args->section_of[p] : 0];
        float angle = (float)position * args->inv_freq[p];
        cosine[p] = (float)(scale * cos((double)angle));
        sine[p] = (float)(scale * sin((double)angle));
    }
    for (int head = 0; head < args->heads; head++) {
        float *x = row_f32(args->x, i) + (int64_t)head * args->head_dim + args->first;
        if (args->interleaved)
            turn_head(x, x + 1, 2, cosine, sine, half);
        else
            turn_head(x, x + half, 1, cosine, sine, half);
    }
}

void cpu_rope(struct backend *backend, const struct rope_args *args) {
    cpu_run(backend, args->x.rows * (10.0 + args->heads) * args->rotated, args->x.rows, rope_row,
            args);
}
