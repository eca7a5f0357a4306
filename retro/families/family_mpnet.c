/* retro/families/family_mpnet.c: MPNet and DistilBERT as Hugging Face stores them: BERT without
 * token types, each with names of its own. MPNet counts positions as RoBERTa does, and adds T5's
 * relative bias, of a table that all layers share, to the scores. */
#include "retro/families/huggingface.h"

/* MPNet's code has these two, whatever config.json says. */
enum { MPNET_BUCKETS = 32, MPNET_MAX_DISTANCE = 128, MPNET_PAD = 1 };

static const struct json_field mpnet_fields[] = {
    HUGGINGFACE_ENCODER_SIZES,
    {"max_position_embeddings", JSON_INT, AT_SPEC(max_positions), .min = 1, .max = LIMIT_POSITIONS,
     .required = true},
    {"layer_norm_eps", JSON_FLOAT, AT_ENCODER(epsilon), .fallback = 1e-12},
    {"hidden_act", JSON_CHOICE, AT_ENCODER(activation), .choices = huggingface_activations,
     .fallback = ACTIVATION_GELU_ERF},
    {.name = "relative_attention_num_buckets", .type = JSON_NEUTRAL, .min = MPNET_BUCKETS},
};
static const struct json_table mpnet_table = JSON_TABLE(mpnet_fields, .open = true);

static enum status read_mpnet(const struct json *config, struct model_spec *spec, struct error *e) {
    if (spec_read(config, &mpnet_table, spec, e)) return e->status;
    spec->position_pad = MPNET_PAD;
    spec->stacks[STACK_ENCODER].buckets = MPNET_BUCKETS;
    spec->stacks[STACK_ENCODER].max_distance = MPNET_MAX_DISTANCE;
    return huggingface_derive_encoder(spec, e);
}

/* The embedding of an encoder alone, or within a model that names it `root`. */
#define EMBEDDING_ROWS(root) \
    {.place = offsetof(struct model, embedding.word), \
     .names = NAMES(root, "embeddings.word_embeddings.weight")}, \
        {.place = offsetof(struct model, embedding.position), \
         .names = NAMES(root, "embeddings.position_embeddings.weight")}, \
    { \
        .place = offsetof(struct model, embedding.norm), \
        .names = NAMES(root, "embeddings.LayerNorm.*") \
    }
#define NAMES(root, name) \
    { name, root name }

static const struct tensor_row mpnet_outer_rows[] = {
    EMBEDDING_ROWS("mpnet."),
    {.place = offsetof(struct model, stacks[STACK_ENCODER].relative),
     .names = NAMES("mpnet.", "encoder.relative_attention_bias.weight")},
};

static const struct tensor_row mpnet_rows[] = {
    {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"attention.attn.q.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"attention.attn.k.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"attention.attn.v.*"}},
    {.place = offsetof(struct layer, proj), .names = {"attention.attn.o.*"}},
    {.place = offsetof(struct layer, norm_in), .names = {"attention.LayerNorm.*"}},
    {.place = offsetof(struct layer, fc1), .names = {"intermediate.dense.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"output.dense.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"output.LayerNorm.*"}},
};

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    (void)i;
    return (struct layer_spec){
        .post_norm = true, .mask = MASK_NONE, .relative = spec->stacks[stack].buckets > 0};
}

const struct family family_mpnet = {HUGGINGFACE_ENCODER("mpnet", read_mpnet, describe_layer,
                                                        "mpnet.", "encoder.layer.#.", mpnet_rows,
                                                        mpnet_outer_rows)};

static const struct json_field distilbert_fields[] = {
    {"n_layers|num_hidden_layers", JSON_INT, AT_ENCODER(n_layers), .min = 1, .max = MAX_LAYERS,
     .required = true},
    {"dim|hidden_size", JSON_INT, AT_ENCODER(hidden), .min = 1, .max = LIMIT_WIDTH,
     .required = true},
    {"n_heads|num_attention_heads", JSON_INT, AT_ENCODER(heads), .min = 1, .max = LIMIT_HEADS,
     .required = true},
    {"hidden_dim", JSON_INT, AT_ENCODER(ffn), .min = 1, .max = LIMIT_FFN, .required = true},
    {"vocab_size", JSON_INT, AT_SPEC(vocab), .min = 1, .max = LIMIT_IDS, .required = true},
    {"max_position_embeddings", JSON_INT, AT_SPEC(max_positions), .min = 1, .max = LIMIT_POSITIONS,
     .required = true},
    {"activation", JSON_CHOICE, AT_ENCODER(activation), .choices = huggingface_activations,
     .required = true},
};
static const struct json_table distilbert_table = JSON_TABLE(distilbert_fields, .open = true);

static enum status read_distilbert(const struct json *config, struct model_spec *spec,
                                   struct error *e) {
    if (spec_read(config, &distilbert_table, spec, e)) return e->status;
    spec->stacks[STACK_ENCODER].epsilon = 1e-12f;
    return huggingface_derive_encoder(spec, e);
}

static const struct tensor_row distilbert_outer_rows[] = {EMBEDDING_ROWS("distilbert.")};

static const struct tensor_row distilbert_rows[] = {
    {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"attention.q_lin.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"attention.k_lin.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"attention.v_lin.*"}},
    {.place = offsetof(struct layer, proj), .names = {"attention.out_lin.*"}},
    {.place = offsetof(struct layer, norm_in), .names = {"sa_layer_norm.*"}},
    {.place = offsetof(struct layer, fc1), .names = {"ffn.lin1.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"ffn.lin2.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"output_layer_norm.*"}},
};

const struct family family_distilbert = {
    HUGGINGFACE_ENCODER("distilbert", read_distilbert, describe_layer, "distilbert.",
                        "transformer.layer.#.", distilbert_rows, distilbert_outer_rows)};
