/* retro/families/family_megatron_bert.c: BERT as Megatron trains it: norms before the branches of a
 * layer and one after the last, none on the embeddings. In Megatron-Core's words, as the import
 * writes them, and as Hugging Face stores it
 * ("megatron-bert"). An encoder alone, the model of an embedder. */
#include <string.h>

#include "retro/families/huggingface.h"
#include "retro/families/megatron.h"

/* Megatron-Core's words. */

static const struct json_field fields[] = {
    {"num_layers", JSON_INT, AT_ENCODER(n_layers), .min = 1, .max = MAX_LAYERS, .required = true},
    {"num_tokentypes", JSON_INT, AT_SPEC(type_vocab), .min = 0, .max = 1 << 16, .required = true},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* spec_read_megatron reads a decoder's shape, which is the encoder's here. */
static enum status read_core(const struct json *config, struct model_spec *spec, struct error *e) {
    struct dims *encoder = &spec->stacks[STACK_ENCODER], *decoder = &spec->stacks[STACK_DECODER],
                none = *decoder;
    if (spec_read(config, &table, spec, e) || spec_read_megatron(config, spec, e)) return e->status;
    if (!spec->learned_positions)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: a BERT has position_embedding_type \"learned_absolute\"");

    int depth = encoder->n_layers;
    *encoder = *decoder;
    *decoder = none;
    encoder->n_layers = depth;
    encoder->final_norm = true;
    return spec_check(spec, e);
}

static const struct tensor_row core_outer_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = {"embedding.word_embeddings.weight"}},
    {.place = offsetof(struct model, embedding.position),
     .names = {"embedding.position_embeddings.weight"}},
    {.place = offsetof(struct model, embedding.type),
     .names = {"embedding.tokentype_embeddings.weight"}},
    {.place = offsetof(struct model, stacks[STACK_ENCODER].final_norm),
     .names = {"encoder.final_layernorm.*"}},
};

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    (void)spec, (void)stack, (void)i;
    return (struct layer_spec){.mask = MASK_NONE};
}

const struct family family_megatron_bert = {
    .architecture = "megatron_bert",
    .read = read_core,
    .layer = describe_layer,
    .stacks[STACK_ENCODER] = {{"encoder.layers.#."}, megatron_layer_rows, MEGATRON_LAYER_ROWS},
    .outer = {{NULL}, core_outer_rows, ARRAY_COUNT(core_outer_rows)},
    .ignores = ignore_megatron_state,
};

/* Hugging Face's. */

static enum status read_huggingface(const struct json *config, struct model_spec *spec,
                                    struct error *e) {
    spec->stacks[STACK_ENCODER].final_norm = true;
    return family_bert.read(config, spec, e);
}

#define NAMES(name) \
    { name, "bert." name }
static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = NAMES("embeddings.word_embeddings.weight")},
    {.place = offsetof(struct model, embedding.position),
     .names = NAMES("embeddings.position_embeddings.weight")},
    {.place = offsetof(struct model, embedding.type),
     .names = NAMES("embeddings.token_type_embeddings.weight")},
    {.place = offsetof(struct model, stacks[STACK_ENCODER].final_norm),
     .names = NAMES("encoder.ln.*")},
};

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"attention.ln.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"attention.self.query.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"attention.self.key.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"attention.self.value.*"}},
    {.place = offsetof(struct layer, proj), .names = {"attention.output.dense.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"ln.*"}},
    {.place = offsetof(struct layer, fc1), .names = {"intermediate.dense.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"output.dense.*"}},
};

const struct family family_megatron_bert_hf = {
    HUGGINGFACE_ENCODER("megatron-bert", read_huggingface, describe_layer, "bert.",
                        "encoder.layer.#.", layer_rows, outer_rows)};
