/* tools/bench_model.c: opening a random model and running a load on it. See bench_model.h. */
#include "tools/bench_model.h"

#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"

enum { STEP_ROWS = 512, MAX_SEQUENCES = 256 };

enum status bench_model_open(struct bench_model *m, const char *folder, const char *device, enum dtype dtype,
                             const struct backend_options *o, struct error *e) {
    struct model_options options = {.convert = true, .dtype = dtype, .random = true};
    *m = (struct bench_model){.kv_dtype = dtype == DTYPE_F32 || dtype == DTYPE_F16 ? DTYPE_F16 : DTYPE_BF16};
    enum status status = backend_open(&m->backend, device, o, e);
    if (status == STATUS_OK) status = comm_open_single(&m->comm, e);
    if (status == STATUS_OK) status = model_open(&m->model, folder, m->backend, m->comm, &options, e);
    if (status) bench_model_close(m);
    return status;
}

void bench_model_close(struct bench_model *m) {
    model_close(m->model);
    comm_close(m->comm);
    backend_close(m->backend);
    *m = (struct bench_model){0};
}

/* The sequences of one load while it runs. */
struct run {
    struct session_pool *pool;
    struct session *sessions[MAX_SEQUENCES];
    int n, vocab;
};

/* One step of `rows` new tokens for sequences [first, first + n). */
static enum status run_step(struct run *r, int first, int n, int rows, struct error *e) {
    static const struct neighbor_tokens none[STEP_ROWS];
    struct step_item items[MAX_SEQUENCES];
    struct tensor logits;
    int32_t ids[STEP_ROWS];
    CHECK(rows <= STEP_ROWS);
    for (int i = 0; i < rows; i++) ids[i] = (i * 7 + 1) % r->vocab;
    for (int i = 0; i < n; i++)
        items[i] = (struct step_item){
            .session = r->sessions[first + i], .tokens = ids, .n_tokens = rows, .neighbors = none, .n_logits = 1};
    return session_step(r->pool, items, n, &logits, e);
}

/* As many sequences a step as fit; a prompt that does not fit alone is cut. */
static enum status run_prompts(struct run *r, int prompt, struct error *e) {
    int together = max_int(1, STEP_ROWS / max_int(1, prompt));
    enum status status = STATUS_OK;
    for (int first = 0; first < r->n && status == STATUS_OK; first += together)
        for (int done = 0; done < prompt && status == STATUS_OK; done += STEP_ROWS)
            status = run_step(r, first, min_int(together, r->n - first), min_int(STEP_ROWS, prompt - done), e);
    return status;
}

static enum status run_load(struct run *r, const struct bench_load *load, struct bench_rates *rates, struct error *e) {
    double start = time_now();
    enum status status = run_prompts(r, load->prompt, e);
    double middle = time_now();
    for (int i = 0; i < load->tokens && status == STATUS_OK; i++) status = run_step(r, 0, r->n, 1, e);
    double end = time_now();
    rates->prompt = load->prompt ? r->n * load->prompt / (middle - start) : 0;
    rates->tokens = load->tokens ? r->n * load->tokens / (end - middle) : 0;
    return status;
}

enum status bench_generate(struct bench_rates *rates, struct bench_model *m, const struct bench_load *load,
                           struct error *e) {
    const struct model_info *info = model_info(m->model);
    struct session_limits limits = {.max_sessions = load->sequences,
                                    .max_tokens = load->prompt + load->tokens,
                                    .max_step_rows = STEP_ROWS,
                                    .max_logit_rows = load->sequences,
                                    .max_neighbors = max_int(1, info->num_neighbors),
                                    .kv_dtype = m->kv_dtype};
    struct run r = {.vocab = info->vocab};
    if (load->sequences > MAX_SEQUENCES || load->prompt + load->tokens < 1)
        return error_set(e, STATUS_INVALID, "expected 1 to %d sequences and at least one token", MAX_SEQUENCES);
    if (session_pool_open(&r.pool, m->model, &limits, e)) return e->status;
    int chunk = info->chunk_length;
    struct grid grid = chunk ? grid_make(GRID_START, 0, chunk) : (struct grid){1, 1};
    enum status status = STATUS_OK;
    while (r.n < load->sequences && (status = session_open(&r.sessions[r.n], r.pool, grid, e)) == STATUS_OK) r.n++;
    if (status == STATUS_OK) status = run_load(&r, load, rates, e);
    for (int i = 0; i < r.n; i++) session_close(r.sessions[i]);
    session_pool_close(r.pool);
    return status;
}

bool bench_parse(int argc, char **argv, struct bench_options *o) {
    const struct {
        const char *name;
        int *value;
    } counts[] = {{"--threads", &o->threads},
                  {"--sequences", &o->load.sequences},
                  {"--prompt", &o->load.prompt},
                  {"--tokens", &o->load.tokens}};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        size_t c = 0;
        while (c < ARRAY_COUNT(counts) && strcmp(argv[i], counts[c].name) != 0) c++;
        if (c < ARRAY_COUNT(counts)) {
            if ((*counts[c].value = atoi(value)) < 1 || *counts[c].value > 1 << 20) return false;
            i++;
        } else if (strcmp(argv[i], "--dtype") == 0) {
            if (!dtype_parse(&o->dtype, value)) return false;
            i++;
        } else if (strcmp(argv[i], "--json") == 0) {
            o->json = true;
        } else if (argv[i][0] != '-' && o->folder == NULL) {
            o->folder = argv[i];
        } else {
            return false;
        }
    }
    return o->folder != NULL;
}
