/* retro/run/session/session_image.c: the rows of one session as bytes, for a file, and back. See
 * session.h. */
#include <string.h>

#include "retro/run/session/session_private.h"

/* One tensor of the cache's, which has a part of every row. */
struct image_part {
    struct backend *backend;
    const struct block_list *blocks;
    struct tensor rows;
    int n;
    char *bytes; /* of the image, this part's */
};

typedef void part_function(const struct image_part *part, void *device, char *host, size_t bytes);

static void part_get(const struct image_part *part, void *device, char *host, size_t bytes) {
    backend_download(part->backend, host, device, bytes);
}

static void part_put(const struct image_part *part, void *device, char *host, size_t bytes) {
    backend_upload(part->backend, device, host, bytes);
}

/* Moves the part's rows, block by block. Returns how many bytes they have. */
static size_t part_move(struct image_part part, part_function *move) {
    size_t row = (size_t)part.rows.cols * dtype_bytes(part.rows.dtype);
    for (int first = 0; first < part.n; first += ATTENTION_BLOCK) {
        int n = min_int(ATTENTION_BLOCK, part.n - first);
        struct tensor block = tensor_rows(part.rows, block_row(part.blocks, first), n);
        move(&part, block.data, part.bytes + (size_t)first * row, (size_t)n * row);
    }
    return (size_t)part.n * row;
}

/* Moves the part's state of a layer. Returns how many bytes it has. */
static size_t state_move(const struct image_part *part, const struct session *session, int layer,
                         part_function *move) {
    const struct state_cache *cache = &session->pool->states;
    struct tensor state =
        tensor_rows(state_cache_layer(cache, cache->states, layer), session->state.own, 1);
    size_t bytes = (size_t)state.cols * sizeof(float);
    move(part, state.data, part->bytes, bytes);
    return bytes;
}

static void image_move(const struct session *session, char *image, part_function *move) {
    const struct session_pool *pool = session->pool;
    const struct portion *kept = &pool->model->stacks[STACK_DECODER].kept;
    int n_parts = kv_cache_parts(&pool->cache);
    struct image_part part = {.backend = pool->model->backend,
                              .blocks = &session->blocks,
                              .n = session->length,
                              .bytes = image};
    for (int i = kept->first; i < kept->first + kept->n; i++) {
        if (mixer_keeps_state(pool->model->stacks[STACK_DECODER].layers[i].spec.mixer)) {
            part.bytes += state_move(&part, session, i, move);
            continue;
        }
        if (!layer_keeps_keys(&pool->model->stacks[STACK_DECODER].layers[i])) continue;
        for (int j = 0; j < n_parts; j++) {
            part.rows = kv_cache_layer(&pool->cache, (enum kv_cache_part)j, i);
            part.bytes += part_move(part, move);
        }
    }
}

bool session_has_image(const struct session_pool *pool) {
    const struct model *model = pool->model;
    return model->comm->world->size == 1 && model->stacks[STACK_DECODER].dims.reads == EDGE_NONE;
}

size_t session_image_bytes(const struct session_pool *pool, int rows) {
    return pool->cache.bytes / ((size_t)pool->cache.n_blocks * ATTENTION_BLOCK) * (size_t)rows +
           pool->states.state_bytes;
}

enum status session_image_get(const struct session *session, char *image, struct error *e) {
    CHECK(session_has_image(session->pool));
    image_move(session, image, part_get);
    return backend_sync(session->pool->model->backend, e);
}

enum status session_image_put(struct session *session, const int32_t *ids, int n, const char *image,
                              struct error *e) {
    struct session_pool *pool = session->pool;
    CHECK(session_has_image(pool) && session->length == 0 && session->blocks.n == 0 &&
          n <= pool->limits.max_tokens);
    kv_cache_extend(&pool->cache, &session->blocks, n);
    session->length = n;
    if (pool->states.model) session->state.own = state_cache_take(&pool->states);
    image_move(session, (char *)(uintptr_t)image, part_put);
    if (backend_sync(pool->model->backend, e)) return e->status;
    for (int i = 0; i < n && prefix_tree_keeps(&pool->tree); i++)
        learn_row(session, ids[i], NULL, NULL);
    return STATUS_OK;
}
