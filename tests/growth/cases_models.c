/* tests/growth/cases_models.c: files of models: GGUF, config.json, checkpoints' pickles and YAML.
 */
#include "retro/model/model_private.h"
#include "retro/text/open/tokenizer_gguf.h"
#include "tests/growth/growth.h"
#include "tests/unit/gguf_build.h"
#include "tools/convert/formats/pickle.h"
#include "tools/convert/formats/yaml.h"

static void run_gguf(struct text_span bytes) {
    struct gguf *g;
    struct tokenizer *t;
    struct error e;
    CHECK(gguf_open_memory(&g, bytes.text, bytes.size, "file", &e) == STATUS_OK);
    for (int i = 0; i < gguf_count(g); i++)
        CHECK(gguf_find(g, gguf_at(g, i)->name) == gguf_at(g, i));
    if (tokenizer_open_gguf(&t, g, &e) == STATUS_OK) tokenizer_close(t);
    gguf_close(g);
}

static void finish(struct gguf_draft *d, struct buffer *out) {
    draft_build(d);
    buffer_append(out, d->file.data, d->file.size);
    draft_free(d);
}

static void make_keys(int n, struct buffer *out) {
    struct gguf_draft d = {0};
    char name[40];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "some.key.%d", i);
        draft_u32(&d, name, 1);
    }
    finish(&d, out);
}
static void make_tensors(int n, struct buffer *out) {
    struct gguf_draft d = {0};
    char name[40];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "blk.%d.attn_norm.weight", i);
        draft_tensor(&d, name, 0, 0, 4, 16);
    }
    finish(&d, out);
}

static void draft_tokens(struct gguf_draft *d, int n, const char *model) {
    char text[40];
    draft_word(d, "tokenizer.ggml.model", model);
    draft_word(d, "tokenizer.ggml.pre", "gpt-2");
    draft_list(d, "tokenizer.ggml.tokens", GGUF_TEXT, (uint64_t)(n + 1));
    draft_text(&d->keys, "a");
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, i % 2 ? "ab%d" : "b%d", i / 2);
        draft_text(&d->keys, text);
    }
    draft_list(d, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)(n + 1));
    for (int i = 0; i <= n; i++) draft_number(&d->keys, i % 8 == 7 ? 4 : 1, 4);
}
static void make_bpe(int n, struct buffer *out) {
    struct gguf_draft d = {0};
    char text[40];
    draft_tokens(&d, 2 * n, "gpt2");
    draft_list(&d, "tokenizer.ggml.merges", GGUF_TEXT, (uint64_t)n);
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, "a b%d", i);
        draft_text(&d.keys, text);
    }
    finish(&d, out);
}
static void make_llama(int n, struct buffer *out) {
    struct gguf_draft d = {0};
    draft_tokens(&d, n, "llama");
    draft_list(&d, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)(n + 1));
    for (int i = 0; i <= n; i++) draft_number(&d.keys, 0, 4);
    finish(&d, out);
}

static void run_config(struct text_span text) {
    struct json *config;
    struct error e;
    CHECK(json_parse(&config, text, "config.json", &e) == STATUS_OK);
    for (size_t i = 0; i < model_family_count; i++) {
        struct model_spec s = model_spec_default();
        model_families[i]->read(config, &s, &e);
    }
    json_close(config);
}
static void make_config(int n, struct buffer *out) {
    buffer_append_string(
        out, "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":32,\"vocab_size\":8,");
    buffer_append_string(out, "\"layer_types\":[");
    for (int i = 0; i < n; i++) buffer_printf(out, "%s\"full_attention\"", i ? "," : "");
    buffer_append_string(out, "]");
    for (int i = 0; i < n; i++) buffer_printf(out, ",\"unknown_%d\":%d", i, i);
    buffer_append_string(out, "}");
}

static void run_pickle(struct text_span text) {
    struct pickle *p;
    struct error e;
    if (pickle_open(&p, text, "file", &e)) return;
    for (size_t i = 0; i < 100; i++) {
        char name[20];
        snprintf(name, sizeof name, "k%zu", i);
        pickle_member(pickle_root(p), name);
    }
    pickle_close(p);
}
/* A dict of n members, each memoized, set one after another. */
static void make_pickle(int n, struct buffer *out) {
    buffer_append(out, "\x80\x04}\x94", 4);
    for (int i = 0; i < n; i++) {
        char name[20];
        int size = snprintf(name, sizeof name, "k%d", i);
        buffer_printf(out, "\x8c%c%s\x94", size, name);
        buffer_append(out, "K\x01s", 3);
    }
    buffer_append(out, ".", 1);
}
/* Lists within lists, by the memo. */
static void make_memo(int n, struct buffer *out) {
    buffer_append(out, "\x80\x04]\x94", 4);
    for (int i = 0; i < n; i++) {
        buffer_append(out, "j", 1);
        for (int k = 0; k < 4; k++) buffer_append(out, &(char){(char)(i >> 8 * k)}, 1);
        buffer_append(out,
                      "]\x94"
                      "a",
                      3);
    }
    buffer_append(out, ".", 1);
}
static void make_opcodes(int n, struct buffer *out) {
    buffer_append(out, "\x80\x04", 2);
    put_times(out, n, "(");
    put_times(out, n, "N");
    put_times(out, n, "l");
    buffer_append(out, ".", 1);
}

static void run_yaml(struct text_span text) {
    struct settings s = {0};
    struct error e;
    yaml_read(&s, text, "model_config.yaml", &e);
    settings_free(&s);
}
static void make_yaml(int n, struct buffer *out) {
    for (int i = 0; i < n; i++) buffer_printf(out, "outer%d:\n  inner: %d\n", i, i);
}
static void make_deep_yaml(int n, struct buffer *out) {
    for (int i = 0; i < n && i < 300; i++) buffer_printf(out, "%*sa%d:\n", i, "", i);
    for (int i = 0; i < n; i++) buffer_printf(out, "b%d: 1\n", i);
}

static const struct growth_case cases[] = {
    {"gguf/keys", 1000, make_keys, run_gguf},
    {"gguf/tensors", 500, make_tensors, run_gguf},
    {"gguf/bpe", 200, make_bpe, run_gguf},
    {"gguf/llama", 1000, make_llama, run_gguf},
    {"config.json/members", 300, make_config, run_config},
    {"pickle/members", 1000, make_pickle, run_pickle},
    {"pickle/memo", 2000, make_memo, run_pickle},
    {"pickle/marks", 2000, make_opcodes, run_pickle},
    {"yaml/names", 500, make_yaml, run_yaml},
    {"yaml/deep", 1000, make_deep_yaml, run_yaml},
};
const struct growth_table model_growth = GROWTH_TABLE(cases);
