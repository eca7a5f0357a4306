/* server/api/text/grammars.c: see grammars.h. */
#include "server/api/text/grammars.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "retro/chat/call_grammar.h"
#include "retro/grammar/gbnf.h"
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

struct grammars *grammars_open(const struct tokenizer *t, int n_ids, const int32_t *ends, int n_ends) {
    struct grammars *s = xcalloc(1, sizeof *s);
    s->tokenizer = t;
    s->n_ids = n_ids;
    s->ends = ends;
    s->n_ends = n_ends;
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

static void forget(struct kept_grammar *k) {
    grammar_release(k->grammar);
    buffer_free(&k->text);
    *k = (struct kept_grammar){0};
}

void grammars_close(struct grammars *s) {
    if (s == NULL) return;
    for (int i = 0; i < KEPT; i++) forget(&s->kept[i]);
    if (s->opened) vocab_close(&s->vocab);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* The place of an equal guide's grammar, or the one to be used for it. */
static struct kept_grammar *find_place(struct grammars *s, const struct request_guide *guide) {
    struct kept_grammar *oldest = &s->kept[0];
    for (int i = 0; i < KEPT; i++) {
        struct kept_grammar *k = &s->kept[i];
        size_t size = guide->text.size;
        if (k->grammar && k->kind == guide->kind && k->strict == guide->strict && k->text.size == size &&
            (size == 0 || memcmp(k->text.data, guide->text.data, size) == 0))
            return k;
        if (k->last_used < oldest->last_used) oldest = k;
    }
    forget(oldest);
    return oldest;
}

static const struct vocab *find_vocab(struct grammars *s) {
    if (!s->opened) vocab_open(&s->vocab, s->tokenizer, s->n_ids, s->ends, s->n_ends);
    s->opened = true;
    return &s->vocab;
}

static int write_chars(void *context, const struct char_range *ranges, int n) { return expr_chars(context, ranges, n); }

/* One of several texts. */
static enum status draft_choice(struct grammar_draft *d, const struct json *texts, int *out) {
    struct expr_list all = {0};
    for (size_t i = 0; i < json_count(texts); i++) {
        struct text_span text = json_text(json_item(texts, i));
        expr_list_add(&all, expr_text(d, text.text, text.size));
    }
    *out = expr_either(d, all.items, all.n);
    free(all.items);
    return STATUS_OK;
}

static enum status draft_json(struct grammars *s, struct grammar_draft *d, const struct request_guide *guide, int *out,
                              struct error *e) {
    struct json_rules rules = {.draft = d};
    const struct schema_options o = {.strict = guide->strict};
    struct json *json;
    if (json_parse_any(&json, (struct text_span){guide->text.data, guide->text.size}, "schema", e)) return e->status;
    enum status status;
    if (guide->kind == GUIDE_CALLS)
        status = call_grammar_draft(d, find_vocab(s), json, out, e);
    else if (guide->kind == GUIDE_CHOICE)
        status = draft_choice(d, json, out);
    else
        status = schema_compile(&rules, json, &o, out, e);
    json_close(json);
    return status;
}

static enum status draft_guide(struct grammars *s, struct grammar_draft *d, const struct request_guide *guide,
                               struct error *e) {
    const struct regex_writer writer = {write_chars, d, true};
    struct text_span text = {guide->text.data ? guide->text.data : "", guide->text.size};
    struct json_rules rules = {.draft = d};
    int expr = EXPR_NOTHING;
    enum status status = STATUS_OK;
    if (guide->kind == GUIDE_GBNF) return gbnf_parse(d, text, e);
    int root = draft_rule_open(d, "root");
    if (guide->kind == GUIDE_OBJECT)
        expr = json_any_object(&rules);
    else if (guide->kind == GUIDE_REGEX)
        status = regex_parse(d, text, &writer, &expr, e);
    else
        status = draft_json(s, d, guide, &expr, e);
    draft_rule_set(d, root, expr);
    return status;
}

static enum status compile_guide(struct grammars *s, const struct request_guide *guide, struct grammar **out,
                                 struct error *e) {
    struct grammar_draft d = {0};
    grammar_draft_open(&d);
    enum status status = draft_guide(s, &d, guide, e);
    if (status == STATUS_OK) status = grammar_open(out, &d, find_vocab(s), e);
    grammar_draft_free(&d);
    return status;
}

static struct grammar *get_locked(struct grammars *s, const struct request_guide *guide, struct error *e) {
    struct kept_grammar *k = find_place(s, guide);
    if (k->grammar == NULL) {
        if (compile_guide(s, guide, &k->grammar, e)) return NULL;
        k->kind = guide->kind;
        k->strict = guide->strict;
        buffer_append(&k->text, guide->text.data, guide->text.size);
    }
    s->uses++;
    k->last_used = s->uses;
    grammar_hold(k->grammar);
    return k->grammar;
}

struct grammar *grammars_get(struct grammars *s, const struct request_guide *guide, struct failure *f) {
    struct error e;
    pthread_mutex_lock(&s->lock);
    struct grammar *g = get_locked(s, guide, &e);
    pthread_mutex_unlock(&s->lock);
    if (g == NULL) failure_set(f, 400, "invalid_value", guide->field, "%s: %s", guide->field, e.text);
    return g;
}
