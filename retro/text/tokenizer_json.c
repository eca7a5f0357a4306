/* retro/text/tokenizer_json.c: the parts of tokenizer.json that every model shares: normaliser, pre-tokeniser, added
 * tokens, post-processor. A part that is not understood is an error, because ignoring it would change ids. `truncation`
 * and `padding` are not read: how long a text may be is the caller's business. */
#include <stdlib.h>
#include <string.h>

#include "retro/text/tokenizer_private.h"

/* The split of GPT-2, which ByteLevel brings along. */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

const char *json_type_name(const struct json *obj) {
    const char *type = json_word(json_member(obj, "type"));
    return type ? type : "";
}

enum status json_get_bool(const struct json *obj, const char *key, bool fallback, bool *out, struct error *e) {
    const struct json *v = json_member(obj, key);
    *out = json_is_absent(v) ? fallback : json_bool(v);
    if (!json_is_absent(v) && json_kind(v) != JSON_KIND_BOOL)
        return error_set(e, STATUS_INVALID, "%s: expected true or false", key);
    return STATUS_OK;
}

/* {"String": "x"} or {"Regex": "x"} */
static enum status open_pattern(struct regex **out, const struct json *pattern, struct error *e) {
    const struct json *literal = json_member(pattern, "String"), *regex = json_member(pattern, "Regex");
    const struct json *either = json_is_text(literal) ? literal : regex;
    if (!json_is_text(either)) return error_set(e, STATUS_INVALID, "pattern: expected a String or a Regex");
    return regex_open(out, json_text(either), either == literal, e);
}

enum status json_read_replace(const struct json *j, struct regex **pattern, char **content, size_t *size,
                              struct error *e) {
    const struct json *text = json_member(j, "content");
    if (!json_is_text(text)) return error_set(e, STATUS_INVALID, "Replace: content: expected a string");
    *size = json_text(text).size;
    *content = xstrndup(json_text(text).text, *size);
    return open_pattern(pattern, json_member(j, "pattern"), e);
}

static enum status open_replace(struct normalizer_step *n, const struct json *j, struct error *e) {
    n->kind = NORMALIZER_REPLACE;
    return json_read_replace(j, &n->regex, &n->content, &n->content_size, e);
}

static enum status open_prepend(struct normalizer_step *n, const struct json *j, struct error *e) {
    const struct json *text = json_member(j, "prepend");
    if (!json_is_text(text)) return error_set(e, STATUS_INVALID, "Prepend: prepend: expected a string");
    n->kind = NORMALIZER_PREPEND;
    n->content_size = json_text(text).size;
    n->content = xstrndup(json_text(text).text, n->content_size);
    return STATUS_OK;
}

static enum status open_bert(struct normalizer_step *n, const struct json *j, struct error *e) {
    n->kind = NORMALIZER_BERT;
    enum status status = json_get_bool(j, "clean_text", true, &n->bert.clean_text, e);
    if (status == STATUS_OK) status = json_get_bool(j, "handle_chinese_chars", true, &n->bert.handle_chinese_chars, e);
    if (status == STATUS_OK) status = json_get_bool(j, "lowercase", true, &n->bert.lowercase, e);
    /* null: accents go when upper case goes. */
    if (status == STATUS_OK) status = json_get_bool(j, "strip_accents", n->bert.lowercase, &n->bert.strip_accents, e);
    return status;
}

static enum status open_strip(struct normalizer_step *n, const struct json *j, struct error *e) {
    n->kind = NORMALIZER_STRIP;
    enum status status = json_get_bool(j, "strip_left", false, &n->strip_left, e);
    return status == STATUS_OK ? json_get_bool(j, "strip_right", false, &n->strip_right, e) : status;
}

static enum status open_normalizer(struct tokenizer *t, const struct json *j, int depth, struct error *e) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    if (json_is_absent(j)) return STATUS_OK;
    const char *type = json_type_name(j);
    if (strcmp(type, "Sequence") == 0 && depth < 8) {
        const struct json *list = json_member(j, "normalizers");
        if (!json_is_list(list)) return error_set(e, STATUS_INVALID, "normalizers: expected a list");
        enum status status = STATUS_OK;
        for (size_t i = 0; i < json_count(list) && status == STATUS_OK; i++)
            status = open_normalizer(t, json_item(list, i), depth + 1, e);
        return status;
    }
    if (t->n_normalizers == TOKENIZER_MAX_NORMALIZERS)
        return error_set(e, STATUS_UNSUPPORTED, "more than %d normalizers", TOKENIZER_MAX_NORMALIZERS);
    struct normalizer_step *n = &t->normalizers[t->n_normalizers];
    t->n_normalizers++;
    if (strcmp(type, "Replace") == 0) return open_replace(n, j, e);
    if (strcmp(type, "Prepend") == 0) return open_prepend(n, j, e);
    if (strcmp(type, "BertNormalizer") == 0) return open_bert(n, j, e);
    if (strcmp(type, "Strip") == 0) return open_strip(n, j, e);
    if (strcmp(type, "Precompiled") == 0) {
        n->kind = NORMALIZER_CHARSMAP;
        return charsmap_open(&n->charsmap, json_member(j, "precompiled_charsmap"), e);
    }
    if (strcmp(type, "Lowercase") == 0) {
        n->kind = NORMALIZER_LOWERCASE;
        return STATUS_OK;
    }
    for (int f = 0; f < (int)ARRAY_COUNT(forms); f++)
        if (strcmp(type, forms[f]) == 0) {
            n->kind = NORMALIZER_FORM;
            n->form = (enum unicode_form)f;
            return STATUS_OK;
        }
    return error_set(e, STATUS_UNSUPPORTED,
                     "type \"%.40s\" is not supported: expected Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Replace, "
                     "Prepend, Strip, Precompiled or BertNormalizer",
                     type);
}

enum status json_open_normalizer(struct tokenizer *t, const struct json *normalizer, struct error *e) {
    if (open_normalizer(t, normalizer, 0, e) == STATUS_OK) return STATUS_OK;
    return error_prefix(e, "normalizer");
}

static enum status add_step(struct pretokenizer *p, struct pretokenizer_step step, struct error *e) {
    if (p->n == PRETOKENIZER_STEPS) {
        regex_close(step.regex);
        return error_set(e, STATUS_UNSUPPORTED, "more than %d steps", PRETOKENIZER_STEPS);
    }
    p->steps[p->n] = step;
    p->n++;
    return STATUS_OK;
}

static enum status add_regex(struct pretokenizer *p, const char *pattern, enum split_behaviour behaviour,
                             struct error *e) {
    struct pretokenizer_step step = {.behaviour = behaviour};
    enum status status = regex_open(&step.regex, (struct text_span){pattern, strlen(pattern)}, false, e);
    return status == STATUS_OK ? add_step(p, step, e) : status;
}

/* The "behavior" of a Split or of Punctuation, which may be absent there. */
static enum status read_behaviour(const struct json *j, enum split_behaviour *out, struct error *e) {
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const struct json *behaviour = json_member(j, "behavior");
    for (int k = 0; k < (int)ARRAY_COUNT(names); k++)
        if (json_text_is(behaviour, names[k])) {
            *out = (enum split_behaviour)k;
            return STATUS_OK;
        }
    const char *shown = json_is_text(behaviour) ? json_text(behaviour).text : "";
    return error_set(e, STATUS_UNSUPPORTED, "behavior \"%.40s\" is not supported", shown);
}

static enum status open_split(struct pretokenizer *p, const struct json *j, struct error *e) {
    struct pretokenizer_step step = {0};
    if (read_behaviour(j, &step.behaviour, e)) return error_prefix(e, "Split");
    if (json_get_bool(j, "invert", false, &step.invert, e) || open_pattern(&step.regex, json_member(j, "pattern"), e))
        return e->status;
    return add_step(p, step, e);
}

static enum status open_punctuation(struct pretokenizer *p, const struct json *j, struct error *e) {
    enum split_behaviour behaviour = SPLIT_ISOLATED;
    if (!json_is_absent(json_member(j, "behavior")) && read_behaviour(j, &behaviour, e))
        return error_prefix(e, "Punctuation");
    return add_step(p, (struct pretokenizer_step){.is_match = unicode_is_punctuation, .behaviour = behaviour}, e);
}

static enum status open_digits(struct pretokenizer *p, const struct json *j, struct error *e) {
    bool individual;
    if (json_get_bool(j, "individual_digits", false, &individual, e)) return e->status;
    return add_regex(p, "\\p{N}", individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, e);
}

/* White space goes, words and runs of other characters stay. */
static enum status open_whitespace(struct pretokenizer *p, struct error *e) {
    if (add_regex(p, "\\s+", SPLIT_REMOVED, e)) return e->status;
    return add_step(p, (struct pretokenizer_step){.is_match = unicode_is_word, .behaviour = SPLIT_CONTIGUOUS}, e);
}

/* White space goes, punctuation stands alone. */
static enum status open_bert_pretokenizer(struct pretokenizer *p, struct error *e) {
    if (add_regex(p, "\\s", SPLIT_REMOVED, e)) return e->status;
    return add_step(p, (struct pretokenizer_step){.is_match = unicode_is_punctuation}, e);
}

static enum status open_byte_level(struct pretokenizer *p, const struct json *j, struct error *e) {
    bool prefix, regex;
    struct pretokenizer_step space = {.kind = PRETOKENIZER_PREFIX_SPACE};
    enum status status = json_get_bool(j, "add_prefix_space", true, &prefix, e);
    if (status == STATUS_OK) status = json_get_bool(j, "use_regex", true, &regex, e);
    if (status == STATUS_OK && prefix) status = add_step(p, space, e);
    if (status == STATUS_OK && regex) status = add_regex(p, gpt2_pattern, SPLIT_ISOLATED, e);
    return status;
}

enum status json_read_metaspace(const struct json *j, struct pretokenizer_step *out, struct error *e) {
    static const char *const schemes[] = {"never", "first", "always"}; /* enum metaspace_prepend */
    const struct json *symbol = json_member(j, "replacement"), *scheme = json_member(j, "prepend_scheme");
    *out = (struct pretokenizer_step){.kind = PRETOKENIZER_METASPACE, .prepend = METASPACE_ALWAYS};
    struct text_span character = json_text(symbol);
    if (character.size == 0 || character.size > sizeof out->symbol ||
        utf8_length(character.text, character.size) != (int)character.size)
        return error_set(e, STATUS_INVALID, "Metaspace: replacement: expected one character");
    out->symbol_size = character.size;
    memcpy(out->symbol, character.text, character.size);

    bool prefix_space;
    enum status status = json_get_bool(j, "add_prefix_space", true, &prefix_space, e);
    if (status != STATUS_OK) return status;
    if (!prefix_space) out->prepend = METASPACE_NEVER;
    if (json_is_absent(scheme)) return STATUS_OK;
    for (int k = 0; k < (int)ARRAY_COUNT(schemes); k++)
        if (json_text_is(scheme, schemes[k])) {
            out->prepend = (enum metaspace_prepend)k;
            return STATUS_OK;
        }
    return error_set(e, STATUS_UNSUPPORTED, "Metaspace: prepend_scheme: expected always, first or never");
}

static enum status open_metaspace(struct pretokenizer *p, const struct json *j, struct error *e) {
    bool cuts;
    struct pretokenizer_step step, cut = {.behaviour = SPLIT_MERGED_NEXT};
    enum status status = json_read_metaspace(j, &step, e);
    if (status == STATUS_OK) status = json_get_bool(j, "split", true, &cuts, e);
    if (status == STATUS_OK) status = add_step(p, step, e);
    if (status != STATUS_OK || !cuts) return status;
    status = regex_open(&cut.regex, (struct text_span){step.symbol, step.symbol_size}, true, e);
    return status == STATUS_OK ? add_step(p, cut, e) : status;
}

/* A pre-tokenizer being read. ByteLevel turns text into bytes, so it is there once and last, and never where a model
 * takes text. */
struct pretokenizer_reading {
    struct pretokenizer *p;
    bool takes_text, byte_level;
};

static enum status open_pretokenizer(struct pretokenizer_reading *r, const struct json *j, int depth, struct error *e) {
    const char *type = json_type_name(j);
    if (strcmp(type, "Sequence") == 0 && depth < 8) {
        const struct json *list = json_member(j, "pretokenizers");
        if (!json_is_list(list)) return error_set(e, STATUS_INVALID, "pretokenizers: expected a list");
        enum status status = STATUS_OK;
        for (size_t i = 0; i < json_count(list) && status == STATUS_OK; i++)
            status = open_pretokenizer(r, json_item(list, i), depth + 1, e);
        return status;
    }
    if (r->byte_level) return error_set(e, STATUS_UNSUPPORTED, "\"%.40s\" after ByteLevel is not supported", type);
    if (!r->takes_text && strcmp(type, "ByteLevel") == 0) {
        r->byte_level = true;
        return open_byte_level(r->p, j, e);
    }
    if (strcmp(type, "Metaspace") == 0) return open_metaspace(r->p, j, e);
    if (strcmp(type, "Split") == 0) return open_split(r->p, j, e);
    if (strcmp(type, "Digits") == 0) return open_digits(r->p, j, e);
    if (strcmp(type, "Punctuation") == 0) return open_punctuation(r->p, j, e);
    if (strcmp(type, "Whitespace") == 0) return open_whitespace(r->p, e);
    if (strcmp(type, "WhitespaceSplit") == 0) return add_regex(r->p, "\\s+", SPLIT_REMOVED, e);
    if (strcmp(type, "BertPreTokenizer") == 0) return open_bert_pretokenizer(r->p, e);
    return error_set(e, STATUS_UNSUPPORTED,
                     "type \"%.40s\" is not supported: expected Sequence, %sMetaspace, Split, Digits, Punctuation, "
                     "Whitespace, WhitespaceSplit or BertPreTokenizer",
                     type, r->takes_text ? "" : "ByteLevel, ");
}

enum status json_open_pretokenizer(struct pretokenizer *p, const struct json *pre, bool *byte_level, struct error *e) {
    struct pretokenizer_reading r = {p, byte_level == NULL, false};
    if (!json_is_absent(pre) && open_pretokenizer(&r, pre, 0, e)) return error_prefix(e, "pre_tokenizer");
    if (byte_level != NULL) *byte_level = r.byte_level;
    return STATUS_OK;
}

/* Whether a byte-level vocabulary writes this text as it is. */
static bool is_printable(struct text_span s) {
    for (size_t i = 0; i < s.size; i++)
        if (s.text[i] < '!' || s.text[i] > '~') return false;
    return true;
}

/* Gives an added token its id: the model's when it has the content, else the id in the file. Only printable
 * ASCII looks the same in a byte-level vocabulary and in a text, so only there can the two disagree. */
static enum status claim_id(struct tokenizer *t, struct text_span content, const struct added_token *token,
                            int32_t known, struct error *e) {
    if (known >= 0 && known != token->id && is_printable(content))
        return error_set(e, STATUS_INVALID, "\"%.60s\": id %d here, but %d in the model's vocabulary", content.text,
                         (int)token->id, (int)known);
    enum status status = known == token->id ? STATUS_OK : pieces_set(t, token->id, content, e);
    if (status != STATUS_OK) return status;
    struct piece *p = &t->pieces[token->id];
    p->special = p->special || token->special;
    p->mark = p->mark || token->mark;
    return STATUS_OK;
}

/* Reads an added token: its content and flags, with `id`, which tokenizer.json writes inside and others outside. */
static enum status read_added(const struct json *j, int64_t id, struct text_span *content, struct added_token *token,
                              bool *normalized, struct error *e) {
    if (!json_is_text(json_member(j, "content")))
        return error_set(e, STATUS_INVALID, "expected objects with an integer id and a string content");
    *content = json_text(json_member(j, "content"));
    if (content->size == 0 || content->size > TOKENIZER_MAX_ADDED_BYTES)
        return error_set(e, STATUS_UNSUPPORTED, "content of %zu bytes: expected 1 to %d", content->size,
                         TOKENIZER_MAX_ADDED_BYTES);
    if (id < 0 || id >= TOKENIZER_MAX_ID)
        return error_set(e, STATUS_INVALID, "id %lld: expected 0 to %d", (long long)id, TOKENIZER_MAX_ID - 1);
    *token = (struct added_token){.id = (int32_t)id};
    enum status status = json_get_bool(j, "special", false, &token->special, e);
    token->mark = token->special || added_reads_as_mark(*content); /* of the content before it is normalised */
    if (status == STATUS_OK) status = json_get_bool(j, "lstrip", false, &token->lstrip, e);
    if (status == STATUS_OK) status = json_get_bool(j, "rstrip", false, &token->rstrip, e);
    if (status == STATUS_OK) status = json_get_bool(j, "single_word", false, &token->single_word, e);
    if (status == STATUS_OK) status = json_get_bool(j, "normalized", !token->special, normalized, e);
    return status;
}

static enum status open_added(struct tokenizer *t, const struct json *j, const struct piece_table *model_pieces,
                              struct error *e) {
    const struct json *id = json_member(j, "id");
    struct added_token token;
    struct text_span text;
    bool normalized;
    enum status status = read_added(j, json_is_int(id) ? json_int(id) : -1, &text, &token, &normalized, e);
    if (status != STATUS_OK) return status;
    int32_t known = piece_table_find(model_pieces, t, text.text, text.size);
    status = claim_id(t, text, &token, known, e);
    if (status != STATUS_OK || !normalized) {
        if (status == STATUS_OK) added_set_append(&t->added_raw, text, token);
        return status;
    }
    struct mapped_buffer store = {0};
    struct mapped_text form = {text.text, text.size, NULL, 0};
    status = normalizers_run(t, &form, &store, e);
    if (status == STATUS_OK && form.size > 0)
        added_set_append(&t->added_normalised, (struct text_span){form.text, form.size}, token);
    mapped_free(&store);
    return status;
}

/* One entry of added_tokens_decoder. known: the tokens the model file has, sorted. */
static enum status open_decoder_token(struct tokenizer *t, struct text_span key, const struct json *j,
                                      const struct piece_table *model_pieces, const struct added_set *known,
                                      struct error *e) {
    char *end;
    long long id = strtoll(key.text, &end, 10);
    struct added_token token;
    struct text_span text;
    bool normalized;
    if (key.size == 0 || end != key.text + key.size) return error_set(e, STATUS_INVALID, "expected an id for a key");
    enum status status = read_added(j, id, &text, &token, &normalized, e);
    if (status != STATUS_OK) return status;
    status = claim_id(t, text, &token, piece_table_find(model_pieces, t, text.text, text.size), e);
    if (status != STATUS_OK) return status;

    /* These tokenizers cut tokens out of the text as it comes, whatever `normalized` says. */
    struct added_token *there = added_set_get(known, text);
    if (there == NULL) {
        added_set_append(&t->added_raw, text, token);
        return STATUS_OK;
    }
    there->special = token.special;
    there->mark = token.mark;
    there->lstrip = token.lstrip;
    there->rstrip = token.rstrip;
    there->single_word = token.single_word;
    return STATUS_OK;
}

enum status json_open_decoder_tokens(struct tokenizer *t, const struct json *tokens, struct error *e) {
    if (json_is_absent(tokens)) return STATUS_OK;
    if (json_kind(tokens) != JSON_KIND_OBJECT)
        return error_set(e, STATUS_INVALID, "added_tokens_decoder: expected an object");
    struct piece_table table;
    piece_table_open(&table, t, NULL);
    struct added_set known = t->added_raw;
    t->added_raw = (struct added_set){0};
    memcpy(t->added_raw.first, known.first, sizeof known.first);

    enum status status = STATUS_OK;
    for (struct json_entry it = {0}; json_next(tokens, &it);) {
        status = open_decoder_token(t, it.name, it.value, &table, &known, e);
        if (status == STATUS_OK) continue;
        error_prefix(e, "added_tokens_decoder: \"%.20s\"", it.name.text);
        break;
    }
    for (int i = 0; i < known.n; i++)
        added_set_append(&t->added_raw, (struct text_span){known.tokens[i].content, known.tokens[i].size},
                         known.tokens[i]);
    added_set_free(&known);
    free(table.slots);
    return status == STATUS_OK ? added_set_sort(&t->added_raw, e) : status;
}

enum status json_open_added(struct tokenizer *t, const struct json *added, struct error *e) {
    if (json_is_absent(added)) return STATUS_OK;
    if (!json_is_list(added)) return error_set(e, STATUS_INVALID, "added_tokens: expected a list");
    struct piece_table table;
    piece_table_open(&table, t, NULL);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < json_count(added) && status == STATUS_OK; i++) {
        status = open_added(t, json_item(added, i), &table, e);
        if (status != STATUS_OK) error_prefix(e, "added_tokens[%zu]", i);
    }
    free(table.slots);
    if (status == STATUS_OK) status = added_set_sort(&t->added_raw, e);
    if (status == STATUS_OK) status = added_set_sort(&t->added_normalised, e);
    return status;
}

static enum status affix_add(const struct tokenizer *t, struct affix *a, const struct json *id, struct error *e) {
    if (!json_is_int(id) || json_int(id) < 0 || json_int(id) >= t->vocab_size)
        return error_set(e, STATUS_INVALID, "a token that is not in the vocabulary");
    if (a->n == TOKENIZER_MAX_AFFIX)
        return error_set(e, STATUS_UNSUPPORTED, "more than %d tokens before or after a text", TOKENIZER_MAX_AFFIX);
    a->ids[a->n] = (int32_t)json_int(id);
    a->n++;
    return STATUS_OK;
}

static enum status open_template(struct tokenizer *t, const struct json *j, struct error *e) {
    const struct json *single = json_member(j, "single"), *specials = json_member(j, "special_tokens");
    struct affix *affix = &t->prefix;
    if (t->prefix.n + t->suffix.n > 0)
        return error_set(e, STATUS_UNSUPPORTED, "two post-processors that add tokens: one is supported");
    if (!json_is_list(single)) return error_set(e, STATUS_UNSUPPORTED, "single: expected a list");
    for (size_t i = 0; i < json_count(single); i++) {
        const struct json *part = json_item(single, i);
        const char *special = json_text(json_member(json_member(part, "SpecialToken"), "id")).text;
        const char *text = json_text(json_member(json_member(part, "Sequence"), "id")).text;
        if (text != NULL && strcmp(text, "A") == 0 && affix == &t->prefix) {
            affix = &t->suffix;
            continue;
        }
        const struct json *ids = special ? json_member(json_member(specials, special), "ids") : NULL;
        if (!json_is_list(ids)) return error_set(e, STATUS_INVALID, "single[%zu]: not understood", i);
        for (size_t k = 0; k < json_count(ids); k++) {
            enum status status = affix_add(t, affix, json_item(ids, k), e);
            if (status != STATUS_OK) return status;
        }
    }
    if (affix == &t->prefix) return error_set(e, STATUS_INVALID, "single: the text itself (sequence A) is missing");
    return STATUS_OK;
}

static enum status open_postprocessor(struct tokenizer *t, const struct json *j, int depth, struct error *e) {
    if (json_is_absent(j)) return STATUS_OK;
    const char *type = json_type_name(j);
    if (strcmp(type, "ByteLevel") == 0) return STATUS_OK; /* It only trims offsets. */
    if (strcmp(type, "TemplateProcessing") == 0) return open_template(t, j, e);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
        enum status status = affix_add(t, &t->prefix, json_item(json_member(j, "cls"), 1), e);
        return status ? status : affix_add(t, &t->suffix, json_item(json_member(j, "sep"), 1), e);
    }
    if (strcmp(type, "Sequence") == 0 && depth < 8) {
        const struct json *list = json_member(j, "processors");
        if (!json_is_list(list)) return error_set(e, STATUS_INVALID, "processors: expected a list");
        for (size_t i = 0; i < json_count(list); i++) {
            enum status status = open_postprocessor(t, json_item(list, i), depth + 1, e);
            if (status != STATUS_OK) return status;
        }
        return STATUS_OK;
    }
    return error_set(e, STATUS_UNSUPPORTED, "type \"%.40s\" is not supported", type);
}

enum status json_open_postprocessor(struct tokenizer *t, const struct json *post, struct error *e) {
    if (open_postprocessor(t, post, 0, e) == STATUS_OK) return STATUS_OK;
    return error_prefix(e, "post_processor");
}
