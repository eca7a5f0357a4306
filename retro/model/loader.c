/* retro/model/loader.c: loads and releases the weights of a model, one place after another. See loader.h. */
#include "retro/model/loader.h"

#include <stdlib.h>
#include <string.h>

enum { WORTH_PROGRESS = 256 << 20 };

/* A large model takes a while: rank 0 says every other second how far it is. */
static void report_progress(struct loader *l) {
    double now = time_now();
    if (l->model->comm->world->rank > 0 || l->total < WORTH_PROGRESS || now - l->shown < 2) return;
    l->shown = now;
    log_info("loading weights: %.0f %% of %.1f GB", 100 * (double)l->done / (double)l->total, 1e-9 * (double)l->total);
}

/* A router and the gate of a shared expert are small, and a change of them sends rows elsewhere. */
static bool is_routing(const struct place *p) {
    size_t place = p->rows->rows[p->row].place;
    return !p->outer && (place == offsetof(struct layer, router) || place == offsetof(struct layer, shared_gate));
}

void loader_report(struct loader *l, const char *name, const struct place *p, const struct tensor_row *row) {
    const struct model_options *o = l->options;
    report_progress(l);
    if (o->loaded == NULL) return;
    enum tensor_role role = p->form != PLACE_MATRIX || is_routing(p) ? TENSOR_OTHER
                            : p->at == &l->model->embedding.word     ? TENSOR_WORD
                            : p->at == &l->model->output.weight      ? TENSOR_OUTPUT
                            : p->at == &l->model->tower.patch.weight ? TENSOR_OTHER
                                                                     : TENSOR_LINEAR;
    o->loaded(o->context, &(struct loaded_tensor){.name = name,
                                                  .role = role,
                                                  .weight = p->form == PLACE_MATRIX ? p->at : NULL,
                                                  .transposed = row->transposed && p->form == PLACE_MATRIX,
                                                  .done = l->done,
                                                  .total = l->total});
}

/* A matrix keeps its type, or takes the one the options ask for. One that no blocks fit stays wider: random or fp8. */
static enum dtype choose_dtype(const struct loader *l, enum dtype from, int cols) {
    const struct model_options *o = l->options;
    if (!o->convert) return from;
    if (l->weights == NULL && dtype_quantised(o->dtype)) return dtype_quantised(from) ? from : DTYPE_BF16;
    return o->dtype == DTYPE_FP8 && cols % QUANTISE_BLOCK != 0 ? DTYPE_BF16 : o->dtype;
}

/* Bytes that a place takes on the device. */
static size_t count_bytes(const struct model *m, const struct place *p) {
    int rows, cols;
    place_kept(m, p, &rows, &cols);
    size_t n = (size_t)rows * (size_t)cols;
    return p->form == PLACE_MATRIX ? matrix_bytes(((const struct weight *)p->at)->dtype, n) : n * sizeof(float);
}

static enum status load_place(void *context, const struct place *p, struct error *e) {
    struct loader *l = context;
    struct staged_place s = {.rows = p->share.rows, .cols = p->share.cols};
    if (comm_working(l->model->comm->world, e)) return e->status;
    if (p->elsewhere && l->weights == NULL) return STATUS_OK;
    enum status status = l->weights ? loader_stage(l, &s, p, e) : loader_stage_random(l, &s, p, e);
    if (status || p->elsewhere) return status;
    if (p->form == PLACE_MATRIX)
        *(struct weight *)p->at = (struct weight){
            .dtype = choose_dtype(l, s.planes.dtype, s.cols), .n_out = p->share.rows, .n_in = p->share.cols};
    l->model->info.weight_bytes += count_bytes(l->model, p);
    if (l->options->check_only) return STATUS_OK;
    return loader_upload(l, &s, p, e);
}

/* The output matrix of a model that gives rows alone is rightly not used. */
static bool names_output(const struct model *m, const char *name) {
    const struct tensor_rows *rows = &m->family->outer;
    struct place p = {.prefix = "", .rows = rows};
    char spelling[TENSOR_NAME];
    for (int i = 0; m->rows_only && i < rows->n; i++) {
        if (rows->rows[i].place != offsetof(struct model, output)) continue;
        for (int bias = 0; bias <= 1; bias++) {
            p.bias = bias;
            for (int j = 0; place_spelling(&p, i, j, spelling); j++)
                if (strcmp(spelling, name) == 0) return true;
        }
    }
    return false;
}

/* A tensor that nothing asked for means config.json and checkpoint disagree: better said than silently left out. */
static enum status check_all_used(const struct loader *l, struct error *e) {
    for (int i = 0; l->weights && i < weights_count(l->weights); i++) {
        const char *name = weights_at(l->weights, i)->name;
        bool ignored = l->model->family->ignores && l->model->family->ignores(name);
        if (!l->used[i] && !ignored && !names_output(l->model, name))
            return error_set(e, STATUS_INVALID,
                             "tensor %s has no place in a %s model with this config.json (biases, tied embeddings, "
                             "retro_layers and num_layers decide)",
                             name, l->model->info.family);
    }
    return STATUS_OK;
}

/* Files with blocks of other types than ours keep a little less than they hold. */
static void report_loss(const struct loader *l) {
    if (l->n_lost == 0 || l->model->comm->world->rank > 0) return;
    log_info(
        "%d tensors hold blocks that int8 and int4 do not fit: relative error %.3f %%; model.dtype bf16 or f32 "
        "keeps more, in two to four times the memory",
        l->n_lost, 100 * deviation_relative(&l->lost));
}

enum status model_load_weights(struct model *m, const struct weights *w, const struct model_options *o,
                               struct error *e) {
    struct loader l = {.model = m, .weights = w, .options = o, .shown = time_now(), .random = 1};
    int count = w ? weights_count(w) : 0;
    l.used = xcalloc((size_t)count + 1, sizeof *l.used);
    for (int i = 0; i < count; i++) l.total += weights_at(w, i)->bytes;
    enum status status = model_visit(m, load_place, &l, e);
    if (status == STATUS_OK) status = check_all_used(&l, e);
    if (status == STATUS_OK) report_loss(&l);
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
