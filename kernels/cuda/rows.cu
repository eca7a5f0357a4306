/* kernels/cuda/rows.cu: ops that move or combine whole rows: embed, gather, scatter, residual sum,
 * gated unit, rotary positions, means. All are bound by the bytes they read and write; a thread
 * handles V neighbouring columns, 16 bytes of f32, where the shapes allow it. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/rows.cuh"

enum { ROW_THREADS = 256 }; /* the most */

/* y = a + scale row_scale (b + bias) */

/* grid (rows, pieces of columns), block 32 .. 256. Bound by bytes: reads a and b, writes y. */
template <int V>
__global__ void add_rows_kernel(struct add_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<V>();
    if (col >= k.y.cols) return;
    lanes_store<V>(k.y.data, DTYPE_F32, row * k.y.stride + col, add_at<V>(k, row, col));
}

void cuda_add(struct backend *backend, const struct add_args *args) {
    struct add_kernel_args add_kernel_args = {
        args->y, args->a, args->b, args->bias, NULL, args->scale > 0 ? args->scale : 1};
    if (args->row_scale)
        add_kernel_args.row_scale = array_stage(backend, args->row_scale, (size_t)args->y.rows);
    if (view_divides(&args->y, 4) && view_divides(&args->a, 4) && view_divides(&args->b, 4))
        kernel_launch(backend, add_rows_kernel<4>, row_grid(args->y.rows, args->y.cols, 4),
                      row_threads(args->y.cols, 4), 0, add_kernel_args);
    else
        kernel_launch(backend, add_rows_kernel<1>, row_grid(args->y.rows, args->y.cols, 1),
                      row_threads(args->y.cols, 1), 0, add_kernel_args);
}

/* Whether no byte from the first to the last element of x is one of y. */
static bool views_disjoint(const view &x, const view &y) {
    const char *starts[2], *ends[2];
    const view *both[] = {&x, &y};
    for (int i = 0; i < 2; i++) {
        starts[i] = (const char *)both[i]->data;
        ends[i] = starts[i] + ((both[i]->rows - 1) * both[i]->stride + both[i]->cols) *
                                  dtype_bytes(both[i]->dtype);
    }
    return ends[0] <= starts[1] || ends[1] <= starts[0];
}

/* Whether an element of y and one of x at another place of a row never are the same memory. */
static bool apart(const view &x, const view &y) {
    return (x.data == y.data && x.stride == y.stride) || views_disjoint(x, y);
}

bool add_take_back(struct backend *backend, const struct tensor *x, const struct tensor *y,
                   struct add_kernel_args *out) {
    const launch_command<add_kernel_args> *latest =
        (const launch_command<add_kernel_args> *)work_latest(backend, launch_run<add_kernel_args>);
    if (latest == NULL || latest->kernel != add_rows_kernel<4>) return false;
    const struct add_kernel_args &args = latest->arguments;
    if (args.y.data != x->data || args.y.stride != x->stride || args.y.rows != x->rows ||
        args.y.cols != x->cols)
        return false;
    if (!apart(args.a, *y) || !apart(args.b, *y)) return false;
    *out = args;
    work_take_back(backend);
    return true;
}

/* y = gating(x[:, :F], x[:, F:]) */

struct glu_kernel_args {
    view y, x;
    struct gating gating;
};

/* NaN stays NaN. */
__device__ static float value_gate(const struct gating &gating, float gate, float up) {
    if (gating.limit > 0) {
        gate = gate > gating.limit ? gating.limit : gate;
        up = up < -gating.limit ? -gating.limit : up > gating.limit ? gating.limit : up;
    }
    return value_activate(gate, gating.activation) * (up + gating.shift);
}

/* grid (rows, pieces of F), block 32 .. 256. Bound by bytes: reads 2F, writes F. */
template <int V>
__global__ void glu_rows_kernel(struct glu_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<V>();
    if (col >= k.y.cols) return;
    lanes<V> gate = lanes_load<V>(k.x.data, DTYPE_F32, row * k.x.stride + col);
    if (k.gating.plain) {
        for (int j = 0; j < V; j++) gate.at[j] = value_activate(gate.at[j], k.gating.activation);
    } else {
        lanes<V> up = lanes_load<V>(k.x.data, DTYPE_F32, row * k.x.stride + k.y.cols + col);
        for (int j = 0; j < V; j++) gate.at[j] = value_gate(k.gating, gate.at[j], up.at[j]);
    }
    lanes_store<V>(k.y.data, DTYPE_F32, row * k.y.stride + col, gate);
}

void cuda_glu(struct backend *backend, const struct glu_args *args) {
    struct glu_kernel_args glu_kernel_args = {args->y, args->x, args->gating};
    if (view_divides(&args->y, 4) && view_divides(&args->x, 4))
        kernel_launch(backend, glu_rows_kernel<4>, row_grid(args->y.rows, args->y.cols, 4),
                      row_threads(args->y.cols, 4), 0, glu_kernel_args);
    else
        kernel_launch(backend, glu_rows_kernel<1>, row_grid(args->y.rows, args->y.cols, 1),
                      row_threads(args->y.cols, 1), 0, glu_kernel_args);
}

/* x = factor by x */

struct scale_kernel_args {
    view x;
    float factor;
    int unused = 0;
    const float *by; /* NULL: 1 */
};

/* grid (rows, pieces of columns), block 32 .. 256. Bound by bytes: reads and writes x. */
template <int V>
__global__ void scale_rows_kernel(struct scale_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<V>();
    if (col >= k.x.cols) return;
    float factor = k.by == NULL ? k.factor : k.factor * *k.by;
    lanes<V> x = lanes_load<V>(k.x.data, DTYPE_F32, row * k.x.stride + col);
    for (int j = 0; j < V; j++) x.at[j] *= factor;
    lanes_store<V>(k.x.data, DTYPE_F32, row * k.x.stride + col, x);
}

void cuda_scale(struct backend *backend, const struct scale_args *args) {
    struct scale_kernel_args scale_kernel_args = {args->x, args->factor, 0, args->by};
    int v = view_divides(&args->x, 4) ? 4 : 1;
    kernel_launch(backend, v == 4 ? scale_rows_kernel<4> : scale_rows_kernel<1>,
                  row_grid(args->x.rows, args->x.cols, v), row_threads(args->x.cols, v), 0,
                  scale_kernel_args);
}

/* y = xIELU(x) */

struct xielu_kernel_args {
    view y, x;
    const float *positive, *negative, *slope, *least;
};

__device__ static float softplus_of(float a) { return a > 20 ? a : log1pf(expf(a)); }

/* grid (rows, pieces of columns), block 32 .. 256. Bound by bytes: reads x, writes y. */
template <int V>
__global__ void xielu_rows_kernel(struct xielu_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<V>();
    if (col >= k.x.cols) return;
    float slope = *k.slope, least = *k.least, positive = softplus_of(*k.positive),
          negative = slope + softplus_of(*k.negative);
    lanes<V> x = lanes_load<V>(k.x.data, DTYPE_F32, row * k.x.stride + col);
    for (int j = 0; j < V; j++) {
        float v = x.at[j], below = negative * (expm1f(v < least ? v : least) - v);
        x.at[j] = (v > 0 ? positive * v * v : below) + slope * v;
    }
    lanes_store<V>(k.y.data, DTYPE_F32, row * k.y.stride + col, x);
}

void cuda_xielu(struct backend *backend, const struct xielu_args *args) {
    struct xielu_kernel_args xielu_kernel_args = {args->y,        args->x,     args->positive,
                                                  args->negative, args->slope, args->least};
    int v = view_divides(&args->x, 4) && view_divides(&args->y, 4) ? 4 : 1;
    kernel_launch(backend, v == 4 ? xielu_rows_kernel<4> : xielu_rows_kernel<1>,
                  row_grid(args->y.rows, args->y.cols, v), row_threads(args->y.cols, v), 0,
                  xielu_kernel_args);
}

/* y = x between two numbers */

struct clamp_kernel_args {
    view y, x;
    const float *least, *most;
};

/* grid (rows, pieces of columns), block 32 .. 256. Bound by bytes: reads x, writes y. Comparisons
 * that NaN fails, so it stays. */
template <int V>
__global__ void clamp_rows_kernel(struct clamp_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<V>();
    if (col >= k.x.cols) return;
    float least = *k.least, most = *k.most;
    lanes<V> x = lanes_load<V>(k.x.data, DTYPE_F32, row * k.x.stride + col);
    for (int j = 0; j < V; j++) {
        float value = x.at[j] < least ? least : x.at[j];
        x.at[j] = value > most ? most : value;
    }
    lanes_store<V>(k.y.data, DTYPE_F32, row * k.y.stride + col, x);
}

void cuda_clamp(struct backend *backend, const struct clamp_args *args) {
    struct clamp_kernel_args clamp_kernel_args = {args->y, args->x, args->least, args->most};
    int v = view_divides(&args->x, 4) && view_divides(&args->y, 4) ? 4 : 1;
    kernel_launch(backend, v == 4 ? clamp_rows_kernel<4> : clamp_rows_kernel<1>,
                  row_grid(args->x.rows, args->x.cols, v), row_threads(args->x.cols, v), 0,
                  clamp_kernel_args);
}

/* x = cap tanh(x / cap) */

struct softcap_kernel_args {
    view x;
    float cap;
    int unused = 0;
};

/* grid (rows, pieces of columns), block 32 .. 256. Bound by bytes: reads and writes x. */
template <int V>
__global__ void softcap_rows_kernel(struct softcap_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<V>();
    if (col >= k.x.cols) return;
    lanes<V> x = lanes_load<V>(k.x.data, DTYPE_F32, row * k.x.stride + col);
    for (int j = 0; j < V; j++) x.at[j] = k.cap * tanhf(x.at[j] / k.cap);
    lanes_store<V>(k.x.data, DTYPE_F32, row * k.x.stride + col, x);
}

void cuda_softcap(struct backend *backend, const struct softcap_args *args) {
    struct softcap_kernel_args softcap_kernel_args = {args->x, args->cap};
    int v = view_divides(&args->x, 4) ? 4 : 1;
    kernel_launch(backend, v == 4 ? softcap_rows_kernel<4> : softcap_rows_kernel<1>,
                  row_grid(args->x.rows, args->x.cols, v), row_threads(args->x.cols, v), 0,
                  softcap_kernel_args);
}

/* Token, position and type embeddings */

struct embed_kernel_args {
    view y, word, position, type; /* position and type: data NULL for none */
    struct blocks blocks;         /* the word table when it is quantised; values NULL: it is not */
    const int32_t *ids, *positions;
    float scale; /* of the word */
    int unused = 0;
};

/* grid (rows, pieces of columns), block 32 .. 256. Bound by bytes: reads up to three rows, writes
 * one. */
template <int V>
__global__ void embed_sum_kernel(struct embed_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<V>();
    if (col >= k.y.cols) return;
    lanes<V> sum;
    if (k.ids[row] < 0)
        for (int j = 0; j < V; j++) sum.at[j] = 0;
    else if (k.blocks.values != NULL)
        for (int j = 0; j < V; j++) sum.at[j] = value_dequantise(k.blocks, k.ids[row], col + j);
    else
        sum = lanes_load<V>(k.word.data, k.word.dtype, k.ids[row] * k.word.stride + col);
    for (int j = 0; j < V; j++) sum.at[j] *= k.scale;
    if (k.position.data != NULL) {
        lanes<V> p =
            lanes_load<V>(k.position.data, DTYPE_F32, k.positions[row] * k.position.stride + col);
        for (int j = 0; j < V; j++) sum.at[j] += p.at[j];
    }
    if (k.type.data != NULL) {
        lanes<V> t = lanes_load<V>(k.type.data, DTYPE_F32, col);
        for (int j = 0; j < V; j++) sum.at[j] += t.at[j];
    }
    lanes_store<V>(k.y.data, DTYPE_F32, row * k.y.stride + col, sum);
}

void cuda_embed(struct backend *backend, const struct embed_args *args) {
    struct embed_kernel_args embed_kernel_args = {};
    embed_kernel_args.y = args->y;
    embed_kernel_args.scale = args->scale > 0 ? args->scale : 1;
    bool quantised = in_blocks(args->word->dtype);
    if (quantised)
        embed_kernel_args.blocks = blocks_of(args->word);
    else
        embed_kernel_args.word =
            tensor_make(args->word->data, args->word->dtype, args->word->n_out, args->word->n_in);
    embed_kernel_args.ids = array_stage(backend, args->ids, (size_t)args->y.rows);
    if (args->position != NULL) {
        embed_kernel_args.position = *args->position;
        embed_kernel_args.positions = array_stage(backend, args->positions, (size_t)args->y.rows);
    }
    if (args->type != NULL) embed_kernel_args.type = *args->type;
    bool vector = view_divides(&embed_kernel_args.y, 4) &&
                  (quantised || view_divides(&embed_kernel_args.word, 4)) &&
                  (args->position == NULL || view_divides(args->position, 4)) &&
                  (args->type == NULL || view_divides(args->type, 4));
    if (vector)
        kernel_launch(backend, embed_sum_kernel<4>, row_grid(args->y.rows, args->y.cols, 4),
                      row_threads(args->y.cols, 4), 0, embed_kernel_args);
    else
        kernel_launch(backend, embed_sum_kernel<1>, row_grid(args->y.rows, args->y.cols, 1),
                      row_threads(args->y.cols, 1), 0, embed_kernel_args);
}

/* Gather and scatter */

struct move_kernel_args {
    view y, x;
    const int32_t *rows;
    int n;          /* how many indices */
    int may_repeat; /* scatter: an index may occur twice */
};

/* grid (rows of y, pieces of columns), block 32 .. 256. Bound by bytes. */
template <int V>
__global__ void gather_rows_kernel(struct move_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<V>(), from = k.rows[row];
    if (col >= k.y.cols) return;
    lanes<V> v = {};
    if (from >= 0) v = lanes_load<V>(k.x.data, k.x.dtype, from * k.x.stride + col);
    lanes_store<V>(k.y.data, k.y.dtype, row * k.y.stride + col, v);
}

void cuda_gather_rows(struct backend *backend, const struct gather_rows_args *args) {
    struct move_kernel_args move_kernel_args = {
        args->y, args->x, array_stage(backend, args->rows, (size_t)args->y.rows), args->y.rows,
        false};
    if (view_divides(&args->y, 4) && view_divides(&args->x, 4))
        kernel_launch(backend, gather_rows_kernel<4>, row_grid(args->y.rows, args->y.cols, 4),
                      row_threads(args->y.cols, 4), 0, move_kernel_args);
    else
        kernel_launch(backend, gather_rows_kernel<1>, row_grid(args->y.rows, args->y.cols, 1),
                      row_threads(args->y.cols, 1), 0, move_kernel_args);
}

/* Keys and values go to the same rows of two caches. */
struct scatter_kernel_args {
    struct move_kernel_args moves[2];
};

/* grid (rows of x, pieces of columns, moves), block 32 .. 256, shared one int per warp. Bound by
 * bytes. When two rows name one place the later wins, as if they were written in order: a row that
 * a later one overwrites is not written at all. */
template <int V>
__global__ void scatter_rows_kernel(struct scatter_kernel_args both) {
    DYNAMIC_SHARED(shared);
    const struct move_kernel_args &args = both.moves[blockIdx.z];
    int row = (int)blockIdx.x, col = first_column<V>(), to = args.rows[row], overwritten = 0;
    if (args.may_repeat) {
        for (int later = row + 1 + (int)threadIdx.x; later < args.n; later += (int)blockDim.x)
            overwritten += args.rows[later] == to;
        overwritten = block_sum(overwritten, (int *)shared);
    }
    if (col >= args.y.cols || to < 0 || overwritten) return;
    lanes_store<V>(args.y.data, args.y.dtype, to * args.y.stride + col,
                   lanes_load<V>(args.x.data, args.x.dtype, row * args.x.stride + col));
}

static int compare_rows(const void *x, const void *y) {
    int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return (a > b) - (a < b);
}

/* Whether an index that counts occurs twice; if not, the kernel need not look. The order of the
 * indices makes no difference, so it does not make lists of work differ. Layers ask again for the
 * array that `staged` is the copy of. */
static bool rows_repeat(struct cuda *cuda, const void *staged, const int32_t *rows, int n) {
    struct ring *ring = &cuda->ring;
    if (ring->scattered == staged) return ring->repeats;
    int32_t *sorted = (int32_t *)host_list_reserve(&cuda->sorted, (size_t)n * sizeof *rows);
    memcpy(sorted, rows, (size_t)n * sizeof *rows);
    bool rising = true;
    for (int i = 1; i < n && rising; i++) rising = rows[i - 1] <= rows[i];
    if (!rising) qsort(sorted, (size_t)n, sizeof *sorted, compare_rows);
    ring->scattered = staged;
    ring->repeats = false;
    for (int i = 1; i < n; i++)
        ring->repeats = ring->repeats || (sorted[i] >= 0 && sorted[i] == sorted[i - 1]);
    return ring->repeats;
}

/* Whether two moves can be made at once: the same rows, as many columns, and neither writes what
 * the other touches. */
static bool moves_beside(const struct move_kernel_args &args,
                         const struct move_kernel_args &move_kernel_args) {
    return args.rows == move_kernel_args.rows && args.n == move_kernel_args.n &&
           args.x.cols == move_kernel_args.x.cols && views_disjoint(args.y, move_kernel_args.y) &&
           views_disjoint(args.y, move_kernel_args.x) && views_disjoint(args.x, move_kernel_args.y);
}

void cuda_scatter_rows(struct backend *backend, const struct scatter_rows_args *args) {
    struct move_kernel_args move_kernel_args = {
        args->y, args->x, array_stage(backend, args->rows, (size_t)args->x.rows), args->x.rows,
        false};
    if (move_kernel_args.rows == NULL) return; /* none, or a failure */
    move_kernel_args.may_repeat =
        rows_repeat(cuda_of(backend), move_kernel_args.rows, args->rows, args->x.rows);
    int v = view_divides(&args->y, 4) && view_divides(&args->x, 4) ? 4 : 1;
    auto kernel = v == 4 ? scatter_rows_kernel<4> : scatter_rows_kernel<1>;
    struct scatter_kernel_args both = {{move_kernel_args, {}}};
    dim3 grid = row_grid(args->x.rows, args->x.cols, v);
    const launch_command<scatter_kernel_args> *latest =
        (const launch_command<scatter_kernel_args> *)work_latest(backend,
                                                                 launch_run<scatter_kernel_args>);
    if (latest && latest->kernel == kernel && latest->grid[2] == 1 &&
        moves_beside(latest->arguments.moves[0], move_kernel_args)) {
        both = {{latest->arguments.moves[0], move_kernel_args}};
        grid.z = 2;
        work_take_back(backend);
    }
    kernel_launch(backend, kernel, grid, row_threads(args->x.cols, v),
                  ROW_THREADS / WARP * sizeof(int), both);
}

/* Rotary positions */

struct rope_kernel_args {
    view x;
    const int32_t *positions;
    const float *inv_freq;
    const uint8_t *section_of;
    int heads, head_dim, first, half;
    int interleaved;
    float scale;
    int sections;
    float growth;
    int grows_after, grows_ahead;
};

/* grid rows, block 256; thread (pair p, head group) walks the heads of its pair, so sine and cosine
 * are taken once per group of heads. Bound by bytes: reads and writes the rotated part of x. The
 * angle is the f32 product as in training, its sine and cosine are taken in double: nothing but the
 * angle's own rounding is left. */
__global__ void rope_pairs_kernel(struct rope_kernel_args args) {
    float *x = (float *)args.x.data + blockIdx.x * args.x.stride + args.first;
    const int32_t *positions = args.positions + (int64_t)blockIdx.x * args.sections;
    int width = args.half < ROW_THREADS ? args.half : ROW_THREADS, groups = ROW_THREADS / width;
    int group = (int)threadIdx.x / width;
    double scale = args.scale;
    if (args.grows_after > 0)
        scale *= 1 + args.growth *
                         log((double)(1 + (positions[0] + args.grows_ahead) / args.grows_after));
    if (group >= groups || group >= args.heads) return;
    for (int p = (int)threadIdx.x % width; p < args.half; p += width) {
        float position = (float)positions[args.section_of ? args.section_of[p] : 0];
        double angle = (double)__fmul_rn(position, args.inv_freq[p]);
        double sine, cosine;
        sincos(angle, &sine, &cosine);
        float c = (float)(scale * cosine), s = (float)(scale * sine);
        int first = args.interleaved ? 2 * p : p,
            second = args.interleaved ? 2 * p + 1 : p + args.half;
        for (int head = group; head < args.heads; head += groups) {
            float *at = x + (int64_t)head * args.head_dim, u = at[first], v = at[second];
            at[first] = u * c - v * s;
            at[second] = v * c + u * s;
        }
    }
}

void cuda_rope(struct backend *backend, const struct rope_args *args) {
    int half = args->rotated / 2, sections = args->sections > 0 ? args->sections : 1;
    if (half == 0) return;
    struct rope_kernel_args rope_kernel_args = {
        args->x,
        array_stage(backend, args->positions, (size_t)args->x.rows * (size_t)sections),
        array_stage(backend, args->inv_freq, (size_t)half),
        args->section_of ? array_stage(backend, args->section_of, (size_t)half) : NULL,
        args->heads,
        args->head_dim,
        args->first,
        half,
        args->interleaved,
        args->scale > 0 ? args->scale : 1,
        sections,
        args->growth,
        args->grows_after,
        args->grows_ahead};
    kernel_launch(backend, rope_pairs_kernel, dim3((unsigned)args->x.rows), ROW_THREADS, 0,
                  rope_kernel_args);
}

/* Means of runs of rows */

struct mean_kernel_args {
    view y, x;
    const int32_t *starts;
    int normalize;
    int unused = 0;
};

/* grid rows of y, block 32 .. 256, shared one double per warp. Bound by bytes: reads the run once,
 * columns side by side. Sums are in double, as on the CPU: there are few rows and the result is
 * compared across devices. An empty run gives 0. */
__global__ void mean_columns_kernel(struct mean_kernel_args args) {
    DYNAMIC_SHARED(shared);
    float *y = (float *)args.y.data + blockIdx.x * args.y.stride;
    int first = args.starts[blockIdx.x], end = args.starts[blockIdx.x + 1];
    double squares = 0;
    for (int col = (int)threadIdx.x; col < args.y.cols; col += (int)blockDim.x) {
        double sum = 0;
        for (int i = first; i < end; i++)
            sum += (double)((const float *)args.x.data)[i * args.x.stride + col];
        double mean = end > first ? sum / (end - first) : 0;
        y[col] = (float)mean;
        squares += mean * mean;
    }
    squares = block_sum(squares, (double *)shared);
    if (!args.normalize || squares == 0) return;
    double scale = 1 / sqrt(squares);
    for (int col = (int)threadIdx.x; col < args.y.cols; col += (int)blockDim.x)
        y[col] = (float)((double)y[col] * scale);
}

void cuda_mean_rows(struct backend *backend, const struct mean_rows_args *args) {
    struct mean_kernel_args mean_kernel_args = {
        args->y, args->x, array_stage(backend, args->starts, (size_t)args->y.rows + 1),
        args->normalize};
    kernel_launch(backend, mean_columns_kernel, dim3((unsigned)args->y.rows),
                  row_threads(args->y.cols, 1), ROW_THREADS / WARP * sizeof(double),
                  mean_kernel_args);
}
