/* tools/eval/ppl_prompt.c: a window scored with passages in the prompt, as a server writes it that is given its first
 * chunk (ppl.h).
 *
 * The first chunk of a window is the prompt. Passages that its end finds stand before it, and the model scores what
 * follows; with retrieval.every, others take their place after so many tokens, found by the last PASSAGE_QUERY_TOKENS
 * before. Tokens of the first chunk read no passages. In mode both, the chunks of all that is read have neighbours. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/eval/ppl.h"

/* The tokens that a search's passages are read for. */
struct scored_tokens {
    int first, end;
};

static int count_searches(const struct ppl *p, int n) {
    int behind = n - p->m, every = p->model.every;
    if (behind <= 0) return 0;
    return every > 0 ? (behind + every - 1) / every : 1;
}

static struct scored_tokens stretch_of(const struct ppl *p, const struct window *w, int search) {
    int every = p->model.every, n = w->sequence.n, first = p->m + search * every;
    return (struct scored_tokens){first, every > 0 ? min_int(n, first + every) : n};
}

void window_searches(const struct ppl *p, const struct window *w, int c, int *first, int *end) {
    int start = c * p->m, stop = min_int(w->sequence.n, start + p->m);
    *first = *end = 0;
    for (int i = 0; i < w->n_searches; i++) {
        struct scored_tokens s = stretch_of(p, w, i);
        if (s.end <= start) *first = i + 1;
        if (s.first < stop) *end = i + 1;
    }
}

/* Scoring. */

/* Tokens of the window behind a head of other tokens. */
struct prompt_reading {
    const struct tokens *head;
    struct scored_tokens part;
    bool searches, random; /* mode both: neighbours that are found, or drawn */
};

static enum status read_neighbors(struct ppl *p, const struct scored_sequence *q, const struct prompt_reading *b,
                                  struct found_neighbors *found, struct error *e) {
    int n = grid_complete(q->grid, q->n - 1);
    *found = found_make(&p->model, n, p->model.k, p->model.min_similarity);
    if (b->random) ppl_draw_neighbors(p, found);
    return b->searches ? subject_retrieve(&p->model, q, 0, n, found, e) : STATUS_OK;
}

static enum status score_behind(struct ppl *p, struct subject *s, const struct window *w,
                                const struct prompt_reading *b, double *logprobs, struct error *e) {
    int head = b->head->n, n = head + b->part.end, first = head + b->part.first, m = s->info->chunk_length;
    struct found_neighbors found = {0};
    struct tokens all = {0};
    enum status status = STATUS_OK;
    for (int i = 0; i < head; i++) tokens_append(&all, b->head->ids[i], 0);
    for (int i = 0; i < b->part.end; i++) tokens_append(&all, w->sequence.tokens[i], 0);
    struct scored_sequence q = {
        .tokens = all.ids, .n = n, .from = first, .grid = m > 0 ? grid_make(s->grid, first, m) : (struct grid){0}};
    double *scored = xcalloc((size_t)n, sizeof *scored);
    if (b->searches || b->random) status = read_neighbors(p, &q, b, &found, e);
    if (status == STATUS_OK) status = subject_score(s, &q, found.read, scored, e);
    if (status == STATUS_OK)
        memcpy(logprobs + b->part.first, scored + first, (size_t)(b->part.end - b->part.first) * sizeof *logprobs);
    found_free(&found);
    tokens_free(&all);
    free(scored);
    return status;
}

enum status window_score_plain(struct ppl *p, struct subject *s, const struct window *w, double *logprobs,
                               struct error *e) {
    struct tokens head = {0};
    if (p->begin < 0) return subject_score(s, &w->sequence, NULL, logprobs, e);
    tokens_append(&head, p->begin, 0);
    struct prompt_reading behind = {.head = &head, .part = {1, w->sequence.n}};
    enum status status = score_behind(p, s, w, &behind, logprobs, e);
    tokens_free(&head);
    return status;
}

/* Passages. */

static void draw_hits(struct ppl *p, struct hits *hits) {
    *hits = (struct hits){.n = p->model.k_passages};
    hits->list = xcalloc((size_t)hits->n, sizeof *hits->list);
    for (int i = 0; i < hits->n; i++) {
        struct chunk chunk = snapshot_chunk(p->model.snapshot, ppl_draw_chunk(p));
        hit_show(&hits->list[i], &chunk, 0);
    }
}

struct text_tokens {
    const int32_t *ids;
    int n;
};

/* The k chunks nearest to n tokens, as far as the floor lets them. */
static enum status find_hits(struct ppl *p, struct text_tokens part, int k, float floor, struct hits *hits,
                             struct error *e) {
    struct buffer text = {0};
    tokenizer_decode(p->model.tokenizer, part.ids, part.n, true, &text);
    struct retriever_query query = {.text = {text.data ? text.data : "", text.size}, .k = k, .min_similarity = floor};
    enum status status = retriever_search(p->model.documents.retriever, &query, 1, hits, e);
    buffer_free(&text);
    return status;
}

/* The tokens before the window: the id that begins texts, and passages of the hits, which are also added to *read. */
static enum status write_head(struct ppl *p, const struct hits *hits, struct tokens *head, struct tokens *read,
                              struct error *e) {
    struct passages passages = {0};
    const struct passage_options *o = &p->model.passages;
    struct passage_sources from = {.hits = hits};
    enum status status = passages_write(o, p->model.tokenizer, &from, o->max_tokens, &passages, e);
    if (p->begin >= 0) tokens_append(head, p->begin, 0);
    for (int i = 0; i < passages.ids.n && status == STATUS_OK; i++) {
        tokens_append(head, passages.ids.ids[i], 0);
        if (read) tokens_append(read, passages.ids.ids[i], 0);
    }
    passages_free(&passages);
    return status;
}

/* Scores one stretch behind the passages of the hits. */
static enum status score_stretch(struct ppl *p, struct window *w, int search, const struct hits *hits,
                                 enum ppl_mode mode, struct error *e) {
    struct tokens head = {0};
    bool both = p->model.mode == RETRIEVAL_BOTH;
    enum status status = write_head(p, hits, &head, mode == PPL_ON ? &w->passages[search] : NULL, e);
    struct prompt_reading behind = {.head = &head,
                                    .part = stretch_of(p, w, search),
                                    .searches = both && mode == PPL_ON,
                                    .random = both && mode == PPL_RANDOM};
    if (status == STATUS_OK) status = score_behind(p, &p->model, w, &behind, w->logprobs[mode], e);
    tokens_free(&head);
    return status;
}

static enum status run_search(struct ppl *p, struct window *w, int search, struct error *e) {
    int first = stretch_of(p, w, search).first, taken = min_int(first, PASSAGE_QUERY_TOKENS);
    struct hits found = {0}, drawn = {0};
    struct text_tokens last = {w->sequence.tokens + first - taken, taken};
    enum status status = find_hits(p, last, p->model.k_passages, p->model.min_similarity, &found, e);
    if (status == STATUS_OK) status = score_stretch(p, w, search, &found, PPL_ON, e);
    draw_hits(p, &drawn);
    if (status == STATUS_OK) status = score_stretch(p, w, search, &drawn, PPL_RANDOM, e);
    hits_free(&found);
    hits_free(&drawn);
    return status;
}

/* Overlap. */

/* A chunk of the collection and as many bytes behind it, as the model's tokens. */
static enum status append_continued(const struct ppl *p, const struct hit *hit, struct tokens *out, struct error *e) {
    uint64_t size = hit->end - hit->start, left = hit->source.size - hit->start;
    const char *text = hit->source.text + hit->start;
    tokens_append(out, -1, 0);
    return tokenizer_encode(p->model.tokenizer, text, (size_t)(2 * size < left ? 2 * size : left), TOKENIZER_PLAIN, out,
                            e);
}

static enum status find_nearest(struct ppl *p, struct window *w, int c, struct error *e) {
    int start = c * p->m;
    struct text_tokens chunk = {w->sequence.tokens + start, min_int(p->m, w->sequence.n - start)};
    struct hits hits = {0};
    enum status status = find_hits(p, chunk, PPL_NEAREST, -1, &hits, e);
    for (int i = 0; i < hits.n && status == STATUS_OK; i++)
        status = append_continued(p, &hits.list[i], &w->nearest_texts[c], e);
    hits_free(&hits);
    return status;
}

enum status window_score_prompts(struct ppl *p, struct window *w, struct error *e) {
    int n = w->sequence.n, n_chunks = (n + p->m - 1) / p->m, head = min_int(n, p->m);
    enum status status = STATUS_OK;
    w->n_searches = count_searches(p, n);
    w->passages = xcalloc((size_t)w->n_searches + 1, sizeof *w->passages);
    w->nearest_texts = xcalloc((size_t)n_chunks, sizeof *w->nearest_texts);
    memcpy(w->logprobs[PPL_ON], w->logprobs[PPL_OFF], (size_t)head * sizeof(double));
    memcpy(w->logprobs[PPL_RANDOM], w->logprobs[PPL_OFF], (size_t)head * sizeof(double));
    for (int i = 0; i < w->n_searches && status == STATUS_OK; i++) status = run_search(p, w, i, e);
    for (int c = 1; c < n_chunks && status == STATUS_OK; c++) status = find_nearest(p, w, c, e);
    return status;
}

void window_free_passages(struct window *w, int n_chunks) {
    for (int i = 0; i < w->n_searches; i++) tokens_free(&w->passages[i]);
    for (int c = 0; c < n_chunks && w->nearest_texts; c++) tokens_free(&w->nearest_texts[c]);
    free(w->passages);
    free(w->nearest_texts);
}
