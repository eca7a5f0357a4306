/* tools/convert/plan/import_config.c: config.json of a checkpoint: from --config, else its
 * settings, its tensors, or what Megatron takes where nothing is said. Each value is kept with
 * where it came from. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/convert/plan/import_keys.h"

/* Where a value comes from, in words. */
static void say(struct import_plan *plan, const char *key, const char *what, const char *name) {
    struct buffer origin = {0};
    buffer_printf(&origin, "%s%s%s", what, name ? " " : "", name ? name : "");
    settings_say(&plan->config, key, origin.data);
    buffer_free(&origin);
}

const struct checkpoint_tensor *import_tensor(const struct import_plan *plan, const char *name) {
    return checkpoint_find(plan->checkpoint, name);
}

const struct checkpoint_tensor *import_stack_tensor(const struct import_plan *plan,
                                                    const char *name) {
    char whole[2 * KEY_SIZE];
    int n = snprintf(whole, sizeof whole, "%s.%s", plan->stack, name);
    CHECK(n < (int)sizeof whole);
    return import_tensor(plan, whole);
}

int64_t import_rows(const struct import_plan *plan, const struct checkpoint_tensor *tensor) {
    return tensor->shape[0] * (plan->checkpoint->ranked ? plan->checkpoint->ranks : 1);
}

int64_t import_columns(const struct import_plan *plan, const struct checkpoint_tensor *tensor) {
    return tensor->n_dims < 2
               ? 1
               : tensor->shape[1] * (plan->checkpoint->ranked ? plan->checkpoint->ranks : 1);
}

void import_lack(struct import_plan *plan, const char *key, const char *advice) {
    if (settings_find(&plan->config, key)) return;
    buffer_printf(&plan->missing, "%s%s%s%s%s", plan->missing.size ? ", " : "", key,
                  advice ? " (" : "", advice ? advice : "", advice ? ")" : "");
}

bool import_take_given(struct import_plan *plan, const char *key) {
    const struct setting *given = settings_find(&plan->given, key);
    if (given == NULL || given->kind == SETTING_NONE) return false;
    settings_copy(&plan->config, key, given);
    say(plan, key, "--config", NULL);
    return true;
}

/* The first of "a|b" that the checkpoint's settings have; *name is which. */
static const struct setting *find_argument(const struct import_plan *plan, const char *names,
                                           char name[KEY_SIZE]) {
    while (*names) {
        size_t n = strcspn(names, "|");
        CHECK(n < KEY_SIZE);
        memcpy(name, names, n);
        name[n] = '\0';
        const struct setting *found = settings_find(&plan->checkpoint->settings, name);
        if (found && found->kind != SETTING_NONE) return found;
        names += n + (names[n] == '|');
    }
    return NULL;
}

void import_put_int(struct import_plan *plan, const char *key, int64_t value, const char *origin) {
    settings_put_int(&plan->config, key, value);
    say(plan, key, origin, NULL);
}

void import_put_bool(struct import_plan *plan, const char *key, bool value, const char *origin) {
    settings_put_bool(&plan->config, key, value);
    say(plan, key, origin, NULL);
}

void import_put_text(struct import_plan *plan, const char *key, const char *value,
                     const char *origin) {
    settings_put_text(&plan->config, key, (struct text_span){value, strlen(value)});
    say(plan, key, origin, NULL);
}

bool import_take_int(struct import_plan *plan, const char *key, const char *names, int64_t *out) {
    char name[KEY_SIZE];
    if (import_take_given(plan, key)) return settings_int(&plan->config, key, out);
    const struct setting *found = find_argument(plan, names, name);
    if (found == NULL || found->kind != SETTING_INT) return false;
    *out = found->number;
    settings_put_int(&plan->config, key, *out);
    say(plan, key, "argument", name);
    return true;
}

void import_take_real(struct import_plan *plan, const char *key, const char *names,
                      double fallback) {
    char name[KEY_SIZE];
    if (import_take_given(plan, key)) return;
    const struct setting *found = find_argument(plan, names, name);
    bool number = found && (found->kind == SETTING_INT || found->kind == SETTING_REAL);
    settings_put_real(&plan->config, key, number ? found->real : fallback);
    say(plan, key, number ? "argument" : "default", number ? name : NULL);
}

void import_take_bool(struct import_plan *plan, const char *key, const char *names) {
    char name[KEY_SIZE];
    if (import_take_given(plan, key)) return;
    const struct setting *found = find_argument(plan, names, name);
    bool said = found && found->kind == SETTING_BOOL;
    settings_put_bool(&plan->config, key, said && found->number != 0);
    say(plan, key, said ? "argument" : "default", said ? name : NULL);
}

bool import_take_text(struct import_plan *plan, const char *key, const char *names) {
    char name[KEY_SIZE];
    if (import_take_given(plan, key)) return true;
    const struct setting *found = find_argument(plan, names, name);
    if (found == NULL || found->kind != SETTING_TEXT) return false;
    settings_put_text(&plan->config, key, (struct text_span){found->text, strlen(found->text)});
    say(plan, key, "argument", name);
    return true;
}

enum status import_disagree(const struct import_plan *plan, const char *what, int64_t tensors,
                            int64_t said, struct error *e) {
    return error_set(e, STATUS_CORRUPT, "%s: %s is %lld by the tensors and %lld by the arguments",
                     plan->checkpoint->folder, what, (long long)tensors, (long long)said);
}

static bool is_read(const char *name) {
    static const char *const names[] = {
        "norm_epsilon", "layernorm_epsilon",    "rotary_percent",
        "rotary_base",  "retro_attention_gate", "rotary_seq_len_interpolation_factor"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* Numbers that are none are no settings: a default in their place would be another model. */
static enum status check_numbers(const struct import_plan *plan, struct error *e) {
    const struct settings *settings = &plan->checkpoint->settings;
    for (int i = 0; i < settings->n; i++)
        if (settings->list[i].kind == SETTING_REAL && !isfinite((float)settings->list[i].real) &&
            is_read(settings->list[i].name))
            return error_set(
                e, STATUS_CORRUPT, "%s: the argument %s is %g, which is no number of a model's",
                plan->checkpoint->folder, settings->list[i].name, settings->list[i].real);
    return STATUS_OK;
}

/* Settings that change the network into one that no family computes. */
static enum status check_supported(const struct import_plan *plan, struct error *e) {
    static const char *const flags[] = {"apply_residual_connection_post_layernorm",
                                        "apply_residual_connection_post_norm",
                                        "qk_layernorm",
                                        "multi_latent_attention",
                                        "use_rope_scaling",
                                        "qk_l2_norm",
                                        "apply_embedding_scaling",
                                        "parallel_attn"};
    static const char *const numbers[] = {"num_experts", "rotary_seq_len_interpolation_factor"};
    const struct settings *settings = &plan->checkpoint->settings;
    const char *found = NULL;
    double value;
    for (size_t i = 0; i < ARRAY_COUNT(flags); i++)
        if (settings_true(settings, flags[i])) found = flags[i];
    for (size_t i = 0; i < ARRAY_COUNT(numbers); i++)
        if (settings_real(settings, numbers[i], &value) && value != 1) found = numbers[i];
    const char *block = settings_text(settings, "transformer_block_type");
    if (block && strcmp(block, "pre_ln") != 0) found = "transformer_block_type";
    if (found == NULL) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED, "%s was trained with %s, which no family here computes",
                     plan->checkpoint->folder, found);
}

/* Sizes, of which most can be read from the tensors. */
static enum status configure_sizes(struct import_plan *plan, struct error *e) {
    const struct checkpoint_tensor *word = import_tensor(plan, "embedding.word_embeddings.weight");
    const struct checkpoint_tensor *fc1 =
        import_stack_tensor(plan, "layers.0.mlp.linear_fc1.weight");
    const struct checkpoint_tensor *fc2 =
        import_stack_tensor(plan, "layers.0.mlp.linear_fc2.weight");
    if (word == NULL || word->n_dims != 2 || fc1 == NULL || fc2 == NULL || fc2->n_dims != 2)
        return error_set(
            e, STATUS_CORRUPT, "%s lacks the word table or the MLP of layer 0 (%s%s)",
            plan->checkpoint->folder, word ? plan->stack : "",
            word ? ".layers.0.mlp.linear_fc1.weight" : "embedding.word_embeddings.weight");
    int64_t said;
    plan->hidden = word->shape[1];
    plan->vocab = import_rows(plan, word);
    plan->ffn = import_columns(plan, fc2);
    plan->gated = import_rows(plan, fc1) == 2 * plan->ffn;
    import_put_int(plan, "hidden_size", plan->hidden, "tensors");
    import_put_int(plan, "ffn_hidden_size", plan->ffn, "tensors");
    import_put_int(plan, "padded_vocab_size", plan->vocab, "tensors");
    if (settings_int(&plan->checkpoint->settings, "hidden_size", &said) && said != plan->hidden)
        return import_disagree(plan, "hidden_size", plan->hidden, said, e);
    if (settings_int(&plan->checkpoint->settings, "ffn_hidden_size", &said) && said != plan->ffn)
        return import_disagree(plan, "ffn_hidden_size", plan->ffn, said, e);

    bool known = import_take_int(plan, "num_attention_heads", "num_attention_heads", &plan->heads);
    if (!known) {
        import_lack(plan, "num_attention_heads", NULL);
        plan->heads = 1;
    }
    if (plan->heads < 1 || plan->heads > plan->hidden)
        return error_set(e, STATUS_INVALID, "%lld attention heads of %lld columns",
                         (long long)plan->heads, (long long)plan->hidden);
    if (!import_take_int(plan, "kv_channels", "kv_channels", &plan->channels)) {
        plan->channels = plan->hidden / plan->heads;
        import_put_int(plan, "kv_channels", plan->channels, "hidden_size / num_attention_heads");
    }
    plan->groups = plan->heads;
    if (settings_true(&plan->checkpoint->settings, "group_query_attention") ||
        settings_find(&plan->given, "num_query_groups"))
        import_take_int(plan, "num_query_groups", "num_query_groups", &plan->groups);
    else
        import_put_int(plan, "num_query_groups", plan->groups, "num_attention_heads");
    bool possible = plan->channels > 0 && plan->channels <= 1 << 16 && plan->groups > 0 &&
                    (plan->groups <= plan->heads || !known);
    return possible ? STATUS_OK
                    : error_set(e, STATUS_INVALID,
                                "kv_channels %lld and num_query_groups %lld cannot be",
                                (long long)plan->channels, (long long)plan->groups);
}

/* The activation's name where the checkpoint tells it, by Megatron's own order; NULL: it does not.
 */
static const char *find_activation(const struct import_plan *plan, const char **origin) {
    static const char *const flags[][2] = {{"swiglu", "swiglu"},
                                           {"squared_relu", "squared_relu"},
                                           {"quick_geglu", "quick_gelu"},
                                           {"openai_gelu", "gelu_tanh"},
                                           {"onnx_safe", "gelu_erf"}};
    const struct settings *settings = &plan->checkpoint->settings;
    for (size_t i = 0; i < ARRAY_COUNT(flags); i++) {
        *origin = flags[i][0];
        if (settings_true(settings, flags[i][0])) return flags[i][1];
    }
    bool fused;
    *origin = "activation";
    if (settings_text(settings, "gated_activation"))
        return settings_text(settings, "gated_activation");
    *origin = "bias_gelu_fusion";
    if (!settings_bool(settings, "bias_gelu_fusion", &fused)) return NULL;
    if (plan->gated) return plan->architecture == IMPORT_T5 ? "geglu_tanh" : NULL;
    return fused && plan->bias ? "gelu_tanh" : "gelu_erf";
}

static enum status configure_mlp(struct import_plan *plan, struct error *e) {
    plan->bias = import_stack_tensor(plan, "layers.0.self_attention.linear_proj.bias") != NULL;
    plan->qkv_bias =
        plan->bias || import_stack_tensor(plan, "layers.0.self_attention.linear_qkv.bias") != NULL;
    const char *origin, *found = find_activation(plan, &origin);
    import_put_bool(plan, "add_bias_linear", plan->bias, "tensors");
    if (plan->qkv_bias && !plan->bias) import_put_bool(plan, "add_qkv_bias", true, "tensors");
    if (!import_take_given(plan, "activation")) {
        if (found) {
            import_put_text(plan, "activation", found, "argument");
            say(plan, "activation", "argument", origin);
        } else {
            import_lack(plan, "activation",
                        plan->gated ? "swiglu, geglu_tanh or geglu_erf" : "gelu_tanh or gelu_erf");
        }
    }
    const char *activation = settings_text(&plan->config, "activation");
    bool halves =
        activation && (strcmp(activation, "swiglu") == 0 || strncmp(activation, "geglu", 5) == 0);
    if (activation && halves != plan->gated)
        return error_set(e, STATUS_CORRUPT,
                         "%s: the activation is %s, and the first matrix of the MLP has %s rows",
                         plan->checkpoint->folder, activation,
                         plan->gated ? "twice ffn_hidden_size" : "ffn_hidden_size");
    return STATUS_OK;
}

static enum status configure_norms(struct import_plan *plan, struct error *e) {
    const char *key = "normalization";
    plan->norm_bias =
        import_stack_tensor(plan, "layers.0.self_attention.linear_qkv.layer_norm_bias") != NULL;
    plan->final_norm = import_stack_tensor(plan, "final_layernorm.weight") != NULL;
    if (!import_take_text(plan, key, key))
        import_put_text(plan, key, plan->norm_bias ? "LayerNorm" : "RMSNorm", "tensors");
    bool layer = strcmp(settings_text(&plan->config, key), "LayerNorm") == 0;
    if (layer != plan->norm_bias)
        return error_set(e, STATUS_CORRUPT, "%s: the norms are %s, and they have %s biases",
                         plan->checkpoint->folder, settings_text(&plan->config, key),
                         plan->norm_bias ? "" : "no");
    import_take_real(plan, "layernorm_epsilon", "norm_epsilon|layernorm_epsilon", 1e-5);
    import_take_bool(plan, "layernorm_zero_centered_gamma",
                     "apply_layernorm_1p|layernorm_zero_centered_gamma");
    return STATUS_OK;
}

static void configure_output(struct import_plan *plan) {
    static const char *const dtypes[] = {
        [STORED_F32] = "float32", [STORED_F16] = "float16", [STORED_BF16] = "bfloat16"};
    const struct checkpoint_tensor *word = import_tensor(plan, "embedding.word_embeddings.weight");
    const char *key = "tie_word_embeddings";
    bool untied;
    bool apart = import_tensor(plan, "output_layer.weight") ||
                 import_tensor(plan, "lm_head.output_layer.weight");
    plan->tied = !apart;
    if (import_take_given(plan, key))
        settings_bool(&plan->config, key, &plan->tied);
    else if (settings_bool(&plan->checkpoint->settings, "untie_embeddings_and_output_weights",
                           &untied)) {
        plan->tied = !untied;
        import_put_bool(plan, key, plan->tied, "argument untie_embeddings_and_output_weights");
    } else {
        /* A last stage's copy of the word table looks like a matrix of its own: only legacy files
         * lack the argument. */
        if (plan->legacy && plan->checkpoint->stages > 1) plan->tied = true;
        import_put_bool(plan, key, plan->tied, "tensors");
    }
    import_put_text(plan, "torch_dtype", dtypes[word->dtype], "tensors");
}

static enum status read_json(struct settings *settings, const char *path, struct error *e) {
    struct json *document;
    if (json_parse_file(&document, path, e)) return e->status;
    settings_put_json(settings, document);
    json_close(document);
    return STATUS_OK;
}

/* Reads the files --config and --retro-args. The second may be all arguments of another run: those
 * of retrieval are taken. */
enum status import_read_given(struct import_plan *plan, const struct import_options *options,
                              struct error *e) {
    struct settings retro = {0};
    if (options->config && read_json(&plan->given, options->config, e)) return e->status;
    plan->pictures = import_is_pictures(&plan->given);
    if (!plan->pictures && import_check_given(plan, e)) return e->status;
    if (options->retro_args == NULL) return STATUS_OK;
    enum status status = read_json(&retro, options->retro_args, e);
    for (int i = 0; status == STATUS_OK && i < retro.n; i++)
        if (strncmp(retro.list[i].name, "retro_", 6) == 0 && retro.list[i].kind == SETTING_INT)
            settings_put_int(&plan->checkpoint->settings, retro.list[i].name, retro.list[i].number);
    settings_free(&retro);
    return status;
}

enum status import_configure(struct import_plan *plan, const struct import_options *options,
                             struct error *e) {
    static const char *const architectures[] = {[IMPORT_RETRO] = "retro",
                                                [IMPORT_GPT] = "gpt",
                                                [IMPORT_T5] = "t5",
                                                [IMPORT_BERT] = "megatron_bert"};
    const char *named = architectures[plan->trimmed ? IMPORT_GPT : plan->architecture];
    if (check_numbers(plan, e) || check_supported(plan, e)) return e->status;

    import_put_text(plan, "architecture", named, plan->trimmed ? "--as gpt" : "tensors");
    if (plan->architecture == IMPORT_T5) {
        import_put_int(plan, "encoder_num_layers", plan->encoder_layers, "tensors");
        import_put_int(plan, "decoder_num_layers", plan->layers, "tensors");
    } else {
        import_put_int(plan, "num_layers", plan->layers, "tensors");
    }
    if (configure_sizes(plan, e) || import_configure_positions(plan, e) || configure_mlp(plan, e) ||
        configure_norms(plan, e))
        return e->status;
    configure_output(plan);
    if (plan->architecture == IMPORT_RETRO && import_configure_retro(plan, options, e))
        return e->status;
    if (plan->architecture == IMPORT_T5 && import_configure_t5(plan, e)) return e->status;
    if (plan->architecture == IMPORT_BERT && import_configure_bert(plan, e)) return e->status;
    if (import_read_tokenizer(plan, options, e)) return e->status;
    return STATUS_OK;
}
