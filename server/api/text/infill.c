/* server/api/text/infill.c: see infill.h. */
#include "server/api/text/infill.h"

#include <string.h>

/* Tokens before the prompt, before the suffix and before the answer; and one that ends it, "": none
 * of its own. */
struct infill_family {
    const char *prompt, *suffix, *answer, *end;
};

static const struct infill_family families[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"}, /* Qwen, CodeGemma */
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>"},         /* StarCoder, Granite */
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", ""},                   /* SantaCoder */
    {"\xE2\x96\x81<PRE>", "\xE2\x96\x81<SUF>", "\xE2\x96\x81<MID>",
     "\xE2\x96\x81<EOT>"},                /* CodeLlama */
    {"<PRE>", "<SUF>", "<MID>", "<EOT>"}, /* the same as GGUF */
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "begin\xEF\xBD\x9C>",
     "<\xEF\xBD\x9C"
     "fim\xE2\x96\x81hole\xEF\xBD\x9C>",
     "<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "end\xEF\xBD\x9C>",
     ""}, /* DeepSeek-Coder */
};

static int32_t token_named(const struct served_model *model, const char *name) {
    if (name[0] == '\0') return -1;
    int32_t id = tokenizer_added_id(model->tokenizer, (struct text_span){name, strlen(name)});
    return id < model->limits.vocab ? id : -1;
}

static bool append_text(const struct served_model *model, struct text_span text, int flags,
                        struct tokens *out, struct failure *failure) {
    struct error e;
    if (tokenizer_encode(model->tokenizer, text.text ? text.text : "", text.size, flags, out, &e))
        return failure_from_error(failure, &e);
    return true;
}

static bool append_prompt(const struct served_model *model, const struct request_prompt *prompt,
                          struct tokens *out, struct failure *failure) {
    for (int i = 0; i < prompt->n_ids; i++) tokens_append(out, prompt->ids[i], 0);
    if (prompt->ids) return true;
    return append_text(model, (struct text_span){prompt->text, prompt->size},
                       TOKENIZER_PARSE_SPECIAL, out, failure);
}

/* The tokens that begin every text of the model, as its first. */
static bool append_begin(const struct served_model *model, struct tokens *out,
                         struct failure *failure) {
    if (!append_text(model, (struct text_span){"", 0}, TOKENIZER_ADD_SPECIAL, out, failure))
        return false;
    out->n -= min_int(out->n, tokenizer_suffix(model->tokenizer));
    return true;
}

bool infill_tokenize(const struct served_model *model, const struct request_prompt *prompt,
                     struct text_span suffix, struct tokens *out, int32_t *end,
                     struct failure *failure) {
    for (size_t i = 0; i < ARRAY_COUNT(families); i++) {
        int32_t marks[] = {token_named(model, families[i].prompt),
                           token_named(model, families[i].suffix),
                           token_named(model, families[i].answer)};
        if (marks[0] < 0 || marks[1] < 0 || marks[2] < 0) continue;
        *end = token_named(model, families[i].end);
        if (!append_begin(model, out, failure)) return false;
        tokens_append(out, marks[0], 0);
        if (!append_prompt(model, prompt, out, failure)) return false;
        tokens_append(out, marks[1], 0);
        if (!append_text(model, suffix, TOKENIZER_PARSE_SPECIAL, out, failure)) return false;
        tokens_append(out, marks[2], 0);
        return true;
    }
    return failure_set(
        failure, 400, "unsupported_parameter", "suffix",
        "suffix: the tokenizer of %s has no tokens to fill in the middle (as <|fim_prefix|>)",
        model->id);
}
