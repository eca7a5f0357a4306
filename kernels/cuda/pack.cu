/* kernels/cuda/pack.cu: weights onto the device, through pinned memory in two halves: the host
 * fills one while the device reads the other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/blocks.cuh"

enum { HALF_BYTES = LOADING_ELEMENTS * sizeof(float) };

static bool loading_open(struct backend *backend) {
    struct weight_loading *loading = &cuda_of(backend)->loading;
    if (loading->host) return true;
    for (int i = 0; i < 2; i++)
        if (!cuda_ok(backend, cudaEventCreateWithFlags(&loading->read[i], cudaEventDisableTiming),
                     "an event"))
            return false;
    return cuda_ok(backend, cudaMallocHost((void **)&loading->host, 2 * HALF_BYTES),
                   "pinned memory for loading");
}

void loading_close(struct weight_loading *loading) {
    for (int i = 0; i < 2; i++)
        if (loading->read[i]) cudaEventDestroy(loading->read[i]);
    cudaFreeHost(loading->host);
}

/* The half for the piece-th copy, once the device has read what was in it; NULL after a failure. */
static char *half_take(struct backend *backend, size_t piece) {
    struct weight_loading *loading = &cuda_of(backend)->loading;
    if (backend->error.status || !loading_open(backend)) return NULL;
    if (piece >= 2 && !cuda_ok(backend, cudaEventSynchronize(loading->read[piece % 2]), "loading"))
        return NULL;
    return loading->host + piece % 2 * HALF_BYTES;
}

/* From a half, which stays as it is until its event. */
static void half_copy(struct backend *backend, const void *device, const void *half, size_t bytes) {
    if (backend->error.status || bytes == 0) return;
    cuda_ok(backend,
            cudaMemcpyAsync((void *)(uintptr_t)device, half, bytes, cudaMemcpyHostToDevice,
                            cuda_of(backend)->stream),
            "loading");
}

static void half_give(struct backend *backend, size_t piece) {
    cuda_ok(backend,
            cudaEventRecord(cuda_of(backend)->loading.read[piece % 2], cuda_of(backend)->stream),
            "loading");
}

/* Rows go to the device as the host has them, [n_out, n_in]; only the dtype is converted. */
static void floats_load(struct backend *backend, const struct weight *weight,
                        const struct host_matrix *host) {
    size_t n = (size_t)weight->n_out * (size_t)weight->n_in, from = dtype_bytes(host->dtype),
           to = dtype_bytes(weight->dtype);
    for (size_t at = 0; at < n; at += LOADING_ELEMENTS) {
        size_t piece = at / LOADING_ELEMENTS;
        size_t left = n - at, most = LOADING_ELEMENTS, count = left < most ? left : most;
        char *half = half_take(backend, piece);
        if (half == NULL) return;
        dtype_convert(half, weight->dtype, (const char *)host->values + at * from, host->dtype,
                      count);
        half_copy(backend, (char *)weight->data + at * to, half, count * to);
        half_give(backend, piece);
    }
}

/* n blocks of the host as a line: quads change places. */
template <typename Q>
static void line_transpose(unsigned char *line, const unsigned char *from, int n, Q flip) {
    for (int block = 0; block < n; block++)
        for (int piece = 0; piece < LINE_PIECES; piece++) {
            Q quad;
            memcpy(&quad, from + (size_t)(block * LINE_PIECES + piece) * sizeof quad, sizeof quad);
            quad ^= flip;
            memcpy(line + piece * PIECE_BYTES + block * (int)sizeof quad, &quad, sizeof quad);
        }
}

/* To the nearest e4m3, ties to even, |v| <= 448, its largest. From 2^-6 on it has 3 bits of
 * mantissa; below, its last bit is 2^-9, which is the last bit of an f32 between 2^14 and 2^15. */
static unsigned char f32_to_e4m3(float v) {
    float size = fabsf(v), small = size + 0x1p14f;
    uint32_t bits, low;
    memcpy(&bits, &size, sizeof bits);
    memcpy(&low, &small, sizeof low);
    uint32_t normal = (bits + 0x7ffff + (bits >> 20 & 1)) >> 20;
    uint32_t code = size < 0x1p-6f ? low - (127u + 14) * (1u << 23) : normal - (127 - 7) * 8;
    return (unsigned char)(code | (v < 0 ? 0x80 : 0));
}

/* One row of fp8, made when its first line is asked for: the largest weight becomes 448. */
struct fp8_row {
    float *wide, *scales; /* [n_in], [n_out] */
    unsigned char *values;
    size_t next; /* of the rows */
    bool finite; /* all so far */
};

static void fp8_make(struct fp8_row *row, const struct blocks &blocks,
                     const struct host_matrix *host) {
    size_t n = (size_t)blocks.n_in, at = row->next * n * dtype_bytes(host->dtype);
    float largest = 0, sum = 0;
    dtype_convert(row->wide, DTYPE_F32, (const char *)host->values + at, host->dtype, n);
    for (size_t i = 0; i < n; i++) {
        largest = fmaxf(largest, fabsf(row->wide[i]));
        sum += 0 * row->wide[i]; /* NaN or infinity stays */
    }
    row->finite = row->finite && sum == 0;
    float inverse = largest > 0 ? 448 / largest : 0;
    if (!(row->finite && inverse <= 0x1p126f)) inverse = 0; /* so small that its inverse is none */
    row->scales[row->next] = inverse > 0 ? largest / 448 : 0;
    row->next++;
    for (size_t i = 0; i < n; i++)
        row->values[i] = f32_to_e4m3(fminf(fmaxf(row->wide[i] * inverse, -448), 448));
}

/* Line `at` of all rows, counted from the first; `line` and `scales` are zeros. */
static void line_make(unsigned char *line, uint16_t *scales, const struct blocks &blocks,
                      const struct host_matrix *host, struct fp8_row *fp8, size_t at) {
    size_t row_blocks = (size_t)blocks.n_in / QUANTISE_BLOCK,
           in_row = at % (size_t)blocks.lines * (size_t)line_blocks(blocks.dtype);
    size_t first = at / (size_t)blocks.lines * row_blocks + in_row, left = row_blocks - in_row;
    int n = left < (size_t)line_blocks(blocks.dtype) ? (int)left : line_blocks(blocks.dtype);
    const unsigned char *values = (const unsigned char *)host->values;
    if (blocks.dtype == DTYPE_FP8) {
        if (in_row == 0) fp8_make(fp8, blocks, host);
        line_transpose(line, fp8->values + in_row * QUANTISE_BLOCK, n, (uint32_t)0);
        return;
    }
    memcpy(scales, host->scales + first, (size_t)n * sizeof *scales);
    if (blocks.dtype == DTYPE_INT8) {
        line_transpose(line, values + first * QUANTISE_BLOCK, n, (uint32_t)0x80808080);
    } else {
        line_transpose(line, values + first * (QUANTISE_BLOCK / 2), n, (uint16_t)0);
        memcpy(scales + line_blocks(blocks.dtype), host->minimums + first,
               (size_t)n * sizeof *scales);
    }
}

/* As many lines at a time as fit into a half with their scales. */
static void blocks_load(struct backend *backend, const struct weight *weight,
                        const struct host_matrix *host) {
    struct blocks to = blocks_of(weight);
    size_t n = (size_t)to.n_out * (size_t)to.lines, beside = (size_t)line_scales(weight->dtype);
    size_t most = HALF_BYTES / (LINE_BYTES + beside * sizeof(uint16_t));
    struct fp8_row fp8 = {NULL, NULL, NULL, 0, true};
    if (weight->dtype == DTYPE_FP8) {
        fp8.wide = (float *)xmalloc((size_t)weight->n_in * (sizeof(float) + 1));
        fp8.values = (unsigned char *)(fp8.wide + weight->n_in);
        fp8.scales = (float *)xmalloc((size_t)weight->n_out * sizeof(float));
    }
    for (size_t at = 0; at < n; at += most) {
        size_t count = n - at < most ? n - at : most, piece = at / most;
        char *half = half_take(backend, piece);
        if (half == NULL) break;
        unsigned char *lines = (unsigned char *)half;
        uint16_t *scales = (uint16_t *)(void *)(half + count * LINE_BYTES);
        memset(half, 0, count * (LINE_BYTES + beside * sizeof *scales));
        for (size_t i = 0; i < count; i++)
            line_make(lines + i * LINE_BYTES, scales + i * beside, to, host, &fp8, at + i);
        half_copy(backend, to.values + at * LINE_BYTES, lines, count * LINE_BYTES);
        half_copy(backend, to.scales + at * beside, scales, count * beside * sizeof *scales);
        half_give(backend, piece);
    }
    if (!fp8.finite && backend->error.status == STATUS_OK)
        error_set(&backend->error, STATUS_INVALID,
                  "%s: a weight that is not finite has no fp8 form; use another dtype",
                  cuda_of(backend)->description);
    if (weight->dtype == DTYPE_FP8)
        backend_upload(backend, (void *)(uintptr_t)to.scales, fp8.scales,
                       (size_t)weight->n_out * sizeof(float));
    free(fp8.wide);
    free(fp8.scales);
}

static size_t packed_bytes(const struct weight *weight) {
    if (!in_blocks(weight->dtype))
        return (size_t)weight->n_out * (size_t)weight->n_in * dtype_bytes(weight->dtype);
    size_t lines = (size_t)weight->n_out * (size_t)lines_of(weight->dtype, weight->n_in);
    if (weight->dtype == DTYPE_FP8)
        return lines * LINE_BYTES + (size_t)weight->n_out * sizeof(float);
    return lines * (LINE_BYTES + (size_t)line_scales(weight->dtype) * sizeof(uint16_t));
}

enum status cuda_pack(struct backend *backend, struct weight *weight,
                      const struct host_matrix *host, struct error *e) {
    CHECK(weight->dtype != DTYPE_FP8 || weight->n_in % QUANTISE_BLOCK == 0);
    if (dtype_kquant(weight->dtype))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: %s weights are multiplied on the CPU only; set the dtype to bf16 or "
                         "f16, which they are "
                         "widened to, or the device to cpu",
                         cuda_of(backend)->description, dtype_name(weight->dtype));
    weight->data = cuda_alloc(backend, packed_bytes(weight));
    if (weight->data == NULL && backend->error.status) return cuda_sync(backend, e);
    if (weight->data == NULL)
        return error_set(e, STATUS_NO_MEMORY,
                         "%s: no memory for a [%d, %d] %s weight; use a smaller model or dtype",
                         cuda_of(backend)->description, weight->n_out, weight->n_in,
                         dtype_name(weight->dtype));
    if (in_blocks(weight->dtype))
        blocks_load(backend, weight, host);
    else
        floats_load(backend, weight, host);
    enum status status = cuda_sync(backend, e);
    if (status) {
        cudaFree(weight->data);
        weight->data = NULL;
    }
    return status;
}
