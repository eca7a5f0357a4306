/* tools/bench/bench_tower.c: retro-bench tower: pictures through a vision tower with random weights, and of a model
 * that also writes, the time from a picture to the first token. Pictures are pixels already. */
#include <stdlib.h>

#include "retro/run/tower/picture_rows.h"
#include "tools/bench/bench_model.h"

enum { SIDE = 336, PROMPT = 32, STEP_ROWS = 512 };

struct tower_work {
    struct bench_model model;
    struct tower_picture *pictures; /* [n] all of them show the same pixels */
    float *pixels, *rows;
    int n, prompt;
};

static float *draw_pixels(int side) {
    size_t n = 3 * (size_t)side * (size_t)side;
    float *pixels = xmalloc(n * sizeof *pixels);
    for (size_t i = 0; i < n; i++) pixels[i] = (float)(i * 2654435761u % 1024) / 512 - 1;
    return pixels;
}

static enum status open_work(struct tower_work *w, const struct bench_options *o, struct error *e) {
    struct bench_source source = bench_source_of(o);
    int side = o->pixels ? o->pixels : SIDE;
    w->n = o->sequences ? o->sequences : 1;
    w->prompt = o->prompt ? o->prompt : PROMPT;
    if (bench_model_open(&w->model, &source, e)) return e->status;
    if (!model_has_tower(w->model.model))
        return error_set(e, STATUS_INVALID, "%s: the model has no vision tower", o->folders[0]);
    if (tower_check(w->model.model, side, side, e)) return e->status;
    w->pixels = draw_pixels(side);
    w->pictures = xcalloc((size_t)w->n, sizeof *w->pictures);
    for (int i = 0; i < w->n; i++) w->pictures[i] = (struct tower_picture){w->pixels, side, side};
    return STATUS_OK;
}

static void close_work(struct tower_work *w) {
    bench_model_close(&w->model);
    free(w->pictures);
    free(w->pixels);
    free(w->rows);
}

static int count_rows(const struct tower_work *w, enum tower_end end) {
    return tower_count(w->model.model, end, w->pictures[0].height, w->pictures[0].width);
}

/* The tower's own rows, all pictures in one pass. */
static enum status measure_rows(double *rates, struct tower_work *w, const struct bench_options *o, struct error *e) {
    const struct model *m = w->model.model;
    struct tower *tower;
    int rows = w->n * count_rows(w, TOWER_ROWS);
    if (tower_open(&tower, m, rows, e)) return e->status;
    w->rows = xmalloc((size_t)rows * (size_t)tower_columns(m, TOWER_ROWS) * sizeof *w->rows);
    enum status status = tower_run(tower, w->pictures, w->n, TOWER_ROWS, w->rows, e); /* touches every page */
    for (int i = 0; i < o->rounds && status == STATUS_OK; i++) {
        double start = time_now();
        status = tower_run(tower, w->pictures, w->n, TOWER_ROWS, w->rows, e);
        rates[i] = w->n / (time_now() - start);
    }
    tower_close(tower);
    return status;
}

/* A text of one picture and w->prompt ids behind it, whose rows go through the decoder in steps. */
static enum status write_first(struct tower_work *w, struct session_pool *pool, const struct merged_text *t,
                               struct error *e) {
    struct session *session;
    struct tensor logits;
    int d = model_info(w->model.model)->hidden;
    if (session_open(&session, pool, (struct grid){0}, e)) return e->status;
    enum status status = STATUS_OK;
    for (int at = 0, given = 0; at < t->n && status == STATUS_OK; at += STEP_ROWS) {
        struct step_item item = {.session = session,
                                 .tokens = t->ids + at,
                                 .n_tokens = min_int(STEP_ROWS, t->n - at),
                                 .names = t->names,
                                 .rows = t->given + (size_t)given * (size_t)d,
                                 .positions = t->positions ? t->positions + at * t->sections : NULL};
        item.n_logits = at + item.n_tokens == t->n;
        for (int i = 0; i < item.n_tokens; i++) given += item.tokens[i] < 0;
        status = session_step(pool, &item, 1, &logits, e);
    }
    session_close(session);
    return status;
}

static enum status see_and_write(struct tower_work *w, struct session_pool *pool, struct error *e) {
    const struct model *m = w->model.model;
    int32_t *ids = xcalloc((size_t)w->prompt + 1, sizeof *ids);
    struct merged_picture picture = {
        .rows = w->rows, .tiles = 1, .tile_rows = count_rows(w, TOWER_PROJECTED), .name = {.picture = {1}}};
    struct merged_text text;
    tower_grid(m, w->pictures->height, w->pictures->width, &picture.grid.rows, &picture.grid.columns);
    ids[0] = model_picture_id(m);
    for (int i = 1; i <= w->prompt; i++) ids[i] = i;
    enum status status = session_encode_pictures(pool, w->pictures, 1, w->rows, e);
    if (status == STATUS_OK)
        status = picture_rows_text(&text, m, &(struct picture_text){ids, w->prompt + 1, &picture, 1}, e);
    if (status == STATUS_OK) {
        status = write_first(w, pool, &text, e);
        merged_text_free(&text);
    }
    free(ids);
    return status;
}

/* Milliseconds from one picture's pixels to the logits behind its text. */
static enum status measure_first(double *times, struct tower_work *w, const struct bench_options *o, struct error *e) {
    struct model *m = w->model.model;
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = w->prompt + 1 + count_rows(w, TOWER_PROJECTED),
                                    .max_step_rows = STEP_ROWS,
                                    .max_logit_rows = 1,
                                    .kv_dtype = model_info(m)->cache_dtype,
                                    .max_given = STEP_ROWS,
                                    .max_picture_rows = count_rows(w, TOWER_ROWS)};
    struct session_pool *pool;
    if (session_pool_open(&pool, m, &limits, e)) return e->status;
    size_t rows = (size_t)count_rows(w, TOWER_PROJECTED);
    free(w->rows);
    w->rows = xmalloc(rows * (size_t)tower_columns(m, TOWER_PROJECTED) * sizeof *w->rows);
    enum status status = see_and_write(w, pool, e);
    for (int i = 0; i < o->rounds && status == STATUS_OK; i++) {
        double start = time_now();
        status = see_and_write(w, pool, e);
        times[i] = 1e3 * (time_now() - start);
    }
    session_pool_close(pool);
    return status;
}

enum status bench_tower(const struct bench_options *options, struct error *e) {
    struct bench_options named = *options;
    const struct bench_options *o = &named;
    struct tower_work w = {0};
    double rates[BENCH_MAX_ROUNDS] = {0}, times[BENCH_MAX_ROUNDS] = {0};
    named.prefix = "tower.";
    enum status status = open_work(&w, o, e);
    if (status == STATUS_OK) {
        bench_print_title(o, "%s %s; pictures of %d x %d, %d at once; %s", o->model_name, dtype_name(o->dtype),
                          w.pictures[0].width, w.pictures[0].height, w.n, backend_describe(w.model.backend));
        status = measure_rows(rates, &w, o, e);
    }
    if (status == STATUS_OK) bench_print_rounds(o, "pictures", "pictures/s", rates, o->rounds);
    bool writes = status == STATUS_OK && model_sees(w.model.model);
    if (writes) status = measure_first(times, &w, o, e);
    if (writes && status == STATUS_OK)
        bench_print_rounds(o, "first", "ms, from pixels to the first token's logits", times, o->rounds);
    close_work(&w);
    return status;
}
