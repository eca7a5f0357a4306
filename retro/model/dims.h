/* retro/model/dims.h: the shape of one stack of layers: sizes, norms, rotary tables, and the slots
 * that all of its layers fill alike. See spec.h. */
#pragma once

#include "kernels/backend.h"

/* The source of a stack's cross attention. */
enum edge {
    EDGE_NONE,
    EDGE_NEIGHBORS, /* the encoder's output for the neighbours of the latest closed chunk */
    EDGE_CHUNK,     /* the decoder's normed rows of that chunk */
    EDGE_SOURCE     /* the encoder's output for the text that a session was opened with */
};

/* The tables of rotary frequencies that a stack's layers choose from. */
enum rope_id { ROPE_GLOBAL, ROPE_LOCAL, ROPE_LONG, ROPE_COUNT };

/* YaRN as config.json says it (Peng et al. 2023, arXiv 2309.00071). */
struct rope_yarn {
    float factor; /* 0: a table is not of this kind */
    int original; /* length of training */
    float beta_fast, beta_slow;
    bool truncate; /* the ramp ends at whole pairs */
    bool usual;    /* the attention factor is that of the factor */
};

/* Pair i of a head turns by position * inv_freq[i]. */
struct rope_table {
    float inv_freq[ATTENTION_MAX_HEAD / 2]; /* the first dims.rotated / 2 */
    float base;  /* before scaling: base^(-2i / rotated), as config.json says it */
    float scale; /* of what is rotated; 0: none, as 1. YaRN's attention factor */
    struct rope_yarn yarn;
};

/* Norms of queries and keys, between their projection and the rotation where dims do not say else.
 */
enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD,
    QK_NORM_WHOLE /* over the heads of all ranks at once */
};

/* How the rows of a layer learn of those before them: what its first branch is. */
enum mixer {
    MIXER_ATTENTION,
    MIXER_DELTA,       /* a gated delta net (Yang et al. 2024, arXiv 2412.06464) */
    MIXER_SPACE,       /* a state space (Mamba-2, Dao and Gu 2024, arXiv 2405.21060) */
    MIXER_CONVOLUTION, /* a short convolution between two gates (LFM2) */
    MIXER_NONE         /* rows learn nothing of others */
};
/* Such a layer keeps a state for each sequence, in place of keys and values. */
static inline bool mixer_keeps_state(enum mixer mixer) {
    return mixer != MIXER_ATTENTION && mixer != MIXER_NONE;
}

/* The shape of the layers that keep states, all of which have one mixer. Each channel is convolved
 * with the rows before it. Behind that a delta net and a state space have value heads that keep a
 * matrix [key_dim, value_dim], of which head i reads key head i / (value_heads / key_heads). A
 * convolution has no keys: its channels are value heads of one number. */
struct state_dims {
    enum mixer mixer;
    int key_heads, value_heads, key_dim, value_dim;
    int kernel; /* rows that the convolution reads, its own among them; 0: no layer keeps a state */
    bool filter_bias;  /* the convolution has biases */
    bool proj_bias;    /* so have the first and the last product */
    float least, most; /* of the steps of a state space (struct delta_args) */
    float write_scale; /* of what a delta net writes (struct delta_args) */
    float epsilon;     /* of the norm of value heads in a delta net; 0: that of the other norms */
    bool plain_rate;   /* the checkpoint has minus the rate of a head's decay, not its logarithm */
};

/* The shape of latent attention (DeepSeek-V2, arXiv 2405.04434, 2.1): keys and values of a row are
 * products of one short row, the latent, which is what the cache keeps, with one rotated key that
 * all heads share behind it. Queries meet latents in the latents' own space: dims.head_dim is
 * rank + rope, there is one key/value head, and values are the first `rank` columns of keys. */
struct latent_dims {
    int rank;               /* columns of a latent; 0: attention has whole keys and values */
    int query_rank;         /* queries are made by way of so many columns; 0: at once */
    int plain, rope, value; /* of a head: dims that do not turn, those that do, and its values' */
    float epsilon;          /* of the norms of latents, whatever that of the other norms */
};

/* Rows for distances between tokens, which meet the queries and keys of every layer (struct
 * distance_scores). They are projected as a layer's own rows are, by its queries and keys. */
struct distance_dims {
    int span;     /* the table has twice as many rows, of distances -span .. span - 1; 0: none */
    int farthest; /* distances up to it are told apart, by buckets where it is more than span */
    bool buckets; /* those beyond span / 2 share rows, by their logarithms */
    bool normed;  /* the table has a norm */
};

/* The shape of one stack; every layer of it has this shape, but for wide heads and MLPs. */
struct dims {
    int n_layers; /* 0: the model has no such stack */
    int hidden, heads, kv_heads, head_dim, ffn;
    int wide_kv_heads, wide_head_dim; /* of layers with wide heads, all of whose dims turn; 0: no
                                         layer has them */
    int wide_ffn;                     /* the F of layers with a wide MLP; 0: no layer has one */
    int experts;      /* MLPs of a layer that a router chooses from; 0: no layer has them */
    int experts_used; /* by one row */
    bool experts_weigh_inputs; /* the weight of an expert multiplies what it reads */
    bool experts_renormalised; /* the weights of a row's experts are made to sum to 1 */
    int expert_ffn;            /* the F of each expert */
    int expert_width;  /* of the rows that experts read and give, between two products that they
                          share; 0: d, without such products */
    int shared_ffn;    /* of the expert that all rows use beside theirs; 0: none */
    bool shared_gated; /* which is weighed by a gate */
    bool shared_bias;  /* of what all rows use beside experts: that expert, and the two products */
    bool router_sigmoid; /* scores of experts are sigmoids, else a softmax */
    bool router_bias;    /* experts are chosen by their scores and a bias (struct route_args) */
    bool expert_bias;    /* of the router's product, and of each expert's two */
    bool experts_beside; /* of an MLP that all rows use: the two are normed apart and summed, and
                            the router reads rows of length 1 (layer.c) */
    bool experts_scaled; /* the weight of an expert is multiplied by a number of its own */
    int router_groups, router_groups_used; /* 0: experts stand in one group */
    int router_group_best; /* scores that rank a group (struct route_args); 0: the best two */
    float router_scale;    /* of the weights of a row's experts; 0: none, as 1 */
    float router_epsilon;  /* of the sum by which these are divided */
    enum norm_kind norm;
    float epsilon;
    bool zero_centered_gamma;
    enum activation activation;
    bool gated;
    float gate_limit, gate_shift; /* of gated MLPs (struct gating); 0: none */
    bool sinks;                   /* heads of self attention have sinks */
    bool qkv_bias, proj_bias,
        mlp_bias; /* of self attention's queries, keys and values; of attention's others; MLP's */
    bool final_norm; /* a norm after the last layer */
    enum qk_norm qk_norm;
    bool qk_norm_last; /* behind the rotation, not before it */
    bool value_norm;   /* values of a head are normed, by a norm without a weight */
    int layer_input;   /* columns of what a row's token gives each layer (struct layer_inputs); 0:
                          nothing */
    bool layer_scaled; /* each layer multiplies its rows by a number */
    bool clipped;      /* rows are cut off before and behind each product of a layer, at bounds of
                          the checkpoint's (struct clip_bounds) */
    int head_gate; /* columns of a gate of each head, by a fourth product: its sigmoids weigh what
                      self attention finds. The head's own number or 1; 0: none */
    bool leaves_bare; /* branches are added as they are (struct layer_spec) */
    bool xielu; /* the activation of MLPs without gate is xIELU, with numbers of each layer's own */
    struct state_dims state;
    struct latent_dims latent;
    struct distance_dims distances;
    bool parallel;        /* attention and MLP of a layer read the same rows */
    float score_scale;    /* of attention scores: 1 / sqrt(h); 1 in Hugging Face's T5 */
    bool scores_by_layer; /* those of layer i, counted from 0, are divided by i + 1 too */
    float score_cap;      /* the soft-cap of attention scores, 0: none */
    float residual_scale; /* of each branch before it is added; 0: none, as 1 */
    int rotated;          /* rotary dims per head, 0: no RoPE */
    bool rope_interleaved;
    int rope_sections; /* rotary positions of a row; 0: one */
    uint8_t rope_section[ATTENTION_MAX_HEAD /
                         2]; /* which of them pair i turns by; where there are several */
    int rope_parts; /* > 1: a head is so many parts of `rotated` dims, each of which turns alike but
                       for its sections, which stand behind those of the part before it */
    struct rope_table rope[ROPE_COUNT];
    float query_growth; /* of rotated queries, from this position on (struct rope_args); 0: */
    int query_grows_after, query_grows_ahead; /* none */
    bool rope_bounded;   /* no text may be longer than max_positions: it would turn otherwise */
    int rope_long_after; /* sessions that may have more tokens, and whole texts that have more, turn
                            by ROPE_LONG, not ROPE_GLOBAL; 0: none do */
    int buckets, max_distance; /* relative positions (docs/spec/t5-model.md 2.2); 0: none */
    enum edge reads;           /* of the layers that have cross attention */
};

/* Columns of the rows that an expert reads. */
static inline int dims_expert_width(const struct dims *dims) {
    return dims->expert_width > 0 ? dims->expert_width : dims->hidden;
}

/* Columns of a head of what self attention gives its projection. */
static inline int dims_value(const struct dims *dims) {
    return dims->latent.rank > 0 ? dims->latent.value : dims->head_dim;
}
