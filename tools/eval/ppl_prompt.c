/* tools/eval/ppl_prompt.c: a window scored with passages in the prompt, as a server writes it that
 * is given its first chunk (ppl.h).
 *
 * The first chunk of a window is the prompt. Passages that its end finds stand before it, and the
 * model scores what follows; with retrieval.every, others take their place after so many tokens,
 * found by the last PASSAGE_QUERY_TOKENS before. Tokens of the first chunk read no passages. In
 * mode both, the chunks of all that is read have neighbours. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/eval/ppl.h"

/* The tokens that a search's passages are read for. */
struct scored_tokens {
    int first, end;
};

static int count_searches(const struct ppl *ppl, int n) {
    int behind = n - ppl->m, every = ppl->model.every;
    if (behind <= 0) return 0;
    return every > 0 ? (behind + every - 1) / every : 1;
}

static struct scored_tokens stretch_of(const struct ppl *ppl, const struct window *window,
                                       int search) {
    int every = ppl->model.every, n = window->sequence.n, first = ppl->m + search * every;
    return (struct scored_tokens){first, every > 0 ? min_int(n, first + every) : n};
}

void window_searches(const struct ppl *ppl, const struct window *window, int c, int *first,
                     int *end) {
    int start = c * ppl->m, stop = min_int(window->sequence.n, start + ppl->m);
    *first = *end = 0;
    for (int i = 0; i < window->n_searches; i++) {
        struct scored_tokens tokens = stretch_of(ppl, window, i);
        if (tokens.end <= start) *first = i + 1;
        if (tokens.first < stop) *end = i + 1;
    }
}

/* Scoring. */

/* Tokens of the window behind a head of other tokens. */
struct prompt_reading {
    const struct tokens *head;
    struct scored_tokens part;
    bool searches, random; /* mode both: neighbours that are found, or drawn */
};

static enum status read_neighbors(struct ppl *ppl, const struct scored_sequence *sequence,
                                  const struct prompt_reading *reading,
                                  struct found_neighbors *found, struct error *e) {
    int n = grid_complete(sequence->grid, sequence->n - 1);
    *found = found_make(&ppl->model, n, ppl->model.k, ppl->model.min_similarity);
    if (reading->random) ppl_draw_neighbors(ppl, found);
    return reading->searches ? subject_retrieve(&ppl->model, sequence, 0, n, found, e) : STATUS_OK;
}

static enum status score_behind(struct ppl *ppl, struct subject *subject,
                                const struct window *window, const struct prompt_reading *reading,
                                double *logprobs, struct error *e) {
    int head = reading->head->n, n = head + reading->part.end, first = head + reading->part.first,
        m = subject->info->chunk_length;
    struct found_neighbors found = {0};
    struct tokens all = {0};
    enum status status = STATUS_OK;
    for (int i = 0; i < head; i++) tokens_append(&all, reading->head->ids[i], 0);
    for (int i = 0; i < reading->part.end; i++) tokens_append(&all, window->sequence.tokens[i], 0);
    struct scored_sequence sequence = {
        .tokens = all.ids,
        .n = n,
        .from = first,
        .grid = m > 0 ? grid_make(subject->grid, first, m) : (struct grid){0}};
    double *scored = xcalloc((size_t)n, sizeof *scored);
    if (reading->searches || reading->random)
        status = read_neighbors(ppl, &sequence, reading, &found, e);
    if (status == STATUS_OK) status = subject_score(subject, &sequence, found.read, scored, e);
    if (status == STATUS_OK)
        memcpy(logprobs + reading->part.first, scored + first,
               (size_t)(reading->part.end - reading->part.first) * sizeof *logprobs);
    found_free(&found);
    tokens_free(&all);
    free(scored);
    return status;
}

enum status window_score_plain(struct ppl *ppl, struct subject *subject,
                               const struct window *window, double *logprobs, struct error *e) {
    struct tokens head = {0};
    if (ppl->begin < 0) return subject_score(subject, &window->sequence, NULL, logprobs, e);
    tokens_append(&head, ppl->begin, 0);
    struct prompt_reading behind = {.head = &head, .part = {1, window->sequence.n}};
    enum status status = score_behind(ppl, subject, window, &behind, logprobs, e);
    tokens_free(&head);
    return status;
}

/* Passages. */

static void draw_hits(struct ppl *ppl, struct hits *hits) {
    *hits = (struct hits){.n = ppl->model.k_passages};
    hits->list = xcalloc((size_t)hits->n, sizeof *hits->list);
    for (int i = 0; i < hits->n; i++) {
        struct chunk chunk = snapshot_chunk(ppl->model.snapshot, ppl_draw_chunk(ppl));
        hit_show(&hits->list[i], &chunk, 0);
    }
}

struct text_tokens {
    const int32_t *ids;
    int n;
};

/* The k chunks nearest to n tokens, as far as the floor lets them. */
static enum status find_hits(struct ppl *ppl, struct text_tokens part, int k, float floor,
                             struct hits *hits, struct error *e) {
    struct buffer text = {0};
    tokenizer_decode(ppl->model.tokenizer, part.ids, part.n, true, &text);
    struct retriever_query query = {.text = {text.data ? text.data : "", text.size},
                                    .k = k,
                                    .min_similarity = floor,
                                    .choice = ppl->model.ranking};
    enum status status = retriever_search(ppl->model.documents.retriever, &query, 1, hits, e);
    buffer_free(&text);
    return status;
}

/* The tokens before the window: the id that begins texts, and passages of the hits, which are also
 * added to *read. */
static enum status write_head(struct ppl *ppl, const struct hits *hits, struct tokens *head,
                              struct tokens *read, struct error *e) {
    struct passages passages = {0};
    const struct passage_options *options = &ppl->model.passages;
    struct passage_sources from = {.hits = hits};
    enum status status =
        passages_write(options, ppl->model.tokenizer, &from, options->max_tokens, &passages, e);
    if (ppl->begin >= 0) tokens_append(head, ppl->begin, 0);
    for (int i = 0; i < passages.ids.n && status == STATUS_OK; i++) {
        tokens_append(head, passages.ids.ids[i], 0);
        if (read) tokens_append(read, passages.ids.ids[i], 0);
    }
    passages_free(&passages);
    return status;
}

/* Scores one stretch behind the passages of the hits. */
static enum status score_stretch(struct ppl *ppl, struct window *window, int search,
                                 const struct hits *hits, enum ppl_mode mode, struct error *e) {
    struct tokens head = {0};
    bool both = ppl->model.mode == RETRIEVAL_BOTH;
    enum status status =
        write_head(ppl, hits, &head, mode == PPL_ON ? &window->passages[search] : NULL, e);
    struct prompt_reading behind = {.head = &head,
                                    .part = stretch_of(ppl, window, search),
                                    .searches = both && mode == PPL_ON,
                                    .random = both && mode == PPL_RANDOM};
    if (status == STATUS_OK)
        status = score_behind(ppl, &ppl->model, window, &behind, window->logprobs[mode], e);
    tokens_free(&head);
    return status;
}

static enum status run_search(struct ppl *ppl, struct window *window, int search, struct error *e) {
    int first = stretch_of(ppl, window, search).first, taken = min_int(first, PASSAGE_QUERY_TOKENS);
    struct hits found = {0}, drawn = {0};
    struct text_tokens last = {window->sequence.tokens + first - taken, taken};
    enum status status =
        find_hits(ppl, last, ppl->model.k_passages, ppl->model.min_similarity, &found, e);
    if (status == STATUS_OK) status = score_stretch(ppl, window, search, &found, PPL_ON, e);
    draw_hits(ppl, &drawn);
    if (status == STATUS_OK) status = score_stretch(ppl, window, search, &drawn, PPL_RANDOM, e);
    hits_free(&found);
    hits_free(&drawn);
    return status;
}

/* Overlap. */

/* A chunk of the collection and as many bytes behind it, as the model's tokens. */
static enum status append_continued(const struct ppl *ppl, const struct hit *hit,
                                    struct tokens *out, struct error *e) {
    uint64_t size = hit->end - hit->start, left = hit->source.size - hit->start;
    const char *text = hit->source.text + hit->start;
    tokens_append(out, -1, 0);
    return tokenizer_encode(ppl->model.tokenizer, text, (size_t)(2 * size < left ? 2 * size : left),
                            TOKENIZER_PLAIN, out, e);
}

static enum status find_nearest(struct ppl *ppl, struct window *window, int c, struct error *e) {
    int start = c * ppl->m;
    struct text_tokens chunk = {window->sequence.tokens + start,
                                min_int(ppl->m, window->sequence.n - start)};
    struct hits hits = {0};
    enum status status = find_hits(ppl, chunk, PPL_NEAREST, -1, &hits, e);
    for (int i = 0; i < hits.n && status == STATUS_OK; i++)
        status = append_continued(ppl, &hits.list[i], &window->nearest_texts[c], e);
    hits_free(&hits);
    return status;
}

enum status window_score_prompts(struct ppl *ppl, struct window *window, struct error *e) {
    int n = window->sequence.n, n_chunks = (n + ppl->m - 1) / ppl->m, head = min_int(n, ppl->m);
    enum status status = STATUS_OK;
    window->n_searches = count_searches(ppl, n);
    window->passages = xcalloc((size_t)window->n_searches + 1, sizeof *window->passages);
    window->nearest_texts = xcalloc((size_t)n_chunks, sizeof *window->nearest_texts);
    memcpy(window->logprobs[PPL_ON], window->logprobs[PPL_OFF], (size_t)head * sizeof(double));
    memcpy(window->logprobs[PPL_RANDOM], window->logprobs[PPL_OFF], (size_t)head * sizeof(double));
    for (int i = 0; i < window->n_searches && status == STATUS_OK; i++)
        status = run_search(ppl, window, i, e);
    for (int c = 1; c < n_chunks && status == STATUS_OK; c++)
        status = find_nearest(ppl, window, c, e);
    return status;
}

void window_free_passages(struct window *window, int n_chunks) {
    for (int i = 0; i < window->n_searches; i++) tokens_free(&window->passages[i]);
    for (int c = 0; c < n_chunks && window->nearest_texts; c++)
        tokens_free(&window->nearest_texts[c]);
    free(window->passages);
    free(window->nearest_texts);
}
