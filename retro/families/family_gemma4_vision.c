/* retro/families/family_gemma4_vision.c: the vision tower of Gemma 4 as Hugging Face stores it.
 * Pictures have any shape. A patch's position is the sum of one for its column and one for its
 * line; half of a head turns by the column, half by the line. Layers are those of the decoder,
 * gated and normed before and behind each branch, and may cut off what their products read and
 * give. Squares of rows are averaged. See gemma4_layers.h. */
#include <math.h>

#include "retro/families/gemma4_layers.h"

static const struct json_field fields[] = {
    {"hidden_size", JSON_INT, AT_TOWER(hidden), .min = 1, .max = LIMIT_WIDTH, .fallback = 768},
    {"intermediate_size", JSON_INT, AT_TOWER(ffn), .min = 1, .max = LIMIT_FFN, .fallback = 3072},
    {"num_hidden_layers", JSON_INT, AT_TOWER(n_layers), .min = 1, .max = MAX_LAYERS,
     .fallback = 16},
    {"num_attention_heads", JSON_INT, AT_TOWER(heads), .min = 1, .max = LIMIT_HEADS,
     .fallback = 12},
    {"num_key_value_heads", JSON_INT, AT_TOWER(kv_heads), .min = 1, .max = LIMIT_HEADS,
     .fallback = 12},
    {"head_dim", JSON_INT, AT_TOWER(head_dim), .min = 1, .max = LIMIT_HEADS, .fallback = 64},
    {"hidden_activation", JSON_CHOICE, AT_TOWER(activation), .choices = huggingface_activations,
     .fallback = ACTIVATION_GELU_TANH},
    {"rms_norm_eps", JSON_FLOAT, AT_TOWER(epsilon), .fallback = 1e-6},
    {"patch_size", JSON_INT, AT_SPEC(tower.patch), .min = 1, .max = LIMIT_PATCH, .fallback = 16},
    {"pooling_kernel_size", JSON_INT, AT_SPEC(tower.averaged), .min = 1, .max = 16, .fallback = 3},
    {"position_embedding_size", JSON_INT, AT_SPEC(tower.table_w), .min = 1, .max = LIMIT_PIXELS,
     .fallback = 10240},
    {"use_clipped_linears", JSON_BOOL, AT_TOWER(clipped)},
    {"standardize", JSON_BOOL, AT_SPEC(tower.standardized)},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

struct axial_rope_keys {
    int kind;
    float base;
};
static const struct json_choice rope_kinds[] = {{"axial", 0}, {"default", 0}, {NULL, 0}};
static const struct json_field rope_fields[] = {
    {"rope_type", JSON_CHOICE, JSON_AT(struct axial_rope_keys, kind), .choices = rope_kinds},
    {"rope_theta", JSON_FLOAT, JSON_AT(struct axial_rope_keys, base), .min = 1e-6, .max = 1e30,
     .fallback = 100},
};
static const struct json_table rope_table = JSON_TABLE(rope_fields, .open = true);

/* Both halves of a head have the frequencies of a head of half the size; the first one turns by the
 * column, which is a patch's second place. */
static enum status read_rope(const struct json *config, struct dims *dims, struct error *e) {
    struct axial_rope_keys keys = {.base = 100};
    if (!json_is_absent(config) && spec_read(config, &rope_table, &keys, e))
        return error_prefix(e, "rope_parameters");
    if (dims->head_dim % 4 != 0 || dims->head_dim > ATTENTION_MAX_HEAD)
        return error_set(
            e, STATUS_UNSUPPORTED,
            "config.json: attention heads of %d; multiples of 4 that are at most %d are supported",
            dims->head_dim, ATTENTION_MAX_HEAD);
    dims->rotated = dims->head_dim / 2;
    dims->rope_sections = dims->rope_parts = 2;
    for (int i = 0; i < dims->rotated; i++) dims->rope_section[i] = i < dims->rotated / 2;
    dims_set_rope(dims, ROPE_GLOBAL, keys.base);
    return STATUS_OK;
}

static void finish(struct model_spec *spec) {
    struct dims *dims = &spec->stacks[STACK_TOWER];
    struct tower_spec *tower = &spec->tower;
    dims->norm = NORM_RMS;
    dims->gated = dims->value_norm = true;
    dims->qk_norm = QK_NORM_HEAD;
    dims->score_scale = 1;
    dims_set_bias(dims, false);
    tower->shuffle = 1;
    tower->table_h = 2;
    tower->oblong = tower->sums_sides = tower->centered = tower->by_pixel = true;
    tower->mean_scale = sqrtf((float)dims->hidden);
    spec->projector = (struct projector_spec){.in = dims->hidden,
                                              .out = spec->stacks[STACK_DECODER].hidden,
                                              .bare = true,
                                              .norm = NORM_RMS,
                                              .epsilon = dims->epsilon};
}

static enum status read_tower(const struct json *config, struct model_spec *spec, struct error *e) {
    struct model_spec read = *spec;
    const struct json *type = json_member(config, "model_type"),
                      *rope = json_member(config, "rope_parameters");
    if (!json_is_absent(type) && !json_text_is(type, "gemma4_vision"))
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: another \"model_type\" than \"gemma4_vision\"");
    if (spec_read(config, &table, &read, e) || read_rope(rope, &read.stacks[STACK_TOWER], e))
        return e->status;
    finish(&read);
    *spec = read;
    return STATUS_OK;
}

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    (void)i;
    return (struct layer_spec){
        .mask = MASK_NONE, .rope = true, .clipped = spec->stacks[stack].clipped};
}

#define BOUND(clip, member, name) \
    { \
        .place = offsetof(struct layer, clips[clip].member), .names = { name } \
    }
#define BOUNDS(clip, product) \
    BOUND(clip, in_least, product ".input_min"), BOUND(clip, in_most, product ".input_max"), \
        BOUND(clip, out_least, product ".output_min"), \
        BOUND(clip, out_most, product ".output_max")

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"self_attn.q_proj.linear.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"self_attn.k_proj.linear.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"self_attn.v_proj.linear.*"}},
    {.place = offsetof(struct layer, keys), .names = {"self_attn.k_proj.linear.*"}},
    {.place = offsetof(struct layer, values), .names = {"self_attn.v_proj.linear.*"}},
    {.place = offsetof(struct layer, norm_q), .names = {"self_attn.q_norm.*"}},
    {.place = offsetof(struct layer, norm_k), .names = {"self_attn.k_norm.*"}},
    {.place = offsetof(struct layer, proj), .names = {"self_attn.o_proj.linear.*"}},
    {.place = offsetof(struct layer, norm_attention), .names = {"post_attention_layernorm.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"pre_feedforward_layernorm.*"}},
    {.place = offsetof(struct layer, fc1), .part = PART_GATE, .names = {"mlp.gate_proj.linear.*"}},
    {.place = offsetof(struct layer, fc1), .part = PART_UP, .names = {"mlp.up_proj.linear.*"}},
    {.place = offsetof(struct layer, up), .names = {"mlp.up_proj.linear.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"mlp.down_proj.linear.*"}},
    {.place = offsetof(struct layer, norm_out), .names = {"post_feedforward_layernorm.*"}},
    BOUNDS(CLIP_Q, "self_attn.q_proj"),
    BOUNDS(CLIP_K, "self_attn.k_proj"),
    BOUNDS(CLIP_V, "self_attn.v_proj"),
    BOUNDS(CLIP_PROJ, "self_attn.o_proj"),
    BOUNDS(CLIP_GATE, "mlp.gate_proj"),
    BOUNDS(CLIP_UP, "mlp.up_proj"),
    BOUNDS(CLIP_FC2, "mlp.down_proj"),
};

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, tower.patch), .names = {"patch_embedder.input_proj.*"}},
    {.place = offsetof(struct model, tower.position),
     .names = {"patch_embedder.position_embedding_table"}},
    {.place = offsetof(struct model, tower.shift), .names = {"std_bias"}},
    {.place = offsetof(struct model, tower.stretch), .names = {"std_scale"}},
};

const struct family gemma4_tower = {
    .model_type = "gemma4_vision",
    .read = read_tower,
    .layer = describe_layer,
    .stacks[STACK_TOWER] = {{"encoder.layers.#."}, layer_rows, ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
};
