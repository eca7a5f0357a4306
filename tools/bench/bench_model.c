/* tools/bench/bench_model.c: opening a model and running a load on it. See bench_model.h. */
#include "tools/bench/bench_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"

enum { STEP_ROWS = 512, MAX_SEQUENCES = 256 };

struct bench_source bench_source_of(const struct bench_options *o) {
    return (struct bench_source){.folder = o->n_folders ? o->folders[0] : NULL,
                                 .shape = o->shape,
                                 .dtype = o->dtype,
                                 .device = o->device ? o->device : "cpu",
                                 .backend = {.threads = o->threads}};
}

/* Retro's keys mean nothing to a plain model. */
static void put_shape(struct json_writer *w, const struct bench_shape *shape, bool retro) {
    put_object(w);
    put_key_string(w, "architecture", retro ? "retro" : "gpt");
    put_key_int(w, "retro_chunk_length", 64);
    put_key_int(w, "num_layers", shape->layers);
    put_key_int(w, "hidden_size", shape->hidden);
    put_key_int(w, "num_attention_heads", shape->heads);
    put_key_int(w, "ffn_hidden_size", shape->ffn);
    put_key_int(w, "vocab_size", shape->vocab);
    put_key_int(w, "max_position_embeddings", shape->positions);
    put_key_string(w, "position_embedding_type", shape->position);
    put_key_string(w, "normalization", shape->norm);
    put_key_string(w, "activation", shape->activation);
    put_key_bool(w, "add_bias_linear", shape->bias);
    put_key_bool(w, "tie_word_embeddings", false);
    put_key_bool(w, "final_norm", true);
    put_object_end(w);
}

static enum status write_config(const char *folder, const struct bench_source *s, struct error *e) {
    char path[BENCH_FOLDER_SIZE + sizeof "/config.json"];
    struct buffer text = {0};
    struct json_writer w;
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    if (f == NULL) return error_errno(e, "%s", path);
    put_begin_indented(&w, &text, 2);
    put_shape(&w, s->shape, s->retro);
    put_line(&w, f);
    bool written = !ferror(f);
    written = fclose(f) == 0 && written;
    buffer_free(&text);
    return written ? STATUS_OK : error_errno(e, "%s could not be written", path);
}

/* A model is opened from a folder, so a shape is written into one for as long as that takes. */
static enum status open_shape(struct bench_model *m, const struct bench_source *s, const struct model_options *o,
                              struct error *e) {
    char folder[BENCH_FOLDER_SIZE];
    if (bench_folder_make(folder, e)) return e->status;
    enum status status = write_config(folder, s, e);
    if (status == STATUS_OK) status = model_open(&m->model, folder, m->backend, m->comm, o, e);
    bench_folder_remove(folder);
    return status;
}

enum status bench_model_open(struct bench_model *m, const struct bench_source *s, struct error *e) {
    struct model_options options = {.convert = !s->stored, .dtype = s->dtype, .random = !s->stored};
    *m = (struct bench_model){0};
    enum status status = backend_open(&m->backend, s->device, &s->backend, e);
    if (status == STATUS_OK) status = comm_open_single(&m->comm, e);
    if (status == STATUS_OK)
        status = s->folder ? model_open(&m->model, s->folder, m->backend, m->comm, &options, e)
                           : open_shape(m, s, &options, e);
    if (status) {
        bench_model_close(m);
        return status;
    }
    return STATUS_OK;
}

void bench_model_close(struct bench_model *m) {
    model_close(m->model);
    comm_close(m->comm);
    backend_close(m->backend);
    *m = (struct bench_model){0};
}

/* Matrices whose columns are no whole blocks stay wider than the rest; here all count as the
 * decoder's. */
static double weights_of(const struct model_info *info, double bytes) {
    return bytes / (double)matrix_bytes(info->dtype, SUPER_BLOCK) * SUPER_BLOCK;
}

struct bench_cost bench_cost_of(const struct model_info *info) {
    size_t output = (size_t)info->padded_vocab * (size_t)info->hidden;
    /* Queries and outputs of cross attention, which decode_bytes counts. */
    size_t cross = 2 * (size_t)info->n_retro_layers * (size_t)info->hidden * (size_t)(info->heads * info->head_dim);
    double read = (double)(info->decode_bytes - matrix_bytes(info->dtype, cross));
    return (struct bench_cost){
        .read_bytes = read, .row_weights = weights_of(info, read) - (double)output, .logit_weights = (double)output};
}

/* The sequences of one load while it runs. */
struct run {
    struct session_pool *pool;
    struct session *sessions[MAX_SEQUENCES];
    int n, vocab;
    int32_t *ids; /* as many as the longest prompt step or source has; the same for all */
};

/* Sequences [first, first + n) with `rows` new tokens each, of how many of those the logits are
 * wanted, and how many tokens their encoder reads in this step. */
struct batch {
    int first, n, rows, logits, source;
};

static enum status run_step(struct run *r, struct batch b, struct error *e) {
    static const struct neighbor_tokens none[STEP_ROWS];
    struct step_item items[MAX_SEQUENCES];
    struct tensor logits;
    CHECK(b.rows <= STEP_ROWS);
    for (int i = 0; i < b.n; i++)
        items[i] = (struct step_item){.session = r->sessions[b.first + i],
                                      .tokens = r->ids,
                                      .n_tokens = b.rows,
                                      .neighbors = none,
                                      .n_logits = b.logits,
                                      .source = b.source ? r->ids : NULL,
                                      .n_source = b.source};
    return session_step(r->pool, items, b.n, &logits, e);
}

/* As many sequences a step as fit; a prompt that does not fit alone is cut, and its last piece has
 * the logits. */
static enum status run_prompts(struct run *r, const struct bench_load *load, struct error *e) {
    int prompt = load->prompt;
    struct batch b = {.n = max_int(1, STEP_ROWS / max_int(1, prompt))};
    enum status status = STATUS_OK;
    for (; b.first < r->n && status == STATUS_OK; b.first += b.n) {
        b.n = min_int(b.n, r->n - b.first);
        for (int done = 0; done < prompt && status == STATUS_OK; done += b.rows) {
            b.rows = min_int(STEP_ROWS, prompt - done);
            b.logits = done + b.rows == prompt;
            b.source = done == 0 ? load->source : 0;
            status = run_step(r, b, e);
        }
    }
    return status;
}

static enum status run_load(struct run *r, const struct bench_load *load, struct bench_rates *rates, struct error *e) {
    double start = time_now();
    enum status status = run_prompts(r, load, e);
    double middle = time_now();
    struct batch all = {.n = r->n, .rows = 1, .logits = 1};
    for (int i = 0; i < load->tokens && status == STATUS_OK; i++) status = run_step(r, all, e);
    double end = time_now();
    rates->prompt = load->prompt ? r->n * load->prompt / (middle - start) : 0;
    rates->tokens = load->tokens ? r->n * load->tokens / (end - middle) : 0;
    return status;
}

static void fill_ids(struct run *r, int n) {
    r->ids = xmalloc((size_t)n * sizeof *r->ids);
    for (int i = 0; i < n; i++) r->ids[i] = (i * 7 + 1) % r->vocab;
}

enum status bench_generate(struct bench_rates *rates, struct bench_model *m, const struct bench_load *load,
                           struct error *e) {
    const struct model_info *info = model_info(m->model);
    struct session_limits limits = {.max_sessions = load->sequences,
                                    .max_tokens = load->prompt + load->tokens,
                                    .max_step_rows = STEP_ROWS,
                                    .max_logit_rows = load->sequences,
                                    .max_neighbors = max_int(1, info->num_neighbors),
                                    .kv_dtype = info->cache_dtype,
                                    .max_source = load->source};
    struct run r = {.vocab = info->vocab};
    if (load->sequences > MAX_SEQUENCES || load->prompt + load->tokens < 1)
        return error_set(e, STATUS_INVALID, "expected 1 to %d sequences and at least one token", MAX_SEQUENCES);
    if (session_pool_open(&r.pool, m->model, &limits, e)) return e->status;
    fill_ids(&r, max_int(STEP_ROWS, load->source));
    int chunk = info->chunk_length;
    struct grid grid = chunk ? grid_make(GRID_START, 0, chunk) : (struct grid){1, 1};
    enum status status = STATUS_OK;
    while (r.n < load->sequences && (status = session_open(&r.sessions[r.n], r.pool, grid, e)) == STATUS_OK) r.n++;
    if (status == STATUS_OK) status = run_load(&r, load, rates, e);
    for (int i = 0; i < r.n; i++) session_close(r.sessions[i]);
    session_pool_close(r.pool);
    free(r.ids);
    return status;
}
