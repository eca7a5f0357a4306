/* tools/bench/bench_quotes.c: retro-bench quotes: what quotes cost beside the steps of a model,
 * with the vocabulary of a folder's tokenizer.
 *
 * Passages are tokens of it, drawn at random; so are answers, of those that a mask allows. One
 * answer opens a quote wherever it may, another never does. */
#include <stdlib.h>
#include <string.h>

#include "retro/grammar/grammar.h"
#include "retro/grammar/quote_text.h"
#include "tools/bench/bench.h"

enum { PASSAGES = 64, DEFAULT_TOKENS = 2000, ANSWER_TOKENS = 128, QUOTE_WORDS = 3 };

struct quotes_bench {
    struct tokenizer *tokenizer;
    struct vocab vocab;
    struct grammar *grammar;
    struct buffer passages[PASSAGES];
    int32_t mark; /* the token of a quotation mark, -1: none */
    uint64_t state;
};

/* Of one round, in milliseconds: of an answer's own, and the mean of a token. */
struct quotes_times {
    double build[BENCH_MAX_ROUNDS], opening[BENCH_MAX_ROUNDS];
    double inside[BENCH_MAX_ROUNDS], outside[BENCH_MAX_ROUNDS];
};

static int draw_below(struct quotes_bench *bench, int n) {
    bench->state = bench->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((bench->state >> 33) % (uint64_t)n);
}

static enum status open_bench(struct quotes_bench *bench, const char *folder, int tokens,
                              struct error *e) {
    struct grammar_draft draft = {0};
    if (tokenizer_open(&bench->tokenizer, folder, e)) return e->status;
    int n = tokenizer_vocab_size(bench->tokenizer);
    vocab_open(&bench->vocab, bench->tokenizer, n, NULL, 0);
    bench->mark = -1;
    for (int32_t id = 0; id < n; id++) {
        struct buffer piece = {0};
        tokenizer_piece(bench->tokenizer, id, &piece);
        if (piece.size == 1 && piece.data[0] == '"') bench->mark = id;
        buffer_free(&piece);
    }
    for (int i = 0; i < PASSAGES * tokens; i++)
        tokenizer_piece(bench->tokenizer, draw_below(bench, n), &bench->passages[i / tokens]);
    grammar_draft_open(&draft);
    enum status status = quote_text_draft(&draft, e);
    if (status == STATUS_OK) status = grammar_open(&bench->grammar, &draft, &bench->vocab, e);
    grammar_draft_free(&draft);
    if (status == STATUS_OK && bench->mark < 0)
        return error_set(e, STATUS_INVALID, "%s: no token is a quotation mark alone", folder);
    return status;
}

static void close_bench(struct quotes_bench *bench) {
    for (int i = 0; i < PASSAGES; i++) buffer_free(&bench->passages[i]);
    grammar_release(bench->grammar);
    vocab_close(&bench->vocab);
    tokenizer_close(bench->tokenizer);
}

static bool allows(const uint32_t *mask, int32_t id) { return mask[id / 32] >> (id % 32) & 1; }

/* -1: no token is allowed. */
static int32_t draw_token(struct quotes_bench *bench, const uint32_t *mask, bool opens) {
    int n = bench->vocab.n_ids, first = draw_below(bench, n);
    if (opens && allows(mask, bench->mark)) return bench->mark;
    for (int i = 0; i < n; i++)
        if (allows(mask, (first + i) % n)) return (first + i) % n;
    return -1;
}

/* The milliseconds of each token's mask and note, and how many there were. */
static enum status write_answer(struct quotes_bench *bench, struct matcher *matcher, bool opens,
                                double *times, int *n, struct error *e) {
    for (*n = 0; *n < ANSWER_TOKENS; ++*n) {
        const uint32_t *mask;
        double start = time_now();
        if (matcher_mask(matcher, &mask, e)) return e->status;
        double middle = time_now();
        int32_t token = draw_token(bench, mask, opens);
        if (token < 0) return STATUS_OK;
        double drawn = time_now();
        if (matcher_note(matcher, token, e)) return e->status;
        times[*n] = 1e3 * (time_now() - drawn + middle - start);
    }
    return STATUS_OK;
}

static double mean_of(const double *times, int first, int n) {
    double sum = 0;
    for (int i = first; i < n; i++) sum += times[i];
    return n > first ? sum / (n - first) : 0;
}

/* The first token opens a quote, so that the second one's mask is of all places where one begins;
 * the first answer ever finds out about the grammar, and is not counted. */
static enum status run_round(struct quotes_bench *bench, struct quotes_times *to, int round,
                             struct error *e) {
    const struct matcher_begin begin = {.after = -1, .optional = -1, .quote_words = QUOTE_WORDS};
    double times[ANSWER_TOKENS];
    for (int opens = 0; opens < 2; opens++) {
        struct matcher matcher;
        int n = 0;
        matcher_open(&matcher, bench->grammar, &begin, bench->vocab.n_ids, NULL, 0);
        double start = time_now();
        for (int i = 0; i < PASSAGES && e->status == STATUS_OK; i++) {
            struct passage_text passage = {
                .text = {bench->passages[i].data, bench->passages[i].size}};
            matcher_add_passage(&matcher, &passage, i, e);
        }
        to->build[round] = 1e3 * (time_now() - start);
        if (e->status == STATUS_OK) write_answer(bench, &matcher, opens, times, &n, e);
        matcher_close(&matcher);
        if (e->status) return e->status;
        if (opens) to->opening[round] = n > 1 ? times[1] : 0;
        (opens ? to->inside : to->outside)[round] = mean_of(times, 2, n);
    }
    return STATUS_OK;
}

enum status bench_quotes(const struct bench_options *options, struct error *e) {
    struct quotes_bench bench = {.state = 1};
    struct quotes_times times;
    int tokens = options->prompt ? options->prompt : DEFAULT_TOKENS, rounds = options->rounds;
    *e = (struct error){0};
    enum status status = open_bench(&bench, options->folders[0], tokens, e);
    if (status == STATUS_OK) status = run_round(&bench, &times, 0, e);
    for (int i = 0; i < rounds && status == STATUS_OK; i++)
        status = run_round(&bench, &times, i, e);
    if (status == STATUS_OK) {
        bench_print_title(options, "%d passages of %d tokens, a vocabulary of %d", PASSAGES, tokens,
                          bench.vocab.n_ids);
        bench_print_rounds(options, "quotes.build", "ms", times.build, rounds);
        bench_print_rounds(options, "quotes.opening", "ms", times.opening, rounds);
        bench_print_rounds(options, "quotes.inside", "ms", times.inside, rounds);
        bench_print_rounds(options, "quotes.outside", "ms", times.outside, rounds);
    }
    close_bench(&bench);
    return status;
}
