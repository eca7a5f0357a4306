/* retro/families/family_clip.c: the vision towers of CLIP and SigLIP as Hugging Face stores them,
 * and both with their towers of texts. The vision towers differ in the class token, in norms before
 * and after the layers, and in the bias of the patches' product. CLIP's text tower is an encoder
 * with a causal mask, whose last row stands for the text. */
#include "retro/families/huggingface_vision.h"

#include <string.h>

/* The spec, and keys that have no place in it. */
struct clip_keys {
    struct model_spec spec;
    int image, channels, activation;
};

#define AT_KEYS(member) JSON_AT(struct clip_keys, member)
static const struct json_field fields[] = {
    {"num_hidden_layers", JSON_INT, AT_TOWER(n_layers), .min = 1, .max = MAX_LAYERS,
     .fallback = 12},
    {"hidden_size", JSON_INT, AT_TOWER(hidden), .min = 1, .max = LIMIT_WIDTH, .fallback = 768},
    {"num_attention_heads", JSON_INT, AT_TOWER(heads), .min = 1, .max = LIMIT_HEADS,
     .fallback = 12},
    {"intermediate_size", JSON_INT, AT_TOWER(ffn), .min = 1, .max = LIMIT_FFN, .fallback = 3072},
    {"image_size", JSON_INT, AT_KEYS(image), .min = 1, .max = LIMIT_PIXELS, .fallback = 224},
    {"patch_size", JSON_INT, AT_SPEC(tower.patch), .min = 1, .max = LIMIT_PIXELS},
    {"hidden_act", JSON_CHOICE, AT_TOWER(activation), .choices = huggingface_activations},
    {"layer_norm_eps", JSON_FLOAT, AT_TOWER(epsilon)},
    {"num_channels", JSON_NEUTRAL, .min = 3},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* Reads the keys of both towers; the caller has put in the values of absent ones. */
static enum status read_tower(const struct json *config, struct clip_keys *keys, struct error *e) {
    struct dims *dims = &keys->spec.stacks[STACK_TOWER];
    struct tower_spec *tower = &keys->spec.tower;
    int padded = keys->spec.padded_vocab;
    if (spec_read(config, &table, keys, e) || huggingface_derive(&keys->spec, dims, e))
        return e->status;
    keys->spec.padded_vocab = padded;
    dims_set_bias(dims, true);
    dims->norm = NORM_LAYER;
    tower->image_h = tower->image_w = keys->image;
    tower->table_h = tower->table_w = keys->image / tower->patch;
    tower->shuffle = 1;
    return STATUS_OK;
}

static enum status read_clip(const struct json *config, struct model_spec *spec, struct error *e) {
    struct clip_keys keys = {.spec = *spec};
    struct dims *dims = &keys.spec.stacks[STACK_TOWER];
    struct tower_spec *tower = &keys.spec.tower;
    tower->patch = 32;
    dims->activation = ACTIVATION_QUICK_GELU;
    dims->epsilon = 1e-5f;
    if (read_tower(config, &keys, e)) return e->status;
    tower->class_tokens = 1;
    tower->class_positions = true;
    tower->norm_before = true;
    *spec = keys.spec;
    return STATUS_OK;
}

static enum status read_siglip(const struct json *config, struct model_spec *spec,
                               struct error *e) {
    struct clip_keys keys = {.spec = *spec};
    struct dims *dims = &keys.spec.stacks[STACK_TOWER];
    keys.spec.tower.patch = 16;
    dims->activation = ACTIVATION_GELU_TANH;
    dims->epsilon = 1e-6f;
    if (read_tower(config, &keys, e)) return e->status;
    keys.spec.tower.patch_bias = true;
    dims->final_norm = true;
    *spec = keys.spec;
    return STATUS_OK;
}

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    (void)spec, (void)stack, (void)i;
    return (struct layer_spec){.mask = MASK_NONE};
}

/* CLIP spells its first norm so. */
static const struct tensor_row clip_rows[] = {
    {.place = offsetof(struct model, tower.patch), .names = {"embeddings.patch_embedding.*"}},
    {.place = offsetof(struct model, tower.class_token), .names = {"embeddings.class_embedding"}},
    {.place = offsetof(struct model, tower.position),
     .names = {"embeddings.position_embedding.weight"}},
    {.place = offsetof(struct model, tower.norm_before), .names = {"pre_layrnorm.*"}},
    {.place = offsetof(struct model, tower.norm_head), .names = {"post_layernorm.*"}},
};

static const struct tensor_row siglip_rows[] = {
    {.place = offsetof(struct model, tower.patch), .names = {"embeddings.patch_embedding.*"}},
    {.place = offsetof(struct model, tower.position),
     .names = {"embeddings.position_embedding.weight"}},
    {.place = offsetof(struct model, stacks[STACK_TOWER].final_norm),
     .names = {"post_layernorm.*"}},
};

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"layer_norm1.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"self_attn.q_proj.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"self_attn.k_proj.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"self_attn.v_proj.*"}},
    {.place = offsetof(struct layer, proj), .names = {"self_attn.out_proj.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"layer_norm2.*"}},
    {.place = offsetof(struct layer, fc1), .names = {"mlp.fc1.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"mlp.fc2.*"}},
};

/* The towers as parts of other models. */
static const struct family clip_tower = {
    .model_type = "clip_vision_model",
    .read = read_clip,
    .layer = describe_layer,
    .stacks[STACK_TOWER] = {{"encoder.layers.#."}, layer_rows, ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, clip_rows, ARRAY_COUNT(clip_rows)},
};
static const struct family siglip_tower = {
    .model_type = "siglip_vision_model",
    .read = read_siglip,
    .layer = describe_layer,
    .stacks[STACK_TOWER] = {{"encoder.layers.#."}, layer_rows, ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, siglip_rows, ARRAY_COUNT(siglip_rows)},
};

const struct family *huggingface_find_tower(const char *model_type) {
    const struct family *towers[] = {&clip_tower, &siglip_tower, &pixtral_tower};
    for (size_t i = 0; i < ARRAY_COUNT(towers); i++)
        if (model_type && strcmp(towers[i]->model_type, model_type) == 0) return towers[i];
    return NULL;
}

/* The heads that make one vector of a picture are not read, nor are constants 0, 1, 2, ... */
static bool ignore_head(const char *name) {
    return strstr(name, "position_ids") || strstr(name, "head.") == name ||
           strstr(name, "vision_model.head.") == name;
}

/* The last norm of CLIP is a part of its head. */
static bool ignore_clip_head(const char *name) {
    return ignore_head(name) || strstr(name, "post_layernorm.") == name ||
           strstr(name, "vision_model.post_layernorm.") == name;
}

static enum status read_alone(const struct json *config, const struct family *tower,
                              struct model_spec *spec, struct error *e) {
    if (tower->read(config, spec, e)) return e->status;
    spec->parts[STACK_TOWER] = (struct model_part){tower, {"", "vision_model."}};
    return spec_check(spec, e);
}

static enum status read_clip_alone(const struct json *config, struct model_spec *spec,
                                   struct error *e) {
    return read_alone(config, &clip_tower, spec, e);
}

static enum status read_siglip_alone(const struct json *config, struct model_spec *spec,
                                     struct error *e) {
    return read_alone(config, &siglip_tower, spec, e);
}

const struct family family_clip_vision = {.model_type = "clip_vision_model",
                                          .read = read_clip_alone,
                                          .layer = describe_layer,
                                          .ignores = ignore_clip_head};
const struct family family_siglip_vision = {.model_type = "siglip_vision_model",
                                            .read = read_siglip_alone,
                                            .layer = describe_layer,
                                            .ignores = ignore_head};

/* Both towers. */

/* The spec, and keys that have no place in it. */
struct dual_encoder_keys {
    struct model_spec spec;
    const struct json *text, *vision;
};

static const struct json_field joint_fields[] = {
    {"text_config", JSON_RAW, JSON_AT(struct dual_encoder_keys, text)},
    {"vision_config", JSON_RAW, JSON_AT(struct dual_encoder_keys, vision)},
    {"projection_dim", JSON_INT, AT_SPEC(joint), .min = 1, .max = LIMIT_WIDTH, .fallback = 512},
};
static const struct json_table joint_table = JSON_TABLE(joint_fields, .open = true);

/* Of a tower of texts; its caller has put in the values of absent keys. */
static const struct json_field text_fields[] = {
    {"num_hidden_layers", JSON_INT, AT_ENCODER(n_layers), .min = 1, .max = MAX_LAYERS,
     .fallback = 12},
    {"hidden_size", JSON_INT, AT_ENCODER(hidden), .min = 1, .max = LIMIT_WIDTH},
    {"num_attention_heads", JSON_INT, AT_ENCODER(heads), .min = 1, .max = LIMIT_HEADS},
    {"intermediate_size", JSON_INT, AT_ENCODER(ffn), .min = 1, .max = LIMIT_FFN},
    {"vocab_size", JSON_INT, AT_SPEC(vocab), .min = 1, .max = LIMIT_IDS},
    {"max_position_embeddings", JSON_INT, AT_SPEC(max_positions), .min = 1, .max = LIMIT_POSITIONS},
    {"hidden_act", JSON_CHOICE, AT_ENCODER(activation), .choices = huggingface_activations},
    {"layer_norm_eps", JSON_FLOAT, AT_ENCODER(epsilon)},
};
static const struct json_table text_table = JSON_TABLE(text_fields, .open = true);

static enum status read_joint(const struct json *config, struct model_spec *spec, struct error *e) {
    struct dual_encoder_keys keys = {.spec = *spec};
    struct dims *text = &keys.spec.stacks[STACK_ENCODER];
    if (spec_read(config, &joint_table, &keys, e)) return e->status;
    keys.spec.vocab = 49408;
    keys.spec.max_positions = 77;
    text->hidden = 512;
    text->heads = 8;
    text->ffn = 2048;
    text->activation = ACTIVATION_QUICK_GELU;
    text->epsilon = 1e-5f;
    if (spec_read(keys.text, &text_table, &keys.spec, e)) return error_prefix(e, "text_config");
    if (clip_tower.read(keys.vision, &keys.spec, e)) return error_prefix(e, "vision_config");
    keys.spec.parts[STACK_TOWER] = (struct model_part){&clip_tower, {"vision_model."}};
    keys.spec.tower.pooled = true;
    keys.spec.projector =
        (struct projector_spec){.in = keys.spec.stacks[STACK_TOWER].hidden, .out = keys.spec.joint};
    text->final_norm = true;
    *spec = keys.spec;
    return huggingface_derive_encoder(spec, e);
}

static struct layer_spec describe_joint_layer(const struct model_spec *spec, enum stack_id stack,
                                              int i) {
    (void)spec, (void)stack, (void)i;
    return (struct layer_spec){.mask = MASK_CAUSAL};
}

/* The scale and the shift of similarities are training's. */
static bool ignore_scale(const char *name) {
    return strstr(name, "logit_") == name || strstr(name, "position_ids");
}

static const struct tensor_row dual_encoder_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = {"text_model.embeddings.token_embedding.weight"}},
    {.place = offsetof(struct model, embedding.position),
     .names = {"text_model.embeddings.position_embedding.weight"}},
    {.place = offsetof(struct model, stacks[STACK_ENCODER].final_norm),
     .names = {"text_model.final_layer_norm.*"}},
    {.place = offsetof(struct model, joint), .names = {"text_projection.*"}},
    {.place = offsetof(struct model, projector.fc1), .names = {"visual_projection.*"}},
};

const struct family family_clip = {
    .model_type = "clip",
    .read = read_joint,
    .layer = describe_joint_layer,
    .stacks[STACK_ENCODER] = {{"text_model.encoder.layers.#."},
                              layer_rows,
                              ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, dual_encoder_rows, ARRAY_COUNT(dual_encoder_rows)},
    .ignores = ignore_scale,
};

/* SigLIP reads texts without a mask, filled up to their length, and their last row stands for them.
 * A query that it has learned gathers a picture's rows, and an MLP follows. */

static const struct json_field siglip_joint_fields[] = {
    {"projection_size", JSON_INT, AT_SPEC(joint), .min = 1, .max = LIMIT_WIDTH},
};
static const struct json_table siglip_joint_table = JSON_TABLE(siglip_joint_fields, .open = true);

static enum status read_siglip_joint(const struct json *config, struct model_spec *spec,
                                     struct error *e) {
    struct dual_encoder_keys keys = {.spec = *spec};
    struct dims *text = &keys.spec.stacks[STACK_ENCODER], *tower = &keys.spec.stacks[STACK_TOWER];
    if (spec_read(config, &joint_table, &keys, e)) return e->status;
    keys.spec.joint = 0;
    keys.spec.vocab = 32000;
    keys.spec.max_positions = 64;
    text->hidden = 768;
    text->heads = 12;
    text->ffn = 3072;
    text->activation = ACTIVATION_GELU_TANH;
    text->epsilon = 1e-6f;
    if (spec_read(keys.text, &text_table, &keys.spec, e) ||
        spec_read(keys.text, &siglip_joint_table, &keys.spec, e))
        return error_prefix(e, "text_config");
    if (keys.spec.joint == 0) keys.spec.joint = text->hidden;
    if (siglip_tower.read(keys.vision, &keys.spec, e)) return error_prefix(e, "vision_config");
    if (tower->hidden != keys.spec.joint)
        return error_set(e, STATUS_INVALID,
                         "config.json: vectors of texts have %d numbers, those of pictures %d",
                         keys.spec.joint, tower->hidden);
    keys.spec.parts[STACK_TOWER] = (struct model_part){&siglip_tower, {"vision_model."}};
    keys.spec.tower.pooled = keys.spec.tower.probed = true;
    keys.spec.projector = (struct projector_spec){.in = tower->hidden,
                                                  .ffn = tower->ffn,
                                                  .out = tower->hidden,
                                                  .normed = true,
                                                  .norm = NORM_LAYER,
                                                  .epsilon = tower->epsilon,
                                                  .activation = tower->activation,
                                                  .bias = true,
                                                  .residual = true};
    keys.spec.dual_encoder_bias = keys.spec.dual_encoder_padded = true;
    text->final_norm = true;
    *spec = keys.spec;
    return huggingface_derive_encoder(spec, e);
}

static const struct tensor_row siglip_joint_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = {"text_model.embeddings.token_embedding.weight"}},
    {.place = offsetof(struct model, embedding.position),
     .names = {"text_model.embeddings.position_embedding.weight"}},
    {.place = offsetof(struct model, stacks[STACK_ENCODER].final_norm),
     .names = {"text_model.final_layer_norm.*"}},
    {.place = offsetof(struct model, joint), .names = {"text_model.head.*"}},
    {.place = offsetof(struct model, tower.probe), .names = {"vision_model.head.probe"}},
    {.place = offsetof(struct model, tower.probe_qkv),
     .names = {"vision_model.head.attention.in_proj_*"}},
    {.place = offsetof(struct model, tower.probe_proj),
     .names = {"vision_model.head.attention.out_proj.*"}},
    {.place = offsetof(struct model, projector.norm), .names = {"vision_model.head.layernorm.*"}},
    {.place = offsetof(struct model, projector.fc1), .names = {"vision_model.head.mlp.fc1.*"}},
    {.place = offsetof(struct model, projector.fc2), .names = {"vision_model.head.mlp.fc2.*"}},
};

const struct family family_siglip = {
    .model_type = "siglip",
    .read = read_siglip_joint,
    .layer = describe_layer,
    .stacks[STACK_ENCODER] = {{"text_model.encoder.layers.#."},
                              layer_rows,
                              ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, siglip_joint_rows, ARRAY_COUNT(siglip_joint_rows)},
    .ignores = ignore_scale,
};
