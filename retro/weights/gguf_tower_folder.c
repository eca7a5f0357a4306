/* retro/weights/gguf_tower_folder.c: a tower's keys as config.json and preprocessor_config.json.
 * See gguf_tower.h. */
#include <math.h>
#include <string.h>

#include "config/base/text.h"
#include "retro/weights/gguf_tower_kinds.h"

/* The id of the token that stands for a picture. */
static enum status find_picture(const struct gguf *model, const struct tower_kind *kind,
                                int64_t *id, struct error *e) {
    const struct gguf_value *tokens = gguf_value_find(model, "tokenizer.ggml.tokens");
    struct gguf_items it = gguf_items_of(tokens);
    struct gguf_value item;
    struct text_span text;
    if (tokens == NULL || it.item != GGUF_TEXT)
        return error_set(e, STATUS_INVALID, "%s: tokenizer.ggml.tokens is no list of texts",
                         gguf_name(model));
    *id = 0;
    while (gguf_next(&it, &item)) {
        if (gguf_text(&item, &text) && span_is(text, kind->marks.picture)) break;
        *id += 1;
    }
    return STATUS_OK;
}

/* The activation of the MLPs, as llama.cpp knows it by two keys. */
static void write_activation(struct json_writer *w, const struct gguf *tower,
                             const struct tower_kind *kind) {
    const char *exact = kind->paired ? "gelu" : "gelu_pytorch_tanh";
    int64_t gelu = 0, silu = 0;
    gguf_int(gguf_value_find(tower, "clip.use_gelu"), &gelu);
    gguf_int(gguf_value_find(tower, "clip.use_silu"), &silu);
    put_key_string(w, "hidden_act", gelu ? exact : silu ? "silu" : "quick_gelu");
}

static enum status find_tensor(const struct gguf *tower, const char *name,
                               const struct gguf_tensor **out, struct error *e) {
    *out = gguf_find(tower, name);
    if (*out && (*out)->n_dims == 2) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT, "%s: tensor %s is missing or no matrix", gguf_name(tower),
                     name);
}

/* The width of the MLPs, of which some files say 0. */
static enum status find_ffn(const struct gguf *tower, int64_t *out, struct error *e) {
    bool swapped = tower_swaps_mlp(tower);
    const struct gguf_tensor *up;
    if (find_tensor(tower, swapped ? "v.blk.0.ffn_down.weight" : "v.blk.0.ffn_up.weight", &up, e))
        return e->status;
    *out = up->shape[0];
    return STATUS_OK;
}

/* The width of the model, which gguf_check_tower has compared. */
static int64_t find_width(const struct gguf *tower, const struct tower_kind *kind) {
    return gguf_find(tower, kind->last)->shape[kind->last_dim];
}

/* The rows of a picture: squares of patches become one each. */
static enum status write_together(struct json_writer *w, const struct gguf *tower,
                                  const struct tower_kind *kind, struct error *e) {
    static const char scale_key[] = "projector.scale_factor";
    const struct gguf_value *value = architecture_value(tower, &kind->vision, scale_key);
    int64_t image = 1, patch = 1, scale = 4;
    if (tower_read_size(tower, kind, "image_size", &image, e) ||
        tower_read_size(tower, kind, "patch_size", &patch, e))
        return e->status;
    if (value && tower_read_size(tower, kind, scale_key, &scale, e)) return e->status;
    int64_t side = image / patch / scale;
    put_key_int(w, "mm_tokens_per_image", side * side);
    return STATUS_OK;
}

/* The layers whose rows are read: all of the file, as converters leave the others out, or those
 * that it names. llama.cpp leaves the last one out of files that name none. */
static enum status write_layer(struct json_writer *w, const struct gguf *tower,
                               const struct tower_kind *kind, struct error *e) {
    static const char key[] = "feature_layer";
    const struct gguf_value *value = architecture_value(tower, &kind->vision, key);
    int64_t layers = 0;
    if (tower_read_size(tower, kind, "block_count", &layers, e)) return e->status;
    bool one = value == NULL || value->count == 1;
    if (value && (!one || !gguf_key_int(value, &layers) || layers < 1))
        return gguf_key_fail(tower, &kind->vision, key,
                             "is not one number from 1 on, which is all that is supported", e);
    put_key_int(w, "vision_feature_layer", layers);
    return STATUS_OK;
}

/* The rows of all layers are read, and two of them side by side become one in Mistral 3 alone. */
static void write_pixtral(struct json_writer *w, const struct gguf *tower,
                          const struct tower_kind *kind) {
    put_key_int(w, "vision_feature_layer", -1);
    put_key_bool(w, "multimodal_projector_bias", gguf_find(tower, "mm.1.bias") != NULL);
    if (kind->family == TOWER_PIXTRAL)
        put_key_string(w, "vision_feature_select_strategy", "full");
    else
        put_key_int(w, "spatial_merge_size", 2);
}

/* Qwen2-VL says how many times as wide an MLP is. */
static enum status write_qwen2(struct json_writer *w, const struct gguf *tower,
                               const struct tower_kind *kind, struct error *e) {
    int64_t hidden = 1, ffn = 0;
    if (tower_read_size(tower, kind, "embedding_length", &hidden, e) || find_ffn(tower, &ffn, e))
        return e->status;
    if (ffn % hidden != 0)
        return error_set(e, STATUS_UNSUPPORTED, "%s: MLPs of %lld columns of rows of %lld",
                         gguf_name(tower), (long long)ffn, (long long)hidden);
    put_key_int(w, "mlp_ratio", ffn / hidden);
    put_key_int(w, "hidden_size", find_width(tower, kind));
    return STATUS_OK;
}

/* Of `n_wa_pattern` layers the last one attends over the whole picture. */
static enum status write_qwen2_5(struct json_writer *w, const struct gguf *tower,
                                 const struct tower_kind *kind, struct error *e) {
    int64_t layers = 0, period = 1, ffn = 0;
    if (tower_read_size(tower, kind, "block_count", &layers, e) ||
        tower_read_size(tower, kind, "n_wa_pattern", &period, e) || find_ffn(tower, &ffn, e))
        return e->status;
    put_key_int(w, "intermediate_size", ffn);
    put_key_int(w, "out_hidden_size", find_width(tower, kind));
    put_key_array(w, "fullatt_block_indexes");
    for (int64_t i = period - 1; i < layers && i < ARCHITECTURE_LAYERS; i += period) put_int(w, i);
    put_array_end(w);
    return STATUS_OK;
}

static enum status write_qwen3(struct json_writer *w, const struct gguf *tower,
                               const struct tower_kind *kind, struct error *e) {
    struct gguf_items it =
        gguf_items_of(architecture_value(tower, &kind->vision, "is_deepstack_layers"));
    const struct gguf_tensor *positions;
    struct gguf_value item;
    int64_t marked;
    if (find_tensor(tower, "v.position_embd.weight", &positions, e)) return e->status;
    put_key_int(w, "num_position_embeddings", positions->shape[0]);
    put_key_int(w, "out_hidden_size", find_width(tower, kind));
    put_key_array(w, "deepstack_visual_indexes");
    for (int64_t i = 0; i < ARCHITECTURE_LAYERS && gguf_next(&it, &item); i++)
        if (gguf_int(&item, &marked) && marked != 0) put_int(w, i);
    put_array_end(w);
    return STATUS_OK;
}

static enum status write_vision(struct json_writer *w, const struct gguf *tower,
                                const struct tower_kind *kind, struct error *e) {
    if (kind->vision.model_type) put_key_string(w, "model_type", kind->vision.model_type);
    write_activation(w, tower, kind);
    if (gguf_write_keys(w, tower, &kind->vision, kind->vision.keys, kind->vision.n_keys, e))
        return e->status;
    switch (kind->family) {
        case TOWER_QWEN2: return write_qwen2(w, tower, kind, e);
        case TOWER_QWEN2_5: return write_qwen2_5(w, tower, kind, e);
        case TOWER_QWEN3: return write_qwen3(w, tower, kind, e);
        default: return STATUS_OK;
    }
}

enum status gguf_write_tower(struct json_writer *w, const struct gguf *model, struct error *e) {
    const struct gguf *tower = gguf_joined(model);
    const struct tower_kind *kind = gguf_tower_kind(model);
    int64_t id = 0;
    if (find_picture(model, kind, &id, e)) return e->status;
    put_key_int(w, "image_token_id", id);
    if (kind->family == TOWER_GEMMA3 && write_together(w, tower, kind, e)) return e->status;
    if (kind->family == TOWER_LLAVA && write_layer(w, tower, kind, e)) return e->status;
    if (kind->paired) write_pixtral(w, tower, kind);
    put_key_object(w, "vision_config");
    if (write_vision(w, tower, kind, e)) return e->status;
    put_object_end(w);
    return STATUS_OK;
}

/* preprocessor_config.json. */

static enum status write_colors(struct json_writer *w, const struct gguf *tower,
                                const struct tower_kind *kind, const char *key, struct error *e) {
    const struct gguf_value *value = architecture_value(tower, &kind->vision, key);
    struct gguf_items it = gguf_items_of(value);
    struct gguf_value item;
    put_key_array(w, key);
    if (it.left != 3)
        return gguf_key_fail(tower, &kind->vision, key, "is no list of three numbers", e);
    while (gguf_next(&it, &item)) {
        double number;
        if (!gguf_number(&item, &number) || !isfinite((float)number))
            return gguf_key_fail(tower, &kind->vision, key, "has what is no finite number", e);
        put_float(w, (float)number);
    }
    put_array_end(w);
    return STATUS_OK;
}

/* Pictures of any size within limits, of which llama.cpp's files may tell. */
static enum status write_limits(struct json_writer *w, const struct gguf *tower,
                                const struct tower_kind *kind, int64_t patch, struct error *e) {
    static const char *const keys[] = {"image_min_pixels", "image_max_pixels"};
    static const char *const names[] = {"min_pixels", "max_pixels"};
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
        const struct gguf_value *value = architecture_value(tower, &kind->vision, keys[i]);
        int64_t pixels = i == 0 ? kind->least_pixels : kind->most_pixels;
        if (value && !gguf_int(value, &pixels))
            return gguf_key_fail(tower, &kind->vision, keys[i], "is no whole number", e);
        put_key_int(w, names[i], pixels);
    }
    put_key_int(w, "patch_size", patch);
    put_key_int(w, "merge_size", 2);
    put_key_int(w, "temporal_patch_size", 2);
    return STATUS_OK;
}

static enum status write_size(struct json_writer *w, const struct gguf *tower,
                              const struct tower_kind *kind, int64_t patch, struct error *e) {
    int64_t side = 0;
    if (tower_read_size(tower, kind, "image_size", &side, e)) return e->status;
    if (kind->paired) {
        put_key_int(w, "patch_size", patch);
        put_key_int(w, "spatial_merge_size", kind->family == TOWER_MISTRAL3 ? 2 : 1);
        put_key_object(w, "size");
        put_key_int(w, "longest_edge", side);
        put_object_end(w);
        return STATUS_OK;
    }
    if (kind->family == TOWER_LLAVA) { /* the middle of a picture */
        put_key_int(w, "size", side);
        put_key_int(w, "crop_size", side);
        return STATUS_OK;
    }
    put_key_string(w, "processor_class", "Gemma3Processor"); /* writes the marks */
    put_key_object(w, "size");
    put_key_int(w, "height", side);
    put_key_int(w, "width", side);
    put_object_end(w);
    return STATUS_OK;
}

enum status gguf_write_processor(const struct gguf *model, struct buffer *json, struct error *e) {
    const struct gguf *tower = gguf_joined(model);
    const struct tower_kind *kind = gguf_tower_kind(model);
    struct json_writer w;
    int64_t patch = 0;
    if (tower_read_size(tower, kind, "patch_size", &patch, e)) return e->status;
    put_begin_indented(&w, json, 2);
    put_object(&w);
    put_key_string(&w, "image_processor_type", kind->processor);
    if (write_colors(&w, tower, kind, "image_mean", e) ||
        write_colors(&w, tower, kind, "image_std", e) ||
        (kind->most_pixels > 0 ? write_limits(&w, tower, kind, patch, e)
                               : write_size(&w, tower, kind, patch, e)))
        return e->status;
    put_object_end(&w);
    return STATUS_OK;
}
