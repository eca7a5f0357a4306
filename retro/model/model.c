/* retro/model/model.c: opens a checkpoint folder: config.json, family, dimensions, weights. See
 * model.h. */
#include "retro/model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/model/distances.h"
#include "retro/model/packed.h"
#include "retro/weights/gguf_folder.h"

static bool same_name(const char *a, const char *b) { return a && b && strcmp(a, b) == 0; }

/* The keys that name a folder's family. "architecture" is our own, and Hugging Face's folders say
 * "model_type". Models whose code lies beside them have a class in "architectures" and no type. */
static const char *const family_keys[] = {"architecture", "model_type", "architectures"};

/* The folder's name for its family, and the key that has it. */
static const char *find_name(const struct json *config, const char **key) {
    const char *name = NULL;
    for (size_t i = 0; i < ARRAY_COUNT(family_keys) && name == NULL; i++) {
        const struct json *value = json_member(config, family_keys[i]);
        *key = family_keys[i];
        name = json_text(i == 2 ? json_item(value, 0) : value).text;
    }
    return name;
}

/* The family's own name under that key; NULL: it has none. */
static const char *name_of(const struct family *family, const char *key) {
    if (strcmp(key, "architecture") == 0) return family->architecture;
    return strcmp(key, "model_type") == 0 ? family->model_type : family->class_name;
}

/* "\"architecture\" retro, gpt; \"model_type\" bert, t5; ...". */
static void list_families(char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t k = 0; k < ARRAY_COUNT(family_keys); k++) {
        bool first = true;
        for (size_t i = 0; i < model_family_count && used < size; i++) {
            const char *name = name_of(model_families[i], family_keys[k]);
            if (name == NULL) continue;
            if (first)
                used += (size_t)snprintf(text + used, size - used, "%s\"%s\" %s", k > 0 ? "; " : "",
                                         family_keys[k], name);
            else
                used += (size_t)snprintf(text + used, size - used, ", %s", name);
            first = false;
        }
    }
}

static enum status find_family(const struct json *config, const struct family **out,
                               const char **name, struct error *e) {
    char known[1800];
    const char *key, *found = find_name(config, &key);
    for (size_t i = 0; i < model_family_count; i++) {
        if (!same_name(name_of(model_families[i], key), found)) continue;
        *out = model_families[i];
        *name = name_of(model_families[i], key);
        return STATUS_OK;
    }
    list_families(known, sizeof known);
    if (found == NULL)
        return error_set(
            e, STATUS_INVALID,
            "config.json: neither \"architecture\" nor \"model_type\" is a text; known: %s", known);
    return error_set(e, STATUS_UNSUPPORTED, "config.json: %s \"%.60s\" is unknown; known: %s", key,
                     found, known);
}

/* "rope_factors", our own key: what GGUF files say of Llama 3's frequencies. */
static enum status read_rope_factors(struct dims *dims, const struct json *config,
                                     struct error *e) {
    const struct json *list = json_member(config, "rope_factors");
    size_t pairs = (size_t)dims->rotated / 2;
    if (json_is_absent(list)) return STATUS_OK;
    if (json_count(list) != pairs || pairs == 0)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"rope_factors\" are %zu numbers, expected %zu",
                         json_count(list), pairs);
    for (size_t i = 0; i < pairs; i++) {
        float factor = (float)json_double(json_item(list, i));
        if (!(factor > 0) || !isfinite(factor))
            return error_set(e, STATUS_INVALID,
                             "config.json: \"rope_factors\" [%zu] is %g, must be positive", i,
                             (double)factor);
        dims->rope[ROPE_GLOBAL].inv_freq[i] /= factor;
    }
    return STATUS_OK;
}

/* Our own keys, which stand with those of the text: GGUF files have norms and decays as they are
 * computed with. */
static enum status read_own_keys(struct model_spec *spec, const struct json *config,
                                 struct error *e) {
    struct dims *decoder = &spec->stacks[STACK_DECODER];
    const struct json *text = json_member(config, "text_config");
    if (json_kind(text) != JSON_KIND_OBJECT) text = config;
    const struct json *centered = json_member(text, "zero_centered_norms");
    if (centered && !json_bool(centered))
        decoder->zero_centered_gamma = spec->projector.centered = false;
    const struct json *decay = json_member(text, "logarithmic_decay");
    decoder->state.plain_rate = decay && !json_bool(decay);
    return read_rope_factors(decoder, text, e);
}

/* generation_config.json has the last word on what ends a text. An id outside the vocabulary is
 * never drawn. */
static enum status read_ends(struct model *model, const char *folder, struct error *e) {
    struct model_spec *spec = &model->spec;
    if (generation_config_read(folder, &model->info.generation, e)) return e->status;
    const struct end_ids *stored =
        model->info.generation.ends.n > 0 ? &model->info.generation.ends : &spec->ends;
    struct end_ids ends = {.n = 0};
    if (stored->n == 0 && spec->eod >= 0 && end_ids_add(&ends, spec->eod, e)) return e->status;
    for (int i = 0; i < stored->n; i++)
        if (stored->ids[i] < spec->vocab && end_ids_add(&ends, stored->ids[i], e)) return e->status;
    spec->ends = ends;
    if (spec->eod < 0 && ends.n > 0) spec->eod = ends.ids[0];
    return STATUS_OK;
}

/* A family may know the shape of states that no layer of this model keeps. */
static void drop_states(struct model_spec *spec) {
    struct dims *dims = &spec->stacks[STACK_DECODER];
    bool keeps = false;
    for (int i = 0; i < dims->n_layers; i++) keeps = keeps || mixer_keeps_state(spec->mixers[i]);
    if (!keeps) dims->state = (struct state_dims){0};
}

static enum status read_config(struct model *model, const char *folder, struct error *e) {
    struct buffer text = {0};
    struct json *config = NULL;
    enum status status = config_read_text(folder, &text, e);
    if (status == STATUS_OK)
        status = json_parse(&config, (struct text_span){text.data, text.size}, "config.json", e);
    model->spec = model_spec_default();
    if (status == STATUS_OK) status = find_family(config, &model->family, &model->info.family, e);
    if (status == STATUS_OK) status = model->family->read(config, &model->spec, e);
    drop_states(&model->spec);
    if (status == STATUS_OK) status = read_own_keys(&model->spec, config, e);
    json_close(config);
    buffer_free(&text);
    return status ? status : read_ends(model, folder, e);
}

static enum status check_device(const struct model *model, struct error *e) {
    const char *device = model->backend->ops->name;
    bool latent = model->stacks[STACK_DECODER].dims.latent.rank > 0;
    const struct dims *decoder = &model->stacks[STACK_DECODER].dims;
    if (distances_check_device(model, e)) return e->status;
    if ((model->spec.chunk > 0 || decoder->experts_weigh_inputs) && strcmp(device, "cpu") != 0)
        return error_set(
            e, STATUS_UNSUPPORTED,
            "a %s model has attention in chunks, or experts that weigh what they read, "
            "which the kernels of %s do not know: use the device \"cpu\"",
            model->info.family, device);
    if (!latent || strcmp(device, "cpu") == 0) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "a %s model has latent attention, whose rows of %d columns the kernels of "
                     "%s do not hold: use the device \"cpu\"",
                     model->info.family, model->stacks[STACK_DECODER].dims.head_dim, device);
}

/* Counts a matrix of the decoder: a row uses some of the experts. */
static void count_matrix(struct model *model, const struct place *place, size_t bytes) {
    const struct dims *dims = &model->stacks[place->stack].dims;
    struct model_info *info = &model->info;
    size_t read = bytes;
    if (place_is_expert(place)) {
        read = bytes / (size_t)dims->experts * (size_t)dims->experts_used;
        info->expert_bytes += bytes;
        info->decode_expert_bytes += read;
    }
    info->decode_bytes += read;
}

/* Parameters, and the bytes that a plain decode step reads: all matrices of the decoder but the
 * projection of what cross attention reads to keys and values, and the experts that a row does not
 * use. The output matrix, which may be the word table, is added by the caller. */
static enum status count_place(void *context, const struct place *place, struct error *e) {
    (void)e;
    struct model *model = context;
    size_t count = (size_t)place->share.rows * (size_t)place->share.cols;
    bool again = place->at == &model->output.weight &&
                 model->spec.tied; /* a rank's own part of the word table */
    if (!again)
        model->info.n_parameters += (int64_t)place->share.whole_rows * place->share.whole_cols;
    if (place->elsewhere) return STATUS_OK;
    model->info.local_parameters += (int64_t)count;
    bool cross_kv = place->rows->rows[place->row].place == offsetof(struct layer, cross_kv);
    if (place->form == PLACE_MATRIX && !place->outer && place->stack == STACK_DECODER && !cross_kv)
        count_matrix(model, place, matrix_bytes(((const struct weight *)place->at)->dtype, count));
    return STATUS_OK;
}

/* The stack that gives a model its size: the one that writes, or the first. */
static const struct stack *main_stack(const struct model *model) {
    for (int id = 0; id < STACK_COUNT; id++)
        if (model_has_stack(model, (enum stack_id)id)) return &model->stacks[id];
    return &model->stacks[STACK_DECODER];
}

/* Rows of a picture in the tower; where any size is read, of the most patches that may be read at
 * once. */
static int count_picture_rows(const struct tower_spec *tower) {
    enum { MOST_PATCHES = 1 << 16 };
    int patches = tower->image_h > 0
                      ? tower->image_h / tower->patch * (tower->image_w / tower->patch)
                      : MOST_PATCHES;
    return tower->class_tokens + patches;
}

/* The type of the matrices that are the most of a model. */
static enum dtype main_dtype(const struct model *model, const struct stack *stack) {
    if (stack->layers == NULL) return model->projector.fc1.weight.dtype;
    const struct layer *first = &stack->layers[stack->kept.first];
    if (mixer_keeps_state(first->spec.mixer)) return first->state_in.weight.dtype;
    if (first->spec.mixer == MIXER_ATTENTION)
        return first->spec.latent ? first->latent_in.weight.dtype : first->qkv.weight.dtype;
    return first->spec.experts ? first->expert_fc1.weights[0].dtype : first->fc1.weight.dtype;
}

/* Bytes that a token's keys and values take on all ranks; each of them has whole latents. */
static size_t count_cache_bytes(const struct model *model, const struct stack *stack,
                                enum dtype dtype) {
    const struct dims *dims = &stack->dims;
    int copies = dims->latent.rank > 0 ? model->comm->size : 1;
    size_t bytes = 0;
    for (int i = 0; stack->layers && i < dims->n_layers; i++) {
        bool wide = stack->layers[i].spec.wide_heads;
        size_t heads = (size_t)(wide ? dims->wide_kv_heads : dims->kv_heads),
               head_dim = (size_t)(wide ? dims->wide_head_dim : dims->head_dim);
        if (layer_keeps_keys(&stack->layers[i])) bytes += cache_row_bytes(dtype, heads, head_dim);
    }
    return (size_t)(copies * stack_cache_parts(stack)) * bytes;
}

static void fill_info(struct model *model, const struct model_options *options) {
    const struct stack *stack = main_stack(model);
    const struct model_spec *spec = &model->spec;
    const struct retro_spec *retro = &spec->retro;
    const struct weight *output = &model->output.weight;
    struct model_info *info = &model->info;
    struct error none;
    model_visit(model, count_place, model, &none);
    info->mapped = model->mapped != NULL;
    if (model->fetches_experts) {
        info->mapped_expert_bytes = info->expert_bytes;
        info->held_expert_bytes = options->held_expert_bytes;
    }
    info->decode_bytes += matrix_bytes(output->dtype, (size_t)output->n_out * (size_t)output->n_in);
    info->dtype = main_dtype(model, stack);
    info->cache_dtype = info->dtype == DTYPE_F32 ? DTYPE_F32 : DTYPE_F16;
    if (options->cache_given) info->cache_dtype = options->cache_dtype;
    info->cache_narrows = model_cache_narrows(model);

    info->n_layers = stack->dims.n_layers;
    info->hidden = stack->dims.hidden;
    info->heads = stack->dims.heads;
    info->head_dim = stack->dims.head_dim;
    info->ffn = stack->dims.ffn;
    info->vocab = spec->vocab;
    info->padded_vocab = spec->padded_vocab;
    info->trained_positions = spec->max_positions;
    info->max_positions = spec_is_bounded(spec) ? spec->max_positions : 0;
    info->writes = model_writes(model);
    info->picture_rows =
        model_writes(model) && spec->projector.out > 0 ? count_picture_rows(&spec->tower) : 0;
    bool behind = info->picture_rows > 0 && spec->picture.id == spec->vocab;
    info->text_ids = spec->vocab + behind;
    info->any_picture = info->picture_rows > 0 && spec->tower.image_h == 0;
    info->picture_columns = info->picture_rows > 0 ? model_given_columns(model) : 0;
    info->reads_source = stack->dims.reads == EDGE_SOURCE;
    info->start = spec->start;
    info->eod = spec->eod;
    info->ends = spec->ends;
    int n_states = stack_count_states(stack, 0, stack->dims.n_layers);
    const struct state_dims *state = &stack->dims.state;
    info->cache_row_bytes = count_cache_bytes(model, stack, info->cache_dtype);
    info->state_bytes = (size_t)n_states * sizeof(float) *
                        state_columns(state, state->key_heads, state->value_heads);
    info->n_retro_layers = retro->n_layers;
    if (retro->n_layers == 0) return;
    info->cache_row_bytes += (size_t)stack->dims.hidden * sizeof(float); /* kv_cache.h: normed */
    info->chunk_length = retro->chunk_length;
    info->num_neighbors = retro->num_neighbors;
    info->retrieved_length = retro->retrieved_length;
}

static struct expert_projections take_experts(const struct dims *dims) {
    struct expert_projections experts = {0};
    experts.weights = xcalloc((size_t)dims->experts, sizeof *experts.weights);
    if (dims->expert_bias) experts.biases = xcalloc((size_t)dims->experts, sizeof *experts.biases);
    return experts;
}

static void free_experts(struct expert_projections *experts) {
    free(experts->weights);
    free(experts->biases);
}

static void take_heads(struct layer *layer, int heads) {
    layer->latent_keys = xcalloc((size_t)heads, sizeof *layer->latent_keys);
    layer->latent_values = xcalloc((size_t)heads, sizeof *layer->latent_values);
}

/* Layers exist from here on; the depth of an encoder may come from the checkpoint (inspect). */
static void make_layers(struct model *model) {
    for (int id = 0; id < STACK_COUNT; id++) {
        struct stack *stack = &model->stacks[id];
        int n = stack->dims.n_layers;
        if (n == 0) continue;
        stack->layers = xcalloc((size_t)n, sizeof *stack->layers);
        for (int i = 0; i < n; i++) {
            struct layer *layer = &stack->layers[i];
            layer->spec = model_part_of(model, (enum stack_id)id)
                              .family->layer(&model->spec, (enum stack_id)id, i);
            if (layer->spec.latent) take_heads(layer, stack->dims.heads);
            if (!layer->spec.experts) continue;
            layer->expert_fc1 = take_experts(&stack->dims);
            layer->expert_fc2 = take_experts(&stack->dims);
        }
    }
}

static enum status open_weights(struct model *model, struct weights *weights, bool packed,
                                const struct model_options *options, struct error *e) {
    if (weights && model->family->inspect) model->family->inspect(weights, &model->spec);
    if (model_split(model, e) || check_device(model, e) || model_check_cache(model, options, e))
        return e->status;
    make_layers(model);
    model->opened = true;
    model_resolve(model, weights);
    enum status status = packed ? model_load_packed(model, weights, options, e)
                                : model_load_weights(model, weights, options, e);
    bool empty = options->check_only || options->passed;
    if (status == STATUS_OK) status = distances_open(model, empty, e);
    if (status) return status;
    if (model_writes(model) && model->spec.tied && model->comm->size == 1)
        model->output.weight = model->embedding.word;
    fill_info(model, options);
    return STATUS_OK;
}

static enum status open_folder(struct model *model, const char *folder,
                               const struct model_options *options, struct error *e) {
    struct weights *weights = NULL;
    bool packed = false;
    if (read_config(model, folder, e)) return e->status;
    if (!options->random && model_files_open(&weights, &packed, folder, e)) return e->status;
    if (packed) model->mapped = weights;
    model->fetches_experts = packed && options->fetch_experts;
    enum status status = open_weights(model, weights, packed, options, e);
    if (!packed) weights_close(weights);
    return status;
}

enum status model_open(struct model **out, const char *folder, struct backend *backend,
                       struct comm *comm, const struct model_options *options, struct error *e) {
    struct error local;
    if (e == NULL) e = &local;
    struct model *model = xcalloc(1, sizeof *model);
    model->backend = backend;
    model->comm = comm;
    model->rows_only = options->rows_only;
    enum status status = open_folder(model, folder, options, e);
    if (status) {
        model_close(model);
        return error_prefix(e, "%s", folder);
    }
    *out = model;
    return STATUS_OK;
}

static void free_layers(struct stack *stack) {
    for (int i = 0; stack->layers && i < stack->dims.n_layers; i++) {
        free_experts(&stack->layers[i].expert_fc1);
        free_experts(&stack->layers[i].expert_fc2);
        free(stack->layers[i].latent_keys);
        free(stack->layers[i].latent_values);
        free(stack->layers[i].distance_keys);
        free(stack->layers[i].distance_queries);
    }
    free(stack->layers);
}

void model_close(struct model *model) {
    if (model == NULL) return;
    if (model->opened) distances_release(model);
    if (model->opened) model_release_weights(model);
    weights_close(model->mapped);
    for (int id = 0; id < STACK_COUNT; id++) free_layers(&model->stacks[id]);
    free(model);
}

const struct model_info *model_info(const struct model *model) { return &model->info; }
