/* retro/grammar/grammar.c: grammars and the answers that are written under them. See grammar.h. */
#include "retro/grammar/grammar.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "retro/grammar/quote_reader.h"

/* A program and what its matchers found out. */
struct grammar_side {
    struct program program;
    /* The rest belongs to the thread of the matchers. */
    struct masks masks;
    int64_t round; /* counts the memos; 0: there is none yet */
};

struct grammar {
    atomic_int references;
    const struct vocab *vocab;
    bool quotes[QUOTE_WRITINGS]; /* it has quotes that are written so */
    struct grammar_side whole;
    struct grammar_side bare; /* its texts without quotes, where it has quotes ... */
    bool must_quote;          /* ... and there are none such */
};

enum status grammar_open(struct grammar **out, const struct grammar_draft *draft,
                         const struct vocab *vocab, struct error *e) {
    struct grammar *grammar = xcalloc(1, sizeof *grammar);
    atomic_init(&grammar->references, 1);
    grammar->vocab = vocab;
    memcpy(grammar->quotes, draft->quotes, sizeof grammar->quotes);
    *out = NULL;
    if (program_compile(&grammar->whole.program, draft, e)) {
        grammar_release(grammar);
        return e->status;
    }
    if (grammar_quotes(grammar)) {
        struct grammar_draft bare = *draft;
        struct error none;
        bare.without_quotes = true;
        grammar->must_quote = program_compile(&grammar->bare.program, &bare, &none) != STATUS_OK;
    }
    *out = grammar;
    return STATUS_OK;
}

bool grammar_quotes(const struct grammar *grammar) {
    bool any = false;
    for (int i = 0; i < QUOTE_WRITINGS; i++) any = any || grammar->quotes[i];
    return any;
}

void grammar_hold(struct grammar *grammar) { atomic_fetch_add(&grammar->references, 1); }

static void close_side(struct grammar_side *side) {
    masks_close(&side->masks);
    program_free(&side->program);
}

void grammar_release(struct grammar *grammar) {
    if (grammar == NULL || atomic_fetch_sub(&grammar->references, 1) != 1) return;
    close_side(&grammar->whole);
    close_side(&grammar->bare);
    free(grammar);
}

/* Forgets all that was found out, to begin anew. */
static void renew_memo(struct grammar_side *side, const struct vocab *vocab) {
    masks_close(&side->masks);
    masks_open(&side->masks, &side->program, vocab);
    side->round++;
}

static enum status fail_full(const struct grammar_side *side, struct error *e) {
    if (side->masks.automaton.ambiguous)
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
    quote_source_open(&matcher->passages, grammar->vocab, grammar->quotes, begin->quote_words);
}

void matcher_close(struct matcher *matcher) {
    if (matcher->quotes) quote_reader_close(matcher->quotes);
    free(matcher->quotes);
    quote_source_close(&matcher->passages);
    grammar_release(matcher->grammar);
    free((int32_t *)(uintptr_t)matcher->ends);
    free(matcher->written);
    free(matcher->mask);
    *matcher = (struct matcher){0};
}

/* Without passages to quote, the grammar is the one without quotes. */
static struct grammar_side *side_of(const struct matcher *matcher) {
    struct grammar *grammar = matcher->grammar;
    return matcher->quotes || !grammar_quotes(grammar) ? &grammar->whole : &grammar->bare;
}

/* The configuration behind a token. */
static int next_config(const struct vocab *vocab, struct grammar_side *side, int config,
                       int32_t token) {
    int path[UINT8_MAX + 2], n = 0, node = token < vocab->n_ids ? vocab->node_of[token] : -1;
    if (node < 0) return CONFIG_DEAD;
    for (; node > 0; node = vocab->nodes[node].up) {
        path[n] = vocab->nodes[node].symbol;
        n++;
    }
    while (n > 0 && config != CONFIG_DEAD) {
        n--;
        config = automaton_next(&side->masks.automaton, config, side->program.class_of[path[n]]);
    }
    return config;
}

static void read_token(struct matcher *matcher, struct grammar_side *side, int32_t token) {
    if (matcher->quotes)
        quote_reader_read(matcher->quotes, token);
    else
        matcher->config = next_config(matcher->grammar->vocab, side, matcher->config, token);
}

/* Reads again what was written, in a memo that has room. */
static enum status matcher_renew(struct matcher *matcher, struct error *e) {
    struct grammar_side *side = side_of(matcher);
    if (side == &matcher->grammar->bare && matcher->grammar->must_quote)
        return error_set(e, STATUS_INVALID,
                         "every text of the grammar has a quote, and none of the passages that "
                         "were read has a quote of %d words (retrieval.quote_words)",
                         matcher->passages.least_words);
    if (side->round == 0 || side->masks.automaton.full) renew_memo(side, matcher->grammar->vocab);
    if (matcher->round == side->round) return STATUS_OK;
    matcher->config = automaton_start(&side->masks.automaton);
    if (matcher->quotes) quote_reader_start(matcher->quotes);
    for (int i = 0; i < matcher->n_written; i++) read_token(matcher, side, matcher->written[i]);
    matcher->round = side->round;
    return side->masks.automaton.full ? fail_full(side, e) : STATUS_OK;
}

/* The tokens that go on with the text, and whether it may end. */
static enum status find_mask(struct matcher *matcher, bool *any, bool *may_end, struct error *e) {
    struct grammar_side *side = side_of(matcher);
    for (int attempt = 0; attempt < 2; attempt++) {
        if (matcher_renew(matcher, e)) return e->status;
        struct masks *masks = &side->masks;
        if (matcher->quotes) {
            if (quote_reader_mask(matcher->quotes, matcher->mask, any, may_end)) return STATUS_OK;
            if (matcher->quotes->ambiguous) break;
            continue;
        }
        const uint32_t *bits = masks_find(masks, matcher->config, any);
        if (bits == NULL) continue;
        *may_end = masks->automaton.configs[matcher->config].finishes;
        memcpy(matcher->mask, bits, (size_t)masks->words * sizeof *bits);
        return STATUS_OK;
    }
    if (matcher->quotes && matcher->quotes->ambiguous)
        return error_set(e, STATUS_TOO_LARGE,
                         "the grammar is too ambiguous: what was written can be read as quotes in "
                         "more than %d ways",
                         QUOTE_MOST_THREADS);
    return fail_full(side, e);
}

static void set_bits(struct matcher *matcher, const int32_t *ids, int n, bool allowed) {
    for (int i = 0; i < n; i++) {
        uint32_t bit = (uint32_t)1 << (ids[i] % 32), *word = &matcher->mask[ids[i] / 32];
        *word = allowed ? *word | bit : *word & ~bit;
    }
}

static enum status make_mask(struct matcher *matcher, struct error *e) {
    bool any, may_end;
    if (find_mask(matcher, &any, &may_end, e)) return e->status;
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
    struct grammar_side *side = side_of(matcher);
    if (matcher->round == side->round) read_token(matcher, side, token);
    if (side->masks.automaton.full) matcher->round = -1;
    return matcher_renew(matcher, e);
}

/* Quotes. */

/* From the grammar without quotes to the one with: what was written is a text of both. */
static void begin_quoting(struct matcher *matcher) {
    matcher->quotes = xcalloc(1, sizeof *matcher->quotes);
    quote_reader_open(matcher->quotes, &matcher->grammar->whole.masks, &matcher->passages);
    matcher->round = -1;
}

enum status matcher_add_passage(struct matcher *matcher, const struct passage_text *passage,
                                int number, struct error *e) {
    struct quote_source *source = matcher->quotes ? &matcher->quotes->source : &matcher->passages;
    if (!grammar_quotes(matcher->grammar)) return STATUS_OK;
    if (quote_source_add(source, passage, number, e)) return e->status;
    matcher->masked = false;
    if (matcher->quotes)
        quote_reader_renew(matcher->quotes);
    else if (!quote_source_is_empty(source))
        begin_quoting(matcher);
    return STATUS_OK;
}

struct matcher_quote *matcher_list_quotes(const struct matcher *matcher, int *n) {
    const struct quote_reader *reader = matcher->quotes;
    int latest = reader && matcher->n_written > 0 ? quote_reader_latest(reader) : -1;
    *n = 0;
    for (int i = latest; i >= 0; i = reader->records[i].before) ++*n;
    struct matcher_quote *quotes = xcalloc((size_t)*n + 1, sizeof *quotes);
    for (int i = latest, at = *n - 1; i >= 0; i = reader->records[i].before, at--) {
        const struct quote_record *record = &reader->records[i];
        quotes[at] = (struct matcher_quote){
            .found = quote_source_find(&reader->source, (enum quote_writing)record->writing,
                                       record->from, record->to),
            .start = record->start,
            .end = record->end};
    }
    return quotes;
}

/* Whole texts. */

enum status grammar_try(struct grammar *grammar, const char *text, size_t size,
                        enum grammar_match *out, struct error *e) {
    struct grammar_side *side = &grammar->whole;
    if (side->round == 0 || side->masks.automaton.full) renew_memo(side, grammar->vocab);
    struct automaton *automaton = &side->masks.automaton;
    int config = automaton_start(automaton);
    for (size_t i = 0; i < size && config != CONFIG_DEAD; i++)
        config = automaton_next(automaton, config, side->program.class_of[(unsigned char)text[i]]);
    if (automaton->full) return fail_full(side, e);
    *out = config == CONFIG_DEAD                 ? MATCH_NONE
           : automaton->configs[config].finishes ? MATCH_WHOLE
                                                 : MATCH_BEGINNING;
    return STATUS_OK;
}
