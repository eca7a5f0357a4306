/* retro/loader.c: checkpoint tensors to packed device weights. One table of slots gives every matrix and vector its
 * place, shape and tensor-parallel split; the family's name table says which tensors fill it. */
#include <stdlib.h>
#include <string.h>

#include "retro/model_private.h"

/* Sizes a slot is made of. Q, K, V parts are counted in heads so that a rank takes whole heads. */
enum extent { EXTENT_ONE, EXTENT_HIDDEN, EXTENT_QKV, EXTENT_HEADS, EXTENT_KV, EXTENT_FC1, EXTENT_FFN };

enum split { SPLIT_COPY, SPLIT_ROWS, SPLIT_COLS }; /* of the stored [out, in] matrix over ranks (spec 8) */

enum slot_need { NEED_ALWAYS, NEED_BETA, NEED_BIAS };

static const struct slot_info {
    size_t offset; /* in struct layer: of a struct projection's weight, or of a float pointer */
    enum extent out, in;
    enum split split;
    enum slot_need need;
    bool cross; /* only in layers with cross attention */
} slot_table[SLOT_COUNT] = {
#define PLACE(field) offsetof(struct layer, field)
    [SLOT_NORM_IN_GAMMA] = {PLACE(norm_in.gamma), EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY, NEED_ALWAYS, false},
    [SLOT_NORM_IN_BETA] = {PLACE(norm_in.beta), EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY, NEED_BETA, false},
    [SLOT_QKV] = {PLACE(qkv.weight), EXTENT_QKV, EXTENT_HIDDEN, SPLIT_ROWS, NEED_ALWAYS, false},
    [SLOT_QKV_BIAS] = {PLACE(qkv.bias), EXTENT_QKV, EXTENT_ONE, SPLIT_ROWS, NEED_BIAS, false},
    [SLOT_PROJ] = {PLACE(proj.weight), EXTENT_HIDDEN, EXTENT_HEADS, SPLIT_COLS, NEED_ALWAYS, false},
    [SLOT_PROJ_BIAS] = {PLACE(proj.bias), EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY, NEED_BIAS, false},
    [SLOT_NORM_CROSS_GAMMA] = {PLACE(norm_cross.gamma), EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY, NEED_ALWAYS, true},
    [SLOT_NORM_CROSS_BETA] = {PLACE(norm_cross.beta), EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY, NEED_BETA, true},
    [SLOT_CROSS_Q] = {PLACE(cross_q.weight), EXTENT_HEADS, EXTENT_HIDDEN, SPLIT_ROWS, NEED_ALWAYS, true},
    [SLOT_CROSS_Q_BIAS] = {PLACE(cross_q.bias), EXTENT_HEADS, EXTENT_ONE, SPLIT_ROWS, NEED_BIAS, true},
    [SLOT_CROSS_KV] = {PLACE(cross_kv.weight), EXTENT_KV, EXTENT_HIDDEN, SPLIT_ROWS, NEED_ALWAYS, true},
    [SLOT_CROSS_KV_BIAS] = {PLACE(cross_kv.bias), EXTENT_KV, EXTENT_ONE, SPLIT_ROWS, NEED_BIAS, true},
    [SLOT_CROSS_PROJ] = {PLACE(cross_proj.weight), EXTENT_HIDDEN, EXTENT_HEADS, SPLIT_COLS, NEED_ALWAYS, true},
    [SLOT_CROSS_PROJ_BIAS] = {PLACE(cross_proj.bias), EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY, NEED_BIAS, true},
    [SLOT_NORM_MLP_GAMMA] = {PLACE(norm_mlp.gamma), EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY, NEED_ALWAYS, false},
    [SLOT_NORM_MLP_BETA] = {PLACE(norm_mlp.beta), EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY, NEED_BETA, false},
    [SLOT_FC1] = {PLACE(fc1.weight), EXTENT_FC1, EXTENT_HIDDEN, SPLIT_ROWS, NEED_ALWAYS, false},
    [SLOT_FC1_BIAS] = {PLACE(fc1.bias), EXTENT_FC1, EXTENT_ONE, SPLIT_ROWS, NEED_BIAS, false},
    [SLOT_FC2] = {PLACE(fc2.weight), EXTENT_HIDDEN, EXTENT_FFN, SPLIT_COLS, NEED_ALWAYS, false},
    [SLOT_FC2_BIAS] = {PLACE(fc2.bias), EXTENT_HIDDEN, EXTENT_ONE, SPLIT_COPY, NEED_BIAS, false},
#undef PLACE
};

/* What loading needs to know everywhere. */
struct loader {
    struct model *model;
    const struct weights *weights; /* NULL: random numbers */
    enum dtype dtype;              /* of packed matrices */
    bool *used;                    /* [weights_count] */
    uint64_t random;
};

static int extent_size(const struct dims *d, enum extent x) {
    switch (x) {
        case EXTENT_ONE: return 1;
        case EXTENT_HIDDEN: return d->hidden;
        case EXTENT_QKV: return (d->heads + 2 * d->kv_heads) * d->head_dim;
        case EXTENT_HEADS: return d->heads * d->head_dim;
        case EXTENT_KV: return 2 * d->heads * d->head_dim;
        case EXTENT_FC1: return d->gated ? 2 * d->ffn : d->ffn;
        case EXTENT_FFN: return d->ffn;
    }
    return 0;
}

/* A slot in host memory on its way to the device: [rows, cols] of one stored dtype, whole (not yet split). */
struct staged {
    char *data;
    enum dtype dtype;
    int rows, cols;
};

static enum status stored_to_dtype(const struct stored_tensor *t, enum dtype *out, struct error *e) {
    switch (t->dtype) {
        case STORED_F32: *out = DTYPE_F32; return STATUS_OK;
        case STORED_F16: *out = DTYPE_F16; return STATUS_OK;
        case STORED_BF16: *out = DTYPE_BF16; return STATUS_OK;
        default:
            return error_set(e, STATUS_UNSUPPORTED, "%s: stored as %s; F32, F16 and BF16 are supported", t->name,
                             stored_dtype_name(t->dtype));
    }
}

/* Finds a tensor, checks its shape ([rows, cols], or [rows] for a vector) and marks it used. */
static enum status find(struct loader *l, const char *name, int rows, int cols, const struct stored_tensor **out,
                        struct error *e) {
    const struct stored_tensor *t = weights_find(l->weights, name);
    if (t == NULL) return error_set(e, STATUS_INVALID, "tensor %s is missing", name);
    bool vector = cols == 1 && t->n_dims == 1;
    if (t->n_dims != (vector ? 1 : 2) || t->shape[0] != rows || (!vector && t->shape[1] != cols)) {
        char shape[120];
        return error_set(e, STATUS_INVALID, "tensor %s is %s, config.json makes it [%d, %d]", name,
                         stored_shape_text(t, shape, sizeof shape), rows, cols);
    }
    for (int i = 0; i < weights_count(l->weights); i++)
        if (weights_at(l->weights, i) == t) l->used[i] = true;
    *out = t;
    return STATUS_OK;
}

/* Row of the slot that stored row i of a part becomes: Q, then K, then V, heads in order. */
static int part_row(const struct dims *d, enum part part, int i) {
    int h = d->head_dim, q_rows = d->heads * h, k_rows = d->kv_heads * h;
    switch (part) {
        case PART_WHOLE:
        case PART_Q: return i;
        case PART_K: return q_rows + i;
        case PART_V: return q_rows + k_rows + i;
        case PART_QKV_BY_GROUP: {
            int per_group = d->heads / d->kv_heads, group = i / ((per_group + 2) * h), at = i % ((per_group + 2) * h);
            if (at < per_group * h) return group * per_group * h + at;
            at -= per_group * h;
            return at < h ? q_rows + group * h + at : q_rows + k_rows + group * h + at - h;
        }
        case PART_KV_BY_HEAD: {
            int head = i / (2 * h), at = i % (2 * h);
            return at < h ? head * h + at : q_rows + head * h + at - h;
        }
    }
    return 0;
}

static int part_rows(const struct dims *d, enum part part, int slot_rows) {
    if (part == PART_Q) return d->heads * d->head_dim;
    if (part == PART_K || part == PART_V) return d->kv_heads * d->head_dim;
    return slot_rows;
}

/* Copies one stored tensor into its rows of the staged slot. The first part sets the dtype. */
static enum status stage_part(struct loader *l, struct staged *s, const char *name, enum part part, struct error *e) {
    const struct stored_tensor *t = NULL;
    enum dtype dtype = DTYPE_F32;
    int n = part_rows(&l->model->dims, part, s->rows);
    if (find(l, name, n, s->cols, &t, e) || stored_to_dtype(t, &dtype, e)) return e->status;
    if (s->data == NULL) {
        s->dtype = dtype;
        s->data = malloc((size_t)s->rows * (size_t)s->cols * dtype_bytes(dtype));
        if (s->data == NULL) return error_set(e, STATUS_NO_MEMORY, "%s: no memory to stage it", name);
    }
    size_t from = (size_t)s->cols * dtype_bytes(dtype), to = (size_t)s->cols * dtype_bytes(s->dtype);
    for (int i = 0; i < n; i++)
        dtype_convert(s->data + (size_t)part_row(&l->model->dims, part, i) * to, s->dtype,
                      (const char *)t->data + (size_t)i * from, dtype, (size_t)s->cols);
    return STATUS_OK;
}

/* Small, zero-mean, the same on every run; norms must not vanish, so vectors are centred on 1. */
static enum status stage_random(struct loader *l, struct staged *s, float centre, struct error *e) {
    size_t n = (size_t)s->rows * (size_t)s->cols;
    s->dtype = DTYPE_F32;
    s->data = malloc(n * sizeof(float));
    if (s->data == NULL) return error_set(e, STATUS_NO_MEMORY, "no memory for %zu random weights", n);
    for (size_t i = 0; i < n; i++) {
        l->random = l->random * 6364136223846793005u + 1442695040888963407u;
        ((float *)(void *)s->data)[i] = centre + ((float)(l->random >> 40) * 0x1p-24f - 0.5f) * 0.04f;
    }
    return STATUS_OK;
}

/* The blocks of rows that are each split over ranks: Q, K, V; K, V; gate, up; or all rows as one. */
static int row_blocks(const struct dims *d, enum extent out, int blocks[3]) {
    int q = d->heads * d->head_dim, k = d->kv_heads * d->head_dim;
    switch (out) {
        case EXTENT_QKV:
            blocks[0] = q;
            blocks[1] = blocks[2] = k;
            return 3;
        case EXTENT_KV: blocks[0] = blocks[1] = q; return 2;
        case EXTENT_FC1: blocks[0] = blocks[1] = d->ffn; return d->gated ? 2 : 1;
        default: blocks[0] = extent_size(d, out); return 1;
    }
}

/* Cuts the staged slot in place to this rank's share; whole when there is one rank. */
static void staged_split(const struct loader *l, struct staged *s, const struct slot_info *info) {
    int size = l->model->comm->size, rank = l->model->comm->rank;
    size_t element = dtype_bytes(s->dtype);
    if (size == 1 || info->split == SPLIT_COPY) return;
    if (info->split == SPLIT_COLS) {
        int cols = s->cols / size;
        for (int i = 0; i < s->rows; i++)
            memmove(s->data + (size_t)i * (size_t)cols * element,
                    s->data + ((size_t)i * (size_t)s->cols + (size_t)rank * (size_t)cols) * element,
                    (size_t)cols * element);
        s->cols = cols;
        return;
    }
    int blocks[3], n = row_blocks(&l->model->dims, info->out, blocks), from = 0, to = 0;
    size_t row = (size_t)s->cols * element;
    for (int b = 0; b < n; b++) {
        int share = blocks[b] / size;
        memmove(s->data + (size_t)to * row, s->data + (size_t)(from + rank * share) * row, (size_t)share * row);
        from += blocks[b];
        to += share;
    }
    s->rows = to;
}

/* A staged vector becomes f32 on the device. */
static enum status place_vector(struct loader *l, const struct staged *s, float add_to_each, float **out,
                                struct error *e) {
    struct backend *b = l->model->backend;
    size_t n = (size_t)s->rows * (size_t)s->cols;
    float *host = malloc(n * sizeof(float) + 1);
    if (host == NULL) return error_set(e, STATUS_NO_MEMORY, "no memory to convert %zu numbers", n);
    dtype_convert(host, DTYPE_F32, s->data, s->dtype, n);
    for (size_t i = 0; i < n; i++) host[i] += add_to_each;
    void *device = NULL;
    enum status status = backend_alloc(b, &device, n * sizeof(float), "weights", e);
    if (status == STATUS_OK) {
        backend_upload(b, device, host, n * sizeof(float));
        status = backend_sync(b, e);
        *out = device;
        l->model->info.weight_bytes += n * sizeof(float);
    }
    free(host);
    return status;
}

static enum status place_matrix(struct loader *l, const struct staged *s, struct weight *w, struct error *e) {
    *w = (struct weight){.dtype = l->dtype, .n_out = s->rows, .n_in = s->cols};
    l->model->info.weight_bytes += (size_t)s->rows * (size_t)s->cols * dtype_bytes(l->dtype);
    return backend_pack(l->model->backend, w, &(struct host_matrix){.values = s->data, .dtype = s->dtype}, e);
}

static bool is_gamma(enum slot slot) {
    return slot == SLOT_NORM_IN_GAMMA || slot == SLOT_NORM_CROSS_GAMMA || slot == SLOT_NORM_MLP_GAMMA;
}

static enum status stage_slot(struct loader *l, struct staged *s, enum slot slot, const char *prefix, struct error *e) {
    const struct family *f = l->model->family;
    if (l->weights == NULL) return stage_random(l, s, is_gamma(slot) ? 1.0f : 0.0f, e);
    bool found = false;
    for (int i = 0; i < f->n_names; i++) {
        const struct weight_name *row = &f->names[i];
        char name[200];
        if (row->slot != slot) continue;
        for (size_t j = 0; j < ARRAY_COUNT(row->names) && row->names[j]; j++) {
            snprintf(name, sizeof name, "%s%s", prefix, row->names[j]);
            if (weights_find(l->weights, name)) break;
        }
        if (stage_part(l, s, name, row->part, e)) return e->status;
        found = true;
    }
    CHECK(found);
    return STATUS_OK;
}

static enum status load_slot(struct loader *l, struct layer *layer, enum slot slot, const char *prefix,
                             struct error *e) {
    const struct dims *d = &l->model->dims;
    const struct slot_info *info = &slot_table[slot];
    if ((info->cross && !layer->spec.cross) || (info->need == NEED_BETA && d->norm == NORM_RMS) ||
        (info->need == NEED_BIAS && !d->bias))
        return STATUS_OK;
    struct staged s = {.rows = extent_size(d, info->out), .cols = extent_size(d, info->in)};
    void *place = (char *)layer + info->offset;
    enum status status = stage_slot(l, &s, slot, prefix, e);
    if (status == STATUS_OK) {
        staged_split(l, &s, info);
        if (info->in == EXTENT_ONE)
            status = place_vector(l, &s, is_gamma(slot) && d->zero_centered_gamma ? 1.0f : 0.0f, place, e);
        else
            status = place_matrix(l, &s, place, e);
    }
    free(s.data);
    return status;
}

static enum status load_layer(struct loader *l, struct layer *layer, const char *prefix, struct error *e) {
    for (int slot = 0; slot < SLOT_COUNT; slot++)
        if (load_slot(l, layer, (enum slot)slot, prefix, e)) return e->status;
    return STATUS_OK;
}

/* A tensor outside the layers, staged whole; *s stays empty for a family without it. */
static enum status stage_outer(struct loader *l, struct staged *s, const char *name, float centre, struct error *e) {
    if (name == NULL) return STATUS_OK;
    return l->weights ? stage_part(l, s, name, PART_WHOLE, e) : stage_random(l, s, centre, e);
}

static enum status load_outer_vector(struct loader *l, const char *name, bool gamma, float **out, struct error *e) {
    struct staged s = {.rows = l->model->dims.hidden, .cols = 1};
    enum status status = stage_outer(l, &s, name, gamma ? 1.0f : 0.0f, e);
    if (status == STATUS_OK && s.data)
        status = place_vector(l, &s, gamma && l->model->dims.zero_centered_gamma ? 1.0f : 0.0f, out, e);
    free(s.data);
    return status;
}

static enum status load_table(struct loader *l, const char *name, int rows, struct tensor *out, struct error *e) {
    struct staged s = {.rows = rows, .cols = l->model->dims.hidden};
    float *device = NULL;
    enum status status = stage_outer(l, &s, name, 0.0f, e);
    if (status == STATUS_OK && s.data) {
        status = place_vector(l, &s, 0.0f, &device, e);
        *out = tensor_make(device, DTYPE_F32, rows, s.cols);
    }
    free(s.data);
    return status;
}

/* The output matrix: its own or the word table, this rank's rows of it. */
static enum status load_output(struct loader *l, const struct staged *word, struct error *e) {
    struct model *m = l->model;
    if (m->family->outer->output == NULL) return STATUS_OK;
    if (m->dims.tied && m->comm->size == 1) {
        m->output = m->word;
        return STATUS_OK;
    }
    struct staged own = {.rows = m->dims.padded_vocab, .cols = m->dims.hidden};
    enum status status = m->dims.tied ? STATUS_OK : stage_outer(l, &own, m->family->outer->output, 0.0f, e);
    if (status == STATUS_OK) {
        struct staged share = m->dims.tied ? *word : own;
        share.rows = m->local_vocab;
        share.data += (size_t)m->comm->rank * (size_t)m->local_vocab * (size_t)share.cols * dtype_bytes(share.dtype);
        status = place_matrix(l, &share, &m->output, e);
    }
    free(own.data);
    return status;
}

static enum status load_outer(struct loader *l, struct error *e) {
    struct model *m = l->model;
    const struct outer_names *o = m->family->outer;
    struct staged word = {.rows = m->dims.padded_vocab, .cols = m->dims.hidden};
    enum status status = stage_outer(l, &word, o->word, 0.0f, e);
    if (status == STATUS_OK) status = place_matrix(l, &word, &m->word, e);
    if (status == STATUS_OK) status = load_output(l, &word, e);
    free(word.data);
    if (status == STATUS_OK && m->dims.learned_positions)
        status = load_table(l, o->position, m->dims.max_positions, &m->position, e);
    if (status == STATUS_OK) status = load_table(l, o->type, m->dims.type_vocab, &m->type, e);
    if (status == STATUS_OK) status = load_outer_vector(l, o->embed_gamma, true, &m->embed_norm.gamma, e);
    if (status == STATUS_OK) status = load_outer_vector(l, o->embed_beta, false, &m->embed_norm.beta, e);
    if (status == STATUS_OK && m->dims.final_norm)
        status = load_outer_vector(l, o->final_gamma, true, &m->final_norm.gamma, e);
    if (status == STATUS_OK && m->dims.final_norm && m->dims.norm == NORM_LAYER)
        status = load_outer_vector(l, o->final_beta, false, &m->final_norm.beta, e);
    return status;
}

/* A tensor that nothing asked for means config.json and checkpoint disagree: better said than silently left out. */
static enum status check_all_used(const struct loader *l, struct error *e) {
    for (int i = 0; l->weights && i < weights_count(l->weights); i++) {
        const char *name = weights_at(l->weights, i)->name;
        if (!l->used[i] && !l->model->family->ignores(name))
            return error_set(e, STATUS_INVALID,
                             "tensor %s has no place in a %s model with this config.json (biases, tied embeddings, "
                             "retro_layers and num_layers decide)",
                             name, l->model->family->name);
    }
    return STATUS_OK;
}

enum status model_load_weights(struct model *m, const struct weights *w, enum dtype dtype, struct error *e) {
    struct loader l = {.model = m, .weights = w, .dtype = dtype, .random = 1};
    l.used = xcalloc(w ? (size_t)weights_count(w) + 1 : 1, sizeof *l.used);
    enum status status = load_outer(&l, e);
    char prefix[120];
    for (int i = 0; i < m->dims.n_layers && status == STATUS_OK; i++) {
        snprintf(prefix, sizeof prefix, m->family->outer->decoder_layer, i);
        m->layers[i].spec = m->family->decoder_layer(&m->dims, i);
        status = load_layer(&l, &m->layers[i], prefix, e);
    }
    for (int j = 0; j < m->n_encoder && status == STATUS_OK; j++) {
        snprintf(prefix, sizeof prefix, m->family->outer->encoder_layer, m->dims.first_retro_layer, j);
        m->encoder[j].spec = m->family->encoder_layer(&m->dims, j);
        status = load_layer(&l, &m->encoder[j], prefix, e);
    }
    if (status == STATUS_OK) status = check_all_used(&l, e);
    free(l.used);
    return status;
}

static void release_layer(struct backend *b, struct layer *layer) {
    for (int slot = 0; slot < SLOT_COUNT; slot++) {
        void *place = (char *)layer + slot_table[slot].offset;
        bool vector = slot_table[slot].in == EXTENT_ONE;
        backend_release(b, vector ? *(float **)place : ((struct weight *)place)->data);
    }
}

void model_release_weights(struct model *m) {
    struct backend *b = m->backend;
    for (int i = 0; i < m->dims.n_layers; i++) release_layer(b, &m->layers[i]);
    for (int j = 0; j < m->n_encoder; j++) release_layer(b, &m->encoder[j]);
    if (m->output.data != m->word.data) backend_release(b, m->output.data);
    backend_release(b, m->word.data);
    backend_release(b, m->position.data);
    backend_release(b, m->type.data);
    backend_release(b, m->embed_norm.gamma);
    backend_release(b, m->embed_norm.beta);
    backend_release(b, m->final_norm.gamma);
    backend_release(b, m->final_norm.beta);
}
