/* retro/pictures/resize_taps.c: filters and their weights in fixed point: Pillow's Resample.c and
 * PyTorch's UpSampleKernel.cpp, line for line where the order of operations decides the last bit.
 */
#include "retro/pictures/resize_taps.h"

#include <math.h>
#include <stdlib.h>

static double filter_box(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

static double filter_bilinear(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double filter_hamming(double x) {
    x = fabs(x);
    if (x == 0.0) return 1.0;
    if (x >= 1.0) return 0.0;
    x *= M_PI;
    return sin(x) / x * (0.54f + 0.46f * cos(x));
}

static double filter_bicubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

static double filter_sinc(double x) {
    if (x == 0.0) return 1.0;
    x *= M_PI;
    return sin(x) / x;
}

static double filter_lanczos(double x) {
    return -3.0 <= x && x < 3.0 ? filter_sinc(x) * filter_sinc(x / 3) : 0.0;
}

static const struct resize_kernel {
    double (*value)(double x);
    double support; /* zero beyond */
} kernels[] = {
    [RESIZE_LANCZOS] = {filter_lanczos, 3.0}, [RESIZE_BILINEAR] = {filter_bilinear, 1.0},
    [RESIZE_BICUBIC] = {filter_bicubic, 2.0}, [RESIZE_BOX] = {filter_box, 0.5},
    [RESIZE_HAMMING] = {filter_hamming, 1.0},
};

/* Fills first and count and the real weights of pixel i; their sum is 1. */
static void taps_weigh(struct resize_taps *taps, double *weights, int i, double scale,
                       const struct resize_kernel *kernel, int from) {
    double stretch = scale < 1.0 ? 1.0 : scale;
    double support = kernel->support * stretch, narrow = 1.0 / stretch, center = (i + 0.5) * scale,
           sum = 0.0;
    int first = max_int((int)(center - support + 0.5), 0);
    int count = min_int((int)(center + support + 0.5), from) - first;

    for (int j = 0; j < count; j++) {
        weights[j] = kernel->value((j + first - center + 0.5) * narrow);
        sum += weights[j];
    }
    for (int j = 0; j < count && sum != 0.0; j++) weights[j] /= sum;
    taps->first[i] = first;
    taps->count[i] = count;
}

/* PyTorch's weights are as wide as 16 bits with a sign allow the largest of them. */
static int taps_torch_bits(const double *weights, size_t n) {
    double most = 0.0;
    int bits = 0;
    for (size_t i = 0; i < n; i++) most = weights[i] > most ? weights[i] : most;
    while (bits < 22 && (int)(0.5 + most * (1 << (bits + 1))) < 1 << 15) bits++;
    return bits;
}

static void taps_round(struct resize_taps *taps, const double *weights, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double scaled = weights[i] * (1 << taps->bits);
        int weight = weights[i] < 0 ? (int)(-0.5 + scaled) : (int)(0.5 + scaled);
        int low = (int)((unsigned)weight & ((1u << RESIZE_LOW_BITS) - 1));
        taps->low[i] = (int16_t)low;
        taps->high[i] = (int16_t)((weight - low) / (1 << RESIZE_LOW_BITS));
    }
}

enum status resize_taps_make(struct resize_taps *taps, int from, int to, struct resize_way way,
                             struct error *e) {
    enum { PILLOW_BITS = 22 };
    const struct resize_kernel *kernel = &kernels[way.filter];
    double scale = (double)from / to;
    int reach = (int)ceil(kernel->support * (scale < 1.0 ? 1.0 : scale));
    size_t stride = (2 * (size_t)reach + 1 + RESIZE_TAPS) / RESIZE_TAPS * RESIZE_TAPS,
           n = stride * (size_t)to;
    double *weights = calloc(n, sizeof *weights);
    *taps = (struct resize_taps){.stride = (int)stride,
                                 .first = malloc((size_t)to * sizeof *taps->first),
                                 .count = malloc((size_t)to * sizeof *taps->count),
                                 .low = malloc(n * sizeof *taps->low),
                                 .high = malloc(n * sizeof *taps->high)};
    bool taken = weights && taps->first && taps->count && taps->low && taps->high;

    if (taken) {
        for (int i = 0; i < to; i++)
            taps_weigh(taps, weights + (size_t)i * stride, i, scale, kernel, from);
        taps->bits = way.library == RESIZE_AS_PILLOW ? PILLOW_BITS : taps_torch_bits(weights, n);
        taps_round(taps, weights, n);
    } else {
        resize_taps_free(taps);
    }
    free(weights);
    return taken ? STATUS_OK
                 : error_set(e, STATUS_NO_MEMORY, "no memory to resize %d pixels to %d", from, to);
}

void resize_taps_free(struct resize_taps *taps) {
    free(taps->first);
    free(taps->count);
    free(taps->low);
    free(taps->high);
    *taps = (struct resize_taps){0};
}
