/* tools/eval/ppl_score.c: the windows of one document through the models, once for each mode. See
 * ppl.h for the definition.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/store/store.h"
#include "tools/eval/ppl.h"

int64_t ppl_draw_chunk(struct ppl *ppl) {
    uint64_t limit = (uint64_t)ppl->model.snapshot->chunk_limit;
    int64_t chunk;
    do {
        ppl->random = ppl->random * 6364136223846793005u + 1442695040888963407u;
        chunk = (int64_t)((ppl->random >> 16) % limit);
    } while (!store_has_chunk(ppl->model.snapshot, chunk));
    return chunk;
}

void ppl_draw_neighbors(struct ppl *ppl, struct found_neighbors *random) {
    int r = ppl->model.info->retrieved_length;
    for (int j = 0; j < random->n; j++) {
        random->read[j].k = ppl->model.k;
        for (int i = 0; i < ppl->model.k; i++) {
            int32_t *ids = random->ids + ((size_t)j * (size_t)random->k + (size_t)i) * (size_t)r;
            snapshot_neighbor_tokens(ppl->model.snapshot, ppl_draw_chunk(ppl), r, ids);
        }
    }
}

static int count_chunks(const struct ppl *ppl, const struct window *window) {
    return (window->sequence.n + ppl->m - 1) / ppl->m;
}

static enum status run_retrieval(struct ppl *ppl, struct window *window, struct error *e) {
    const struct scored_sequence *sequence = &window->sequence;
    int complete = sequence->n / ppl->m;
    window->found = found_make(&ppl->model, complete, ppl->model.k, ppl->model.min_similarity);
    window->nearest = found_make(&ppl->model, count_chunks(ppl, window), PPL_NEAREST, -1);
    if (subject_retrieve(&ppl->model, sequence, 0, complete, &window->found, e) ||
        subject_retrieve(&ppl->model, sequence, 0, window->nearest.n, &window->nearest, e) ||
        subject_score(&ppl->model, sequence, window->found.read, window->logprobs[PPL_ON], e))
        return e->status;
    struct found_neighbors random = found_make(&ppl->model, complete, ppl->model.k, -1);
    ppl_draw_neighbors(ppl, &random);
    enum status status =
        subject_score(&ppl->model, sequence, random.read, window->logprobs[PPL_RANDOM], e);
    found_free(&random);
    return status;
}

static enum status run_modes(struct ppl *ppl, struct window *window, struct error *e) {
    enum status status = window_score_plain(ppl, &ppl->model, window, window->logprobs[PPL_OFF], e);
    if (status == STATUS_OK && ppl->modes[PPL_ON])
        status = retrieval_prompts(ppl->model.mode) ? window_score_prompts(ppl, window, e)
                                                    : run_retrieval(ppl, window, e);
    if (status == STATUS_OK && ppl->modes[PPL_GPT])
        status = window_score_plain(ppl, &ppl->gpt, window, window->logprobs[PPL_GPT], e);
    return status;
}

/* A chunk's tokens, and what is known of its overlap with the texts so far. */
struct overlap {
    const int32_t *tokens;
    int n;
    float run;   /* the longest that any one shares, as a share of the chunk */
    bool *grams; /* [overlap_grams(n)] found in any */
};

static void compare(struct overlap *overlap, const int32_t *text, int n_text) {
    overlap->run =
        fmaxf(overlap->run, (float)overlap_longest_run(overlap->tokens, overlap->n, text, n_text) /
                                (float)overlap->n);
    overlap_mark(overlap->tokens, overlap->n, text, n_text, overlap->grams);
}

static void compare_neighbors(struct overlap *overlap, const struct neighbor_tokens *with, int r) {
    for (int i = 0; i < with->k; i++) compare(overlap, with->ids + (size_t)i * (size_t)r, r);
}

/* The overlap of chunk c with what it read, and with the texts nearest to it. */
static struct ppl_chunk measure(const struct ppl *ppl, const struct window *window, int c) {
    int n = min_int(ppl->m, window->sequence.n - c * ppl->m), n_grams = overlap_grams(n),
        shared = 0;
    struct overlap overlap = {window->sequence.tokens + c * ppl->m, n, 0,
                              xcalloc((size_t)n_grams, sizeof(bool))};
    if (window->passages) {
        int first, end;
        window_searches(ppl, window, c, &first, &end);
        for (int i = first; i < end; i++)
            compare(&overlap, window->passages[i].ids, window->passages[i].n);
        compare(&overlap, window->nearest_texts[c].ids, window->nearest_texts[c].n);
    } else {
        int r = ppl->model.info->retrieved_length;
        compare_neighbors(&overlap, &window->found.read[c - 1], r);
        compare_neighbors(&overlap, &window->nearest.read[c], r);
    }
    for (int i = 0; i < n_grams; i++) shared += overlap.grams[i];
    free(overlap.grams);
    return (struct ppl_chunk){.run = overlap.run, .grams = (float)shared / (float)n_grams};
}

static double bits(const struct window *window, int mode, int token) {
    return -window->logprobs[mode][token] / log(2.0);
}

static void add_tokens(const struct window *window, int first, int end, enum ppl_subset subset,
                       struct ppl_sums *sums) {
    for (int i = first; i < end; i++) {
        sums->bytes[subset] += window->bytes[i];
        sums->tokens[subset] += 1;
        for (int mode = 0; mode < PPL_MODES; mode++)
            sums->bits[mode][subset] += bits(window, mode, i);
    }
}

static void keep_chunk(struct ppl *ppl, const struct window *window, struct ppl_chunk chunk,
                       int first, int end) {
    for (int i = first; i < end; i++) {
        chunk.bytes += (float)window->bytes[i];
        for (int mode = 0; mode < PPL_MODES; mode++)
            chunk.bits[mode] += (float)bits(window, mode, i);
    }
    ppl->chunks = xgrow(ppl->chunks, ppl->n_chunks, &ppl->chunks_capacity, sizeof *ppl->chunks);
    ppl->chunks[ppl->n_chunks] = chunk;
    ppl->n_chunks++;
}

static void sum_window(struct ppl *ppl, const struct window *window, struct ppl_sums *sums) {
    add_tokens(window, 1, window->sequence.n, PPL_ALL, sums);
    for (int c = 1; ppl->modes[PPL_ON] && c < count_chunks(ppl, window); c++) {
        int first = c * ppl->m, end = min_int(window->sequence.n, first + ppl->m);
        struct ppl_chunk chunk = measure(ppl, window, c);
        add_tokens(window, first, end, PPL_READING, sums);
        if (chunk.grams <= 0) add_tokens(window, first, end, PPL_NO_8GRAM, sums);
        if (chunk.grams <= 0.1f) add_tokens(window, first, end, PPL_TENTH, sums);
        if (chunk.run <= 0.125f) add_tokens(window, first, end, PPL_RUN_EIGHTH, sums);
        keep_chunk(ppl, window, chunk, first, end);
    }
}

static enum status score_window(struct ppl *ppl, const int32_t *tokens, int n,
                                struct ppl_sums *sums, struct error *e) {
    int grid = max_int(ppl->model.info->chunk_length, 1);
    struct window window = {
        .sequence = {.tokens = tokens, .n = n, .from = 1, .grid = grid_make(GRID_START, n, grid)}};
    struct buffer piece = {0};
    double *memory = xcalloc((size_t)(PPL_MODES + 1) * (size_t)n, sizeof *memory);
    for (int mode = 0; mode < PPL_MODES; mode++)
        window.logprobs[mode] = memory + (size_t)mode * (size_t)n;
    window.bytes = memory + (size_t)PPL_MODES * (size_t)n;
    for (int i = 1; i < n; i++) {
        buffer_clear(&piece);
        tokenizer_piece(ppl->model.tokenizer, tokens[i], &piece);
        window.bytes[i] = (double)piece.size;
    }
    enum status status = run_modes(ppl, &window, e);
    if (status == STATUS_OK) sum_window(ppl, &window, sums);
    found_free(&window.found);
    found_free(&window.nearest);
    window_free_passages(&window, count_chunks(ppl, &window));
    buffer_free(&piece);
    free(memory);
    return status;
}

enum status ppl_score_document(struct ppl *ppl, struct text_span text, struct error *e) {
    struct tokens tokens = {0};
    struct ppl_sums sums = {0};
    enum status status =
        tokenizer_encode(ppl->model.tokenizer, text.text, text.size, TOKENIZER_PLAIN, &tokens, e);
    for (int at = 0; at < tokens.n - 1 && status == STATUS_OK; at += ppl->window) {
        int n = min_int(ppl->window, tokens.n - at);
        if (n > 1) status = score_window(ppl, tokens.ids + at, n, &sums, e);
    }
    tokens_free(&tokens);
    if (status) return status;
    ppl->sums = xgrow(ppl->sums, ppl->n_documents, &ppl->documents_capacity, sizeof *ppl->sums);
    ppl->sums[ppl->n_documents] = sums;
    ppl->n_documents++;
    return STATUS_OK;
}
