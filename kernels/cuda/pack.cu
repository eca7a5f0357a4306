/* kernels/cuda/pack.cu: weights onto the device, through pinned memory in two halves: the host fills one while the
 * device reads the other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/blocks.cuh"

enum { HALF_BYTES = LOADING_ELEMENTS * sizeof(float) };

static bool loading_open(struct backend *b) {
    struct weight_loading *l = &cuda_of(b)->loading;
    if (l->host) return true;
    for (int i = 0; i < 2; i++)
        if (!cuda_ok(b, cudaEventCreateWithFlags(&l->read[i], cudaEventDisableTiming), "an event")) return false;
    return cuda_ok(b, cudaMallocHost((void **)&l->host, 2 * HALF_BYTES), "pinned memory for loading");
}

void loading_close(struct weight_loading *l) {
    for (int i = 0; i < 2; i++)
        if (l->read[i]) cudaEventDestroy(l->read[i]);
    cudaFreeHost(l->host);
}

/* The half for the piece-th copy, once the device has read what was in it; NULL after a failure. */
static char *half_take(struct backend *b, size_t piece) {
    struct weight_loading *l = &cuda_of(b)->loading;
    if (b->error.status || !loading_open(b)) return NULL;
    if (piece >= 2 && !cuda_ok(b, cudaEventSynchronize(l->read[piece % 2]), "loading")) return NULL;
    return l->host + piece % 2 * HALF_BYTES;
}

/* From a half, which stays as it is until its event. */
static void half_copy(struct backend *b, const void *device, const void *half, size_t bytes) {
    if (b->error.status || bytes == 0) return;
    cuda_ok(b, cudaMemcpyAsync((void *)(uintptr_t)device, half, bytes, cudaMemcpyHostToDevice, cuda_of(b)->stream),
            "loading");
}

static void half_give(struct backend *b, size_t piece) {
    cuda_ok(b, cudaEventRecord(cuda_of(b)->loading.read[piece % 2], cuda_of(b)->stream), "loading");
}

/* Rows go to the device as the host has them, [n_out, n_in]; only the dtype is converted. */
static void floats_load(struct backend *b, const struct weight *w, const struct host_matrix *host) {
    size_t n = (size_t)w->n_out * (size_t)w->n_in, from = dtype_bytes(host->dtype), to = dtype_bytes(w->dtype);
    for (size_t at = 0; at < n; at += LOADING_ELEMENTS) {
        size_t piece = at / LOADING_ELEMENTS;
        size_t left = n - at, most = LOADING_ELEMENTS, count = left < most ? left : most;
        char *half = half_take(b, piece);
        if (half == NULL) return;
        dtype_convert(half, w->dtype, (const char *)host->values + at * from, host->dtype, count);
        half_copy(b, (char *)w->data + at * to, half, count * to);
        half_give(b, piece);
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

/* To the nearest e4m3, ties to even, |v| <= 448, its largest. From 2^-6 on it has 3 bits of mantissa; below, its last
 * bit is 2^-9, which is the last bit of an f32 between 2^14 and 2^15. */
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

static void fp8_make(struct fp8_row *r, const struct blocks &w, const struct host_matrix *host) {
    size_t n = (size_t)w.n_in, at = r->next * n * dtype_bytes(host->dtype);
    float largest = 0, sum = 0;
    dtype_convert(r->wide, DTYPE_F32, (const char *)host->values + at, host->dtype, n);
    for (size_t i = 0; i < n; i++) {
        largest = fmaxf(largest, fabsf(r->wide[i]));
        sum += 0 * r->wide[i]; /* NaN or infinity stays */
    }
    r->finite = r->finite && sum == 0;
    float inverse = largest > 0 ? 448 / largest : 0;
    if (!(r->finite && inverse <= 0x1p126f)) inverse = 0; /* so small that its inverse is none */
    r->scales[r->next] = inverse > 0 ? largest / 448 : 0;
    r->next++;
    for (size_t i = 0; i < n; i++) r->values[i] = f32_to_e4m3(fminf(fmaxf(r->wide[i] * inverse, -448), 448));
}

/* Line `at` of all rows, counted from the first; `line` and `scales` are zeros. */
static void line_make(unsigned char *line, uint16_t *scales, const struct blocks &w, const struct host_matrix *host,
                      struct fp8_row *fp8, size_t at) {
    size_t row_blocks = (size_t)w.n_in / QUANTISE_BLOCK, in_row = at % (size_t)w.lines * (size_t)line_blocks(w.dtype);
    size_t first = at / (size_t)w.lines * row_blocks + in_row, left = row_blocks - in_row;
    int n = left < (size_t)line_blocks(w.dtype) ? (int)left : line_blocks(w.dtype);
    const unsigned char *values = (const unsigned char *)host->values;
    if (w.dtype == DTYPE_FP8) {
        if (in_row == 0) fp8_make(fp8, w, host);
        line_transpose(line, fp8->values + in_row * QUANTISE_BLOCK, n, (uint32_t)0);
        return;
    }
    memcpy(scales, host->scales + first, (size_t)n * sizeof *scales);
    if (w.dtype == DTYPE_INT8) {
        line_transpose(line, values + first * QUANTISE_BLOCK, n, (uint32_t)0x80808080);
    } else {
        line_transpose(line, values + first * (QUANTISE_BLOCK / 2), n, (uint16_t)0);
        memcpy(scales + line_blocks(w.dtype), host->minimums + first, (size_t)n * sizeof *scales);
    }
}

/* As many lines at a time as fit into a half with their scales. */
static void blocks_load(struct backend *b, const struct weight *w, const struct host_matrix *host) {
    struct blocks to = blocks_of(w);
    size_t n = (size_t)to.n_out * (size_t)to.lines, beside = (size_t)line_scales(w->dtype);
    size_t most = HALF_BYTES / (LINE_BYTES + beside * sizeof(uint16_t));
    struct fp8_row fp8 = {NULL, NULL, NULL, 0, true};
    if (w->dtype == DTYPE_FP8) {
        fp8.wide = (float *)xmalloc((size_t)w->n_in * (sizeof(float) + 1));
        fp8.values = (unsigned char *)(fp8.wide + w->n_in);
        fp8.scales = (float *)xmalloc((size_t)w->n_out * sizeof(float));
    }
    for (size_t at = 0; at < n; at += most) {
        size_t count = n - at < most ? n - at : most, piece = at / most;
        char *half = half_take(b, piece);
        if (half == NULL) break;
        unsigned char *lines = (unsigned char *)half;
        uint16_t *scales = (uint16_t *)(void *)(half + count * LINE_BYTES);
        memset(half, 0, count * (LINE_BYTES + beside * sizeof *scales));
        for (size_t i = 0; i < count; i++)
            line_make(lines + i * LINE_BYTES, scales + i * beside, to, host, &fp8, at + i);
        half_copy(b, to.values + at * LINE_BYTES, lines, count * LINE_BYTES);
        half_copy(b, to.scales + at * beside, scales, count * beside * sizeof *scales);
        half_give(b, piece);
    }
    if (!fp8.finite && b->error.status == STATUS_OK)
        error_set(&b->error, STATUS_INVALID, "%s: a weight that is not finite has no fp8 form; use another dtype",
                  cuda_of(b)->description);
    if (w->dtype == DTYPE_FP8)
        backend_upload(b, (void *)(uintptr_t)to.scales, fp8.scales, (size_t)w->n_out * sizeof(float));
    free(fp8.wide);
    free(fp8.scales);
}

static size_t packed_bytes(const struct weight *w) {
    if (!in_blocks(w->dtype)) return (size_t)w->n_out * (size_t)w->n_in * dtype_bytes(w->dtype);
    size_t lines = (size_t)w->n_out * (size_t)lines_of(w->dtype, w->n_in);
    if (w->dtype == DTYPE_FP8) return lines * LINE_BYTES + (size_t)w->n_out * sizeof(float);
    return lines * (LINE_BYTES + (size_t)line_scales(w->dtype) * sizeof(uint16_t));
}

enum status cuda_pack(struct backend *b, struct weight *w, const struct host_matrix *host, struct error *e) {
    CHECK(w->dtype != DTYPE_FP8 || w->n_in % QUANTISE_BLOCK == 0);
    if (dtype_kquant(w->dtype))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: %s weights are multiplied on the CPU only; set the dtype to bf16 or f16, which they are "
                         "widened to, or the device to cpu",
                         cuda_of(b)->description, dtype_name(w->dtype));
    w->data = cuda_alloc(b, packed_bytes(w));
    if (w->data == NULL && b->error.status) return cuda_sync(b, e);
    if (w->data == NULL)
        return error_set(e, STATUS_NO_MEMORY, "%s: no memory for a [%d, %d] %s weight; use a smaller model or dtype",
                         cuda_of(b)->description, w->n_out, w->n_in, dtype_name(w->dtype));
    if (in_blocks(w->dtype))
        blocks_load(b, w, host);
    else
        floats_load(b, w, host);
    enum status s = cuda_sync(b, e);
    if (s) {
        cudaFree(w->data);
        w->data = NULL;
    }
    return s;
}
