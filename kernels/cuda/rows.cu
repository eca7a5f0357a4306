/* kernels/cuda/rows.cu: ops that move or combine whole rows: embed, gather, scatter, residual sum, gated unit, rotary
 * positions, means. All are bound by the bytes they read and write; a thread handles V neighbouring columns, 16 bytes
 * of f32, where the shapes allow it. */
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

void cuda_add(struct backend *b, const struct add_args *a) {
    struct add_kernel_args k = {a->y, a->a, a->b, a->bias, NULL, a->scale > 0 ? a->scale : 1};
    if (a->row_scale) k.row_scale = array_stage(b, a->row_scale, (size_t)a->y.rows);
    if (view_divides(&a->y, 4) && view_divides(&a->a, 4) && view_divides(&a->b, 4))
        kernel_launch(b, add_rows_kernel<4>, row_grid(a->y.rows, a->y.cols, 4), row_threads(a->y.cols, 4), 0, k);
    else
        kernel_launch(b, add_rows_kernel<1>, row_grid(a->y.rows, a->y.cols, 1), row_threads(a->y.cols, 1), 0, k);
}

/* Whether no byte from the first to the last element of x is one of y. */
static bool views_disjoint(const view &x, const view &y) {
    const char *starts[2], *ends[2];
    const view *both[] = {&x, &y};
    for (int i = 0; i < 2; i++) {
        starts[i] = (const char *)both[i]->data;
        ends[i] = starts[i] + ((both[i]->rows - 1) * both[i]->stride + both[i]->cols) * dtype_bytes(both[i]->dtype);
    }
    return ends[0] <= starts[1] || ends[1] <= starts[0];
}

/* Whether an element of y and one of x at another place of a row never are the same memory. */
static bool apart(const view &x, const view &y) {
    return (x.data == y.data && x.stride == y.stride) || views_disjoint(x, y);
}

bool add_take_back(struct backend *b, const struct tensor *x, const struct tensor *y, struct add_kernel_args *out) {
    const launch_command<add_kernel_args> *latest =
        (const launch_command<add_kernel_args> *)work_latest(b, launch_run<add_kernel_args>);
    if (latest == NULL || latest->kernel != add_rows_kernel<4>) return false;
    const struct add_kernel_args &k = latest->arguments;
    if (k.y.data != x->data || k.y.stride != x->stride || k.y.rows != x->rows || k.y.cols != x->cols) return false;
    if (!apart(k.a, *y) || !apart(k.b, *y)) return false;
    *out = k;
    work_take_back(b);
    return true;
}

/* y = activation(x[:, :F]) x[:, F:] */

struct glu_kernel_args {
    view y, x;
    enum activation activation;
    int unused = 0;
};

/* grid (rows, pieces of F), block 32 .. 256. Bound by bytes: reads 2F, writes F. */
template <int V>
__global__ void glu_rows_kernel(struct glu_kernel_args k) {
    int row = (int)blockIdx.x, col = first_column<V>();
    if (col >= k.y.cols) return;
    lanes<V> gate = lanes_load<V>(k.x.data, DTYPE_F32, row * k.x.stride + col);
    lanes<V> up = lanes_load<V>(k.x.data, DTYPE_F32, row * k.x.stride + k.y.cols + col);
    for (int j = 0; j < V; j++) gate.at[j] = value_activate(gate.at[j], k.activation) * up.at[j];
    lanes_store<V>(k.y.data, DTYPE_F32, row * k.y.stride + col, gate);
}

void cuda_glu(struct backend *b, const struct glu_args *a) {
    struct glu_kernel_args k = {a->y, a->x, a->activation};
    if (view_divides(&a->y, 4) && view_divides(&a->x, 4))
        kernel_launch(b, glu_rows_kernel<4>, row_grid(a->y.rows, a->y.cols, 4), row_threads(a->y.cols, 4), 0, k);
    else
        kernel_launch(b, glu_rows_kernel<1>, row_grid(a->y.rows, a->y.cols, 1), row_threads(a->y.cols, 1), 0, k);
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

void cuda_softcap(struct backend *b, const struct softcap_args *a) {
    struct softcap_kernel_args k = {a->x, a->cap};
    int v = view_divides(&a->x, 4) ? 4 : 1;
    kernel_launch(b, v == 4 ? softcap_rows_kernel<4> : softcap_rows_kernel<1>, row_grid(a->x.rows, a->x.cols, v),
                  row_threads(a->x.cols, v), 0, k);
}

/* Token, position and type embeddings */

struct embed_kernel_args {
    view y, word, position, type; /* position and type: data NULL for none */
    struct blocks blocks;         /* the word table when it is quantised; values NULL: it is not */
    const int32_t *ids, *positions;
    float scale; /* of the word */
    int unused = 0;
};

/* grid (rows, pieces of columns), block 32 .. 256. Bound by bytes: reads up to three rows, writes one. */
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
        lanes<V> p = lanes_load<V>(k.position.data, DTYPE_F32, k.positions[row] * k.position.stride + col);
        for (int j = 0; j < V; j++) sum.at[j] += p.at[j];
    }
    if (k.type.data != NULL) {
        lanes<V> t = lanes_load<V>(k.type.data, DTYPE_F32, col);
        for (int j = 0; j < V; j++) sum.at[j] += t.at[j];
    }
    lanes_store<V>(k.y.data, DTYPE_F32, row * k.y.stride + col, sum);
}

void cuda_embed(struct backend *b, const struct embed_args *a) {
    struct embed_kernel_args k = {};
    k.y = a->y;
    k.scale = a->scale > 0 ? a->scale : 1;
    bool quantised = in_blocks(a->word->dtype);
    if (quantised)
        k.blocks = blocks_of(a->word);
    else
        k.word = tensor_make(a->word->data, a->word->dtype, a->word->n_out, a->word->n_in);
    k.ids = array_stage(b, a->ids, (size_t)a->y.rows);
    if (a->position != NULL) {
        k.position = *a->position;
        k.positions = array_stage(b, a->positions, (size_t)a->y.rows);
    }
    if (a->type != NULL) k.type = *a->type;
    bool vector = view_divides(&k.y, 4) && (quantised || view_divides(&k.word, 4)) &&
                  (a->position == NULL || view_divides(a->position, 4)) &&
                  (a->type == NULL || view_divides(a->type, 4));
    if (vector)
        kernel_launch(b, embed_sum_kernel<4>, row_grid(a->y.rows, a->y.cols, 4), row_threads(a->y.cols, 4), 0, k);
    else
        kernel_launch(b, embed_sum_kernel<1>, row_grid(a->y.rows, a->y.cols, 1), row_threads(a->y.cols, 1), 0, k);
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

void cuda_gather_rows(struct backend *b, const struct gather_rows_args *a) {
    struct move_kernel_args k = {a->y, a->x, array_stage(b, a->rows, (size_t)a->y.rows), a->y.rows, false};
    if (view_divides(&a->y, 4) && view_divides(&a->x, 4))
        kernel_launch(b, gather_rows_kernel<4>, row_grid(a->y.rows, a->y.cols, 4), row_threads(a->y.cols, 4), 0, k);
    else
        kernel_launch(b, gather_rows_kernel<1>, row_grid(a->y.rows, a->y.cols, 1), row_threads(a->y.cols, 1), 0, k);
}

/* Keys and values go to the same rows of two caches. */
struct scatter_kernel_args {
    struct move_kernel_args moves[2];
};

/* grid (rows of x, pieces of columns, moves), block 32 .. 256, shared one int per warp. Bound by bytes. When two rows
 * name one place the later wins, as if they were written in order: a row that a later one overwrites is not written at
 * all. */
template <int V>
__global__ void scatter_rows_kernel(struct scatter_kernel_args both) {
    DYNAMIC_SHARED(shared);
    const struct move_kernel_args &k = both.moves[blockIdx.z];
    int row = (int)blockIdx.x, col = first_column<V>(), to = k.rows[row], overwritten = 0;
    if (k.may_repeat) {
        for (int later = row + 1 + (int)threadIdx.x; later < k.n; later += (int)blockDim.x)
            overwritten += k.rows[later] == to;
        overwritten = block_sum(overwritten, (int *)shared);
    }
    if (col >= k.y.cols || to < 0 || overwritten) return;
    lanes_store<V>(k.y.data, k.y.dtype, to * k.y.stride + col,
                   lanes_load<V>(k.x.data, k.x.dtype, row * k.x.stride + col));
}

static int compare_rows(const void *x, const void *y) {
    int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return (a > b) - (a < b);
}

/* Whether an index that counts occurs twice; if not, the kernel need not look. The order of the indices makes no
 * difference, so it does not make lists of work differ. Layers ask again for the array that `staged` is the copy of. */
static bool rows_repeat(struct cuda *cuda, const void *staged, const int32_t *rows, int n) {
    struct ring *r = &cuda->ring;
    if (r->scattered == staged) return r->repeats;
    int32_t *sorted = (int32_t *)host_list_reserve(&cuda->sorted, (size_t)n * sizeof *rows);
    memcpy(sorted, rows, (size_t)n * sizeof *rows);
    bool rising = true;
    for (int i = 1; i < n && rising; i++) rising = rows[i - 1] <= rows[i];
    if (!rising) qsort(sorted, (size_t)n, sizeof *sorted, compare_rows);
    r->scattered = staged;
    r->repeats = false;
    for (int i = 1; i < n; i++) r->repeats = r->repeats || (sorted[i] >= 0 && sorted[i] == sorted[i - 1]);
    return r->repeats;
}

/* Whether two moves can be made at once: the same rows, as many columns, and neither writes what the other touches. */
static bool moves_beside(const struct move_kernel_args &k, const struct move_kernel_args &l) {
    return k.rows == l.rows && k.n == l.n && k.x.cols == l.x.cols && views_disjoint(k.y, l.y) &&
           views_disjoint(k.y, l.x) && views_disjoint(k.x, l.y);
}

void cuda_scatter_rows(struct backend *b, const struct scatter_rows_args *a) {
    struct move_kernel_args k = {a->y, a->x, array_stage(b, a->rows, (size_t)a->x.rows), a->x.rows, false};
    if (k.rows == NULL) return; /* none, or a failure */
    k.may_repeat = rows_repeat(cuda_of(b), k.rows, a->rows, a->x.rows);
    int v = view_divides(&a->y, 4) && view_divides(&a->x, 4) ? 4 : 1;
    auto kernel = v == 4 ? scatter_rows_kernel<4> : scatter_rows_kernel<1>;
    struct scatter_kernel_args both = {{k, {}}};
    dim3 grid = row_grid(a->x.rows, a->x.cols, v);
    const launch_command<scatter_kernel_args> *latest =
        (const launch_command<scatter_kernel_args> *)work_latest(b, launch_run<scatter_kernel_args>);
    if (latest && latest->kernel == kernel && latest->grid[2] == 1 && moves_beside(latest->arguments.moves[0], k)) {
        both = {{latest->arguments.moves[0], k}};
        grid.z = 2;
        work_take_back(b);
    }
    kernel_launch(b, kernel, grid, row_threads(a->x.cols, v), ROW_THREADS / WARP * sizeof(int), both);
}

/* Rotary positions */

struct rope_kernel_args {
    view x;
    const int32_t *positions;
    const float *inv_freq;
    const uint8_t *section_of;
    int heads, head_dim, half;
    int interleaved;
    float scale;
    int sections;
};

/* grid rows, block 256; thread (pair p, head group) walks the heads of its pair, so sine and cosine are taken once per
 * group of heads. Bound by bytes: reads and writes the rotated part of x. The angle is the f32 product as in training,
 * its sine and cosine are taken in double: nothing but the angle's own rounding is left. */
__global__ void rope_pairs_kernel(struct rope_kernel_args k) {
    float *x = (float *)k.x.data + blockIdx.x * k.x.stride;
    const int32_t *positions = k.positions + (int64_t)blockIdx.x * k.sections;
    int width = k.half < ROW_THREADS ? k.half : ROW_THREADS, groups = ROW_THREADS / width;
    int group = (int)threadIdx.x / width;
    if (group >= groups || group >= k.heads) return;
    for (int p = (int)threadIdx.x % width; p < k.half; p += width) {
        float position = (float)positions[k.section_of ? k.section_of[p] : 0];
        double angle = (double)__fmul_rn(position, k.inv_freq[p]);
        double sine, cosine;
        sincos(angle, &sine, &cosine);
        float c = (float)(k.scale * cosine), s = (float)(k.scale * sine);
        int first = k.interleaved ? 2 * p : p, second = k.interleaved ? 2 * p + 1 : p + k.half;
        for (int head = group; head < k.heads; head += groups) {
            float *at = x + (int64_t)head * k.head_dim, u = at[first], v = at[second];
            at[first] = u * c - v * s;
            at[second] = v * c + u * s;
        }
    }
}

void cuda_rope(struct backend *b, const struct rope_args *a) {
    int half = a->rotated / 2, sections = a->sections > 0 ? a->sections : 1;
    if (half == 0) return;
    struct rope_kernel_args k = {a->x,
                                 array_stage(b, a->positions, (size_t)a->x.rows * (size_t)sections),
                                 array_stage(b, a->inv_freq, (size_t)half),
                                 a->section_of ? array_stage(b, a->section_of, (size_t)half) : NULL,
                                 a->heads,
                                 a->head_dim,
                                 half,
                                 a->interleaved,
                                 a->scale > 0 ? a->scale : 1,
                                 sections};
    kernel_launch(b, rope_pairs_kernel, dim3((unsigned)a->x.rows), ROW_THREADS, 0, k);
}

/* Means of runs of rows */

struct mean_kernel_args {
    view y, x;
    const int32_t *starts;
    int normalize;
    int unused = 0;
};

/* grid rows of y, block 32 .. 256, shared one double per warp. Bound by bytes: reads the run once, columns side by
 * side. Sums are in double, as on the CPU: there are few rows and the result is compared across devices. An empty run
 * gives 0. */
__global__ void mean_columns_kernel(struct mean_kernel_args k) {
    DYNAMIC_SHARED(shared);
    float *y = (float *)k.y.data + blockIdx.x * k.y.stride;
    int first = k.starts[blockIdx.x], end = k.starts[blockIdx.x + 1];
    double squares = 0;
    for (int col = (int)threadIdx.x; col < k.y.cols; col += (int)blockDim.x) {
        double sum = 0;
        for (int i = first; i < end; i++) sum += (double)((const float *)k.x.data)[i * k.x.stride + col];
        double mean = end > first ? sum / (end - first) : 0;
        y[col] = (float)mean;
        squares += mean * mean;
    }
    squares = block_sum(squares, (double *)shared);
    if (!k.normalize || squares == 0) return;
    double scale = 1 / sqrt(squares);
    for (int col = (int)threadIdx.x; col < k.y.cols; col += (int)blockDim.x) y[col] = (float)((double)y[col] * scale);
}

void cuda_mean_rows(struct backend *b, const struct mean_rows_args *a) {
    struct mean_kernel_args k = {a->y, a->x, array_stage(b, a->starts, (size_t)a->y.rows + 1), a->normalize};
    kernel_launch(b, mean_columns_kernel, dim3((unsigned)a->y.rows), row_threads(a->y.cols, 1),
                  ROW_THREADS / WARP * sizeof(double), k);
}
