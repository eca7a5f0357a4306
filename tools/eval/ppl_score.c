/* tools/eval/ppl_score.c: the windows of one document through the models, once for each mode. See ppl.h for the
 * definition.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/store/store.h"
#include "tools/eval/ppl.h"

int64_t ppl_draw_chunk(struct ppl *p) {
    uint64_t limit = (uint64_t)p->model.snapshot->chunk_limit;
    int64_t chunk;
    do {
        p->random = p->random * 6364136223846793005u + 1442695040888963407u;
        chunk = (int64_t)((p->random >> 16) % limit);
    } while (!store_has_chunk(p->model.snapshot, chunk));
    return chunk;
}

void ppl_draw_neighbors(struct ppl *p, struct found_neighbors *random) {
    int r = p->model.info->retrieved_length;
    for (int j = 0; j < random->n; j++) {
        random->read[j].k = p->model.k;
        for (int i = 0; i < p->model.k; i++) {
            int32_t *ids = random->ids + ((size_t)j * (size_t)random->k + (size_t)i) * (size_t)r;
            snapshot_neighbor_tokens(p->model.snapshot, ppl_draw_chunk(p), r, ids);
        }
    }
}

static int count_chunks(const struct ppl *p, const struct window *w) { return (w->sequence.n + p->m - 1) / p->m; }

static enum status run_retrieval(struct ppl *p, struct window *w, struct error *e) {
    const struct scored_sequence *q = &w->sequence;
    int complete = q->n / p->m;
    w->found = found_make(&p->model, complete, p->model.k, p->model.min_similarity);
    w->nearest = found_make(&p->model, count_chunks(p, w), PPL_NEAREST, -1);
    if (subject_retrieve(&p->model, q, 0, complete, &w->found, e) ||
        subject_retrieve(&p->model, q, 0, w->nearest.n, &w->nearest, e) ||
        subject_score(&p->model, q, w->found.read, w->logprobs[PPL_ON], e))
        return e->status;
    struct found_neighbors random = found_make(&p->model, complete, p->model.k, -1);
    ppl_draw_neighbors(p, &random);
    enum status status = subject_score(&p->model, q, random.read, w->logprobs[PPL_RANDOM], e);
    found_free(&random);
    return status;
}

static enum status run_modes(struct ppl *p, struct window *w, struct error *e) {
    enum status status = window_score_plain(p, &p->model, w, w->logprobs[PPL_OFF], e);
    if (status == STATUS_OK && p->modes[PPL_ON])
        status = retrieval_prompts(p->model.mode) ? window_score_prompts(p, w, e) : run_retrieval(p, w, e);
    if (status == STATUS_OK && p->modes[PPL_GPT]) status = window_score_plain(p, &p->gpt, w, w->logprobs[PPL_GPT], e);
    return status;
}

/* A chunk's tokens, and what is known of its overlap with the texts so far. */
struct overlap {
    const int32_t *tokens;
    int n;
    float run;   /* the longest that any one shares, as a share of the chunk */
    bool *grams; /* [overlap_grams(n)] found in any */
};

static void compare(struct overlap *o, const int32_t *text, int n_text) {
    o->run = fmaxf(o->run, (float)overlap_longest_run(o->tokens, o->n, text, n_text) / (float)o->n);
    overlap_mark(o->tokens, o->n, text, n_text, o->grams);
}

static void compare_neighbors(struct overlap *o, const struct neighbor_tokens *with, int r) {
    for (int i = 0; i < with->k; i++) compare(o, with->ids + (size_t)i * (size_t)r, r);
}

/* The overlap of chunk c with what it read, and with the texts nearest to it. */
static struct ppl_chunk measure(const struct ppl *p, const struct window *w, int c) {
    int n = min_int(p->m, w->sequence.n - c * p->m), n_grams = overlap_grams(n), shared = 0;
    struct overlap o = {w->sequence.tokens + c * p->m, n, 0, xcalloc((size_t)n_grams, sizeof(bool))};
    if (w->passages) {
        int first, end;
        window_searches(p, w, c, &first, &end);
        for (int i = first; i < end; i++) compare(&o, w->passages[i].ids, w->passages[i].n);
        compare(&o, w->nearest_texts[c].ids, w->nearest_texts[c].n);
    } else {
        int r = p->model.info->retrieved_length;
        compare_neighbors(&o, &w->found.read[c - 1], r);
        compare_neighbors(&o, &w->nearest.read[c], r);
    }
    for (int i = 0; i < n_grams; i++) shared += o.grams[i];
    free(o.grams);
    return (struct ppl_chunk){.run = o.run, .grams = (float)shared / (float)n_grams};
}

static double bits(const struct window *w, int mode, int token) { return -w->logprobs[mode][token] / log(2.0); }

static void add_tokens(const struct window *w, int first, int end, enum ppl_subset subset, struct ppl_sums *sums) {
    for (int i = first; i < end; i++) {
        sums->bytes[subset] += w->bytes[i];
        sums->tokens[subset] += 1;
        for (int mode = 0; mode < PPL_MODES; mode++) sums->bits[mode][subset] += bits(w, mode, i);
    }
}

static void keep_chunk(struct ppl *p, const struct window *w, struct ppl_chunk chunk, int first, int end) {
    for (int i = first; i < end; i++) {
        chunk.bytes += (float)w->bytes[i];
        for (int mode = 0; mode < PPL_MODES; mode++) chunk.bits[mode] += (float)bits(w, mode, i);
    }
    p->chunks = xgrow(p->chunks, p->n_chunks, &p->chunks_capacity, sizeof *p->chunks);
    p->chunks[p->n_chunks] = chunk;
    p->n_chunks++;
}

static void sum_window(struct ppl *p, const struct window *w, struct ppl_sums *sums) {
    add_tokens(w, 1, w->sequence.n, PPL_ALL, sums);
    for (int c = 1; p->modes[PPL_ON] && c < count_chunks(p, w); c++) {
        int first = c * p->m, end = min_int(w->sequence.n, first + p->m);
        struct ppl_chunk chunk = measure(p, w, c);
        add_tokens(w, first, end, PPL_READING, sums);
        if (chunk.grams <= 0) add_tokens(w, first, end, PPL_NO_8GRAM, sums);
        if (chunk.grams <= 0.1f) add_tokens(w, first, end, PPL_TENTH, sums);
        if (chunk.run <= 0.125f) add_tokens(w, first, end, PPL_RUN_EIGHTH, sums);
        keep_chunk(p, w, chunk, first, end);
    }
}

static enum status score_window(struct ppl *p, const int32_t *tokens, int n, struct ppl_sums *sums, struct error *e) {
    int grid = max_int(p->model.info->chunk_length, 1);
    struct window w = {.sequence = {.tokens = tokens, .n = n, .from = 1, .grid = grid_make(GRID_START, n, grid)}};
    struct buffer piece = {0};
    double *memory = xcalloc((size_t)(PPL_MODES + 1) * (size_t)n, sizeof *memory);
    for (int mode = 0; mode < PPL_MODES; mode++) w.logprobs[mode] = memory + (size_t)mode * (size_t)n;
    w.bytes = memory + (size_t)PPL_MODES * (size_t)n;
    for (int i = 1; i < n; i++) {
        buffer_clear(&piece);
        tokenizer_piece(p->model.tokenizer, tokens[i], &piece);
        w.bytes[i] = (double)piece.size;
    }
    enum status status = run_modes(p, &w, e);
    if (status == STATUS_OK) sum_window(p, &w, sums);
    found_free(&w.found);
    found_free(&w.nearest);
    window_free_passages(&w, count_chunks(p, &w));
    buffer_free(&piece);
    free(memory);
    return status;
}

enum status ppl_score_document(struct ppl *p, struct text_span text, struct error *e) {
    struct tokens t = {0};
    struct ppl_sums sums = {0};
    enum status status = tokenizer_encode(p->model.tokenizer, text.text, text.size, TOKENIZER_PLAIN, &t, e);
    for (int at = 0; at < t.n - 1 && status == STATUS_OK; at += p->window) {
        int n = min_int(p->window, t.n - at);
        if (n > 1) status = score_window(p, t.ids + at, n, &sums, e);
    }
    tokens_free(&t);
    if (status) return status;
    p->sums = xgrow(p->sums, p->n_documents, &p->documents_capacity, sizeof *p->sums);
    p->sums[p->n_documents] = sums;
    p->n_documents++;
    return STATUS_OK;
}
