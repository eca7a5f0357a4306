/* retro/model/model.c: opens a checkpoint folder: config.json, family, dimensions, weights. See model.h. */
#include "retro/model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/weights/packed.h"

static const struct family *const families[] = {&family_retro, &family_gpt, &family_bert};

/* "architecture" is our own key; Hugging Face folders say "model_type". */
static enum status find_family(const json_t *config, const struct family **out, struct error *e) {
    const json_t *value = json_object_get(config, "architecture");
    if (value == NULL) value = json_object_get(config, "model_type");
    const char *name = json_string_value(value);
    if (name == NULL)
        return error_set(e, STATUS_INVALID, "config.json: \"architecture\" is missing; known are retro, gpt, bert");
    for (size_t i = 0; i < ARRAY_COUNT(families); i++) {
        if (strcmp(families[i]->name, name) != 0) continue;
        *out = families[i];
        return STATUS_OK;
    }
    return error_set(e, STATUS_UNSUPPORTED,
                     "config.json: architecture \"%.60s\" is unknown; known are retro, gpt, bert", name);
}

static enum status read_config(struct model *m, const char *folder, struct error *e) {
    char path[4096];
    json_t *config = NULL;
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (json_load_path(&config, path, e)) return e->status;
    enum status status = find_family(config, &m->family, e);
    if (status == STATUS_OK) status = m->family->read_dims(config, &m->dims, e);
    json_decref(config);
    return status;
}

/* This rank's portion of n times `unit`, in whole units, as evenly as they divide. */
static struct portion portion_of(const struct comm *c, int n, int unit) {
    int first = (int)((int64_t)n * c->rank / c->size), end = (int)((int64_t)n * (c->rank + 1) / c->size);
    return (struct portion){first * unit, (end - first) * unit};
}

/* Ranks share whole key/value heads, each with the query heads that read it, and the MLP, in blocks that may be
 * quantised where there are enough of them. The parts of the vocabulary are equal, and overlap where it does not
 * divide. */
static enum status split_dims(struct model *m, struct error *e) {
    const struct dims *d = &m->dims;
    const struct comm *c = m->comm;
    int most = min_int(d->kv_heads, d->ffn), group = d->heads / d->kv_heads;
    if (c->size > most)
        return error_set(
            e, STATUS_INVALID,
            "parallel.tensor is %d, and this model's %d key/value heads and %d MLP columns are enough for %d", c->size,
            d->kv_heads, d->ffn, most);
    bool blocks = d->ffn % QUANTISE_BLOCK == 0 && d->ffn / QUANTISE_BLOCK >= c->size;
    int unit = blocks ? QUANTISE_BLOCK : 1, vocab = (d->padded_vocab + c->size - 1) / c->size;
    m->local.kv_heads = portion_of(c, d->kv_heads, 1);
    m->local.heads = portion_of(c, d->kv_heads, group);
    m->local.ffn = portion_of(c, d->ffn / unit, unit);
    m->local.vocab = (struct portion){gathered_col(d->padded_vocab, vocab, c->rank), vocab};
    return STATUS_OK;
}

static int first_layer(const struct model *m, int stage) {
    return (int)((int64_t)m->dims.n_layers * stage / m->comm->stages);
}

static int stage_of(const struct model *m, int layer) {
    int stage = 0;
    while (first_layer(m, stage + 1) <= layer) stage++;
    return stage;
}

/* Stages have equally many layers, or one less. */
static enum status split_layers(struct model *m, struct error *e) {
    const struct dims *d = &m->dims;
    if (m->comm->stages > d->n_layers)
        return error_set(e, STATUS_INVALID, "parallel.pipeline is %d and the model has %d layers", m->comm->stages,
                         d->n_layers);
    m->first_layer = first_layer(m, m->comm->stage);
    m->end_layer = first_layer(m, m->comm->stage + 1);
    m->encodes = m->reads = -1;
    for (int i = d->n_layers - 1; i >= 0; i--) {
        if (!d->retro_layer[i]) continue;
        m->encodes = stage_of(m, i);
        m->reads = max_int(m->reads, m->encodes);
    }
    return STATUS_OK;
}

/* Frequencies in float32, as the reference computes them (spec 4.4). */
static void make_frequencies(struct model *m) {
    int half = m->dims.rotated / 2;
    m->inv_freq = xmalloc((size_t)max_int(half, 1) * sizeof(float));
    for (int i = 0; i < half; i++)
        m->inv_freq[i] = 1.0f / powf(m->dims.rope_base, (float)(2 * i) / (float)m->dims.rotated);
}

/* Parameters, and what a plain decode step reads: all matrices of the decoder but the projection of neighbours to keys
 * and values. The output matrix, which may be the word table, is added by the caller. */
static enum status count_place(void *context, const struct place *p, struct error *e) {
    (void)e;
    struct model *m = context;
    size_t count = (size_t)p->share.rows * (size_t)p->share.cols;
    bool again = p->at == &m->output && m->dims.tied; /* a rank's own part of the word table */
    if (!again) m->info.n_parameters += (int64_t)p->share.whole_rows * p->share.whole_cols;
    if (p->elsewhere) return STATUS_OK;
    m->info.local_parameters += (int64_t)count;
    if (p->form == PLACE_MATRIX && !p->outer && !p->encoder && p->slot != SLOT_CROSS_KV)
        m->info.decode_bytes += matrix_bytes(((const struct weight *)p->at)->dtype, count);
    return STATUS_OK;
}

static void fill_info(struct model *m) {
    const struct dims *d = &m->dims;
    struct model_info *info = &m->info;
    struct error none;
    model_visit(m, count_place, m, &none);
    info->mapped = m->mapped != NULL;
    info->decode_bytes += matrix_bytes(m->output.dtype, (size_t)m->output.n_out * (size_t)m->output.n_in);
    info->dtype = m->layers[m->first_layer].qkv.weight.dtype;
    info->cache_dtype = dtype_quantised(info->dtype) ? DTYPE_F16 : info->dtype == DTYPE_FP8 ? DTYPE_BF16 : info->dtype;
    info->family = m->family->name;
    info->n_layers = d->n_layers;
    info->hidden = d->hidden;
    info->heads = d->heads;
    info->head_dim = d->head_dim;
    info->ffn = d->ffn;
    info->vocab = d->vocab;
    info->padded_vocab = d->padded_vocab;
    info->max_positions = d->learned_positions ? d->max_positions : 0;
    info->n_retro_layers = d->n_retro_layers;
    info->chunk_length = d->n_retro_layers ? d->chunk_length : 0;
    info->num_neighbors = d->n_retro_layers ? d->num_neighbors : 0;
    info->retrieved_length = d->n_retro_layers ? d->retrieved_length : 0;
    info->eod = d->eod;
}

static enum status open_weights(struct model *m, const char *folder, const struct model_options *o, struct error *e) {
    struct weights *w = NULL;
    bool packed = false;
    if (!o->random && model_files_open(&w, &packed, folder, e)) return e->status;
    if (w) m->family->inspect(w, &m->dims);
    m->n_encoder = m->dims.n_retro_layers ? m->dims.encoder_layers : 0;
    m->layers = xcalloc((size_t)m->dims.n_layers, sizeof *m->layers);
    m->encoder = xcalloc((size_t)m->n_encoder + 1, sizeof *m->encoder);
    for (int i = 0; i < m->dims.n_layers; i++) m->layers[i].spec = m->family->decoder_layer(&m->dims, i);
    for (int j = 0; j < m->n_encoder; j++) m->encoder[j].spec = m->family->encoder_layer(&m->dims, j);
    if (packed) m->mapped = w;
    enum status status = packed ? model_load_packed(m, w, o, e) : model_load_weights(m, w, o, e);
    if (status == STATUS_OK && m->family->outer->output && m->dims.tied && m->comm->size == 1) m->output = m->word;
    if (status == STATUS_OK) fill_info(m);
    if (!packed) weights_close(w);
    return status;
}

struct model_options model_options_of(int dtype) {
    static const enum dtype dtypes[] = {[MODEL_DTYPE_F32] = DTYPE_F32,
                                        [MODEL_DTYPE_F16] = DTYPE_F16,
                                        [MODEL_DTYPE_BF16] = DTYPE_BF16,
                                        [MODEL_DTYPE_FP8] = DTYPE_FP8};
    struct model_options o = {.convert = dtype != MODEL_DTYPE_AUTO};
    if (o.convert) o.dtype = dtypes[dtype];
    return o;
}

enum status model_open(struct model **out, const char *folder, struct backend *b, struct comm *c,
                       const struct model_options *o, struct error *e) {
    struct error local;
    if (e == NULL) e = &local;
    struct model *m = xcalloc(1, sizeof *m);
    m->backend = b;
    m->comm = c;
    enum status status = read_config(m, folder, e);
    if (status == STATUS_OK) status = split_dims(m, e);
    if (status == STATUS_OK) status = split_layers(m, e);
    if (status == STATUS_OK) {
        make_frequencies(m);
        status = open_weights(m, folder, o, e);
    }
    if (status) {
        model_close(m);
        return error_prefix(e, "%s", folder);
    }
    *out = m;
    return STATUS_OK;
}

void model_close(struct model *m) {
    if (m == NULL) return;
    if (m->layers) model_release_weights(m);
    weights_close(m->mapped);
    free(m->layers);
    free(m->encoder);
    free(m->inv_freq);
    free(m);
}

const struct model_info *model_info(const struct model *m) { return &m->info; }
