/* tools/convert/plan/import_config.c: config.json of a checkpoint: from --config, else its settings, its tensors, or
 * what Megatron takes where nothing is said. Each value is kept with where it came from. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/convert/plan/import_keys.h"

/* Where a value comes from, in words. */
static void say(struct import_plan *p, const char *key, const char *what, const char *name) {
    struct buffer origin = {0};
    buffer_printf(&origin, "%s%s%s", what, name ? " " : "", name ? name : "");
    settings_say(&p->config, key, origin.data);
    buffer_free(&origin);
}

const struct checkpoint_tensor *import_tensor(const struct import_plan *p, const char *name) {
    return checkpoint_find(p->checkpoint, name);
}

const struct checkpoint_tensor *import_stack_tensor(const struct import_plan *p, const char *name) {
    char whole[2 * KEY_SIZE];
    int n = snprintf(whole, sizeof whole, "%s.%s", p->stack, name);
    CHECK(n < (int)sizeof whole);
    return import_tensor(p, whole);
}

int64_t import_rows(const struct import_plan *p, const struct checkpoint_tensor *t) {
    return t->shape[0] * (p->checkpoint->ranked ? p->checkpoint->ranks : 1);
}

int64_t import_columns(const struct import_plan *p, const struct checkpoint_tensor *t) {
    return t->n_dims < 2 ? 1 : t->shape[1] * (p->checkpoint->ranked ? p->checkpoint->ranks : 1);
}

void import_lack(struct import_plan *p, const char *key, const char *advice) {
    if (settings_find(&p->config, key)) return;
    buffer_printf(&p->missing, "%s%s%s%s%s", p->missing.size ? ", " : "", key, advice ? " (" : "", advice ? advice : "",
                  advice ? ")" : "");
}

bool import_take_given(struct import_plan *p, const char *key) {
    const struct setting *given = settings_find(&p->given, key);
    if (given == NULL || given->kind == SETTING_NONE) return false;
    settings_copy(&p->config, key, given);
    say(p, key, "--config", NULL);
    return true;
}

/* The first of "a|b" that the checkpoint's settings have; *name is which. */
static const struct setting *find_argument(const struct import_plan *p, const char *names, char name[KEY_SIZE]) {
    while (*names) {
        size_t n = strcspn(names, "|");
        CHECK(n < KEY_SIZE);
        memcpy(name, names, n);
        name[n] = '\0';
        const struct setting *found = settings_find(&p->checkpoint->settings, name);
        if (found && found->kind != SETTING_NONE) return found;
        names += n + (names[n] == '|');
    }
    return NULL;
}

void import_put_int(struct import_plan *p, const char *key, int64_t value, const char *origin) {
    settings_put_int(&p->config, key, value);
    say(p, key, origin, NULL);
}

void import_put_bool(struct import_plan *p, const char *key, bool value, const char *origin) {
    settings_put_bool(&p->config, key, value);
    say(p, key, origin, NULL);
}

void import_put_text(struct import_plan *p, const char *key, const char *value, const char *origin) {
    settings_put_text(&p->config, key, (struct text_span){value, strlen(value)});
    say(p, key, origin, NULL);
}

bool import_take_int(struct import_plan *p, const char *key, const char *names, int64_t *out) {
    char name[KEY_SIZE];
    if (import_take_given(p, key)) return settings_int(&p->config, key, out);
    const struct setting *found = find_argument(p, names, name);
    if (found == NULL || found->kind != SETTING_INT) return false;
    *out = found->number;
    settings_put_int(&p->config, key, *out);
    say(p, key, "argument", name);
    return true;
}

void import_take_real(struct import_plan *p, const char *key, const char *names, double fallback) {
    char name[KEY_SIZE];
    if (import_take_given(p, key)) return;
    const struct setting *found = find_argument(p, names, name);
    bool number = found && (found->kind == SETTING_INT || found->kind == SETTING_REAL);
    settings_put_real(&p->config, key, number ? found->real : fallback);
    say(p, key, number ? "argument" : "default", number ? name : NULL);
}

void import_take_bool(struct import_plan *p, const char *key, const char *names) {
    char name[KEY_SIZE];
    if (import_take_given(p, key)) return;
    const struct setting *found = find_argument(p, names, name);
    bool said = found && found->kind == SETTING_BOOL;
    settings_put_bool(&p->config, key, said && found->number != 0);
    say(p, key, said ? "argument" : "default", said ? name : NULL);
}

bool import_take_text(struct import_plan *p, const char *key, const char *names) {
    char name[KEY_SIZE];
    if (import_take_given(p, key)) return true;
    const struct setting *found = find_argument(p, names, name);
    if (found == NULL || found->kind != SETTING_TEXT) return false;
    settings_put_text(&p->config, key, (struct text_span){found->text, strlen(found->text)});
    say(p, key, "argument", name);
    return true;
}

enum status import_disagree(const struct import_plan *p, const char *what, int64_t tensors, int64_t said,
                            struct error *e) {
    return error_set(e, STATUS_CORRUPT, "%s: %s is %lld by the tensors and %lld by the arguments",
                     p->checkpoint->folder, what, (long long)tensors, (long long)said);
}

static bool is_read(const char *name) {
    static const char *const names[] = {"norm_epsilon", "layernorm_epsilon",    "rotary_percent",
                                        "rotary_base",  "retro_attention_gate", "rotary_seq_len_interpolation_factor"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* Numbers that are none are no settings: a default in their place would be another model. */
static enum status check_numbers(const struct import_plan *p, struct error *e) {
    const struct settings *s = &p->checkpoint->settings;
    for (int i = 0; i < s->n; i++)
        if (s->list[i].kind == SETTING_REAL && !isfinite((float)s->list[i].real) && is_read(s->list[i].name))
            return error_set(e, STATUS_CORRUPT, "%s: the argument %s is %g, which is no number of a model's",
                             p->checkpoint->folder, s->list[i].name, s->list[i].real);
    return STATUS_OK;
}

/* Settings that change the network into one that no family computes. */
static enum status check_supported(const struct import_plan *p, struct error *e) {
    static const char *const flags[] = {"apply_residual_connection_post_layernorm",
                                        "apply_residual_connection_post_norm",
                                        "qk_layernorm",
                                        "multi_latent_attention",
                                        "use_rope_scaling",
                                        "qk_l2_norm",
                                        "apply_embedding_scaling",
                                        "parallel_attn"};
    static const char *const numbers[] = {"num_experts", "rotary_seq_len_interpolation_factor"};
    const struct settings *s = &p->checkpoint->settings;
    const char *found = NULL;
    double value;
    for (size_t i = 0; i < ARRAY_COUNT(flags); i++)
        if (settings_true(s, flags[i])) found = flags[i];
    for (size_t i = 0; i < ARRAY_COUNT(numbers); i++)
        if (settings_real(s, numbers[i], &value) && value != 1) found = numbers[i];
    const char *block = settings_text(s, "transformer_block_type");
    if (block && strcmp(block, "pre_ln") != 0) found = "transformer_block_type";
    if (found == NULL) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED, "%s was trained with %s, which no family here computes",
                     p->checkpoint->folder, found);
}

/* Sizes, of which most can be read from the tensors. */
static enum status configure_sizes(struct import_plan *p, struct error *e) {
    const struct checkpoint_tensor *word = import_tensor(p, "embedding.word_embeddings.weight");
    const struct checkpoint_tensor *fc1 = import_stack_tensor(p, "layers.0.mlp.linear_fc1.weight");
    const struct checkpoint_tensor *fc2 = import_stack_tensor(p, "layers.0.mlp.linear_fc2.weight");
    if (word == NULL || word->n_dims != 2 || fc1 == NULL || fc2 == NULL || fc2->n_dims != 2)
        return error_set(e, STATUS_CORRUPT, "%s lacks the word table or the MLP of layer 0 (%s%s)",
                         p->checkpoint->folder, word ? p->stack : "",
                         word ? ".layers.0.mlp.linear_fc1.weight" : "embedding.word_embeddings.weight");
    int64_t said;
    p->hidden = word->shape[1];
    p->vocab = import_rows(p, word);
    p->ffn = import_columns(p, fc2);
    p->gated = import_rows(p, fc1) == 2 * p->ffn;
    import_put_int(p, "hidden_size", p->hidden, "tensors");
    import_put_int(p, "ffn_hidden_size", p->ffn, "tensors");
    import_put_int(p, "padded_vocab_size", p->vocab, "tensors");
    if (settings_int(&p->checkpoint->settings, "hidden_size", &said) && said != p->hidden)
        return import_disagree(p, "hidden_size", p->hidden, said, e);
    if (settings_int(&p->checkpoint->settings, "ffn_hidden_size", &said) && said != p->ffn)
        return import_disagree(p, "ffn_hidden_size", p->ffn, said, e);

    bool known = import_take_int(p, "num_attention_heads", "num_attention_heads", &p->heads);
    if (!known) {
        import_lack(p, "num_attention_heads", NULL);
        p->heads = 1;
    }
    if (p->heads < 1 || p->heads > p->hidden)
        return error_set(e, STATUS_INVALID, "%lld attention heads of %lld columns", (long long)p->heads,
                         (long long)p->hidden);
    if (!import_take_int(p, "kv_channels", "kv_channels", &p->channels)) {
        p->channels = p->hidden / p->heads;
        import_put_int(p, "kv_channels", p->channels, "hidden_size / num_attention_heads");
    }
    p->groups = p->heads;
    if (settings_true(&p->checkpoint->settings, "group_query_attention") ||
        settings_find(&p->given, "num_query_groups"))
        import_take_int(p, "num_query_groups", "num_query_groups", &p->groups);
    else
        import_put_int(p, "num_query_groups", p->groups, "num_attention_heads");
    bool possible = p->channels > 0 && p->channels <= 1 << 16 && p->groups > 0 && (p->groups <= p->heads || !known);
    return possible ? STATUS_OK
                    : error_set(e, STATUS_INVALID, "kv_channels %lld and num_query_groups %lld cannot be",
                                (long long)p->channels, (long long)p->groups);
}

/* The activation's name where the checkpoint tells it, by Megatron's own order; NULL: it does not. */
static const char *find_activation(const struct import_plan *p, const char **origin) {
    static const char *const flags[][2] = {{"swiglu", "swiglu"},
                                           {"squared_relu", "squared_relu"},
                                           {"quick_geglu", "quick_gelu"},
                                           {"openai_gelu", "gelu_tanh"},
                                           {"onnx_safe", "gelu_erf"}};
    const struct settings *s = &p->checkpoint->settings;
    for (size_t i = 0; i < ARRAY_COUNT(flags); i++) {
        *origin = flags[i][0];
        if (settings_true(s, flags[i][0])) return flags[i][1];
    }
    bool fused;
    *origin = "activation";
    if (settings_text(s, "gated_activation")) return settings_text(s, "gated_activation");
    *origin = "bias_gelu_fusion";
    if (!settings_bool(s, "bias_gelu_fusion", &fused)) return NULL;
    if (p->gated) return p->architecture == IMPORT_T5 ? "geglu_tanh" : NULL;
    return fused && p->bias ? "gelu_tanh" : "gelu_erf";
}

static enum status configure_mlp(struct import_plan *p, struct error *e) {
    p->bias = import_stack_tensor(p, "layers.0.self_attention.linear_proj.bias") != NULL;
    p->qkv_bias = p->bias || import_stack_tensor(p, "layers.0.self_attention.linear_qkv.bias") != NULL;
    const char *origin, *found = find_activation(p, &origin);
    import_put_bool(p, "add_bias_linear", p->bias, "tensors");
    if (p->qkv_bias && !p->bias) import_put_bool(p, "add_qkv_bias", true, "tensors");
    if (!import_take_given(p, "activation")) {
        if (found) {
            import_put_text(p, "activation", found, "argument");
            say(p, "activation", "argument", origin);
        } else {
            import_lack(p, "activation", p->gated ? "swiglu, geglu_tanh or geglu_erf" : "gelu_tanh or gelu_erf");
        }
    }
    const char *activation = settings_text(&p->config, "activation");
    bool halves = activation && (strcmp(activation, "swiglu") == 0 || strncmp(activation, "geglu", 5) == 0);
    if (activation && halves != p->gated)
        return error_set(e, STATUS_CORRUPT, "%s: the activation is %s, and the first matrix of the MLP has %s rows",
                         p->checkpoint->folder, activation, p->gated ? "twice ffn_hidden_size" : "ffn_hidden_size");
    return STATUS_OK;
}

static enum status configure_norms(struct import_plan *p, struct error *e) {
    const char *key = "normalization";
    p->norm_bias = import_stack_tensor(p, "layers.0.self_attention.linear_qkv.layer_norm_bias") != NULL;
    p->final_norm = import_stack_tensor(p, "final_layernorm.weight") != NULL;
    if (!import_take_text(p, key, key)) import_put_text(p, key, p->norm_bias ? "LayerNorm" : "RMSNorm", "tensors");
    bool layer = strcmp(settings_text(&p->config, key), "LayerNorm") == 0;
    if (layer != p->norm_bias)
        return error_set(e, STATUS_CORRUPT, "%s: the norms are %s, and they have %s biases", p->checkpoint->folder,
                         settings_text(&p->config, key), p->norm_bias ? "" : "no");
    import_take_real(p, "layernorm_epsilon", "norm_epsilon|layernorm_epsilon", 1e-5);
    import_take_bool(p, "layernorm_zero_centered_gamma", "apply_layernorm_1p|layernorm_zero_centered_gamma");
    return STATUS_OK;
}

static void configure_output(struct import_plan *p) {
    static const char *const dtypes[] = {
        [STORED_F32] = "float32", [STORED_F16] = "float16", [STORED_BF16] = "bfloat16"};
    const struct checkpoint_tensor *word = import_tensor(p, "embedding.word_embeddings.weight");
    const char *key = "tie_word_embeddings";
    bool untied;
    bool apart = import_tensor(p, "output_layer.weight") || import_tensor(p, "lm_head.output_layer.weight");
    p->tied = !apart;
    if (import_take_given(p, key))
        settings_bool(&p->config, key, &p->tied);
    else if (settings_bool(&p->checkpoint->settings, "untie_embeddings_and_output_weights", &untied)) {
        p->tied = !untied;
        import_put_bool(p, key, p->tied, "argument untie_embeddings_and_output_weights");
    } else {
        /* A last stage's copy of the word table looks like a matrix of its own: only legacy files lack the argument. */
        if (p->legacy && p->checkpoint->stages > 1) p->tied = true;
        import_put_bool(p, key, p->tied, "tensors");
    }
    import_put_text(p, "torch_dtype", dtypes[word->dtype], "tensors");
}

static enum status read_json(struct settings *s, const char *path, struct error *e) {
    struct json *document;
    if (json_parse_file(&document, path, e)) return e->status;
    settings_put_json(s, document);
    json_close(document);
    return STATUS_OK;
}

/* Reads the files --config and --retro-args. The second may be all arguments of another run: those of retrieval are
 * taken. */
enum status import_read_given(struct import_plan *p, const struct import_options *o, struct error *e) {
    struct settings retro = {0};
    if (o->config && read_json(&p->given, o->config, e)) return e->status;
    p->pictures = import_is_pictures(&p->given);
    if (!p->pictures && import_check_given(p, e)) return e->status;
    if (o->retro_args == NULL) return STATUS_OK;
    enum status status = read_json(&retro, o->retro_args, e);
    for (int i = 0; status == STATUS_OK && i < retro.n; i++)
        if (strncmp(retro.list[i].name, "retro_", 6) == 0 && retro.list[i].kind == SETTING_INT)
            settings_put_int(&p->checkpoint->settings, retro.list[i].name, retro.list[i].number);
    settings_free(&retro);
    return status;
}

enum status import_configure(struct import_plan *p, const struct import_options *o, struct error *e) {
    static const char *const architectures[] = {
        [IMPORT_RETRO] = "retro", [IMPORT_GPT] = "gpt", [IMPORT_T5] = "t5", [IMPORT_BERT] = "megatron_bert"};
    const char *named = architectures[p->trimmed ? IMPORT_GPT : p->architecture];
    if (check_numbers(p, e) || check_supported(p, e)) return e->status;

    import_put_text(p, "architecture", named, p->trimmed ? "--as gpt" : "tensors");
    if (p->architecture == IMPORT_T5) {
        import_put_int(p, "encoder_num_layers", p->encoder_layers, "tensors");
        import_put_int(p, "decoder_num_layers", p->layers, "tensors");
    } else {
        import_put_int(p, "num_layers", p->layers, "tensors");
    }
    if (configure_sizes(p, e) || import_configure_positions(p, e) || configure_mlp(p, e) || configure_norms(p, e))
        return e->status;
    configure_output(p);
    if (p->architecture == IMPORT_RETRO && import_configure_retro(p, o, e)) return e->status;
    if (p->architecture == IMPORT_T5 && import_configure_t5(p, e)) return e->status;
    if (p->architecture == IMPORT_BERT && import_configure_bert(p, e)) return e->status;
    if (import_read_tokenizer(p, o, e)) return e->status;
    return STATUS_OK;
}
