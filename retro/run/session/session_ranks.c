/* retro/run/session/session_ranks.c: what all ranks of a pool do together beside steps: copying rows, encoding
 * pictures; and the ranks that follow rank 0. See session.h. */
#include <stdlib.h>
#include <string.h>

#include "retro/run/session/session_private.h"

/* Copying rows between blocks, on all ranks. */

struct row_copy {
    int32_t from, to, rows;
};

enum status copy_block(struct session_pool *p, int32_t from, int32_t to, int rows, struct error *e) {
    struct row_copy copy = {from, to, rows};
    struct comm *world = p->model->comm->world;
    if (world->size > 1) {
        buffer_clear(&p->message);
        buffer_append(&p->message, &(enum message){MESSAGE_COPY}, sizeof(enum message));
        buffer_append(&p->message, &copy, sizeof copy);
        if (comm_broadcast(world, &p->message, e)) return e->status;
    }
    kv_cache_copy(&p->cache, from, to, rows);
    return STATUS_OK;
}

/* Viewing pictures, on all ranks. */

/* A picture in a message; its pixels follow. */
struct view_header {
    int32_t height, width;
};

static size_t count_pixels(int height, int width) { return 3 * (size_t)height * (size_t)width; }

static enum status send_pictures(struct session_pool *p, const struct tower_picture *pictures, int n, struct error *e) {
    int32_t count = n;
    buffer_clear(&p->message);
    buffer_append(&p->message, &(enum message){MESSAGE_PICTURES}, sizeof(enum message));
    buffer_append(&p->message, &count, sizeof count);
    for (int i = 0; i < n; i++) {
        struct view_header header = {pictures[i].height, pictures[i].width};
        buffer_append(&p->message, &header, sizeof header);
        buffer_append(&p->message, pictures[i].pixels,
                      count_pixels(header.height, header.width) * sizeof *pictures[i].pixels);
    }
    return comm_broadcast(p->model->comm->world, &p->message, e);
}

enum status session_pictures_begin(struct session_pool *p, const struct tower_picture *pictures, int n, int *taken,
                                   struct error *e) {
    CHECK(p->tower != NULL);
    for (int i = 0; i < n; i++)
        if (tower_check(p->model, pictures[i].height, pictures[i].width, e)) return e->status;
    if (p->model->comm->world->size > 1 && send_pictures(p, pictures, n, e)) return e->status;
    enum status status = tower_begin(p->tower, pictures, n, TOWER_PROJECTED, taken, e);
    if (status == STATUS_DEVICE) comm_leave(p->model->comm, e);
    return status;
}

enum status session_pictures_advance(struct session_pool *p, float *rows, bool *done, struct error *e) {
    struct comm *world = p->model->comm->world;
    if (world->size > 1) {
        buffer_clear(&p->message);
        buffer_append(&p->message, &(enum message){MESSAGE_PICTURE_PASS}, sizeof(enum message));
        if (comm_broadcast(world, &p->message, e)) return e->status;
    }
    enum status status = tower_advance(p->tower, rows, done, e);
    if (status == STATUS_DEVICE) comm_leave(p->model->comm, e);
    return status;
}

static size_t count_values(const struct session_pool *p, const struct tower_picture *pictures, int n) {
    size_t rows = 0;
    for (int i = 0; i < n; i++)
        rows += (size_t)tower_count(p->model, TOWER_PROJECTED, pictures[i].height, pictures[i].width);
    return rows * (size_t)tower_columns(p->model, TOWER_PROJECTED);
}

enum status session_encode_pictures(struct session_pool *p, const struct tower_picture *pictures, int n, float *rows,
                                    struct error *e) {
    int taken;
    for (int first = 0; first < n; first += taken) {
        bool done = false;
        if (session_pictures_begin(p, pictures + first, n - first, &taken, e)) return e->status;
        while (!done)
            if (session_pictures_advance(p, rows, &done, e)) return e->status;
        rows += count_values(p, pictures + first, taken);
    }
    return STATUS_OK;
}

/* The other ranks. */

static void follow_open(struct session_pool **p, struct model *m, struct text_span in, struct error *e) {
    struct session_limits limits;
    CHECK(*p == NULL && in.size == sizeof limits);
    memcpy(&limits, in.text, sizeof limits);
    session_pool_open_rank(p, m, &limits, e); /* a pool that does not fit somewhere is rank 0's to report */
}

static void follow_copy(const struct session_pool *p, struct text_span in) {
    struct row_copy copy;
    CHECK(in.size == sizeof copy);
    memcpy(&copy, in.text, sizeof copy);
    kv_cache_copy(&p->cache, copy.from, copy.to, copy.rows);
}

static enum status follow_step(struct session_pool *p, struct text_span in, struct error *e) {
    run_plans(p, in);
    return backend_sync(p->model->backend, e);
}

/* All ranks refuse alike, and rank 0 says so. */
static enum status unless_refused(enum status status) { return status == STATUS_DEVICE ? status : STATUS_OK; }

/* A rank's rows of the pictures are the same as rank 0's, which keeps them. */
static enum status follow_pictures(struct session_pool *p, struct text_span in, struct error *e) {
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
        pictures[i] = (struct tower_picture){(const float *)(const void *)in.text, header.height, header.width};
        in.text += count_pixels(header.height, header.width) * sizeof(float);
    }
    enum status status = tower_begin(p->tower, pictures, n, TOWER_PROJECTED, &taken, e);
    if (status == STATUS_OK)
        p->followed = xrealloc(p->followed, (count_values(p, pictures, taken) + 1) * sizeof *p->followed);
    free(pictures);
    return unless_refused(status);
}

static enum status follow_picture_pass(struct session_pool *p, struct error *e) {
    bool done;
    return unless_refused(tower_advance(p->tower, p->followed, &done, e));
}

static enum status follow_message(struct session_pool **p, struct model *m, struct text_span in, struct error *e) {
    enum message kind;
    CHECK(in.size >= sizeof kind);
    memcpy(&kind, in.text, sizeof kind);
    in.text += sizeof kind;
    in.size -= sizeof kind;
    CHECK((*p == NULL) == (kind == MESSAGE_OPEN));
    switch (kind) {
        case MESSAGE_OPEN: follow_open(p, m, in, e); break;
        case MESSAGE_STEP: return follow_step(*p, in, e);
        case MESSAGE_COPY: follow_copy(*p, in); break;
        case MESSAGE_PICTURES: return follow_pictures(*p, in, e);
        case MESSAGE_PICTURE_PASS: return follow_picture_pass(*p, e);
        case MESSAGE_CLOSE:
            session_pool_free_rank(*p);
            *p = NULL;
            break;
    }
    return STATUS_OK;
}

enum status session_follow(struct model *m, struct error *e) {
    struct session_pool *p = NULL;
    struct buffer message = {0};
    enum status status;
    for (;;) {
        status = comm_broadcast(m->comm->world, &message, e);
        if (status || message.size == 0) break;
        status = follow_message(&p, m, (struct text_span){message.data, message.size}, e);
        if (status) break;
    }
    if (status) comm_leave(m->comm, e);
    if (p) session_pool_free_rank(p);
    buffer_free(&message);
    return status;
}

void session_release_followers(struct model *m) {
    comm_broadcast(m->comm->world, &(struct buffer){0},
                   &(struct error){0}); /* after a failure they have ended already */
}
