/* retro/weights/gguf_tower.c: kinds of towers in GGUF files: keys, tensors, tokens; whether a tower
 * fits its model. See gguf_tower.h. */
#include <stdio.h>
#include <string.h>

#include "config/base/text.h"
#include "retro/weights/gguf_rows.h"
#include "retro/weights/gguf_tower_kinds.h"

/* Keys "clip.": their values of a file that has a tower of pictures alone, or one of sound beside
 * it. The keys of the activation are read in gguf_tower_folder.c. */
#define OUTER_KEYS(sound) \
    {"has_vision_encoder", NULL, KEY_NEUTRAL, 1}, {"has_text_encoder", NULL, KEY_NEUTRAL, 0}, \
        {"has_audio_encoder", NULL, sound, 0}, {"has_llava_projector", NULL, KEY_IGNORED, 0}, \
        {"has_qwen2vl_merger", NULL, KEY_IGNORED, 0}, {"projector_type", NULL, KEY_IGNORED, 0}, \
        {"use_gelu", NULL, KEY_IGNORED, 0}, {"use_silu", NULL, KEY_IGNORED, 0}, { \
        "rope.freq_base", NULL, KEY_NEUTRAL, 10000 \
    }
static const struct key_row silent_keys[] = {OUTER_KEYS(KEY_NEUTRAL)},
                            sound_keys[] = {OUTER_KEYS(KEY_IGNORED)};
static const struct architecture silent = {.name = "clip", .keys = ROWS(silent_keys)},
                                 sounding = {.name = "clip", .keys = ROWS(sound_keys)};

/* The width behind the projector is that of a tensor, and the processor's file has the colours. */
#define SHARED_KEYS \
    {"patch_size", "patch_size", KEY_INT, 0}, {"projection_dim", NULL, KEY_IGNORED, 0}, \
        {"projector_type", NULL, KEY_IGNORED, 0}, {"image_mean", NULL, KEY_IGNORED, 0}, { \
        "image_std", NULL, KEY_IGNORED, 0 \
    }
#define WIDTHS \
    {"embedding_length", "hidden_size", KEY_INT, 0}, { \
        "feed_forward_length", "intermediate_size", KEY_INT, 0 \
    }
static const struct key_row siglip_keys[] = {
    SHARED_KEYS,
    WIDTHS,
    {"block_count", "num_hidden_layers", KEY_INT, 0},
    {"attention.head_count", "num_attention_heads", KEY_INT, 0},
    {"attention.layer_norm_epsilon", "layer_norm_eps", KEY_FLOAT, 1e-6},
    {"image_size", "image_size", KEY_INT, 0},
    {"projector.scale_factor", NULL, KEY_IGNORED, 0}, /* mm_tokens_per_image */
};
/* The feature layer is vision_feature_layer of the whole model. */
#define CLIP_KEYS \
    SHARED_KEYS, WIDTHS, {"block_count", "num_hidden_layers", KEY_INT, 0}, \
        {"attention.head_count", "num_attention_heads", KEY_INT, 0}, \
        {"attention.layer_norm_epsilon", "layer_norm_eps", KEY_FLOAT, 1e-5}, \
        {"image_size", "image_size", KEY_INT, 0}, { \
        "feature_layer", NULL, KEY_IGNORED, 0 \
    }
static const struct key_row clip_keys[] = {CLIP_KEYS};
/* The processor's file has the grids, and check_words the words. The resolutions are those of
 * training. */
static const struct key_row llava_next_keys[] = {
    CLIP_KEYS,
    {"image_grid_pinpoints", NULL, KEY_IGNORED, 0},
    {"image_aspect_ratio", NULL, KEY_IGNORED, 0},
    {"mm_patch_merge_type", NULL, KEY_IGNORED, 0},
    {"mm_projector_type", NULL, KEY_IGNORED, 0},
    {"image_crop_resolution", NULL, KEY_IGNORED, 0},
    {"image_split_resolution", NULL, KEY_IGNORED, 0},
};
/* The other sizes are those of tensors; the file's image_size means nothing. */
static const struct key_row gemma4_keys[] = {
    SHARED_KEYS,
    WIDTHS,
    {"block_count", "num_hidden_layers", KEY_INT, 0},
    {"attention.head_count", "num_attention_heads", KEY_INT, 0},
    {"attention.layer_norm_epsilon", "rms_norm_eps", KEY_FLOAT, 1e-6},
    {"projector.scale_factor", "pooling_kernel_size", KEY_INT, 3},
    {"image_size", NULL, KEY_IGNORED, 0},
    {"image_max_pixels", NULL, KEY_IGNORED, 0}, /* max_soft_tokens */
};
/* The norms of these towers have the epsilon 1e-6, and their files have that of the text. */
#define QWEN_KEYS \
    SHARED_KEYS, {"block_count", "depth", KEY_INT, 0}, \
        {"attention.head_count", "num_heads", KEY_INT, 0}, \
        {"attention.layer_norm_epsilon", NULL, KEY_IGNORED, 0}, \
        {"image_size", NULL, KEY_IGNORED, 0}, {"image_min_pixels", NULL, KEY_IGNORED, 0}, \
        {"image_max_pixels", NULL, KEY_IGNORED, 0}, { \
        "spatial_merge_size", NULL, KEY_NEUTRAL, 2 \
    }
static const struct key_row qwen2_keys[] = {
    QWEN_KEYS,
    {"embedding_length", "embed_dim", KEY_INT, 0},
    {"feed_forward_length", NULL, KEY_IGNORED, 0}, /* the tensors tell: some files have 0 */
};
static const struct key_row qwen2_5_keys[] = {
    QWEN_KEYS,
    {"embedding_length", "hidden_size", KEY_INT, 0},
    {"feed_forward_length", NULL, KEY_IGNORED, 0},
    {"window_size", "window_size", KEY_INT, 112},
    {"n_wa_pattern", NULL, KEY_IGNORED, 0}, /* fullatt_block_indexes */
};
static const struct key_row qwen3_keys[] = {
    QWEN_KEYS, WIDTHS, {"is_deepstack_layers", NULL, KEY_IGNORED, 0}, /* deepstack_visual_indexes */
};

/* The epsilon of these norms is a constant, in the folders too. */
#define PIXTRAL_KEYS(merged) \
    SHARED_KEYS, WIDTHS, {"block_count", "num_hidden_layers", KEY_INT, 0}, \
        {"attention.head_count", "num_attention_heads", KEY_INT, 0}, \
        {"attention.layer_norm_epsilon", NULL, KEY_NEUTRAL, 1e-5f}, \
        {"image_size", NULL, KEY_IGNORED, 0}, /* the longest edge of a picture */ \
    { \
        "spatial_merge_size", NULL, KEY_NEUTRAL, (merged) \
    }
static const struct key_row pixtral_keys[] = {PIXTRAL_KEYS(1)};
static const struct key_row mistral3_keys[] = {PIXTRAL_KEYS(2)};

#define SIGLIP "vision_tower.vision_model."
/* CLIP's names, too. */
#define SIGLIP_TENSORS \
    {"v.patch_embd.*", SIGLIP "embeddings.patch_embedding.*"}, \
        {"v.position_embd.weight", SIGLIP "embeddings.position_embedding.weight"}, \
        {"v.post_ln.*", SIGLIP "post_layernorm.*"}, \
        {"v.blk.#.ln1.*", SIGLIP "encoder.layers.#.layer_norm1.*"}, \
        {"v.blk.#.attn_q.*", SIGLIP "encoder.layers.#.self_attn.q_proj.*"}, \
        {"v.blk.#.attn_k.*", SIGLIP "encoder.layers.#.self_attn.k_proj.*"}, \
        {"v.blk.#.attn_v.*", SIGLIP "encoder.layers.#.self_attn.v_proj.*"}, \
        {"v.blk.#.attn_out.*", SIGLIP "encoder.layers.#.self_attn.out_proj.*"}, \
        {"v.blk.#.ln2.*", SIGLIP "encoder.layers.#.layer_norm2.*"}, \
        {"v.blk.#.ffn_up.*", SIGLIP "encoder.layers.#.mlp.fc1.*"}, { \
        "v.blk.#.ffn_down.*", SIGLIP "encoder.layers.#.mlp.fc2.*" \
    }
static const struct tower_tensor gemma3_tensors[] = {
    SIGLIP_TENSORS,
    {"mm.soft_emb_norm.weight", "multi_modal_projector.mm_soft_emb_norm.weight"},
    {"mm.input_projection.weight", "multi_modal_projector.mm_input_projection_weight"},
};
#define LLAVA_TENSORS \
    {"v.class_embd", SIGLIP "embeddings.class_embedding"}, \
        {"v.pre_ln.*", SIGLIP "pre_layrnorm.*"}, SIGLIP_TENSORS, \
        {"mm.0.*", "multi_modal_projector.linear_1.*"}, { \
        "mm.2.*", "multi_modal_projector.linear_2.*" \
    }
static const struct tower_tensor llava_tensors[] = {LLAVA_TENSORS};
/* The row behind each line has had two names. */
static const struct tower_tensor llava_next_tensors[] = {
    LLAVA_TENSORS,
    {"model.image_newline", "image_newline"},
    {"v.image_newline", "image_newline"},
};

#define GEMMA4 "model.vision_tower."
#define GEMMA4_LAYER GEMMA4 "encoder.layers.#."
#define CLIPPED(name, product) \
    {"v.blk.#." name ".*", GEMMA4_LAYER product ".linear.*"}, { \
        "v.blk.#." name ".?", GEMMA4_LAYER product ".?" \
    }
static const struct tower_tensor gemma4_tensors[] = {
    {"v.patch_embd.weight", GEMMA4 "patch_embedder.input_proj.weight"},
    {"v.position_embd.weight", GEMMA4 "patch_embedder.position_embedding_table"},
    {"v.blk.#.ln1.*", GEMMA4_LAYER "input_layernorm.*"},
    {"v.blk.#.attn_q_norm.*", GEMMA4_LAYER "self_attn.q_norm.*"},
    {"v.blk.#.attn_k_norm.*", GEMMA4_LAYER "self_attn.k_norm.*"},
    {"v.blk.#.attn_post_norm.*", GEMMA4_LAYER "post_attention_layernorm.*"},
    {"v.blk.#.ln2.*", GEMMA4_LAYER "pre_feedforward_layernorm.*"},
    {"v.blk.#.ffn_post_norm.*", GEMMA4_LAYER "post_feedforward_layernorm.*"},
    CLIPPED("attn_q", "self_attn.q_proj"),
    CLIPPED("attn_k", "self_attn.k_proj"),
    CLIPPED("attn_v", "self_attn.v_proj"),
    CLIPPED("attn_out", "self_attn.o_proj"),
    CLIPPED("ffn_gate", "mlp.gate_proj"),
    CLIPPED("ffn_up", "mlp.up_proj"),
    CLIPPED("ffn_down", "mlp.down_proj"),
    {"v.std_bias", GEMMA4 "std_bias"},
    {"v.std_scale", GEMMA4 "std_scale"},
    {"mm.input_projection.weight", "model.embed_vision.embedding_projection.weight"},
};
#define QWEN_TENSORS \
    {"v.patch_embd.*", "visual.patch_embed.proj.*"}, {"v.blk.#.ln1.*", "visual.blocks.#.norm1.*"}, \
        {"v.blk.#.attn_q.*", "visual.blocks.#.attn.q.*"}, \
        {"v.blk.#.attn_k.*", "visual.blocks.#.attn.k.*"}, \
        {"v.blk.#.attn_v.*", "visual.blocks.#.attn.v.*"}, \
        {"v.blk.#.attn_qkv.*", "visual.blocks.#.attn.qkv.*"}, \
        {"v.blk.#.attn_out.*", "visual.blocks.#.attn.proj.*"}, { \
        "v.blk.#.ln2.*", "visual.blocks.#.norm2.*" \
    }
/* Files of the first converter have a table of positions that holds a place and no numbers. */
#define QWEN2_MERGER \
    {"v.post_ln.*", "visual.merger.ln_q.*"}, {"mm.0.*", "visual.merger.mlp.0.*"}, \
        {"mm.2.*", "visual.merger.mlp.2.*"}, { \
        "v.position_embd.weight", NULL \
    }
static const struct tower_tensor qwen2_tensors[] = {
    QWEN_TENSORS,
    QWEN2_MERGER,
    {"v.blk.#.ffn_up.*", "visual.blocks.#.mlp.fc1.*"},
    {"v.blk.#.ffn_down.*", "visual.blocks.#.mlp.fc2.*"},
};
static const struct tower_tensor qwen2_5_tensors[] = {
    QWEN_TENSORS,
    QWEN2_MERGER,
    {"v.blk.#.ffn_gate.*", "visual.blocks.#.mlp.gate_proj.*"},
    {"v.blk.#.ffn_up.*", "visual.blocks.#.mlp.up_proj.*"},
    {"v.blk.#.ffn_down.*", "visual.blocks.#.mlp.down_proj.*"},
};
/* A merger's number is its layer in the file, and its place among them in the folder. */
static const struct tower_tensor qwen3_tensors[] = {
    QWEN_TENSORS,
    {"v.position_embd.weight", "visual.pos_embed.weight"},
    {"v.post_ln.*", "visual.merger.norm.*"},
    {"mm.0.*", "visual.merger.linear_fc1.*"},
    {"mm.2.*", "visual.merger.linear_fc2.*"},
    {"v.blk.#.ffn_up.*", "visual.blocks.#.mlp.linear_fc1.*"},
    {"v.blk.#.ffn_down.*", "visual.blocks.#.mlp.linear_fc2.*"},
    {"v.deepstack.#.norm.*", "visual.deepstack_merger_list.#.norm.*"},
    {"v.deepstack.#.fc1.*", "visual.deepstack_merger_list.#.linear_fc1.*"},
    {"v.deepstack.#.fc2.*", "visual.deepstack_merger_list.#.linear_fc2.*"},
};

#define PIXTRAL "vision_tower.transformer.layers.#."
/* The row of [IMG_BREAK] is that of the model. */
#define PIXTRAL_TENSORS \
    {"v.patch_embd.*", "vision_tower.patch_conv.*"}, {"v.pre_ln.*", "vision_tower.ln_pre.*"}, \
        {"v.blk.#.ln1.*", PIXTRAL "attention_norm.*"}, \
        {"v.blk.#.attn_q.*", PIXTRAL "attention.q_proj.*"}, \
        {"v.blk.#.attn_k.*", PIXTRAL "attention.k_proj.*"}, \
        {"v.blk.#.attn_v.*", PIXTRAL "attention.v_proj.*"}, \
        {"v.blk.#.attn_out.*", PIXTRAL "attention.o_proj.*"}, \
        {"v.blk.#.ln2.*", PIXTRAL "ffn_norm.*"}, \
        {"v.blk.#.ffn_gate.*", PIXTRAL "feed_forward.gate_proj.*"}, \
        {"v.blk.#.ffn_up.*", PIXTRAL "feed_forward.up_proj.*"}, \
        {"v.blk.#.ffn_down.*", PIXTRAL "feed_forward.down_proj.*"}, \
        {"mm.1.*", "multi_modal_projector.linear_1.*"}, \
        {"mm.2.*", "multi_modal_projector.linear_2.*"}, { \
        "v.token_embd.img_break", NULL \
    }
static const struct tower_tensor pixtral_tensors[] = {PIXTRAL_TENSORS};
static const struct tower_tensor mistral3_tensors[] = {
    PIXTRAL_TENSORS,
    {"mm.input_norm.weight", "multi_modal_projector.norm.weight"},
    {"mm.patch_merger.weight", "multi_modal_projector.patch_merger.merging_layer.weight"},
};

#define VISION(type, rows) \
    .vision = {.name = "clip.vision", .model_type = (type), .keys = ROWS(rows)}
#define LLAVA_KIND \
    .projector = "mlp", .models = {"llama"}, .last = "mm.2.weight", .marks = {NULL, "<image>", NULL}
#define MERGER .last = "mm.2.weight", .marks = {NULL, "<|image_pad|>", NULL}
/* The limits of pictures' pixels are those of the published folders. */
#define QWEN2_PROCESSOR \
    .processor = "Qwen2VLImageProcessor", .least_pixels = 56 * 56, .most_pixels = 28 * 28 * 16384
#define QWEN3_PROCESSOR \
    .processor = "Qwen2VLImageProcessor", .least_pixels = 1 << 16, .most_pixels = 1 << 24
/* Mistral Small's converters have called its decoder a llama, too. */
#define PIXTRAL_KIND \
    .projector = "pixtral", .models = {"mistral3", "llama"}, .last = "mm.2.weight", \
    .paired = true, .marks = {NULL, "[IMG]", NULL}, .processor = "PixtralImageProcessor"
static const struct tower_kind kinds[] = {
    {.projector = "gemma3",
     .family = TOWER_GEMMA3,
     .models = {"gemma3"},
     .types = {"gemma3"},
     VISION("siglip_vision_model", siglip_keys),
     .tensors = ROWS(gemma3_tensors),
     .last = "mm.input_projection.weight",
     .last_dim = 1,
     .marks = {"<start_of_image>", "<image_soft_token>", "<end_of_image>"},
     .processor = "Gemma3ImageProcessor"},
    {.projector = "gemma4v",
     .family = TOWER_GEMMA4,
     .models = {"gemma4"},
     .types = {"gemma4"},
     VISION("gemma4_vision", gemma4_keys),
     .tensors = ROWS(gemma4_tensors),
     .last = "mm.input_projection.weight",
     .sound = true,
     .marks = {"<|image>", "<|image|>", "<image|>"},
     .processor = "Gemma4ImageProcessor"},
    {LLAVA_KIND, .family = TOWER_LLAVA_NEXT, .told_key = "image_grid_pinpoints",
     .types = {"llava_next"}, VISION("clip_vision_model", llava_next_keys),
     .tensors = ROWS(llava_next_tensors), .processor = "LlavaNextImageProcessor"},
    {LLAVA_KIND, .family = TOWER_LLAVA, .types = {"llava"}, VISION("clip_vision_model", clip_keys),
     .tensors = ROWS(llava_tensors), .processor = "CLIPImageProcessor"},
    {.projector = "qwen2vl_merger",
     .family = TOWER_QWEN2,
     .models = {"qwen2vl"},
     .types = {"qwen2_vl"},
     VISION("qwen2_vl", qwen2_keys),
     .tensors = ROWS(qwen2_tensors),
     MERGER,
     QWEN2_PROCESSOR},
    {.projector = "qwen2.5vl_merger",
     .family = TOWER_QWEN2_5,
     .models = {"qwen2vl"},
     .types = {"qwen2_5_vl"},
     VISION("qwen2_5_vl", qwen2_5_keys),
     .tensors = ROWS(qwen2_5_tensors),
     MERGER,
     QWEN2_PROCESSOR},
    {.projector = "qwen3vl_merger",
     .family = TOWER_QWEN3,
     .models = {"qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe"},
     .types = {"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"},
     VISION(NULL, qwen3_keys),
     .tensors = ROWS(qwen3_tensors),
     MERGER,
     QWEN3_PROCESSOR},
    {PIXTRAL_KIND, .family = TOWER_MISTRAL3, .told_by = "mm.patch_merger.weight",
     .types = {"mistral3", "mistral3"}, VISION("pixtral", mistral3_keys),
     .tensors = ROWS(mistral3_tensors)},
    {PIXTRAL_KIND, .family = TOWER_PIXTRAL, .types = {"llava", "llava"},
     VISION("pixtral", pixtral_keys), .tensors = ROWS(pixtral_tensors)},
};

static void list_projectors(char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < ARRAY_COUNT(kinds) && used < size; i++) {
        if (kinds[i].told_by || kinds[i].told_key) continue; /* the next one has the same name */
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                 kinds[i].projector);
    }
}

static bool read_projector(const struct gguf *tower, struct text_span *out) {
    return gguf_text(gguf_value_find(tower, "clip.projector_type"), out) ||
           gguf_text(gguf_value_find(tower, "clip.vision.projector_type"), out);
}

static bool is_told(const struct gguf *tower, const struct tower_kind *kind) {
    if (kind->told_by) return gguf_find(tower, kind->told_by) != NULL;
    return kind->told_key == NULL || architecture_value(tower, &kind->vision, kind->told_key);
}

static const struct tower_kind *find_kind(const struct gguf *tower) {
    struct text_span name;
    if (!read_projector(tower, &name)) return NULL;
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++)
        if (span_is(name, kinds[i].projector) && is_told(tower, &kinds[i])) return &kinds[i];
    return NULL;
}

static enum status fail_kind(const struct gguf *tower, struct error *e) {
    char known[200];
    struct text_span name = {"", 0};
    read_projector(tower, &name);
    list_projectors(known, sizeof known);
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s: clip.projector_type \"%.*s\" is missing or unknown; known: %s",
                     gguf_name(tower), (int)(name.size < 60 ? name.size : 60), name.text, known);
}

const struct tower_kind *gguf_tower_kind(const struct gguf *model) {
    const struct gguf *tower = gguf_joined(model);
    return tower ? find_kind(tower) : NULL;
}

const char *tower_model_type(const struct tower_kind *kind,
                             const struct architecture *architecture) {
    for (size_t i = 0; i < ARRAY_COUNT(kind->models); i++)
        if (kind->models[i] && strcmp(kind->models[i], architecture->name) == 0)
            return kind->types[i];
    return NULL;
}

struct tower_marks tower_marks_of(const struct tower_kind *kind) {
    return kind->marks;
}

/* Every key is known; those of no consequence have the values that are supported. */
static enum status check_keys(const struct gguf *tower, const struct tower_kind *kind,
                              struct error *e) {
    static const char inner[] = "clip.vision.", all[] = "clip.";
    const struct architecture *outer = kind->sound ? &sounding : &silent;
    for (int i = 0; i < gguf_value_count(tower); i++) {
        struct text_span key = gguf_value_at(tower, i)->key;
        if (key.size < strlen(all) || memcmp(key.text, all, strlen(all)) != 0) continue;
        if (kind->sound && span_starts_with(key, "clip.audio.")) continue;
        bool vision = key.size > strlen(inner) && memcmp(key.text, inner, strlen(inner)) == 0;
        const struct architecture *rows = vision ? &kind->vision : outer;
        size_t prefix = strlen(vision ? inner : all);
        if (gguf_names_key(rows->keys, rows->n_keys,
                           (struct text_span){key.text + prefix, key.size - prefix}))
            continue;
        return error_set(
            e, STATUS_UNSUPPORTED, "%s: key \"%.*s\" is not known for %s, and may change results",
            gguf_name(tower), (int)(key.size < 80 ? key.size : 80), key.text, kind->projector);
    }
    struct buffer nothing = {0};
    struct json_writer w;
    put_begin(&w, &nothing);
    enum status status = gguf_write_keys(&w, tower, outer, outer->keys, outer->n_keys, e);
    buffer_free(&nothing);
    return status;
}

/* Words that other models than LLaVA 1.6 have elsewise. */
static enum status check_words(const struct gguf *tower, const struct tower_kind *kind,
                               struct error *e) {
    static const struct {
        const char *key, *word;
    } words[] = {{"image_aspect_ratio", "anyres"},
                 {"mm_patch_merge_type", "spatial_unpad"},
                 {"mm_projector_type", "mlp2x_gelu"}};
    if (kind->family != TOWER_LLAVA_NEXT) return STATUS_OK;
    for (size_t i = 0; i < ARRAY_COUNT(words); i++) {
        const struct gguf_value *value = architecture_value(tower, &kind->vision, words[i].key);
        struct text_span text;
        if (value && (!gguf_text(value, &text) || !span_is(text, words[i].word)))
            return gguf_key_fail(tower, &kind->vision, words[i].key,
                                 "has a value that is not supported", e);
    }
    return STATUS_OK;
}

enum status tower_read_size(const struct gguf *tower, const struct tower_kind *kind,
                            const char *key, int64_t *out, struct error *e) {
    const struct gguf_value *value = architecture_value(tower, &kind->vision, key);
    if (gguf_key_int(value, out) && *out >= 1 && *out <= 1 << 20) return STATUS_OK;
    return gguf_key_fail(tower, &kind->vision, key, "is absent or no size", e);
}

static enum status check_sizes(const struct gguf *tower, const struct tower_kind *kind,
                               struct error *e) {
    int64_t size;
    for (size_t i = 0; i < kind->vision.n_keys; i++) {
        const struct key_row *row = &kind->vision.keys[i];
        bool needed = row->kind == KEY_INT && row->number == 0;
        if (needed && tower_read_size(tower, kind, row->key, &size, e)) return e->status;
    }
    return STATUS_OK;
}

int64_t tower_count_deepstack(const struct gguf *tower, const struct tower_kind *kind, int64_t i) {
    struct gguf_items it =
        gguf_items_of(architecture_value(tower, &kind->vision, "is_deepstack_layers"));
    struct gguf_value item;
    int64_t marked, n = 0;
    for (int64_t layer = 0; layer < i && gguf_next(&it, &item); layer++)
        n += gguf_int(&item, &marked) && marked != 0;
    return n;
}

static enum status check_deepstack(const struct gguf *model, const struct gguf *tower,
                                   const struct architecture *architecture,
                                   const struct tower_kind *kind, struct error *e) {
    int64_t read = 0, added = tower_count_deepstack(tower, kind, INT64_MAX);
    if (kind->family != TOWER_QWEN3) return STATUS_OK;
    gguf_int(architecture_value(model, architecture, "n_deepstack_layers"), &read);
    if (read == added) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "%s adds rows behind %lld layers, %s reads them behind %lld: they are not of "
                     "one model",
                     gguf_name(tower), (long long)added, gguf_name(model), (long long)read);
}

static enum status check_width(const struct gguf *model, const struct gguf *tower,
                               const struct architecture *architecture,
                               const struct tower_kind *kind, struct error *e) {
    const struct gguf_tensor *last = gguf_find(tower, kind->last);
    int64_t width = 0;
    if (last == NULL || last->n_dims != 2)
        return error_set(e, STATUS_CORRUPT, "%s: tensor %s is missing or no matrix",
                         gguf_name(tower), kind->last);
    gguf_key_int(architecture_value(model, architecture, "embedding_length"), &width);
    if (last->shape[kind->last_dim] == width) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "%s makes rows of %lld numbers, %s reads rows of %lld: they are not of one "
                     "model",
                     gguf_name(tower), (long long)last->shape[kind->last_dim], gguf_name(model),
                     (long long)width);
}

enum status gguf_check_tower(const struct gguf *model, const struct gguf *tower, struct error *e) {
    const struct architecture *architecture;
    const struct tower_kind *kind = find_kind(tower);
    struct text_span name;
    if (!gguf_text(gguf_value_find(tower, "general.architecture"), &name) ||
        !span_is(name, silent.name))
        return error_set(e, STATUS_INVALID,
                         "%s: general.architecture is not \"clip\": this is no vision tower",
                         gguf_name(tower));
    if (kind == NULL) return fail_kind(tower, e);
    if (architecture_find(model, &architecture, e)) return e->status;
    if (tower_model_type(kind, architecture) == NULL)
        return error_set(e, STATUS_INVALID,
                         "%s is a tower (%s) that does not go with %s, a model of the architecture "
                         "%s: keep a model and its tower in a folder of their own",
                         gguf_name(tower), kind->projector, gguf_name(model), architecture->name);
    if (check_keys(tower, kind, e) || check_words(tower, kind, e) || check_sizes(tower, kind, e) ||
        check_width(model, tower, architecture, kind, e))
        return e->status;
    return check_deepstack(model, tower, architecture, kind, e);
}
