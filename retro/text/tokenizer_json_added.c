/* retro/text/tokenizer_json_added.c: the added tokens and the post-processor of tokenizer.json,
 * which every model shares. A part that is not understood is an error, because ignoring it would
 * change ids. */
#include <stdlib.h>
#include <string.h>

#include "retro/text/tokenizer_private.h"

/* Whether a byte-level vocabulary writes this text as it is. */
static bool is_printable(struct text_span span) {
    for (size_t i = 0; i < span.size; i++)
        if (span.text[i] < '!' || span.text[i] > '~') return false;
    return true;
}

/* Gives an added token its id: the model's when it has the content, else the id in the file. Only
 * printable ASCII looks the same in a byte-level vocabulary and in a text, so only there can the
 * two disagree. */
static enum status claim_id(struct tokenizer *tokenizer, struct text_span content,
                            const struct added_token *token, int32_t known, struct error *e) {
    if (known >= 0 && known != token->id && is_printable(content))
        return error_set(e, STATUS_INVALID,
                         "\"%.60s\": id %d here, but %d in the model's vocabulary", content.text,
                         (int)token->id, (int)known);
    enum status status =
        known == token->id ? STATUS_OK : pieces_set(tokenizer, token->id, content, e);
    if (status != STATUS_OK) return status;
    struct piece *piece = &tokenizer->pieces[token->id];
    piece->special = piece->special || token->special;
    piece->mark = piece->mark || token->mark;
    return STATUS_OK;
}

/* Reads an added token: its content and flags, with `id`, which tokenizer.json writes inside and
 * others outside. */
static enum status read_added(const struct json *json, int64_t id, struct text_span *content,
                              struct added_token *token, bool *normalized, struct error *e) {
    if (!json_is_text(json_member(json, "content")))
        return error_set(e, STATUS_INVALID,
                         "expected objects with an integer id and a string content");
    *content = json_text(json_member(json, "content"));
    if (content->size == 0 || content->size > TOKENIZER_MAX_ADDED_BYTES)
        return error_set(e, STATUS_UNSUPPORTED, "content of %zu bytes: expected 1 to %d",
                         content->size, TOKENIZER_MAX_ADDED_BYTES);
    if (id < 0 || id >= TOKENIZER_MAX_ID)
        return error_set(e, STATUS_INVALID, "id %lld: expected 0 to %d", (long long)id,
                         TOKENIZER_MAX_ID - 1);
    *token = (struct added_token){.id = (int32_t)id};
    enum status status = json_get_bool(json, "special", false, &token->special, e);
    token->mark = token->special ||
                  added_reads_as_mark(*content); /* of the content before it is normalised */
    if (status == STATUS_OK) status = json_get_bool(json, "lstrip", false, &token->lstrip, e);
    if (status == STATUS_OK) status = json_get_bool(json, "rstrip", false, &token->rstrip, e);
    if (status == STATUS_OK)
        status = json_get_bool(json, "single_word", false, &token->single_word, e);
    if (status == STATUS_OK)
        status = json_get_bool(json, "normalized", !token->special, normalized, e);
    return status;
}

static enum status open_added(struct tokenizer *tokenizer, const struct json *json,
                              const struct piece_table *model_pieces, struct error *e) {
    const struct json *id = json_member(json, "id");
    struct added_token token;
    struct text_span text;
    bool normalized;
    enum status status =
        read_added(json, json_is_int(id) ? json_int(id) : -1, &text, &token, &normalized, e);
    if (status != STATUS_OK) return status;
    int32_t known = piece_table_find(model_pieces, tokenizer, text.text, text.size);
    status = claim_id(tokenizer, text, &token, known, e);
    if (status != STATUS_OK || !normalized) {
        if (status == STATUS_OK) added_set_append(&tokenizer->added_raw, text, token);
        return status;
    }
    struct mapped_buffer store = {0};
    struct mapped_text form = {text.text, text.size, NULL, 0};
    status = normalizers_run(tokenizer, &form, &store, e);
    if (status == STATUS_OK && form.size > 0)
        added_set_append(&tokenizer->added_normalised, (struct text_span){form.text, form.size},
                         token);
    mapped_free(&store);
    return status;
}

/* One entry of added_tokens_decoder. known: the tokens the model file has, sorted. */
static enum status open_decoder_token(struct tokenizer *tokenizer, struct text_span key,
                                      const struct json *json,
                                      const struct piece_table *model_pieces,
                                      const struct added_set *known, struct error *e) {
    char *end;
    long long id = strtoll(key.text, &end, 10);
    struct added_token token;
    struct text_span text;
    bool normalized;
    if (key.size == 0 || end != key.text + key.size)
        return error_set(e, STATUS_INVALID, "expected an id for a key");
    enum status status = read_added(json, id, &text, &token, &normalized, e);
    if (status != STATUS_OK) return status;
    status = claim_id(tokenizer, text, &token,
                      piece_table_find(model_pieces, tokenizer, text.text, text.size), e);
    if (status != STATUS_OK) return status;

    /* These tokenizers cut tokens out of the text as it comes, whatever `normalized` says. */
    struct added_token *there = added_set_get(known, text);
    if (there == NULL) {
        added_set_append(&tokenizer->added_raw, text, token);
        return STATUS_OK;
    }
    there->special = token.special;
    there->mark = token.mark;
    there->lstrip = token.lstrip;
    there->rstrip = token.rstrip;
    there->single_word = token.single_word;
    return STATUS_OK;
}

enum status json_open_decoder_tokens(struct tokenizer *tokenizer, const struct json *tokens,
                                     struct error *e) {
    if (json_is_absent(tokens)) return STATUS_OK;
    if (json_kind(tokens) != JSON_KIND_OBJECT)
        return error_set(e, STATUS_INVALID, "added_tokens_decoder: expected an object");
    struct piece_table table;
    piece_table_open(&table, tokenizer, NULL);
    struct added_set known = tokenizer->added_raw;
    tokenizer->added_raw = (struct added_set){0};
    memcpy(tokenizer->added_raw.first, known.first, sizeof known.first);

    enum status status = STATUS_OK;
    for (struct json_entry it = {0}; json_next(tokens, &it);) {
        status = open_decoder_token(tokenizer, it.name, it.value, &table, &known, e);
        if (status == STATUS_OK) continue;
        error_prefix(e, "added_tokens_decoder: \"%.20s\"", it.name.text);
        break;
    }
    for (int i = 0; i < known.n; i++)
        added_set_append(&tokenizer->added_raw,
                         (struct text_span){known.tokens[i].content, known.tokens[i].size},
                         known.tokens[i]);
    added_set_free(&known);
    free(table.slots);
    return status == STATUS_OK ? added_set_sort(&tokenizer->added_raw, e) : status;
}

enum status json_open_added(struct tokenizer *tokenizer, const struct json *added,
                            struct error *e) {
    if (json_is_absent(added)) return STATUS_OK;
    if (!json_is_list(added)) return error_set(e, STATUS_INVALID, "added_tokens: expected a list");
    struct piece_table table;
    piece_table_open(&table, tokenizer, NULL);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < json_count(added) && status == STATUS_OK; i++) {
        status = open_added(tokenizer, json_item(added, i), &table, e);
        if (status != STATUS_OK) error_prefix(e, "added_tokens[%zu]", i);
    }
    free(table.slots);
    if (status == STATUS_OK) status = added_set_sort(&tokenizer->added_raw, e);
    if (status == STATUS_OK) status = added_set_sort(&tokenizer->added_normalised, e);
    return status;
}

static enum status affix_add(const struct tokenizer *tokenizer, struct affix *affix,
                             const struct json *id, struct error *e) {
    if (!json_is_int(id) || json_int(id) < 0 || json_int(id) >= tokenizer->vocab_size)
        return error_set(e, STATUS_INVALID, "a token that is not in the vocabulary");
    if (affix->n == TOKENIZER_MAX_AFFIX)
        return error_set(e, STATUS_UNSUPPORTED, "more than %d tokens before or after a text",
                         TOKENIZER_MAX_AFFIX);
    affix->ids[affix->n] = (int32_t)json_int(id);
    affix->n++;
    return STATUS_OK;
}

static enum status open_template(struct tokenizer *tokenizer, const struct json *json,
                                 struct error *e) {
    const struct json *single = json_member(json, "single"),
                      *specials = json_member(json, "special_tokens");
    struct affix *affix = &tokenizer->prefix;
    if (tokenizer->prefix.n + tokenizer->suffix.n > 0)
        return error_set(e, STATUS_UNSUPPORTED,
                         "two post-processors that add tokens: one is supported");
    if (!json_is_list(single)) return error_set(e, STATUS_UNSUPPORTED, "single: expected a list");
    for (size_t i = 0; i < json_count(single); i++) {
        const struct json *part = json_item(single, i);
        const char *special = json_text(json_member(json_member(part, "SpecialToken"), "id")).text;
        const char *text = json_text(json_member(json_member(part, "Sequence"), "id")).text;
        if (text != NULL && strcmp(text, "A") == 0 && affix == &tokenizer->prefix) {
            affix = &tokenizer->suffix;
            continue;
        }
        const struct json *ids =
            special ? json_member(json_member(specials, special), "ids") : NULL;
        if (!json_is_list(ids))
            return error_set(e, STATUS_INVALID, "single[%zu]: not understood", i);
        for (size_t k = 0; k < json_count(ids); k++) {
            enum status status = affix_add(tokenizer, affix, json_item(ids, k), e);
            if (status != STATUS_OK) return status;
        }
    }
    if (affix == &tokenizer->prefix)
        return error_set(e, STATUS_INVALID, "single: the text itself (sequence A) is missing");
    return STATUS_OK;
}

static enum status open_postprocessor(struct tokenizer *tokenizer, const struct json *json,
                                      int depth, struct error *e) {
    if (json_is_absent(json)) return STATUS_OK;
    const char *type = json_type_name(json);
    if (strcmp(type, "ByteLevel") == 0) return STATUS_OK; /* It only trims offsets. */
    if (strcmp(type, "TemplateProcessing") == 0) return open_template(tokenizer, json, e);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
        enum status status =
            affix_add(tokenizer, &tokenizer->prefix, json_item(json_member(json, "cls"), 1), e);
        return status ? status
                      : affix_add(tokenizer, &tokenizer->suffix,
                                  json_item(json_member(json, "sep"), 1), e);
    }
    if (strcmp(type, "Sequence") == 0 && depth < 8) {
        const struct json *list = json_member(json, "processors");
        if (!json_is_list(list)) return error_set(e, STATUS_INVALID, "processors: expected a list");
        for (size_t i = 0; i < json_count(list); i++) {
            enum status status = open_postprocessor(tokenizer, json_item(list, i), depth + 1, e);
            if (status != STATUS_OK) return status;
        }
        return STATUS_OK;
    }
    return error_set(e, STATUS_UNSUPPORTED, "type \"%.40s\" is not supported", type);
}

enum status json_open_postprocessor(struct tokenizer *tokenizer, const struct json *post,
                                    struct error *e) {
    if (open_postprocessor(tokenizer, post, 0, e) == STATUS_OK) return STATUS_OK;
    return error_prefix(e, "post_processor");
}
