/* tools/ppl_score.c: the windows of one document through the model, once for each mode. See ppl.h for the definition.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ppl.h"

/* Neighbours of all complete chunks of a window, for one mode. */
struct neighbor_sets {
    struct neighbor_tokens *sets; /* [n] */
    int32_t *ids;                 /* [n, k, r] */
    int n;
};

/* One window while it is scored. */
struct window {
    const int32_t *tokens;
    int n, m, r;
    double *bits[PPL_MODES];    /* [n], entry i is token i's; entry 0 unused */
    double *bytes;              /* [n] */
    struct neighbor_sets found; /* of the mode PPL_ON, kept for the overlap */
};

static struct neighbor_sets sets_make(const struct ppl_scorer *s, const struct window *w) {
    int n = w->m ? w->n / w->m : 0;
    struct neighbor_sets sets = {.n = n};
    sets.sets = xcalloc((size_t)n + 1, sizeof *sets.sets);
    sets.ids = xcalloc((size_t)n * (size_t)s->k * (size_t)w->r + 1, sizeof *sets.ids);
    for (int j = 0; j < n; j++) sets.sets[j].ids = sets.ids + (size_t)j * (size_t)s->k * (size_t)w->r;
    return sets;
}

static void sets_free(struct neighbor_sets *sets) {
    free(sets->sets);
    free(sets->ids);
}

/* All chunks of the window in one search. */
static enum status retrieve(struct ppl_scorer *s, const struct window *w, struct neighbor_sets *sets, struct error *e) {
    size_t n = (size_t)sets->n;
    struct retriever_query *queries = xcalloc(n + 1, sizeof *queries);
    struct retriever_result *results = xcalloc(n + 1, sizeof *results);
    struct buffer *texts = xcalloc(n + 1, sizeof *texts);
    for (size_t j = 0; j < n; j++) {
        tokenizer_decode(s->tokenizer, w->tokens + j * (size_t)w->m, w->m, true, &texts[j]);
        queries[j] = (struct retriever_query){{texts[j].data, texts[j].size}, s->k, s->min_similarity};
    }
    enum status status = n ? retriever_search(s->retriever, queries, (int)n, results, e) : STATUS_OK;
    for (size_t j = 0; j < n; j++) {
        if (status == STATUS_OK) {
            memcpy(sets->ids + j * (size_t)s->k * (size_t)w->r, results[j].ids,
                   (size_t)results[j].k * (size_t)w->r * sizeof *sets->ids);
            sets->sets[j].k = results[j].k;
            retriever_result_free(&results[j]);
        }
        buffer_free(&texts[j]);
    }
    free(texts);
    free(results);
    free(queries);
    return status;
}

/* k chunks of the collection drawn uniformly, the same for the same seed and order of windows. */
static void draw_random(struct ppl_scorer *s, const struct window *w, struct neighbor_sets *sets) {
    uint64_t count = (uint64_t)collection_info(s->collection)->n_chunks;
    for (int j = 0; j < sets->n; j++) {
        sets->sets[j].k = s->k;
        for (int i = 0; i < s->k; i++) {
            s->seed = s->seed * 6364136223846793005u + 1442695040888963407u;
            collection_neighbor_tokens(s->collection, (int64_t)((s->seed >> 16) % count), w->r,
                                       sets->ids + ((size_t)j * (size_t)s->k + (size_t)i) * (size_t)w->r);
        }
    }
}

static double bits_of(const float *logits, int vocab, int32_t id) {
    double sum = 0, largest = (double)logits[0];
    for (int i = 1; i < vocab; i++) largest = fmax(largest, (double)logits[i]);
    for (int i = 0; i < vocab; i++) sum += exp((double)logits[i] - largest);
    return (largest + log(sum) - (double)logits[id]) / log(2.0);
}

/* Feeds the window in slices; every row's logits score the next token. sets NULL: a model without retrieval. */
static enum status run(struct ppl_scorer *s, bool baseline, const struct window *w, const struct neighbor_sets *sets,
                       double *bits, struct error *e) {
    struct session_pool *pool = baseline ? s->baseline_pool : s->pool;
    int vocab = model_info(baseline ? s->baseline : s->model)->padded_vocab;
    struct grid grid = w->m ? grid_make(GRID_START, w->n, w->m) : (struct grid){1, 1};
    struct session *session;
    struct tensor logits;
    if (session_open(&session, pool, grid, e)) return e->status;
    enum status status = STATUS_OK;
    for (int at = 0; at < w->n - 1 && status == STATUS_OK;) {
        int rows = min_int(s->slice, w->n - 1 - at);
        struct step_item item = {.session = session,
                                 .tokens = w->tokens + at,
                                 .n_tokens = rows,
                                 .neighbors = sets ? sets->sets + grid_complete(grid, at) : NULL,
                                 .n_logits = rows};
        status = session_step(pool, &item, 1, &logits, e);
        if (status) break;
        backend_download(s->backend, s->logits, logits.data, (size_t)rows * (size_t)vocab * sizeof(float));
        status = backend_sync(s->backend, e);
        for (int i = 0; i < rows && status == STATUS_OK; i++)
            bits[at + i + 1] = bits_of(s->logits + (size_t)i * (size_t)vocab, vocab, w->tokens[at + i + 1]);
        at += rows;
    }
    session_close(session);
    return status;
}

static enum status run_modes(struct ppl_scorer *s, struct window *w, struct error *e) {
    struct neighbor_sets none = sets_make(s, w), random = sets_make(s, w);
    enum status status = STATUS_OK;
    if (s->modes[PPL_ON]) status = retrieve(s, w, &w->found, e);
    if (status == STATUS_OK && s->modes[PPL_ON]) status = run(s, false, w, &w->found, w->bits[PPL_ON], e);
    if (status == STATUS_OK && s->modes[PPL_OFF]) status = run(s, false, w, &none, w->bits[PPL_OFF], e);
    if (status == STATUS_OK && s->modes[PPL_RANDOM]) {
        draw_random(s, w, &random);
        status = run(s, false, w, &random, w->bits[PPL_RANDOM], e);
    }
    if (status == STATUS_OK && s->modes[PPL_BASELINE]) status = run(s, true, w, NULL, w->bits[PPL_BASELINE], e);
    sets_free(&none);
    sets_free(&random);
    return status;
}

/* The overlap of chunk c with what it read: the neighbours of chunk c - 1. */
static struct ppl_chunk measure(const struct window *w, int c, int n) {
    const struct neighbor_tokens *read = &w->found.sets[c - 1];
    const int32_t *tokens = w->tokens + c * w->m;
    struct ppl_chunk chunk = {0};
    bool *found = xcalloc((size_t)w->m, sizeof *found);
    int longest = 0, shared = 0;
    for (int i = 0; i < read->k; i++) {
        longest = max_int(longest, overlap_longest_run(tokens, n, read->ids + i * w->r, w->r));
        overlap_mark_8grams(tokens, n, read->ids + i * w->r, w->r, found);
    }
    for (int i = 0; i < n; i++) shared += found[i];
    chunk.run = (float)longest / (float)w->m;
    chunk.shared = n >= 8 ? (float)shared / (float)(n - 7) : 0;
    free(found);
    return chunk;
}

static void add_tokens(const struct window *w, int first, int end, enum ppl_subset subset, struct ppl_sums *sums) {
    for (int i = first; i < end; i++) {
        sums->bytes[subset] += w->bytes[i];
        sums->tokens[subset] += 1;
        for (int mode = 0; mode < PPL_MODES; mode++) sums->bits[mode][subset] += w->bits[mode][i];
    }
}

static void keep_chunk(struct ppl_scorer *s, const struct window *w, struct ppl_chunk chunk, int first, int end) {
    for (int i = first; i < end; i++) {
        chunk.bytes += (float)w->bytes[i];
        for (int mode = 0; mode < PPL_MODES; mode++) chunk.bits[mode] += (float)w->bits[mode][i];
    }
    if (s->n_chunks == s->chunk_capacity) {
        s->chunk_capacity = s->chunk_capacity ? 2 * s->chunk_capacity : 1024;
        s->chunks = xrealloc(s->chunks, (size_t)s->chunk_capacity * sizeof *s->chunks);
    }
    s->chunks[s->n_chunks++] = chunk;
}

static void sum_window(struct ppl_scorer *s, const struct window *w, struct ppl_sums *sums) {
    add_tokens(w, 1, w->n, PPL_ALL, sums);
    for (int c = 1; w->m && s->modes[PPL_ON] && c * w->m < w->n; c++) {
        int first = c * w->m, end = min_int(w->n, first + w->m);
        struct ppl_chunk chunk = measure(w, c, end - first);
        add_tokens(w, first, end, PPL_AFTER_FIRST, sums);
        if (chunk.shared <= 0) add_tokens(w, first, end, PPL_NO_8GRAM, sums);
        if (chunk.shared <= 0.1f) add_tokens(w, first, end, PPL_UNDER_10, sums);
        if (chunk.run <= 0.125f) add_tokens(w, first, end, PPL_RUN_EIGHTH, sums);
        keep_chunk(s, w, chunk, first, end);
    }
}

static enum status score_window(struct ppl_scorer *s, const int32_t *tokens, int n, struct ppl_sums *sums,
                                struct error *e) {
    const struct model_info *info = model_info(s->model);
    struct window w = {.tokens = tokens, .n = n, .m = info->chunk_length, .r = info->retrieved_length};
    struct buffer piece = {0};
    double *memory = xcalloc((size_t)(PPL_MODES + 1) * (size_t)n, sizeof *memory);
    for (int mode = 0; mode < PPL_MODES; mode++) w.bits[mode] = memory + (size_t)mode * (size_t)n;
    w.bytes = memory + (size_t)PPL_MODES * (size_t)n;
    w.found = sets_make(s, &w);
    for (int i = 1; i < n; i++) {
        buffer_clear(&piece);
        tokenizer_piece(s->tokenizer, tokens[i], &piece);
        w.bytes[i] = (double)piece.size;
    }
    enum status status = run_modes(s, &w, e);
    if (status == STATUS_OK) sum_window(s, &w, sums);
    sets_free(&w.found);
    buffer_free(&piece);
    free(memory);
    return status;
}

enum status ppl_score_document(struct ppl_scorer *s, struct text_span text, struct ppl_sums *sums, struct error *e) {
    struct tokens t = {0};
    enum status status = tokenizer_encode(s->tokenizer, text.text, text.size, TOKENIZER_PLAIN, &t, e);
    for (int at = 0; at < t.n - 1 && status == STATUS_OK; at += s->window)
        if (min_int(s->window, t.n - at) > 1)
            status = score_window(s, t.ids + at, min_int(s->window, t.n - at), sums, e);
    tokens_free(&t);
    return status;
}
