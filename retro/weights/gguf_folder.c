/* retro/weights/gguf_folder.c: keys and tensors of GGUF's architectures in Hugging Face's words. See gguf_folder.h. */
#include "retro/weights/gguf_folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/json/json_writer.h"

enum key_kind {
    KEY_INT,     /* a number, or a list of one number for each layer, which must be equal */
    KEY_FLOAT,   /* a number */
    KEY_IGNORED, /* means nothing here and is harmless */
    KEY_NEUTRAL, /* not supported: must be `neutral`, where it changes nothing */
    KEY_HEAD     /* not supported: must be the size of a head */
};

/* "ARCHITECTURE.key" of the metadata. */
struct key_row {
    const char *key, *name; /* of config.json */
    enum key_kind kind;
    double neutral;
};

/* A key of config.json that the tensors tell: whether there is one of that name, or none. */
struct fact_row {
    const char *name, *tensor;
    bool absent;
};

enum tensor_order { ORDER_SAME, ORDER_TURNED, ORDER_PAIRED };

/* A tensor without its ".weight" or ".bias". */
struct name_row {
    const char *from, *to;
    enum tensor_order order;
};

struct rows_of_names {
    const struct name_row *rows;
    size_t n;
};

struct architecture {
    const char *name, *model_type;
    const struct key_row *keys;
    size_t n_keys;
    const struct fact_row *facts;
    size_t n_facts;
    const char *layers; /* the prefix of layer '#' */
    struct rows_of_names outer, layer;
};

#define ROWS(a) a, ARRAY_COUNT(a)

/* The keys of all architectures. */
static const struct key_row common_keys[] = {
    {"vocab_size", NULL, KEY_IGNORED, 0}, /* the word table tells */
    {"tensor_data_layout", NULL, KEY_IGNORED, 0},
    {"rope.scaling.finetuned", NULL, KEY_IGNORED, 0},
    {"attention.causal", NULL, KEY_NEUTRAL, 1},
    {"use_parallel_residual", NULL, KEY_NEUTRAL, 0},
    {"expert_count", NULL, KEY_NEUTRAL, 0},
    {"expert_used_count", NULL, KEY_NEUTRAL, 0},
    {"attention.sliding_window", NULL, KEY_NEUTRAL, 0},
    {"attention.clamp_kqv", NULL, KEY_NEUTRAL, 0},
    {"attention.max_alibi_bias", NULL, KEY_NEUTRAL, 0},
    {"attn_logit_softcapping", NULL, KEY_NEUTRAL, 0},
    {"final_logit_softcapping", NULL, KEY_NEUTRAL, 0},
    {"embedding_scale", NULL, KEY_NEUTRAL, 1},
    {"residual_scale", NULL, KEY_NEUTRAL, 1},
    {"logit_scale", NULL, KEY_NEUTRAL, 1},
};

#define DECODER_KEYS(epsilon, epsilon_name) \
    {"block_count", "num_hidden_layers", KEY_INT, 0}, {"context_length", "max_position_embeddings", KEY_INT, 0}, \
        {"embedding_length", "hidden_size", KEY_INT, 0}, {"feed_forward_length", "intermediate_size", KEY_INT, 0}, \
        {"attention.head_count", "num_attention_heads", KEY_INT, 0}, \
        {"attention.head_count_kv", "num_key_value_heads", KEY_INT, 0}, \
        {"attention.key_length", "head_dim", KEY_INT, 0}, {"attention.value_length", NULL, KEY_HEAD, 0}, \
        {epsilon, epsilon_name, KEY_FLOAT, 0}, {"rope.dimension_count", NULL, KEY_HEAD, 0}, { \
        "rope.freq_base", "rope_theta", KEY_FLOAT, 0 \
    }

static const struct key_row llama_keys[] = {DECODER_KEYS("attention.layer_norm_rms_epsilon", "rms_norm_eps")};
static const struct key_row starcoder2_keys[] = {DECODER_KEYS("attention.layer_norm_epsilon", "norm_epsilon")};
static const struct key_row granite_keys[] = {
    DECODER_KEYS("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    {"attention.scale", "attention_multiplier", KEY_FLOAT, 0},
    {"embedding_scale", "embedding_multiplier", KEY_FLOAT, 0},
    {"residual_scale", "residual_multiplier", KEY_FLOAT, 0},
    {"logit_scale", "logits_scaling", KEY_FLOAT, 0},
};
static const struct key_row gemma2_keys[] = {
    DECODER_KEYS("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    {"attention.sliding_window", "sliding_window", KEY_INT, 0},
    {"attn_logit_softcapping", "attn_logit_softcapping", KEY_FLOAT, 0},
    {"final_logit_softcapping", "final_logit_softcapping", KEY_FLOAT, 0},
};

static const struct key_row gpt2_keys[] = {
    {"block_count", "n_layer", KEY_INT, 0},
    {"context_length", "n_positions", KEY_INT, 0},
    {"embedding_length", "n_embd", KEY_INT, 0},
    {"feed_forward_length", "n_inner", KEY_INT, 0},
    {"attention.head_count", "n_head", KEY_INT, 0},
    {"attention.head_count_kv", NULL, KEY_IGNORED, 0}, /* the shape of attn_qkv is checked */
    {"attention.layer_norm_epsilon", "layer_norm_epsilon", KEY_FLOAT, 0},
};

#define TIED \
    { "tie_word_embeddings", "output.weight", .absent = true }

static const struct fact_row llama_facts[] = {
    TIED,
    {"attention_bias", "blk.0.attn_q.bias", false},
    {"mlp_bias", "blk.0.ffn_gate.bias", false},
};
static const struct fact_row plain_facts[] = {TIED};
/* llama.cpp's converter adds the 1 to the weights of norms. */
static const struct fact_row gemma_facts[] = {TIED, {"zero_centered_norms", "", false}};

static const struct name_row llama_outer[] = {
    {"token_embd", "model.embed_tokens", ORDER_SAME},
    {"output_norm", "model.norm", ORDER_SAME},
    {"output", "lm_head", ORDER_SAME},
};

/* llama.cpp's converter puts the queries and keys of Llama's kin in pairs; others stay as they are. */
#define ATTENTION(order_of_queries) \
    {"attn_q", "self_attn.q_proj", order_of_queries}, {"attn_k", "self_attn.k_proj", order_of_queries}, \
        {"attn_v", "self_attn.v_proj", ORDER_SAME}, { \
        "attn_output", "self_attn.o_proj", ORDER_SAME \
    }
#define HEAD_NORMS \
    {"attn_q_norm", "self_attn.q_norm", ORDER_SAME}, { "attn_k_norm", "self_attn.k_norm", ORDER_SAME }
#define NORMS_BEFORE \
    {"attn_norm", "input_layernorm", ORDER_SAME}, { "ffn_norm", "post_attention_layernorm", ORDER_SAME }
#define GATED_MLP \
    {"ffn_gate", "mlp.gate_proj", ORDER_SAME}, {"ffn_up", "mlp.up_proj", ORDER_SAME}, { \
        "ffn_down", "mlp.down_proj", ORDER_SAME \
    }

static const struct name_row llama_layer[] = {NORMS_BEFORE, ATTENTION(ORDER_PAIRED), GATED_MLP};
static const struct name_row qwen_layer[] = {NORMS_BEFORE, ATTENTION(ORDER_SAME), HEAD_NORMS, GATED_MLP};
static const struct name_row olmo2_layer[] = {
    ATTENTION(ORDER_SAME),
    HEAD_NORMS,
    {"post_attention_norm", "post_attention_layernorm", ORDER_SAME},
    GATED_MLP,
    {"post_ffw_norm", "post_feedforward_layernorm", ORDER_SAME},
};
static const struct name_row gemma2_layer[] = {
    {"attn_norm", "input_layernorm", ORDER_SAME},
    ATTENTION(ORDER_SAME),
    {"post_attention_norm", "post_attention_layernorm", ORDER_SAME},
    {"ffn_norm", "pre_feedforward_layernorm", ORDER_SAME},
    GATED_MLP,
    {"post_ffw_norm", "post_feedforward_layernorm", ORDER_SAME},
};
static const struct name_row starcoder2_layer[] = {
    NORMS_BEFORE,
    ATTENTION(ORDER_SAME),
    {"ffn_up", "mlp.c_fc", ORDER_SAME},
    {"ffn_down", "mlp.c_proj", ORDER_SAME},
};

static const struct name_row gpt2_outer[] = {
    {"token_embd", "transformer.wte", ORDER_SAME},
    {"position_embd", "transformer.wpe", ORDER_SAME},
    {"output_norm", "transformer.ln_f", ORDER_SAME},
    {"output", "lm_head", ORDER_SAME},
};
static const struct name_row gpt2_layer[] = {
    {"attn_norm", "ln_1", ORDER_SAME},
    {"attn_qkv", "attn.c_attn", ORDER_TURNED},
    {"attn_output", "attn.c_proj", ORDER_TURNED},
    {"ffn_norm", "ln_2", ORDER_SAME},
    {"ffn_up", "mlp.c_fc", ORDER_TURNED},
    {"ffn_down", "mlp.c_proj", ORDER_TURNED},
};

/* GGUF's and Hugging Face's name, keys, facts; names of tensors outside of layers and in them. */
#define LLAMA_KIN(name, type, keys, facts, layer) \
    { \
        name, type, ROWS(keys), ROWS(facts), "model.layers.#.", {ROWS(llama_outer)}, { ROWS(layer) } \
    }

static const struct architecture architectures[] = {
    LLAMA_KIN("llama", "llama", llama_keys, llama_facts, llama_layer),
    LLAMA_KIN("smollm3", "smollm3", llama_keys, llama_facts, llama_layer),
    LLAMA_KIN("granite", "granite", granite_keys, llama_facts, llama_layer),
    LLAMA_KIN("qwen2", "qwen2", llama_keys, plain_facts, qwen_layer),
    LLAMA_KIN("qwen3", "qwen3", llama_keys, llama_facts, qwen_layer),
    LLAMA_KIN("olmo2", "olmo2", llama_keys, llama_facts, olmo2_layer),
    LLAMA_KIN("gemma2", "gemma2", gemma2_keys, gemma_facts, gemma2_layer),
    LLAMA_KIN("starcoder2", "starcoder2", starcoder2_keys, plain_facts, starcoder2_layer),
    {"gpt2", "gpt2", ROWS(gpt2_keys), ROWS(plain_facts), "transformer.h.#.", {ROWS(gpt2_outer)}, {ROWS(gpt2_layer)}},
};

static bool span_is(struct text_span s, const char *text) {
    return s.size == strlen(text) && memcmp(s.text, text, s.size) == 0;
}

static enum status find_architecture(const struct gguf *g, const struct architecture **out, struct error *e) {
    struct text_span name;
    if (!gguf_text(gguf_value_find(g, "general.architecture"), &name))
        return error_set(e, STATUS_CORRUPT, "%s: general.architecture is missing or no text", gguf_name(g));
    for (size_t i = 0; i < ARRAY_COUNT(architectures); i++) {
        *out = &architectures[i];
        if (span_is(name, (*out)->name)) return STATUS_OK;
    }
    struct buffer known = {0};
    for (size_t i = 0; i < ARRAY_COUNT(architectures); i++)
        buffer_printf(&known, "%s%s", i ? ", " : "", architectures[i].name);
    error_set(e, STATUS_UNSUPPORTED, "%s: general.architecture \"%.*s\" is unknown; known: %s", gguf_name(g),
              (int)(name.size < 60 ? name.size : 60), name.text, known.data);
    buffer_free(&known);
    return e->status;
}

static const struct gguf_value *find_key(const struct gguf *g, const struct architecture *a, const char *key) {
    char name[100];
    snprintf(name, sizeof name, "%s.%s", a->name, key);
    return gguf_value_find(g, name);
}

static enum status fail_key(const struct gguf *g, const struct architecture *a, const char *key, const char *what,
                            struct error *e) {
    return error_set(e, STATUS_UNSUPPORTED, "%s: key \"%s.%s\" %s", gguf_name(g), a->name, key, what);
}

/* A whole number, or the one number of a list for all layers. */
static bool read_int(const struct gguf_value *v, int64_t *out) {
    if (v == NULL || v->type != GGUF_LIST) return gguf_int(v, out);
    struct gguf_items it = gguf_items_of(v);
    struct gguf_value item;
    bool all = gguf_next(&it, &item) && gguf_int(&item, out);
    while (all && gguf_next(&it, &item)) {
        int64_t next;
        all = gguf_int(&item, &next) && next == *out;
    }
    return all;
}

/* The size of a head. */
static int64_t head_size(const struct gguf *g, const struct architecture *a) {
    int64_t size = 0, hidden = 0, heads = 0;
    if (read_int(find_key(g, a, "attention.key_length"), &size)) return size;
    read_int(find_key(g, a, "embedding_length"), &hidden);
    read_int(find_key(g, a, "attention.head_count"), &heads);
    return heads > 0 ? hidden / heads : 0;
}

static enum status write_key(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                             const struct key_row *row, struct error *e) {
    const struct gguf_value *v = find_key(g, a, row->key);
    int64_t whole = 0;
    double number = 0;
    if (v == NULL) return STATUS_OK;
    switch (row->kind) {
        case KEY_IGNORED: return STATUS_OK;
        case KEY_INT:
            if (!read_int(v, &whole)) return fail_key(g, a, row->key, "is not one whole number", e);
            put_key_int(w, row->name, whole);
            return STATUS_OK;
        case KEY_FLOAT:
            if (!gguf_number(v, &number) || !isfinite((float)number))
                return fail_key(g, a, row->key, "is not a finite number", e);
            put_key_float(w, row->name, (float)number);
            return STATUS_OK;
        case KEY_NEUTRAL:
            if (gguf_number(v, &number) && number == row->neutral) return STATUS_OK;
            return fail_key(g, a, row->key, "has a value that is not supported", e);
        case KEY_HEAD:
            if (read_int(v, &whole) && whole == head_size(g, a)) return STATUS_OK;
            return fail_key(g, a, row->key, "is not the size of a head, which is not supported", e);
    }
    return STATUS_OK;
}

static enum status write_keys(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                              const struct key_row *rows, size_t n, struct error *e) {
    for (size_t i = 0; i < n; i++)
        if (write_key(w, g, a, &rows[i], e)) return e->status;
    return STATUS_OK;
}

/* Families know which kinds of scaling they have. */
static const struct key_row scaling_keys[] = {
    {"rope.scaling.factor", "factor", KEY_FLOAT, 0},
    {"rope.scaling.original_context_length", "original_max_position_embeddings", KEY_INT, 0},
    {"rope.scaling.yarn_beta_fast", "beta_fast", KEY_FLOAT, 0},
    {"rope.scaling.yarn_beta_slow", "beta_slow", KEY_FLOAT, 0},
    {"rope.scaling.attn_factor", NULL, KEY_NEUTRAL, 1},
    {"rope.scaling.yarn_attn_factor", NULL, KEY_NEUTRAL, 1},
    {"rope.scaling.yarn_ext_factor", NULL, KEY_NEUTRAL, 1},
};

static enum status write_scaling(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                                 struct error *e) {
    const struct gguf_value *v = find_key(g, a, "rope.scaling.type");
    struct text_span type;
    if (v == NULL) return STATUS_OK;
    if (!gguf_text(v, &type)) return fail_key(g, a, "rope.scaling.type", "is not a text", e);
    if (span_is(type, "none")) return STATUS_OK;
    put_key_object(w, "rope_scaling");
    put_key_string_n(w, "rope_type", type.text, type.size);
    enum status status = write_keys(w, g, a, ROWS(scaling_keys), e);
    put_object_end(w);
    return status;
}

/* All ids that end an answer: of the text, of a turn, of a message. */
static void write_ends(struct json_writer *w, const struct gguf *g) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t ids[ARRAY_COUNT(keys)];
    int n = 0;
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
        bool known = !gguf_int(gguf_value_find(g, keys[i]), &ids[n]);
        for (int k = 0; k < n; k++) known = known || ids[k] == ids[n];
        n += !known;
    }
    if (n == 0) return;
    put_key_array(w, "eos_token_id");
    for (int i = 0; i < n; i++) put_int(w, ids[i]);
    put_array_end(w);
}

/* Gemma 2's files do not tell: it is the size of a head, but in the model of 46 layers. */
static int64_t find_score_divisor(const struct gguf *g, const struct architecture *a) {
    int64_t layers = 0, hidden = 0, heads = 1;
    read_int(find_key(g, a, "block_count"), &layers);
    read_int(find_key(g, a, "embedding_length"), &hidden);
    read_int(find_key(g, a, "attention.head_count"), &heads);
    return layers == 46 && heads > 0 ? hidden / heads : head_size(g, a);
}

static const char rope_factors[] = "rope_freqs.weight";

static enum status write_factors(struct json_writer *w, const struct gguf *g, struct error *e) {
    const struct gguf_tensor *t = gguf_find(g, rope_factors);
    if (t == NULL) return STATUS_OK;
    if (t->n_dims != 1 || t->form->dtype != DTYPE_F32 || t->elements > 1 << 16)
        return error_set(e, STATUS_CORRUPT, "%s: tensor %s is no vector of F32", gguf_name(g), rope_factors);
    put_key_array(w, "rope_factors");
    for (size_t i = 0; i < t->elements; i++) put_float(w, ((const float *)(const void *)t->data)[i]);
    put_array_end(w);
    return STATUS_OK;
}

static bool names_key(const struct key_row *rows, size_t n, struct text_span key) {
    for (size_t i = 0; i < n; i++)
        if (span_is(key, rows[i].key)) return true;
    return false;
}

/* Every key of the architecture must be known. */
static enum status check_keys(const struct gguf *g, const struct architecture *a, struct error *e) {
    size_t prefix = strlen(a->name) + 1;
    for (int i = 0; i < gguf_value_count(g); i++) {
        struct text_span key = gguf_value_at(g, i)->key;
        if (key.size < prefix || memcmp(key.text, a->name, prefix - 1) != 0 || key.text[prefix - 1] != '.') continue;
        key = (struct text_span){key.text + prefix, key.size - prefix};
        if (names_key(a->keys, a->n_keys, key) || names_key(ROWS(common_keys), key) ||
            names_key(ROWS(scaling_keys), key) || span_is(key, "rope.scaling.type"))
            continue;
        return error_set(e, STATUS_UNSUPPORTED, "%s: key \"%s.%.*s\" is not known, and may change results",
                         gguf_name(g), a->name, (int)(key.size < 80 ? key.size : 80), key.text);
    }
    return STATUS_OK;
}

static enum status write_members(struct json_writer *w, const struct gguf *g, const struct architecture *a,
                                 struct error *e) {
    const struct gguf_tensor *words = gguf_find(g, "token_embd.weight");
    if (words == NULL || words->n_dims != 2)
        return error_set(e, STATUS_CORRUPT, "%s: tensor token_embd.weight is missing or no matrix", gguf_name(g));
    put_key_string(w, "model_type", a->model_type);
    put_key_int(w, "vocab_size", words->shape[0]);
    for (size_t i = 0; i < a->n_facts; i++) {
        bool there = gguf_find(g, a->facts[i].tensor) != NULL;
        put_key_bool(w, a->facts[i].name, there != a->facts[i].absent);
    }
    write_ends(w, g);
    if (write_keys(w, g, a, a->keys, a->n_keys, e)) return e->status;
    for (size_t i = 0; i < ARRAY_COUNT(common_keys); i++) {
        struct text_span key = {common_keys[i].key, strlen(common_keys[i].key)};
        if (!names_key(a->keys, a->n_keys, key) && write_key(w, g, a, &common_keys[i], e)) return e->status;
    }
    if (a->keys == gemma2_keys) put_key_int(w, "query_pre_attn_scalar", find_score_divisor(g, a));
    if (write_scaling(w, g, a, e)) return e->status;
    return write_factors(w, g, e);
}

enum status gguf_write_config(const struct gguf *g, struct buffer *json, struct error *e) {
    const struct architecture *a;
    struct json_writer w;
    if (find_architecture(g, &a, e) || check_keys(g, a, e)) return e->status;
    put_begin_indented(&w, json, 2);
    put_object(&w);
    enum status status = write_members(&w, g, a, e);
    put_object_end(&w);
    return status;
}

static bool has_ending(const char *path, const char *ending) {
    size_t size = strlen(path), tail = strlen(ending);
    return size >= tail && strcmp(path + size - tail, ending) == 0;
}

bool gguf_find_file(const char *path, struct buffer *file) {
    struct stat st;
    struct buffer config = {0}, model = {0};
    if (stat(path, &st) != 0) return false;
    if (!S_ISDIR(st.st_mode)) {
        bool found = has_ending(path, ".gguf");
        if (found) buffer_append_string(file, path);
        return found;
    }
    buffer_printf(&config, "%s/config.json", path);
    buffer_printf(&model, "%s/model.gguf", path);
    bool found = stat(config.data, &st) != 0 && stat(model.data, &st) == 0;
    if (found) buffer_append_string(file, model.data);
    buffer_free(&config);
    buffer_free(&model);
    return found;
}

enum status config_read_text(const char *path, struct buffer *json, struct error *e) {
    struct buffer file = {0};
    struct gguf *g;
    enum status status;
    if (gguf_find_file(path, &file)) {
        status = gguf_open(&g, file.data, e);
        if (status == STATUS_OK) {
            status = gguf_write_config(g, json, e);
            gguf_close(g);
        }
    } else {
        buffer_printf(&file, "%s/config.json", path);
        status = file_read(file.data, JSON_FILE_LIMIT, json, e);
    }
    buffer_free(&file);
    return status;
}

/* Names of tensors. */

/* "blk.7.attn_q.weight": the layer 7, -1 outside of layers; its name's middle; ".weight". */
struct split_name {
    int layer;
    struct text_span middle;
    const char *ending;
};

static bool split_name(struct split_name *s, const char *name) {
    const char *at = name;
    s->layer = -1;
    if (strncmp(name, "blk.", 4) == 0) {
        char *end;
        unsigned long layer = strtoul(name + 4, &end, 10);
        if (end == name + 4 || *end != '.' || layer > 1 << 20) return false;
        s->layer = (int)layer;
        at = end + 1;
    }
    s->ending = strrchr(at, '.');
    if (s->ending == NULL || (strcmp(s->ending, ".weight") != 0 && strcmp(s->ending, ".bias") != 0)) return false;
    s->middle = (struct text_span){at, (size_t)(s->ending - at)};
    return true;
}

static const struct name_row *find_name(const struct architecture *a, const struct split_name *s) {
    const struct rows_of_names *names = s->layer < 0 ? &a->outer : &a->layer;
    for (size_t i = 0; i < names->n; i++)
        if (span_is(s->middle, names->rows[i].from)) return &names->rows[i];
    return NULL;
}

static void join_name(struct gguf_view *view, const struct architecture *a, const struct split_name *s,
                      const char *name) {
    size_t size = sizeof view->name;
    const char *number = strchr(a->layers, '#');
    int used = 0;
    if (s->layer >= 0)
        used = snprintf(view->name, size, "%.*s%d%s", (int)(number - a->layers), a->layers, s->layer, number + 1);
    used += snprintf(view->name + used, size - (size_t)used, "%s%s", name, s->ending);
    CHECK((size_t)used < size);
}

enum status gguf_view_tensor(struct gguf_view *view, const struct gguf *g, const struct gguf_tensor *t,
                             struct error *e) {
    const struct architecture *a;
    struct split_name s;
    *view = (struct gguf_view){.turned = false};
    if (find_architecture(g, &a, e)) return e->status;
    if (strcmp(t->name, rope_factors) == 0) return STATUS_OK;
    const struct name_row *row = split_name(&s, t->name) ? find_name(a, &s) : NULL;
    if (row == NULL)
        return error_set(e, STATUS_UNSUPPORTED, "%s: tensor \"%s\" has no place in the architecture %s", gguf_name(g),
                         t->name, a->name);
    join_name(view, a, &s, row->to);
    view->turned = row->order == ORDER_TURNED && t->n_dims == 2;
    int64_t head = row->order == ORDER_PAIRED ? head_size(g, a) : 0;
    if (head > 0 && head % 2 == 0 && head <= INT32_MAX && t->shape[0] % head == 0) view->paired = (int)head;
    return STATUS_OK;
}
