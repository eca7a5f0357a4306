/* retro/families/lfm2.h: the parts that LFM2 with and without experts share, and LFM3 with them. */
#pragma once

#include "retro/families/huggingface.h"

/* Absent keys stand for these sizes. */
struct huggingface_decoder lfm2_start(const struct model_spec *spec, int hidden, int ffn);
/* The keys of both. STATUS_INVALID or STATUS_UNSUPPORTED, naming the key. */
enum status lfm2_read(const struct json *config, struct huggingface_decoder *decoder,
                      struct error *e);

enum { LFM2_OUTER_ROWS = 3 };
extern const struct tensor_row lfm2_outer_rows[LFM2_OUTER_ROWS];

#define LFM2_DECODER(type, reader, rows) \
    .model_type = (type), .read = (reader), .inspect = huggingface_find_output, \
    .layer = huggingface_layer, \
    .stacks[STACK_DECODER] = {{"model.layers.#.", "layers.#."}, rows, ARRAY_COUNT(rows)}, \
    .outer = {{NULL}, lfm2_outer_rows, LFM2_OUTER_ROWS}, .ignores = huggingface_ignores_extras

#define LFM2_CONVOLUTION_ROWS \
    {.place = offsetof(struct layer, state_in), .names = {"conv.in_proj.*"}}, \
        {.place = offsetof(struct layer, state_filter), .names = {"conv.conv.weight"}}, \
        {.place = offsetof(struct layer, state_filter_bias), .names = {"conv.conv.bias"}}, { \
        .place = offsetof(struct layer, state_out), .names = { "conv.out_proj.*" } \
    }
/* Norms, attention and convolution of a layer. */
#define LFM2_MIXER_ROWS \
    {.place = offsetof(struct layer, norm_in), .names = {"operator_norm.*"}}, \
        {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"self_attn.q_proj.*"}}, \
        {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"self_attn.k_proj.*"}}, \
        {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"self_attn.v_proj.*"}}, \
        {.place = offsetof(struct layer, norm_q), .names = {"self_attn.q_layernorm.*"}}, \
        {.place = offsetof(struct layer, norm_k), .names = {"self_attn.k_layernorm.*"}}, \
        {.place = offsetof(struct layer, proj), .names = {"self_attn.out_proj.*"}}, \
        LFM2_CONVOLUTION_ROWS, { \
        .place = offsetof(struct layer, norm_mlp), .names = { "ffn_norm.*" } \
    }
#define LFM2_MLP_ROWS \
    {.place = offsetof(struct layer, fc1), .part = PART_GATE, .names = {"feed_forward.w1.*"}}, \
        {.place = offsetof(struct layer, fc1), .part = PART_UP, .names = {"feed_forward.w3.*"}}, { \
        .place = offsetof(struct layer, fc2), .names = { "feed_forward.w2.*" } \
    }
