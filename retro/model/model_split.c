/* retro/model/model_split.c: a rank's share of a model: heads, columns of MLPs, rows of the
 * vocabulary, and the layers of its stage. See model_private.h. */
#include "retro/model/model_private.h"

/* This rank's portion of n times `unit`, in whole units, as evenly as they divide. */
static struct portion portion_of(const struct comm *comm, int n, int unit) {
    int first = (int)((int64_t)n * comm->rank / comm->size),
        end = (int)((int64_t)n * (comm->rank + 1) / comm->size);
    return (struct portion){first * unit, (end - first) * unit};
}

/* A rank's columns of an MLP, in blocks that may be quantised where there are enough of them. */
static struct portion portion_of_ffn(const struct comm *comm, int ffn) {
    bool blocks = ffn % QUANTISE_BLOCK == 0 && ffn / QUANTISE_BLOCK >= comm->size;
    int unit = blocks ? QUANTISE_BLOCK : 1;
    return portion_of(comm, ffn / unit, unit);
}

/* The fewest columns of an MLP. */
static int narrowest_ffn(const struct dims *dims) {
    int n = dims->ffn;
    if (dims->experts > 0) n = min_int(n, dims->expert_ffn);
    if (dims->shared_ffn > 0) n = min_int(n, dims->shared_ffn);
    return n;
}

/* The most ranks that can share the mixers with states. */
static int state_units(const struct state_dims *dims) {
    return dims->key_heads == 1 ? dims->value_heads : dims->key_heads;
}

/* Ranks share whole key heads, each with the value heads that read it. A single key head is whole
 * on all of them, and its value heads are shared. The channels of a convolution are as those of an
 * MLP. */
static void split_states(struct stack *stack, const struct comm *comm) {
    const struct state_dims *dims = &stack->dims.state;
    if (dims->kernel == 0) return;
    int group = dims->value_heads / dims->key_heads;
    if (dims->mixer == MIXER_CONVOLUTION) {
        stack->state_heads = portion_of_ffn(comm, dims->value_heads);
        stack->state_keys = stack->state_heads;
    } else if (dims->key_heads == 1) {
        stack->state_heads = portion_of(comm, dims->value_heads, 1);
        stack->state_keys = (struct portion){0, 1};
    } else {
        stack->state_heads = portion_of(comm, dims->key_heads, group);
        stack->state_keys = portion_of(comm, dims->key_heads, 1);
    }
}

/* Every rank has the latents, which all heads read. */
static void split_heads(struct stack *stack, const struct comm *comm) {
    const struct dims *dims = &stack->dims;
    bool latent = dims->latent.rank > 0;
    int units = latent ? dims->heads : dims->kv_heads;
    stack->kv_heads = latent ? (struct portion){0, 1} : portion_of(comm, units, 1);
    stack->heads = portion_of(comm, units, dims->heads / units);
    if (dims->wide_head_dim == 0) return;
    stack->wide_kv_heads = portion_of(comm, dims->wide_kv_heads, 1);
    stack->wide_heads = portion_of(comm, dims->wide_kv_heads, dims->heads / dims->wide_kv_heads);
}

/* Ranks share whole key/value heads, each with the query heads that read it, and the columns of
 * every MLP. */
static enum status split_stack(struct stack *stack, const struct comm *comm, struct error *e) {
    const struct dims *dims = &stack->dims;
    bool latent = dims->latent.rank > 0;
    int units = latent ? dims->heads : dims->kv_heads;
    if (dims->wide_head_dim > 0) units = min_int(units, dims->wide_kv_heads);
    int most = min_int(units, narrowest_ffn(dims));
    if (dims->state.kernel > 0) most = min_int(most, state_units(&dims->state));
    if (comm->size > most)
        return error_set(e, STATUS_INVALID,
                         "parallel.tensor is %d, and this model's %d %sheads and %d MLP "
                         "columns are enough for %d",
                         comm->size, units, latent ? "" : "key/value ", narrowest_ffn(dims), most);
    split_heads(stack, comm);
    split_states(stack, comm);
    stack->ffn = portion_of_ffn(comm, dims->ffn);
    stack->wide_ffn = portion_of_ffn(comm, dims->wide_ffn);
    stack->expert_ffn = portion_of_ffn(comm, dims->expert_ffn);
    stack->shared_ffn = portion_of_ffn(comm, dims->shared_ffn);
    return STATUS_OK;
}

/* The parts of the vocabulary are equal, and overlap where it does not divide. */
static enum status split_stacks(struct model *model, struct error *e) {
    const struct comm *comm = model->comm;
    int columns = model->spec.padded_vocab, part = (columns + comm->size - 1) / comm->size;
    model->vocab = (struct portion){gathered_col(columns, part, comm->rank), part};
    for (int id = 0; id < STACK_COUNT; id++) {
        struct stack *stack = &model->stacks[id];
        stack->dims = model->spec.stacks[id];
        if (stack->dims.n_layers > 0 && split_stack(stack, comm, e)) return e->status;
    }
    return STATUS_OK;
}

static int first_layer(const struct model *model, int stage) {
    return (int)((int64_t)model->spec.stacks[STACK_DECODER].n_layers * stage / model->comm->stages);
}

static int stage_of_layer(const struct model *model, int layer) {
    int stage = 0;
    while (first_layer(model, stage + 1) <= layer) stage++;
    return stage;
}

/* Stages have equally many of the decoder's layers, or one less. The neighbour encoder is whole on
 * one of them, a tower on the first. */
static enum status split_layers(struct model *model, struct error *e) {
    const struct comm *comm = model->comm;
    const struct retro_spec *retro = &model->spec.retro;
    struct stack *decoder = &model->stacks[STACK_DECODER], *encoder = &model->stacks[STACK_ENCODER];
    model->encodes = model->reads = -1;
    encoder->kept = (struct portion){0, encoder->dims.n_layers};
    model->stacks[STACK_TOWER].kept =
        (struct portion){0, comm->stage == 0 ? model->stacks[STACK_TOWER].dims.n_layers : 0};
    bool alone = model_has_stack(model, STACK_TOWER) && !model_has_stack(model, STACK_DECODER),
         whole = decoder->dims.reads != EDGE_NEIGHBORS && encoder->dims.n_layers > 0;
    if (comm->stages > 1 && (alone || whole))
        return error_set(
            e, STATUS_UNSUPPORTED,
            "parallel.pipeline is %d; a %s model is not cut into stages: use parallel.tensor",
            comm->stages, model->info.family);
    if (!model_has_stack(model, STACK_DECODER)) return STATUS_OK;
    if (comm->stages > 1 && (model->spec.reuse_from > 0 || decoder->dims.layer_input > 0))
        return error_set(e, STATUS_UNSUPPORTED,
                         "parallel.pipeline is %d; layers of a %s model read keys and values of "
                         "others, or have inputs of their own, so it is not cut into stages: use "
                         "parallel.tensor",
                         comm->stages, model->info.family);
    if (comm->stages > decoder->dims.n_layers)
        return error_set(e, STATUS_INVALID, "parallel.pipeline is %d and the model has %d layers",
                         comm->stages, decoder->dims.n_layers);

    int first = first_layer(model, comm->stage);
    decoder->kept = (struct portion){first, first_layer(model, comm->stage + 1) - first};
    for (int i = decoder->dims.n_layers - 1; i >= 0; i--) {
        if (!retro->layer[i]) continue;
        model->encodes = stage_of_layer(model, i);
        model->reads = max_int(model->reads, model->encodes);
    }
    if (decoder->dims.reads == EDGE_NEIGHBORS && comm->stage != model->encodes) encoder->kept.n = 0;
    return STATUS_OK;
}

enum status model_split(struct model *model, struct error *e) {
    if (split_stacks(model, e)) return e->status;
    return split_layers(model, e);
}
