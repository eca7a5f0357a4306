/* server/schedule/generation.c: the record that an asker and the engine share. See generation.h. */
#include "server/schedule/generation.h"

#include <stdlib.h>

struct generation *generation_open(void) {
    struct generation *g = xcalloc(1, sizeof *g);
    g->asked.n_top = -1;
    g->asked.changes.repetition = 1;
    pthread_mutex_init(&g->answer.lock, NULL);
    atomic_init(&g->references, 1);
    atomic_init(&g->cancelled, false);
    return g;
}

void generation_prepare(struct generation *g, enum grid_mode mode, int m) {
    const struct generation_request *asked = &g->asked;
    struct generation_answer *a = &g->answer;
    size_t most = (size_t)asked->max_tokens, rows = (size_t)asked->n_prompt + most;
    a->ids = xcalloc(most, sizeof *a->ids);
    a->text_ends = xcalloc(most, sizeof *a->text_ends);
    if (asked->n_top >= 0) {
        a->logprobs = xcalloc(rows, sizeof *a->logprobs);
        a->top_ids = xcalloc(rows * (size_t)asked->n_top, sizeof *a->top_ids);
        a->top_logprobs = xcalloc(rows * (size_t)asked->n_top, sizeof *a->top_logprobs);
    }
    if (asked->rank_prompt) a->ranks = xcalloc((size_t)asked->n_prompt, sizeof *a->ranks);
    if (m > 0) {
        a->grid = grid_make(mode, asked->n_prompt, m);
        a->n_chunks = grid_complete(a->grid, (int)rows);
    }
    size_t n_found = m > 0 ? (size_t)a->n_chunks : 1; /* a model that reads text looks once */
    if (asked->neighbors.search) a->found = xcalloc(n_found, sizeof *a->found);
}

void generation_hold(struct generation *g) { atomic_fetch_add(&g->references, 1); }

static void request_clear(struct generation_request *asked) {
    stops_free(&asked->end.stops);
    free(asked->end.stop_ids);
    free(asked->shown);
    free(asked->changes.biases);
    free(asked->prompt);
    free(asked->source);
    free(asked->neighbors.given_ids);
    free((char *)(uintptr_t)asked->place.query.text);
    if (asked->place.close) asked->place.close(asked->place.context);
}

static void answer_clear(struct generation_answer *a) {
    for (int j = 0; j < a->progress.n_found && a->found; j++) hits_free(&a->found[j]);
    pthread_mutex_destroy(&a->lock);
    buffer_free(&a->text);
    free(a->ids);
    free(a->text_ends);
    free(a->logprobs);
    free(a->top_ids);
    free(a->top_logprobs);
    free(a->ranks);
    free(a->found);
}

void generation_release(struct generation *g) {
    if (g == NULL || atomic_fetch_sub(&g->references, 1) != 1) return;
    answer_clear(&g->answer);
    request_clear(&g->asked);
    free(g);
}

struct progress generation_read(struct generation *g, size_t from, struct buffer *text, struct error *e) {
    struct generation_answer *a = &g->answer;
    pthread_mutex_lock(&a->lock);
    struct progress p = a->progress;
    if (p.visible > from) buffer_append(text, a->text.data + from, p.visible - from);
    if (p.finish == FINISH_ERROR) *e = a->error;
    pthread_mutex_unlock(&a->lock);
    return p;
}

void generation_detach(struct generation *g) {
    pthread_mutex_lock(&g->answer.lock);
    g->answer.waker.wake = NULL;
    pthread_mutex_unlock(&g->answer.lock);
}

int generation_chunk_position(const struct generation *g, int j) {
    return g->answer.n_chunks > 0 ? grid_end(g->answer.grid, j) - 1 : 0;
}

int generation_chunk(const struct generation *g, int j, int32_t *ids) {
    const struct grid grid = g->answer.grid;
    int start = grid_start(grid, j), n = grid_end(grid, j) - start, n_prompt = g->asked.n_prompt;
    for (int i = 0; i < n; i++) {
        int row = start + i;
        ids[i] = row < n_prompt ? g->asked.prompt[row] : g->answer.ids[row - n_prompt];
    }
    return n;
}
