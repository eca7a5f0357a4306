/* kernels/cuda/experts.cu: mixtures of experts. The list of work is written before the device knows the routes, so
 * every expert meets all rows and each row keeps the outputs of its own: right, and experts / k times the work. */
#include "kernels/cuda/common.cuh"

/* NaN ranks last. */
__device__ static float rank_of(float logit) { return logit == logit ? logit : -INFINITY; }

struct route_kernel_args {
    view y, logits;
    int renormalise;
    int unused = 0;
};

/* The largest logit that comes after `last` in the order of choice, the same in every lane; last -1: the first. */
__device__ static int choose_next(const float *logits, int n, int last) {
    float before = last < 0 ? INFINITY : rank_of(logits[last]), largest = -INFINITY;
    int best = n;
    for (int i = (int)threadIdx.x; i < n; i += WARP) {
        float x = rank_of(logits[i]);
        bool chosen = last >= 0 && (x > before || (x == before && i <= last));
        if (chosen || (best < n && x <= largest)) continue;
        best = i;
        largest = x;
    }
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        float x = __shfl_xor_sync(ALL_LANES, largest, offset);
        int i = __shfl_xor_sync(ALL_LANES, best, offset);
        if (i == n || (best < n && (x < largest || (x == largest && i > best)))) continue;
        best = i;
        largest = x;
    }
    return best;
}

/* grid rows, block 32. Bound by bytes: reads the logits of a row k + 2 times. Sums are in double, as on the CPU. */
__global__ void route_rows_kernel(struct route_kernel_args k) {
    const float *logits = (const float *)k.logits.data + blockIdx.x * k.logits.stride;
    float *y = (float *)k.y.data + blockIdx.x * k.y.stride;
    int n = k.logits.cols, used = k.y.cols / 2, first = choose_next(logits, n, -1), expert = -1;
    double sum = 0, kept = 0;
    for (int i = (int)threadIdx.x; i < n; i += WARP) sum += exp((double)logits[i] - (double)logits[first]);
    sum = warp_sum(sum);
    for (int j = 0; j < used; j++) {
        expert = choose_next(logits, n, expert);
        double weight = exp((double)logits[expert] - (double)logits[first]) / sum;
        kept += weight;
        if (threadIdx.x > 0) continue;
        y[j] = (float)weight;
        y[used + j] = (float)expert;
    }
    if (threadIdx.x > 0 || !k.renormalise) return;
    for (int j = 0; j < used; j++) y[j] = (float)((double)y[j] / kept);
}

void cuda_route(struct backend *b, const struct route_args *a) {
    struct route_kernel_args k = {a->y, a->logits, a->renormalise};
    kernel_launch(b, route_rows_kernel, dim3((unsigned)a->y.rows), WARP, 0, k);
}

struct keep_kernel_args {
    view parts, from, routes;
    int expert;
    int unused = 0;
};

/* grid (rows, pieces of d), block 32 .. 256. Bound by bytes: copies the rows that use the expert. */
__global__ void keep_expert_kernel(struct keep_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<1>(), used = k.routes.cols / 2;
    if (col >= k.from.cols) return;
    const float *numbers = (const float *)k.routes.data + row * k.routes.stride + used;
    for (int j = 0; j < used; j++)
        if ((int)numbers[j] == k.expert)
            ((float *)k.parts.data)[row * k.parts.stride + (int64_t)j * k.from.cols + col] =
                ((const float *)k.from.data)[row * k.from.stride + col];
}

struct combine_kernel_args {
    view y, parts, routes, shared, gate; /* shared: data NULL for none */
};

/* grid (rows, pieces of d), block 32 .. 256. Bound by bytes: reads k parts, writes one row. */
__global__ void combine_experts_kernel(struct combine_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<1>(), used = k.routes.cols / 2;
    if (col >= k.y.cols) return;
    const float *weights = (const float *)k.routes.data + row * k.routes.stride;
    const float *parts = (const float *)k.parts.data + row * k.parts.stride;
    float sum = 0;
    for (int j = 0; j < used; j++) sum += weights[j] * parts[(int64_t)j * k.y.cols + col];
    if (k.shared.data != NULL) {
        float gate = ((const float *)k.gate.data)[row * k.gate.stride];
        sum += ((const float *)k.shared.data)[row * k.shared.stride + col] / (1.0f + expf(-gate));
    }
    ((float *)k.y.data)[row * k.y.stride + col] = sum;
}

void cuda_experts(struct backend *b, const struct experts_args *a) {
    dim3 grid = row_grid(a->x.rows, a->x.cols, 1);
    int threads = row_threads(a->x.cols, 1);
    for (int expert = 0; expert < a->n_experts; expert++) {
        struct linear_args up = {}, down = {};
        struct glu_args glu = {a->gated, a->wide, a->activation};
        up.y = a->wide, up.x = a->x, up.weight = &a->fc1[expert];
        down.y = a->few, down.x = a->gated, down.weight = &a->fc2[expert];
        cuda_linear(b, &up);
        cuda_glu(b, &glu);
        cuda_linear(b, &down);
        struct keep_kernel_args keep = {a->parts, a->few, a->routes, expert};
        kernel_launch(b, keep_expert_kernel, grid, threads, 0, keep);
    }
    struct combine_kernel_args combine = {a->y, a->parts, a->routes, a->shared, a->gate};
    kernel_launch(b, combine_experts_kernel, grid, threads, 0, combine);
}
