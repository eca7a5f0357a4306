/* server/schedule/generation.c: the record that HTTP and the engine share. See generation.h. */
#include "server/schedule/generation.h"

#include <stdlib.h>

struct generation *generation_open(void) {
    struct generation *g = xcalloc(1, sizeof *g);
    g->n_top = -1;
    pthread_mutex_init(&g->lock, NULL);
    atomic_init(&g->references, 1);
    atomic_init(&g->cancelled, false);
    return g;
}

void generation_prepare(struct generation *g, enum grid_mode mode, int m) {
    size_t most = (size_t)g->max_tokens, rows = (size_t)g->n_prompt + most;
    g->ids = xcalloc(most, sizeof *g->ids);
    g->text_ends = xcalloc(most, sizeof *g->text_ends);
    if (g->n_top >= 0) {
        g->logprobs = xcalloc(rows, sizeof *g->logprobs);
        g->top_ids = xcalloc(rows * (size_t)g->n_top, sizeof *g->top_ids);
        g->top_logprobs = xcalloc(rows * (size_t)g->n_top, sizeof *g->top_logprobs);
    }
    if (m > 0) {
        g->grid = grid_make(mode, g->n_prompt, m);
        g->n_chunks = grid_complete(g->grid, (int)rows);
    }
    g->neighbors = xcalloc((size_t)g->n_chunks, sizeof *g->neighbors);
    for (int j = 0; j < g->n_chunks; j++)
        g->neighbors[j] = (struct neighbor_tokens){.ids = g->given_ids, .k = g->given_k};
    if (!g->retrieve) return;
    g->found = xcalloc((size_t)g->n_chunks, sizeof *g->found);
    g->lookup.queries = xcalloc((size_t)g->n_chunks, sizeof *g->lookup.queries);
}

void generation_hold(struct generation *g) { atomic_fetch_add(&g->references, 1); }

void generation_release(struct generation *g) {
    if (g == NULL || atomic_fetch_sub(&g->references, 1) != 1) return;
    for (int j = 0; j < g->n_neighbors && g->found; j++) hits_free(&g->found[j]);
    snapshot_release(g->lookup.snapshot);
    pthread_mutex_destroy(&g->lock);
    stops_free(&g->stops);
    buffer_free(&g->text);
    buffer_free(&g->query_text);
    free(g->prompt);
    free(g->given_ids);
    free(g->ids);
    free(g->text_ends);
    free(g->logprobs);
    free(g->top_ids);
    free(g->top_logprobs);
    free(g->found);
    free(g->neighbors);
    free(g->lookup.queries);
    free(g);
}

struct progress generation_read(struct generation *g, size_t from, struct buffer *text, struct error *e) {
    pthread_mutex_lock(&g->lock);
    struct progress p = g->published;
    if (p.visible > from) buffer_append(text, g->text.data + from, p.visible - from);
    if (p.finish == FINISH_ERROR) *e = g->error;
    pthread_mutex_unlock(&g->lock);
    return p;
}

void generation_detach(struct generation *g) {
    pthread_mutex_lock(&g->lock);
    g->waker.wake = NULL;
    pthread_mutex_unlock(&g->lock);
}

int generation_chunk_position(const struct generation *g, int j) { return grid_end(g->grid, j) - 1; }

int generation_chunk(const struct generation *g, int j, int32_t *ids) {
    int start = grid_start(g->grid, j), n = grid_end(g->grid, j) - start;
    for (int i = 0; i < n; i++) {
        int row = start + i;
        ids[i] = row < g->n_prompt ? g->prompt[row] : g->ids[row - g->n_prompt];
    }
    return n;
}
