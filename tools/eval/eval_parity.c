/* tools/eval/eval_parity.c: retro-eval parity. Runs every case of a reference folder (parity_cases.h) twice: forward,
 * all rows in one step, and incrementally, one row a step; for generations: a fresh forward for every token, and greedy
 * decoding. Prints one line a case. */
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

/* Whether the token drawn from a row may be another than the reference's: not where that leads by more than what both
 * logits may be off. */
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
    struct result *r = &run->result;
    for (int i = 0; i < info->padded_vocab; i++) {
        float difference = fabsf(got[i] - want[i]);
        if (!(difference <= r->max_abs)) r->max_abs = difference; /* NaN sticks */
    }
    int a = find_largest(got, info->vocab), b = find_largest(want, info->vocab);
    if (a != b && !may_differ(want, a, b, run->tolerance)) r->tokens_ok = false;
}

/* The given rows among the first `first` of a sequence. */
static int count_given(const int32_t *tokens, int first) {
    int n = 0;
    for (int i = 0; i < first; i++) n += tokens[i] < 0;
    return n;
}

/* Rows of pictures, and positions of rows. */
static void add_merged(const struct case_run *run, struct step_item *item, int sequence, int first) {
    const struct parity_case *c = run->c;
    const struct merged_text *merged = &c->merged[sequence];
    const int32_t *tokens = c->tokens + (size_t)sequence * (size_t)c->n;
    int before = count_given(tokens, first);
    if (count_given(tokens, first + item->n_tokens) > before)
        item->rows = merged->given + (size_t)before * (size_t)run->info->hidden;
    size_t row = (size_t)sequence * (size_t)c->n + (size_t)first;
    if (c->positions) item->positions = c->positions + row * (size_t)c->sections;
}

static struct step_item make_item(const struct case_run *run, int sequence, int first, int n_tokens, int n_logits) {
    const struct parity_case *c = run->c;
    int done = run->info->chunk_length ? grid_complete(c->grid, first) : 0;
    bool begins = first == 0 && c->sources;
    struct step_item item = {.session = run->sessions[sequence],
                             .tokens = c->tokens + (size_t)sequence * (size_t)c->n + first,
                             .n_tokens = n_tokens,
                             .neighbors = run->sets + sequence * c->l + done,
                             .n_logits = n_logits,
                             .source = begins ? c->sources + (size_t)sequence * (size_t)c->max_source : NULL,
                             .n_source = begins ? c->source_lengths[sequence] : 0};
    if (c->merged) add_merged(run, &item, sequence, first);
    return item;
}

/* Runs n items and brings their n_logits rows of logits to the host. */
static enum status step_items(const struct case_run *run, int n, int n_logits, struct error *e) {
    struct tensor logits;
    struct backend *b = run->model->backend;
    if (session_step(run->pool, run->items, n, &logits, e)) return e->status;
    backend_download(b, run->host, logits.data, (size_t)n_logits * (size_t)run->info->padded_vocab * sizeof(float));
    return backend_sync(b, e);
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

static const float *reference_row(const struct parity_case *c, int sequence, int row) {
    return c->logits +
           ((size_t)sequence * (size_t)(c->n - c->first_row) + (size_t)(row - c->first_row)) * (size_t)c->vocab;
}

/* All rows of all sequences in one step. */
static enum status run_batch(struct case_run *run, struct error *e) {
    const struct parity_case *c = run->c;
    int rows = 0, at = 0;
    if (open_sessions(run, e)) return e->status;
    for (int i = 0; i < c->b; i++) {
        run->items[i] = make_item(run, i, 0, c->lengths[i], c->lengths[i]);
        rows += c->lengths[i];
    }
    enum status status = step_items(run, c->b, rows, e);
    close_sessions(run, c->b);
    for (int i = 0; status == STATUS_OK && i < c->b; i++)
        for (int row = 0; row < c->lengths[i]; row++) {
            compare_row(run, run->host + (size_t)at * (size_t)c->vocab, reference_row(c, i, row));
            at++;
        }
    return status;
}

/* A generation recomputes its whole prefix for every row it reads. */
static enum status run_prefixes(struct case_run *run, struct error *e) {
    const struct parity_case *c = run->c;
    for (int n = c->first_row + 1; n <= c->n; n++) {
        if (open_sessions(run, e)) return e->status;
        run->items[0] = make_item(run, 0, 0, n, 1);
        enum status status = step_items(run, 1, 1, e);
        close_sessions(run, 1);
        if (status) return status;
        compare_row(run, run->host, reference_row(c, 0, n - 1));
    }
    return STATUS_OK;
}

/* The next row of every sequence that has one; rows before first_row are not compared. */
static enum status run_row(struct case_run *run, int row, struct error *e) {
    const struct parity_case *c = run->c;
    bool reads = row >= c->first_row;
    int n = 0, at = 0;
    for (int i = 0; i < c->b; i++) {
        if (row >= c->lengths[i]) continue;
        run->items[n] = make_item(run, i, row, 1, reads);
        n++;
    }
    if (step_items(run, n, reads ? n : 0, e)) return e->status;
    for (int i = 0; reads && i < c->b; i++) {
        if (row >= c->lengths[i]) continue;
        compare_row(run, run->host + (size_t)at * (size_t)c->vocab, reference_row(c, i, row));
        at++;
    }
    return STATUS_OK;
}

/* One row a step from the first token on; a generation decodes greedily after its prompt and draws the same ids, but
 * for close decisions. The next step is given the reference's id in any case, so later rows stay comparable. */
static enum status run_incremental(struct case_run *run, struct error *e) {
    const struct parity_case *c = run->c;
    enum status status = open_sessions(run, e);
    if (status) return status;
    for (int row = 0; row < c->n && status == STATUS_OK; row++) {
        status = run_row(run, row, e);
        if (status || c->greedy == NULL || row < c->first_row) continue;
        int drawn = find_largest(run->host, run->info->vocab), greedy = c->greedy[row - c->first_row];
        if (drawn != greedy && !may_differ(reference_row(c, 0, row), drawn, greedy, run->tolerance))
            run->result.tokens_ok = false;
    }
    close_sessions(run, c->b);
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
static int count_viewed(const struct parity *p, const struct parity_case *c) {
    const struct parity_pictures *pictures = &c->pictures;
    return parity_pictures_rows(pictures, p->model->model, TOWER_ROWS, pictures->n_tiles);
}

/* A cache as wide as the case; the limits are the case's own. */
static struct session_limits limits_of(const struct parity *p, const struct parity_case *c) {
    return (struct session_limits){.max_sessions = c->b,
                                   .max_tokens = c->n,
                                   .max_step_rows = c->b * c->n,
                                   .max_logit_rows = c->b * c->n,
                                   .max_neighbors = max_int(c->k, 1),
                                   .max_source = c->max_source,
                                   .max_given = c->pictures.n_tiles ? c->b * c->n : 0,
                                   .max_picture_rows = c->pictures.n_tiles ? count_viewed(p, c) : 0,
                                   .micro_batch_rows = p->micro_batch_rows,
                                   .kv_dtype = model_info(p->model->model)->cache_dtype};
}

static enum status run_case(struct parity *p, struct parity_case *c, struct result results[WAYS], struct error *e) {
    struct case_run run = {.model = p->model, .info = model_info(p->model->model), .c = c, .tolerance = p->tolerance};
    struct session_limits limits = limits_of(p, c);
    if (session_pool_open(&run.pool, p->model->model, &limits, e)) return e->status;
    if (model_sees(p->model->model) && parity_pictures_merge(c, p->model->model, run.pool, e)) {
        session_pool_close(run.pool);
        return e->status;
    }
    run.sets = xcalloc((size_t)(c->b * c->l) + 1, sizeof *run.sets);
    run.host = xmalloc((size_t)c->b * (size_t)c->n * (size_t)c->vocab * sizeof(float));
    run.sessions = xcalloc((size_t)c->b, sizeof(struct session *));
    run.items = xcalloc((size_t)c->b, sizeof *run.items);
    for (int i = 0; i < c->b * c->l; i++)
        run.sets[i] = (struct neighbor_tokens){c->neighbors + (size_t)i * (size_t)(c->k * c->r), c->k};

    run.result = (struct result){.tokens_ok = true};
    enum status status = c->greedy ? run_prefixes(&run, e) : run_batch(&run, e);
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

static void report_case(struct parity *p, const struct parity_case *c, const struct result *r) {
    bool ok = r[FORWARD].tokens_ok && r[INCREMENTAL].tokens_ok, near = true;
    for (int way = 0; way < WAYS; way++) near = near && r[way].max_abs <= p->tolerance;
    printf("%s/%s forward max_abs=%.2e incremental max_abs=%.2e tokens=%s%s\n", p->folder, c->name,
           (double)r[FORWARD].max_abs, (double)r[INCREMENTAL].max_abs, ok ? "ok" : "differ", near ? "" : " FAILED");
    if (ok && near)
        p->passed++;
    else
        p->failed++;
}

static enum status run_named(void *context, const struct weights *w, const char *name, struct error *e) {
    struct parity *p = context;
    struct parity_case c;
    struct result results[WAYS] = {0};
    enum status status = parity_case_read(&c, name, w, p->model->model, e);
    if (status == STATUS_OK) status = run_case(p, &c, results, e);
    if (status == STATUS_OK) report_case(p, &c, results);
    parity_case_free(&c);
    return status;
}

static void report_tower(void *context, const char *name, float max_abs) {
    struct parity *p = context;
    bool near = max_abs <= p->tolerance;
    printf("%s/%s rows max_abs=%.2e%s\n", p->folder, name, (double)max_abs, near ? "" : " FAILED");
    if (near)
        p->passed++;
    else
        p->failed++;
}

static enum status run_file(struct parity *p, const char *file, struct error *e) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", p->folder, file);
    if (!model_info(p->model->model)->writes) {
        if (parity_towers_run(path, p->model->model, report_tower, p, e)) return error_prefix(e, "%s", path);
        return STATUS_OK;
    }
    if (parity_cases_visit(path, run_named, p, e)) return error_prefix(e, "%s", path);
    return STATUS_OK;
}

static bool holds_model(const char *folder) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/config.json", folder);
    bool there = access(path.data, F_OK) == 0 || gguf_find_file(folder, &path);
    buffer_free(&path);
    return there;
}

static enum status run_folder(struct parity *p, const struct config *config, const char *folder, struct error *e) {
    struct opened_model model;
    int before = p->passed + p->failed;
    if (access(folder, F_OK) == 0 && !holds_model(folder)) {
        /* A set of references may hold checkpoints of other formats beside them. */
        printf("%s skipped: no config.json\n", folder);
        return STATUS_OK;
    }
    if (opened_model_open(&model, config, folder, NULL, e)) return e->status;
    if (!model_info(model.model)->writes && config->parallel.tensor > 1) {
        error_set(e, STATUS_UNSUPPORTED, "%s: a %s model is compared on one rank: set parallel.tensor to 1", folder,
                  model_info(model.model)->family);
        opened_model_close(&model);
        return e->status;
    }
    if (opened_model_follows(&model)) {
        p->follows = true;
        enum status followed = opened_model_follow(&model, e);
        opened_model_close(&model);
        return followed;
    }
    p->model = &model;
    p->folder = folder;
    p->micro_batch_rows = config->parallel.micro_batch_rows;
    enum status status = run_file(p, "cases.safetensors", e);
    if (status == STATUS_OK) status = run_file(p, "generation.safetensors", e);
    if (status == STATUS_OK && p->passed + p->failed == before)
        status = error_set(e, STATUS_NOT_FOUND, "%s: no cases in cases.safetensors or generation.safetensors", folder);
    opened_model_close(&model);
    return status;
}

int eval_parity(const struct usage *self, int argc, char **argv) {
    struct error e = {0};
    struct config config;
    struct parity p = {.tolerance = 1e-4f};
    const struct eval_option options[] = {
        {"--tolerance", "X", "how far a logit may be from the reference (1e-4)", EVAL_OPTION_NUMBER, &p.tolerance},
        {0}};
    config_init(&config);
    int first = eval_parse(self, argc, argv, options, &config, &e);
    if (first == argc) error_set(&e, STATUS_INVALID, "no folder given");
    bool broken = first == EVAL_FAILED || first == argc || (first >= 0 && config_check(&config, &e));
    if (broken) line_print(stderr, "retro-eval parity: %s", e.text);
    for (int i = first; first >= 0 && !broken && i < argc; i++) {
        if (run_folder(&p, &config, argv[i], &e) == STATUS_OK) continue;
        line_print(stderr, "retro-eval parity: %s", e.text);
        broken = e.status == STATUS_DEVICE; /* ranks that are gone read no further folder */
        p.failed++;
    }
    config_free(&config);
    if (p.follows || first < 0) return broken;
    printf("%d passed, %d failed\n", p.passed, p.failed);
    return broken || p.failed > 0 || p.passed == 0;
}
