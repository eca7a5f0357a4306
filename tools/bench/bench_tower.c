/* tools/bench/bench_tower.c: retro-bench tower: pictures through a vision tower with random
 * weights, and of a model that also writes, the time from a picture to the first token. Pictures
 * are pixels already. */
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

static enum status open_work(struct tower_work *work, const struct bench_options *options,
                             struct error *e) {
    struct bench_source source = bench_source_of(options);
    int side = options->pixels ? options->pixels : SIDE;
    work->n = options->sequences ? options->sequences : 1;
    work->prompt = options->prompt ? options->prompt : PROMPT;
    if (bench_model_open(&work->model, &source, e)) return e->status;
    if (!model_has_tower(work->model.model))
        return error_set(e, STATUS_INVALID, "%s: the model has no vision tower",
                         options->folders[0]);
    if (tower_check(work->model.model, side, side, e)) return e->status;
    work->pixels = draw_pixels(side);
    work->pictures = xcalloc((size_t)work->n, sizeof *work->pictures);
    for (int i = 0; i < work->n; i++)
        work->pictures[i] = (struct tower_picture){work->pixels, side, side};
    return STATUS_OK;
}

static void close_work(struct tower_work *work) {
    bench_model_close(&work->model);
    free(work->pictures);
    free(work->pixels);
    free(work->rows);
}

static int count_rows(const struct tower_work *work, enum tower_end end) {
    return tower_count(work->model.model, end, work->pictures[0].height, work->pictures[0].width);
}

/* The tower's own rows, all pictures in one pass. */
static enum status measure_rows(double *rates, struct tower_work *work,
                                const struct bench_options *options, struct error *e) {
    const struct model *model = work->model.model;
    struct tower *tower;
    int rows = work->n * count_rows(work, TOWER_ROWS);
    if (tower_open(&tower, model, rows, e)) return e->status;
    work->rows =
        xmalloc((size_t)rows * (size_t)tower_columns(model, TOWER_ROWS) * sizeof *work->rows);
    enum status status = tower_run(tower, work->pictures, work->n, TOWER_ROWS, work->rows,
                                   e); /* touches every page */
    for (int i = 0; i < options->rounds && status == STATUS_OK; i++) {
        double start = time_now();
        status = tower_run(tower, work->pictures, work->n, TOWER_ROWS, work->rows, e);
        rates[i] = work->n / (time_now() - start);
    }
    tower_close(tower);
    return status;
}

/* A text of one picture and work->prompt ids behind it, whose rows go through the decoder in steps.
 */
static enum status write_first(struct tower_work *work, struct session_pool *pool,
                               const struct merged_text *text, struct error *e) {
    struct session *session;
    struct tensor logits;
    int columns = tower_columns(work->model.model, TOWER_PROJECTED);
    if (session_open(&session, pool, (struct grid){0}, e)) return e->status;
    enum status status = STATUS_OK;
    for (int at = 0, given = 0; at < text->n && status == STATUS_OK; at = session_length(session)) {
        struct step_item item = {
            .session = session,
            .tokens = text->ids + at,
            .n_tokens =
                picture_rows_fit(work->model.model, text->ids + at, text->n - at, STEP_ROWS),
            .names = text->names,
            .rows = text->given + (size_t)given * (size_t)columns,
            .positions = text->positions ? text->positions + at * text->sections : NULL};
        item.n_logits = at + item.n_tokens == text->n;
        for (int i = 0; i < item.n_tokens; i++) given += item.tokens[i] < 0;
        status = session_step(pool, &item, 1, &logits, e);
    }
    session_close(session);
    return status;
}

static enum status see_and_write(struct tower_work *work, struct session_pool *pool,
                                 struct error *e) {
    const struct model *model = work->model.model;
    int32_t *ids = xcalloc((size_t)work->prompt + 1, sizeof *ids);
    struct merged_picture picture = {.rows = work->rows,
                                     .tiles = 1,
                                     .tile_rows = count_rows(work, TOWER_PROJECTED),
                                     .name = {.picture = {1}}};
    struct merged_text text;
    tower_grid(model, work->pictures->height, work->pictures->width, &picture.grid.rows,
               &picture.grid.columns);
    ids[0] = model_picture_id(model);
    for (int i = 1; i <= work->prompt; i++) ids[i] = i;
    enum status status = session_encode_pictures(pool, work->pictures, 1, work->rows, e);
    if (status == STATUS_OK)
        status = picture_rows_text(
            &text, model, &(struct picture_text){ids, work->prompt + 1, &picture, 1, {0}}, e);
    if (status == STATUS_OK) {
        status = write_first(work, pool, &text, e);
        merged_text_free(&text);
    }
    free(ids);
    return status;
}

/* Milliseconds from one picture's pixels to the logits behind its text. */
static enum status measure_first(double *times, struct tower_work *work,
                                 const struct bench_options *options, struct error *e) {
    struct model *model = work->model.model;
    struct session_limits limits = {
        .max_sessions = 1,
        .max_tokens = work->prompt + 1 + count_rows(work, TOWER_PROJECTED),
        .max_step_rows = STEP_ROWS,
        .max_logit_rows = 1,
        .kv_dtype = model_info(model)->cache_dtype,
        .max_given = STEP_ROWS,
        .max_picture_rows = count_rows(work, TOWER_ROWS)};
    struct session_pool *pool;
    if (session_pool_open(&pool, model, &limits, e)) return e->status;
    size_t rows = (size_t)count_rows(work, TOWER_PROJECTED);
    free(work->rows);
    work->rows = xmalloc(rows * (size_t)tower_columns(model, TOWER_PROJECTED) * sizeof *work->rows);
    enum status status = see_and_write(work, pool, e);
    for (int i = 0; i < options->rounds && status == STATUS_OK; i++) {
        double start = time_now();
        status = see_and_write(work, pool, e);
        times[i] = 1e3 * (time_now() - start);
    }
    session_pool_close(pool);
    return status;
}

enum status bench_tower(const struct bench_options *options, struct error *e) {
    struct bench_options named = *options;
    const struct bench_options *bench_options = &named;
    struct tower_work work = {0};
    double rates[BENCH_MAX_ROUNDS] = {0}, times[BENCH_MAX_ROUNDS] = {0};
    named.prefix = "tower.";
    enum status status = open_work(&work, bench_options, e);
    if (status == STATUS_OK) {
        bench_print_title(bench_options, "%s %s; pictures of %d x %d, %d at once; %s",
                          bench_options->model_name, dtype_name(bench_options->dtype),
                          work.pictures[0].width, work.pictures[0].height, work.n,
                          backend_describe(work.model.backend));
        status = measure_rows(rates, &work, bench_options, e);
    }
    if (status == STATUS_OK)
        bench_print_rounds(bench_options, "pictures", "pictures/s", rates, bench_options->rounds);
    bool writes = status == STATUS_OK && model_sees(work.model.model);
    if (writes) status = measure_first(times, &work, bench_options, e);
    if (writes && status == STATUS_OK)
        bench_print_rounds(bench_options, "first", "ms, from pixels to the first token's logits",
                           times, bench_options->rounds);
    close_work(&work);
    return status;
}
