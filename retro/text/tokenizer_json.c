/* retro/text/tokenizer_json.c: the normaliser and the pre-tokeniser of tokenizer.json, which every
 * model shares. A part that is not understood is an error, because ignoring it would change ids.
 * `truncation` and `padding` are not read: how long a text may be is the caller's business. */
#include <stdlib.h>
#include <string.h>

#include "retro/text/tokenizer_private.h"

/* The split of GPT-2, which ByteLevel brings along. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

const char *json_type_name(const struct json *obj) {
    const char *type = json_word(json_member(obj, "type"));
    return type ? type : "";
}

enum status json_get_bool(const struct json *obj, const char *key, bool fallback, bool *out,
                          struct error *e) {
    const struct json *json = json_member(obj, key);
    *out = json_is_absent(json) ? fallback : json_bool(json);
    if (!json_is_absent(json) && json_kind(json) != JSON_KIND_BOOL)
        return error_set(e, STATUS_INVALID, "%s: expected true or false", key);
    return STATUS_OK;
}

/* {"String": "x"} or {"Regex": "x"} */
static enum status open_pattern(struct regex **out, const struct json *pattern, struct error *e) {
    const struct json *literal = json_member(pattern, "String"),
                      *regex = json_member(pattern, "Regex");
    const struct json *either = json_is_text(literal) ? literal : regex;
    if (!json_is_text(either))
        return error_set(e, STATUS_INVALID, "pattern: expected a String or a Regex");
    return regex_open(out, json_text(either), either == literal, e);
}

enum status json_read_replace(const struct json *json, struct regex **pattern, char **content,
                              size_t *size, struct error *e) {
    const struct json *text = json_member(json, "content");
    if (!json_is_text(text))
        return error_set(e, STATUS_INVALID, "Replace: content: expected a string");
    *size = json_text(text).size;
    *content = xstrndup(json_text(text).text, *size);
    return open_pattern(pattern, json_member(json, "pattern"), e);
}

static enum status open_replace(struct normalizer_step *step, const struct json *json,
                                struct error *e) {
    step->kind = NORMALIZER_REPLACE;
    return json_read_replace(json, &step->regex, &step->content, &step->content_size, e);
}

static enum status open_prepend(struct normalizer_step *step, const struct json *json,
                                struct error *e) {
    const struct json *text = json_member(json, "prepend");
    if (!json_is_text(text))
        return error_set(e, STATUS_INVALID, "Prepend: prepend: expected a string");
    step->kind = NORMALIZER_PREPEND;
    step->content_size = json_text(text).size;
    step->content = xstrndup(json_text(text).text, step->content_size);
    return STATUS_OK;
}

static enum status open_bert(struct normalizer_step *step, const struct json *json,
                             struct error *e) {
    step->kind = NORMALIZER_BERT;
    enum status status = json_get_bool(json, "clean_text", true, &step->bert.clean_text, e);
    if (status == STATUS_OK)
        status =
            json_get_bool(json, "handle_chinese_chars", true, &step->bert.handle_chinese_chars, e);
    if (status == STATUS_OK)
        status = json_get_bool(json, "lowercase", true, &step->bert.lowercase, e);
    /* null: accents go when upper case goes. */
    if (status == STATUS_OK)
        status = json_get_bool(json, "strip_accents", step->bert.lowercase,
                               &step->bert.strip_accents, e);
    return status;
}

static enum status open_strip(struct normalizer_step *step, const struct json *json,
                              struct error *e) {
    step->kind = NORMALIZER_STRIP;
    enum status status = json_get_bool(json, "strip_left", false, &step->strip_left, e);
    return status == STATUS_OK ? json_get_bool(json, "strip_right", false, &step->strip_right, e)
                               : status;
}

static enum status open_normalizer(struct tokenizer *tokenizer, const struct json *json, int depth,
                                   struct error *e) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    if (json_is_absent(json)) return STATUS_OK;
    const char *type = json_type_name(json);
    if (strcmp(type, "Sequence") == 0 && depth < 8) {
        const struct json *list = json_member(json, "normalizers");
        if (!json_is_list(list))
            return error_set(e, STATUS_INVALID, "normalizers: expected a list");
        enum status status = STATUS_OK;
        for (size_t i = 0; i < json_count(list) && status == STATUS_OK; i++)
            status = open_normalizer(tokenizer, json_item(list, i), depth + 1, e);
        return status;
    }
    if (tokenizer->n_normalizers == TOKENIZER_MAX_NORMALIZERS)
        return error_set(e, STATUS_UNSUPPORTED, "more than %d normalizers",
                         TOKENIZER_MAX_NORMALIZERS);
    struct normalizer_step *step = &tokenizer->normalizers[tokenizer->n_normalizers];
    tokenizer->n_normalizers++;
    if (strcmp(type, "Replace") == 0) return open_replace(step, json, e);
    if (strcmp(type, "Prepend") == 0) return open_prepend(step, json, e);
    if (strcmp(type, "BertNormalizer") == 0) return open_bert(step, json, e);
    if (strcmp(type, "Strip") == 0) return open_strip(step, json, e);
    if (strcmp(type, "Precompiled") == 0) {
        step->kind = NORMALIZER_CHARSMAP;
        return charsmap_open(&step->charsmap, json_member(json, "precompiled_charsmap"), e);
    }
    if (strcmp(type, "Lowercase") == 0) {
        step->kind = NORMALIZER_LOWERCASE;
        return STATUS_OK;
    }
    for (int f = 0; f < (int)ARRAY_COUNT(forms); f++)
        if (strcmp(type, forms[f]) == 0) {
            step->kind = NORMALIZER_FORM;
            step->form = (enum unicode_form)f;
            return STATUS_OK;
        }
    return error_set(e, STATUS_UNSUPPORTED,
                     "type \"%.40s\" is not supported: expected Sequence, NFC, NFD, NFKC, NFKD, "
                     "Lowercase, Replace, "
                     "Prepend, Strip, Precompiled or BertNormalizer",
                     type);
}

enum status json_open_normalizer(struct tokenizer *tokenizer, const struct json *normalizer,
                                 struct error *e) {
    if (open_normalizer(tokenizer, normalizer, 0, e) == STATUS_OK) return STATUS_OK;
    return error_prefix(e, "normalizer");
}

static enum status add_step(struct pretokenizer *pretokenizer, struct pretokenizer_step step,
                            struct error *e) {
    if (pretokenizer->n == PRETOKENIZER_STEPS) {
        regex_close(step.regex);
        return error_set(e, STATUS_UNSUPPORTED, "more than %d steps", PRETOKENIZER_STEPS);
    }
    pretokenizer->steps[pretokenizer->n] = step;
    pretokenizer->n++;
    return STATUS_OK;
}

static enum status add_regex(struct pretokenizer *pretokenizer, const char *pattern,
                             enum split_behaviour behaviour, struct error *e) {
    struct pretokenizer_step step = {.behaviour = behaviour};
    enum status status =
        regex_open(&step.regex, (struct text_span){pattern, strlen(pattern)}, false, e);
    return status == STATUS_OK ? add_step(pretokenizer, step, e) : status;
}

/* The "behavior" of a Split or of Punctuation, which may be absent there. */
static enum status read_behaviour(const struct json *json, enum split_behaviour *out,
                                  struct error *e) {
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const struct json *behaviour = json_member(json, "behavior");
    for (int k = 0; k < (int)ARRAY_COUNT(names); k++)
        if (json_text_is(behaviour, names[k])) {
            *out = (enum split_behaviour)k;
            return STATUS_OK;
        }
    const char *shown = json_is_text(behaviour) ? json_text(behaviour).text : "";
    return error_set(e, STATUS_UNSUPPORTED, "behavior \"%.40s\" is not supported", shown);
}

static enum status open_split(struct pretokenizer *pretokenizer, const struct json *json,
                              struct error *e) {
    struct pretokenizer_step step = {0};
    if (read_behaviour(json, &step.behaviour, e)) return error_prefix(e, "Split");
    if (json_get_bool(json, "invert", false, &step.invert, e) ||
        open_pattern(&step.regex, json_member(json, "pattern"), e))
        return e->status;
    return add_step(pretokenizer, step, e);
}

static enum status open_punctuation(struct pretokenizer *pretokenizer, const struct json *json,
                                    struct error *e) {
    enum split_behaviour behaviour = SPLIT_ISOLATED;
    if (!json_is_absent(json_member(json, "behavior")) && read_behaviour(json, &behaviour, e))
        return error_prefix(e, "Punctuation");
    return add_step(
        pretokenizer,
        (struct pretokenizer_step){.is_match = unicode_is_punctuation, .behaviour = behaviour}, e);
}

static enum status open_digits(struct pretokenizer *pretokenizer, const struct json *json,
                               struct error *e) {
    bool individual;
    if (json_get_bool(json, "individual_digits", false, &individual, e)) return e->status;
    return add_regex(pretokenizer, "\\p{N}", individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, e);
}

/* White space goes, words and runs of other characters stay. */
static enum status open_whitespace(struct pretokenizer *pretokenizer, struct error *e) {
    if (add_regex(pretokenizer, "\\s+", SPLIT_REMOVED, e)) return e->status;
    return add_step(
        pretokenizer,
        (struct pretokenizer_step){.is_match = unicode_is_word, .behaviour = SPLIT_CONTIGUOUS}, e);
}

/* White space goes, punctuation stands alone. */
static enum status open_bert_pretokenizer(struct pretokenizer *pretokenizer, struct error *e) {
    if (add_regex(pretokenizer, "\\s", SPLIT_REMOVED, e)) return e->status;
    return add_step(pretokenizer, (struct pretokenizer_step){.is_match = unicode_is_punctuation},
                    e);
}

static enum status open_byte_level(struct pretokenizer *pretokenizer, const struct json *json,
                                   struct error *e) {
    bool prefix, regex;
    struct pretokenizer_step space = {.kind = PRETOKENIZER_PREFIX_SPACE};
    enum status status = json_get_bool(json, "add_prefix_space", true, &prefix, e);
    if (status == STATUS_OK) status = json_get_bool(json, "use_regex", true, &regex, e);
    if (status == STATUS_OK && prefix) status = add_step(pretokenizer, space, e);
    if (status == STATUS_OK && regex)
        status = add_regex(pretokenizer, gpt2_pattern, SPLIT_ISOLATED, e);
    return status;
}

enum status json_read_metaspace(const struct json *json, struct pretokenizer_step *out,
                                struct error *e) {
    static const char *const schemes[] = {"never", "first", "always"}; /* enum metaspace_prepend */
    const struct json *symbol = json_member(json, "replacement"),
                      *scheme = json_member(json, "prepend_scheme");
    *out = (struct pretokenizer_step){.kind = PRETOKENIZER_METASPACE, .prepend = METASPACE_ALWAYS};
    struct text_span character = json_text(symbol);
    if (character.size == 0 || character.size > sizeof out->symbol ||
        utf8_length(character.text, character.size) != (int)character.size)
        return error_set(e, STATUS_INVALID, "Metaspace: replacement: expected one character");
    out->symbol_size = character.size;
    memcpy(out->symbol, character.text, character.size);

    bool prefix_space;
    enum status status = json_get_bool(json, "add_prefix_space", true, &prefix_space, e);
    if (status != STATUS_OK) return status;
    if (!prefix_space) out->prepend = METASPACE_NEVER;
    if (json_is_absent(scheme)) return STATUS_OK;
    for (int k = 0; k < (int)ARRAY_COUNT(schemes); k++)
        if (json_text_is(scheme, schemes[k])) {
            out->prepend = (enum metaspace_prepend)k;
            return STATUS_OK;
        }
    return error_set(e, STATUS_UNSUPPORTED,
                     "Metaspace: prepend_scheme: expected always, first or never");
}

static enum status open_metaspace(struct pretokenizer *pretokenizer, const struct json *json,
                                  struct error *e) {
    bool cuts;
    struct pretokenizer_step step, cut = {.behaviour = SPLIT_MERGED_NEXT};
    enum status status = json_read_metaspace(json, &step, e);
    if (status == STATUS_OK) status = json_get_bool(json, "split", true, &cuts, e);
    if (status == STATUS_OK) status = add_step(pretokenizer, step, e);
    if (status != STATUS_OK || !cuts) return status;
    status = regex_open(&cut.regex, (struct text_span){step.symbol, step.symbol_size}, true, e);
    return status == STATUS_OK ? add_step(pretokenizer, cut, e) : status;
}

/* A pre-tokenizer being read. ByteLevel turns text into bytes, so it is there once and last, and
 * never where a model takes text. */
struct pretokenizer_reading {
    struct pretokenizer *p;
    bool takes_text, byte_level;
};

static enum status open_pretokenizer(struct pretokenizer_reading *reading, const struct json *json,
                                     int depth, struct error *e) {
    const char *type = json_type_name(json);
    if (strcmp(type, "Sequence") == 0 && depth < 8) {
        const struct json *list = json_member(json, "pretokenizers");
        if (!json_is_list(list))
            return error_set(e, STATUS_INVALID, "pretokenizers: expected a list");
        enum status status = STATUS_OK;
        for (size_t i = 0; i < json_count(list) && status == STATUS_OK; i++)
            status = open_pretokenizer(reading, json_item(list, i), depth + 1, e);
        return status;
    }
    if (reading->byte_level)
        return error_set(e, STATUS_UNSUPPORTED, "\"%.40s\" after ByteLevel is not supported", type);
    if (!reading->takes_text && strcmp(type, "ByteLevel") == 0) {
        reading->byte_level = true;
        return open_byte_level(reading->p, json, e);
    }
    if (strcmp(type, "Metaspace") == 0) return open_metaspace(reading->p, json, e);
    if (strcmp(type, "Split") == 0) return open_split(reading->p, json, e);
    if (strcmp(type, "Digits") == 0) return open_digits(reading->p, json, e);
    if (strcmp(type, "Punctuation") == 0) return open_punctuation(reading->p, json, e);
    if (strcmp(type, "Whitespace") == 0) return open_whitespace(reading->p, e);
    if (strcmp(type, "WhitespaceSplit") == 0)
        return add_regex(reading->p, "\\s+", SPLIT_REMOVED, e);
    if (strcmp(type, "BertPreTokenizer") == 0) return open_bert_pretokenizer(reading->p, e);
    return error_set(e, STATUS_UNSUPPORTED,
                     "type \"%.40s\" is not supported: expected Sequence, %sMetaspace, Split, "
                     "Digits, Punctuation, "
                     "Whitespace, WhitespaceSplit or BertPreTokenizer",
                     type, reading->takes_text ? "" : "ByteLevel, ");
}

enum status json_open_pretokenizer(struct pretokenizer *pretokenizer, const struct json *pre,
                                   bool *byte_level, struct error *e) {
    struct pretokenizer_reading reading = {pretokenizer, byte_level == NULL, false};
    if (!json_is_absent(pre) && open_pretokenizer(&reading, pre, 0, e))
        return error_prefix(e, "pre_tokenizer");
    if (byte_level != NULL) *byte_level = reading.byte_level;
    return STATUS_OK;
}
