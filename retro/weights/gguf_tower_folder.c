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
    if (kind->family == TOWER_GEMMA4) {
        put_key_string(w, "hidden_activation", silu ? "silu" : exact);
        return;
    }
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

static bool tiles_or_crops(const struct tower_kind *kind) {
    return kind->family == TOWER_LLAVA || kind->family == TOWER_LLAVA_NEXT;
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

/* Files tell the heads of queries; the tensors tell the rest. */
static enum status write_gemma4(struct json_writer *w, const struct gguf *tower,
                                const struct tower_kind *kind, struct error *e) {
    static const char table_name[] = "v.position_embd.weight";
    const struct gguf_tensor *queries, *keys, *table = gguf_find(tower, table_name);
    int64_t heads = 1;
    if (tower_read_size(tower, kind, "attention.head_count", &heads, e) ||
        find_tensor(tower, "v.blk.0.attn_q.weight", &queries, e) ||
        find_tensor(tower, "v.blk.0.attn_k.weight", &keys, e))
        return e->status;
    if (table == NULL || table->n_dims != 3 || table->shape[0] != 2)
        return error_set(e, STATUS_CORRUPT,
                         "%s: tensor %s is missing, or not one table of columns and one of lines",
                         gguf_name(tower), table_name);
    int64_t head = queries->shape[0] / heads;
    bool whole = head > 0 && queries->shape[0] % heads == 0 && keys->shape[0] % head == 0;
    if (!whole)
        return error_set(e, STATUS_CORRUPT,
                         "%s: queries of %lld rows and keys of %lld in %lld heads",
                         gguf_name(tower), (long long)queries->shape[0], (long long)keys->shape[0],
                         (long long)heads);
    put_key_int(w, "head_dim", head);
    put_key_int(w, "num_key_value_heads", keys->shape[0] / head);
    put_key_int(w, "position_embedding_size", table->shape[1]);
    put_key_bool(w, "use_clipped_linears",
                 architecture_has_tensor(tower, "v.blk.#.attn_q.input_max"));
    put_key_bool(w, "standardize", gguf_find(tower, "v.std_scale") != NULL);
    return STATUS_OK;
}

static enum status write_vision(struct json_writer *w, const struct gguf *tower,
                                const struct tower_kind *kind, struct error *e) {
    if (kind->vision.model_type) put_key_string(w, "model_type", kind->vision.model_type);
    write_activation(w, tower, kind);
    if (gguf_write_keys(w, tower, &kind->vision, kind->vision.keys, kind->vision.n_keys, e))
        return e->status;
    switch (kind->family) {
        case TOWER_GEMMA4: return write_gemma4(w, tower, kind, e);
        case TOWER_QWEN2: return write_qwen2(w, tower, kind, e);
        case TOWER_QWEN2_5: return write_qwen2_5(w, tower, kind, e);
        case TOWER_QWEN3: return write_qwen3(w, tower, kind, e);
        default: return STATUS_OK;
    }
}

/* Rows of one picture see each other in the models of Gemma 4 that have no rows of numbers of each
 * token for each layer, which no file tells. */
void gguf_write_tower_text(struct json_writer *w, const struct gguf *model,
                           const struct architecture *architecture) {
    const struct gguf_value *pad = gguf_value_find(model, "tokenizer.ggml.padding_token_id");
    int64_t id = 0, columns = 0;
    if (gguf_tower_kind(model)->family != TOWER_GEMMA4) return;
    if (gguf_int(pad, &id)) put_key_int(w, "pad_token_id", id);
    gguf_key_int(architecture_value(model, architecture, "embedding_length_per_layer_input"),
                 &columns);
    if (columns == 0) put_key_string(w, "use_bidirectional_attention", "vision");
}

enum status gguf_write_tower(struct json_writer *w, const struct gguf *model, struct error *e) {
    const struct gguf *tower = gguf_joined(model);
    const struct tower_kind *kind = gguf_tower_kind(model);
    int64_t id = 0;
    if (find_picture(model, kind, &id, e)) return e->status;
    put_key_int(w, "image_token_id", id);
    if (kind->family == TOWER_GEMMA3 && write_together(w, tower, kind, e)) return e->status;
    if (tiles_or_crops(kind) && write_layer(w, tower, kind, e)) return e->status;
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

/* Sides of pictures in tiles: numbers in pairs, as in the folder's list. */
static enum status write_grids(struct json_writer *w, const struct gguf *tower,
                               const struct tower_kind *kind, struct error *e) {
    enum { MOST_SIDES = 1 << 10 }; /* the processor takes fewer */
    static const char key[] = "image_grid_pinpoints";
    struct gguf_items it = gguf_items_of(architecture_value(tower, &kind->vision, key));
    struct gguf_value item;
    if (it.left < 2 || it.left > MOST_SIDES || it.left % 2 != 0)
        return gguf_key_fail(tower, &kind->vision, key, "is no list of some pairs of sides", e);
    put_key_array(w, key);
    for (bool first = true; gguf_next(&it, &item); first = !first) {
        int64_t side;
        if (!gguf_int(&item, &side))
            return gguf_key_fail(tower, &kind->vision, key, "has what is no whole number", e);
        if (first) put_array(w);
        put_int(w, side);
        if (!first) put_array_end(w);
    }
    put_array_end(w);
    return STATUS_OK;
}

/* The middle of a picture, or all of it and its tiles. */
static enum status write_crop(struct json_writer *w, const struct gguf *tower,
                              const struct tower_kind *kind, int64_t side, struct error *e) {
    put_key_int(w, "size", side);
    put_key_int(w, "crop_size", side);
    return kind->family == TOWER_LLAVA_NEXT ? write_grids(w, tower, kind, e) : STATUS_OK;
}

static void write_longest(struct json_writer *w, const struct tower_kind *kind, int64_t side,
                          int64_t patch) {
    put_key_int(w, "patch_size", patch);
    put_key_int(w, "spatial_merge_size", kind->family == TOWER_MISTRAL3 ? 2 : 1);
    put_key_object(w, "size");
    put_key_int(w, "longest_edge", side);
    put_object_end(w);
}

static void write_square(struct json_writer *w, int64_t side) {
    put_key_string(w, "processor_class", "Gemma3Processor"); /* writes the marks */
    put_key_object(w, "size");
    put_key_int(w, "height", side);
    put_key_int(w, "width", side);
    put_object_end(w);
}

static enum status write_size(struct json_writer *w, const struct gguf *tower,
                              const struct tower_kind *kind, int64_t patch, struct error *e) {
    int64_t side = 0;
    if (tower_read_size(tower, kind, "image_size", &side, e)) return e->status;
    if (tiles_or_crops(kind)) return write_crop(w, tower, kind, side, e);
    if (kind->paired)
        write_longest(w, kind, side, patch);
    else
        write_square(w, side);
    return STATUS_OK;
}

/* Whether all three numbers are this one. */
static bool list_is(const struct gguf *tower, const struct tower_kind *kind, const char *key,
                    double number) {
    struct gguf_items it = gguf_items_of(architecture_value(tower, &kind->vision, key));
    struct gguf_value item;
    double found;
    while (gguf_next(&it, &item))
        if (!gguf_number(&item, &found) || found != number) return false;
    return true;
}

/* As many tokens as published folders allow, where the file does not tell. Colours are left as they
 * are, as there, unless the file would change them. */
static enum status write_tokens(struct json_writer *w, const struct gguf *tower,
                                const struct tower_kind *kind, int64_t patch, struct error *e) {
    static const char pooled_key[] = "projector.scale_factor", pixels_key[] = "image_max_pixels";
    int64_t pooled = 3, pixels = 0, tokens = 280;
    const struct gguf_value *value = architecture_value(tower, &kind->vision, pixels_key);
    if (architecture_value(tower, &kind->vision, pooled_key) &&
        tower_read_size(tower, kind, pooled_key, &pooled, e))
        return e->status;
    if (value) {
        if (!gguf_int(value, &pixels) || pixels < 1)
            return gguf_key_fail(tower, &kind->vision, pixels_key, "is no number of pixels", e);
        tokens = pixels / (patch * patch) / (pooled * pooled);
    }
    put_key_string(w, "processor_class", "Gemma4Processor"); /* writes the marks */
    put_key_int(w, "patch_size", patch);
    put_key_int(w, "pooling_kernel_size", pooled);
    put_key_int(w, "max_soft_tokens", tokens);
    put_key_bool(w, "do_normalize",
                 !list_is(tower, kind, "image_mean", 0) || !list_is(tower, kind, "image_std", 1));
    return STATUS_OK;
}

static enum status write_geometry(struct json_writer *w, const struct gguf *tower,
                                  const struct tower_kind *kind, struct error *e) {
    int64_t patch = 0;
    if (tower_read_size(tower, kind, "patch_size", &patch, e)) return e->status;
    if (kind->family == TOWER_GEMMA4) return write_tokens(w, tower, kind, patch, e);
    return kind->most_pixels > 0 ? write_limits(w, tower, kind, patch, e)
                                 : write_size(w, tower, kind, patch, e);
}

enum status gguf_write_processor(const struct gguf *model, struct buffer *json, struct error *e) {
    const struct gguf *tower = gguf_joined(model);
    const struct tower_kind *kind = gguf_tower_kind(model);
    struct json_writer w;
    put_begin_indented(&w, json, 2);
    put_object(&w);
    put_key_string(&w, "image_processor_type", kind->processor);
    if (write_colors(&w, tower, kind, "image_mean", e) ||
        write_colors(&w, tower, kind, "image_std", e) || write_geometry(&w, tower, kind, e))
        return e->status;
    put_object_end(&w);
    return STATUS_OK;
}
