/* tools/convert/convert_calibrate.c: runs the model over a text and adds up the squares that each
 * matrix meets in each input column. A table of ops stands before the backend's own and looks at
 * every product on its way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/buffer.h"
#include "retro/run/session/session.h"
#include "retro/text/tokenizer.h"
#include "tools/convert/convert_calibrate.h"
#include "tools/convert/sink/sink.h"

enum { WINDOW = 512, SLICE = 64, TEXT_LIMIT = 256 << 20 };

/* The inputs of one matrix; the word table and the output matrix share their data and so their
 * record. */
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

static struct record *record_of(const struct calibration *calibration,
                                const struct weight *weight) {
    for (int i = 0; i < calibration->n; i++)
        if (calibration->records[i].data == weight->data) return &calibration->records[i];
    return NULL;
}

static void recording_linear(struct backend *backend, const struct linear_args *args) {
    struct record *record = record_of(running, args->weight);
    CHECK(record != NULL && record->n_in == args->x.cols);
    for (int i = 0; i < args->x.rows; i++) {
        const float *x = tensor_f32(args->x) + (int64_t)i * args->x.stride;
        for (int j = 0; j < record->n_in; j++) record->sums[j] += (double)x[j] * (double)x[j];
    }
    record->rows += args->x.rows;
    running->original->linear(backend, args);
}

static struct calibration *calibration_make(const struct conversion *conversion) {
    struct calibration *calibration = xcalloc(1, sizeof *calibration);
    calibration->records = xcalloc((size_t)conversion->n + 1, sizeof *calibration->records);
    for (int i = 0; i < conversion->n; i++) {
        const struct weight *weight = conversion->changes[i].weight;
        if (weight == NULL || record_of(calibration, weight)) continue;
        calibration->records[calibration->n] =
            (struct record){.data = weight->data, .n_in = weight->n_in};
        calibration->records[calibration->n].sums = xcalloc((size_t)weight->n_in, sizeof(double));
        calibration->n++;
    }
    calibration->original = conversion->backend->ops;
    calibration->ops = *calibration->original;
    calibration->ops.linear = recording_linear;
    return calibration;
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

/* The neighbours of a chunk: other chunks of the same text with what follows them, spread over all
 * of it. They stand in for retrieved ones, which are text of the same kind. */
static void choose_neighbors(struct reading *reading, int first) {
    int m = reading->info->chunk_length, k = reading->info->num_neighbors,
        length = reading->info->retrieved_length;
    int chunks = max_int(1, reading->tokens.n / m);
    for (int j = 0; j < reading->window / m; j++) {
        int32_t *to = reading->ids + (int64_t)j * k * length;
        reading->sets[j] = (struct neighbor_tokens){to, k};
        for (int i = 0; i < k; i++) {
            int64_t at =
                ((int64_t)(first / m + j) * 7 + (int64_t)(i + 1) * (chunks / (k + 1) + 1)) %
                chunks * m;
            for (int t = 0; t < length; t++)
                *to++ = at + t < reading->tokens.n ? reading->tokens.ids[at + t]
                                                   : max_int(0, reading->info->eod);
        }
    }
}

static enum status read_window(struct reading *reading, int first, int n, struct error *e) {
    int m = reading->info->chunk_length;
    struct grid grid = m ? grid_make(GRID_START, n, m) : (struct grid){1, 1};
    struct session *session;
    struct tensor logits;
    if (m) choose_neighbors(reading, first);
    if (session_open(&session, reading->pool, grid, e)) return e->status;
    enum status status = STATUS_OK;
    for (int at = 0; at < n && status == STATUS_OK; at += SLICE) {
        if ((status = output_check(e)) != STATUS_OK) break;
        int rows = min_int(SLICE, n - at);
        struct step_item item = {.session = session,
                                 .tokens = reading->tokens.ids + first + at,
                                 .n_tokens = rows,
                                 .neighbors = m ? reading->sets + grid_complete(grid, at) : NULL,
                                 .n_logits = rows};
        status = session_step(reading->pool, &item, 1, &logits, e);
    }
    session_close(session);
    return status;
}

static enum status read_text(struct reading *reading, const char *path, const char *folder,
                             struct error *e) {
    struct buffer text = {0};
    struct tokenizer *tokenizer = NULL;
    enum status status = tokenizer_open(&tokenizer, folder, e);
    if (status == STATUS_OK) status = file_read(path, TEXT_LIMIT, &text, e);
    if (status == STATUS_OK && text.size == 0)
        status = error_set(e, STATUS_INVALID, "%s: is empty", path);
    if (status == STATUS_OK)
        status =
            tokenizer_encode(tokenizer, text.data, text.size, TOKENIZER_PLAIN, &reading->tokens, e);
    tokenizer_close(tokenizer);
    buffer_free(&text);
    return status;
}

static enum status reading_open(struct reading *reading, const struct conversion *conversion,
                                struct error *e) {
    reading->info = model_info(conversion->model);
    reading->window =
        reading->info->max_positions ? min_int(WINDOW, reading->info->max_positions) : WINDOW;
    int k = max_int(1, reading->info->num_neighbors),
        chunks = reading->info->chunk_length ? reading->window / reading->info->chunk_length : 0;
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = reading->window,
                                    .max_step_rows = SLICE,
                                    .max_logit_rows = SLICE,
                                    .max_neighbors = k,
                                    .kv_dtype = DTYPE_F32};
    reading->sets = xcalloc((size_t)chunks + 1, sizeof *reading->sets);
    reading->ids = xcalloc((size_t)chunks * (size_t)k * (size_t)reading->info->retrieved_length + 1,
                           sizeof *reading->ids);
    return session_pool_open(&reading->pool, conversion->model, &limits, e);
}

static void reading_close(struct reading *reading) {
    session_pool_close(reading->pool);
    tokens_free(&reading->tokens);
    free(reading->sets);
    free(reading->ids);
}

/* The mean square of a column, and as much again spread evenly over all: a text is a sample, and
 * columns that it hardly moves would else be rounded without care. The even share costs little
 * where importance differs much and wins where it does not (docs/quantisation.md). */
static void take_means(struct calibration *calibration) {
    for (int i = 0; i < calibration->n; i++) {
        struct record *record = &calibration->records[i];
        double even = 0;
        if (record->rows == 0) continue;
        for (int j = 0; j < record->n_in; j++) even += record->sums[j] / record->n_in;
        record->means = xmalloc((size_t)record->n_in * sizeof(float));
        for (int j = 0; j < record->n_in; j++)
            record->means[j] = (float)((record->sums[j] + even) / (double)record->rows);
    }
}

enum status calibration_run(struct calibration **out, const struct conversion *conversion,
                            const struct convert_options *options, struct error *e) {
    struct reading reading = {0};
    struct calibration *calibration = calibration_make(conversion);
    running = calibration;
    conversion->backend->ops = &calibration->ops;
    enum status status = reading_open(&reading, conversion, e);
    if (status == STATUS_OK) status = read_text(&reading, options->calibrate, options->from, e);
    for (int at = 0; at < reading.tokens.n && status == STATUS_OK; at += reading.window)
        status = read_window(&reading, at, min_int(reading.window, reading.tokens.n - at), e);
    conversion->backend->ops = calibration->original;
    running = NULL;
    calibration->n_tokens = reading.tokens.n;
    reading_close(&reading);
    if (status) {
        calibration_close(calibration);
        return status;
    }
    take_means(calibration);
    *out = calibration;
    return STATUS_OK;
}

const float *calibration_importance(const struct calibration *calibration,
                                    const struct weight *weight) {
    const struct record *record = weight ? record_of(calibration, weight) : NULL;
    return record ? record->means : NULL;
}

int calibration_tokens(const struct calibration *calibration) { return calibration->n_tokens; }

void calibration_close(struct calibration *calibration) {
    if (calibration == NULL) return;
    for (int i = 0; i < calibration->n; i++) {
        free(calibration->records[i].sums);
        free(calibration->records[i].means);
    }
    free(calibration->records);
    free(calibration);
}
