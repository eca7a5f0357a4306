/* retro/model/loader.c: loads and releases the weights of a model, one place after another. See
 * loader.h. */
#include "retro/model/loader.h"

#include <stdlib.h>
#include <string.h>

enum { WORTH_PROGRESS = 256 << 20 };

/* A large model takes a while: rank 0 says every other second how far it is. */
static void report_progress(struct loader *loader) {
    double now = time_now();
    if (loader->model->comm->world->rank > 0 || loader->total < WORTH_PROGRESS ||
        now - loader->shown < 2)
        return;
    loader->shown = now;
    log_info("loading weights: %.0f %% of %.1f GB",
             100 * (double)loader->done / (double)loader->total, 1e-9 * (double)loader->total);
}

void loader_report(struct loader *loader, const char *name, const struct place *place,
                   const struct tensor_row *row, bool transposed) {
    const struct model_options *options = loader->options;
    report_progress(loader);
    if (options->loaded == NULL) return;
    bool stays = place->form != PLACE_MATRIX || place_routes(place) || part_is_head(row->part) ||
                 row->columns_in_turn;
    enum tensor_role role = stays                                             ? TENSOR_OTHER
                            : place->at == &loader->model->embedding.word     ? TENSOR_WORD
                            : place->at == &loader->model->output.weight      ? TENSOR_OUTPUT
                            : place->at == &loader->model->tower.patch.weight ? TENSOR_OTHER
                                                                              : TENSOR_LINEAR;
    options->loaded(options->context,
                    &(struct loaded_tensor){
                        .name = name,
                        .role = role,
                        .weight = place->form == PLACE_MATRIX ? place->at : NULL,
                        .transposed = transposed && place->form == PLACE_MATRIX,
                        .table_rows = place->form == PLACE_TABLE ? place->share.whole_rows : 0,
                        .done = loader->done,
                        .total = loader->total});
}

/* A matrix keeps its type, or takes the one the options ask for. One that no blocks fit stays
 * wider: random or fp8. Devices other than the CPU hold MXFP4 as bf16, which loses nothing. One
 * that routes is f32 everywhere, as kernels round the rows that meet 16 bits or blocks. */
static enum dtype choose_dtype(const struct loader *loader, const struct place *place,
                               enum dtype from, int cols) {
    const struct model_options *options = loader->options;
    if (place_routes(place)) return DTYPE_F32;
    bool cpu = strcmp(loader->model->backend->ops->name, "cpu") == 0;
    if (!options->convert) return from == DTYPE_MXFP4 && !cpu ? DTYPE_BF16 : from;
    if (loader->weights == NULL && dtype_quantised(options->dtype))
        return dtype_quantised(from) ? from : DTYPE_BF16;
    return options->dtype == DTYPE_FP8 && cols % QUANTISE_BLOCK != 0 ? DTYPE_BF16 : options->dtype;
}

/* Bytes that a place takes on the device. */
static size_t count_bytes(const struct model *model, const struct place *place) {
    int rows, cols;
    place_kept(model, place, &rows, &cols);
    size_t n = (size_t)rows * (size_t)cols;
    return place->form == PLACE_MATRIX ? matrix_bytes(((const struct weight *)place->at)->dtype, n)
                                       : n * sizeof(float);
}

static bool lies_mapped(const struct model *model, const struct place *place) {
    return model->mapped && (!model->fetches_experts || place_is_expert(place));
}

static enum status release_place(void *context, const struct place *place, struct error *e) {
    (void)e;
    struct model *model = context;
    struct backend *backend = model->backend;
    switch (place->form) {
        case PLACE_MATRIX:
            if (!lies_mapped(model, place))
                backend_release(backend, ((struct weight *)place->at)->data);
            ((struct weight *)place->at)->data = NULL;
            break;
        case PLACE_RELATIVE:
        case PLACE_TABLE:
            backend_release(backend, ((struct tensor *)place->at)->data);
            ((struct tensor *)place->at)->data = NULL;
            break;
        case PLACE_GAMMA:
        case PLACE_VECTOR:
            backend_release(backend, *(float **)place->at);
            *(float **)place->at = NULL;
            break;
    }
    return STATUS_OK;
}

/* Hands a place on, and gives its memory back. */
static enum status pass_place(struct loader *loader, const struct place *place, struct error *e) {
    const struct model_options *options = loader->options;
    enum status status = options->passed(options->context, place, e);
    release_place(loader->model, place, e);
    return status;
}

static enum status load_place(void *context, const struct place *place, struct error *e) {
    struct loader *loader = context;
    struct staged_place staged = {.rows = place->share.rows, .cols = place->share.cols};
    if (comm_working(loader->model->comm->world, e)) return e->status;
    if (place->elsewhere && loader->weights == NULL) return STATUS_OK;
    enum status status = loader->weights ? loader_stage(loader, &staged, place, e)
                                         : loader_stage_random(loader, &staged, place, e);
    if (status || place->elsewhere) return status;
    if (place->form == PLACE_MATRIX)
        *(struct weight *)place->at =
            (struct weight){.dtype = choose_dtype(loader, place, staged.planes.dtype, staged.cols),
                            .n_out = place->share.rows,
                            .n_in = place->share.cols};
    loader->model->info.weight_bytes += count_bytes(loader->model, place);
    if (loader->options->check_only) return STATUS_OK;
    if (loader_upload(loader, &staged, place, e)) return e->status;
    return loader->options->passed ? pass_place(loader, place, e) : STATUS_OK;
}

/* The output matrix of a model that gives rows alone, or cannot write, is rightly not used. */
static bool names_output(const struct model *model, const char *name) {
    const struct tensor_rows *rows = &model->family->outer;
    struct place place = {.prefix = "", .rows = rows};
    char spelling[TENSOR_NAME];
    bool unused = model->rows_only || model->spec.two_sided;
    for (int i = 0; unused && i < rows->n; i++) {
        if (rows->rows[i].place != offsetof(struct model, output)) continue;
        for (int bias = 0; bias <= 1; bias++) {
            place.bias = bias;
            for (int j = 0; place_spelling(&place, i, j, spelling); j++)
                if (strcmp(spelling, name) == 0) return true;
        }
    }
    return false;
}

/* Of layers that foretell further tokens: behind the last one, or with a name that says so. */
static bool is_further(const struct model *model, const char *name) {
    const char *at = strncmp(name, "model.", 6) == 0 ? name + 6 : name;
    if (!model->family->further_layers) return false;
    if (strncmp(at, "mtp", 3) == 0) return true;
    if (strncmp(at, "layers.", 7) != 0) return false;
    return strtol(at + 7, NULL, 10) >= model->spec.stacks[STACK_DECODER].n_layers;
}

/* A tensor that nothing asked for means config.json and checkpoint disagree: better said than
 * silently left out. */
static enum status check_all_used(const struct loader *loader, struct error *e) {
    for (int i = 0; loader->weights && i < weights_count(loader->weights); i++) {
        const char *name = weights_at(loader->weights, i)->name;
        bool ignored = loader->model->family->ignores && loader->model->family->ignores(name);
        ignored = ignored || is_further(loader->model, name);
        if (!loader->used[i] && !ignored && !names_output(loader->model, name))
            return error_set(e, STATUS_INVALID,
                             "tensor %s has no place in a %s model with this config.json (biases, "
                             "tied embeddings, "
                             "retro_layers and num_layers decide)",
                             name, loader->model->info.family);
    }
    return STATUS_OK;
}

/* Files with blocks of other types than ours keep a little less than they hold. */
static void report_loss(const struct loader *loader) {
    if (loader->n_lost == 0 || loader->model->comm->world->rank > 0) return;
    log_info(
        "%d tensors hold blocks that int8 and int4 do not fit: relative error %.3f %%; model.dtype "
        "bf16 or f32 "
        "keeps more, in two to four times the memory",
        loader->n_lost, 100 * deviation_relative(&loader->lost));
}

enum status model_load_weights(struct model *model, const struct weights *weights,
                               const struct model_options *options, struct error *e) {
    struct loader loader = {
        .model = model, .weights = weights, .options = options, .shown = time_now(), .random = 1};
    int count = weights ? weights_count(weights) : 0;
    loader.used = xcalloc((size_t)count + 1, sizeof *loader.used);
    for (int i = 0; i < count; i++) loader.total += weights_at(weights, i)->bytes;
    enum status status = model_visit(model, load_place, &loader, e);
    if (status == STATUS_OK) status = check_all_used(&loader, e);
    if (status == STATUS_OK) report_loss(&loader);
    for (int i = 0; i < ROOMS; i++) free(loader.rooms[i].data);
    free(loader.used);
    return status;
}

void model_release_weights(struct model *model) {
    struct error none;
    model_visit(model, release_place, model, &none);
}
