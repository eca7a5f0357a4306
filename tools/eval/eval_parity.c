/* tools/eval/eval_parity.c: retro-eval parity. Runs every case of a reference folder
 * (parity_cases.h) twice: forward, all rows in one step, and incrementally, one row a step; for
 * generations: a fresh forward for every token, and greedy decoding. Prints one line a case. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "retro/weights/gguf_folder.h"
#include "tools/eval/eval.h"
#include "tools/eval/parity_pictures.h"

enum { FORWARD, INCREMENTAL, WAYS };

struct result {
    float max_abs;
    bool tokens_ok;
};

/* The index of the largest real id; greedy is the lowest of equals. */
static int find_largest(const float *logits, int vocab) {
    int best = 0;
    for (int i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* Whether the token drawn from a row may be another than the reference's: not where that leads by
 * more than what both logits may be off. */
static bool may_differ(const float *want, int drawn, int reference, float tolerance) {
    return want[reference] - want[drawn] <= 2 * tolerance;
}

/* One case while it runs. */
struct case_run {
    struct opened_model *model;
    const struct model_info *info;
    struct session_pool *pool;
    const struct parity_case *c;
    struct neighbor_tokens *sets; /* [b * l] */
    struct session **sessions;    /* [b] */
    struct step_item *items;      /* [b] */
    float *host;                  /* [b * n, V] */
    float tolerance;
    struct result result;
};

/* Compares one row with the reference. */
static void compare_row(struct case_run *run, const float *got, const float *want) {
    const struct model_info *info = run->info;
    struct result *result = &run->result;
    for (int i = 0; i < info->padded_vocab; i++) {
        float difference = fabsf(got[i] - want[i]);
        if (!(difference <= result->max_abs)) result->max_abs = difference; /* NaN sticks */
    }
    int a = find_largest(got, info->vocab), b = find_largest(want, info->vocab);
    if (a != b && !may_differ(want, a, b, run->tolerance)) result->tokens_ok = false;
}

/* The given rows among the first `first` of a sequence. */
static int count_given(const int32_t *tokens, int first) {
    int n = 0;
    for (int i = 0; i < first; i++) n += tokens[i] < 0;
    return n;
}

/* Rows of pictures, and positions of rows. */
static void add_merged(const struct case_run *run, struct step_item *item, int sequence,
                       int first) {
    const struct parity_case *test = run->c;
    const struct merged_text *merged = &test->merged[sequence];
    const int32_t *tokens = test->tokens + (size_t)sequence * (size_t)test->n;
    int before = count_given(tokens, first);
    if (count_given(tokens, first + item->n_tokens) > before)
        item->rows = merged->given +
                     (size_t)before * (size_t)tower_columns(run->model->model, TOWER_PROJECTED);
    size_t row = (size_t)sequence * (size_t)test->n + (size_t)first;
    if (test->positions) item->positions = test->positions + row * (size_t)test->sections;
}

static struct step_item make_item(const struct case_run *run, int sequence, int first, int n_tokens,
                                  int n_logits) {
    const struct parity_case *test = run->c;
    int done = run->info->chunk_length ? grid_complete(test->grid, first) : 0;
    bool begins = first == 0 && test->sources;
    struct step_item item = {
        .session = run->sessions[sequence],
        .tokens = test->tokens + (size_t)sequence * (size_t)test->n + first,
        .n_tokens = n_tokens,
        .neighbors = run->sets + sequence * test->l + done,
        .n_logits = n_logits,
        .source = begins ? test->sources + (size_t)sequence * (size_t)test->max_source : NULL,
        .n_source = begins ? test->source_lengths[sequence] : 0};
    if (test->merged) add_merged(run, &item, sequence, first);
    return item;
}

/* Runs n items and brings their n_logits rows of logits to the host. */
static enum status step_items(const struct case_run *run, int n, int n_logits, struct error *e) {
    struct tensor logits;
    struct backend *backend = run->model->backend;
    if (session_step(run->pool, run->items, n, &logits, e)) return e->status;
    backend_download(backend, run->host, logits.data,
                     (size_t)n_logits * (size_t)run->info->padded_vocab * sizeof(float));
    return backend_sync(backend, e);
}

static void close_sessions(const struct case_run *run, int n) {
    for (int i = 0; i < n; i++) session_close(run->sessions[i]);
}

static enum status open_sessions(const struct case_run *run, struct error *e) {
    for (int i = 0; i < run->c->b; i++)
        if (session_open(&run->sessions[i], run->pool, run->c->grid, e)) {
            close_sessions(run, i);
            return e->status;
        }
    return STATUS_OK;
}

static const float *reference_row(const struct parity_case *test, int sequence, int row) {
    return test->logits + ((size_t)sequence * (size_t)(test->n - test->first_row) +
                           (size_t)(row - test->first_row)) *
                              (size_t)test->vocab;
}

/* All rows of all sequences in one step. */
static enum status run_batch(struct case_run *run, struct error *e) {
    const struct parity_case *test = run->c;
    int rows = 0, at = 0;
    if (open_sessions(run, e)) return e->status;
    for (int i = 0; i < test->b; i++) {
        run->items[i] = make_item(run, i, 0, test->lengths[i], test->lengths[i]);
        rows += test->lengths[i];
    }
    enum status status = step_items(run, test->b, rows, e);
    close_sessions(run, test->b);
    for (int i = 0; status == STATUS_OK && i < test->b; i++)
        for (int row = 0; row < test->lengths[i]; row++) {
            compare_row(run, run->host + (size_t)at * (size_t)test->vocab,
                        reference_row(test, i, row));
            at++;
        }
    return status;
}

/* A generation recomputes its whole prefix for every row it reads. */
static enum status run_prefixes(struct case_run *run, struct error *e) {
    const struct parity_case *test = run->c;
    for (int n = test->first_row + 1; n <= test->n; n++) {
        if (open_sessions(run, e)) return e->status;
        run->items[0] = make_item(run, 0, 0, n, 1);
        enum status status = step_items(run, 1, 1, e);
        close_sessions(run, 1);
        if (status) return status;
        compare_row(run, run->host, reference_row(test, 0, n - 1));
    }
    return STATUS_OK;
}

/* How many rows of a sequence are read together from `row` on: one, or those of a picture whose
 * rows see each other; 0 within such a picture, and behind the sequence's end. */
static int count_together(const struct case_run *run, int sequence, int row) {
    const struct parity_case *test = run->c;
    const struct model *model = run->model->model;
    if (row >= test->lengths[sequence]) return 0;
    const int32_t *ids = test->tokens + (size_t)sequence * (size_t)test->n;
    int n = test->lengths[sequence], left = picture_rows_left(model, ids + row, n - row);
    if (row > 0 && picture_rows_left(model, ids + row - 1, n - row + 1) > 1) return 0;
    return max_int(1, left);
}

/* Of n rows from `row` on those that are compared: rows before first_row are not. */
static int count_compared(const struct parity_case *test, int row, int n) {
    return max_int(0, min_int(n, row + n - test->first_row));
}

/* The rows of every sequence that begin with its row `row`. */
static enum status run_row(struct case_run *run, int row, struct error *e) {
    const struct parity_case *test = run->c;
    int n = 0, at = 0, read = 0;
    for (int i = 0; i < test->b; i++) {
        int rows = count_together(run, i, row), compared = count_compared(test, row, rows);
        if (rows == 0) continue;
        run->items[n] = make_item(run, i, row, rows, compared);
        read += compared;
        n++;
    }
    if (n > 0 && step_items(run, n, read, e)) return e->status;
    for (int i = 0; i < test->b; i++) {
        int rows = count_together(run, i, row), compared = count_compared(test, row, rows);
        for (int j = row + rows - compared; j < row + rows; j++) {
            compare_row(run, run->host + (size_t)at * (size_t)test->vocab,
                        reference_row(test, i, j));
            at++;
        }
    }
    return STATUS_OK;
}

/* One row a step from the first token on; a generation decodes greedily after its prompt and draws
 * the same ids, but for close decisions. The next step is given the reference's id in any case, so
 * later rows stay comparable. */
static enum status run_incremental(struct case_run *run, struct error *e) {
    const struct parity_case *test = run->c;
    enum status status = open_sessions(run, e);
    if (status) return status;
    for (int row = 0; row < test->n && status == STATUS_OK; row++) {
        status = run_row(run, row, e);
        if (status || test->greedy == NULL || row < test->first_row) continue;
        int drawn = find_largest(run->host, run->info->vocab),
            greedy = test->greedy[row - test->first_row];
        if (drawn != greedy &&
            !may_differ(reference_row(test, 0, row), drawn, greedy, run->tolerance))
            run->result.tokens_ok = false;
    }
    close_sessions(run, test->b);
    return status;
}

/* The state that all cases of all folders share. */
struct parity {
    struct opened_model *model;
    const char *folder;
    float tolerance;
    int micro_batch_rows;
    int passed, failed;
    bool follows; /* a rank that computes for rank 0, which compares and reports */
};

/* Rows of all tiles of a case in the tower. */
static int count_viewed(const struct parity *parity, const struct parity_case *test) {
    const struct parity_pictures *pictures = &test->pictures;
    return parity_pictures_rows(pictures, parity->model->model, TOWER_ROWS, pictures->n_tiles);
}

/* A cache as wide as the case; the limits are the case's own. */
static struct session_limits limits_of(const struct parity *parity,
                                       const struct parity_case *test) {
    return (struct session_limits){
        .max_sessions = test->b,
        .max_tokens = test->n,
        .max_step_rows = test->b * test->n,
        .max_logit_rows = test->b * test->n,
        .max_neighbors = max_int(test->k, 1),
        .max_source = test->max_source,
        .max_given = test->pictures.n_tiles ? test->b * test->n : 0,
        .max_picture_rows = test->pictures.n_tiles ? count_viewed(parity, test) : 0,
        .micro_batch_rows = parity->micro_batch_rows,
        .kv_dtype = model_info(parity->model->model)->cache_dtype};
}

static enum status run_case(struct parity *parity, struct parity_case *test,
                            struct result results[WAYS], struct error *e) {
    struct case_run run = {.model = parity->model,
                           .info = model_info(parity->model->model),
                           .c = test,
                           .tolerance = parity->tolerance};
    struct session_limits limits = limits_of(parity, test);
    if (session_pool_open(&run.pool, parity->model->model, &limits, e)) return e->status;
    if (model_sees(parity->model->model) && test->text_length > 0 &&
        parity_pictures_merge(test, parity->model->model, run.pool, e)) {
        session_pool_close(run.pool);
        return e->status;
    }
    run.sets = xcalloc((size_t)(test->b * test->l) + 1, sizeof *run.sets);
    run.host = xmalloc((size_t)test->b * (size_t)test->n * (size_t)test->vocab * sizeof(float));
    run.sessions = xcalloc((size_t)test->b, sizeof(struct session *));
    run.items = xcalloc((size_t)test->b, sizeof *run.items);
    for (int i = 0; i < test->b * test->l; i++)
        run.sets[i] = (struct neighbor_tokens){
            test->neighbors + (size_t)i * (size_t)(test->k * test->r), test->k};

    run.result = (struct result){.tokens_ok = true};
    enum status status = test->greedy ? run_prefixes(&run, e) : run_batch(&run, e);
    results[FORWARD] = run.result;
    run.result = (struct result){.tokens_ok = true};
    if (status == STATUS_OK) status = run_incremental(&run, e);
    results[INCREMENTAL] = run.result;

    free(run.items);
    free(run.sessions);
    free(run.host);
    free(run.sets);
    session_pool_close(run.pool);
    return status;
}

static void report_case(struct parity *parity, const struct parity_case *test,
                        const struct result *result) {
    bool ok = result[FORWARD].tokens_ok && result[INCREMENTAL].tokens_ok, near = true;
    for (int way = 0; way < WAYS; way++) near = near && result[way].max_abs <= parity->tolerance;
    line_print(stdout, "%s/%s forward max_abs=%.2e incremental max_abs=%.2e tokens=%s%s",
               parity->folder, test->name, (double)result[FORWARD].max_abs,
               (double)result[INCREMENTAL].max_abs, ok ? "ok" : "differ", near ? "" : " FAILED");
    if (ok && near)
        parity->passed++;
    else
        parity->failed++;
}

static enum status run_named(void *context, const struct weights *weights, const char *name,
                             struct error *e) {
    struct parity *parity = context;
    struct parity_case test;
    struct result results[WAYS] = {0};
    enum status status = parity_case_read(&test, name, weights, parity->model->model, e);
    if (status == STATUS_OK) status = run_case(parity, &test, results, e);
    if (status == STATUS_OK) report_case(parity, &test, results);
    parity_case_free(&test);
    return status;
}

static void report_tower(void *context, const char *name, float max_abs) {
    struct parity *parity = context;
    bool near = max_abs <= parity->tolerance;
    line_print(stdout, "%s/%s rows max_abs=%.2e%s", parity->folder, name, (double)max_abs,
               near ? "" : " FAILED");
    if (near)
        parity->passed++;
    else
        parity->failed++;
}

static enum status run_file(struct parity *parity, const char *file, struct error *e) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", parity->folder, file);
    if (!model_info(parity->model->model)->writes) {
        if (parity_towers_run(path, parity->model->model, report_tower, parity, e))
            return error_prefix(e, "%s", path);
        return STATUS_OK;
    }
    if (parity_cases_visit(path, run_named, parity, e)) return error_prefix(e, "%s", path);
    return STATUS_OK;
}

static bool holds_model(const char *folder) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/config.json", folder);
    bool there = access(path.data, F_OK) == 0 || gguf_find_file(folder, &path);
    buffer_free(&path);
    return there;
}

static enum status run_folder(struct parity *parity, const struct config *config,
                              const char *folder, struct error *e) {
    struct opened_model model;
    int before = parity->passed + parity->failed;
    if (access(folder, F_OK) == 0 && !holds_model(folder)) {
        /* A set of references may hold checkpoints of other formats beside them. */
        line_print(stdout, "%s skipped: no config.json", folder);
        return STATUS_OK;
    }
    if (opened_model_open(&model, config, folder, NULL, e)) return e->status;
    if (!model_info(model.model)->writes && config->parallel.tensor > 1) {
        error_set(e, STATUS_UNSUPPORTED,
                  "%s: a %s model is compared on one rank: set parallel.tensor to 1", folder,
                  model_info(model.model)->family);
        opened_model_close(&model);
        return e->status;
    }
    if (opened_model_follows(&model)) {
        parity->follows = true;
        enum status followed = opened_model_follow(&model, e);
        opened_model_close(&model);
        return followed;
    }
    parity->model = &model;
    parity->folder = folder;
    parity->micro_batch_rows = config->parallel.micro_batch_rows;
    enum status status = run_file(parity, "cases.safetensors", e);
    if (status == STATUS_OK) status = run_file(parity, "generation.safetensors", e);
    if (status == STATUS_OK && parity->passed + parity->failed == before)
        status = error_set(e, STATUS_NOT_FOUND,
                           "%s: no cases in cases.safetensors or generation.safetensors", folder);
    opened_model_close(&model);
    return status;
}

int eval_parity(const struct usage *self, int argc, char **argv) {
    struct error e = {0};
    struct config config;
    struct parity parity = {.tolerance = 1e-4f};
    const struct eval_option options[] = {
        {"--tolerance", "X", "how far a logit may be from the reference (1e-4)", EVAL_OPTION_NUMBER,
         &parity.tolerance},
        {0}};
    config_init(&config);
    int first = eval_parse(self, argc, argv, options, &config, &e);
    if (first == argc) error_set(&e, STATUS_INVALID, "no folder given");
    bool broken =
        first == EVAL_FAILED || first == argc || (first >= 0 && config_check(&config, &e));
    if (broken) line_print(stderr, "retro-eval parity: %s", e.text);
    for (int i = first; first >= 0 && !broken && i < argc; i++) {
        if (run_folder(&parity, &config, argv[i], &e) == STATUS_OK) continue;
        line_print(stderr, "retro-eval parity: %s", e.text);
        broken = e.status == STATUS_DEVICE; /* ranks that are gone read no further folder */
        parity.failed++;
    }
    config_free(&config);
    if (parity.follows || first < 0) return broken;
    printf("%d passed, %d failed\n", parity.passed, parity.failed);
    return broken || parity.failed > 0 || parity.passed == 0;
}
