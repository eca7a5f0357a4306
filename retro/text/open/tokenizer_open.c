/* retro/text/open/tokenizer_open.c: which tokenizer a file or a model folder holds. See
 * tokenizer.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/base/hash.h"
#include "retro/text/open/tokenizer_gguf.h"
#include "retro/text/open/tokenizer_tekken.h"
#include "retro/text/tokenizer_private.h"
#include "retro/weights/gguf_tower.h"

const struct json *config_mark(const struct tokenizer_config *config, const char *key) {
    const struct json *value = json_member(config->options, key);
    return value ? value : json_member(config->marks, key);
}

/* The id of the token that the configuration names under `key`, else of the first of `names` that
 * is there, else -1. */
static int32_t find_named(const struct tokenizer *tokenizer, const struct tokenizer_config *config,
                          const char *key, const char *const *names, size_t n) {
    const struct json *named = config_mark(config, key);
    if (json_kind(named) == JSON_KIND_OBJECT) named = json_member(named, "content");
    int32_t id = json_is_text(named)
                     ? pieces_find(tokenizer, json_text(named).text, json_text(named).size)
                     : -1;
    for (size_t i = 0; i < n && id < 0; i++)
        id = pieces_find(tokenizer, names[i], strlen(names[i]));
    return id;
}

/* <extra_id_0>, <extra_id_1>, ... as far as they are there. */
static void find_sentinels(struct tokenizer *tokenizer) {
    memset(tokenizer->sentinels, 0xFF, sizeof tokenizer->sentinels);
    for (int id = 0; id < tokenizer->vocab_size; id++) {
        static const char start[] = "<extra_id_";
        const struct piece *piece = &tokenizer->pieces[id];
        size_t at = sizeof start - 1;
        if (piece->bytes == NULL || piece->size < at + 2 || memcmp(piece->bytes, start, at) != 0)
            continue;
        int number = 0;
        for (;
             piece->bytes[at] >= '0' && piece->bytes[at] <= '9' && number < TOKENIZER_MAX_SENTINELS;
             at++)
            number = number * 10 + piece->bytes[at] - '0';
        if (at + 1 == piece->size && piece->bytes[at] == '>' && number < TOKENIZER_MAX_SENTINELS)
            tokenizer->sentinels[number] = id;
    }
}

static void find_marks(struct tokenizer *tokenizer, const struct tokenizer_config *config) {
    static const char *const ends[] = {"<|endoftext|>", "</s>",  "<|end_of_text|>",
                                       "<eos>",         "[EOS]", "[SEP]"};
    static const char *const starts[] = {"<s>", "<bos>", "[BOS]"}, *const pads[] = {"<pad>",
                                                                                    "[PAD]"};
    static const char *const classes[] = {"<s>", "[CLS]"}, *const unknowns[] = {"<unk>", "[UNK]"};
    tokenizer->eod = find_named(tokenizer, config, "eos_token", ends, ARRAY_COUNT(ends));
    tokenizer->bos = find_named(tokenizer, config, "bos_token", starts, ARRAY_COUNT(starts));
    tokenizer->pad = find_named(tokenizer, config, "pad_token", pads, ARRAY_COUNT(pads));
    tokenizer->cls = find_named(tokenizer, config, "cls_token", classes, ARRAY_COUNT(classes));
    tokenizer->unknown =
        find_named(tokenizer, config, "unk_token", unknowns, ARRAY_COUNT(unknowns));
    find_sentinels(tokenizer);
}

static enum status open_json(struct tokenizer *tokenizer, const struct json *root,
                             struct error *e) {
    const struct json *model = json_member(root, "model");
    const char *type = json_type_name(model);
    enum status status = json_open_normalizer(tokenizer, json_member(root, "normalizer"), e);
    if (status != STATUS_OK) return status;
    /* Files from before 2021 do not name the model's type; only BPE has merges. */
    if (strcmp(type, "BPE") == 0 || (*type == '\0' && json_member(model, "merges") != NULL)) {
        status = bpe_open(tokenizer, root, e);
    } else if (strcmp(type, "WordPiece") == 0) {
        status = wordpiece_open_json(tokenizer, root, e);
    } else if (strcmp(type, "Unigram") == 0) {
        status = unigram_open(tokenizer, root, e);
    } else {
        return error_set(
            e, STATUS_UNSUPPORTED,
            "model: type \"%.40s\" is not supported: expected BPE, WordPiece or Unigram", type);
    }
    if (status == STATUS_OK)
        status = json_open_added(tokenizer, json_member(root, "added_tokens"), e);
    if (status == STATUS_OK)
        status = json_open_postprocessor(tokenizer, json_member(root, "post_processor"), e);
    return status;
}

/* Where the post-processor of tokenizer.json adds nothing, tokenizer_config.json may ask for the
 * marks. Where it adds tokens, its word is the last one, as in transformers 5. */
static enum status add_marks(struct tokenizer *tokenizer, const struct tokenizer_config *config,
                             struct error *e) {
    bool bos, eos;
    if (json_get_bool(config->options, "add_bos_token", false, &bos, e) ||
        json_get_bool(config->options, "add_eos_token", false, &eos, e))
        return error_prefix(e, "tokenizer_config.json");
    if (tokenizer->prefix.n + tokenizer->suffix.n > 0) return STATUS_OK;
    if (bos && tokenizer->bos >= 0) tokenizer->prefix = (struct affix){{tokenizer->bos}, 1};
    if (eos && tokenizer->eod >= 0) tokenizer->suffix = (struct affix){{tokenizer->eod}, 1};
    return STATUS_OK;
}

enum file_kind { FILE_JSON, FILE_VOCAB, FILE_MODEL, FILE_TEKKEN };

static enum status open_tekken(struct tokenizer *tokenizer, struct text_span bytes,
                               struct error *e) {
    struct json *tekken = NULL, *root = NULL;
    struct buffer written = {0};
    enum status status = json_parse(&tekken, bytes, "tekken.json", e);
    if (status == STATUS_OK) status = tekken_write_tokenizer(&written, tekken, e);
    json_close(tekken);
    if (status == STATUS_OK)
        status =
            json_parse(&root, (struct text_span){written.data, written.size}, "tekken.json", e);
    buffer_free(&written);
    if (status == STATUS_OK) status = open_json(tokenizer, root, e);
    json_close(root);
    return status;
}

static enum status open_bytes(struct tokenizer **out, enum file_kind kind, struct text_span bytes,
                              const struct tokenizer_config *config, struct error *e) {
    struct tokenizer *tokenizer = xcalloc(1, sizeof *tokenizer);
    struct json *root = NULL;
    tokenizer->hash = hash_bytes(bytes.text, bytes.size, 0);
    enum status status = STATUS_OK;
    if (kind == FILE_JSON) {
        status = json_parse(&root, bytes, "tokenizer.json", e);
        if (status == STATUS_OK) status = open_json(tokenizer, root, e);
        json_close(root);
    } else if (kind == FILE_TEKKEN) {
        status = open_tekken(tokenizer, bytes, e);
    } else if (kind == FILE_VOCAB) {
        status = wordpiece_open_vocab(tokenizer, bytes, config->options, e);
    } else {
        status = sentencepiece_open(tokenizer, bytes, config, e);
    }
    /* tokenizer.json and tekken.json list their added tokens themselves. */
    if (status == STATUS_OK && kind != FILE_JSON && kind != FILE_TEKKEN)
        status = json_open_decoder_tokens(tokenizer,
                                          json_member(config->options, "added_tokens_decoder"), e);
    if (status == STATUS_OK) find_marks(tokenizer, config);
    if (status == STATUS_OK && kind == FILE_JSON) status = add_marks(tokenizer, config, e);
    if (status == STATUS_OK) {
        *out = tokenizer;
    } else {
        tokenizer_close(tokenizer);
    }
    return status;
}

enum status tokenizer_open_json(struct tokenizer **out, const char *text, size_t size,
                                struct error *e) {
    *out = NULL;
    return open_bytes(out, FILE_JSON, (struct text_span){text, size}, &(struct tokenizer_config){0},
                      e);
}

/* Reads one file of the folder of the first `folder` bytes of path; *out stays NULL when there is
 * none. */
static enum status load_beside(struct json **out, const char *path, size_t folder, const char *file,
                               struct error *e) {
    struct buffer name = {0};
    struct stat the_stat;
    enum status status = STATUS_OK;
    buffer_append(&name, path, folder);
    buffer_append_string(&name, file);
    if (stat(name.data, &the_stat) == 0) status = json_parse_file(out, name.data, e);
    if (status == STATUS_OK && *out != NULL && json_kind(*out) != JSON_KIND_OBJECT)
        status = error_set(e, STATUS_INVALID, "%s: expected an object", name.data);
    buffer_free(&name);
    return status;
}

/* The caller releases *out with config_free, after an error too. */
static enum status load_config(struct tokenizer_config *out, const char *path, size_t folder,
                               struct error *e) {
    enum status status = load_beside(&out->options, path, folder, "tokenizer_config.json", e);
    if (status == STATUS_OK)
        status = load_beside(&out->marks, path, folder, "special_tokens_map.json", e);
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
    if (strcmp(base, "tekken.json") == 0) kind = FILE_TEKKEN;
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

enum status tokenizer_open_gguf(struct tokenizer **out, const struct gguf *gguf, struct error *e) {
    *out = NULL;
    struct gguf_tokenizer written;
    struct buffer options = {0};
    struct tokenizer_config config = {0};
    enum status status = gguf_write_tokenizer(&written, gguf, e);
    if (status == STATUS_OK) status = gguf_write_options(gguf, &options, e);
    if (status == STATUS_OK)
        status = json_parse(&config.options, (struct text_span){options.data, options.size},
                            "tokenizer_config.json", e);
    if (status == STATUS_OK) {
        enum file_kind kind = strcmp(written.name, "tokenizer.json") == 0 ? FILE_JSON : FILE_MODEL;
        status = open_bytes(out, kind, (struct text_span){written.file.data, written.file.size},
                            &config, e);
    }
    config_free(&config);
    buffer_free(&options);
    buffer_free(&written.file);
    return status;
}

static enum status open_gguf_file(struct tokenizer **out, const char *path, struct error *e) {
    struct gguf *gguf;
    if (gguf_open_model(&gguf, path, e)) return e->status;
    enum status status = tokenizer_open_gguf(out, gguf, e);
    if (status) error_prefix(e, "%s: tokenizer", path);
    gguf_close(gguf);
    return status;
}

enum status tokenizer_open(struct tokenizer **out, const char *path, struct error *e) {
    static const char *const names[] = {"tokenizer.json", "vocab.txt", "tokenizer.model",
                                        "spiece.model", "tekken.json"};
    struct stat the_stat;
    *out = NULL;
    if (stat(path, &the_stat) != 0) return error_errno(e, "tokenizer %s", path);
    struct buffer gguf = {0};
    if (gguf_find_file(path, &gguf)) {
        enum status status = open_gguf_file(out, gguf.data, e);
        buffer_free(&gguf);
        return status;
    }
    if (!S_ISDIR(the_stat.st_mode)) return open_file(out, path, e);
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        struct buffer name = {0};
        buffer_printf(&name, "%s/%s", path, names[i]);
        bool there = stat(name.data, &the_stat) == 0;
        enum status status = there ? open_file(out, name.data, e) : STATUS_OK;
        buffer_free(&name);
        if (there) return status;
    }
    return error_set(
        e, STATUS_NOT_FOUND,
        "%s: no tokenizer.json, vocab.txt, tokenizer.model, spiece.model or tekken.json "
        "in this folder (vocab.json with "
        "merges.txt is not read: transformers writes them as tokenizer.json)",
        path);
}
