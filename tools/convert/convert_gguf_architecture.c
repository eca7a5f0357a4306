/* tools/convert/convert_gguf_architecture.c: llama.cpp's architectures that our decoders are, and their keys. See
 * convert_gguf.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/convert/convert_gguf.h"

enum { KIND_GPT2, KIND_LLAMA, KIND_QWEN2 }; /* of models that are what they are, whatever they are called */
static const struct written_architecture architectures[] = {
    [KIND_GPT2] = {.name = "gpt2", .layer_norm = true, .fused_qkv = true, .every_bias = true, .learned = true},
    [KIND_LLAMA] = {.name = "llama", .paired = true},
    [KIND_QWEN2] = {.name = "qwen2"},
    {.name = "llama", .family = "mixtral", .paired = true},
    {.name = "qwen3", .family = "qwen3"},
    {.name = "qwen2moe", .family = "qwen2_moe"},
    {.name = "qwen3moe", .family = "qwen3_moe"},
    {.name = "gptneox", .family = "gpt_neox", .layer_norm = true, .fused_qkv = true},
    {.name = "phi3", .family = "phi3", .fused_qkv = true, .fused_mlp = true},
    {.name = "gemma3", .family = "gemma3_text"},
};

static bool is_named(const struct written_architecture *a, const char *name) { return strcmp(a->name, name) == 0; }

static const struct dims *dims_of(const struct model *m) { return &m->stacks[STACK_DECODER].dims; }

/* RoPE. */

/* The base that frequencies follow from, as it was written: to six digits. */
static float find_base(const struct dims *d, enum rope_id id) {
    const float *frequencies = d->rope[id].inv_freq;
    char text[40];
    if (d->rotated < 4) return 10000;
    snprintf(text, sizeof text, "%.6g", pow((double)frequencies[1] / (double)frequencies[0], -0.5 * d->rotated));
    return strtof(text, NULL);
}

/* Frequencies that are not those of the base become factors by which llama.cpp divides those. */
static bool find_factors(const struct dims *d, enum rope_id id, float base, float *factors) {
    bool differ = false;
    for (int i = 0; i < d->rotated / 2; i++) {
        float plain = 1.0f / powf(base, (float)(2 * i) / (float)d->rotated);
        factors[i] = plain / d->rope[id].inv_freq[i];
        differ = differ || fabsf(factors[i] - 1) > 1e-6f;
    }
    return differ;
}

/* All frequencies divided by one number, which is 1 for most. */
static bool is_linear(const struct dims *d, enum rope_id id) {
    float factors[ATTENTION_MAX_HEAD];
    find_factors(d, id, find_base(d, id), factors);
    for (int i = 1; i < d->rotated / 2; i++)
        if (fabsf(factors[i] / factors[0] - 1) > 1e-5f) return false;
    return true;
}

/* The base of a llama's or Phi-3's frequencies cannot be told from factors: 10000 does for those of longrope. */
static float written_base(const struct dims *d) { return d->rope_long_after > 0 ? 10000 : find_base(d, ROPE_GLOBAL); }

static enum status choose_factors(const struct model *m, const struct written_architecture *a,
                                  struct written_factors *f, struct error *e) {
    const struct dims *d = dims_of(m);
    float base = written_base(d);
    f->n = 0;
    if (d->rotated == 0) return STATUS_OK;
    if (d->rope_long_after > 0) {
        *f = (struct written_factors){.names = {"rope_factors_short", "rope_factors_long"}, .n = 2};
        find_factors(d, ROPE_GLOBAL, base, f->values[0]);
        find_factors(d, ROPE_LONG, base, f->values[1]);
        return STATUS_OK;
    }
    bool scaled = find_factors(d, ROPE_GLOBAL, base, f->values[0]);
    if (!scaled || (is_named(a, "gemma3") && is_linear(d, ROPE_GLOBAL) && is_linear(d, ROPE_LOCAL))) return STATUS_OK;
    if (!is_named(a, "llama")) return error_set(e, STATUS_UNSUPPORTED, "llama.cpp's %s has no scaled RoPE", a->name);
    f->names[0] = "rope_freqs";
    f->n = 1;
    return STATUS_OK;
}

/* The architecture of a model. */

/* Of a family that has its own: the first of its options that the architecture has no word for; NULL: none. */
static const char *find_obstacle(const struct model *m, const struct written_architecture *a) {
    const struct dims *d = dims_of(m);
    bool gemma = is_named(a, "gemma3"), phi = is_named(a, "phi3"), neox = is_named(a, "gptneox");
    bool qwen2_moe = is_named(a, "qwen2moe"), qwen3_moe = is_named(a, "qwen3moe");
    enum activation activation = gemma ? ACTIVATION_GELU_TANH : neox ? ACTIVATION_GELU_ERF : ACTIVATION_SILU;
    float score = gemma && d->n_layers == 62 ? (float)(d->hidden / d->heads) : (float)d->head_dim;
    if (d->activation != activation) return "hidden_act";
    if (fabsf(d->score_scale * sqrtf(score) - 1) > 1e-5f) return "query_pre_attn_scalar";
    if (!phi && d->rope[ROPE_GLOBAL].scale != 0 && d->rope[ROPE_GLOBAL].scale != 1) return "attention_factor";
    if (!neox && !qwen2_moe && d->qkv_bias) return "attention_bias";
    if ((qwen2_moe && d->experts_renormalised) || (qwen3_moe && !d->experts_renormalised)) return "norm_topk_prob";
    for (int i = 0; i < d->n_layers; i++) {
        if (m->spec.windowed[i] && m->spec.window > 0 && !phi && !gemma) return "sliding_window";
        if (d->experts > 0 && m->spec.dense[i]) return "mlp_only_layers";
    }
    return NULL;
}

static enum status choose_by_family(const struct model *m, const struct written_architecture *a, struct error *e) {
    const char *obstacle = find_obstacle(m, a);
    if (obstacle == NULL) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED, "llama.cpp's %s has no word for this model's \"%s\" in config.json",
                     a->name, obstacle);
}

static enum status choose_by_shape(const struct model *m, const struct written_architecture **out, struct error *e) {
    const struct dims *d = dims_of(m);
    bool scaled = d->score_scale == 1.0f / sqrtf((float)d->head_dim);
    bool turns = d->rope_long_after == 0 && (d->rope[ROPE_GLOBAL].scale == 0 || d->rope[ROPE_GLOBAL].scale == 1);
    bool unscaled = (d->residual_scale == 0 || d->residual_scale == 1) && d->score_cap == 0 &&
                    (m->spec.embedding_scale == 0 || m->spec.embedding_scale == 1) && m->spec.logit_cap == 0;
    bool whole = m->spec.window == 0 && d->qk_norm == QK_NORM_NONE && !d->parallel;
    bool plain =
        scaled && turns && unscaled && whole && d->final_norm && m->spec.logit_scale == 1 && !m->spec.output_bias;
    bool gpt2 = m->spec.learned_positions && d->rotated == 0 && d->norm == NORM_LAYER && !d->gated &&
                d->activation == ACTIVATION_GELU_TANH && d->heads == d->kv_heads;
    bool llama = !m->spec.learned_positions && d->rotated == d->head_dim && d->norm == NORM_RMS && d->gated &&
                 d->activation == ACTIVATION_SILU && !d->proj_bias && !d->mlp_bias;
    *out = &architectures[gpt2 ? KIND_GPT2 : d->qkv_bias ? KIND_QWEN2 : KIND_LLAMA];
    if (plain && (gpt2 || (llama && !(d->qkv_bias && d->rope_interleaved)))) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "this model is neither llama.cpp's gpt2 (learned positions, layer norms, gelu_tanh) nor its llama "
                     "or qwen2 (RoPE on whole heads, RMS norms, swiglu, no biases but of queries, keys and values)");
}

static enum status choose_kind(const struct model *m, const struct written_architecture **out, struct error *e) {
    static const char *const by_shape[] = {"gpt", "gpt2", "llama", "qwen2"};
    struct buffer known = {0};
    for (size_t i = 0; i < ARRAY_COUNT(by_shape); i++) {
        if (strcmp(by_shape[i], m->info.family) == 0) return choose_by_shape(m, out, e);
        buffer_printf(&known, "%s, ", by_shape[i]);
    }
    for (size_t i = KIND_QWEN2 + 1; i < ARRAY_COUNT(architectures); i++) {
        *out = &architectures[i];
        if (strcmp((*out)->family, m->info.family) == 0) {
            buffer_free(&known);
            return choose_by_family(m, *out, e);
        }
        buffer_printf(&known, "%s%s", (*out)->family, i + 1 < ARRAY_COUNT(architectures) ? ", " : "");
    }
    error_set(e, STATUS_UNSUPPORTED, "a %s model is not written to GGUF; known: %s", m->info.family, known.data);
    buffer_free(&known);
    return e->status;
}

enum status architecture_choose(const struct model *m, const struct written_architecture **out,
                                struct written_factors *factors, struct error *e) {
    if (choose_kind(m, out, e)) return e->status;
    return choose_factors(m, *out, factors, e);
}

/* Keys. */

/* "ARCHITECTURE.key". */
static const char *full_key(char full[100], const struct written_architecture *a, const char *key) {
    snprintf(full, 100, "%s.%s", a->name, key);
    return full;
}

static void put_experts(struct gguf_keys *k, const struct model *m, const struct written_architecture *a) {
    const struct dims *d = dims_of(m);
    char key[100];
    if (d->experts == 0) return;
    keys_put_int(k, full_key(key, a, "expert_count"), (uint32_t)d->experts);
    keys_put_int(k, full_key(key, a, "expert_used_count"), (uint32_t)d->experts_used);
    if (is_named(a, "llama")) return; /* feed_forward_length says it */
    keys_put_int(k, full_key(key, a, "expert_feed_forward_length"), (uint32_t)d->expert_ffn);
    if (d->shared_ffn > 0)
        keys_put_int(k, full_key(key, a, "expert_shared_feed_forward_length"), (uint32_t)d->shared_ffn);
}

static void put_phi3(struct gguf_keys *k, const struct model *m, const struct written_architecture *a) {
    const struct dims *d = dims_of(m);
    int original = d->rope_long_after > 0 ? d->rope_long_after : m->spec.max_positions;
    char key[100];
    keys_put_int(k, full_key(key, a, "attention.sliding_window"), (uint32_t)m->spec.window);
    keys_put_int(k, full_key(key, a, "rope.scaling.original_context_length"), (uint32_t)original);
    if (d->rope_long_after > 0)
        keys_put_float(k, full_key(key, a, "rope.scaling.attn_factor"), d->rope[ROPE_GLOBAL].scale);
}

static void put_gemma3(struct gguf_keys *k, const struct model *m, const struct written_architecture *a) {
    const struct dims *d = dims_of(m);
    float linear = 1 / d->rope[ROPE_GLOBAL].inv_freq[0];
    char key[100];
    keys_put_float(k, full_key(key, a, "rope.freq_base_swa"), find_base(d, ROPE_LOCAL));
    if (m->spec.logit_cap != 0) keys_put_float(k, full_key(key, a, "final_logit_softcapping"), m->spec.logit_cap);
    if (linear != 1) {
        keys_put_text(k, full_key(key, a, "rope.scaling.type"), (struct text_span){"linear", 6});
        keys_put_float(k, full_key(key, a, "rope.scaling.factor"), linear);
    }
    if (m->spec.window == 0) return;
    keys_put_int(k, full_key(key, a, "attention.sliding_window"), (uint32_t)m->spec.window);
    keys_put_list(k, full_key(key, a, "attention.sliding_window_pattern"), GGUF_BOOL, (size_t)d->n_layers);
    for (int i = 0; i < d->n_layers; i++) gguf_put_number(&k->bytes, m->spec.windowed[i], 1);
}

void keys_put_shape(struct gguf_keys *k, const struct model *m, const struct written_architecture *a) {
    const struct dims *d = dims_of(m);
    const struct {
        const char *key;
        int value;
    } sizes[] = {{"block_count", d->n_layers},          {"context_length", m->spec.max_positions},
                 {"embedding_length", d->hidden},       {"feed_forward_length", d->ffn},
                 {"attention.head_count", d->heads},    {"attention.head_count_kv", d->kv_heads},
                 {"attention.key_length", d->head_dim}, {"attention.value_length", d->head_dim},
                 {"rope.dimension_count", d->rotated}};
    char key[100];
    for (size_t i = 0; i < ARRAY_COUNT(sizes) - (a->learned ? 3 : 0); i++)
        keys_put_int(k, full_key(key, a, sizes[i].key), (uint32_t)sizes[i].value);
    const char *epsilon = a->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
    keys_put_float(k, full_key(key, a, epsilon), d->epsilon);
    if (!a->learned) keys_put_float(k, full_key(key, a, "rope.freq_base"), written_base(d));
    put_experts(k, m, a);
    if (is_named(a, "gptneox")) keys_put_bool(k, full_key(key, a, "use_parallel_residual"), d->parallel);
    if (is_named(a, "phi3")) put_phi3(k, m, a);
    if (is_named(a, "gemma3")) put_gemma3(k, m, a);
}
