/* retro/text/open/gguf_vocabulary.c: see gguf_vocabulary.h. */
#include "retro/text/open/gguf_vocabulary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/base/text.h"
#include "retro/text/tokenizer_private.h"
#include "retro/weights/gguf_tower.h"

const struct gguf_value *gguf_mark_find(const struct gguf *gguf, const char *key) {
    char name[100];
    snprintf(name, sizeof name, "tokenizer.ggml.%s", key);
    return gguf_value_find(gguf, name);
}

enum status gguf_mark_fail(const struct gguf *gguf, const char *key, const char *what,
                           struct error *e) {
    return error_set(e, STATUS_INVALID, "%s: tokenizer.ggml.%s %s", gguf_name(gguf), key, what);
}

enum status gguf_mark_flag(const struct gguf *gguf, const char *key, bool fallback, bool *out,
                           struct error *e) {
    const struct gguf_value *gguf_value = gguf_mark_find(gguf, key);
    int64_t value = fallback;
    if (gguf_value && (gguf_value->type != GGUF_BOOL || !gguf_int(gguf_value, &value)))
        return gguf_mark_fail(gguf, key, "is no truth value", e);
    *out = value != 0;
    return STATUS_OK;
}

enum status vocabulary_read_id(const struct vocabulary *vocabulary, const char *key, int *out,
                               struct error *e) {
    const struct gguf_value *value = gguf_mark_find(vocabulary->gguf, key);
    int64_t id = -1;
    if (value && (!gguf_int(value, &id) || id < -1 || id > UINT32_MAX))
        return gguf_mark_fail(vocabulary->gguf, key, "is no id", e);
    if (id == UINT32_MAX) id = -1;
    if (id >= vocabulary->n)
        return gguf_mark_fail(vocabulary->gguf, key, "is not in the vocabulary", e);
    *out = (int)id;
    return STATUS_OK;
}

/* One of the lists beside the tokens: absent, or as long as they are. */
static enum status open_list(const struct vocabulary *vocabulary, const char *key,
                             struct gguf_items *out, struct error *e) {
    const struct gguf_value *value = gguf_mark_find(vocabulary->gguf, key);
    *out = gguf_items_of(value);
    if (value == NULL || (value->type == GGUF_LIST && value->count == (uint64_t)vocabulary->n))
        return STATUS_OK;
    return gguf_mark_fail(vocabulary->gguf, key, "is not a list as long as tokenizer.ggml.tokens",
                          e);
}

static enum status read_kinds(const struct vocabulary *vocabulary, struct error *e) {
    struct gguf_items it;
    struct gguf_value item;
    int64_t kind;
    if (open_list(vocabulary, "token_type", &it, e)) return e->status;
    for (int i = 0; gguf_next(&it, &item); i++) {
        if (!gguf_int(&item, &kind) || kind < GGUF_TOKEN_NORMAL || kind > GGUF_TOKEN_BYTE)
            return gguf_mark_fail(vocabulary->gguf, "token_type", "holds a type that is not 1 .. 6",
                                  e);
        vocabulary->tokens[i].kind = (enum gguf_token_kind)kind;
    }
    return STATUS_OK;
}

static enum status read_scores(const struct vocabulary *vocabulary, struct error *e) {
    struct gguf_items it;
    struct gguf_value item;
    double score;
    if (open_list(vocabulary, "scores", &it, e)) return e->status;
    for (int i = 0; gguf_next(&it, &item); i++) {
        if (!gguf_number(&item, &score) || !isfinite((float)score))
            return gguf_mark_fail(vocabulary->gguf, "scores", "holds what is no finite number", e);
        vocabulary->tokens[i].score = (float)score;
    }
    return STATUS_OK;
}

/* A token that a model with a tower needs and its vocabulary may lack: it stands behind the last
 * one. */
static void add_picture(struct vocabulary *vocabulary, const char *text) {
    size_t n = strlen(text);
    for (int i = 0; i < vocabulary->n; i++)
        if (span_is(vocabulary->tokens[i].text, text)) return;
    vocabulary->tokens[vocabulary->n] =
        (struct gguf_token){.text = {text, n}, .kind = GGUF_TOKEN_CONTROL};
    vocabulary->n++;
}

enum status vocabulary_read(struct vocabulary *vocabulary, const struct gguf *gguf,
                            struct error *e) {
    const struct gguf_value *tokens = gguf_mark_find(gguf, "tokens");
    struct gguf_items it = gguf_items_of(tokens);
    struct gguf_value item;
    *vocabulary = (struct vocabulary){.gguf = gguf};
    if (tokens == NULL || it.item != GGUF_TEXT || it.left == 0 || it.left > TOKENIZER_MAX_ID)
        return error_set(e, STATUS_INVALID,
                         "%s: tokenizer.ggml.tokens: expected a list of 1 to %d texts",
                         gguf_name(gguf), TOKENIZER_MAX_ID);
    vocabulary->tokens = xcalloc((size_t)it.left + 1, sizeof *vocabulary->tokens);
    while (gguf_next(&it, &item)) {
        struct gguf_token *token = &vocabulary->tokens[vocabulary->n];
        vocabulary->n++;
        gguf_text(&item, &token->text);
        token->kind = GGUF_TOKEN_NORMAL;
    }
    if (read_kinds(vocabulary, e) || read_scores(vocabulary, e)) return e->status;
    const struct tower_kind *tower = gguf_tower_kind(gguf);
    if (tower) add_picture(vocabulary, tower_marks_of(tower).picture);
    return STATUS_OK;
}
