/* tools/import/containers/checkpoint_nemo.c: NeMo's configuration, in YAML, becomes arguments of Megatron's names. NeMo
 * 1 has them at the root or below cfg, NeMo 2 below config. */
#include <stdio.h>
#include <string.h>

#include "tools/import/containers/checkpoint.h"
#include "tools/import/formats/yaml.h"

enum { YAML_LIMIT = 1 << 20, KEY_SIZE = 128 };

static const char *const roots[] = {"", "cfg.", "config.", "model.", "encoder.", "cfg.encoder."};

/* A value of NeMo's, wherever it is. */
static const struct setting *find_nemo(const struct settings *yaml, const char *name) {
    for (size_t i = 0; i < ARRAY_COUNT(roots); i++) {
        char key[KEY_SIZE];
        snprintf(key, sizeof key, "%s%s", roots[i], name);
        const struct setting *found = settings_find(yaml, key);
        if (found) return found;
    }
    return NULL;
}

/* NeMo's name and Megatron's. */
static const char *const same[][2] = {
    {"num_layers", "num_layers"},
    {"hidden_size", "hidden_size"},
    {"ffn_hidden_size", "ffn_hidden_size"},
    {"num_attention_heads", "num_attention_heads"},
    {"kv_channels", "kv_channels"},
    {"num_query_groups", "num_query_groups"},
    {"encoder_seq_length", "seq_length"},
    {"seq_length", "seq_length"},
    {"max_position_embeddings", "max_position_embeddings"},
    {"layernorm_epsilon", "layernorm_epsilon"},
    {"position_embedding_type", "position_embedding_type"},
    {"rotary_percentage", "rotary_percent"},
    {"rotary_percent", "rotary_percent"},
    {"rotary_base", "rotary_base"},
    {"rotary_interleaved", "rotary_interleaved"},
    {"seq_len_interpolation_factor", "rotary_seq_len_interpolation_factor"},
    {"tensor_model_parallel_size", "tensor_model_parallel_size"},
    {"pipeline_model_parallel_size", "pipeline_model_parallel_size"},
    {"num_moe_experts", "num_experts"},
    {"qk_layernorm", "qk_layernorm"},
    {"layernorm_zero_centered_gamma", "layernorm_zero_centered_gamma"},
    {"retro.retro_num_neighbors", "retro_num_neighbors"},
    {"retro.retro_num_retrieved_chunks", "retro_num_retrieved_chunks"},
    {"data.retro_data.retro_chunk_length", "retro_chunk_length"},
};

static void copy_value(struct settings *to, const char *name, const struct setting *s) {
    switch (s->kind) {
        case SETTING_BOOL: settings_put_bool(to, name, s->number != 0); break;
        case SETTING_INT: settings_put_int(to, name, s->number); break;
        case SETTING_REAL: settings_put_real(to, name, s->real); break;
        case SETTING_TEXT: settings_put_text(to, name, (struct text_span){s->text, strlen(s->text)}); break;
        case SETTING_NONE: break;
    }
}

static bool text_is(const struct setting *s, const char *text) {
    return s && s->kind == SETTING_TEXT && strcmp(s->text, text) == 0;
}

static bool is_true(const struct setting *s) { return s && s->kind == SETTING_BOOL && s->number != 0; }

static void put_word(struct settings *to, const char *name, const char *word) {
    settings_put_text(to, name, (struct text_span){word, strlen(word)});
}

static void put_norm(struct settings *to, const struct settings *yaml) {
    const struct setting *norm = find_nemo(yaml, "normalization");
    bool centered = text_is(norm, "layernorm1p");
    if (centered || text_is(norm, "layernorm") || text_is(norm, "LayerNorm"))
        put_word(to, "normalization", "LayerNorm");
    if (text_is(norm, "rmsnorm") || text_is(norm, "RMSNorm")) put_word(to, "normalization", "RMSNorm");
    if (centered) settings_put_bool(to, "apply_layernorm_1p", true);
}

/* A fused GELU with biases is Megatron's own, by tanh; the others are torch's. */
static void put_activation(struct settings *to, const struct settings *yaml) {
    const struct setting *name = find_nemo(yaml, "activation");
    bool fused = is_true(find_nemo(yaml, "bias_activation_fusion")) || is_true(find_nemo(yaml, "bias_gelu_fusion"));
    if (text_is(name, "swiglu") || text_is(name, "fast-swiglu")) settings_put_bool(to, "swiglu", true);
    if (text_is(name, "squared-relu")) settings_put_bool(to, "squared_relu", true);
    if (text_is(name, "openai-gelu")) settings_put_bool(to, "openai_gelu", true);
    if (text_is(name, "gelu")) settings_put_bool(to, "bias_gelu_fusion", fused);
    if (text_is(name, "geglu") || text_is(name, "fast-geglu")) put_word(to, "gated_activation", "geglu_erf");
}

/* The file of the archive that is the tokenizer: "nemo:FILE"; NULL: none is named. */
static const char *find_tokenizer(const struct settings *yaml) {
    static const char *const names[] = {"tokenizer.model", "tokenizer.tokenizer_model", "tokenizer.vocab_file"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        const struct setting *found = find_nemo(yaml, names[i]);
        if (found && found->kind == SETTING_TEXT && strncmp(found->text, "nemo:", 5) == 0) return found->text + 5;
    }
    return NULL;
}

enum status checkpoint_read_nemo(struct checkpoint *c, const char *name, struct error *e) {
    struct text_span text;
    struct settings yaml = {0};
    if (checkpoint_read(c, name, &text, e)) return e->status;
    if (text.size > YAML_LIMIT)
        return error_set(e, STATUS_TOO_LARGE, "%s: %s has %zu bytes", c->folder, name, text.size);
    yaml_read(&yaml, text);
    for (size_t i = 0; i < ARRAY_COUNT(same); i++) {
        const struct setting *found = find_nemo(&yaml, same[i][0]);
        if (found && found->kind != SETTING_NONE) copy_value(&c->settings, same[i][1], found);
    }
    const struct setting *groups = find_nemo(&yaml, "num_query_groups"), *tied;
    if (groups && groups->kind == SETTING_INT) settings_put_bool(&c->settings, "group_query_attention", true);
    tied = find_nemo(&yaml, "share_embeddings_and_output_weights");
    if (tied && tied->kind == SETTING_BOOL)
        settings_put_bool(&c->settings, "untie_embeddings_and_output_weights", tied->number == 0);
    put_norm(&c->settings, &yaml);
    put_activation(&c->settings, &yaml);
    enum status status = checkpoint_take_tokenizer(c, find_tokenizer(&yaml), e);
    settings_free(&yaml);
    return status;
}
