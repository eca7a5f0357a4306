/* retro/families/gemma4_layers.h: the layers of Gemma 4, which differ in heads, windows, MLPs and
 * in whose keys and values they read. */
#pragma once

#include "retro/families/huggingface.h"

/* The decoder's keys, and those that have no place in the spec. */
struct gemma4_keys {
    struct huggingface_decoder decoder;
    int shared_layers, global_kv_heads; /* the last layers reuse; 0: as in other layers */
    bool wide_mlp;                      /* of layers that reuse */
};

/* The shapes of heads and MLPs, and the layers that reuse, of a decoder whose windows are read. */
enum status gemma4_read_layers(struct gemma4_keys *keys, struct error *e);
/* The experts that "enable_moe_block" asks for. */
enum status gemma4_read_experts(const struct json *config, struct model_spec *spec,
                                struct error *e);
/* ignores: layers that reuse keys and values may be stored with their own, which nobody reads; and
 * towers of sound. */
bool gemma4_ignores(const char *name);
/* The tower as a part of a model: its `read` fills the tower's dims and spec, and the projector,
 * whose product stands outside it (family_gemma4_vision.c). */
extern const struct family gemma4_tower;
struct layer_spec gemma4_layer(const struct model_spec *spec, enum stack_id stack, int i);

#define GEMMA4_EXPERT_ROWS \
    {.place = offsetof(struct layer, norm_router), .names = {"router.scale"}}, \
        {.place = offsetof(struct layer, router), .names = {"router.proj.*"}}, \
        {.place = offsetof(struct layer, router_scale), .names = {"router.per_expert_scale"}}, \
        {.place = offsetof(struct layer, norm_dense_out), \
         .names = {"post_feedforward_layernorm_1.*"}}, \
        {.place = offsetof(struct layer, norm_experts), \
         .names = {"pre_feedforward_layernorm_2.*"}}, \
        {.place = offsetof(struct layer, norm_experts_out), \
         .names = {"post_feedforward_layernorm_2.*"}}, \
        HUGGINGFACE_GATE_UP_ROWS(expert_fc1, "experts.#"), \
        {.place = offsetof(struct layer, expert_fc1), .names = {"experts.#.gate_up_proj.*"}}, { \
        .place = offsetof(struct layer, expert_fc2), .names = { "experts.#.down_proj.*" } \
    }
