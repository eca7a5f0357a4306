/* retro/run/cache/state_cache.c: see state_cache.h. */
#include "retro/run/cache/state_cache.h"

#include <stdlib.h>

/* Memory. */

static size_t part_bytes(struct tensor part) {
    return (size_t)part.rows * (size_t)part.cols * sizeof(float);
}

enum status state_cache_measure(struct state_cache *cache, const struct model *model, int sessions,
                                int kept, int saved, struct error *e) {
    const struct stack *stack = model_decoder(model);
    const struct mixer_columns columns = stack_mixer_columns(stack);
    *cache = (struct state_cache){.most = kept};
    if (stack->dims.state.kernel == 0) return STATUS_OK;
    cache->model = model;
    cache->n_states = sessions + kept;
    cache->layers = stack_count_states(stack, stack->kept.first, stack->kept.n);
    size_t state = columns.state, all, rows;
    cache->states = tensor_make(NULL, DTYPE_F32, cache->n_states, (int)state);
    cache->saved = tensor_make(NULL, DTYPE_F32, saved, columns.channels + columns.gates);
    cache->state_bytes = (size_t)cache->layers * state * sizeof(float);
    if (state > INT32_MAX || mul_overflows(cache->state_bytes, (size_t)cache->n_states, &all) ||
        mul_overflows((size_t)cache->layers, part_bytes(cache->saved), &rows) ||
        add_overflows(all, rows, &cache->bytes))
        return error_set(e, STATUS_NO_MEMORY, "states of %d sequences do not fit the address space",
                         cache->n_states);
    return STATUS_OK;
}

enum status state_cache_open(struct state_cache *cache, int n_blocks, struct error *e) {
    size_t bytes = cache->bytes > 0 ? cache->bytes : 1; /* a stage may have no states */
    if (backend_alloc(cache->model->backend, &cache->memory, bytes, "the states of sequences", e))
        return e->status;
    cache->states.data = cache->memory;
    cache->saved.data = (char *)cache->memory + (size_t)cache->n_states * cache->state_bytes;
    cache->free_states = xmalloc((size_t)cache->n_states * sizeof *cache->free_states);
    for (int i = 0; i < cache->n_states; i++) cache->free_states[i] = cache->n_states - 1 - i;
    cache->n_free = cache->n_states;
    cache->reads = xcalloc((size_t)cache->n_states, sizeof *cache->reads);
    cache->kept = xcalloc((size_t)cache->most + 1, sizeof *cache->kept);
    cache->of_block = xmalloc((size_t)n_blocks * sizeof *cache->of_block);
    for (int i = 0; i < n_blocks; i++) cache->of_block[i] = -1;
    return STATUS_OK;
}

void state_cache_close(struct state_cache *cache) {
    if (cache->model == NULL) return;
    backend_release(cache->model->backend, cache->memory);
    free(cache->free_states);
    free(cache->reads);
    free(cache->kept);
    free(cache->of_block);
}

struct tensor state_cache_layer(const struct state_cache *cache, struct tensor first, int layer) {
    const struct stack *stack = model_decoder(cache->model);
    int before = stack_count_states(stack, stack->kept.first, layer - stack->kept.first);
    first.data = (char *)first.data + (size_t)before * part_bytes(first);
    return first;
}

void state_cache_copy(const struct state_cache *cache, int32_t from, int32_t to) {
    const struct stack *stack = model_decoder(cache->model);
    for (int i = stack->kept.first; i < stack->kept.first + stack->kept.n; i++) {
        if (!mixer_keeps_state(stack->layers[i].spec.mixer)) continue;
        struct tensor states = state_cache_layer(cache, cache->states, i);
        struct gather_rows_args args = {
            .y = tensor_rows(states, to, 1), .x = states, .rows = &from};
        backend_gather_rows(cache->model->backend, &args);
    }
}

void state_cache_wipe(const struct state_cache *cache, int32_t state) {
    size_t layer = part_bytes(cache->states), bytes = part_bytes(tensor_rows(cache->states, 0, 1));
    for (int i = 0; i < cache->layers; i++)
        backend_wipe(cache->model->backend,
                     (char *)cache->states.data + (size_t)i * layer + (size_t)state * bytes, bytes);
}

/* Numbers of states. */

int32_t state_cache_take(struct state_cache *cache) {
    CHECK(cache->n_free > 0);
    cache->n_free--;
    return cache->free_states[cache->n_free];
}

void state_cache_free(struct state_cache *cache, int32_t state) {
    cache->free_states[cache->n_free] = state;
    cache->n_free++;
}

/* States that are kept. */

static void forget(struct state_cache *cache, int index) {
    state_cache_free(cache, cache->kept[index].state);
    cache->of_block[cache->kept[index].block] = -1;
    cache->n_kept--;
    if (index == cache->n_kept) return;
    cache->kept[index] = cache->kept[cache->n_kept];
    cache->of_block[cache->kept[index].block] = index;
}

/* The least recently used that is not pinned, -1: there is none. */
static int find_oldest(const struct state_cache *cache) {
    int oldest = -1;
    for (int i = 0; i < cache->n_kept; i++) {
        const struct kept_state *kept = &cache->kept[i];
        if (kept->pinned) continue;
        if (oldest < 0 || kept->used < cache->kept[oldest].used) oldest = i;
    }
    return oldest;
}

int32_t state_cache_promise(struct state_cache *cache) {
    if (cache->n_kept + cache->n_promised >= cache->most) {
        int oldest = find_oldest(cache);
        if (oldest < 0) return STATE_NONE;
        forget(cache, oldest);
    }
    cache->n_promised++;
    return state_cache_take(cache);
}

void state_cache_withdraw(struct state_cache *cache, int32_t state) {
    cache->n_promised--;
    state_cache_free(cache, state);
}

struct kept_state *state_cache_find(struct state_cache *cache, int block) {
    int index = cache->of_block[block];
    if (index < 0) return NULL;
    cache->clock++;
    cache->kept[index].used = cache->clock;
    return &cache->kept[index];
}

void state_cache_keep(struct state_cache *cache, struct kept_state kept) {
    struct kept_state *there = state_cache_find(cache, kept.block);
    if (there && there->rows >= kept.rows) {
        there->pinned = there->pinned || (kept.pinned && there->rows == kept.rows);
        state_cache_withdraw(cache, kept.state);
        return;
    }
    if (there) forget(cache, cache->of_block[kept.block]);
    cache->n_promised--;
    cache->clock++;
    kept.used = cache->clock;
    cache->kept[cache->n_kept] = kept;
    cache->of_block[kept.block] = cache->n_kept;
    cache->n_kept++;
}

void state_cache_leave(struct state_cache *cache, int block, int to) {
    int index = cache->model ? cache->of_block[block] : -1;
    if (index < 0) return;
    bool moves = to != PREFIX_NONE && cache->of_block[to] < 0;
    if (!moves) {
        forget(cache, index);
        return;
    }
    cache->of_block[block] = -1;
    cache->of_block[to] = index;
    cache->kept[index].block = to;
}
