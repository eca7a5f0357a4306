/* kernels/cuda/experts.cu: mixtures of experts: the choice of each row's experts, the rows sorted
 * by expert, and what the experts made of a row summed up. The products are in blocks.cu and
 * experts_tile.cu. */
#include "kernels/cuda/experts.cuh"

#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/linear.cuh"

/* NaN ranks last. */
__device__ static float rank_of(float logit) { return logit == logit ? logit : -INFINITY; }

struct route_kernel_args {
    view y, logits;
    const float *bias, *factors; /* NULL: none */
    float scale;                 /* 0: none */
    int sigmoid, renormalise, groups, groups_used, group_best;
    float epsilon;
    int unused = 0;
};

/* The largest key that comes after `last` in the order of choice, the same in every lane; last
 * -1: the first. n: there is none. */
__device__ static int choose_next(const float *keys, int n, int last) {
    float before = last < 0 ? INFINITY : rank_of(keys[last]), largest = -INFINITY;
    int best = n;
    for (int i = (int)threadIdx.x; i < n; i += WARP) {
        float x = rank_of(keys[i]);
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

/* The scores of a row are exp(logit - largest) / sum, or sigmoid(logit). */
struct kernel_scores {
    const float *logits;
    int sigmoid;
    double largest, sum;
};

__device__ static kernel_scores make_scores(const route_kernel_args &args, const float *logits) {
    kernel_scores scores = {logits, args.sigmoid, 0, 0};
    int n = args.logits.cols;
    if (args.sigmoid) return scores;
    scores.largest = logits[choose_next(logits, n, -1)];
    for (int i = (int)threadIdx.x; i < n; i += WARP)
        scores.sum += exp((double)logits[i] - scores.largest);
    scores.sum = warp_sum(scores.sum);
    return scores;
}

__device__ static double score_of(const kernel_scores &scores, int expert) {
    double logit = scores.logits[expert];
    return scores.sigmoid ? 1 / (1 + exp(-logit)) : exp(logit - scores.largest) / scores.sum;
}

/* Experts of groups that are not chosen from get the key -infinity. sums: [groups], shared. */
__device__ static void drop_groups(const route_kernel_args &args, float *keys, float *sums) {
    int size = args.logits.cols / args.groups, group = -1;
    for (int i = 0; i < args.groups; i++) {
        const float *own = keys + i * size;
        int first = choose_next(own, size, -1),
            second = args.group_best == 1 ? size : choose_next(own, size, first);
        if (threadIdx.x == 0)
            sums[i] = rank_of(own[first]) + (second == size ? 0 : rank_of(own[second]));
    }
    __syncwarp();
    for (int i = 0; i < args.groups_used; i++) group = choose_next(sums, args.groups, group);
    float least = sums[group];
    for (int i = (int)threadIdx.x; i < args.logits.cols; i += WARP) {
        float sum = sums[i / size];
        bool kept = sum > least || (sum == least && i / size <= group);
        if (!kept) keys[i] = -INFINITY;
    }
    __syncwarp();
}

/* The numbers that experts are chosen by: logits have the order of scores. room: [experts +
 * groups], shared. */
__device__ static const float *make_keys(const route_kernel_args &args, const kernel_scores &scores,
                                         float *room) {
    int n = args.logits.cols;
    if (args.bias == NULL && args.groups <= 1) return scores.logits;
    for (int i = (int)threadIdx.x; i < n; i += WARP)
        room[i] = (float)score_of(scores, i) + (args.bias ? args.bias[i] : 0);
    __syncwarp();
    if (args.groups > 1) drop_groups(args, room, room + n);
    return room;
}

/* grid rows, block 32, shared a number an expert and a group. Bound by bytes: reads the logits of a
 * row k + 2 times. Sums are in double, as on the CPU. */
__global__ void route_rows_kernel(struct route_kernel_args args) {
    DYNAMIC_SHARED(shared);
    const float *logits = (const float *)args.logits.data + blockIdx.x * args.logits.stride;
    float *y = (float *)args.y.data + blockIdx.x * args.y.stride;
    kernel_scores scores = make_scores(args, logits);
    const float *keys = make_keys(args, scores, (float *)shared);
    int used = args.y.cols / 2, expert = -1;
    double kept = args.epsilon;
    for (int j = 0; j < used; j++) {
        expert = choose_next(keys, args.logits.cols, expert);
        double weight = score_of(scores, expert);
        kept += weight;
        if (threadIdx.x > 0) continue;
        y[j] = (float)weight;
        y[used + j] = (float)expert;
    }
    if (threadIdx.x > 0) return;
    for (int j = 0; j < used && args.renormalise; j++) y[j] = (float)((double)y[j] / kept);
    for (int j = 0; j < used && args.scale > 0; j++) y[j] *= args.scale;
    for (int j = 0; j < used && args.factors; j++) y[j] *= args.factors[(int)y[used + j]];
}

void cuda_route(struct backend *backend, const struct route_args *args) {
    struct route_kernel_args route_kernel_args = {
        args->y,           args->logits,     args->bias,        args->factors,
        args->scale,       args->sigmoid,    args->renormalise, args->groups,
        args->groups_used, args->group_best, args->epsilon};
    size_t shared = (size_t)(args->logits.cols + args->groups) * sizeof(float);
    kernel_launch(backend, route_rows_kernel, dim3((unsigned)args->y.rows), WARP, shared,
                  route_kernel_args);
}

/* The place that a row gave an expert is a use of it: use row k + j is place j of a row. Sorted by
 * expert, and within one in ascending order, uses are the rows of the products. */
struct sort_kernel_args {
    view routes;
    int32_t *starts; /* [experts + 1]: the first sorted use of each expert */
    int32_t *order;  /* [uses]: the use at each place of the sorted ones */
    int32_t *places; /* [uses]: the place of each use */
};

enum { SORT_THREADS = 256 };

__device__ static int expert_at(const view &routes, int use) {
    int used = routes.cols / 2;
    return (int)((const float *)routes.data)[use / used * routes.stride + used + use % used];
}

/* grid experts, block 256, shared a number a warp. Each block reads all routes twice, which the
 * cache holds: once to count the uses of lower experts, once to write its own. */
__global__ void experts_sort_kernel(struct sort_kernel_args args) {
    DYNAMIC_SHARED(memory);
    int *counts = (int *)(void *)memory;
    int uses = args.routes.rows * (args.routes.cols / 2), expert = (int)blockIdx.x, below = 0;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    for (int use = (int)threadIdx.x; use < uses; use += SORT_THREADS)
        below += expert_at(args.routes, use) < expert;
    int at = block_sum(below, counts);
    if (threadIdx.x == 0) {
        args.starts[expert] = at;
        if (expert == (int)gridDim.x - 1) args.starts[expert + 1] = uses;
    }
    for (int first = 0; first < uses; first += SORT_THREADS) {
        int use = first + (int)threadIdx.x;
        bool mine = use < uses && expert_at(args.routes, use) == expert;
        int before = 0, all = 0;
        unsigned lanes = __ballot_sync(ALL_LANES, mine);
        if (lane == 0) counts[warp] = __popc(lanes);
        __syncthreads();
        for (int i = 0; i < SORT_THREADS / WARP; i++) {
            before += i < warp ? counts[i] : 0;
            all += counts[i];
        }
        __syncthreads();
        int place = at + before + __popc(lanes & ((1u << lane) - 1));
        if (mine) {
            args.order[place] = use;
            args.places[use] = place;
        }
        at += all;
    }
}

struct cut_kernel_args {
    const int32_t *starts;
    int32_t *tiles;
    int experts, tile;
};

/* One block of 256: the number of tiles before each expert's. */
__global__ void experts_cut_kernel(struct cut_kernel_args args) {
    for (int expert = (int)threadIdx.x; expert <= args.experts; expert += SORT_THREADS) {
        int n = 0;
        for (int i = 0; i < expert; i++)
            n += (args.starts[i + 1] - args.starts[i] + args.tile - 1) / args.tile;
        args.tiles[expert] = n;
    }
}

int experts_cut(struct backend *backend, const struct expert_product *product, int tile) {
    struct cut_kernel_args args = {product->rows.starts, product->tiles, product->rows.experts,
                                   tile};
    kernel_launch(backend, experts_cut_kernel, dim3(1), SORT_THREADS, 0, args);
    return product->x.rows / tile +
           (product->x.rows < product->rows.experts ? product->x.rows : product->rows.experts);
}

struct rows_kernel_args {
    view y, x;
    const int32_t *order; /* NULL: row i of y is row i of x; else use order[i] of x's rows */
    int used, unused;
};

/* grid (rows, pieces of y's columns), block 32 .. 256. Bound by bytes: reads f32, writes y's type;
 * zeros where y is wider than x. */
__global__ void experts_rows_kernel(struct rows_kernel_args args) {
    int row = (int)blockIdx.x, col = first_column<1>();
    if (col >= args.y.cols) return;
    int from = args.order ? args.order[row] / args.used : row;
    lanes<1> v = {
        {col < args.x.cols ? ((const float *)args.x.data)[from * args.x.stride + col] : 0}};
    lanes_store<1>(args.y.data, args.y.dtype, row * args.y.stride + col, v);
}

static void copy_rows(struct backend *backend, const struct rows_kernel_args &args) {
    kernel_launch(backend, experts_rows_kernel, row_grid(args.y.rows, args.y.cols, 1),
                  row_threads(args.y.cols, 1), 0, args);
}

struct tensor experts_inputs(struct backend *backend, const struct tensor &x, enum dtype dtype,
                             int multiple) {
    int cols = (x.cols + multiple - 1) / multiple * multiple;
    size_t bytes = (size_t)x.rows * (size_t)cols * dtype_bytes(dtype);
    struct tensor y = tensor_make(workspace_reserve(backend, &cuda_of(backend)->inputs, bytes),
                                  dtype, x.rows, cols);
    struct rows_kernel_args args = {y, x, NULL, 1, 0};
    copy_rows(backend, args);
    return y;
}

struct combine_kernel_args {
    view y, parts, routes, shared, gate; /* parts: sorted uses; shared: data NULL for none */
    const int32_t *places;
};

/* grid (rows, pieces of d), block 32 .. 256. Bound by bytes: reads k parts, writes one row. */
__global__ void combine_experts_kernel(struct combine_kernel_args args) {
    int row = (int)blockIdx.x, col = first_column<1>(), used = args.routes.cols / 2;
    if (col >= args.y.cols) return;
    const float *weights = (const float *)args.routes.data + row * args.routes.stride;
    const int32_t *places = args.places + row * used;
    float sum = 0;
    for (int j = 0; j < used; j++)
        sum += weights[j] * ((const float *)args.parts.data)[places[j] * args.parts.stride + col];
    if (args.shared.data != NULL) {
        float shared = ((const float *)args.shared.data)[row * args.shared.stride + col];
        bool gated = args.gate.data != NULL;
        float gate = gated ? ((const float *)args.gate.data)[row * args.gate.stride] : 0;
        sum += gated ? shared / (1.0f + expf(-gate)) : shared;
    }
    ((float *)args.y.data)[row * args.y.stride + col] = sum;
}

struct expert_weights experts_weights(struct backend *backend, const struct expert_product *product,
                                      int first) {
    struct host_list *list = &cuda_of(backend)->expert_weights;
    size_t n = (size_t)product->rows.experts;
    const void **data = (const void **)host_list_reserve(list, n * sizeof *data);
    for (size_t i = 0; i < n; i++)
        data[i] = product->weights[i].dtype == product->weights[first].dtype
                      ? product->weights[i].data
                      : NULL;
    return {array_stage(backend, data, n), &product->weights[first]};
}

static void multiply_type(struct backend *backend, const struct expert_product *product,
                          int first) {
    struct expert_weights weights = experts_weights(backend, product, first);
    enum dtype type = weights.first->dtype;
    if (!in_blocks(type) && (!two_bytes(type) || weights.first->n_in % QUAD != 0))
        experts_multiply_plain(backend, product, &weights);
    else if (product->most <= CUDA_FEW_ROWS)
        experts_multiply_few(backend, product, &weights);
    else
        experts_multiply_many(backend, product, &weights);
}

/* Once for every type that an expert's weights have; mostly there is one. */
static void multiply_experts(struct backend *backend, const struct expert_product *product) {
    for (int i = 0; i < product->rows.experts; i++) {
        bool seen = false;
        for (int j = 0; j < i; j++)
            seen = seen || product->weights[j].dtype == product->weights[i].dtype;
        if (!seen) multiply_type(backend, product, i);
    }
}

struct biases_kernel_args {
    view y;
    const int32_t *starts;
    const void *const *biases; /* [experts]: [y.cols] f32 */
    int experts, unused;
};

/* grid (sorted rows, pieces of columns), block 32 .. 256. Bound by bytes: reads and writes y. */
__global__ void experts_biases_kernel(struct biases_kernel_args args) {
    int row = (int)blockIdx.x, col = first_column<1>(), low = 0, high = args.experts;
    if (col >= args.y.cols) return;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (args.starts[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    ((float *)args.y.data)[row * args.y.stride + col] += ((const float *)args.biases[low])[col];
}

/* Each sorted row gets its expert's bias, where there are any. */
static void add_biases(struct backend *backend, const struct expert_product *product,
                       const struct tensor &y, float *const *biases) {
    if (biases == NULL) return;
    size_t n = (size_t)product->rows.experts;
    struct host_list *list = &cuda_of(backend)->expert_weights;
    const void **data = (const void **)host_list_reserve(list, n * sizeof *data);
    for (size_t i = 0; i < n; i++) data[i] = biases[i];
    struct biases_kernel_args args = {y, product->rows.starts, array_stage(backend, data, n),
                                      product->rows.experts, 0};
    kernel_launch(backend, experts_biases_kernel, row_grid(y.rows, y.cols, 1),
                  row_threads(y.cols, 1), 0, args);
}

/* Pieces of one workspace, for one mixture. */
struct expert_room {
    int32_t *starts, *tiles, *order, *places;
    struct tensor x, wide, gated, parts;
};

/* Rows from *at on, which goes behind them; without memory only that. */
static struct tensor take_rows(char *memory, size_t *at, int rows, int cols) {
    struct tensor t = tensor_make(memory ? memory + *at : NULL, DTYPE_F32, rows, cols);
    *at += ((size_t)rows * (size_t)cols * sizeof(float) + 255) / 256 * 256;
    return t;
}

static int32_t *take_numbers(char *memory, size_t *at, int n) {
    return (int32_t *)take_rows(memory, at, 1, n).data;
}

/* Returns the bytes that it takes. */
static size_t divide_room(struct expert_room *room, char *memory, const struct experts_args *args) {
    int uses = args->x.rows * (args->routes.cols / 2);
    size_t at = 0;
    room->starts = take_numbers(memory, &at, args->n_experts + 1);
    room->tiles = take_numbers(memory, &at, args->n_experts + 1);
    room->order = take_numbers(memory, &at, uses);
    room->places = take_numbers(memory, &at, uses);
    room->x = take_rows(memory, &at, uses, args->x.cols);
    room->wide = take_rows(memory, &at, uses, args->wide.cols);
    room->gated = take_rows(memory, &at, uses, args->gated.cols);
    room->parts = take_rows(memory, &at, uses, args->x.cols);
    return at;
}

void cuda_experts(struct backend *backend, const struct experts_args *args) {
    if (args->x.rows == 0) return;
    struct expert_room room;
    size_t bytes = divide_room(&room, NULL, args);
    divide_room(&room, (char *)workspace_reserve(backend, &cuda_of(backend)->experts, bytes), args);
    struct sort_kernel_args sort = {args->routes, room.starts, room.order, room.places};
    struct rows_kernel_args gather = {room.x, args->x, room.order, args->routes.cols / 2, 0};
    struct expert_rows rows = {room.starts, room.tiles, args->n_experts, 0};
    struct expert_product up = {args->fc1,   rows, room.tiles, room.x, (float *)room.wide.data,
                                args->x.rows};
    struct expert_product down = {
        args->fc2, rows, room.tiles, room.gated, (float *)room.parts.data, args->x.rows};
    struct glu_args glu = {room.gated, room.wide, args->gating};
    struct combine_kernel_args combine = {args->y,      room.parts, args->routes,
                                          args->shared, args->gate, room.places};

    kernel_launch(backend, experts_sort_kernel, dim3((unsigned)args->n_experts), SORT_THREADS,
                  WARP * sizeof(int), sort);
    copy_rows(backend, gather);
    multiply_experts(backend, &up);
    add_biases(backend, &up, room.wide, args->bias1);
    cuda_glu(backend, &glu);
    multiply_experts(backend, &down);
    add_biases(backend, &down, room.parts, args->bias2);
    kernel_launch(backend, combine_experts_kernel, row_grid(args->x.rows, args->x.cols, 1),
                  row_threads(args->x.cols, 1), 0, combine);
}
