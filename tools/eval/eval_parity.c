/* tools/eval/eval_parity.c: retro-eval parity. Runs every case of a reference folder (tests/golden/retro/README.md
 * gives the format) twice: forward, all rows in one step, and incrementally, one row a step; for generations: a fresh
 * forward for every token, and greedy decoding. Prints one line a case. The cases are whatever the files hold, of any
 * dimensions.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "retro/run/session.h"
#include "retro/weights/weights.h"
#include "tools/eval/eval.h"

enum { FORWARD, INCREMENTAL, WAYS };

/* One case: b sequences of n tokens, or one prompt and its greedy continuation. */
struct reference {
    char name[100];
    int b, n, l, k, r, vocab;
    const int32_t *tokens;    /* [b, n]; of a generation: prompt and generated ids, without the last */
    const int32_t *neighbors; /* [b, l, k, r] */
    const float *logits;      /* [b, n, V]; of a generation: rows P-1 .. n-1 */
    int first_row;            /* of logits: 0, or P-1 */
    struct grid grid;
    int32_t *owned;        /* tokens of a generation */
    const int32_t *greedy; /* [n - first_row] expected ids, or NULL */
};

struct result {
    float max_abs;
    bool tokens_ok;
};

static const struct stored_tensor *part(const struct weights *w, const char *prefix, const char *suffix) {
    char name[160];
    snprintf(name, sizeof name, "%s.%s", prefix, suffix);
    return weights_find(w, name);
}

static bool shaped(const struct stored_tensor *t, enum stored_dtype dtype, int n_dims) {
    if (t == NULL || t->dtype != dtype || t->n_dims != n_dims) return false;
    for (int i = 0; i < n_dims; i++)
        if (t->shape[i] < 1 || t->shape[i] > 1 << 24) return false;
    return true;
}

static enum status bad_case(const struct reference *c, const char *what, struct error *e) {
    return error_set(e, STATUS_INVALID, "%s: %s is missing or has the wrong shape", c->name, what);
}

static enum status read_case(struct reference *c, const struct weights *w, const struct model_info *info,
                             struct error *e) {
    const struct stored_tensor *tokens = part(w, c->name, "tokens"), *nb = part(w, c->name, "neighbors"),
                               *logits = part(w, c->name, "logits");
    int m = info->chunk_length;
    if (!shaped(tokens, STORED_I32, 2)) return bad_case(c, "tokens [b, n] i32", e);
    c->b = (int)tokens->shape[0];
    c->n = (int)tokens->shape[1];
    c->vocab = info->padded_vocab;
    c->tokens = tokens->data;
    if (!shaped(logits, STORED_F32, 3) || logits->shape[0] != c->b || logits->shape[1] != c->n ||
        logits->shape[2] != c->vocab)
        return bad_case(c, "logits [b, n, V] f32", e);
    c->logits = logits->data;
    if (m == 0) return STATUS_OK;
    c->l = (c->n + m - 1) / m;
    if (!shaped(nb, STORED_I32, 4) || nb->shape[0] != c->b || nb->shape[1] != c->l ||
        nb->shape[3] != info->retrieved_length)
        return bad_case(c, "neighbors [b, l, k, r] i32", e);
    c->k = (int)nb->shape[2];
    c->r = info->retrieved_length;
    c->neighbors = nb->data;
    c->grid = grid_make(GRID_END, c->n, m);
    return STATUS_OK;
}

static enum status read_generation(struct reference *c, const struct weights *w, const struct model_info *info,
                                   struct error *e) {
    const struct stored_tensor *prompt = part(w, c->name, "prompt"), *tokens = part(w, c->name, "tokens"),
                               *nb = part(w, c->name, "neighbors"), *logits = part(w, c->name, "logits");
    if (!shaped(prompt, STORED_I32, 1) || !shaped(tokens, STORED_I32, 1) || info->chunk_length == 0)
        return bad_case(c, "prompt [P] or tokens [G] i32", e);
    int p = (int)prompt->shape[0], g = (int)tokens->shape[0];
    c->b = 1;
    c->n = p + g - 1;
    c->vocab = info->padded_vocab;
    c->first_row = p - 1;
    c->grid = grid_make(GRID_END, p, info->chunk_length);
    if (!shaped(nb, STORED_I32, 3) || nb->shape[0] < grid_complete(c->grid, c->n) ||
        nb->shape[2] != info->retrieved_length)
        return bad_case(c, "neighbors [l, k, r] i32", e);
    if (!shaped(logits, STORED_F32, 2) || logits->shape[0] != g || logits->shape[1] != c->vocab)
        return bad_case(c, "logits [G, V] f32", e);
    c->l = (int)nb->shape[0];
    c->k = (int)nb->shape[1];
    c->r = info->retrieved_length;
    c->neighbors = nb->data;
    c->logits = logits->data;
    c->greedy = tokens->data;
    c->owned = xmalloc((size_t)c->n * sizeof *c->owned);
    memcpy(c->owned, prompt->data, (size_t)p * sizeof *c->owned);
    memcpy(c->owned + p, tokens->data, (size_t)(g - 1) * sizeof *c->owned);
    c->tokens = c->owned;
    return STATUS_OK;
}

/* The index of the largest real id; greedy is the lowest of equals. */
static int argmax(const float *logits, int vocab) {
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

/* Compares one row with the reference. */
static void compare_row(struct result *r, const float *got, const float *want, const struct model_info *info,
                        float tolerance) {
    for (int i = 0; i < info->padded_vocab; i++) {
        float difference = fabsf(got[i] - want[i]);
        if (!(difference <= r->max_abs)) r->max_abs = difference; /* NaN sticks */
    }
    int a = argmax(got, info->vocab), b = argmax(want, info->vocab);
    if (a != b && !may_differ(want, a, b, tolerance)) r->tokens_ok = false;
}

/* One case while it runs. */
struct run {
    struct opened_model *model;
    const struct model_info *info;
    struct session_pool *pool;
    const struct reference *c;
    struct neighbor_tokens *sets; /* [b * l] */
    float *host;                  /* [b * n, V] */
    float tolerance;
};

static struct step_item item_of(const struct run *run, struct session *s, int sequence, int first, int n_tokens) {
    const struct reference *c = run->c;
    int done = run->info->chunk_length ? grid_complete(c->grid, first) : 0;
    return (struct step_item){.session = s,
                              .tokens = c->tokens + (size_t)sequence * (size_t)c->n + first,
                              .n_tokens = n_tokens,
                              .neighbors = run->sets + sequence * c->l + done};
}

static enum status step(const struct run *run, const struct step_item *items, int n, int n_logits, struct error *e) {
    struct tensor logits;
    struct backend *b = run->model->backend;
    if (session_step(run->pool, items, n, &logits, e)) return e->status;
    backend_download(b, run->host, logits.data, (size_t)n_logits * (size_t)run->info->padded_vocab * sizeof(float));
    return backend_sync(b, e);
}

static void close_all(struct session **sessions, int n) {
    for (int i = 0; i < n; i++) session_close(sessions[i]);
}

static enum status open_all(const struct run *run, struct session **sessions, struct error *e) {
    for (int i = 0; i < run->c->b; i++)
        if (session_open(&sessions[i], run->pool, run->c->grid, e)) {
            close_all(sessions, i);
            return e->status;
        }
    return STATUS_OK;
}

static const float *reference_row(const struct reference *c, int sequence, int row) {
    return c->logits +
           ((size_t)sequence * (size_t)(c->n - c->first_row) + (size_t)(row - c->first_row)) * (size_t)c->vocab;
}

/* All rows in one step; a generation recomputes its whole prefix for every row it reads. */
static enum status run_forward(const struct run *run, struct session **sessions, struct step_item *items,
                               struct result *r, struct error *e) {
    const struct reference *c = run->c;
    for (int n = c->greedy ? c->first_row + 1 : c->n; n <= c->n; n++) {
        int rows = c->greedy ? 1 : n;
        if (open_all(run, sessions, e)) return e->status;
        for (int i = 0; i < c->b; i++) {
            items[i] = item_of(run, sessions[i], i, 0, n);
            items[i].n_logits = rows;
        }
        enum status status = step(run, items, c->b, c->b * rows, e);
        close_all(sessions, c->b);
        if (status) return status;
        for (int i = 0; i < c->b; i++)
            for (int j = 0; j < rows; j++)
                compare_row(r, run->host + (size_t)(i * rows + j) * (size_t)c->vocab, reference_row(c, i, n - rows + j),
                            run->info, run->tolerance);
    }
    return STATUS_OK;
}

/* One row a step from the first token on; a generation decodes greedily after its prompt and draws the same ids, but
 * for close decisions. */
static enum status run_incremental(const struct run *run, struct session **sessions, struct step_item *items,
                                   struct result *r, struct error *e) {
    const struct reference *c = run->c;
    enum status status = open_all(run, sessions, e);
    if (status) return status;
    for (int row = 0; row < c->n && status == STATUS_OK; row++) {
        bool read = row >= c->first_row;
        for (int i = 0; i < c->b; i++) {
            items[i] = item_of(run, sessions[i], i, row, 1);
            items[i].n_logits = read;
        }
        status = step(run, items, c->b, read ? c->b : 0, e);
        for (int i = 0; status == STATUS_OK && read && i < c->b; i++)
            compare_row(r, run->host + (size_t)i * (size_t)c->vocab, reference_row(c, i, row), run->info,
                        run->tolerance);
        if (c->greedy == NULL || !read || status) continue;
        /* The next step feeds the reference's id in any case, so later rows stay comparable. */
        int drawn = argmax(run->host, run->info->vocab), greedy = c->greedy[row - c->first_row];
        if (drawn != greedy && !may_differ(reference_row(c, 0, row), drawn, greedy, run->tolerance))
            r->tokens_ok = false;
    }
    close_all(sessions, c->b);
    return status;
}

/* What all cases of all folders share. */
struct parity {
    struct opened_model *model;
    const char *folder;
    float tolerance;
    int micro_batch_rows;
    int passed, failed;
    bool follows; /* a rank that computes for rank 0, which compares and reports */
};

static enum status run_case(struct parity *p, const struct reference *c, struct result results[WAYS], struct error *e) {
    struct opened_model *model = p->model;
    const struct model_info *info = model_info(model->model);
    struct run run = {.model = model, .info = info, .c = c, .tolerance = p->tolerance};
    struct session_limits limits = {.max_sessions = c->b,
                                    .max_tokens = c->n,
                                    .max_step_rows = c->b * c->n,
                                    .max_logit_rows = c->b * c->n,
                                    .max_neighbors = max_int(c->k, 1),
                                    .micro_batch_rows = p->micro_batch_rows,
                                    .kv_dtype = info->cache_dtype};
    if (session_pool_open(&run.pool, model->model, &limits, e)) return e->status;
    run.sets = xcalloc((size_t)(c->b * c->l) + 1, sizeof *run.sets);
    run.host = xmalloc((size_t)c->b * (size_t)c->n * (size_t)c->vocab * sizeof(float));
    for (int i = 0; i < c->b * c->l; i++)
        run.sets[i] = (struct neighbor_tokens){c->neighbors + (size_t)i * (size_t)(c->k * c->r), c->k};
    struct session **sessions = xcalloc((size_t)c->b, sizeof(struct session *));
    struct step_item *items = xcalloc((size_t)c->b, sizeof *items);
    for (int way = 0; way < WAYS; way++) results[way] = (struct result){.tokens_ok = true};
    enum status status = run_forward(&run, sessions, items, &results[FORWARD], e);
    if (status == STATUS_OK) status = run_incremental(&run, sessions, items, &results[INCREMENTAL], e);
    free(items);
    free(sessions);
    free(run.host);
    free(run.sets);
    session_pool_close(run.pool);
    return status;
}

typedef enum status read_function(struct reference *c, const struct weights *w, const struct model_info *info,
                                  struct error *e);

static void report(struct parity *p, const struct reference *c, const struct result *r) {
    bool ok = r[FORWARD].tokens_ok && r[INCREMENTAL].tokens_ok, near = true;
    for (int way = 0; way < WAYS; way++) near = near && r[way].max_abs <= p->tolerance;
    printf("%s/%s forward max_abs=%.2e incremental max_abs=%.2e tokens=%s%s\n", p->folder, c->name,
           (double)r[FORWARD].max_abs, (double)r[INCREMENTAL].max_abs, ok ? "ok" : "differ", near ? "" : " FAILED");
    if (ok && near)
        p->passed++;
    else
        p->failed++;
}

static enum status run_named(struct parity *p, const struct weights *w, struct reference *c, read_function *read,
                             struct error *e) {
    struct result results[WAYS];
    enum status status = read(c, w, model_info(p->model->model), e);
    if (status == STATUS_OK) status = run_case(p, c, results, e);
    if (status == STATUS_OK) report(p, c, results);
    free(c->owned);
    return status;
}

/* Every case of one file: NAME.marker is what each case has exactly one of. A file that is absent has no cases. */
static enum status run_file(struct parity *p, const char *file, const char *marker, read_function *read,
                            struct error *e) {
    char path[4096];
    struct weights *w;
    snprintf(path, sizeof path, "%s/%s", p->folder, file);
    if (access(path, F_OK) != 0) return STATUS_OK;
    if (weights_open(&w, path, e)) return e->status;
    enum status status = STATUS_OK;
    for (int i = 0; i < weights_count(w) && status == STATUS_OK; i++) {
        struct reference c = {0};
        const char *name = weights_at(w, i)->name, *dot = strrchr(name, '.');
        if (dot == NULL || strcmp(dot, marker) != 0) continue;
        if ((size_t)(dot - name) >= sizeof c.name) {
            status = error_set(e, STATUS_INVALID, "%s: the name %s is too long", path, name);
            break;
        }
        memcpy(c.name, name, (size_t)(dot - name));
        status = run_named(p, w, &c, read, e);
    }
    weights_close(w);
    return status;
}

static enum status run_folder(struct parity *p, const struct config *config, const char *folder, struct error *e) {
    struct opened_model model;
    char path[4096];
    int before = p->passed + p->failed;
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (access(folder, F_OK) == 0 && access(path, F_OK) != 0) {
        /* A set of references may hold checkpoints of other formats beside them. */
        printf("%s skipped: no config.json\n", folder);
        return STATUS_OK;
    }
    if (opened_model_open(&model, config, folder, NULL, e)) return e->status;
    if (opened_model_follows(&model)) {
        p->follows = true;
        enum status followed = opened_model_follow(&model, e);
        opened_model_close(&model);
        return followed;
    }
    p->model = &model;
    p->folder = folder;
    p->micro_batch_rows = config->parallel.micro_batch_rows;
    enum status status = run_file(p, "cases.safetensors", ".tokens", read_case, e);
    if (status == STATUS_OK) status = run_file(p, "generation.safetensors", ".prompt", read_generation, e);
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
        broken = true;
    }
    config_free(&config);
    if (p.follows || first < 0) return broken;
    printf("%d passed, %d failed\n", p.passed, p.failed);
    return broken || p.failed > 0 || p.passed == 0;
}
