/* retro/families/huggingface_vision.h: towers that Hugging Face's models share. */
#pragma once

#include "retro/families/huggingface.h"

/* The tower of a vision_config: its `read` fills the tower's dims and spec, its rows name the
 * tensors. NULL: there is none of this type. */
const struct family *huggingface_find_tower(const char *model_type);

/* The rotary positions of a tower: the first half of a head's pairs turn by the patch's line, the
 * others by its column. Both halves have the frequencies of a head of half the size; or they have
 * those of a head in turn, the line the first one. rope_theta is 10000 where config, which may be
 * absent, does not tell. */
enum status huggingface_read_axial_rope(const struct json *config, bool in_turn, struct dims *dims,
                                        struct error *e);

/* The decoder of a text_config, `usual` where that does not say which; sets its part. */
enum status huggingface_read_text(const struct json *config, const struct family *usual,
                                  struct model_spec *spec, struct error *e);
/* The tower of a vision_config, `usual` where that does not say which; sets its part. */
enum status huggingface_read_vision(const struct json *config, const char *usual,
                                    struct model_spec *spec, struct error *e);
/* vision_feature_layer, hidden_states[i] of the tower, `usual` where it is absent. */
enum status huggingface_read_feature_layer(const struct json *config, int usual,
                                           struct model_spec *spec, struct error *e);
/* inspect: huggingface_find_output, of a decoder that may be nested. */
void huggingface_find_nested_output(const struct weights *weights, struct model_spec *spec);
/* ignores: the heads of CLIP's and SigLIP's towers, and constants. */
bool huggingface_ignores_tower_heads(const char *name);
/* The tower of Pixtral, and its tensors behind "vision_tower.". */
extern const struct family pixtral_tower;

/* Where no tensor's name has `part`, the checkpoint is without its tower: the spec becomes that of
 * a model that reads text alone, and the log says so. */
void huggingface_drop_absent_tower(const struct weights *weights, const char *part,
                                   struct model_spec *spec);

/* The towers of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5 as parts of other models; the last two
 * have another name beside a decoder with experts. */
extern const struct family qwen2_tower, qwen2_5_tower, qwen3_tower, qwen3_moe_tower, qwen3_5_tower,
    qwen3_5_moe_tower;
/* The vision_config of one of them: fills the tower's dims and spec, the projector, and the part of
 * the tower, whose tensors stand behind "visual.". Its sizes are not checked against the decoder's
 * yet. */
enum status qwen_tower_read(const struct json *config, const struct family *tower,
                            struct model_spec *spec, struct error *e);

/* The keys of the whole of Qwen2-VL and its relatives, with what an absent id of pictures stands
 * for; and their table in Qwen2-VL, Qwen2.5-VL and Qwen3-VL. */
struct qwen_vl_keys {
    struct model_spec spec;
    const struct json *text, *vision;
    bool tied;
};
#define QWEN_VL_FIELDS(usual_picture) \
    {"text_config", JSON_RAW, JSON_AT(struct qwen_vl_keys, text)}, \
        {"vision_config", JSON_RAW, JSON_AT(struct qwen_vl_keys, vision)}, \
        {"image_token_id", JSON_INT,         AT_SPEC(picture.id), \
         .min = 0,         .max = LIMIT_IDS, .fallback = (usual_picture)}, \
    { \
        "tie_word_embeddings", JSON_BOOL, JSON_AT(struct qwen_vl_keys, tied) \
    }
extern const struct json_table qwen_vl_table;

/* The keys that these towers share, for a struct that begins with them. */
struct qwen_tower_keys {
    struct model_spec spec;
    int activation;
    const struct json *rope; /* rope_parameters */
};
enum { QWEN_MERGED = 2 /* rows that are joined, along both sides */ };
extern const struct json_table qwen_tower_table;
/* Rows of all of them, with what an absent depth and an absent side of a patch stand for. */
#define QWEN_TOWER_FIELDS(usual_depth, usual_patch) \
    { \
        "depth",  JSON_INT,          AT_TOWER(n_layers), \
        .min = 1, .max = MAX_LAYERS, .fallback = (usual_depth)}, \
        {"patch_size", JSON_INT,           AT_SPEC(tower.patch), \
         .min = 1,     .max = LIMIT_PATCH, .fallback = (usual_patch)}, \
    { \
        .type = JSON_ROWS, .table = &qwen_tower_table \
    }
/* Fills in the sizes that follow from the keys: hidden size, heads and patches are set. */
enum status qwen_tower_finish(struct qwen_tower_keys *keys, struct error *e);
/* A layer that attends over all rows and turns. */
struct layer_spec qwen_tower_layer(const struct model_spec *spec, enum stack_id stack, int i);
/* The attention of such a layer, whose product GGUF files have in parts. */
#define QWEN_TOWER_ROWS \
    {.place = offsetof(struct layer, norm_in), .names = {"norm1.*"}}, \
        {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"attn.q.*"}}, \
        {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"attn.k.*"}}, \
        {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"attn.v.*"}}, \
        {.place = offsetof(struct layer, qkv), .names = {"attn.qkv.*"}}, \
        {.place = offsetof(struct layer, proj), .names = {"attn.proj.*"}}, { \
        .place = offsetof(struct layer, norm_mlp), .names = { "norm2.*" } \
    }
