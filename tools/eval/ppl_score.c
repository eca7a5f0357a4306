/* tools/eval/ppl_score.c: the windows of one document through the models, once for each mode. See ppl.h for the
 * definition.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/eval/ppl.h"

/* One window while it is scored. */
struct window {
    struct sequence sequence;
    int m, r;
    double *logprobs[PPL_MODES];    /* [n], entry 0 unused */
    double *bytes;                  /* [n] */
    struct found_neighbors found;   /* what complete chunks read */
    struct found_neighbors nearest; /* PPL_NEAREST of every chunk, one cut off at the end included */
};

/* k chunks of the collection drawn uniformly for each complete chunk, the same for the same seed and order of windows.
 */
static void draw_random(struct ppl *p, const struct window *w, struct found_neighbors *random) {
    uint64_t count = (uint64_t)collection_info(p->model.documents.collection)->n_chunks;
    for (int j = 0; j < random->n; j++) {
        random->read[j].k = p->model.k;
        for (int i = 0; i < p->model.k; i++) {
            p->random = p->random * 6364136223846793005u + 1442695040888963407u;
            int32_t *ids = random->ids + ((size_t)j * (size_t)random->k + (size_t)i) * (size_t)w->r;
            collection_neighbor_tokens(p->model.documents.collection, (int64_t)((p->random >> 16) % count), w->r, ids);
        }
    }
}

static enum status run_retrieval(struct ppl *p, struct window *w, struct error *e) {
    const struct sequence *q = &w->sequence;
    int complete = q->n / w->m;
    w->found = found_make(&p->model, complete, p->model.k, p->model.min_similarity);
    w->nearest = found_make(&p->model, (q->n + w->m - 1) / w->m, PPL_NEAREST, -1);
    if (subject_retrieve(&p->model, q, 0, complete, &w->found, e) ||
        subject_retrieve(&p->model, q, 0, w->nearest.n, &w->nearest, e) ||
        subject_score(&p->model, q, w->found.read, w->logprobs[PPL_ON], e))
        return e->status;
    struct found_neighbors random = found_make(&p->model, complete, p->model.k, -1);
    draw_random(p, w, &random);
    enum status status = subject_score(&p->model, q, random.read, w->logprobs[PPL_RANDOM], e);
    found_free(&random);
    return status;
}

static enum status run_modes(struct ppl *p, struct window *w, struct error *e) {
    enum status status = subject_score(&p->model, &w->sequence, NULL, w->logprobs[PPL_OFF], e);
    if (status == STATUS_OK && p->modes[PPL_ON]) status = run_retrieval(p, w, e);
    if (status == STATUS_OK && p->modes[PPL_GPT])
        status = subject_score(&p->gpt, &w->sequence, NULL, w->logprobs[PPL_GPT], e);
    return status;
}

/* Measures what a chunk shares with some neighbours: the most of any one, and all of them together. */
static void compare(const struct window *w, int c, const struct neighbor_tokens *with, struct ppl_chunk *chunk,
                    bool *grams) {
    const int32_t *tokens = w->sequence.tokens + c * w->m, *ids = with->ids;
    int length = min_int(w->m, w->sequence.n - c * w->m);
    for (int i = 0; i < with->k; i++, ids += w->r) {
        chunk->run = fmaxf(chunk->run, (float)overlap_longest_run(tokens, length, ids, w->r) / (float)length);
        overlap_mark(tokens, length, ids, w->r, grams);
    }
}

/* The overlap of chunk c with what it read, the neighbours of chunk c - 1, and with its own nearest chunks. */
static struct ppl_chunk measure(const struct window *w, int c) {
    int n = overlap_grams(min_int(w->m, w->sequence.n - c * w->m)), shared = 0;
    bool *grams = xcalloc((size_t)n, sizeof *grams);
    struct ppl_chunk chunk = {0};
    compare(w, c, &w->found.read[c - 1], &chunk, grams);
    compare(w, c, &w->nearest.read[c], &chunk, grams);
    for (int i = 0; i < n; i++) shared += grams[i];
    chunk.grams = (float)shared / (float)n;
    free(grams);
    return chunk;
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
    for (int c = 1; c < w->nearest.n; c++) {
        int first = c * w->m, end = min_int(w->sequence.n, first + w->m);
        struct ppl_chunk chunk = measure(w, c);
        add_tokens(w, first, end, PPL_READING, sums);
        if (chunk.grams <= 0) add_tokens(w, first, end, PPL_NO_8GRAM, sums);
        if (chunk.grams <= 0.1f) add_tokens(w, first, end, PPL_TENTH, sums);
        if (chunk.run <= 0.125f) add_tokens(w, first, end, PPL_RUN_EIGHTH, sums);
        keep_chunk(p, w, chunk, first, end);
    }
}

static enum status score_window(struct ppl *p, const int32_t *tokens, int n, struct ppl_sums *sums, struct error *e) {
    const struct model_info *info = p->model.info;
    int m = info->chunk_length;
    struct window w = {
        .sequence = {.tokens = tokens, .n = n, .from = 1, .grid = grid_make(GRID_START, n, max_int(m, 1))},
        .m = m,
        .r = info->retrieved_length};
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
