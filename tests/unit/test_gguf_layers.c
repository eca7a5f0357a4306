/* tests/unit/test_gguf_layers.c: GGUF files whose layers are of several kinds: what their keys
 * become in config.json, and how heads with states lie. */
#include "retro/weights/gguf_folder.h"

#include <math.h>

#include "config/json/json_value.h"
#include "retro/weights/weights.h"
#include "tests/unit/gguf_build.h"

static void draft_key_u32(struct gguf_draft *d, const char *architecture, const char *key,
                          uint32_t value) {
    char name[100];
    snprintf(name, sizeof name, "%s.%s", architecture, key);
    draft_u32(d, name, value);
}

static void draft_numbers(struct gguf_draft *d, const char *key, const uint32_t *values, int n) {
    draft_list(d, key, GGUF_U32, (uint64_t)n);
    for (int i = 0; i < n; i++) draft_number(&d->keys, values[i], 4);
}

static void draft_sizes(struct gguf_draft *d, const char *architecture, uint32_t layers) {
    draft_word(d, "general.architecture", architecture);
    draft_key_u32(d, architecture, "block_count", layers);
    draft_key_u32(d, architecture, "embedding_length", 64);
    draft_key_u32(d, architecture, "attention.head_count", 4);
    draft_tensor(d, "token_embd.weight", 0, 10, 64, (size_t)10 * 64 * 4);
}

static void draft_states(struct gguf_draft *d, const char *architecture) {
    draft_key_u32(d, architecture, "ssm.time_step_rank", 6);
    draft_key_u32(d, architecture, "ssm.inner_size", 48);
}

/* The text of config.json, or NULL and the error. */
static struct json *try_config(struct gguf_draft *d, struct error *e) {
    struct gguf *gguf;
    struct buffer text = {0};
    struct json *config = NULL;
    draft_build(d);
    if (gguf_open_memory(&gguf, d->file.data, d->file.size, "m", e)) fail_msg("%s", e->text);
    if (gguf_write_config(gguf, &text, e) == STATUS_OK &&
        json_parse(&config, (struct text_span){text.data, text.size}, "config.json", e))
        fail_msg("%s", e->text);
    buffer_free(&text);
    gguf_close(gguf);
    draft_free(d);
    return config;
}

static struct json *read_config(struct gguf_draft *d) {
    struct error e = {0};
    struct json *config = try_config(d, &e);
    if (config == NULL) fail_msg("%s", e.text);
    return config;
}

static void expect_refusal(struct gguf_draft *d, const char *words) {
    struct error e = {0};
    struct json *config = try_config(d, &e);
    if (config) fail_msg("read, but \"%s\" was expected", words);
    if (strstr(e.text, words) == NULL) fail_msg("expected \"%s\" in: %s", words, e.text);
}

static void expect_kinds(const struct json *config, const char *key, const char *const *kinds,
                         size_t n) {
    const struct json *list = json_member(config, key);
    assert_int_equal(json_count(list), n);
    for (size_t i = 0; i < n; i++) assert_true(json_text_is(json_item(list, i), kinds[i]));
}

/* Layers without key/value heads keep states, or are an MLP alone where they have one. */
static void test_kinds(void **state) {
    (void)state;
    static const uint32_t heads[] = {0, 2, 0, 0}, mlps[] = {0, 0, 96, 0};
    struct gguf_draft d = {0};
    draft_sizes(&d, "lfm2", 4);
    draft_numbers(&d, "lfm2.attention.head_count_kv", heads, 4);
    draft_key_u32(&d, "lfm2", "shortconv.l_cache", 3);
    struct json *config = read_config(&d);
    expect_kinds(config, "layer_types",
                 (const char *const[]){"conv", "full_attention", "conv", "conv"}, 4);
    assert_int_equal(json_int(json_member(config, "num_key_value_heads")), 2);
    assert_int_equal(json_int(json_member(config, "conv_L_cache")), 3);
    assert_false(json_bool(json_member(config, "block_auto_adjust_ff_dim")));
    json_close(config);

    d = (struct gguf_draft){0};
    draft_sizes(&d, "nemotron_h_moe", 4);
    draft_states(&d, "nemotron_h_moe");
    draft_numbers(&d, "nemotron_h_moe.attention.head_count_kv", heads, 4);
    draft_numbers(&d, "nemotron_h_moe.feed_forward_length", mlps, 4);
    draft_key_u32(&d, "nemotron_h_moe", "moe_latent_size", 48);
    config = read_config(&d);
    assert_int_equal(json_int(json_member(config, "moe_latent_size")), 48);
    expect_kinds(config, "layers_block_type",
                 (const char *const[]){"mamba", "full_attention", "moe", "mamba"}, 4);
    assert_int_equal(json_int(json_member(config, "intermediate_size")), 96);
    json_close(config);
}

static void test_kind_refusals(void **state) {
    (void)state;
    static const uint32_t heads[] = {0, 2, 4};
    struct gguf_draft d = {0};
    draft_sizes(&d, "granitehybrid", 3);
    draft_numbers(&d, "granitehybrid.attention.head_count_kv", heads, 3);
    expect_refusal(&d, "\"granitehybrid.attention.head_count_kv\" is not one whole number");
    d = (struct gguf_draft){0};
    draft_sizes(&d, "lfm2", 3);
    draft_numbers(&d, "lfm2.attention.head_count_kv", heads, 2);
    expect_refusal(&d, "\"lfm2.attention.head_count_kv\" does not list every layer");
    d = (struct gguf_draft){0};
    draft_sizes(&d, "nemotron_h_moe", 1);
    draft_key_u32(&d, "nemotron_h_moe", "expert_chunks", 8);
    expect_refusal(&d, "\"nemotron_h_moe.expert_chunks\" is not known");
    d = (struct gguf_draft){0};
    draft_sizes(&d, "granitehybrid", 1);
    draft_key_u32(&d, "granitehybrid", "rope.scaling.finetuned", 1);
    expect_refusal(&d, "\"granitehybrid.rope.scaling.finetuned\" is no truth value");
    d = (struct gguf_draft){0};
    draft_sizes(&d, "lfm2moe", 1);
    draft_key_u32(&d, "lfm2moe", "expert_gating_func", 1);
    expect_refusal(&d, "\"lfm2moe.expert_gating_func\" has a value that is not supported");
}

/* Positions are turned unless the file says that they are not; counts of experts are written. */
static void test_granite(void **state) {
    (void)state;
    for (int turns = 0; turns < 3; turns++) {
        struct gguf_draft d = {0};
        draft_sizes(&d, "granitehybrid", 1);
        draft_states(&d, "granitehybrid");
        if (turns < 2) draft_key(&d, "granitehybrid.rope.scaling.finetuned", GGUF_BOOL);
        if (turns < 2) draft_number(&d.keys, (uint64_t)turns, 1);
        struct json *config = read_config(&d);
        assert_true(
            json_text_is(json_member(config, "position_embedding_type"), turns ? "rope" : "nope"));
        assert_int_equal(json_int(json_member(config, "num_local_experts")), 0);
        json_close(config);
    }
}

static void draft_latents(struct gguf_draft *d, bool absorbed) {
    draft_sizes(d, "deepseek2", 2);
    draft_key_u32(d, "deepseek2", "attention.kv_lora_rank", 32);
    draft_key_u32(d, "deepseek2", "rope.dimension_count", 8);
    draft_key_u32(d, "deepseek2", "attention.key_length", absorbed ? 40 : 24);
    draft_key_u32(d, "deepseek2", "attention.value_length", absorbed ? 32 : 12);
    if (!absorbed) return;
    draft_key_u32(d, "deepseek2", "attention.key_length_mla", 24);
    draft_key_u32(d, "deepseek2", "attention.value_length_mla", 12);
}

/* Heads have the sizes that are made of latents, whichever keys say it; what routes tells V2 from
 * V3. */
static void test_latents(void **state) {
    (void)state;
    for (int absorbed = 0; absorbed < 2; absorbed++)
        for (uint32_t groups = 0; groups < 3; groups++) {
            struct gguf_draft d = {0};
            draft_latents(&d, absorbed);
            if (groups) draft_key_u32(&d, "deepseek2", "expert_group_count", groups);
            struct json *config = read_config(&d);
            assert_true(json_text_is(json_member(config, "model_type"), "deepseek_v2"));
            assert_int_equal(json_int(json_member(config, "qk_nope_head_dim")), 16);
            assert_int_equal(json_int(json_member(config, "v_head_dim")), 12);
            assert_int_equal(json_int(json_member(config, "num_key_value_heads")), 4);
            assert_true(json_is_absent(json_member(config, "q_lora_rank")));
            assert_true(json_text_is(json_member(config, "topk_method"),
                                     groups > 1 ? "group_limited_greedy" : "greedy"));
            json_close(config);
        }
    struct gguf_draft d = {0};
    draft_latents(&d, true);
    draft_tensor(&d, "blk.1.exp_probs_b.bias", 0, 0, 8, 32);
    draft_word(&d, "deepseek2.rope.scaling.type", "yarn");
    draft_f32(&d, "deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f);
    struct json *config = read_config(&d);
    const struct json *scaling = json_member(config, "rope_scaling");
    assert_true(json_text_is(json_member(config, "model_type"), "deepseek_v3"));
    assert_true(json_is_absent(json_member(config, "topk_method")));
    assert_true(fabs(json_double(json_member(scaling, "mscale_all_dim")) - 0.707) < 1e-6);
    assert_true(fabs(json_double(json_member(scaling, "mscale")) - 0.707) < 1e-6);
    json_close(config);
    d = (struct gguf_draft){0};
    draft_latents(&d, true);
    draft_key_u32(&d, "deepseek2", "expert_gating_func", 2);
    expect_refusal(&d, "\"deepseek2.expert_gating_func\" has a value that is not supported");
    d = (struct gguf_draft){0};
    draft_sizes(&d, "deepseek2", 2);
    expect_refusal(&d, "\"deepseek2.attention.key_length\" is absent");
    d = (struct gguf_draft){0};
    draft_sizes(&d, "deepseek2", 2);
    draft_key_u32(&d, "deepseek2", "attention.key_length", 40);
    draft_key_u32(&d, "deepseek2", "attention.key_length_mla", 24);
    expect_refusal(&d, "\"deepseek2.attention.key_length\" is not the size of a head that meets");
}

/* Sums and differences of sizes stay within 64 bits. */
static void test_latents_without_bound(void **state) {
    static const char *const keys[] = {
        "deepseek2.attention.kv_lora_rank", "deepseek2.rope.dimension_count",
        "deepseek2.attention.key_length", "deepseek2.attention.value_length_mla"};
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++)
        for (int negative = 0; negative < 2; negative++) {
            struct gguf_draft d = {0};
            char words[80];
            draft_sizes(&d, "deepseek2", 2);
            draft_key(&d, keys[i], GGUF_I64);
            draft_number(&d.keys, negative ? (uint64_t)INT64_MIN : INT64_MAX, 8);
            for (size_t j = 0; j < ARRAY_COUNT(keys); j++)
                if (j != i) draft_u32(&d, keys[j], 8);
            snprintf(words, sizeof words, "\"%s\" is no size", keys[i]);
            expect_refusal(&d, words);
        }
}

/* A key or its absence tells architectures of one name apart. */
static void test_told_by_key(void **state) {
    (void)state;
    struct gguf_draft d = {0};
    draft_sizes(&d, "olmo2", 2);
    struct json *config = read_config(&d);
    assert_true(json_text_is(json_member(config, "model_type"), "olmo2"));
    json_close(config);
    d = (struct gguf_draft){0};
    draft_sizes(&d, "olmo2", 2);
    draft_key_u32(&d, "olmo2", "attention.sliding_window", 8);
    config = read_config(&d);
    assert_true(json_text_is(json_member(config, "model_type"), "olmo3"));
    assert_int_equal(json_int(json_member(config, "sliding_window_pattern")), 4);
    json_close(config);
    d = (struct gguf_draft){0};
    draft_sizes(&d, "mistral3", 2);
    draft_word(&d, "mistral3.rope.scaling.type", "yarn");
    draft_f32(&d, "mistral3.rope.scaling.yarn_log_multiplier", 0.5f);
    draft_f32(&d, "mistral3.attention.temperature_scale", 0.25f);
    config = read_config(&d);
    const struct json *scaling = json_member(config, "rope_scaling");
    assert_true(json_text_is(json_member(config, "model_type"), "ministral3"));
    assert_true(json_double(json_member(scaling, "llama_4_scaling_beta")) == 0.25);
    assert_true(json_double(json_member(scaling, "mscale_all_dim")) == 0.5);
    assert_true(json_double(json_member(scaling, "mscale")) == 1);
    json_close(config);
    d = (struct gguf_draft){0};
    draft_sizes(&d, "mistral3", 2);
    config = read_config(&d);
    assert_true(json_text_is(json_member(config, "model_type"), "llama"));
    json_close(config);
}

static struct weights *open_written(struct gguf_draft *d) {
    char path[FOLDER_PATH_SIZE];
    struct weights *weights;
    struct error e = {0};
    draft_build(d);
    folder_write(test_folder, "model.gguf", d->file.data, d->file.size);
    draft_free(d);
    folder_path(path, test_folder, "model.gguf");
    if (weights_open(&weights, path, &e)) fail_msg("%s", e.text);
    return weights;
}

/* Layers that foretell tokens are counted among the file's, and are none of the model's. */
static void test_further_layers(void **state) {
    (void)state;
    static const uint8_t states[] = {1, 0, 0};
    struct gguf_draft d = {0};
    draft_sizes(&d, "qwen35", 3);
    draft_states(&d, "qwen35");
    draft_key_u32(&d, "qwen35", "nextn_predict_layers", 1);
    draft_list(&d, "qwen35.attention.recurrent_layers", GGUF_BOOL, 3);
    for (int i = 0; i < 3; i++) draft_number(&d.keys, states[i], 1);
    draft_tensor(&d, "blk.1.attn_norm.weight", 0, 0, 64, 256);
    draft_tensor(&d, "blk.2.attn_norm.weight", 0, 0, 64, 256);
    draft_tensor(&d, "blk.2.nextn.eh_proj.weight", 0, 2, 4, 32);
    struct gguf_draft again = {0};
    buffer_append(&again.keys, d.keys.data, d.keys.size);
    buffer_append(&again.tensors, d.tensors.data, d.tensors.size);
    buffer_append(&again.data, d.data.data, d.data.size);
    again.n_keys = d.n_keys;
    again.n_tensors = d.n_tensors;
    struct json *config = read_config(&d);
    assert_int_equal(json_int(json_member(config, "num_hidden_layers")), 2);
    expect_kinds(config, "layer_types", (const char *const[]){"linear_attention", "full_attention"},
                 2);
    json_close(config);
    struct weights *weights = open_written(&again);
    assert_int_equal(weights_count(weights), 2);
    assert_non_null(weights_find(weights, "model.layers.1.input_layernorm.weight"));
    weights_close(weights);
}

/* Two key heads with three value heads each, of 8 rows; queries and keys before them. */
static void draft_heads(struct gguf_draft *d) {
    draft_sizes(d, "qwen35", 1);
    draft_key_u32(d, "qwen35", "ssm.group_count", 2);
    draft_states(d, "qwen35");
    draft_key_u32(d, "qwen35", "ssm.state_size", 4);
    draft_tensor(d, "blk.0.attn_qkv.weight", 0, 64, 2, (size_t)64 * 8);
    draft_tensor(d, "blk.0.attn_gate.weight", 0, 48, 2, (size_t)48 * 8);
    draft_tensor(d, "blk.0.ssm_beta.weight", 0, 6, 2, (size_t)6 * 8);
    draft_tensor(d, "blk.0.ssm_out.weight", 0, 2, 48, (size_t)2 * 48 * 4);
    draft_tensor(d, "blk.0.ssm_a", 0, 0, 6, 24);
    draft_tensor(d, "blk.0.ssm_norm.weight", 0, 0, 8, 32);
}

/* The family has the three heads of a key head beside each other, the file every second one. */
static void test_heads(void **state) {
    (void)state;
    static const int heads[] = {0, 2, 4, 1, 3, 5};
    struct gguf_draft d = {0};
    draft_heads(&d);
    struct weights *weights = open_written(&d);
    const char *root = "model.layers.0.linear_attn.";
    char name[100];
    snprintf(name, sizeof name, "%sin_proj_qkv.weight", root);
    const struct stored_tensor *qkv = weights_find(weights, name);
    snprintf(name, sizeof name, "%sin_proj_b.weight", root);
    const struct stored_tensor *gates = weights_find(weights, name);
    snprintf(name, sizeof name, "%sout_proj.weight", root);
    const struct stored_tensor *out = weights_find(weights, name);
    snprintf(name, sizeof name, "%sA_log", root);
    const struct stored_tensor *rate = weights_find(weights, name);
    assert_non_null(qkv);
    assert_non_null(gates);
    assert_non_null(out);
    assert_non_null(rate);
    for (int i = 0; i < 16; i++) assert_int_equal(stored_row(qkv, i), i);
    for (int i = 0; i < 48; i++) {
        int at = heads[i / 8] * 8 + i % 8;
        assert_int_equal(stored_row(qkv, 16 + i), 16 + at);
        assert_int_equal(head_order_find(stored_columns(out, 48), i), at);
    }
    assert_int_equal(stored_row(out, 1), 1);
    assert_null(stored_columns(qkv, 2));
    for (int i = 0; i < 6; i++) {
        assert_int_equal(stored_row(gates, i), heads[i]);
        assert_int_equal(head_order_find(stored_columns(rate, 6), i), heads[i]);
    }
    snprintf(name, sizeof name, "%snorm.weight", root);
    assert_true(stored_in_order(weights_find(weights, name)));
    weights_close(weights);
}

/* Vectors that lie as matrices, biases that share a name with weights, names without an ending. */
static void test_tensors_around_experts(void **state) {
    (void)state;
    struct gguf_draft d = {0};
    draft_sizes(&d, "nemotron_h_moe", 1);
    draft_key_u32(&d, "nemotron_h_moe", "moe_latent_size", 32);
    draft_states(&d, "nemotron_h_moe");
    draft_tensor(&d, "blk.0.ffn_latent_down.weight", 0, 32, 64, (size_t)32 * 256);
    draft_tensor(&d, "blk.0.ffn_latent_up.weight", 0, 64, 32, (size_t)64 * 128);
    struct weights *weights = open_written(&d);
    assert_non_null(weights_find(weights, "backbone.layers.0.mixer.fc1_latent_proj.weight"));
    assert_non_null(weights_find(weights, "backbone.layers.0.mixer.fc2_latent_proj.weight"));
    weights_close(weights);
}

static void test_space_tensors(void **state) {
    (void)state;
    struct gguf_draft d = {0};
    draft_sizes(&d, "granitehybrid", 1);
    draft_tensor(&d, "blk.0.ssm_norm.weight", 0, 2, 32, 256);
    draft_tensor(&d, "blk.0.ssm_conv1d.weight", 0, 96, 4, (size_t)96 * 16);
    draft_tensor(&d, "blk.0.ssm_conv1d.bias", 0, 0, 96, 384);
    draft_tensor(&d, "blk.0.ssm_d", 0, 8, 1, 32);
    struct weights *weights = open_written(&d);
    const struct stored_tensor *norm = weights_find(weights, "model.layers.0.mamba.norm.weight");
    assert_int_equal(norm->n_dims, 1);
    assert_int_equal(norm->shape[0], 64);
    assert_int_equal(weights_find(weights, "model.layers.0.mamba.conv1d.weight")->n_dims, 2);
    assert_int_equal(weights_find(weights, "model.layers.0.mamba.conv1d.bias")->n_dims, 1);
    assert_non_null(weights_find(weights, "model.layers.0.mamba.D"));
    weights_close(weights);
}

/* Keys and values of each head are matrices of their own in files of today. */
static void test_latent_tensors(void **state) {
    (void)state;
    struct gguf_draft d = {0};
    draft_latents(&d, true);
    draft_experts(&d, "blk.0.attn_k_b.weight", 4, 32, 16);
    draft_experts(&d, "blk.0.attn_v_b.weight", 4, 12, 32);
    draft_tensor(&d, "blk.1.attn_kv_b.weight", 0, 112, 32, (size_t)112 * 32 * 4);
    struct weights *weights = open_written(&d);
    const struct stored_tensor *keys =
        weights_find(weights, "model.layers.0.self_attn.k_b_proj.3.weight");
    assert_non_null(keys);
    assert_int_equal(keys->shape[0], 32);
    assert_int_equal(keys->shape[1], 16);
    assert_non_null(weights_find(weights, "model.layers.0.self_attn.v_b_proj.0.weight"));
    assert_non_null(weights_find(weights, "model.layers.1.self_attn.kv_b_proj.weight"));
    weights_close(weights);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_set_up, folder_tear_down)

/* Gemma 4 of four layers: the last two read the keys of the first two. */
struct wide_draft {
    const char *pattern; /* w: a layer with a window */
    uint32_t heads[4], ffn[4];
    uint32_t narrow, values, rotated; /* of heads with a window */
};
static const struct wide_draft sound = {"w-w-", {4, 2, 4, 2}, {16, 16, 32, 32}, 16, 16, 16};

static void draft_factors(struct gguf_draft *d, const float *factors, int n) {
    d->n_tensors++;
    draft_text(&d->tensors, "rope_freqs.weight");
    draft_number(&d->tensors, 1, 4);
    draft_number(&d->tensors, (uint64_t)n, 8);
    draft_data(d, 0, (size_t)n * sizeof *factors);
    size_t padded = ((size_t)n * sizeof *factors + 31) / 32 * 32;
    memcpy(d->data.data + d->data.size - padded, factors, (size_t)n * sizeof *factors);
}

static void draft_wide(struct gguf_draft *d, const struct wide_draft *wide) {
    uint64_t n = strlen(wide->pattern);
    draft_sizes(d, "gemma4", 4);
    draft_list(d, "gemma4.attention.sliding_window_pattern", GGUF_BOOL, n);
    for (uint64_t i = 0; i < n; i++) draft_number(&d->keys, wide->pattern[i] == 'w', 1);
    draft_numbers(d, "gemma4.attention.head_count_kv", wide->heads, 4);
    draft_numbers(d, "gemma4.feed_forward_length", wide->ffn, 4);
    draft_u32(d, "gemma4.attention.shared_kv_layers", 2);
    draft_u32(d, "gemma4.attention.key_length", 32);
    draft_u32(d, "gemma4.attention.key_length_swa", wide->narrow);
    draft_u32(d, "gemma4.attention.value_length_swa", wide->values);
    draft_u32(d, "gemma4.rope.dimension_count_swa", wide->rotated);
    draft_f32(d, "gemma4.rope.freq_base", 1e6f);
}

static void test_wide(void **state) {
    (void)state;
    for (int keys = 0; keys < 2; keys++) {
        float factors[16] = {1, 1, 1};
        struct gguf_draft d = {0};
        for (int i = 3; i < 16; i++) factors[i] = 1e30f;
        draft_wide(&d, &sound);
        if (!keys) draft_tensor(&d, "blk.1.attn_v.weight", 0, 64, 64, (size_t)64 * 64 * 4);
        if (keys) draft_tensor(&d, "blk.1.ffn_gate_inp.weight", 0, 4, 64, (size_t)4 * 64 * 4);
        draft_factors(&d, factors, 16);
        struct json *config = read_config(&d);
        const struct json *wide = json_member(json_member(config, "per_layer_config"), "3"),
                          *full =
                              json_member(json_member(config, "rope_parameters"), "full_attention");
        static const char *const kinds[] = {"sliding_attention", "full_attention",
                                            "sliding_attention", "full_attention"};
        expect_kinds(config, "layer_types", kinds, 4);
        assert_int_equal(json_count(json_member(config, "per_layer_config")), 2);
        assert_int_equal(json_int(json_member(wide, "head_dim")), 32);
        assert_int_equal(json_int(json_member(wide, "num_key_value_heads")), 2);
        assert_int_equal(json_int(json_member(config, "head_dim")), 16);
        assert_int_equal(json_int(json_member(config, "num_key_value_heads")), 4);
        assert_int_equal(json_int(json_member(config, "intermediate_size")), 16);
        assert_true(json_bool(json_member(config, "use_double_wide_mlp")));
        assert_int_equal(json_bool(json_member(config, "attention_k_eq_v")), keys);
        assert_int_equal(json_bool(json_member(config, "enable_moe_block")), keys);
        assert_true(json_text_is(json_member(full, "rope_type"), "proportional"));
        assert_int_equal((int)(json_double(json_member(full, "partial_rotary_factor")) * 32) / 2,
                         3);
        json_close(config);
    }
}

static void test_wide_refusals(void **state) {
    (void)state;
    static const struct {
        struct wide_draft wide;
        const char *words;
    } refused[] = {
        {{"w-w", {4, 2, 4, 2}, {16, 16, 32, 32}, 16, 16, 16}, "does not list every layer"},
        {{"w--w", {4, 2, 2, 4}, {16, 16, 32, 32}, 16, 16, 16}, "of which the last has no window"},
        {{"w-w-", {4, 2, 3, 2}, {16, 16, 32, 32}, 16, 16, 16}, "of a type as many heads"},
        {{"w-w-", {4, 0, 4, 0}, {16, 16, 32, 32}, 16, 16, 16}, "of a type as many heads"},
        {{"w-w-", {4, 2, 4, 2}, {16, 32, 32, 32}, 16, 16, 16}, "MLPs of one width"},
        {{"w-w-", {4, 2, 4, 2}, {16, 16, 48, 48}, 16, 16, 16}, "nor twice that"},
        {{"w-w-", {4, 2, 4, 2}, {1u << 31, 1u << 31, 1, 1}, 16, 16, 16}, "MLPs of one width"},
        {{"w-w-", {4, 2, 4, 2}, {16, 16, 32, 32}, 16, 8, 16},
         "\"gemma4.attention.value_length_swa\""},
        {{"w-w-", {4, 2, 4, 2}, {16, 16, 32, 32}, 16, 16, 8},
         "\"gemma4.rope.dimension_count_swa\""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(refused); i++) {
        struct gguf_draft d = {0};
        draft_wide(&d, &refused[i].wide);
        expect_refusal(&d, refused[i].words);
    }
    const float factors[16] = {1, 2};
    struct gguf_draft d = {0};
    draft_wide(&d, &sound);
    draft_factors(&d, factors, 16);
    expect_refusal(&d, "rope_freqs.weight is not 1 for the first pairs");
    d = (struct gguf_draft){0};
    draft_wide(&d, &sound);
    draft_factors(&d, factors, 8);
    expect_refusal(&d, "rope_freqs.weight is not 1 for the first pairs");
    d = (struct gguf_draft){0};
    draft_wide(&d, &sound);
    draft_word(&d, "gemma4.rope.scaling.type", "yarn");
    expect_refusal(&d, "\"gemma4.rope.scaling.type\" has a value that is not supported");
    d = (struct gguf_draft){0};
    draft_sizes(&d, "gemma4", 0);
    expect_refusal(&d, "\"gemma4.block_count\" is no number of layers");
}

/* Constants of llama.cpp: heads of the model with 128 experts are not normed, and chunks have 8192
 * tokens. */
static void test_llama4(void **state) {
    (void)state;
    for (uint32_t experts = 16; experts <= 128; experts *= 8) {
        struct gguf_draft d = {0};
        draft_sizes(&d, "llama4", 2);
        draft_u32(&d, "llama4.expert_count", experts);
        draft_u32(&d, "llama4.feed_forward_length", 48);
        draft_u32(&d, "llama4.expert_feed_forward_length", 24);
        struct json *config = read_config(&d);
        assert_int_equal(json_bool(json_member(config, "use_qk_norm")), experts != 128);
        assert_int_equal(json_int(json_member(config, "num_local_experts")), experts);
        assert_int_equal(json_int(json_member(config, "intermediate_size")), 24);
        assert_int_equal(json_int(json_member(config, "intermediate_size_mlp")), 48);
        json_close(config);
    }
    struct gguf_draft d = {0};
    draft_sizes(&d, "llama4", 2);
    draft_u32(&d, "llama4.attention.sliding_window", 0);
    expect_refusal(&d, "\"llama4.attention.sliding_window\" has a value that is not supported");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_wide_refusals),
        cmocka_unit_test(test_llama4),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_kind_refusals),
        cmocka_unit_test(test_granite),
        cmocka_unit_test(test_latents),
        cmocka_unit_test(test_latents_without_bound),
        cmocka_unit_test(test_told_by_key),
        IN_FOLDER(test_further_layers),
        IN_FOLDER(test_heads),
        IN_FOLDER(test_tensors_around_experts),
        IN_FOLDER(test_space_tensors),
        IN_FOLDER(test_latent_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
