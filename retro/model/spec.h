/* retro/model/spec.h: what a model is made of: dimensions, the slots of a layer, and the name table that fills them.
 *
 * Letters, as in the papers: n tokens, m chunk length, l chunks, k neighbours, r retrieved length, d hidden size, H
 * heads, G key/value heads, h head size, F MLP size, V vocabulary. A family (family_*.c) says which slots its layers
 * use and what the checkpoint calls them; layer.c computes a layer from its slots and knows no family. */
#pragma once

#include "config/json/json.h"
#include "kernels/backend.h"
#include "retro/weights/weights.h"

enum { MAX_LAYERS = 512 };

/* Read from config.json and checked once; everything after trusts it. */
struct dims {
    int n_layers, hidden, heads, kv_heads, head_dim, ffn;
    int vocab, padded_vocab, max_positions; /* max_positions 0: no table, any length */
    int type_vocab;                         /* BERT's token types, else 0 */
    int rotated;                            /* rotary dims per head, 0: no RoPE */
    float rope_base;
    bool rope_interleaved, learned_positions;
    enum norm_kind norm;
    float epsilon;
    bool zero_centered_gamma;
    enum activation activation;
    bool gated, bias, tied, final_norm;
    int eod; /* -1: none */
    /* Retro only */
    int chunk_length, num_neighbors, retrieved_length, encoder_layers;
    bool retro_layer[MAX_LAYERS];
    int first_retro_layer, n_retro_layers; /* first is -1 when there is none */
    bool encoder_residual_normed;          /* spec 6 step 4: Megatron-Core; the legacy model adds the raw stream */
    float gate;                            /* retro_attention_gate, spec 10 */
};

/* The slots of one layer that change its computation. Norm kind, epsilon and activation are the model's. */
struct layer_spec {
    bool post_norm;             /* norm after each residual sum (BERT), not before each branch */
    enum mask mask;             /* of self attention */
    bool rope;                  /* rotate queries and keys of self attention */
    bool cross;                 /* has cross attention: what it reads, its caller prepares */
    bool cross_residual_normed; /* the residual of cross attention is the normed stream */
};

struct norm_weights {
    float *gamma, *beta; /* device, f32; beta NULL without */
};
struct projection {
    struct weight weight;
    float *bias; /* device, f32; NULL without */
};

/* Self attention is one product: rows Q [H h], K [G h], V [G h]. cross_kv likewise K, V. Gated fc1: gate [F], up [F].
 */
struct layer {
    struct layer_spec spec;
    struct norm_weights norm_in, norm_cross, norm_mlp;
    struct projection qkv, proj, cross_q, cross_kv, cross_proj, fc1, fc2;
};

/* A slot of struct layer, of which slot_table (places.c) gives the place, the shape and the split over ranks. */
enum slot {
    SLOT_NORM_IN_GAMMA,
    SLOT_NORM_IN_BETA,
    SLOT_QKV,
    SLOT_QKV_BIAS,
    SLOT_PROJ,
    SLOT_PROJ_BIAS,
    SLOT_NORM_CROSS_GAMMA,
    SLOT_NORM_CROSS_BETA,
    SLOT_CROSS_Q,
    SLOT_CROSS_Q_BIAS,
    SLOT_CROSS_KV,
    SLOT_CROSS_KV_BIAS,
    SLOT_CROSS_PROJ,
    SLOT_CROSS_PROJ_BIAS,
    SLOT_NORM_MLP_GAMMA,
    SLOT_NORM_MLP_BETA,
    SLOT_FC1,
    SLOT_FC1_BIAS,
    SLOT_FC2,
    SLOT_FC2_BIAS,
    SLOT_COUNT
};

/* Which rows of the slot a stored tensor holds. */
enum part {
    PART_WHOLE,
    PART_QKV_BY_GROUP, /* per key/value head: its Q rows, K rows, V rows (spec 8) */
    PART_KV_BY_HEAD,   /* per head: K rows, V rows (spec 5.6) */
    PART_Q,
    PART_K,
    PART_V
};

/* One row of a family's name table: a tensor name within a layer, with the spellings other writers use. */
struct weight_name {
    enum slot slot;
    enum part part;
    const char *names[3]; /* the first that exists is taken */
};

/* Names outside the layers; NULL where a family has none. */
struct outer_names {
    const char *word, *position, *type, *embed_gamma, *embed_beta, *final_gamma, *final_beta, *output;
    const char *decoder_layer; /* prefix of layer i, one %d */
    const char *encoder_layer; /* prefix of neighbour encoder layer j in retro layer i, two %d */
};

struct family {
    const char *name;
    enum status (*read_dims)(const json_t *config, struct dims *d, struct error *e);
    /* What only the checkpoint tells: encoder depth, final norm. */
    void (*inspect)(const struct weights *w, struct dims *d);
    struct layer_spec (*decoder_layer)(const struct dims *d, int i);
    struct layer_spec (*encoder_layer)(const struct dims *d, int j);
    const struct outer_names *outer;
    const struct weight_name *names; /* n_names rows */
    int n_names;
    bool (*ignores)(const char *name); /* tensors of the checkpoint that are rightly not used */
};

extern const struct family family_retro, family_gpt, family_bert;

/* Checked access to config.json for read_dims (dims.c): absent keys take the fallback, wrong types or values out of
 * range are an error that names the key, the value and the range. A required key has no fallback. */
struct range {
    int min, max;
};
enum status dims_int(const json_t *config, const char *key, struct range range, int *out, struct error *e);
enum status dims_int_or(const json_t *config, const char *key, struct range range, int fallback, int *out,
                        struct error *e);
enum status dims_float_or(const json_t *config, const char *key, float fallback, float *out, struct error *e);
enum status dims_bool_or(const json_t *config, const char *key, bool fallback, bool *out, struct error *e);
/* The string's index among choices (NULL-terminated), fallback -1 for required. */
enum status dims_choice(const json_t *config, const char *key, const char *const *choices, int fallback, int *out,
                        struct error *e);
/* Rules that join several keys; every family calls it last. */
enum status dims_check(const struct dims *d, struct error *e);
