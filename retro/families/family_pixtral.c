/* retro/families/family_pixtral.c: Pixtral's vision tower as Hugging Face stores it, alone and as a
 * part of LLaVA and of Mistral 3: pictures of any size, RMS norms and a gated MLP without biases, a
 * norm before the first layer and none behind the last. A head's frequencies turn by the patch's
 * line and column in turn. */
#include "retro/families/huggingface_vision.h"

/* The spec, and keys that have no place in it. */
struct pixtral_keys {
    struct model_spec spec;
    int head_dim;
    const struct json *patch, *rope;
};

#define AT_KEYS(member) JSON_AT(struct pixtral_keys, member)
static const struct json_field fields[] = {
    {"num_hidden_layers", JSON_INT, AT_TOWER(n_layers), .min = 1, .max = MAX_LAYERS,
     .fallback = 24},
    {"hidden_size", JSON_INT, AT_TOWER(hidden), .min = 1, .max = LIMIT_WIDTH, .fallback = 1024},
    {"num_attention_heads", JSON_INT, AT_TOWER(heads), .min = 1, .max = LIMIT_HEADS,
     .fallback = 16},
    {"intermediate_size", JSON_INT, AT_TOWER(ffn), .min = 1, .max = LIMIT_FFN, .fallback = 4096},
    {"hidden_act", JSON_CHOICE, AT_TOWER(activation), .choices = huggingface_activations,
     .fallback = ACTIVATION_GELU_ERF},
    {"num_channels", JSON_NEUTRAL, .min = 3},
    {"head_dim", JSON_INT, AT_KEYS(head_dim), .min = 1, .max = LIMIT_HEADS},
    {"patch_size", JSON_RAW, AT_KEYS(patch)},
    {"rope_parameters", JSON_RAW, AT_KEYS(rope)},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* A number, or a list of two equal ones. */
static enum status read_patch(struct pixtral_keys *keys, struct error *e) {
    const struct json *value = keys->patch,
                      *side = json_is_list(value) ? json_item(value, 0) : value;
    int64_t pixels = json_is_absent(value) ? 16 : json_int(side);
    bool whole = json_is_absent(value) || json_is_int(side);
    if (json_is_list(value))
        whole = whole && json_count(value) == 2 && json_is_int(json_item(value, 1)) &&
                json_int(json_item(value, 1)) == pixels;
    if (!whole || pixels < 1 || pixels > LIMIT_PATCH)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"patch_size\" must be one number, 1 .. %d", LIMIT_PATCH);
    keys->spec.tower.patch = (int)pixels;
    return STATUS_OK;
}

static enum status read_tower(const struct json *config, struct model_spec *spec, struct error *e) {
    struct pixtral_keys keys = {.spec = *spec};
    struct dims *dims = &keys.spec.stacks[STACK_TOWER];
    int padded = keys.spec.padded_vocab;
    if (spec_read(config, &table, &keys, e) || read_patch(&keys, e) ||
        huggingface_derive(&keys.spec, dims, e))
        return e->status;
    keys.spec.padded_vocab = padded;
    if (keys.head_dim > 0 && keys.head_dim != dims->head_dim)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"head_dim\" is %d; heads of %d / %d = %d are supported",
                         keys.head_dim, dims->hidden, dims->heads, dims->head_dim);
    dims_set_bias(dims, false);
    dims->norm = NORM_RMS;
    dims->epsilon = 1e-5f;
    dims->gated = true;
    keys.spec.tower.norm_before = keys.spec.tower.oblong = true;
    keys.spec.tower.shuffle = 1;
    const struct json *rope = json_is_absent(keys.rope) ? config : keys.rope;
    if (huggingface_read_axial_rope(rope, true, dims, e)) return e->status;
    *spec = keys.spec;
    return STATUS_OK;
}

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    (void)spec, (void)stack, (void)i;
    return (struct layer_spec){.mask = MASK_NONE, .rope = true};
}

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"attention_norm.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"attention.q_proj.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"attention.k_proj.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"attention.v_proj.*"}},
    {.place = offsetof(struct layer, proj), .names = {"attention.o_proj.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"ffn_norm.*"}},
    HUGGINGFACE_GATE_UP_ROWS(fc1, "feed_forward"),
    {.place = offsetof(struct layer, fc2), .names = {"feed_forward.down_proj.*"}},
};

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, tower.patch), .names = {"patch_conv.*"}},
    {.place = offsetof(struct model, tower.norm_before), .names = {"ln_pre.*"}},
};

const struct family pixtral_tower = {
    .model_type = "pixtral",
    .read = read_tower,
    .layer = describe_layer,
    .stacks[STACK_TOWER] = {{"transformer.layers.#."}, layer_rows, ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
};

static enum status read_alone(const struct json *config, struct model_spec *spec, struct error *e) {
    if (read_tower(config, spec, e)) return e->status;
    spec->parts[STACK_TOWER] = (struct model_part){&pixtral_tower, {"", "vision_tower."}};
    return spec_check(spec, e);
}

const struct family family_pixtral_vision = {
    .model_type = "pixtral", .read = read_alone, .layer = describe_layer};
