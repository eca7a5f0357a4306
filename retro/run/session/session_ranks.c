/* retro/run/session/session_ranks.c: what all ranks of a pool do together beside steps: copying
 * rows, encoding pictures; and the ranks that follow rank 0. See session.h. */
#include <stdlib.h>
#include <string.h>

#include "retro/run/session/session_private.h"

/* Copying rows between blocks, on all ranks. */

struct row_copy {
    int32_t from, to, rows;
};

enum status copy_block(struct session_pool *pool, int32_t from, int32_t to, int rows,
                       struct error *e) {
    struct row_copy copy = {from, to, rows};
    struct comm *world = pool->model->comm->world;
    if (world->size > 1) {
        buffer_clear(&pool->message);
        buffer_append(&pool->message, &(enum message){MESSAGE_COPY}, sizeof(enum message));
        buffer_append(&pool->message, &copy, sizeof copy);
        if (comm_broadcast(world, &pool->message, e)) return e->status;
    }
    kv_cache_copy(&pool->cache, from, to, rows);
    return STATUS_OK;
}

void wipe_block(struct session_pool *pool, int32_t block) {
    struct comm *world = pool->model->comm->world;
    struct error e;
    if (world->size > 1) {
        buffer_clear(&pool->message);
        buffer_append(&pool->message, &(enum message){MESSAGE_WIPE}, sizeof(enum message));
        buffer_append(&pool->message, &block, sizeof block);
        if (comm_broadcast(world, &pool->message, &e)) return;
    }
    kv_cache_wipe(&pool->cache, block);
}

/* Rows of a slot of the cross cache. */
struct slot_rows {
    int32_t slot, first, n;
};

static void wipe_slot(struct session_pool *pool, struct slot_rows rows) {
    struct comm *world = pool->model->comm->world;
    struct error e;
    if (world->size > 1) {
        buffer_clear(&pool->message);
        buffer_append(&pool->message, &(enum message){MESSAGE_WIPE_CHUNK}, sizeof(enum message));
        buffer_append(&pool->message, &rows, sizeof rows);
        if (comm_broadcast(world, &pool->message, &e)) return;
    }
    cross_cache_wipe(&pool->cross, rows.slot, rows.first, rows.n);
}

void wipe_chunks(struct session_pool *pool) {
    int first, n;
    for (int slot = chunk_slots_next_stale(&pool->chunks, &first, &n); slot != CHUNK_NONE;
         slot = chunk_slots_next_stale(&pool->chunks, &first, &n))
        wipe_slot(pool, (struct slot_rows){slot, first, n});
}

/* Viewing pictures, on all ranks. */

/* A picture in a message; its pixels follow. */
struct view_header {
    int32_t height, width;
};

static size_t count_pixels(int height, int width) { return 3 * (size_t)height * (size_t)width; }

static enum status send_pictures(struct session_pool *pool, const struct tower_picture *pictures,
                                 int n, struct error *e) {
    int32_t count = n;
    buffer_clear(&pool->message);
    buffer_append(&pool->message, &(enum message){MESSAGE_PICTURES}, sizeof(enum message));
    buffer_append(&pool->message, &count, sizeof count);
    for (int i = 0; i < n; i++) {
        struct view_header header = {pictures[i].height, pictures[i].width};
        buffer_append(&pool->message, &header, sizeof header);
        buffer_append(&pool->message, pictures[i].pixels,
                      count_pixels(header.height, header.width) * sizeof *pictures[i].pixels);
    }
    return comm_broadcast(pool->model->comm->world, &pool->message, e);
}

enum status session_pictures_begin(struct session_pool *pool, const struct tower_picture *pictures,
                                   int n, int *taken, struct error *e) {
    CHECK(pool->tower != NULL);
    for (int i = 0; i < n; i++)
        if (tower_check(pool->model, pictures[i].height, pictures[i].width, e)) return e->status;
    if (pool->model->comm->world->size > 1 && send_pictures(pool, pictures, n, e)) return e->status;
    enum status status = tower_begin(pool->tower, pictures, n, TOWER_PROJECTED, taken, e);
    if (status == STATUS_DEVICE) comm_leave(pool->model->comm, e);
    return status;
}

enum status session_pictures_advance(struct session_pool *pool, float *rows, bool *done,
                                     struct error *e) {
    struct comm *world = pool->model->comm->world;
    if (world->size > 1) {
        buffer_clear(&pool->message);
        buffer_append(&pool->message, &(enum message){MESSAGE_PICTURE_PASS}, sizeof(enum message));
        if (comm_broadcast(world, &pool->message, e)) return e->status;
    }
    enum status status = tower_advance(pool->tower, rows, done, e);
    if (status == STATUS_DEVICE) comm_leave(pool->model->comm, e);
    return status;
}

static size_t count_values(const struct session_pool *pool, const struct tower_picture *pictures,
                           int n) {
    size_t rows = 0;
    for (int i = 0; i < n; i++)
        rows += (size_t)tower_count(pool->model, TOWER_PROJECTED, pictures[i].height,
                                    pictures[i].width);
    return rows * (size_t)tower_columns(pool->model, TOWER_PROJECTED);
}

enum status session_encode_pictures(struct session_pool *pool, const struct tower_picture *pictures,
                                    int n, float *rows, struct error *e) {
    int taken;
    for (int first = 0; first < n; first += taken) {
        bool done = false;
        if (session_pictures_begin(pool, pictures + first, n - first, &taken, e)) return e->status;
        while (!done)
            if (session_pictures_advance(pool, rows, &done, e)) return e->status;
        rows += count_values(pool, pictures + first, taken);
    }
    return STATUS_OK;
}

/* The other ranks. */

static void follow_open(struct session_pool **pool, struct model *model, struct text_span in,
                        struct error *e) {
    struct session_limits limits;
    CHECK(*pool == NULL && in.size == sizeof limits);
    memcpy(&limits, in.text, sizeof limits);
    session_pool_open_rank(pool, model, &limits,
                           e); /* a pool that does not fit somewhere is rank 0's to report */
}

static void follow_copy(const struct session_pool *pool, struct text_span in) {
    struct row_copy copy;
    CHECK(in.size == sizeof copy);
    memcpy(&copy, in.text, sizeof copy);
    kv_cache_copy(&pool->cache, copy.from, copy.to, copy.rows);
}

static void follow_wipe(const struct session_pool *pool, struct text_span in) {
    int32_t block;
    CHECK(in.size == sizeof block);
    memcpy(&block, in.text, sizeof block);
    kv_cache_wipe(&pool->cache, block);
}

static void follow_wipe_chunk(const struct session_pool *pool, struct text_span in) {
    struct slot_rows rows;
    CHECK(in.size == sizeof rows);
    memcpy(&rows, in.text, sizeof rows);
    cross_cache_wipe(&pool->cross, rows.slot, rows.first, rows.n);
}

static enum status follow_step(struct session_pool *pool, struct text_span in, struct error *e) {
    run_plans(pool, in);
    return backend_sync(pool->model->backend, e);
}

/* All ranks refuse alike, and rank 0 says so. */
static enum status unless_refused(enum status status) {
    return status == STATUS_DEVICE ? status : STATUS_OK;
}

/* A rank's rows of the pictures are the same as rank 0's, which keeps them. */
static enum status follow_pictures(struct session_pool *pool, struct text_span in,
                                   struct error *e) {
    int32_t n;
    int taken;
    CHECK(in.size >= sizeof n);
    memcpy(&n, in.text, sizeof n);
    in.text += sizeof n;
    struct tower_picture *pictures = xcalloc((size_t)n + 1, sizeof *pictures);
    for (int i = 0; i < n; i++) {
        struct view_header header;
        memcpy(&header, in.text, sizeof header);
        in.text += sizeof header;
        pictures[i] = (struct tower_picture){(const float *)(const void *)in.text, header.height,
                                             header.width};
        in.text += count_pixels(header.height, header.width) * sizeof(float);
    }
    enum status status = tower_begin(pool->tower, pictures, n, TOWER_PROJECTED, &taken, e);
    if (status == STATUS_OK)
        pool->followed = xrealloc(
            pool->followed, (count_values(pool, pictures, taken) + 1) * sizeof *pool->followed);
    free(pictures);
    return unless_refused(status);
}

static enum status follow_picture_pass(struct session_pool *pool, struct error *e) {
    bool done;
    return unless_refused(tower_advance(pool->tower, pool->followed, &done, e));
}

static enum status follow_message(struct session_pool **pool, struct model *model,
                                  struct text_span in, struct error *e) {
    enum message kind;
    CHECK(in.size >= sizeof kind);
    memcpy(&kind, in.text, sizeof kind);
    in.text += sizeof kind;
    in.size -= sizeof kind;
    CHECK((*pool == NULL) == (kind == MESSAGE_OPEN));
    switch (kind) {
        case MESSAGE_OPEN: follow_open(pool, model, in, e); break;
        case MESSAGE_STEP: return follow_step(*pool, in, e);
        case MESSAGE_COPY: follow_copy(*pool, in); break;
        case MESSAGE_STATE: follow_state(*pool, in); break;
        case MESSAGE_REPLAY: follow_replay(*pool, in); break;
        case MESSAGE_WIPE: follow_wipe(*pool, in); break;
        case MESSAGE_WIPE_CHUNK: follow_wipe_chunk(*pool, in); break;
        case MESSAGE_PICTURES: return (*pool)->tower ? follow_pictures(*pool, in, e) : STATUS_OK;
        case MESSAGE_PICTURE_PASS:
            return (*pool)->tower ? follow_picture_pass(*pool, e) : STATUS_OK;
        case MESSAGE_CLOSE:
            session_pool_free_rank(*pool);
            *pool = NULL;
            break;
    }
    return STATUS_OK;
}

enum status session_follow(struct model *model, struct error *e) {
    struct session_pool *pool = NULL;
    struct buffer message = {0};
    enum status status;
    for (;;) {
        status = comm_broadcast(model->comm->world, &message, e);
        if (status || message.size == 0) break;
        status = follow_message(&pool, model, (struct text_span){message.data, message.size}, e);
        if (status) break;
    }
    if (status) comm_leave(model->comm, e);
    if (pool) session_pool_free_rank(pool);
    buffer_free(&message);
    return status;
}

void session_release_followers(struct model *model) {
    comm_broadcast(model->comm->world, &(struct buffer){0},
                   &(struct error){0}); /* after a failure they have ended already */
}
