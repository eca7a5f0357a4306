/* retro/families/huggingface.h: the parts of a Hugging Face folder that its families share. */
#pragma once

#include "retro/model/model_private.h"

/* "gelu", "gelu_new", ...: values of enum activation. */
extern const struct json_choice huggingface_activations[];

/* eos_token_id, an id or a list of ids that all end a text, for a struct that begins with a
 * model_spec. */
enum status huggingface_parse_eos(struct json_reader *reader, const struct json *value,
                                  void *object);

/* time_step_limit: the least and the most step of state spaces, the latter perhaps Infinity, as a
 * number, a text or {"__float__": it}; for a struct that begins with a model_spec. */
enum status huggingface_parse_steps(struct json_reader *reader, const struct json *value,
                                    void *object);

/* Time, row and column: the positions of a row with multimodal RoPE. */
enum { MROPE_SECTIONS = 3 };

/* A family's rotary positions where config.json is silent. */
struct rope_rules {
    bool none;               /* nothing turns, and no key is read */
    double base, local_base; /* local_base 0: the layers have one table */
    bool local_fixed;        /* rope_local_base_freq is not read */
    bool bases_given;        /* neither is rope_theta; both tables have the same keys else */
    double partial;     /* of the dimensions of a head that turn; 0: all, and no other number is
                           supported */
    int rotated;        /* dimensions of a head that it is a share of; 0: of all */
    int original;       /* 0: max_position_embeddings */
    bool renames_yarn;  /* "yarn" is longrope */
    bool neox_names;    /* rotary_emb_base and rotary_pct */
    bool grows;         /* queries grow by llama_4_scaling_beta, which is needed then */
    bool alpha;         /* "dynamic" with an "alpha" has a larger base, and no more */
    bool scales_scores; /* scores grow by the square of what yarn's mscale_all_dim makes */
    bool reads_text; /* mrope_section says nothing: the three positions of a text's row are one */
    double proportional; /* 0, or some pairs of whole heads turn, this share of them where the file
                            is silent; tables without a window are of wide heads where there are any
                          */
    bool multimodal;     /* a row has three positions, of which mrope_section gives each pair one */
    bool interleaved;    /* whose pairs take turns (Qwen3-VL), whatever mrope_interleaved says */
    int sections[MROPE_SECTIONS]; /* where mrope_section is silent */
};
/* Fills a stack's rotary dims and tables from rope_theta, rope_scaling and rope_parameters;
 * head_dim and max_positions are set, and `dims` is of the spec. An unsupported value is an error
 * that names the key (huggingface_rope.c). */
enum status huggingface_read_rope(const struct json *config, const struct rope_rules *rules,
                                  const struct model_spec *spec, struct dims *dims,
                                  struct error *e);

/* Sizes that follow from others where config.json lacks them: key/value heads, head size, scale of
 * scores, padded vocabulary. An eos id outside the vocabulary is never drawn and counts as none.
 * STATUS_INVALID where heads of equal size do not fill the hidden size. */
enum status huggingface_derive(struct model_spec *spec, struct dims *dims, struct error *e);

/* inspect: a stored output matrix is the output matrix, whatever tie_word_embeddings says. */
void huggingface_find_output(const struct weights *weights, struct model_spec *spec);

/* The keys that decoders share (huggingface_decoder.c). The caller fills in what an absent key
 * stands for. */
struct huggingface_decoder {
    struct model_spec spec;
    struct rope_rules rope;
    bool attention_bias, mlp_bias;
    bool use_window;       /* use_sliding_window */
    bool zero_window;      /* transformers 5 writes a window of 0 where there is none */
    int max_window_layers; /* the first layer with a window, where layer_types is silent */
    int window_pattern;    /* the period of layers without */
    bool may_be_two_sided; /* the family has embedders with use_bidirectional_attention */
    bool causal;           /* is_causal: false in embedders whose tokens see those behind them */
    bool may_look_ahead;   /* the family has such embedders */
    bool names_two_sided;  /* which is "all", or "vision": pictures alone, so of texts none */
    bool layers_differ;    /* the family reads per_layer_config */
    bool may_be_xielu;     /* the family has that activation, "xielu" */
    bool mixes_windows;    /* "sliding_attention" may stand beside mixers in layer_types */
    const struct json *layer_configs; /* per_layer_config */
    const struct json *layer_types;
    const char *window_type;         /* in them; NULL: "sliding_attention" */
    const struct json *quantisation; /* quantization_config */
    bool mxfp4;                      /* which may say that some weights are MXFP4 */
    int query_dim; /* of a head's queries, whatever "head_dim" says; 0: it says so */
};
/* quantization_config, which may be absent: e4m3 numbers in squares, or, where `mxfp4`, MXFP4.
 * STATUS_UNSUPPORTED for all else. */
enum status huggingface_check_quantisation(const struct json *value, bool mxfp4, struct error *e);
/* A decoder with RMS norms before branches and a gated MLP: sizes, biases that the two keys ask
 * for, the rotary tables, the window (of no layer yet). The caller changes the rest. */
enum status huggingface_read_decoder(const struct json *config, struct huggingface_decoder *decoder,
                                     struct error *e);
/* STATUS_UNSUPPORTED where tokens see those behind them, and a window would cut both ways. */
enum status huggingface_refuse_two_windows(const struct model_spec *spec, struct error *e);
/* Qwen2's keys, with biases on queries, keys and values, and the window as spec.windowed:
 * layer_types says which layers have it; where it is silent, those from max_window_layers on. */
enum status huggingface_read_qwen2(const struct json *config, struct huggingface_decoder *decoder,
                                   struct error *e);
/* Qwen3's keys, with norms of each head's queries and keys, and the window likewise. */
enum status huggingface_read_qwen3(const struct json *config, struct huggingface_decoder *decoder,
                                   struct error *e);
/* Those of Qwen3 with experts, a window in all layers; and its layers, whose experts lie stacked,
 * turned or not. */
enum status huggingface_read_qwen3_moe(const struct json *config,
                                       struct huggingface_decoder *decoder, struct error *e);
extern const struct family family_qwen3_turned_moe;
/* layer_types of n layers as spec.windowed. STATUS_INVALID where it is no list of
 * "sliding_attention" and "full_attention" for each layer, or has windows where there is none. */
enum status huggingface_read_layer_types(struct huggingface_decoder *decoder, int n,
                                         struct error *e);
/* The same, and where layer_types is silent windows in all layers but each window_pattern-th. */
enum status huggingface_read_windows(struct huggingface_decoder *decoder, struct error *e);
/* layer_types as spec.mixers: "full_attention" or "attention", and for `mixer` one of the names,
 * which NULL ends; and where `mixes_windows`, spec.windowed. STATUS_INVALID where it is no list of
 * these for each layer. */
enum status huggingface_read_mixers(struct huggingface_decoder *decoder, const char *const *names,
                                    enum mixer mixer, struct error *e);
/* spec.dense: layers without experts, those listed and those between the steps. `listed` may be
 * absent. */
enum status huggingface_read_dense(struct model_spec *spec, int step, const struct json *listed,
                                   struct error *e);
/* The same by mlp_layer_types, "dense" or "sparse" of each layer; where it is absent, the first
 * layers. */
enum status huggingface_read_mlp_types(struct model_spec *spec, const struct json *types, int first,
                                       struct error *e);
/* spec.unrotated by no_rope_layers, a number for each layer, 0 where it has no RoPE; where it is
 * absent or empty, by no_rope_layer_interval (family_llama.c). */
enum status huggingface_read_unrotated(const struct json *config, struct model_spec *spec,
                                       struct error *e);
/* Granite's multipliers of words, branches, scores and logits (family_granite.c). */
enum status huggingface_read_multipliers(const struct json *config, struct model_spec *spec,
                                         struct error *e);
/* Granite's experts in all layers, beside an MLP that all rows use where the family has one
 * (family_granite_moe.c). */
enum status huggingface_read_granite_experts(const struct json *config, bool shared,
                                             struct model_spec *spec, struct error *e);
/* Experts as GLM-4.5 has them (family_glm4_moe.c): behind the first layers, chosen by sigmoids and
 * a bias, in groups, beside one that all rows use. The numbers stand for absent keys, and so do the
 * sizes of experts in the spec. */
enum status huggingface_read_grouped_experts(const struct json *config, int first_dense, int shared,
                                             struct model_spec *spec, struct error *e);
enum { HUGGINGFACE_GROUPED_LAYER_ROWS = 20 };
extern const struct tensor_row huggingface_grouped_rows[HUGGINGFACE_GROUPED_LAYER_ROWS];
/* A causal layer: rotary positions but in unrotated layers, the window in windowed ones. */
struct layer_spec huggingface_layer(const struct model_spec *spec, enum stack_id stack, int i);
/* The same, whose windowed layers turn by ROPE_LOCAL. */
struct layer_spec huggingface_local_layer(const struct model_spec *spec, enum stack_id stack,
                                          int i);
bool huggingface_ends_with(const char *name, const char *suffix);
/* ignores: old checkpoints hold the frequencies of RoPE in every layer, and a reranker's the matrix
 * that scores (sequence_head.h). */
bool huggingface_ignores_extras(const char *name);

/* The tensors outside the layers of Llama and its relatives, and those of Llama's own layer. */
enum { HUGGINGFACE_OUTER_ROWS = 3, HUGGINGFACE_LAYER_ROWS = 11 };
extern const struct tensor_row huggingface_outer_rows[HUGGINGFACE_OUTER_ROWS];
extern const struct tensor_row huggingface_layer_rows[HUGGINGFACE_LAYER_ROWS];

/* The fields of struct family of Llama's relatives: model_type, read, layer, and the rows of a
 * layer. */
#define HUGGINGFACE_DECODER(type, reader, describe, rows) \
    .model_type = (type), .read = (reader), .inspect = huggingface_find_output, \
    .layer = (describe), \
    .stacks[STACK_DECODER] = {{"model.layers.#.", "layers.#."}, rows, ARRAY_COUNT(rows)}, \
    .outer = {{NULL}, huggingface_outer_rows, HUGGINGFACE_OUTER_ROWS}, \
    .ignores = huggingface_ignores_extras
/* The sizes that BERT and its relatives name alike, as rows of config.json's table. */
#define HUGGINGFACE_ENCODER_SIZES \
    {"num_hidden_layers", JSON_INT,        AT_ENCODER(n_layers), .min = 1, \
     .max = MAX_LAYERS,   .required = true}, \
        {"hidden_size", JSON_INT,           AT_ENCODER(hidden), \
         .min = 1,      .max = LIMIT_WIDTH, .required = true}, \
        {"num_attention_heads", JSON_INT,        AT_ENCODER(heads), .min = 1, \
         .max = LIMIT_HEADS,    .required = true}, \
        {"intermediate_size", JSON_INT,        AT_ENCODER(ffn), .min = 1, \
         .max = LIMIT_FFN,    .required = true}, \
    { \
        "vocab_size", JSON_INT, AT_SPEC(vocab), .min = 1, .max = LIMIT_IDS, .required = true \
    }
/* Those of BERT's, which may be parts of a model that has a name for them: "bert.". */
#define HUGGINGFACE_ENCODER(type, reader, describe, root, prefix, rows, outer_rows) \
    .model_type = (type), .read = (reader), .layer = (describe), \
    .stacks[STACK_ENCODER] = {{prefix, root prefix}, rows, ARRAY_COUNT(rows)}, \
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)}, .ignores = huggingface_ignores_heads

/* Rows of struct tensor_row for those whose layers have further or other tensors. */
#define HUGGINGFACE_ATTENTION_ROWS \
    {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"self_attn.q_proj.*"}}, \
        {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"self_attn.k_proj.*"}}, \
        {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"self_attn.v_proj.*"}}, \
        {.place = offsetof(struct layer, norm_q), \
         .names = {"self_attn.q_norm.*", "self_attn.query_layernorm.*"}}, \
        {.place = offsetof(struct layer, norm_k), \
         .names = {"self_attn.k_norm.*", "self_attn.key_layernorm.*"}}, \
    { \
        .place = offsetof(struct layer, proj), .names = { "self_attn.o_proj.*" } \
    }
/* Gate and up apart, at a place. */
#define HUGGINGFACE_GATE_UP_ROWS(to, name) \
    {.place = offsetof(struct layer, to), .part = PART_GATE, .names = {name ".gate_proj.*"}}, { \
        .place = offsetof(struct layer, to), .part = PART_UP, .names = { name ".up_proj.*" } \
    }
#define HUGGINGFACE_MLP_ROWS \
    HUGGINGFACE_GATE_UP_ROWS(fc1, "mlp"), { \
        .place = offsetof(struct layer, fc2), .names = { "mlp.down_proj.*" } \
    }
/* All of a layer whose norms are behind its branches alone. */
#define HUGGINGFACE_NORMED_BEHIND_ROWS \
    HUGGINGFACE_ATTENTION_ROWS, \
        {.place = offsetof(struct layer, norm_attention), \
         .names = {"post_attention_layernorm.*"}}, \
        HUGGINGFACE_MLP_ROWS, { \
        .place = offsetof(struct layer, norm_out), .names = { "post_feedforward_layernorm.*" } \
    }
/* An MLP without gate. */
#define HUGGINGFACE_PLAIN_MLP_ROWS \
    {.place = offsetof(struct layer, fc1), .names = {"mlp.up_proj.*"}}, { \
        .place = offsetof(struct layer, fc2), .names = { "mlp.down_proj.*" } \
    }
/* All of a layer of Gemma from the second one on: a norm before and one behind each part. */
#define HUGGINGFACE_GEMMA_ROWS \
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}}, \
        HUGGINGFACE_ATTENTION_ROWS, \
        {.place = offsetof(struct layer, norm_attention), \
         .names = {"post_attention_layernorm.*"}}, \
        {.place = offsetof(struct layer, norm_mlp), .names = {"pre_feedforward_layernorm.*"}}, \
        HUGGINGFACE_MLP_ROWS, { \
        .place = offsetof(struct layer, norm_out), .names = { "post_feedforward_layernorm.*" } \
    }
/* The choice of experts and the experts of a layer, stored one by one, or stacked with gate and up
 * in one tensor; and the expert that all rows use. */
#define HUGGINGFACE_EXPERT_ROWS \
    {.place = offsetof(struct layer, router), .names = {"mlp.gate.weight"}}, \
        HUGGINGFACE_EXPERT_PRODUCTS
#define HUGGINGFACE_EXPERT_PRODUCTS \
    HUGGINGFACE_GATE_UP_ROWS(expert_fc1, "mlp.experts.#"), \
        {.place = offsetof(struct layer, expert_fc1), .names = {"mlp.experts.#.gate_up_proj.*"}}, \
    { \
        .place = offsetof(struct layer, expert_fc2), .names = { "mlp.experts.#.down_proj.*" } \
    }
/* The choice of experts, and gate and up of experts stored one by one, by Mixtral's names. */
#define HUGGINGFACE_MIXTRAL_ROWS \
    {.place = offsetof(struct layer, router), .names = {"block_sparse_moe.gate.*", "mlp.gate.*"}}, \
        {.place = offsetof(struct layer, expert_fc1), \
         .part = PART_GATE, \
         .names = {"block_sparse_moe.experts.#.w1.*"}}, \
    { \
        .place = offsetof(struct layer, expert_fc1), .part = PART_UP, .names = { \
            "block_sparse_moe.experts.#.w3.*" \
        } \
    }
#define HUGGINGFACE_SHARED_ROWS(expert) \
    HUGGINGFACE_GATE_UP_ROWS(shared_fc1, expert), { \
        .place = offsetof(struct layer, shared_fc2), .names = { expert ".down_proj.*" } \
    }

/* Granite's choice of experts and experts, and the MLP that all rows use beside them. GGUF files
 * have gate and up apart. */
#define HUGGINGFACE_GRANITE_EXPERT_ROWS \
    HUGGINGFACE_GATE_UP_ROWS(shared_fc1, "shared_mlp"), \
        {.place = offsetof(struct layer, shared_fc1), .names = {"shared_mlp.input_linear.*"}}, \
        {.place = offsetof(struct layer, shared_fc2), .names = {"shared_mlp.output_linear.*"}}, \
        {.place = offsetof(struct layer, router), \
         .names = {"block_sparse_moe.router.layer.weight", "block_sparse_moe.router.weight"}}, \
        HUGGINGFACE_GATE_UP_ROWS(expert_fc1, "block_sparse_moe.experts.#"), \
        {.place = offsetof(struct layer, expert_fc1), \
         .names = {"block_sparse_moe.experts.#.gate_up_proj.*"}}, \
    { \
        .place = offsetof(struct layer, expert_fc2), .names = { \
            "block_sparse_moe.experts.#.down_proj.*" \
        } \
    }

/* A gated delta net, whose first products are one in order of key heads, or apart. */
#define HUGGINGFACE_DELTA_ROWS(name) \
    {.place = offsetof(struct layer, state_in), \
     .part = PART_BUT_LAST, \
     .names = {name ".in_proj_qkv.*"}}, \
        {.place = offsetof(struct layer, state_in), \
         .part = PART_FOURTH, \
         .names = {name ".in_proj_z.*"}}, \
        {.place = offsetof(struct layer, state_in), \
         .part = PART_BY_HEAD, \
         .names = {name ".in_proj_qkvz.*"}}, \
        {.place = offsetof(struct layer, state_gates), \
         .part = PART_FIRST, \
         .names = {name ".in_proj_b.*"}}, \
        {.place = offsetof(struct layer, state_gates), \
         .part = PART_SECOND, \
         .names = {name ".in_proj_a.*"}}, \
        {.place = offsetof(struct layer, state_gates), \
         .part = PART_BY_HEAD, \
         .names = {name ".in_proj_ba.*"}}, \
        {.place = offsetof(struct layer, state_filter), .names = {name ".conv1d.weight"}}, \
        {.place = offsetof(struct layer, state_rate), .names = {name ".A_log"}}, \
        {.place = offsetof(struct layer, state_bias), .names = {name ".dt_bias"}}, \
        {.place = offsetof(struct layer, state_norm), .names = {name ".norm.*"}}, { \
        .place = offsetof(struct layer, state_out), .names = { name ".out_proj.*" } \
    }

/* A state space, by the name of its part of a layer. */
#define HUGGINGFACE_SPACE_ROWS(name) \
    {.place = offsetof(struct layer, state_in), .names = {name ".in_proj.*"}}, \
        {.place = offsetof(struct layer, state_filter), .names = {name ".conv1d.weight"}}, \
        {.place = offsetof(struct layer, state_filter_bias), .names = {name ".conv1d.bias"}}, \
        {.place = offsetof(struct layer, state_rate), .names = {name ".A_log"}}, \
        {.place = offsetof(struct layer, state_bias), .names = {name ".dt_bias"}}, \
        {.place = offsetof(struct layer, state_skip), .names = {name ".D"}}, \
        {.place = offsetof(struct layer, state_norm), .names = {name ".norm.*"}}, { \
        .place = offsetof(struct layer, state_out), .names = { name ".out_proj.*" } \
    }

/* Decoders with gated delta nets (family_qwen3_next.c): the sizes that an absent key stands for,
 * the rotary positions of texts, and the reader of a configuration that has experts where `usual`
 * has. */
struct huggingface_sizes {
    int vocab, layers, hidden, kv_heads, ffn, experts, used; /* experts 0: there are none */
};
extern const struct rope_rules huggingface_delta_rope;
enum status huggingface_read_delta(const struct json *config, const struct huggingface_sizes *usual,
                                   const struct rope_rules *rope, struct model_spec *spec,
                                   struct error *e);
enum { HUGGINGFACE_DELTA_LAYER_ROWS = 31 };
extern const struct tensor_row huggingface_delta_rows[HUGGINGFACE_DELTA_LAYER_ROWS];
/* ignores: layers that foretell tokens; in a text's model a vision tower, too. */
bool huggingface_ignores_foretelling(const char *name);
bool huggingface_ignores_tower(const char *name);
#define HUGGINGFACE_DELTA_DECODER(type, reader, layer_rows) \
    .model_type = (type), .read = (reader), .inspect = huggingface_find_output, \
    .layer = huggingface_layer, \
    .stacks[STACK_DECODER] = {{"model.layers.#.", "layers.#."}, \
                              layer_rows, \
                              HUGGINGFACE_DELTA_LAYER_ROWS}, \
    .outer = {{NULL}, huggingface_outer_rows, HUGGINGFACE_OUTER_ROWS}, \
    .ignores = huggingface_ignores_tower

/* Decoders with attention over latents (huggingface_latent.c): what absent keys stand for, and the
 * reader. Where usual->dims have experts, they are chosen by a softmax, or by sigmoids and a bias
 * where these say so. */
struct huggingface_latent_sizes {
    struct dims dims;
    int shared, first_dense; /* experts that all rows use, as one; layers without experts */
    bool lists_dense; /* those are told by mlp_layer_types alone, not by first_k_dense_replace */
    bool one_choice;  /* of experts, in groups by the best two: no key names another */
    bool grows;       /* queries grow with their place */
};
enum status huggingface_read_latent(const struct json *config,
                                    const struct huggingface_latent_sizes *usual,
                                    struct model_spec *spec, struct error *e);
enum { HUGGINGFACE_LATENT_LAYER_ROWS = 24 };
extern const struct tensor_row huggingface_latent_rows[HUGGINGFACE_LATENT_LAYER_ROWS];
#define HUGGINGFACE_LATENT_DECODER(type, reader) \
    .model_type = (type), .read = (reader), .inspect = huggingface_find_output, \
    .layer = huggingface_layer, \
    .stacks[STACK_DECODER] = {{"model.layers.#.", "layers.#."}, \
                              huggingface_latent_rows, \
                              HUGGINGFACE_LATENT_LAYER_ROWS}, \
    .outer = {{NULL}, huggingface_outer_rows, HUGGINGFACE_OUTER_ROWS}, \
    .ignores = huggingface_ignores_extras, .further_layers = true

/* Completes a BERT-like encoder, whose keys are in the spec: biases and LayerNorm everywhere,
 * learned positions. */
enum status huggingface_derive_encoder(struct model_spec *spec, struct error *e);
/* ignores: the heads of BERT-like checkpoints, which serve other tasks, and constants 0, 1, 2, ...
 */
bool huggingface_ignores_heads(const char *name);
