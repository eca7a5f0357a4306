/* tools/convert/convert_calibrate.c: runs the model over a text and adds up the squares that each matrix meets in each
 * input column. A table of ops stands before the backend's own and looks at every product on its way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/buffer.h"
#include "retro/run/session/session.h"
#include "retro/text/tokenizer.h"
#include "tools/convert/convert_calibrate.h"
#include "tools/convert/sink/sink.h"

enum { WINDOW = 512, SLICE = 64, TEXT_LIMIT = 256 << 20 };

/* The inputs of one matrix; the word table and the output matrix share their data and so their record. */
struct record {
    const void *data;
    int n_in;
    int64_t rows;
    double *sums;
    float *means; /* NULL until rows > 0 at the end */
};

struct calibration {
    struct record *records;
    int n, n_tokens;
    struct backend_ops ops; /* the backend's with `linear` replaced */
    const struct backend_ops *original;
};

/* Ops have no context of their own; one calibration runs at a time. */
static struct calibration *running;

static struct record *record_of(const struct calibration *c, const struct weight *w) {
    for (int i = 0; i < c->n; i++)
        if (c->records[i].data == w->data) return &c->records[i];
    return NULL;
}

static void recording_linear(struct backend *b, const struct linear_args *a) {
    struct record *r = record_of(running, a->weight);
    CHECK(r != NULL && r->n_in == a->x.cols);
    for (int i = 0; i < a->x.rows; i++) {
        const float *x = tensor_f32(a->x) + (int64_t)i * a->x.stride;
        for (int j = 0; j < r->n_in; j++) r->sums[j] += (double)x[j] * (double)x[j];
    }
    r->rows += a->x.rows;
    running->original->linear(b, a);
}

static struct calibration *calibration_make(const struct conversion *p) {
    struct calibration *c = xcalloc(1, sizeof *c);
    c->records = xcalloc((size_t)p->n + 1, sizeof *c->records);
    for (int i = 0; i < p->n; i++) {
        const struct weight *w = p->changes[i].weight;
        if (w == NULL || record_of(c, w)) continue;
        c->records[c->n] = (struct record){.data = w->data, .n_in = w->n_in};
        c->records[c->n].sums = xcalloc((size_t)w->n_in, sizeof(double));
        c->n++;
    }
    c->original = p->backend->ops;
    c->ops = *c->original;
    c->ops.linear = recording_linear;
    return c;
}

/* The text in windows, as retro-eval ppl reads it. */
struct reading {
    struct session_pool *pool;
    const struct model_info *info;
    struct tokens tokens;
    struct neighbor_tokens *sets; /* of one window */
    int32_t *ids;                 /* [chunks of a window, k, r] */
    int window;
};

/* The neighbours of a chunk: other chunks of the same text with what follows them, spread over all of it. They stand in
 * for retrieved ones, which are text of the same kind. */
static void choose_neighbors(struct reading *r, int first) {
    int m = r->info->chunk_length, k = r->info->num_neighbors, length = r->info->retrieved_length;
    int chunks = max_int(1, r->tokens.n / m);
    for (int j = 0; j < r->window / m; j++) {
        int32_t *to = r->ids + (int64_t)j * k * length;
        r->sets[j] = (struct neighbor_tokens){to, k};
        for (int i = 0; i < k; i++) {
            int64_t at = ((int64_t)(first / m + j) * 7 + (int64_t)(i + 1) * (chunks / (k + 1) + 1)) % chunks * m;
            for (int t = 0; t < length; t++)
                *to++ = at + t < r->tokens.n ? r->tokens.ids[at + t] : max_int(0, r->info->eod);
        }
    }
}

static enum status read_window(struct reading *r, int first, int n, struct error *e) {
    int m = r->info->chunk_length;
    struct grid grid = m ? grid_make(GRID_START, n, m) : (struct grid){1, 1};
    struct session *session;
    struct tensor logits;
    if (m) choose_neighbors(r, first);
    if (session_open(&session, r->pool, grid, e)) return e->status;
    enum status status = STATUS_OK;
    for (int at = 0; at < n && status == STATUS_OK; at += SLICE) {
        if ((status = output_check(e)) != STATUS_OK) break;
        int rows = min_int(SLICE, n - at);
        struct step_item item = {.session = session,
                                 .tokens = r->tokens.ids + first + at,
                                 .n_tokens = rows,
                                 .neighbors = m ? r->sets + grid_complete(grid, at) : NULL,
                                 .n_logits = rows};
        status = session_step(r->pool, &item, 1, &logits, e);
    }
    session_close(session);
    return status;
}

static enum status read_text(struct reading *r, const char *path, const char *folder, struct error *e) {
    struct buffer text = {0};
    struct tokenizer *tokenizer = NULL;
    enum status status = tokenizer_open(&tokenizer, folder, e);
    if (status == STATUS_OK) status = file_read(path, TEXT_LIMIT, &text, e);
    if (status == STATUS_OK && text.size == 0) status = error_set(e, STATUS_INVALID, "%s: is empty", path);
    if (status == STATUS_OK) status = tokenizer_encode(tokenizer, text.data, text.size, TOKENIZER_PLAIN, &r->tokens, e);
    tokenizer_close(tokenizer);
    buffer_free(&text);
    return status;
}

static enum status reading_open(struct reading *r, const struct conversion *p, struct error *e) {
    r->info = model_info(p->model);
    r->window = r->info->max_positions ? min_int(WINDOW, r->info->max_positions) : WINDOW;
    int k = max_int(1, r->info->num_neighbors), chunks = r->info->chunk_length ? r->window / r->info->chunk_length : 0;
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = r->window,
                                    .max_step_rows = SLICE,
                                    .max_logit_rows = SLICE,
                                    .max_neighbors = k,
                                    .kv_dtype = DTYPE_F32};
    r->sets = xcalloc((size_t)chunks + 1, sizeof *r->sets);
    r->ids = xcalloc((size_t)chunks * (size_t)k * (size_t)r->info->retrieved_length + 1, sizeof *r->ids);
    return session_pool_open(&r->pool, p->model, &limits, e);
}

static void reading_close(struct reading *r) {
    session_pool_close(r->pool);
    tokens_free(&r->tokens);
    free(r->sets);
    free(r->ids);
}

/* The mean square of a column, and as much again spread evenly over all: a text is a sample, and columns that it hardly
 * moves would else be rounded without care. The even share costs little where importance differs much and wins where it
 * does not (docs/quantisation.md). */
static void take_means(struct calibration *c) {
    for (int i = 0; i < c->n; i++) {
        struct record *r = &c->records[i];
        double even = 0;
        if (r->rows == 0) continue;
        for (int j = 0; j < r->n_in; j++) even += r->sums[j] / r->n_in;
        r->means = xmalloc((size_t)r->n_in * sizeof(float));
        for (int j = 0; j < r->n_in; j++) r->means[j] = (float)((r->sums[j] + even) / (double)r->rows);
    }
}

enum status calibration_run(struct calibration **out, const struct conversion *p, const struct convert_options *o,
                            struct error *e) {
    struct reading r = {0};
    struct calibration *c = calibration_make(p);
    running = c;
    p->backend->ops = &c->ops;
    enum status status = reading_open(&r, p, e);
    if (status == STATUS_OK) status = read_text(&r, o->calibrate, o->from, e);
    for (int at = 0; at < r.tokens.n && status == STATUS_OK; at += r.window)
        status = read_window(&r, at, min_int(r.window, r.tokens.n - at), e);
    p->backend->ops = c->original;
    running = NULL;
    c->n_tokens = r.tokens.n;
    reading_close(&r);
    if (status) {
        calibration_close(c);
        return status;
    }
    take_means(c);
    *out = c;
    return STATUS_OK;
}

const float *calibration_importance(const struct calibration *c, const struct weight *w) {
    const struct record *r = w ? record_of(c, w) : NULL;
    return r ? r->means : NULL;
}

int calibration_tokens(const struct calibration *c) { return c->n_tokens; }

void calibration_close(struct calibration *c) {
    if (c == NULL) return;
    for (int i = 0; i < c->n; i++) {
        free(c->records[i].sums);
        free(c->records[i].means);
    }
    free(c->records);
    free(c);
}
