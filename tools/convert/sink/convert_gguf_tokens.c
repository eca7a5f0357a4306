/* tools/convert/sink/convert_gguf_tokens.c: byte-level BPE of a tokenizer.json as the keys of a
 * GGUF file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json/json_value.h"
#include "retro/chat/chat.h"
#include "retro/text/open/tokenizer_gguf.h"
#include "tools/convert/sink/convert_gguf.h"

enum { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_USER_DEFINED = 4, TOKEN_UNUSED = 5 };

/* The texts and kinds of all ids; a NULL text is an id without token. */
struct token_list {
    struct text_span *texts;
    uint8_t *kinds;
    int n;
};

/* The steps of a pre-tokenizer: regular expressions before bytes. */
struct pre_steps {
    const char *regex[GGUF_PRE_STEPS + 1];
    int n;
};

static const char gpt2_words[] = "gpt-2", digits[] = "\\p{N}";

static bool is_type(const struct json *json, const char *type) {
    return json_text_is(json_member(json, "type"), type);
}

static const char *gpt2_regex(void) {
    return gguf_pre_find((struct text_span){gpt2_words, sizeof gpt2_words - 1})->steps[0];
}

static void add_step(struct pre_steps *steps, const char *regex) {
    steps->regex[steps->n] = regex;
    steps->n++;
}

/* One pre-tokenizer, or a sequence of them; false where GGUF has no words for it. */
static bool read_steps(struct pre_steps *steps, const struct json *pre) {
    const struct json *list = json_member(pre, "pretokenizers"),
                      *pattern = json_member(pre, "pattern");
    if (steps->n == GGUF_PRE_STEPS) return false;
    if (is_type(pre, "Sequence")) {
        bool all = true;
        for (size_t i = 0; i < json_count(list) && all; i++)
            all = read_steps(steps, json_item(list, i));
        return all;
    }
    if (is_type(pre, "ByteLevel")) {
        const struct json *regex = json_member(pre, "use_regex"),
                          *space = json_member(pre, "add_prefix_space");
        if (regex == NULL || json_bool(regex)) add_step(steps, gpt2_regex());
        return space != NULL && !json_bool(space);
    }
    if (is_type(pre, "Digits") && json_bool(json_member(pre, "individual_digits"))) {
        add_step(steps, digits);
        return true;
    }
    const char *regex = json_word(json_member(pattern, "Regex"));
    bool cuts = is_type(pre, "Split") && json_text_is(json_member(pre, "behavior"), "Isolated") &&
                !json_bool(json_member(pre, "invert"));
    if (regex == NULL || !cuts) return false;
    add_step(steps, regex);
    return true;
}

static bool same_steps(const struct pre_steps *steps, const struct gguf_pre *pre) {
    for (int i = 0; i <= steps->n; i++) {
        bool both = steps->regex[i] && pre->steps[i];
        if (both ? strcmp(steps->regex[i], pre->steps[i]) != 0 : steps->regex[i] != pre->steps[i])
            return false;
    }
    return true;
}

static enum status find_name(const struct json *root, const struct gguf_pre **out,
                             struct error *e) {
    struct pre_steps steps = {.n = 0};
    bool whole = json_bool(json_member(json_member(root, "model"), "ignore_merges"));
    bool read = read_steps(&steps, json_member(root, "pre_tokenizer"));
    *out = NULL;
    for (int i = 0; read && i < gguf_pre_count() && *out == NULL; i++) {
        const struct gguf_pre *pre = gguf_pre_at(i);
        if (pre->whole_words == whole && same_steps(&steps, pre)) *out = pre;
    }
    if (*out) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "tokenizer.json: GGUF has no name for its pre_tokenizer");
}

static enum status put_token(struct token_list *list, int64_t id, struct text_span text, int kind,
                             struct error *e) {
    if (id < 0 || id >= list->n)
        return error_set(e, STATUS_INVALID,
                         "tokenizer.json: id %lld, and the word table has %d rows", (long long)id,
                         list->n);
    list->texts[id] = text;
    list->kinds[id] = (uint8_t)kind;
    return STATUS_OK;
}

static enum status read_tokens(struct token_list *list, const struct json *root, struct error *e) {
    const struct json *added = json_member(root, "added_tokens");
    const struct json *vocab = json_member(json_member(root, "model"), "vocab");
    for (struct json_entry it = {0}; json_next(vocab, &it);)
        if (put_token(list, json_int(it.value), it.name, TOKEN_NORMAL, e)) return e->status;
    for (size_t i = 0; i < json_count(added); i++) {
        const struct json *token = json_item(added, i);
        bool special = json_bool(json_member(token, "special"));
        if (put_token(list, json_int(json_member(token, "id")),
                      json_text(json_member(token, "content")),
                      special ? TOKEN_CONTROL : TOKEN_USER_DEFINED, e))
            return e->status;
    }
    return STATUS_OK;
}

static void put_tokens(struct gguf_keys *keys, const struct token_list *list) {
    keys_put_list(keys, "tokenizer.ggml.tokens", GGUF_TEXT, (size_t)list->n);
    for (int i = 0; i < list->n; i++) {
        char name[40];
        struct text_span text = {name, (size_t)snprintf(name, sizeof name, "[PAD%d]", i)};
        gguf_put_text(&keys->bytes, list->texts[i].text ? list->texts[i] : text);
    }
    keys_put_list(keys, "tokenizer.ggml.token_type", GGUF_I32, (size_t)list->n);
    for (int i = 0; i < list->n; i++)
        gguf_put_number(&keys->bytes, list->texts[i].text ? list->kinds[i] : TOKEN_UNUSED, 4);
}

/* "a b", or ["a", "b"]. */
static enum status put_merges(struct gguf_keys *keys, const struct json *merges, struct error *e) {
    struct buffer pair = {0};
    enum status status = STATUS_OK;
    keys_put_list(keys, "tokenizer.ggml.merges", GGUF_TEXT, json_count(merges));
    for (size_t i = 0; i < json_count(merges) && status == STATUS_OK; i++) {
        const struct json *merge = json_item(merges, i);
        struct text_span whole = json_text(merge), left = json_text(json_item(merge, 0)),
                         right = json_text(json_item(merge, 1));
        if (whole.text == NULL && (left.text == NULL || right.text == NULL))
            status =
                error_set(e, STATUS_INVALID, "tokenizer.json: merges[%zu]: expected two texts", i);
        buffer_clear(&pair);
        if (whole.text == NULL && status == STATUS_OK) {
            buffer_append(&pair, left.text, left.size);
            buffer_append(&pair, " ", 1);
            buffer_append(&pair, right.text, right.size);
            whole = (struct text_span){pair.data, pair.size};
        }
        gguf_put_text(&keys->bytes, whole);
    }
    buffer_free(&pair);
    return status;
}

/* Ids that begin and end a text, as the folder's tokenizer has them. */
static enum status put_marks(struct gguf_keys *keys, const char *folder, struct error *e) {
    struct tokenizer *tokenizer;
    struct tokens ids = {0};
    if (tokenizer_open(&tokenizer, folder, e)) return e->status;
    int bos = tokenizer_bos(tokenizer), eos = tokenizer_eod(tokenizer);
    enum status status = tokenizer_encode(tokenizer, "", 0, TOKENIZER_ADD_SPECIAL, &ids, e);
    if (bos >= 0) keys_put_int(keys, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
    if (eos >= 0) keys_put_int(keys, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    keys_put_bool(keys, "tokenizer.ggml.add_bos_token", ids.n > 0 && ids.ids[0] == bos);
    tokens_free(&ids);
    tokenizer_close(tokenizer);
    return status;
}

/* The template of conversations, from wherever the folder has it. */
static enum status put_template(struct gguf_keys *keys, const char *folder, struct error *e) {
    struct chat *chat;
    enum status status = chat_open(&chat, folder, e);
    if (status == STATUS_NOT_FOUND) return STATUS_OK;
    if (status) return status;
    struct text_span source = chat_source(chat);
    if (source.text) keys_put_text(keys, "tokenizer.chat_template", source);
    chat_close(chat);
    return STATUS_OK;
}

static enum status put_bpe(struct gguf_keys *keys, const struct json *root, int rows,
                           struct error *e) {
    const struct json *normalizer = json_member(root, "normalizer");
    const struct gguf_pre *pre;
    if (!json_is_absent(normalizer) && !is_type(normalizer, "NFC"))
        return error_set(e, STATUS_UNSUPPORTED,
                         "tokenizer.json: GGUF has no word for its normalizer");
    if (find_name(root, &pre, e)) return e->status;
    struct token_list list = {.texts = xcalloc((size_t)rows, sizeof *list.texts),
                              .kinds = xcalloc((size_t)rows, 1),
                              .n = rows};
    enum status status = read_tokens(&list, root, e);
    if (status == STATUS_OK) {
        keys_put_text(keys, "tokenizer.ggml.model", (struct text_span){"gpt2", 4});
        keys_put_text(keys, "tokenizer.ggml.pre", (struct text_span){pre->name, strlen(pre->name)});
        put_tokens(keys, &list);
        status = put_merges(keys, json_member(json_member(root, "model"), "merges"), e);
    }
    free(list.texts);
    free(list.kinds);
    return status;
}

enum status keys_put_tokenizer(struct gguf_keys *keys, const char *folder, int rows,
                               struct error *e) {
    struct buffer path = {0};
    struct json *root = NULL;
    buffer_printf(&path, "%s/tokenizer.json", folder);
    enum status status = json_parse_file(&root, path.data, e);
    if (status == STATUS_OK && !is_type(json_member(root, "model"), "BPE"))
        status = error_set(e, STATUS_UNSUPPORTED, "%s: only byte-level BPE is written to GGUF",
                           path.data);
    if (status == STATUS_OK) status = put_bpe(keys, root, rows, e);
    if (status == STATUS_OK) status = put_marks(keys, folder, e);
    if (status == STATUS_OK) status = put_template(keys, folder, e);
    json_close(root);
    buffer_free(&path);
    return status;
}
