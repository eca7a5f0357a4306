/* retro/families/family_gemma.c: Gemma 2, the text part of Gemma 3 and EmbeddingGemma as Hugging
 * Face stores them:
 * scaled words, norms before and after each branch with weights around zero, windows in most
 * layers. Gemma 2 caps scores and logits; Gemma 3 norms the queries and keys of each head and turns
 * windowed layers by frequencies of their own. */
#include <math.h>

#include "retro/families/huggingface.h"

/* The spec, and keys that have no place in it. */
struct gemma_keys {
    struct model_spec spec;
    float score_divisor;
};

static const struct json_field fields[] = {
    {"hidden_activation", JSON_CHOICE, AT_DECODER(activation), .choices = huggingface_activations,
     .fallback = ACTIVATION_GELU_TANH},
    {"query_pre_attn_scalar", JSON_FLOAT, JSON_AT(struct gemma_keys, score_divisor), .min = 1e-30,
     .max = 1e30, .fallback = 256},
    {"attn_logit_softcapping", JSON_FLOAT, AT_DECODER(score_cap), .min = 1e-30, .max = 1e30},
    {"final_logit_softcapping", JSON_FLOAT, AT_SPEC(logit_cap), .min = 1e-30, .max = 1e30},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* A cap that is null is none; one that is absent stays what it was. */
static void drop_null(const struct json *config, const char *key, float *cap) {
    const struct json *value = json_member(config, key);
    if (value && json_is_absent(value)) *cap = 0;
}

/* The sizes that absent keys stand for; transformers leaves out of a text_config those that are its
 * class's. */
static void start_sizes(struct model_spec *spec, int vocab, int positions) {
    struct dims *dims = &spec->stacks[STACK_DECODER];
    spec->vocab = vocab;
    spec->max_positions = positions;
    spec->eod = 1;
    dims->n_layers = 26;
    dims->hidden = 2304;
    dims->heads = 8;
    dims->ffn = 9216;
}

static enum status read_gemma(const struct json *config, struct huggingface_decoder *decoder,
                              struct error *e) {
    struct model_spec *spec = &decoder->spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    dims->kv_heads = 4;
    dims->head_dim = 256;
    dims->epsilon = 1e-6f;
    spec->tied = true;
    spec->window = 4096;
    if (huggingface_read_decoder(config, decoder, e)) return e->status;
    if (huggingface_read_windows(decoder, e)) return e->status;

    struct gemma_keys keys = {.spec = *spec};
    if (spec_read(config, &table, &keys, e)) return e->status;
    *spec = keys.spec;
    drop_null(config, "attn_logit_softcapping", &dims->score_cap);
    drop_null(config, "final_logit_softcapping", &spec->logit_cap);
    dims->score_scale = 1 / sqrtf(keys.score_divisor);
    dims->mlp_bias = false;
    dims->zero_centered_gamma = true;
    spec->embedding_scale = sqrtf((float)dims->hidden);
    return STATUS_OK;
}

static enum status read_gemma2(const struct json *config, struct model_spec *spec,
                               struct error *e) {
    struct huggingface_decoder decoder = {
        .spec = *spec, .rope = {.base = 10000}, .window_pattern = 2};
    start_sizes(&decoder.spec, 256000, 8192);
    decoder.spec.stacks[STACK_DECODER].score_cap = 50;
    decoder.spec.logit_cap = 30;
    if (read_gemma(config, &decoder, e)) return e->status;
    *spec = decoder.spec;
    return STATUS_OK;
}

static enum status read_gemma3(const struct json *config, struct model_spec *spec,
                               struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec,
                                          .rope = {.base = 1e6, .local_base = 10000},
                                          .window_pattern = 6,
                                          .may_be_two_sided = true};
    start_sizes(&decoder.spec, 262208, 131072);
    if (read_gemma(config, &decoder, e)) return e->status;
    if (decoder.spec.two_sided)
        decoder.spec.window = decoder.spec.window / 2 + 1; /* to each side */
    decoder.spec.stacks[STACK_DECODER].qk_norm = QK_NORM_HEAD;
    decoder.spec.stacks[STACK_DECODER].score_cap =
        0; /* transformers reads attn_logit_softcapping and does nothing with it */
    *spec = decoder.spec;
    return STATUS_OK;
}

static const struct tensor_row layer_rows[] = {
    HUGGINGFACE_GEMMA_ROWS,
};

const struct family family_gemma2 = {
    HUGGINGFACE_DECODER("gemma2", read_gemma2, huggingface_layer, layer_rows)};

const struct family family_gemma3_text = {
    HUGGINGFACE_DECODER("gemma3_text", read_gemma3, huggingface_local_layer, layer_rows)};
