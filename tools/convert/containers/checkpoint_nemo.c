/* tools/convert/containers/checkpoint_nemo.c: NeMo's configuration, in YAML or pickled, becomes
 * arguments of Megatron's names. NeMo 1 has them at the root or below cfg, NeMo 2 below config. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/base/line.h"
#include "tools/convert/containers/checkpoint.h"
#include "tools/convert/formats/yaml.h"

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
    {"scale_positional_embedding", "use_rope_scaling"},
    {"apply_embedding_scaling", "apply_embedding_scaling"},
    {"transformer_block_type", "transformer_block_type"},
    {"layernorm_zero_centered_gamma", "layernorm_zero_centered_gamma"},
    {"retro.retro_num_neighbors", "retro_num_neighbors"},
    {"retro.retro_num_retrieved_chunks", "retro_num_retrieved_chunks"},
    {"data.retro_data.retro_chunk_length", "retro_chunk_length"},
};

static bool text_is(const struct setting *setting, const char *text) {
    return setting && setting->kind == SETTING_TEXT && strcmp(setting->text, text) == 0;
}

static bool is_true(const struct setting *setting) {
    return setting && setting->kind == SETTING_BOOL && setting->number != 0;
}

static void put_word(struct settings *to, const char *name, const char *word) {
    settings_put_text(to, name, (struct text_span){word, strlen(word)});
}

static void put_norm(struct settings *to, const struct settings *yaml) {
    const struct setting *norm = find_nemo(yaml, "normalization");
    bool centered = text_is(norm, "layernorm1p");
    if (centered || text_is(norm, "layernorm") || text_is(norm, "LayerNorm"))
        put_word(to, "normalization", "LayerNorm");
    if (text_is(norm, "rmsnorm") || text_is(norm, "RMSNorm"))
        put_word(to, "normalization", "RMSNorm");
    if (centered) settings_put_bool(to, "apply_layernorm_1p", true);
}

/* A fused GELU with biases is Megatron's own, by tanh; the others are torch's. */
static void put_activation(struct settings *to, const struct settings *yaml) {
    const struct setting *name = find_nemo(yaml, "activation");
    bool fused = is_true(find_nemo(yaml, "bias_activation_fusion")) ||
                 is_true(find_nemo(yaml, "bias_gelu_fusion"));
    if (text_is(name, "swiglu") || text_is(name, "fast-swiglu"))
        settings_put_bool(to, "swiglu", true);
    if (text_is(name, "squared-relu")) settings_put_bool(to, "squared_relu", true);
    if (text_is(name, "openai-gelu")) settings_put_bool(to, "openai_gelu", true);
    if (text_is(name, "gelu")) settings_put_bool(to, "bias_gelu_fusion", fused);
    if (text_is(name, "geglu") || text_is(name, "fast-geglu"))
        put_word(to, "gated_activation", "geglu_erf");
}

/* The file of the archive that is the tokenizer: "nemo:FILE"; NULL: none is named. */
static const char *find_tokenizer(const struct settings *yaml) {
    static const char *const names[] = {"tokenizer.model", "tokenizer.tokenizer_model",
                                        "tokenizer.vocab_file"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        const struct setting *found = find_nemo(yaml, names[i]);
        if (found && found->kind == SETTING_TEXT && strncmp(found->text, "nemo:", 5) == 0)
            return found->text + 5;
    }
    return NULL;
}

/* A value that stands for another ("${multiply:4, ${.hidden_size}}") says nothing by itself. */
static bool is_plain(const struct setting *setting) {
    return setting && setting->kind != SETTING_NONE &&
           !(setting->kind == SETTING_TEXT && strstr(setting->text, "${"));
}

static enum status take_values(struct checkpoint *checkpoint, const struct settings *nemo,
                               struct error *e) {
    for (size_t i = 0; i < ARRAY_COUNT(same); i++) {
        const struct setting *found = find_nemo(nemo, same[i][0]);
        if (is_plain(found)) settings_copy(&checkpoint->settings, same[i][1], found);
    }
    const struct setting *groups = find_nemo(nemo, "num_query_groups"), *tied;
    if (groups && groups->kind == SETTING_INT)
        settings_put_bool(&checkpoint->settings, "group_query_attention", true);
    tied = find_nemo(nemo, "share_embeddings_and_output_weights");
    if (tied && tied->kind == SETTING_BOOL)
        settings_put_bool(&checkpoint->settings, "untie_embeddings_and_output_weights",
                          tied->number == 0);
    put_norm(&checkpoint->settings, nemo);
    put_activation(&checkpoint->settings, nemo);
    return checkpoint->n_companions > 0
               ? STATUS_OK
               : checkpoint_take_tokenizer(checkpoint, find_tokenizer(nemo), e);
}

static enum status take_yaml(struct checkpoint *checkpoint, struct text_span text, const char *name,
                             struct error *e) {
    struct settings yaml = {0};
    if (text.size > YAML_LIMIT)
        return error_set(e, STATUS_TOO_LARGE, "%s: %s has %zu bytes, allowed are %d",
                         checkpoint->folder, name, text.size, YAML_LIMIT);
    enum status status = yaml_read(&yaml, text, name, e);
    if (status) error_prefix(e, "%s", checkpoint->folder);
    if (status == STATUS_OK) status = take_values(checkpoint, &yaml, e);
    settings_free(&yaml);
    return status;
}

enum status checkpoint_read_nemo(struct checkpoint *checkpoint, const char *name, struct error *e) {
    struct text_span text;
    return checkpoint_read(checkpoint, name, &text, e) ? e->status
                                                       : take_yaml(checkpoint, text, name, e);
}

enum status checkpoint_take_arguments(struct checkpoint *checkpoint,
                                      const struct pickle_value *root, struct error *e) {
    const struct pickle_value *args = pickle_member(root, "args"),
                              *hyper = pickle_member(root, "hyper_parameters");
    struct settings nemo = {0};
    settings_put_pickle(&checkpoint->settings, args);
    settings_put_pickle(&nemo, args ? NULL : hyper);
    enum status status = nemo.n > 0 ? take_values(checkpoint, &nemo, e) : STATUS_OK;
    settings_free(&nemo);
    return status;
}

enum status checkpoint_read_common(struct checkpoint *checkpoint, struct error *e) {
    struct text_span bytes;
    struct torch_file file;
    if (!checkpoint_has(checkpoint, "common.pt")) return STATUS_OK;
    if (checkpoint_read(checkpoint, "common.pt", &bytes, e) ||
        torch_file_open(&file, bytes, "common.pt", e))
        return e->status;
    enum status status = checkpoint_take_arguments(checkpoint, torch_file_root(&file), e);
    torch_file_close(&file);
    return status;
}

enum status checkpoint_read_above(struct checkpoint *checkpoint, struct error *e) {
    static const char *const places[] = {"..", "../.."};
    for (size_t i = 0; i < ARRAY_COUNT(places); i++) {
        struct buffer path = {0}, text = {0};
        buffer_printf(&path, "%s/%s/hparams.yaml", checkpoint->folder, places[i]);
        bool there = access(path.data, F_OK) == 0;
        enum status status = there ? file_read(path.data, YAML_LIMIT, &text, e) : STATUS_OK;
        if (there && status == STATUS_OK) {
            line_print(stderr, "retro-convert: %s is taken as the configuration", path.data);
            status =
                take_yaml(checkpoint, (struct text_span){text.data, text.size}, "hparams.yaml", e);
        }
        buffer_free(&path);
        buffer_free(&text);
        if (there || status) return status;
    }
    return STATUS_OK;
}
