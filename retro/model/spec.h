/* retro/model/spec.h: a model as data: stacks of layers, what they read, and the rows that name
 * their tensors.
 *
 * Letters, as in the papers: n tokens, m chunk length, l chunks, k neighbours, r retrieved length,
 * d hidden size, H heads, G key/value heads, h head size, F MLP size, V vocabulary.
 *
 * A model is stacks and the edges between them:
 *
 *     BERT    encoder
 *     GPT     decoder
 *     CLIP    tower
 *     LLaVA   decoder  <- rows ----------- projector <- tower
 *     Retro   decoder  <- EDGE_NEIGHBORS - encoder  <- EDGE_CHUNK - decoder
 *     T5      decoder  <- EDGE_SOURCE ---- encoder
 *
 * A family (family_*.c) reads config.json into a model_spec, says which slots a layer fills, and
 * lists one row for each tensor of a checkpoint. layer.c computes a layer from its slots and knows
 * no family. */
#pragma once

#include "config/json/json_table.h"
#include "retro/model/dims.h"
#include "retro/model/generation_config.h"
#include "retro/weights/weights.h"

enum { MAX_LAYERS = 512 };

/* A tower is a stack whose input is the patches of a picture. */
enum stack_id { STACK_DECODER, STACK_ENCODER, STACK_TOWER, STACK_COUNT };

/* Retro only (docs/spec/retro-model.md 1). */
struct retro_spec {
    int chunk_length, num_neighbors, retrieved_length;
    bool layer[MAX_LAYERS]; /* of the decoder: reads neighbours */
    int first_layer;        /* that does, -1: none */
    int n_layers;           /* that do */
    bool residual_normed;   /* spec 6 step 4: Megatron-Core; the legacy model adds the raw stream */
    float gate;             /* retro_attention_gate, spec 10 */
};

/* The input and the output of a vision tower (docs/spec/vision-model.md 1, 2). DeepStack: rows of
 * some layers reach a decoder too (arXiv 2406.04334). */
enum { MAX_DEEPSTACK = 8 };
struct tower_spec {
    int patch;            /* P, the side of a patch in pixels; 0: the model has no tower */
    int frames;           /* that a patch spans, and a picture is all of them; 0: one */
    int image_h, image_w; /* of every picture, in pixels; 0: any multiples of P */
    int table_h, table_w; /* patches that the position table has; 0: there is none, and the tower's
                             heads are rotated */
    int class_tokens;     /* rows before those of the patches */
    bool class_positions; /* the position table begins with rows for the class tokens */
    bool patch_bias;      /* of the product that makes rows of patches */
    bool norm_before;     /* a norm before the first layer */
    bool windows;         /* a grid of another size reads the top left of a square table (CPE) */
    bool stretches;       /* a grid of another size reads the whole table, each side resized */
    bool conditioned; /* pixels are from 0 to 1; the checkpoint has a mean and a deviation for each
                         channel */
    bool centered;    /* pixels are from 0 to 1, and become -1 to 1 */
    bool by_pixel;    /* a patch is its pixels, each with its channels, not planes of channels */
    bool sums_sides;  /* the table, of two lines, has a row for each column of a picture and one for
                         each line, and a patch has the sum of both; it is not resized */
    bool corners;     /* tables are resized with their corners aligned, else with half pixels */
    int layers;       /* that are run; 0: all, and the last norm */
    bool drops_class; /* the projector reads the rows of patches alone */
    bool pooled;      /* it ends in one row a picture: the first one, behind a norm of its own */
    bool probed;      /* that row is what a learned query gathers from the others by attention */
    int shuffle;  /* 2: each 2 x 2 rows side by side are one row of the projector; 1: none are */
    int averaged; /* side of the squares of patches whose mean is one row of the projector; 0: none
                     are */
    float mean_scale;  /* of these means; 0: none, as 1 */
    bool standardized; /* they are shifted and scaled column by column */
    bool oblong; /* pictures have any shape; where rows are joined, those that are not square too */
    int attended; /* side of the squares of patches that layers attend within; 0: a picture is whole
                   */
    bool whole[MAX_LAYERS]; /* of a tower with windows: layers that attend over the whole picture */
    /* Rows behind layer deepstack[i] go through a projector of their own, with a norm of what it
     * reads, and are added to the picture's rows behind layer i of the decoder. */
    int deepstack[MAX_DEEPSTACK], n_deepstack;
};

/* Numbers of a patch: channel, frame, y, x. */
static inline int tower_spec_values(const struct tower_spec *tower) {
    return 3 * (tower->frames > 0 ? tower->frames : 1) * tower->patch * tower->patch;
}

/* The product that makes a tower's rows a decoder's (docs/spec/vision-model.md 4):
 * fc2(activation(fc1(norm(x)))), or fc1 alone; and perhaps a product before fc1. */
struct projector_spec {
    int in, ffn, out; /* columns; ffn 0: one product; out 0: the model has no projector */
    int merged;       /* columns that joined rows are made before fc1, by a product without bias; 0:
                         fc1 reads these rows */
    bool normed;      /* has the norm */
    bool normed_apart; /* of each of the rows that are joined, before they are */
    bool centered;     /* whose weights are stored around zero */
    bool bare;         /* there is a norm without weights */
    enum norm_kind norm;
    float epsilon;
    enum activation activation;
    bool gated, bias;
    bool residual; /* adds what it reads: out is in */
};

/* How a decoder's text names pictures (docs/spec/vision-model.md 5). */
enum { MAX_TILES = 100, MAX_TILE_TAG = 8 };
struct picture_spec {
    bool arranged; /* tiles are read line by line, a row of newline behind each (tile_order.h) */
    bool lined;    /* behind each line of a picture's rows is an id (struct picture_line_ids) */
    int id;        /* that stands for a picture in a text; may lie outside the vocabulary */
    int together;  /* rows of every picture, which see each other both ways (struct attention_span);
                      0: a row sees those before it */
    bool linked;  /* rows of a picture see each other so, of however many rows it is, in layers that
                     are not `ordered` */
    int stand_in; /* id that says what a row of a picture gives each layer (struct layer_inputs) */
    int n_tags, tag_length; /* 0: tiles have no tags */
    int32_t tags[MAX_TILES]
                [MAX_TILE_TAG]; /* ids before tile i; the last one's before the thumbnail */
};

/* A part of a model whose tensors another family's rows name: LLaVA's decoder is a GPT or a Llama.
 */
enum { PART_ROOTS = 4 };
struct model_part {
    const struct family *family; /* NULL: the model's own */
    const char
        *roots[PART_ROOTS]; /* spellings of what stands before the names of the part's tensors */
};

/* Read from config.json and checked once; everything after trusts it. */
struct model_spec {
    struct model_part parts[STACK_COUNT];
    struct dims stacks[STACK_COUNT];
    int vocab, padded_vocab;
    int max_positions;      /* of each stack's sequence; 0: no limit */
    int type_vocab;         /* BERT's token types, else 0 */
    bool learned_positions; /* a table of max_positions rows */
    int position_pad; /* positions count tokens other than this id, from this id + 1; -1: all, from
                         0 */
    bool tied;        /* the output matrix is the word table */
    bool output_bias;
    float embedding_scale; /* of the words' rows; 0: none, as 1 */
    float logit_scale;     /* of the rows that the output matrix meets; 1 */
    float logit_cap;       /* the soft-cap of logits, 0: none */
    int eod;               /* id that ends and pads a text, -1: none */
    struct end_ids ends;   /* all ids that end a text; a family with one may set eod alone */
    int start;             /* id that a decoder with EDGE_SOURCE starts from, -1: no such decoder */
    int window;            /* of the layers that have one (struct attention_args); 0: none have */
    int chunk; /* of the layers that are `windowed`, where it stands in place of a window */
    bool windowed[MAX_LAYERS]; /* of the decoder, or of an encoder alone */
    bool two_sided; /* tokens of the decoder see those behind them: it embeds and cannot write */
    bool dense[MAX_LAYERS]; /* of the decoder: a layer with a plain MLP in a stack that has experts
                             */
    int reuse_from; /* of the decoder: layers from this one on have no keys and values, and read
                       those of the last one before it that has a window where they have; 0: none */
    bool values_are_keys; /* of layers with wide heads: values are made by the product of keys */
    int input_vocab;      /* rows of the table of what tokens give each layer; 0: there is none */
    int widened; /* columns of a product behind the rows, which an embedder's folder stores with the
                    model (encoder.c); 0: none */
    bool unrotated[MAX_LAYERS];    /* of the decoder: a layer without RoPE in a stack that has it */
    enum mixer mixers[MAX_LAYERS]; /* of the decoder */
    bool without_mlp[MAX_LAYERS];  /* of the decoder: a layer that is its mixer alone */
    struct retro_spec retro;
    struct tower_spec tower;
    struct projector_spec projector;
    struct picture_spec picture;
    int joint; /* columns of the space that texts and pictures share; 0: there is none */
    bool dual_encoder_bias, dual_encoder_padded; /* of the matrix that leads there; texts are filled
                                                    up to max_positions before it */
};

/* The slots of one layer that change its computation. */
struct layer_spec {
    bool post_norm;           /* norm after each residual sum (BERT), not before each branch */
    bool parallel;            /* attention and MLP read the same rows, and both are added to them */
    enum mask mask;           /* of self attention */
    int window;               /* keys that a token sees, its own among them; 0: all of the mask */
    int chunk;                /* keys of runs that a token sees its own of; 0: all of the mask */
    bool rope;                /* rotates queries and keys of self attention */
    enum rope_id frequencies; /* by this table */
    bool grows;               /* queries grow with their place, as dims say */
    bool bare_heads;          /* queries and keys are not normed, though dims say so */
    bool relative;            /* adds the stack's relative bias to the scores of self attention */
    enum mixer mixer;         /* stands in place of self attention where it is another */
    bool latent;              /* self attention is that of latents */
    bool wide_heads, wide_mlp; /* of the stack's two shapes of either, it has the wide one */
    bool values_are_keys;      /* as they leave their product: there is none of values */
    bool clipped; /* as dims say: products of keys, of values and of `up` stand apart */
    bool ordered; /* rows of a picture see those before them alone, whatever spans say */
    bool reuses;  /* there are no keys and values: it reads those of layer `source` */
    int source;
    bool without_mlp;           /* the layer is its mixer alone */
    bool experts;               /* the MLP is one of experts, chosen row by row */
    bool enters_bare;           /* self attention reads the rows themselves: there is no norm_in */
    bool reads_bare;            /* so does the MLP: there is no norm_mlp either */
    bool leaves_bare;           /* there is neither norm_attention nor norm_out */
    bool cross;                 /* has cross attention, which reads dims.reads */
    bool cross_residual_normed; /* the residual of cross attention is the normed stream */
};

/* Whether no text may be longer than max_positions. */
static inline bool spec_is_bounded(const struct model_spec *spec) {
    return spec->learned_positions || spec->stacks[STACK_DECODER].rope_bounded;
}

struct norm_weights {
    float *gamma, *beta; /* device, f32; beta NULL without */
};
struct projection {
    struct weight weight;
    float *bias; /* device, f32; NULL without */
};

/* The same product of each expert of a layer. */
struct expert_projections {
    struct weight *weights; /* [dims.experts], owned; NULL where the layer has no experts */
    float **biases;         /* device, f32, [dims.experts], owned; NULL without */
};

/* Bounds of what a product reads, and of what it gives: [1, 1] each. */
struct clip_bounds {
    struct tensor in_least, in_most, out_least, out_most;
};
enum clip { CLIP_Q, CLIP_K, CLIP_V, CLIP_PROJ, CLIP_GATE, CLIP_UP, CLIP_FC2, CLIP_COUNT };

/* Self attention is one product: rows Q [H h], K [G h], V [G h], and with dims.head_gate the gate's
 * [H head_gate]. Where values are keys it is Q, K, and where keys and values are another layer's it
 * is Q. cross_kv likewise K, V. Gated fc1: gate [F], up [F]. Latent attention has, in place of qkv,
 * the product that makes latents, [rank + rope, d]; one for queries, rows plain, rope of each head,
 * and before it one to their own short rows where it has those; and for each head what takes a
 * query to the latents, [rank, plain], and a mixture of latents to a value, [value, rank]. A layer
 * with experts has, in place of fc1 and fc2, the router [experts, d], those of each expert, and the
 * shared expert's with its gate [1, d] where there is one that is weighed. Where dims.expert_width
 * is not 0, experts_in [width, d] is before the experts and experts_out [d, width] behind them.
 *
 * The first product of a mixer that keeps a state is rows Q, K of its key heads, V, Z of its value
 * heads in a delta net, whose second product has two rows for each value head: how much is written,
 * and how much of the state stays. In a state space it is Z, V of its value heads, K, Q of its key
 * heads, and a row for each value head: the step. In a convolution it is the gate of what is
 * convolved, the gate of the result, and what is convolved.
 *
 * A norm whose gamma is NULL is not there. norm_in and norm_mlp come before a branch,
 * norm_attention and norm_out after it, before it is added; norm_q and norm_k are of dims.qk_norm.
 * Where dims.experts_beside, norm_router is before the router, norm_experts before the experts, and
 * behind these and the MLP are norm_experts_out and norm_dense_out. */
struct layer {
    struct layer_spec spec;
    struct norm_weights norm_in, norm_cross, norm_mlp, norm_attention, norm_out, norm_q, norm_k,
        norm_router, norm_experts, norm_experts_out, norm_dense_out;
    /* Of dims.layer_input: [layer_input, d], [d, layer_input], and a norm behind them. */
    struct weight input_gate, input_proj;
    struct norm_weights norm_input;
    struct tensor scale; /* [1, 1], of dims.layer_scaled; data NULL without */
    /* [1, 1] each, of dims.xielu (struct xielu_args); data NULL without. */
    struct tensor xielu_positive, xielu_negative, xielu_slope, xielu_least;
    struct projection qkv, proj, cross_q, cross_kv, cross_proj, fc1, fc2, shared_fc1, shared_fc2;
    struct projection router;
    struct projection experts_in, experts_out; /* of dims.expert_width; without data in others */
    struct weight shared_gate;
    struct tensor router_bias, router_scale; /* [1, experts]; data NULL without */
    struct tensor sinks;                     /* [1, local H]; data NULL without */
    /* Of latent attention; without data in other layers. */
    struct projection latent_in, latent_query_in, latent_query;
    struct norm_weights norm_latent, norm_latent_query;
    struct weight *latent_keys, *latent_values; /* [dims.heads], owned, of which this rank's have
                                                   data; NULL without */
    /* The table of distances as this layer's keys and queries, a matrix [2 span, h] a head, made of
     * its qkv when it is loaded (distances.h); [dims.heads] owned, NULL without. */
    struct weight *distance_keys, *distance_queries;
    /* Of a layer that keeps a state (struct convolve_args, struct delta_args); without data in
     * others, and where its mixer has none. */
    struct projection state_in, state_gates, state_out;
    struct tensor state_filter, state_filter_bias;    /* [local channels, kernel], [.., 1] */
    struct tensor state_rate, state_bias, state_skip; /* [1, local value heads] */
    struct norm_weights
        state_norm; /* of each value head; in a state space of those of each key head */
    struct expert_projections expert_fc1, expert_fc2;
    /* Of layers whose products are clipped, where qkv is Q and fc1 the gate. */
    struct projection keys, values, up;
    struct clip_bounds clips[CLIP_COUNT];
    uint64_t
        absent; /* bit i: the checkpoint lacks the optional bias of row i of the family's table */
};

/* The rows of a projection that a stored tensor holds. A projection's rows are one to four blocks:
 * Q, K, V; Q, K, V and a gate; K, V; gate, up; or all as one. A row of a table whose part the
 * projection lacks is skipped: `up` of an MLP without gate. */
enum part {
    PART_WHOLE,
    PART_BY_HEAD, /* for each key/value head: its rows of each block (docs/spec/retro-model.md 5.6,
                     8) */
    PART_IN_TURN, /* a row of each block, then the next of each */
    PART_HEAD_KEYS,   /* of a tensor of latent attention with rows plain, value for each head: those
                       */
    PART_HEAD_VALUES, /* of the place's head; keys lie turned */
    PART_FIRST,
    PART_SECOND,
    PART_THIRD,
    PART_FOURTH,
    PART_BUT_LAST, /* all blocks but the last one, in order */
    PART_Q_GATE,   /* for each head: its rows of the first block, then its rows of the last one */
    PART_Q = PART_FIRST,
    PART_K = PART_SECOND,
    PART_V = PART_THIRD,
    PART_CROSS_K = PART_FIRST,
    PART_CROSS_V = PART_SECOND,
    PART_GATE = PART_FIRST,
    PART_UP = PART_SECOND
};
/* Whether the part is all rows of its projection, in whatever order. */
static inline bool part_is_all(enum part part) { return part < PART_FIRST; }

/* Whether the rows are those of one head. */
static inline bool part_is_head(enum part part) {
    return part == PART_HEAD_KEYS || part == PART_HEAD_VALUES;
}

/* Whether a projection of so many blocks has the part. */
static inline bool part_is_of(enum part part, int n_blocks) {
    if (part == PART_BUT_LAST || part == PART_Q_GATE) return n_blocks > 1;
    return (int)part < (int)PART_FIRST + n_blocks;
}

/* The stored tensors of one norm, projection or table. Its place, say offsetof(struct layer, qkv),
 * gives shape and split over ranks (tensors.c). */
struct tensor_row {
    size_t place;         /* in struct layer; in struct model for a family's outer rows */
    enum part part;       /* several rows of one place make its parts */
    const char *names[6]; /* spellings, the first that exists is taken; '*' is "weight" or "bias",
                             '~' "gamma" or "beta", '#' an expert */
    bool bias_if_there; /* the checkpoint decides whether there is a bias, and no key of config.json
                         */
    bool transposed;    /* stored as [in, out] */
    bool turned_if_so;  /* stored as [in, out] where its shape says so, else as [out, in] */
    bool columns_in_turn; /* of joined rows: the first column of each of the four, then the second
                             of each */
};

struct tensor_rows {
    /* Of layer i, spellings: the first under which a checkpoint has a tensor is taken. '#' stands
     * for i, '@' for the first retro layer. */
    const char *prefixes[2];
    const struct tensor_row *rows;
    int n;
};

struct family {
    const char *architecture; /* of Megatron's folders, by our own key in config.json; NULL: none */
    const char *model_type;   /* of Hugging Face's folders; NULL: none */
    const char
        *class_name; /* in "architectures" of folders that have no "model_type"; NULL: none */
    enum status (*read)(const struct json *config, struct model_spec *spec, struct error *e);
    /* Facts that the checkpoint alone tells; NULL: none. */
    void (*inspect)(const struct weights *weights, struct model_spec *spec);
    struct layer_spec (*layer)(const struct model_spec *spec, enum stack_id stack, int i);
    struct tensor_rows stacks[STACK_COUNT];
    struct tensor_rows outer;          /* no prefix */
    bool (*ignores)(const char *name); /* tensors that are rightly not used; NULL: none */
    bool
        further_layers; /* so are decoder layers behind the last one, which foretell tokens (MTP) */
};

extern const struct family family_retro, family_gpt, family_bert, family_megatron_t5, family_t5,
    family_gpt2, family_llama, family_mistral, family_granite, family_smollm3, family_qwen2,
    family_qwen3, family_phi3, family_olmo2, family_olmo3, family_glm, family_glm4, family_seed_oss,
    family_ernie_moe, family_glm4_moe, family_minimax_m2, family_gpt_oss, family_ernie,
    family_cohere2, family_ministral3, family_hunyuan_dense, family_gemma2, family_gemma3,
    family_gemma3_text, family_gemma4, family_gemma4_text, family_embedding_gemma2,
    family_embedding_gemma2_text, family_llama4, family_llama4_text, family_hunyuan_moe,
    family_gpt_neox, family_starcoder2, family_exaone4, family_ministral, family_olmo_hybrid,
    family_arcee, family_nemotron, family_apertus, family_mellum, family_mixtral, family_qwen2_moe,
    family_qwen3_moe, family_roberta, family_xlm_roberta, family_mpnet, family_distilbert,
    family_clip_vit, family_radio_vit, family_radio_hub, family_projector, family_llava_mcore,
    family_clip_vision, family_siglip_vision, family_llava, family_llava_next, family_clip,
    family_siglip, family_modernbert, family_nomic_bert, family_megatron_bert,
    family_megatron_bert_hf, family_qwen2_vl, family_qwen2_5_vl, family_qwen2_vl_vision,
    family_qwen2_5_vl_vision, family_qwen3_vl, family_qwen3_vl_moe, family_qwen3_vl_vision,
    family_qwen3_next, family_qwen3_5, family_qwen3_5_text, family_qwen3_5_moe,
    family_qwen3_5_moe_text, family_lfm2, family_lfm2_moe, family_lfm3, family_granite_hybrid,
    family_nemotron_h, family_deepseek_v2, family_deepseek_v3, family_glm4_moe_lite,
    family_deberta_v2, family_pixtral_vision, family_mistral3, family_granite_moe,
    family_granite_moe_shared, family_granite_swa, family_granite_moe_swa, family_mistral4,
    family_youtu, family_olmoe, family_solar_open, family_dots1, family_afmoe;
/* Every family that a folder can be of. */
extern const struct family *const model_families[];
extern const size_t model_family_count;
/* The family of Hugging Face's folders with this model_type; NULL: there is none. */
const struct family *family_of_type(const char *model_type);

/* Defaults that most families share. */
struct model_spec model_spec_default(void);

/* Rows of config.json's tables: where a value goes in a model_spec, or in a struct that begins with
 * one. */
#define AT_SPEC(member) JSON_AT(struct model_spec, member)
#define AT_DECODER(member) AT_SPEC(stacks[STACK_DECODER].member)
#define AT_ENCODER(member) AT_SPEC(stacks[STACK_ENCODER].member)
#define AT_TOWER(member) AT_SPEC(stacks[STACK_TOWER].member)
/* Limits of the sizes that config.json may name. */
enum {
    LIMIT_WIDTH = 1 << 20,
    LIMIT_HEADS = 1 << 14,
    LIMIT_FFN = 1 << 22,
    LIMIT_EXPERTS = ROUTE_EXPERTS,
    LIMIT_PARTS = 1 << 24, /* columns of the parts that the experts of a row make: used experts
                              times hidden size */
    LIMIT_IDS = 1 << 24,
    LIMIT_POSITIONS = 1 << 24,
    LIMIT_BUCKETS = 1 << 16,
    LIMIT_PIXELS = 1 << 14, /* of a side of a picture */
    LIMIT_PATCH = 256,      /* of a side of a patch */
    LIMIT_CLASS_TOKENS = 1 << 10
};

/* Fills *out from config.json by the family's table. An error names key, value and what is allowed.
 */
enum status spec_read(const struct json *config, const struct json_table *table, void *out,
                      struct error *e);
/* An activation of an MLP as the number beside its name in a table; with MLP_GATED the MLP is
 * gated. */
enum { MLP_GATED = 1 << 8 };
void dims_set_mlp(struct dims *dims, int mlp);
/* Fills a table with the unscaled frequencies base^(-2i / rotated); dims->rotated is set. */
void dims_set_rope(struct dims *dims, enum rope_id id, float base);
/* Whether projections have biases, for all of them. */
void dims_set_bias(struct dims *dims, bool bias);
/* An id that `key` names must be of the vocabulary; -1 is none. */
enum status spec_check_id(const struct model_spec *spec, const char *key, int id, struct error *e);
/* Rules that join several keys; every family calls it last. STATUS_INVALID, or STATUS_UNSUPPORTED.
 */
enum status spec_check(const struct model_spec *spec, struct error *e);
