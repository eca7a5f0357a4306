/* retro/run/session/session_image.c: the rows of one session as bytes, for a file, and back. See session.h. */
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

static void image_move(const struct session *s, char *image, part_function *move) {
    const struct session_pool *p = s->pool;
    const struct portion *kept = &p->model->stacks[STACK_DECODER].kept;
    struct image_part part = {.backend = p->model->backend, .blocks = &s->blocks, .n = s->length, .bytes = image};
    for (int i = kept->first; i < kept->first + kept->n; i++) {
        part.rows = kv_cache_layer(&p->cache, p->cache.k, i);
        part.bytes += part_move(part, move);
        part.rows = kv_cache_layer(&p->cache, p->cache.v, i);
        part.bytes += part_move(part, move);
    }
}

bool session_has_image(const struct session_pool *p) {
    const struct model *m = p->model;
    return m->comm->world->size == 1 && m->stacks[STACK_DECODER].dims.reads == EDGE_NONE;
}

size_t session_image_bytes(const struct session_pool *p, int rows) {
    return p->cache.bytes / ((size_t)p->cache.n_blocks * ATTENTION_BLOCK) * (size_t)rows;
}

enum status session_image_get(const struct session *s, char *image, struct error *e) {
    CHECK(session_has_image(s->pool));
    image_move(s, image, part_get);
    return backend_sync(s->pool->model->backend, e);
}

enum status session_image_put(struct session *s, const int32_t *ids, int n, const char *image, struct error *e) {
    struct session_pool *p = s->pool;
    CHECK(session_has_image(p) && s->length == 0 && s->blocks.n == 0 && n <= p->limits.max_tokens);
    kv_cache_extend(&p->cache, &s->blocks, n);
    s->length = n;
    image_move(s, (char *)(uintptr_t)image, part_put);
    if (backend_sync(p->model->backend, e)) return e->status;
    for (int i = 0; i < n; i++) learn_row(s, ids[i], NULL, NULL);
    return STATUS_OK;
}
