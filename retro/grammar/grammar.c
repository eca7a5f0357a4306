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

enum status grammar_open(struct grammar **out, const struct grammar_draft *d, const struct vocab *v, struct error *e) {
    struct grammar *g = xcalloc(1, sizeof *g);
    atomic_init(&g->references, 1);
    g->vocab = v;
    *out = NULL;
    if (program_compile(&g->program, d, e)) {
        grammar_release(g);
        return e->status;
    }
    *out = g;
    return STATUS_OK;
}

void grammar_hold(struct grammar *g) { atomic_fetch_add(&g->references, 1); }

void grammar_release(struct grammar *g) {
    if (g == NULL || atomic_fetch_sub(&g->references, 1) != 1) return;
    masks_close(&g->masks);
    program_free(&g->program);
    free(g);
}

/* Forgets all that was found out, to begin anew. */
static void renew_memo(struct grammar *g) {
    masks_close(&g->masks);
    masks_open(&g->masks, &g->program, g->vocab);
    g->round++;
}

static enum status fail_full(const struct grammar *g, struct error *e) {
    if (g->masks.automaton.ambiguous)
        return error_set(e, STATUS_TOO_LARGE,
                         "the grammar is too ambiguous: what was written can be read in more than %d ways",
                         MEMO_MAX_STACKS);
    return error_set(e, STATUS_TOO_LARGE,
                     "the grammar takes more memory than a grammar is given: make its repetitions and lists shorter");
}

/* Matchers. */

void matcher_open(struct matcher *m, struct grammar *g, const struct matcher_begin *begin, int n_ids,
                  const int32_t *ends, int n_ends) {
    size_t words = ((size_t)n_ids + 31) / 32, bytes = ((size_t)n_ends + 1) * sizeof *ends;
    int32_t *copy = xmalloc(bytes);
    if (n_ends > 0) memcpy(copy, ends, (size_t)n_ends * sizeof *ends);
    grammar_hold(g);
    *m = (struct matcher){.grammar = g,
                          .begin = *begin,
                          .ends = copy,
                          .n_ends = n_ends,
                          .is_free = begin->free,
                          .may_think = begin->optional >= 0,
                          .mask = xcalloc(words + 1, sizeof *m->mask)};
}

void matcher_close(struct matcher *m) {
    grammar_release(m->grammar);
    free((int32_t *)(uintptr_t)m->ends);
    free(m->written);
    free(m->mask);
    *m = (struct matcher){0};
}

/* The configuration behind a token. */
static int read_token(struct grammar *g, int config, int32_t token) {
    const struct vocab *v = g->vocab;
    int path[UINT8_MAX + 2], n = 0, node = token < v->n_ids ? v->node_of[token] : -1;
    if (node < 0) return CONFIG_DEAD;
    for (; node > 0; node = v->nodes[node].up) {
        path[n] = v->nodes[node].symbol;
        n++;
    }
    while (n > 0 && config != CONFIG_DEAD) {
        n--;
        config = automaton_next(&g->masks.automaton, config, g->program.class_of[path[n]]);
    }
    return config;
}

/* Reads again what was written, in a memo that has room. */
static enum status matcher_renew(struct matcher *m, struct error *e) {
    struct grammar *g = m->grammar;
    if (g->round == 0 || g->masks.automaton.full) renew_memo(g);
    if (m->round == g->round) return STATUS_OK;
    m->config = automaton_start(&g->masks.automaton);
    for (int i = 0; i < m->n_written; i++) m->config = read_token(g, m->config, m->written[i]);
    m->round = g->round;
    return g->masks.automaton.full ? fail_full(g, e) : STATUS_OK;
}

/* The tokens that go on with the text; one attempt more where the memo was full of other things. */
static enum status find_mask(struct matcher *m, const uint32_t **bits, bool *any, struct error *e) {
    struct grammar *g = m->grammar;
    for (int attempt = 0; attempt < 2; attempt++) {
        if (matcher_renew(m, e)) return e->status;
        *bits = masks_find(&g->masks, m->config, any);
        if (*bits) return STATUS_OK;
    }
    return fail_full(g, e);
}

static void set_bits(struct matcher *m, const int32_t *ids, int n, bool allowed) {
    for (int i = 0; i < n; i++) {
        uint32_t bit = (uint32_t)1 << (ids[i] % 32), *word = &m->mask[ids[i] / 32];
        *word = allowed ? *word | bit : *word & ~bit;
    }
}

static enum status make_mask(struct matcher *m, struct error *e) {
    struct masks *k = &m->grammar->masks;
    const uint32_t *bits;
    bool any;
    if (find_mask(m, &bits, &any, e)) return e->status;
    bool may_end = k->automaton.configs[m->config].finishes;
    memcpy(m->mask, bits, (size_t)k->words * sizeof *bits);
    if (may_end) set_bits(m, m->ends, m->n_ends, true);
    if (m->may_think) set_bits(m, &m->begin.optional, 1, true);
    m->finished = may_end && !any && !m->may_think;
    if (any || may_end || m->may_think) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "the model has no token that goes on with the text under its grammar");
}

enum status matcher_mask(struct matcher *m, const uint32_t **mask, struct error *e) {
    *mask = m->mask;
    if (m->masked) return STATUS_OK;
    if (m->is_free) {
        memset(m->mask, 0xFF, ((size_t)m->grammar->vocab->n_ids + 31) / 32 * sizeof *m->mask);
        set_bits(m, m->ends, m->n_ends, m->begin.may_end);
    } else if (make_mask(m, e)) {
        return e->status;
    }
    m->masked = true;
    return STATUS_OK;
}

enum status matcher_note(struct matcher *m, int32_t token, struct error *e) {
    bool thinks = m->may_think && token == m->begin.optional;
    m->may_think = false;
    m->masked = false;
    if (m->is_free || thinks) {
        m->is_free = thinks || token != m->begin.after;
        return STATUS_OK;
    }
    m->written = xgrow(m->written, m->n_written, &m->capacity, sizeof *m->written);
    m->written[m->n_written] = token;
    m->n_written++;
    m->config = read_token(m->grammar, m->config, token);
    if (m->grammar->masks.automaton.full) m->round = -1;
    return matcher_renew(m, e);
}

/* Whole texts. */

enum status grammar_try(struct grammar *g, const char *text, size_t size, enum grammar_match *out, struct error *e) {
    if (g->round == 0 || g->masks.automaton.full) renew_memo(g);
    struct automaton *automaton = &g->masks.automaton;
    int config = automaton_start(automaton);
    for (size_t i = 0; i < size && config != CONFIG_DEAD; i++)
        config = automaton_next(automaton, config, g->program.class_of[(unsigned char)text[i]]);
    if (automaton->full) return fail_full(g, e);
    *out = config == CONFIG_DEAD ? MATCH_NONE : automaton->configs[config].finishes ? MATCH_WHOLE : MATCH_BEGINNING;
    return STATUS_OK;
}
