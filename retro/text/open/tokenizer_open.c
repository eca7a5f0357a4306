/* retro/text/open/tokenizer_open.c: which tokenizer a file or a model folder holds. See tokenizer.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/base/hash.h"
#include "retro/text/open/tokenizer_gguf.h"
#include "retro/text/tokenizer_private.h"
#include "retro/weights/gguf_folder.h"

const struct json *config_mark(const struct tokenizer_config *config, const char *key) {
    const struct json *value = json_member(config->options, key);
    return value ? value : json_member(config->marks, key);
}

/* The id of the token that the configuration names under `key`, else of the first of `names` that is there, else -1. */
static int32_t find_named(const struct tokenizer *t, const struct tokenizer_config *config, const char *key,
                          const char *const *names, size_t n) {
    const struct json *named = config_mark(config, key);
    if (json_kind(named) == JSON_KIND_OBJECT) named = json_member(named, "content");
    int32_t id = json_is_text(named) ? pieces_find(t, json_text(named).text, json_text(named).size) : -1;
    for (size_t i = 0; i < n && id < 0; i++) id = pieces_find(t, names[i], strlen(names[i]));
    return id;
}

/* <extra_id_0>, <extra_id_1>, ... as far as they are there. */
static void find_sentinels(struct tokenizer *t) {
    memset(t->sentinels, 0xFF, sizeof t->sentinels);
    for (int id = 0; id < t->vocab_size; id++) {
        static const char start[] = "<extra_id_";
        const struct piece *p = &t->pieces[id];
        size_t at = sizeof start - 1;
        if (p->bytes == NULL || p->size < at + 2 || memcmp(p->bytes, start, at) != 0) continue;
        int number = 0;
        for (; p->bytes[at] >= '0' && p->bytes[at] <= '9' && number < TOKENIZER_MAX_SENTINELS; at++)
            number = number * 10 + p->bytes[at] - '0';
        if (at + 1 == p->size && p->bytes[at] == '>' && number < TOKENIZER_MAX_SENTINELS) t->sentinels[number] = id;
    }
}

static void find_marks(struct tokenizer *t, const struct tokenizer_config *config) {
    static const char *const ends[] = {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "[EOS]", "[SEP]"};
    static const char *const starts[] = {"<s>", "<bos>", "[BOS]"}, *const pads[] = {"<pad>", "[PAD]"};
    t->eod = find_named(t, config, "eos_token", ends, ARRAY_COUNT(ends));
    t->bos = find_named(t, config, "bos_token", starts, ARRAY_COUNT(starts));
    t->pad = find_named(t, config, "pad_token", pads, ARRAY_COUNT(pads));
    find_sentinels(t);
}

static enum status open_json(struct tokenizer *t, const struct json *root, struct error *e) {
    const struct json *model = json_member(root, "model");
    const char *type = json_type_name(model);
    enum status status = json_open_normalizer(t, json_member(root, "normalizer"), e);
    if (status != STATUS_OK) return status;
    /* Files from before 2021 do not name the model's type; only BPE has merges. */
    if (strcmp(type, "BPE") == 0 || (*type == '\0' && json_member(model, "merges") != NULL)) {
        status = bpe_open(t, root, e);
    } else if (strcmp(type, "WordPiece") == 0) {
        status = wordpiece_open_json(t, root, e);
    } else if (strcmp(type, "Unigram") == 0) {
        status = unigram_open(t, root, e);
    } else {
        return error_set(e, STATUS_UNSUPPORTED,
                         "model: type \"%.40s\" is not supported: expected BPE, WordPiece or Unigram", type);
    }
    if (status == STATUS_OK) status = json_open_added(t, json_member(root, "added_tokens"), e);
    if (status == STATUS_OK) status = json_open_postprocessor(t, json_member(root, "post_processor"), e);
    return status;
}

/* Where the post-processor of tokenizer.json adds nothing, tokenizer_config.json may ask for the marks. Where it adds
 * tokens, its word is the last one, as in transformers 5. */
static enum status add_marks(struct tokenizer *t, const struct tokenizer_config *config, struct error *e) {
    bool bos, eos;
    if (json_get_bool(config->options, "add_bos_token", false, &bos, e) ||
        json_get_bool(config->options, "add_eos_token", false, &eos, e))
        return error_prefix(e, "tokenizer_config.json");
    if (t->prefix.n + t->suffix.n > 0) return STATUS_OK;
    if (bos && t->bos >= 0) t->prefix = (struct affix){{t->bos}, 1};
    if (eos && t->eod >= 0) t->suffix = (struct affix){{t->eod}, 1};
    return STATUS_OK;
}

enum file_kind { FILE_JSON, FILE_VOCAB, FILE_MODEL };

static enum status open_bytes(struct tokenizer **out, enum file_kind kind, struct text_span bytes,
                              const struct tokenizer_config *config, struct error *e) {
    struct tokenizer *t = xcalloc(1, sizeof *t);
    struct json *root = NULL;
    t->hash = hash_bytes(bytes.text, bytes.size, 0);
    enum status status = STATUS_OK;
    if (kind == FILE_JSON) {
        status = json_parse(&root, bytes, "tokenizer.json", e);
        if (status == STATUS_OK) status = open_json(t, root, e);
        json_close(root);
    } else if (kind == FILE_VOCAB) {
        status = wordpiece_open_vocab(t, bytes, config->options, e);
    } else {
        status = sentencepiece_open(t, bytes, config, e);
    }
    /* tokenizer.json lists its added tokens itself. */
    if (status == STATUS_OK && kind != FILE_JSON)
        status = json_open_decoder_tokens(t, json_member(config->options, "added_tokens_decoder"), e);
    if (status == STATUS_OK) find_marks(t, config);
    if (status == STATUS_OK && kind == FILE_JSON) status = add_marks(t, config, e);
    if (status == STATUS_OK) {
        *out = t;
    } else {
        tokenizer_close(t);
    }
    return status;
}

enum status tokenizer_open_json(struct tokenizer **out, const char *text, size_t size, struct error *e) {
    *out = NULL;
    return open_bytes(out, FILE_JSON, (struct text_span){text, size}, &(struct tokenizer_config){0}, e);
}

/* Reads one file of the folder of the first `folder` bytes of path; *out stays NULL when there is none. */
static enum status load_beside(struct json **out, const char *path, size_t folder, const char *file, struct error *e) {
    struct buffer name = {0};
    struct stat s;
    enum status status = STATUS_OK;
    buffer_append(&name, path, folder);
    buffer_append_string(&name, file);
    if (stat(name.data, &s) == 0) status = json_parse_file(out, name.data, e);
    if (status == STATUS_OK && *out != NULL && json_kind(*out) != JSON_KIND_OBJECT)
        status = error_set(e, STATUS_INVALID, "%s: expected an object", name.data);
    buffer_free(&name);
    return status;
}

/* The caller releases *out with config_free, after an error too. */
static enum status load_config(struct tokenizer_config *out, const char *path, size_t folder, struct error *e) {
    enum status status = load_beside(&out->options, path, folder, "tokenizer_config.json", e);
    if (status == STATUS_OK) status = load_beside(&out->marks, path, folder, "special_tokens_map.json", e);
    if (status == STATUS_OK) status = load_beside(&out->model, path, folder, "config.json", e);
    return status;
}

static void config_free(struct tokenizer_config *config) {
    json_close(config->options);
    json_close(config->marks);
    json_close(config->model);
}

static enum status open_file(struct tokenizer **out, const char *path, struct error *e) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n = strlen(base);
    enum file_kind kind = FILE_JSON;
    if (n >= 4 && strcmp(base + n - 4, ".txt") == 0) kind = FILE_VOCAB;
    if (n >= 6 && strcmp(base + n - 6, ".model") == 0) kind = FILE_MODEL;
    struct buffer bytes = {0};
    struct tokenizer_config config = {0};
    enum status status = file_read(path, JSON_FILE_LIMIT, &bytes, e);
    if (status == STATUS_OK) status = load_config(&config, path, (size_t)(base - path), e);
    if (status == STATUS_OK) {
        status = open_bytes(out, kind, (struct text_span){bytes.data, bytes.size}, &config, e);
        if (status != STATUS_OK) error_prefix(e, "%s", path);
    }
    config_free(&config);
    buffer_free(&bytes);
    return status;
}

enum status tokenizer_open_gguf(struct tokenizer **out, const struct gguf *g, struct error *e) {
    *out = NULL;
    struct gguf_tokenizer written;
    struct buffer options = {0};
    struct tokenizer_config config = {0};
    enum status status = gguf_write_tokenizer(&written, g, e);
    if (status == STATUS_OK) status = gguf_write_options(g, &options, e);
    if (status == STATUS_OK)
        status =
            json_parse(&config.options, (struct text_span){options.data, options.size}, "tokenizer_config.json", e);
    if (status == STATUS_OK) {
        enum file_kind kind = strcmp(written.name, "tokenizer.json") == 0 ? FILE_JSON : FILE_MODEL;
        status = open_bytes(out, kind, (struct text_span){written.file.data, written.file.size}, &config, e);
    }
    config_free(&config);
    buffer_free(&options);
    buffer_free(&written.file);
    return status;
}

static enum status open_gguf_file(struct tokenizer **out, const char *path, struct error *e) {
    struct gguf *g;
    if (gguf_open(&g, path, e)) return e->status;
    enum status status = tokenizer_open_gguf(out, g, e);
    if (status) error_prefix(e, "%s: tokenizer", path);
    gguf_close(g);
    return status;
}

enum status tokenizer_open(struct tokenizer **out, const char *path, struct error *e) {
    static const char *const names[] = {"tokenizer.json", "vocab.txt", "tokenizer.model", "spiece.model"};
    struct stat s;
    *out = NULL;
    if (stat(path, &s) != 0) return error_errno(e, "tokenizer %s", path);
    struct buffer gguf = {0};
    if (gguf_find_file(path, &gguf)) {
        enum status status = open_gguf_file(out, gguf.data, e);
        buffer_free(&gguf);
        return status;
    }
    if (!S_ISDIR(s.st_mode)) return open_file(out, path, e);
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        struct buffer name = {0};
        buffer_printf(&name, "%s/%s", path, names[i]);
        bool there = stat(name.data, &s) == 0;
        enum status status = there ? open_file(out, name.data, e) : STATUS_OK;
        buffer_free(&name);
        if (there) return status;
    }
    return error_set(
        e, STATUS_NOT_FOUND,
        "%s: no tokenizer.json, vocab.txt, tokenizer.model or spiece.model in this folder (vocab.json with "
        "merges.txt is not read: transformers writes them as tokenizer.json)",
        path);
}
