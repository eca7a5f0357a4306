/* retro/text/tokenizer_open.c: which tokenizer a file or a model folder holds. See tokenizer.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/base/hash.h"
#include "retro/text/tokenizer_private.h"

/* The end of document by name, where no configuration names it. */
static int32_t find_eod(const struct tokenizer *t, const struct json *config) {
    static const char *const names[] = {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "[SEP]"};
    const struct json *eos = json_member(config, "eos_token");
    if (json_kind(eos) == JSON_KIND_OBJECT) eos = json_member(eos, "content");
    int32_t id = json_is_text(eos) ? pieces_find(t, json_text(eos).text, json_text(eos).size) : -1;
    for (size_t i = 0; i < ARRAY_COUNT(names) && id < 0; i++) id = pieces_find(t, names[i], strlen(names[i]));
    return id;
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
    } else {
        return error_set(e, STATUS_UNSUPPORTED, "model: type \"%.40s\" is not supported: expected BPE or WordPiece",
                         type);
    }
    if (status == STATUS_OK) status = json_open_added(t, json_member(root, "added_tokens"), e);
    if (status == STATUS_OK) status = json_open_postprocessor(t, json_member(root, "post_processor"), e);
    return status;
}

enum file_kind { FILE_JSON, FILE_VOCAB, FILE_MODEL };

static enum status open_bytes(struct tokenizer **out, enum file_kind kind, struct text_span bytes,
                              const struct json *config, struct error *e) {
    struct tokenizer *t = xcalloc(1, sizeof *t);
    struct json *root = NULL;
    t->hash = hash_bytes(bytes.text, bytes.size, 0);
    enum status status = STATUS_OK;
    if (kind == FILE_JSON) {
        status = json_parse(&root, bytes, "tokenizer.json", e);
        if (status == STATUS_OK) status = open_json(t, root, e);
        json_close(root);
    } else if (kind == FILE_VOCAB) {
        status = wordpiece_open_vocab(t, bytes, config, e);
    } else {
        status = sentencepiece_open(t, bytes, config, e);
    }
    if (status == STATUS_OK) {
        t->eod = find_eod(t, config);
        *out = t;
    } else {
        tokenizer_close(t);
    }
    return status;
}

enum status tokenizer_open_json(struct tokenizer **out, const char *text, size_t size, struct error *e) {
    *out = NULL;
    return open_bytes(out, FILE_JSON, (struct text_span){text, size}, NULL, e);
}

/* tokenizer_config.json in the folder of the first `folder` bytes of path; *out stays NULL when there is none. */
static enum status load_config(struct json **out, const char *path, size_t folder, struct error *e) {
    struct buffer name = {0};
    struct stat s;
    enum status status = STATUS_OK;
    buffer_append(&name, path, folder);
    buffer_append_string(&name, "tokenizer_config.json");
    if (stat(name.data, &s) == 0) status = json_parse_file(out, name.data, e);
    buffer_free(&name);
    return status;
}

static enum status open_file(struct tokenizer **out, const char *path, struct error *e) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n = strlen(base);
    enum file_kind kind = FILE_JSON;
    if (n >= 4 && strcmp(base + n - 4, ".txt") == 0) kind = FILE_VOCAB;
    if (n >= 6 && strcmp(base + n - 6, ".model") == 0) kind = FILE_MODEL;
    struct buffer bytes = {0};
    struct json *config = NULL;
    enum status status = file_read(path, JSON_FILE_LIMIT, &bytes, e);
    if (status == STATUS_OK) status = load_config(&config, path, (size_t)(base - path), e);
    if (status == STATUS_OK) {
        status = open_bytes(out, kind, (struct text_span){bytes.data, bytes.size}, config, e);
        if (status != STATUS_OK) error_prefix(e, "%s", path);
    }
    json_close(config);
    buffer_free(&bytes);
    return status;
}

enum status tokenizer_open(struct tokenizer **out, const char *path, struct error *e) {
    static const char *const names[] = {"tokenizer.json", "vocab.txt", "tokenizer.model"};
    struct stat s;
    *out = NULL;
    if (stat(path, &s) != 0) return error_errno(e, "tokenizer %s", path);
    if (!S_ISDIR(s.st_mode)) return open_file(out, path, e);
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        struct buffer name = {0};
        buffer_printf(&name, "%s/%s", path, names[i]);
        bool there = stat(name.data, &s) == 0;
        enum status status = there ? open_file(out, name.data, e) : STATUS_OK;
        buffer_free(&name);
        if (there) return status;
    }
    return error_set(e, STATUS_NOT_FOUND, "%s: no tokenizer.json, vocab.txt or tokenizer.model in this folder", path);
}
