/* retro/grammar/grammar.c: grammars and the answers that are written under them. See grammar.h. */
#include "retro/grammar/grammar.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct grammar {
    atomic_int references;
    struct program program;
    const struct vocab *vocab;
    /* The rest belongs to the thread of the matchers. */
    struct masks masks;
    int64_t round; /* counts the memos; 0: there is none yet */
};

enum status grammar_open(struct grammar **out, const struct grammar_draft *draft,
                         const struct vocab *vocab, struct error *e) {
    struct grammar *grammar = xcalloc(1, sizeof *grammar);
    atomic_init(&grammar->references, 1);
    grammar->vocab = vocab;
    *out = NULL;
    if (program_compile(&grammar->program, draft, e)) {
        grammar_release(grammar);
        return e->status;
    }
    *out = grammar;
    return STATUS_OK;
}

void grammar_hold(struct grammar *grammar) { atomic_fetch_add(&grammar->references, 1); }

void grammar_release(struct grammar *grammar) {
    if (grammar == NULL || atomic_fetch_sub(&grammar->references, 1) != 1) return;
    masks_close(&grammar->masks);
    program_free(&grammar->program);
    free(grammar);
}

/* Forgets all that was found out, to begin anew. */
static void renew_memo(struct grammar *grammar) {
    masks_close(&grammar->masks);
    masks_open(&grammar->masks, &grammar->program, grammar->vocab);
    grammar->round++;
}

static enum status fail_full(const struct grammar *grammar, struct error *e) {
    if (grammar->masks.automaton.ambiguous)
        return error_set(
            e, STATUS_TOO_LARGE,
            "the grammar is too ambiguous: what was written can be read in more than %d ways",
            MEMO_MAX_STACKS);
    return error_set(e, STATUS_TOO_LARGE,
                     "the grammar takes more memory than a grammar is given: make its repetitions "
                     "and lists shorter");
}

/* Matchers. */

void matcher_open(struct matcher *matcher, struct grammar *grammar,
                  const struct matcher_begin *begin, int n_ids, const int32_t *ends, int n_ends) {
    size_t words = ((size_t)n_ids + 31) / 32, bytes = ((size_t)n_ends + 1) * sizeof *ends;
    int32_t *copy = xmalloc(bytes);
    if (n_ends > 0) memcpy(copy, ends, (size_t)n_ends * sizeof *ends);
    grammar_hold(grammar);
    *matcher = (struct matcher){.grammar = grammar,
                                .begin = *begin,
                                .ends = copy,
                                .n_ends = n_ends,
                                .is_free = begin->free,
                                .may_think = begin->optional >= 0,
                                .mask = xcalloc(words + 1, sizeof *matcher->mask)};
}

void matcher_close(struct matcher *matcher) {
    grammar_release(matcher->grammar);
    free((int32_t *)(uintptr_t)matcher->ends);
    free(matcher->written);
    free(matcher->mask);
    *matcher = (struct matcher){0};
}

/* The configuration behind a token. */
static int read_token(struct grammar *grammar, int config, int32_t token) {
    const struct vocab *vocab = grammar->vocab;
    int path[UINT8_MAX + 2], n = 0, node = token < vocab->n_ids ? vocab->node_of[token] : -1;
    if (node < 0) return CONFIG_DEAD;
    for (; node > 0; node = vocab->nodes[node].up) {
        path[n] = vocab->nodes[node].symbol;
        n++;
    }
    while (n > 0 && config != CONFIG_DEAD) {
        n--;
        config =
            automaton_next(&grammar->masks.automaton, config, grammar->program.class_of[path[n]]);
    }
    return config;
}

/* Reads again what was written, in a memo that has room. */
static enum status matcher_renew(struct matcher *matcher, struct error *e) {
    struct grammar *grammar = matcher->grammar;
    if (grammar->round == 0 || grammar->masks.automaton.full) renew_memo(grammar);
    if (matcher->round == grammar->round) return STATUS_OK;
    matcher->config = automaton_start(&grammar->masks.automaton);
    for (int i = 0; i < matcher->n_written; i++)
        matcher->config = read_token(grammar, matcher->config, matcher->written[i]);
    matcher->round = grammar->round;
    return grammar->masks.automaton.full ? fail_full(grammar, e) : STATUS_OK;
}

/* The tokens that go on with the text; one attempt more where the memo was full of other things. */
static enum status find_mask(struct matcher *matcher, const uint32_t **bits, bool *any,
                             struct error *e) {
    struct grammar *grammar = matcher->grammar;
    for (int attempt = 0; attempt < 2; attempt++) {
        if (matcher_renew(matcher, e)) return e->status;
        *bits = masks_find(&grammar->masks, matcher->config, any);
        if (*bits) return STATUS_OK;
    }
    return fail_full(grammar, e);
}

static void set_bits(struct matcher *matcher, const int32_t *ids, int n, bool allowed) {
    for (int i = 0; i < n; i++) {
        uint32_t bit = (uint32_t)1 << (ids[i] % 32), *word = &matcher->mask[ids[i] / 32];
        *word = allowed ? *word | bit : *word & ~bit;
    }
}

static enum status make_mask(struct matcher *matcher, struct error *e) {
    struct masks *masks = &matcher->grammar->masks;
    const uint32_t *bits;
    bool any;
    if (find_mask(matcher, &bits, &any, e)) return e->status;
    bool may_end = masks->automaton.configs[matcher->config].finishes;
    memcpy(matcher->mask, bits, (size_t)masks->words * sizeof *bits);
    if (may_end) set_bits(matcher, matcher->ends, matcher->n_ends, true);
    if (matcher->may_think) set_bits(matcher, &matcher->begin.optional, 1, true);
    matcher->finished = may_end && !any && !matcher->may_think;
    if (any || may_end || matcher->may_think) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "the model has no token that goes on with the text under its grammar");
}

enum status matcher_mask(struct matcher *matcher, const uint32_t **mask, struct error *e) {
    *mask = matcher->mask;
    if (matcher->masked) return STATUS_OK;
    if (matcher->is_free) {
        memset(matcher->mask, 0xFF,
               ((size_t)matcher->grammar->vocab->n_ids + 31) / 32 * sizeof *matcher->mask);
        set_bits(matcher, matcher->ends, matcher->n_ends, matcher->begin.may_end);
    } else if (make_mask(matcher, e)) {
        return e->status;
    }
    matcher->masked = true;
    return STATUS_OK;
}

enum status matcher_note(struct matcher *matcher, int32_t token, struct error *e) {
    bool thinks = matcher->may_think && token == matcher->begin.optional;
    matcher->may_think = false;
    matcher->masked = false;
    if (matcher->is_free || thinks) {
        matcher->is_free = thinks || token != matcher->begin.after;
        return STATUS_OK;
    }
    matcher->written =
        xgrow(matcher->written, matcher->n_written, &matcher->capacity, sizeof *matcher->written);
    matcher->written[matcher->n_written] = token;
    matcher->n_written++;
    matcher->config = read_token(matcher->grammar, matcher->config, token);
    if (matcher->grammar->masks.automaton.full) matcher->round = -1;
    return matcher_renew(matcher, e);
}

/* Whole texts. */

enum status grammar_try(struct grammar *grammar, const char *text, size_t size,
                        enum grammar_match *out, struct error *e) {
    if (grammar->round == 0 || grammar->masks.automaton.full) renew_memo(grammar);
    struct automaton *automaton = &grammar->masks.automaton;
    int config = automaton_start(automaton);
    for (size_t i = 0; i < size && config != CONFIG_DEAD; i++)
        config =
            automaton_next(automaton, config, grammar->program.class_of[(unsigned char)text[i]]);
    if (automaton->full) return fail_full(grammar, e);
    *out = config == CONFIG_DEAD                 ? MATCH_NONE
           : automaton->configs[config].finishes ? MATCH_WHOLE
                                                 : MATCH_BEGINNING;
    return STATUS_OK;
}
