/* tools/convert/sink/convert_gguf_architecture.c: llama.cpp's architectures that our decoders are,
 * and their keys. See convert_gguf.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/convert/sink/convert_gguf.h"

/* An architecture that is written, and the facts that no row of it tells. */
struct written_row {
    const char *type; /* Hugging Face's */
    enum activation activation;
    bool qkv_bias;   /* there may be biases of queries, keys and values */
    bool every_bias; /* zeros where the model has no bias */
    bool factors;    /* llama.cpp divides its frequencies by those of a tensor */
    bool oss;        /* gpt-oss, whose further options llama.cpp has as constants */
};

enum {
    KIND_GPT2,
    KIND_LLAMA,
    KIND_QWEN2
}; /* of models that are what they are, whatever they are called */
static const struct written_row written[] = {
    [KIND_GPT2] = {.type = "gpt2",
                   .activation = ACTIVATION_GELU_TANH,
                   .qkv_bias = true,
                   .every_bias = true},
    [KIND_LLAMA] = {.type = "llama", .activation = ACTIVATION_SILU, .factors = true},
    [KIND_QWEN2] = {.type = "qwen2", .activation = ACTIVATION_SILU, .qkv_bias = true},
    {.type = "mixtral", .activation = ACTIVATION_SILU, .factors = true},
    {.type = "qwen3", .activation = ACTIVATION_SILU},
    {.type = "qwen2_moe", .activation = ACTIVATION_SILU, .qkv_bias = true},
    {.type = "qwen3_moe", .activation = ACTIVATION_SILU},
    {.type = "gpt_neox", .activation = ACTIVATION_GELU_ERF, .qkv_bias = true},
    {.type = "phi3", .activation = ACTIVATION_SILU},
    {.type = "gemma3_text", .activation = ACTIVATION_GELU_TANH},
    {.type = "gpt_oss", .activation = ACTIVATION_QUICK_GELU, .qkv_bias = true, .oss = true},
};

static const struct dims *dims_of(const struct model *model) {
    return &model->stacks[STACK_DECODER].dims;
}

/* RoPE. */

/* Frequencies that are not those of the base become factors by which llama.cpp divides those. */
static bool find_factors(const struct dims *dims, enum rope_id id, float *factors) {
    bool differ = false;
    struct dims plain = {.rotated = dims->rotated};
    dims_set_rope(&plain, id, dims->rope[id].base);
    for (int i = 0; i < dims->rotated / 2; i++) {
        factors[i] = plain.rope[id].inv_freq[i] / dims->rope[id].inv_freq[i];
        differ = differ || fabsf(factors[i] - 1) > 1e-6f;
    }
    return differ;
}

/* The number that all frequencies are divided by, 1 for most; 0: there is no such number. */
static float find_linear(const struct dims *dims, enum rope_id id) {
    float factors[ATTENTION_MAX_HEAD];
    if (dims->rotated == 0 || !find_factors(dims, id, factors)) return 1;
    for (int i = 1; i < dims->rotated / 2; i++)
        if (fabsf(factors[i] / factors[0] - 1) > 1e-5f) return 0;
    return factors[0];
}

static enum status choose_factors(const struct model *model, const struct written_row *row,
                                  struct written_architecture *out, struct error *e) {
    const struct dims *dims = dims_of(model);
    struct written_factors *factors = &out->factors;
    if (row->oss) return STATUS_OK; /* its yarn is keys */
    if (dims->rope_long_after > 0) {
        *factors =
            (struct written_factors){.names = {"rope_factors_short", "rope_factors_long"}, .n = 2};
        find_factors(dims, ROPE_GLOBAL, factors->values[0]);
        find_factors(dims, ROPE_LONG, factors->values[1]);
    } else if (find_linear(dims, ROPE_GLOBAL) == 0 && row->factors) {
        *factors = (struct written_factors){.names = {"rope_freqs"}, .n = 1};
        find_factors(dims, ROPE_GLOBAL, factors->values[0]);
    }
    bool longrope = dims->rope_long_after == 0 || architecture_key(out->rows, "attention_factor");
    bool local =
        !architecture_key(out->rows, "rope_local_base_freq") || find_linear(dims, ROPE_LOCAL) == 1;
    if (longrope && local && (factors->n > 0 || find_linear(dims, ROPE_GLOBAL) != 0))
        return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED, "llama.cpp's %s has no scaled RoPE", out->rows->name);
}

/* The architecture of a model. */

/* Of gpt-oss: windows in every second layer from the first on, biases, gates that are cut off at 7,
 * and yarn, all of which llama.cpp takes for granted. */
static const char *find_oss_obstacle(const struct model *model) {
    const struct dims *dims = dims_of(model);
    const struct rope_yarn *yarn = &dims->rope[ROPE_GLOBAL].yarn;
    if (dims->gate_limit != 7) return "swiglu_limit";
    if (!dims->qkv_bias || !dims->proj_bias) return "attention_bias";
    if (!(yarn->factor > 0) || yarn->truncate || !yarn->usual) return "rope_scaling";
    for (int i = 0; i < dims->n_layers; i++)
        if (model->spec.windowed[i] != (i % 2 == 0)) return "layer_types";
    return NULL;
}

/* Of a family that has its own: the first of its options that the architecture has no word for;
 * NULL: none. */
static const char *find_obstacle(const struct model *model, const struct written_row *row,
                                 const struct architecture *architecture) {
    const struct dims *dims = dims_of(model);
    const struct fact_row *renormalised = architecture_fact(architecture, "norm_topk_prob");
    bool shared = architecture->divisor && dims->n_layers == architecture->divided_layers;
    float score = shared ? (float)(dims->hidden / dims->heads) : (float)dims->head_dim,
          scale = dims->rope[ROPE_GLOBAL].scale;
    if (dims->activation != row->activation) return "hidden_act";
    if (fabsf(dims->score_scale * sqrtf(score) - 1) > 1e-5f) return "query_pre_attn_scalar";
    if (row->oss && find_oss_obstacle(model)) return find_oss_obstacle(model);
    if (!row->oss && !architecture_key(architecture, "attention_factor") && scale != 0 &&
        scale != 1)
        return "attention_factor";
    if (!row->qkv_bias && dims->qkv_bias) return "attention_bias";
    if (renormalised && renormalised->absent != dims->experts_renormalised) return "norm_topk_prob";
    for (int i = 0; i < dims->n_layers; i++) {
        if (model->spec.windowed[i] && model->spec.window > 0 &&
            !architecture_key(architecture, "sliding_window"))
            return "sliding_window";
        if (dims->experts > 0 && model->spec.dense[i]) return "mlp_only_layers";
    }
    return NULL;
}

static enum status choose_by_shape(const struct model *model, const struct written_row **out,
                                   struct error *e) {
    const struct dims *dims = dims_of(model);
    bool scaled =
        dims->score_scale == 1.0f / sqrtf((float)dims->head_dim) && !dims->scores_by_layer;
    bool turns = dims->rope_long_after == 0 &&
                 (dims->rope[ROPE_GLOBAL].scale == 0 || dims->rope[ROPE_GLOBAL].scale == 1);
    bool unscaled = (dims->residual_scale == 0 || dims->residual_scale == 1) &&
                    dims->score_cap == 0 &&
                    (model->spec.embedding_scale == 0 || model->spec.embedding_scale == 1) &&
                    model->spec.logit_cap == 0;
    bool whole = model->spec.window == 0 && dims->qk_norm == QK_NORM_NONE && !dims->parallel;
    bool plain = scaled && turns && unscaled && whole && dims->final_norm &&
                 model->spec.logit_scale == 1 && !model->spec.output_bias;
    bool gpt2 = model->spec.learned_positions && dims->rotated == 0 && dims->norm == NORM_LAYER &&
                !dims->gated && dims->activation == ACTIVATION_GELU_TANH &&
                dims->heads == dims->kv_heads;
    bool llama = !model->spec.learned_positions && dims->rotated == dims->head_dim &&
                 dims->norm == NORM_RMS && dims->gated && dims->activation == ACTIVATION_SILU &&
                 !dims->proj_bias && !dims->mlp_bias;
    *out = &written[gpt2 ? KIND_GPT2 : dims->qkv_bias ? KIND_QWEN2 : KIND_LLAMA];
    if (plain && (gpt2 || (llama && !(dims->qkv_bias && dims->rope_interleaved)))) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "this model is neither llama.cpp's gpt2 (learned positions, layer norms, "
                     "gelu_tanh) nor its llama "
                     "or qwen2 (RoPE on whole heads, RMS norms, swiglu, no biases but of queries, "
                     "keys and values)");
}

static enum status choose_by_family(const struct model *model, const struct written_row **out,
                                    struct error *e) {
    struct buffer known = {0};
    buffer_append_string(&known, "gpt");
    for (size_t i = 0; i < ARRAY_COUNT(written); i++) {
        *out = &written[i];
        if (strcmp((*out)->type, model->info.family) == 0) break;
        buffer_printf(&known, ", %s", (*out)->type);
        *out = NULL;
    }
    if (*out == NULL)
        error_set(e, STATUS_UNSUPPORTED, "a %s model is not written to GGUF; known: %s",
                  model->info.family, known.data);
    buffer_free(&known);
    if (*out == NULL) return e->status;
    const struct architecture *architecture = architecture_of_type((*out)->type);
    const char *obstacle = find_obstacle(model, *out, architecture);
    if (obstacle == NULL) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "llama.cpp's %s has no word for this model's \"%s\" in config.json",
                     architecture->name, obstacle);
}

enum status architecture_choose(const struct model *model, struct written_architecture *out,
                                struct error *e) {
    static const char *const by_shape[] = {"gpt", "gpt2", "llama", "qwen2"};
    const struct written_row *row;
    bool shaped = false;
    if (model->spec.two_sided)
        return error_set(e, STATUS_UNSUPPORTED,
                         "tokens of this model see those behind them, and its GGUF file would not "
                         "say so: serve the folder as an embedder, or convert it to another type");
    for (size_t i = 0; i < ARRAY_COUNT(by_shape); i++)
        shaped = shaped || strcmp(by_shape[i], model->info.family) == 0;
    if (shaped ? choose_by_shape(model, &row, e) : choose_by_family(model, &row, e))
        return e->status;
    *out = (struct written_architecture){.rows = architecture_of_type(row->type),
                                         .family = family_of_type(row->type),
                                         .every_bias = row->every_bias};
    return choose_factors(model, row, out, e);
}

/* Keys. */

/* A key of config.json as a model has it. */
struct spec_member {
    const char *name;
    enum { MEMBER_INT, MEMBER_FLOAT, MEMBER_BOOL } type;
    size_t at; /* in struct model_spec */
};

#define OF_SPEC(member) offsetof(struct model_spec, member)
#define OF_DECODER(member) OF_SPEC(stacks[STACK_DECODER].member)

static const struct spec_member members[] = {
    {"num_hidden_layers", MEMBER_INT, OF_DECODER(n_layers)},
    {"n_layer", MEMBER_INT, OF_DECODER(n_layers)},
    {"max_position_embeddings", MEMBER_INT, OF_SPEC(max_positions)},
    {"n_positions", MEMBER_INT, OF_SPEC(max_positions)},
    {"hidden_size", MEMBER_INT, OF_DECODER(hidden)},
    {"n_embd", MEMBER_INT, OF_DECODER(hidden)},
    {"intermediate_size", MEMBER_INT, OF_DECODER(ffn)},
    {"n_inner", MEMBER_INT, OF_DECODER(ffn)},
    {"num_attention_heads", MEMBER_INT, OF_DECODER(heads)},
    {"n_head", MEMBER_INT, OF_DECODER(heads)},
    {"num_key_value_heads", MEMBER_INT, OF_DECODER(kv_heads)},
    {"head_dim", MEMBER_INT, OF_DECODER(head_dim)},
    {"rotary_pct", MEMBER_INT, OF_DECODER(rotated)},
    {"partial_rotary_factor", MEMBER_INT, OF_DECODER(rotated)},
    {"rms_norm_eps", MEMBER_FLOAT, OF_DECODER(epsilon)},
    {"layer_norm_eps", MEMBER_FLOAT, OF_DECODER(epsilon)},
    {"layer_norm_epsilon", MEMBER_FLOAT, OF_DECODER(epsilon)},
    {"rope_theta", MEMBER_FLOAT, OF_DECODER(rope[ROPE_GLOBAL].base)},
    {"rope_local_base_freq", MEMBER_FLOAT, OF_DECODER(rope[ROPE_LOCAL].base)},
    {"attention_factor", MEMBER_FLOAT, OF_DECODER(rope[ROPE_GLOBAL].scale)},
    {"original_max_position_embeddings", MEMBER_INT, OF_DECODER(rope_long_after)},
    {"num_experts", MEMBER_INT, OF_DECODER(experts)},
    {"num_local_experts", MEMBER_INT, OF_DECODER(experts)},
    {"num_experts_per_tok", MEMBER_INT, OF_DECODER(experts_used)},
    {"moe_intermediate_size", MEMBER_INT, OF_DECODER(expert_ffn)},
    {"shared_expert_intermediate_size", MEMBER_INT, OF_DECODER(shared_ffn)},
    {"use_parallel_residual", MEMBER_BOOL, OF_DECODER(parallel)},
    {"sliding_window", MEMBER_INT, OF_SPEC(window)},
    {"final_logit_softcapping", MEMBER_FLOAT, OF_SPEC(logit_cap)},
};

/* A number that is 0 is not there. */
static void put_member(struct gguf_keys *keys, const char *key, const struct model_spec *spec,
                       const char *name) {
    const struct spec_member *member = members;
    while (strcmp(member->name, name) != 0) {
        member++;
        CHECK(member < members + ARRAY_COUNT(members));
    }
    const void *at = (const char *)spec + member->at;
    switch (member->type) {
        case MEMBER_BOOL: keys_put_bool(keys, key, *(const bool *)at); break;
        case MEMBER_FLOAT:
            if (*(const float *)at != 0) keys_put_float(keys, key, *(const float *)at);
            break;
        case MEMBER_INT:
            if (*(const int *)at != 0) keys_put_int(keys, key, (uint32_t) * (const int *)at);
            break;
    }
}

/* The layers that have the window. */
static void put_pattern(struct gguf_keys *keys, const char *key, const struct model_spec *spec) {
    int n = spec->stacks[STACK_DECODER].n_layers;
    if (spec->window == 0) return;
    keys_put_list(keys, key, GGUF_BOOL, (size_t)n);
    for (int i = 0; i < n; i++) gguf_put_number(&keys->bytes, spec->windowed[i], 1);
}

/* "ARCHITECTURE.key". */
static const char *full_key(char full[100], const struct architecture *architecture,
                            const char *key) {
    snprintf(full, 100, "%s.%s", architecture->name, key);
    return full;
}

static void put_row(struct gguf_keys *keys, const struct model *model,
                    const struct architecture *architecture, const struct key_row *row) {
    char key[100];
    full_key(key, architecture, row->key);
    switch (row->kind) {
        case KEY_LAYERS:
        case KEY_INT:
        case KEY_FLOAT:
        case KEY_BOOL:
        case KEY_SHARE:
        case KEY_WRITTEN: put_member(keys, key, &model->spec, row->name); break;
        case KEY_OR_NULL: keys_put_int(keys, key, (uint32_t)model->spec.window); break;
        case KEY_PATTERN: put_pattern(keys, key, &model->spec); break;
        case KEY_HEAD: keys_put_int(keys, key, (uint32_t)dims_of(model)->head_dim); break;
        case KEY_SECTIONS: /* these of no architecture that is written */
        case KEY_STATES:
        case KEY_PER_HEAD:
        case KEY_COUNT:
        case KEY_UNEVEN:
        case KEY_WORD:
        case KEY_DIFFERS:
        case KEY_TURNS:
        case KEY_MSCALE:
        case KEY_IGNORED:
        case KEY_NEUTRAL: break;
    }
}

/* Betas are 32 and 1 where no key says others. */
static void put_yarn(struct gguf_keys *keys, const struct architecture *architecture,
                     const struct rope_yarn *yarn) {
    char key[100];
    keys_put_text(keys, full_key(key, architecture, "rope.scaling.type"),
                  (struct text_span){"yarn", 4});
    keys_put_float(keys, full_key(key, architecture, "rope.scaling.factor"), yarn->factor);
    keys_put_int(keys, full_key(key, architecture, "rope.scaling.original_context_length"),
                 (uint32_t)yarn->original);
    if (yarn->beta_fast != 32)
        keys_put_float(keys, full_key(key, architecture, "rope.scaling.yarn_beta_fast"),
                       yarn->beta_fast);
    if (yarn->beta_slow != 1)
        keys_put_float(keys, full_key(key, architecture, "rope.scaling.yarn_beta_slow"),
                       yarn->beta_slow);
}

void keys_put_shape(struct gguf_keys *keys, const struct model *model,
                    const struct written_architecture *architecture) {
    const struct architecture *the_architecture = architecture->rows;
    float linear = find_linear(dims_of(model), ROPE_GLOBAL);
    char key[100];
    for (size_t i = 0; i < the_architecture->n_keys; i++)
        put_row(keys, model, the_architecture, &the_architecture->keys[i]);
    const struct rope_yarn *yarn = &dims_of(model)->rope[ROPE_GLOBAL].yarn;
    if (yarn->factor > 0) put_yarn(keys, the_architecture, yarn);
    if (linear == 1 || architecture->factors.n > 0 || yarn->factor > 0) return;
    keys_put_text(keys, full_key(key, the_architecture, "rope.scaling.type"),
                  (struct text_span){"linear", 6});
    keys_put_float(keys, full_key(key, the_architecture, "rope.scaling.factor"), linear);
}
