/* server/api/text/grammars.c: see grammars.h. */
#include "server/api/text/grammars.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "retro/chat/call_grammar.h"
#include "retro/grammar/gbnf.h"
#include "retro/grammar/quote_text.h"
#include "retro/grammar/regex_parse.h"
#include "retro/grammar/schema.h"

enum { KEPT = 8 };

struct kept_grammar {
    struct grammar *grammar; /* NULL: none */
    enum guide_kind kind;
    bool strict;
    struct buffer text;
    int64_t last_used;
};

struct grammars {
    const struct tokenizer *tokenizer;
    int n_ids;
    const int32_t *ends;
    int n_ends;
    pthread_mutex_t lock; /* guards the rest */
    bool opened;          /* the vocabulary is there */
    struct vocab vocab;
    struct kept_grammar kept[KEPT];
    int64_t uses;
};

struct grammars *grammars_open(const struct tokenizer *tokenizer, int n_ids, const int32_t *ends,
                               int n_ends) {
    struct grammars *grammars = xcalloc(1, sizeof *grammars);
    grammars->tokenizer = tokenizer;
    grammars->n_ids = n_ids;
    grammars->ends = ends;
    grammars->n_ends = n_ends;
    pthread_mutex_init(&grammars->lock, NULL);
    return grammars;
}

static void forget(struct kept_grammar *grammar) {
    grammar_release(grammar->grammar);
    buffer_free(&grammar->text);
    *grammar = (struct kept_grammar){0};
}

void grammars_close(struct grammars *grammars) {
    if (grammars == NULL) return;
    for (int i = 0; i < KEPT; i++) forget(&grammars->kept[i]);
    if (grammars->opened) vocab_close(&grammars->vocab);
    pthread_mutex_destroy(&grammars->lock);
    free(grammars);
}

/* The place of an equal guide's grammar, or the one to be used for it. */
static struct kept_grammar *find_place(struct grammars *grammars,
                                       const struct request_guide *guide) {
    struct kept_grammar *oldest = &grammars->kept[0];
    for (int i = 0; i < KEPT; i++) {
        struct kept_grammar *grammar = &grammars->kept[i];
        size_t size = guide->text.size;
        if (grammar->grammar && grammar->kind == guide->kind && grammar->strict == guide->strict &&
            grammar->text.size == size &&
            (size == 0 || memcmp(grammar->text.data, guide->text.data, size) == 0))
            return grammar;
        if (grammar->last_used < oldest->last_used) oldest = grammar;
    }
    forget(oldest);
    return oldest;
}

static const struct vocab *find_vocab(struct grammars *grammars) {
    if (!grammars->opened)
        vocab_open(&grammars->vocab, grammars->tokenizer, grammars->n_ids, grammars->ends,
                   grammars->n_ends);
    grammars->opened = true;
    return &grammars->vocab;
}

static int write_chars(void *context, const struct char_range *ranges, int n) {
    return expr_chars(context, ranges, n);
}

/* One of several texts. */
static enum status draft_choice(struct grammar_draft *draft, const struct json *texts, int *out) {
    struct expr_list all = {0};
    for (size_t i = 0; i < json_count(texts); i++) {
        struct text_span text = json_text(json_item(texts, i));
        expr_list_add(&all, expr_text(draft, text.text, text.size));
    }
    *out = expr_either(draft, all.items, all.n);
    free(all.items);
    return STATUS_OK;
}

/* The answer in place of calls, where one is described. */
static enum status draft_answer(struct grammar_draft *draft, const struct json *answer, int *out,
                                struct error *e) {
    const struct json *schema = json_member(answer, "schema");
    const struct schema_options options = {.strict = json_bool(json_member(answer, "strict"))};
    struct json_rules rules = {.draft = draft};
    *out = EXPR_NOTHING;
    if (answer == NULL) return STATUS_OK;
    if (schema) return schema_compile(&rules, schema, &options, out, e);
    *out = json_any_object(&rules);
    return STATUS_OK;
}

/* Calls of tools, or the answer in their place. */
static enum status draft_calls(struct grammars *grammars, struct grammar_draft *draft,
                               const struct json *guide, int *out, struct error *e) {
    int answer;
    if (draft_answer(draft, json_member(guide, "answer"), &answer, e)) return e->status;
    return call_grammar_draft(draft, find_vocab(grammars), guide, answer, out, e);
}

static enum status draft_json(struct grammars *grammars, struct grammar_draft *draft,
                              const struct request_guide *guide, int *out, struct error *e) {
    struct json_rules rules = {.draft = draft};
    const struct schema_options options = {.strict = guide->strict};
    struct json *json;
    if (json_parse_any(&json, (struct text_span){guide->text.data, guide->text.size}, "schema", e))
        return e->status;
    enum status status;
    if (guide->kind == GUIDE_CALLS)
        status = draft_calls(grammars, draft, json, out, e);
    else if (guide->kind == GUIDE_CHOICE)
        status = draft_choice(draft, json, out);
    else
        status = schema_compile(&rules, json, &options, out, e);
    json_close(json);
    return status;
}

static enum status draft_guide(struct grammars *grammars, struct grammar_draft *draft,
                               const struct request_guide *guide, struct error *e) {
    const struct regex_writer writer = {write_chars, draft, true};
    struct text_span text = {guide->text.data ? guide->text.data : "", guide->text.size};
    struct json_rules rules = {.draft = draft};
    int expr = EXPR_NOTHING;
    enum status status = STATUS_OK;
    if (guide->kind == GUIDE_GBNF) return gbnf_parse(draft, text, e);
    if (guide->kind == GUIDE_QUOTES) return quote_text_draft(draft, e);
    int root = draft_rule_open(draft, "root");
    if (guide->kind == GUIDE_OBJECT)
        expr = json_any_object(&rules);
    else if (guide->kind == GUIDE_REGEX)
        status = regex_parse(draft, text, &writer, &expr, e);
    else
        status = draft_json(grammars, draft, guide, &expr, e);
    draft_rule_set(draft, root, expr);
    return status;
}

static enum status compile_guide(struct grammars *grammars, const struct request_guide *guide,
                                 struct grammar **out, struct error *e) {
    struct grammar_draft draft = {0};
    grammar_draft_open(&draft);
    enum status status = draft_guide(grammars, &draft, guide, e);
    if (status == STATUS_OK) status = grammar_open(out, &draft, find_vocab(grammars), e);
    grammar_draft_free(&draft);
    return status;
}

static struct grammar *get_locked(struct grammars *grammars, const struct request_guide *guide,
                                  struct error *e) {
    struct kept_grammar *grammar = find_place(grammars, guide);
    if (grammar->grammar == NULL) {
        if (compile_guide(grammars, guide, &grammar->grammar, e)) return NULL;
        grammar->kind = guide->kind;
        grammar->strict = guide->strict;
        buffer_append(&grammar->text, guide->text.data, guide->text.size);
    }
    grammars->uses++;
    grammar->last_used = grammars->uses;
    grammar_hold(grammar->grammar);
    return grammar->grammar;
}

struct grammar *grammars_get(struct grammars *grammars, const struct request_guide *guide,
                             struct failure *failure) {
    struct error e;
    pthread_mutex_lock(&grammars->lock);
    struct grammar *grammar = get_locked(grammars, guide, &e);
    pthread_mutex_unlock(&grammars->lock);
    if (grammar == NULL)
        failure_set(failure, 400, "invalid_value", guide->field, "%s: %s", guide->field, e.text);
    return grammar;
}
