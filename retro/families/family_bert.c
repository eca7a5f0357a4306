/* retro/families/family_bert.c: BERT, RoBERTa and XLM-RoBERTa as Hugging Face stores them: norm
 * after each residual sum, token types, a norm on the embeddings, no causal mask. They are encoders
 * alone: models of embedders, without an output matrix. RoBERTa's positions count the tokens that
 * are not padding, from the padding's id + 1. */
#include "retro/families/huggingface.h"

/* The spec, and keys that have no place in it. */
struct bert_keys {
    struct model_spec spec;
    int positions;
};

static const struct json_choice position_names[] = {{"absolute", 0}, {NULL, 0}};

static const struct json_field fields[] = {
    HUGGINGFACE_ENCODER_SIZES,
    {"max_position_embeddings", JSON_INT, AT_SPEC(max_positions), .min = 1, .max = LIMIT_POSITIONS,
     .required = true},
    {"type_vocab_size", JSON_INT, AT_SPEC(type_vocab), .min = 1, .max = 1 << 16, .fallback = 2},
    {"layer_norm_eps", JSON_FLOAT, AT_ENCODER(epsilon), .fallback = 1e-12},
    {"position_embedding_type", JSON_CHOICE, JSON_AT(struct bert_keys, positions),
     .choices = position_names},
    {"hidden_act", JSON_CHOICE, AT_ENCODER(activation), .choices = huggingface_activations,
     .fallback = ACTIVATION_GELU_ERF},
    {.name = "is_decoder", .type = JSON_MUST_BE_FALSE},
    {.name = "add_cross_attention", .type = JSON_MUST_BE_FALSE},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static const struct json_field roberta_fields[] = {
    {"pad_token_id", JSON_INT, AT_SPEC(position_pad), .min = 0, .max = LIMIT_IDS, .fallback = 1},
};
static const struct json_table roberta_table = JSON_TABLE(roberta_fields, .open = true);

static enum status read_bert(const struct json *config, struct model_spec *spec, struct error *e) {
    struct bert_keys keys = {.spec = *spec};
    if (spec_read(config, &table, &keys, e)) return e->status;
    *spec = keys.spec;

    return huggingface_derive_encoder(spec, e);
}

static enum status read_roberta(const struct json *config, struct model_spec *spec,
                                struct error *e) {
    if (spec_read(config, &roberta_table, spec, e)) return e->status;
    return read_bert(config, spec, e);
}

/* A checkpoint of the encoder alone, or of a model around it. Those that were TensorFlow's first
 * have gamma and beta. */
#define OUTER_NAMES(name) "embeddings." name, "bert.embeddings." name, "roberta.embeddings." name

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = {OUTER_NAMES("word_embeddings.weight")}},
    {.place = offsetof(struct model, embedding.position),
     .names = {OUTER_NAMES("position_embeddings.weight")}},
    {.place = offsetof(struct model, embedding.type),
     .names = {OUTER_NAMES("token_type_embeddings.weight")}},
    {.place = offsetof(struct model, embedding.norm),
     .names = {OUTER_NAMES("LayerNorm.*"), OUTER_NAMES("LayerNorm.~")}},
};

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"attention.self.query.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"attention.self.key.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"attention.self.value.*"}},
    {.place = offsetof(struct layer, proj), .names = {"attention.output.dense.*"}},
    {.place = offsetof(struct layer, norm_in),
     .names = {"attention.output.LayerNorm.*", "attention.output.LayerNorm.~"}},
    {.place = offsetof(struct layer, fc1), .names = {"intermediate.dense.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"output.dense.*"}},
    {.place = offsetof(struct layer, norm_mlp),
     .names = {"output.LayerNorm.*", "output.LayerNorm.~"}},
};

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    (void)spec, (void)stack, (void)i;
    return (struct layer_spec){.post_norm = true, .mask = MASK_NONE};
}

const struct family family_bert = {.architecture = "bert",
                                   HUGGINGFACE_ENCODER("bert", read_bert, describe_layer, "bert.",
                                                       "encoder.layer.#.", layer_rows, outer_rows)};

const struct family family_roberta = {HUGGINGFACE_ENCODER("roberta", read_roberta, describe_layer,
                                                          "roberta.", "encoder.layer.#.",
                                                          layer_rows, outer_rows)};

const struct family family_xlm_roberta = {
    HUGGINGFACE_ENCODER("xlm-roberta", read_roberta, describe_layer, "roberta.", "encoder.layer.#.",
                        layer_rows, outer_rows)};
