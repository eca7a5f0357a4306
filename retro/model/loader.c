/* retro/model/loader.c: checkpoint tensors to packed device weights. tensors.c lists the places to fill, the family's
 * rows name the tensors that fill them.
 *
 * What a rank keeps of a place is staged in host memory, rows in the place's order, and given to the backend. Where a
 * stored tensor has that form already, as most do, the backend reads the mapped file itself. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/quantise.h"
#include "retro/model/tensors.h"

enum { MAX_PARTS = 3, WORTH_PROGRESS = 256 << 20 };

/* A matrix on its way to the device is rows of values and, when quantised, rows of scales and minimums beside them. */
enum plane { PLANE_VALUES, PLANE_SCALES, PLANE_MINIMUMS, PLANES };

/* Host memory that one matrix after another is worked on in; new pages for each would cost more than the work. */
struct room {
    void *data;
    size_t bytes;
};
enum { ROOM_WIDE = PLANES, ROOM_RANDOM, ROOMS }; /* behind those of the planes that are staged */

/* What loading needs to know everywhere. */
struct loader {
    struct model *model;
    const struct weights *weights; /* NULL: random numbers */
    const struct model_options *options;
    bool *used;         /* [weights_count] */
    size_t done, total; /* bytes of stored tensors */
    double shown;       /* when progress was last told */
    struct room rooms[ROOMS];
    uint64_t random;
    enum dtype random_dtype; /* of what is in ROOM_RANDOM */
};

/* n * size bytes, NULL when there are none; valid until the next call for that room. Contents are kept if it fits. */
static void *room_take(struct loader *l, int which, size_t n, size_t size) {
    struct room *r = &l->rooms[which];
    size_t bytes;
    if (mul_overflows(n, size, &bytes)) return NULL;
    if (bytes <= r->bytes && r->data != NULL) return r->data;
    free(r->data);
    *r = (struct room){.data = malloc(bytes), .bytes = bytes};
    return r->data;
}

static const char *const plane_suffix[PLANES] = {"", ".scale", ".minimum"};

/* Bytes of n columns (whole blocks of them) in one row of a plane, 0 where the type has no such plane. */
static size_t plane_bytes(enum dtype t, int plane, int n) {
    if (plane == PLANE_VALUES && t == DTYPE_INT4) return (size_t)n / 2;
    if (plane == PLANE_VALUES) return (size_t)n * (t == DTYPE_INT8 ? 1 : dtype_bytes(t));
    bool has = plane == PLANE_SCALES ? dtype_quantised(t) : t == DTYPE_INT4;
    return has ? (size_t)n / QUANTISE_BLOCK * sizeof(uint16_t) : 0;
}

/* Rows of host memory: a stored tensor, or what is staged. */
struct planes {
    const char *at[PLANES];
    enum dtype dtype;
    int cols;
};

/* The planes of row i from column `first` on (a multiple of the block where quantised). */
static const char *plane_at(const struct planes *p, int plane, int64_t i, int first) {
    if (p->at[plane] == NULL) return NULL;
    return p->at[plane] + (size_t)i * plane_bytes(p->dtype, plane, p->cols) + plane_bytes(p->dtype, plane, first);
}

/* n columns of row i, from `first` on, as f32. */
static void widen(float *to, const struct planes *p, int64_t i, int first, int n) {
    const char *values = plane_at(p, PLANE_VALUES, i, first);
    if (!dtype_quantised(p->dtype)) {
        dtype_convert(to, DTYPE_F32, values, p->dtype, (size_t)n);
        return;
    }
    struct quantised_row row = {(void *)(uintptr_t)values, (uint16_t *)(uintptr_t)plane_at(p, PLANE_SCALES, i, first),
                                (uint16_t *)(uintptr_t)plane_at(p, PLANE_MINIMUMS, i, first)};
    dequantise_row(to, p->dtype, row, n);
}

/* One stored tensor with its scales: the rows of a place that `part` says. The planes are as stored: of a transposed
 * one they have `rows` columns. */
struct source {
    struct planes planes;
    enum part part;
    int rows, cols;
    bool transposed;
};

/* A rank's share of a place; the planes point into the loader's rooms, there to be written, or into the file. */
struct staged {
    struct planes planes;
    int rows, cols;
    char *room[PLANES];
};

static enum status staged_take(struct loader *l, struct staged *s, enum dtype dtype, struct error *e) {
    s->planes = (struct planes){.dtype = dtype, .cols = s->cols};
    for (int p = 0; p < PLANES; p++) {
        if (plane_bytes(dtype, p, s->cols) == 0) continue;
        s->room[p] = room_take(l, p, (size_t)s->rows, plane_bytes(dtype, p, s->cols));
        s->planes.at[p] = s->room[p];
        if (s->room[p] == NULL)
            return error_set(e, STATUS_NO_MEMORY, "no memory to stage [%d, %d] of %s", s->rows, s->cols,
                             dtype_name(dtype));
    }
    return STATUS_OK;
}

/* Finding tensors. */

static enum status stored_to_dtype(const struct stored_tensor *t, enum dtype *out, struct error *e) {
    switch (t->dtype) {
        case STORED_F32: *out = DTYPE_F32; return STATUS_OK;
        case STORED_F16: *out = DTYPE_F16; return STATUS_OK;
        case STORED_BF16: *out = DTYPE_BF16; return STATUS_OK;
        case STORED_I8: *out = DTYPE_INT8; return STATUS_OK;
        case STORED_U8: *out = DTYPE_INT4; return STATUS_OK;
        default:
            return error_set(e, STATUS_UNSUPPORTED,
                             "%s: stored as %s; F32, F16, BF16, and quantised I8 and U8 are supported", t->name,
                             stored_dtype_name(t->dtype));
    }
}

/* A tensor of this shape, marked as used: [rows, cols], or [rows] where there is one column. */
static enum status find_tensor(struct loader *l, const char *name, int rows, int cols, const struct stored_tensor **out,
                               struct error *e) {
    const struct stored_tensor *t = weights_find(l->weights, name);
    if (t == NULL) return error_set(e, STATUS_INVALID, "tensor %s is missing", name);
    bool vector = cols == 1 && t->n_dims == 1;
    if (t->n_dims != (vector ? 1 : 2) || t->shape[0] != rows || (!vector && t->shape[1] != cols)) {
        char shape[120];
        return error_set(e, STATUS_INVALID, "tensor %s is %s, config.json makes it [%d, %d]", name,
                         stored_shape_text(t, shape, sizeof shape), rows, cols);
    }
    bool *used = &l->used[weights_index(l->weights, t)];
    if (!*used) l->done += t->bytes;
    *used = true;
    *out = t;
    return STATUS_OK;
}

/* The scales or minimums of a quantised tensor. */
static enum status find_blocks(struct loader *l, struct source *s, const char *name, enum plane plane,
                               struct error *e) {
    const struct stored_tensor *t;
    char full[TENSOR_NAME + 16];
    int blocks = s->cols / QUANTISE_BLOCK;
    snprintf(full, sizeof full, "%s%s", name, plane_suffix[plane]);
    if (weights_find(l->weights, full) == NULL)
        return error_set(e, STATUS_INVALID, "tensor %s is quantised (%s), but %s is missing", name,
                         dtype_name(s->planes.dtype), full);
    if (find_tensor(l, full, s->rows, blocks, &t, e)) return e->status;
    if (t->dtype != STORED_F16)
        return error_set(e, STATUS_INVALID, "tensor %s is %s; scales and minimums are F16", full,
                         stored_dtype_name(t->dtype));
    const uint16_t *values = t->data;
    uint16_t largest = 0;
    for (size_t i = 0; i < t->elements; i++) {
        uint16_t exponent = values[i] & 0x7c00;
        largest = exponent > largest ? exponent : largest;
    }
    if (largest == 0x7c00) return error_set(e, STATUS_CORRUPT, "tensor %s holds a number that is not finite", full);
    s->planes.at[plane] = t->data;
    return STATUS_OK;
}

static enum status find_source(struct loader *l, struct source *s, const char *name, struct error *e) {
    const struct stored_tensor *t = weights_find(l->weights, name);
    s->planes = (struct planes){.cols = s->transposed ? s->rows : s->cols};
    if (t && stored_to_dtype(t, &s->planes.dtype, e)) return e->status;
    bool blocks = dtype_quantised(s->planes.dtype);
    if (blocks && (s->transposed || s->cols % QUANTISE_BLOCK != 0))
        return error_set(
            e, STATUS_INVALID,
            "tensor %s is stored as %s; only matrices whose columns are a multiple of %d can be quantised, "
            "config.json makes it [%d, %d]%s",
            name, stored_dtype_name(t->dtype), QUANTISE_BLOCK, s->rows, s->cols, s->transposed ? " transposed" : "");

    int cols = s->planes.dtype == DTYPE_INT4 ? s->cols / 2 : s->cols;
    bool vector = cols == 1;
    int stored_rows = s->transposed && !vector ? cols : s->rows,
        stored_cols = s->transposed && !vector ? s->rows : cols;
    if (find_tensor(l, name, stored_rows, stored_cols, &t, e)) return e->status;
    s->planes.at[PLANE_VALUES] = t->data;
    enum status status = STATUS_OK;
    for (int p = PLANE_SCALES; p < PLANES && status == STATUS_OK; p++)
        if (plane_bytes(s->planes.dtype, p, s->cols)) status = find_blocks(l, s, name, (enum plane)p, e);
    return status;
}

/* A large model takes a while: rank 0 says every other second how far it is. */
static void show_progress(struct loader *l) {
    double now = time_now();
    if (l->model->comm->world->rank > 0 || l->total < WORTH_PROGRESS || now - l->shown < 2) return;
    l->shown = now;
    log_info("loading weights: %.0f %% of %.1f GB", 100 * (double)l->done / (double)l->total, 1e-9 * (double)l->total);
}

static void report_tensor(struct loader *l, const char *name, const struct place *p) {
    const struct model_options *o = l->options;
    show_progress(l);
    if (o->loaded == NULL) return;
    enum tensor_role role = p->form != PLACE_MATRIX              ? TENSOR_OTHER
                            : p->at == &l->model->embedding.word ? TENSOR_WORD
                            : p->outer                           ? TENSOR_OUTPUT
                                                                 : TENSOR_LINEAR;
    o->loaded(o->context, &(struct loaded_tensor){.name = name,
                                                  .role = role,
                                                  .weight = p->form == PLACE_MATRIX ? p->at : NULL,
                                                  .done = l->done,
                                                  .total = l->total});
}

static int part_rows(const struct share *share, enum part part) {
    bool whole = part == PART_WHOLE || part == PART_BY_HEAD;
    return whole ? share->whole_rows : share->blocks[part - PART_FIRST];
}

/* Other spellings of a tensor that was found are the same tensor again: Megatron's T5 registers some twice. */
static void use_spellings(struct loader *l, const struct place *p, int row) {
    char name[TENSOR_NAME];
    for (int j = 0; place_spelling(p, row, j, name); j++) {
        const struct stored_tensor *t = weights_find(l->weights, name);
        if (t) l->used[weights_index(l->weights, t)] = true;
    }
}

/* The first spelling of a row that the checkpoint has; the family's own where it has none, for the error. */
static const char *find_spelling(const struct loader *l, const struct place *p, int row, char name[TENSOR_NAME]) {
    for (int j = 0; place_spelling(p, row, j, name); j++)
        if (weights_find(l->weights, name)) return name;
    return place_spelling(p, row, 0, name);
}

/* All stored tensors of a place; *n of them. */
static enum status find_parts(struct loader *l, const struct place *p, struct source sources[MAX_PARTS], int *n,
                              struct error *e) {
    *n = 0;
    for (int i = p->row; i < p->rows->n; i++) {
        const struct tensor_row *row = &p->rows->rows[i];
        char name[TENSOR_NAME];
        if (row->place != p->rows->rows[p->row].place || (int)row->part >= (int)PART_FIRST + p->share.n_blocks)
            continue;
        CHECK(*n < MAX_PARTS);
        struct source *s = &sources[(*n)++];
        *s = (struct source){.part = row->part,
                             .rows = part_rows(&p->share, row->part),
                             .cols = p->share.whole_cols,
                             .transposed = row->transposed};
        find_spelling(l, p, i, name);
        if (find_source(l, s, name, e)) return e->status;
        use_spellings(l, p, i);
        report_tensor(l, name, p);
    }
    CHECK(*n > 0);
    return STATUS_OK;
}

/* Staging. */

/* Row of the place that stored row i of a part becomes: block after block, heads in order. */
static int part_row(const struct share *share, int head_dim, enum part part, int i) {
    int first = 0;
    if (part == PART_WHOLE) return i;
    if (part != PART_BY_HEAD) {
        for (int b = 0; b < (int)part - (int)PART_FIRST; b++) first += share->blocks[b];
        return first + i;
    }

    /* Key/value heads, as the last block counts them, each with its share of every block. */
    int units = share->blocks[share->n_blocks - 1] / head_dim, per_unit = share->whole_rows / units;
    int unit = i / per_unit, at = i % per_unit;
    for (int b = 0; b < share->n_blocks; b++) {
        int rows = share->blocks[b] / units;
        if (at < rows) return first + unit * rows + at;
        at -= rows;
        first += share->blocks[b];
    }
    return -1;
}

/* Row `to` of the stage = this rank's part of column `row` of what is stored. */
static void stage_column(struct staged *s, int to, const struct source *from, int row, int first_col) {
    size_t size = dtype_bytes(from->planes.dtype), wide = dtype_bytes(s->planes.dtype);
    char *at = s->room[PLANE_VALUES] + (size_t)to * (size_t)s->cols * wide;
    for (int c = 0; c < s->cols; c++) {
        const char *value = plane_at(&from->planes, PLANE_VALUES, first_col + c, 0) + (size_t)row * size;
        dtype_convert(at + (size_t)c * wide, s->planes.dtype, value, from->planes.dtype, 1);
    }
}

/* Row `to` of what is staged = this rank's columns of a stored row. Parts of different types meet in f32. */
static void stage_row(struct staged *s, int to, const struct source *from, int row, int first_col) {
    if (from->transposed) {
        stage_column(s, to, from, row, first_col);
        return;
    }
    if (s->planes.dtype != from->planes.dtype) {
        widen((float *)(void *)s->room[PLANE_VALUES] + (size_t)to * (size_t)s->cols, &from->planes, row, first_col,
              s->cols);
        return;
    }
    for (int p = 0; p < PLANES; p++) {
        size_t bytes = plane_bytes(s->planes.dtype, p, s->cols);
        if (bytes) memcpy(s->room[p] + (size_t)to * bytes, plane_at(&from->planes, p, row, first_col), bytes);
    }
}

/* Rows of one tensor as they are: all of them, or this rank's run of one block. */
static void stage_in_place(struct staged *s, const struct source *from, const struct share *share) {
    s->planes = from->planes;
    for (int p = 0; p < PLANES; p++) s->planes.at[p] = plane_at(&from->planes, p, share->mine[0].first, 0);
}

static enum status stage_place(struct loader *l, struct staged *s, const struct place *p, struct error *e) {
    struct source sources[MAX_PARTS] = {0};
    const struct share *share = &p->share;
    int n, head_dim = l->model->stacks[p->stack].dims.head_dim;
    if (find_parts(l, p, sources, &n, e)) return e->status;
    enum dtype dtype = sources[0].planes.dtype;
    for (int k = 1; k < n; k++)
        if (sources[k].planes.dtype != dtype) dtype = DTYPE_F32;
    if (dtype_quantised(dtype) && s->cols % QUANTISE_BLOCK != 0)
        return error_set(e, STATUS_INVALID,
                         "%s: %d quantised columns split over %d ranks are not whole blocks of %d: use fewer ranks, or "
                         "weights that are not quantised",
                         p->name, share->whole_cols, l->model->comm->size, QUANTISE_BLOCK);
    bool one_run = share->rows == share->whole_rows || share->n_blocks == 1;
    if (l->options->check_only || p->elsewhere) {
        s->planes.dtype = dtype; /* nobody looks at the rest */
        return STATUS_OK;
    }
    if (n == 1 && sources[0].part == PART_WHOLE && !sources[0].transposed && s->cols == share->whole_cols && one_run) {
        stage_in_place(s, &sources[0], share);
        return STATUS_OK;
    }
    enum status status = staged_take(l, s, dtype, e);
    for (int k = 0; k < n && status == STATUS_OK; k++)
        for (int i = 0; i < sources[k].rows; i++) {
            int to = share_row(share, part_row(share, head_dim, sources[k].part, i));
            if (to >= 0) stage_row(s, to, &sources[k], i, share->first_col);
        }
    return status;
}

static uint32_t draw(struct loader *l) {
    l->random = l->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(l->random >> 32);
}

/* Numbers around `centre`. */
static void fill_random(struct loader *l, void *to, enum dtype dtype, size_t n, float centre) {
    enum { PIECE = 1024 };
    for (size_t at = 0; at < n; at += PIECE) {
        float piece[PIECE];
        size_t count = n - at < PIECE ? n - at : PIECE;
        for (size_t i = 0; i < count; i++) piece[i] = centre + ((float)(draw(l) >> 8) * 0x1p-24f - 0.5f) * 0.04f;
        dtype_convert((char *)to + at * dtype_bytes(dtype), dtype, piece, DTYPE_F32, count);
    }
}

/* Values of a matrix: a part of one run of numbers that repeats, from a place of the matrix's own. Drawing would take
 * longer than packing does. Quantised values are drawn as such: every bit pattern is a number. */
static const char *random_values(struct loader *l, enum dtype dtype, size_t bytes) {
    enum { PERIOD = 1 << 20, GRAIN = 64 }; /* bytes; places are multiples of GRAIN */
    size_t before = l->rooms[ROOM_RANDOM].bytes;
    char *run = bytes > SIZE_MAX - PERIOD ? NULL : room_take(l, ROOM_RANDOM, bytes + PERIOD, 1);
    if (run == NULL) return NULL;
    if (before != l->rooms[ROOM_RANDOM].bytes || l->random_dtype != dtype) {
        if (dtype_quantised(dtype))
            for (size_t i = 0; i < PERIOD; i++) run[i] = (char)(draw(l) >> 24);
        else
            fill_random(l, run, dtype, PERIOD / dtype_bytes(dtype), 0.0f);
        size_t all = l->rooms[ROOM_RANDOM].bytes;
        for (size_t at = PERIOD; at < all; at += PERIOD) memcpy(run + at, run, all - at < PERIOD ? all - at : PERIOD);
        l->random_dtype = dtype;
    }
    return run + draw(l) % (PERIOD / GRAIN) * GRAIN;
}

static enum status stage_random_matrix(struct loader *l, struct staged *s, struct error *e) {
    const struct model_options *o = l->options;
    bool blocks = s->cols % QUANTISE_BLOCK == 0;
    enum dtype dtype = o->convert && (blocks || !dtype_quantised(o->dtype)) ? o->dtype : DTYPE_F32;
    if (dtype == DTYPE_FP8) dtype = DTYPE_BF16; /* which the device makes it from */
    s->planes = (struct planes){.dtype = dtype, .cols = s->cols};
    size_t bytes, n = (size_t)s->rows * ((size_t)s->cols / QUANTISE_BLOCK);
    bool overflow = mul_overflows((size_t)s->rows, plane_bytes(dtype, PLANE_VALUES, s->cols), &bytes);
    s->planes.at[PLANE_VALUES] = overflow ? NULL : random_values(l, dtype, bytes);
    uint16_t *scales = room_take(l, PLANE_SCALES, n + 1, sizeof *scales);
    uint16_t *minimums = room_take(l, PLANE_MINIMUMS, n + 1, sizeof *minimums);
    if (s->planes.at[PLANE_VALUES] == NULL || scales == NULL || minimums == NULL)
        return error_set(e, STATUS_NO_MEMORY, "no memory to draw [%d, %d] of %s", s->rows, s->cols, dtype_name(dtype));
    uint16_t scale = f32_to_f16(dtype == DTYPE_INT8 ? 0.02f / 127 : 0.04f / 15), minimum = f32_to_f16(-0.02f);
    for (size_t i = 0; dtype_quantised(dtype) && i < n; i++) {
        scales[i] = scale;
        minimums[i] = minimum;
    }
    if (dtype_quantised(dtype)) s->planes.at[PLANE_SCALES] = (char *)scales;
    if (dtype == DTYPE_INT4) s->planes.at[PLANE_MINIMUMS] = (char *)minimums;
    return STATUS_OK;
}

/* Small, zero-mean, the same on every run; norms must not vanish, so their gammas are centred on 1. */
static enum status stage_random(struct loader *l, struct staged *s, const struct place *p, struct error *e) {
    if (p->form == PLACE_MATRIX) return stage_random_matrix(l, s, e);
    if (staged_take(l, s, DTYPE_F32, e)) return e->status;
    fill_random(l, s->room[PLANE_VALUES], DTYPE_F32, (size_t)s->rows * (size_t)s->cols,
                p->form == PLACE_GAMMA ? 1.0f : 0.0f);
    return STATUS_OK;
}

/* Onto the device. */

/* All of a place as f32; NULL when there is no memory. */
static float *staged_widen(struct loader *l, const struct staged *s) {
    float *wide = room_take(l, ROOM_WIDE, (size_t)s->rows * (size_t)s->cols, sizeof *wide);
    for (int i = 0; wide && i < s->rows; i++) widen(wide + (size_t)i * (size_t)s->cols, &s->planes, i, 0, s->cols);
    return wide;
}

/* Norms that are stored around zero, and the last norm of a model whose rows are scaled before the output matrix. */
static void adjust_norm(const struct loader *l, const struct place *p, float *w, size_t n) {
    const struct model *m = l->model;
    const struct dims *d = &m->stacks[p->stack].dims;
    const struct norm_weights *last = &m->stacks[STACK_DECODER].final_norm;
    bool scaled = p->at == &last->gamma || p->at == &last->beta;
    if (p->form == PLACE_GAMMA && d->zero_centered_gamma)
        for (size_t i = 0; i < n; i++) w[i] += 1.0f;
    if (scaled && m->spec.logit_scale != 1)
        for (size_t i = 0; i < n; i++) w[i] *= m->spec.logit_scale;
}

/* n floats on the device; *device is set also on failure, for model_release_weights. */
static enum status upload_floats(struct loader *l, void **device, const float *host, size_t n, struct error *e) {
    struct backend *b = l->model->backend;
    if (backend_alloc(b, device, n * sizeof(float), "weights", e)) return e->status;
    backend_upload(b, *device, host, n * sizeof(float));
    return backend_sync(b, e);
}

/* Vectors and tables become f32. */
static enum status place_floats(struct loader *l, const struct staged *s, const struct place *p, struct error *e) {
    size_t n = (size_t)s->rows * (size_t)s->cols;
    float *host = staged_widen(l, s);
    if (host == NULL) return error_set(e, STATUS_NO_MEMORY, "%s: no memory to convert %zu numbers", p->name, n);
    adjust_norm(l, p, host, n);

    void *device = NULL;
    enum status status = upload_floats(l, &device, host, n, e);
    if (device == NULL) return status;
    if (p->form == PLACE_TABLE)
        *(struct tensor *)p->at = tensor_make(device, DTYPE_F32, s->rows, s->cols);
    else
        *(float **)p->at = device;
    return status;
}

/* The bucket of a key that stands `distance` rows after its query (docs/spec/t5-model.md 2.2). */
static int relative_bucket(const struct dims *d, bool both_ways, int distance) {
    int buckets = both_ways ? d->buckets / 2 : d->buckets, first = both_ways && distance > 0 ? buckets : 0;
    int away = both_ways ? abs(distance) : max_int(-distance, 0), exact = buckets / 2;
    if (away < exact) return first + away;
    float far = logf((float)away / (float)exact) / logf((float)d->max_distance / (float)exact);
    return first + min_int(buckets - 1, exact + (int)(far * (float)(buckets - exact)));
}

/* [buckets, local H] becomes [local H, distances], a bias by key minus query: from max_distance on all distances share
 * a bucket. A decoder sees what lies before, an encoder both ways. */
static enum status place_relative(struct loader *l, const struct staged *s, const struct place *p, struct error *e) {
    const struct dims *d = &l->model->stacks[p->stack].dims;
    bool both_ways = p->stack == STACK_ENCODER;
    int distances = 2 * d->max_distance + 1;
    size_t n = (size_t)s->cols * (size_t)distances;
    const float *table = staged_widen(l, s);
    float *bias = malloc(n * sizeof *bias);
    if (table == NULL || bias == NULL) {
        free(bias);
        return error_set(e, STATUS_NO_MEMORY, "%s: no memory for %zu numbers", p->name, n);
    }
    for (int i = 0; i < distances; i++) {
        int bucket = relative_bucket(d, both_ways, i - d->max_distance);
        for (int head = 0; head < s->cols; head++)
            bias[(size_t)head * (size_t)distances + (size_t)i] = table[bucket * s->cols + head];
    }

    void *device = NULL;
    enum status status = upload_floats(l, &device, bias, n, e);
    if (device) *(struct tensor *)p->at = tensor_make(device, DTYPE_F32, s->cols, distances);
    free(bias);
    return status;
}

/* A matrix keeps its type, or takes the one the options ask for. One that no blocks fit stays wider: random or fp8. */
static enum dtype target_dtype(const struct loader *l, enum dtype from, int cols) {
    const struct model_options *o = l->options;
    if (!o->convert) return from;
    if (l->weights == NULL && dtype_quantised(o->dtype)) return dtype_quantised(from) ? from : DTYPE_BF16;
    return o->dtype == DTYPE_FP8 && cols % QUANTISE_BLOCK != 0 ? DTYPE_BF16 : o->dtype;
}

/* A quantised matrix is widened where the options ask for it; the backend refuses the other direction. */
static enum status place_matrix(struct loader *l, const struct staged *s, const struct place *p, struct error *e) {
    const struct planes *from = &s->planes;
    struct weight *w = p->at;
    struct host_matrix host = {.values = from->at[PLANE_VALUES],
                               .scales = (const uint16_t *)(const void *)from->at[PLANE_SCALES],
                               .minimums = (const uint16_t *)(const void *)from->at[PLANE_MINIMUMS],
                               .dtype = from->dtype};
    if (dtype_quantised(from->dtype) && !dtype_quantised(w->dtype)) {
        const float *wide = staged_widen(l, s);
        if (wide == NULL) return error_set(e, STATUS_NO_MEMORY, "%s: no memory to widen it", p->name);
        host = (struct host_matrix){.values = wide, .dtype = DTYPE_F32};
    }
    return backend_pack(l->model->backend, w, &host, e);
}

/* What a place will take. */
static size_t place_bytes(const struct model *m, const struct place *p) {
    int rows, cols;
    place_kept(m, p, &rows, &cols);
    size_t n = (size_t)rows * (size_t)cols;
    return p->form == PLACE_MATRIX ? matrix_bytes(((const struct weight *)p->at)->dtype, n) : n * sizeof(float);
}

static enum status load_place(void *context, const struct place *p, struct error *e) {
    struct loader *l = context;
    struct staged s = {.rows = p->share.rows, .cols = p->share.cols};
    if (comm_working(l->model->comm->world, e)) return e->status;
    if (p->elsewhere && l->weights == NULL) return STATUS_OK;
    enum status status = l->weights ? stage_place(l, &s, p, e) : stage_random(l, &s, p, e);
    if (status || p->elsewhere) return status;
    if (p->form == PLACE_MATRIX)
        *(struct weight *)p->at = (struct weight){
            .dtype = target_dtype(l, s.planes.dtype, s.cols), .n_out = p->share.rows, .n_in = p->share.cols};
    l->model->info.weight_bytes += place_bytes(l->model, p);
    if (l->options->check_only) return STATUS_OK;
    if (p->form == PLACE_RELATIVE) return place_relative(l, &s, p, e);
    return p->form == PLACE_MATRIX ? place_matrix(l, &s, p, e) : place_floats(l, &s, p, e);
}

/* A tensor that nothing asked for means config.json and checkpoint disagree: better said than silently left out. */
static enum status check_all_used(const struct loader *l, struct error *e) {
    for (int i = 0; l->weights && i < weights_count(l->weights); i++) {
        const char *name = weights_at(l->weights, i)->name;
        if (!l->used[i] && !(l->model->family->ignores && l->model->family->ignores(name)))
            return error_set(e, STATUS_INVALID,
                             "tensor %s has no place in a %s model with this config.json (biases, tied embeddings, "
                             "retro_layers and num_layers decide)",
                             name, l->model->info.family);
    }
    return STATUS_OK;
}

enum status model_load_weights(struct model *m, const struct weights *w, const struct model_options *o,
                               struct error *e) {
    struct loader l = {.model = m, .weights = w, .options = o, .shown = time_now(), .random = 1};
    int count = w ? weights_count(w) : 0;
    l.used = xcalloc((size_t)count + 1, sizeof *l.used);
    for (int i = 0; i < count; i++) l.total += weights_at(w, i)->bytes;
    enum status status = model_visit(m, load_place, &l, e);
    if (status == STATUS_OK) status = check_all_used(&l, e);
    for (int i = 0; i < ROOMS; i++) free(l.rooms[i].data);
    free(l.used);
    return status;
}

static enum status release_place(void *context, const struct place *p, struct error *e) {
    (void)e;
    struct model *m = context;
    struct backend *b = m->backend;
    switch (p->form) {
        case PLACE_MATRIX:
            if (m->mapped == NULL) backend_release(b, ((struct weight *)p->at)->data);
            break;
        case PLACE_RELATIVE:
        case PLACE_TABLE: backend_release(b, ((struct tensor *)p->at)->data); break;
        case PLACE_GAMMA:
        case PLACE_VECTOR: backend_release(b, *(float **)p->at); break;
    }
    return STATUS_OK;
}

void model_release_weights(struct model *m) {
    struct error none;
    model_visit(m, release_place, m, &none);
}
