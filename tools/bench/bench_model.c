/* tools/bench/bench_model.c: opening a model and running a load on it. See bench_model.h. */
#include "tools/bench/bench_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"

enum { STEP_ROWS = 512, MAX_SEQUENCES = 256 };

struct bench_source bench_source_of(const struct bench_options *options) {
    return (struct bench_source){.folder = options->n_folders ? options->folders[0] : NULL,
                                 .shape = options->shape,
                                 .dtype = options->dtype,
                                 .device = options->device ? options->device : "cpu",
                                 .backend = {.threads = options->threads}};
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

static enum status write_config(const char *folder, const struct bench_source *source,
                                struct error *e) {
    char path[BENCH_FOLDER_SIZE + sizeof "/config.json"];
    struct buffer text = {0};
    struct json_writer w;
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    if (f == NULL) return error_errno(e, "%s", path);
    put_begin_indented(&w, &text, 2);
    put_shape(&w, source->shape, source->retro);
    put_line(&w, f);
    bool written = !ferror(f);
    written = fclose(f) == 0 && written;
    buffer_free(&text);
    return written ? STATUS_OK : error_errno(e, "%s could not be written", path);
}

/* A model is opened from a folder, so a shape is written into one for as long as that takes. */
static enum status open_shape(struct bench_model *model, const struct bench_source *source,
                              const struct model_options *options, struct error *e) {
    char folder[BENCH_FOLDER_SIZE];
    if (bench_folder_make(folder, e)) return e->status;
    enum status status = write_config(folder, source, e);
    if (status == STATUS_OK)
        status = model_open(&model->model, folder, model->backend, model->comm, options, e);
    bench_folder_remove(folder);
    return status;
}

enum status bench_model_open(struct bench_model *model, const struct bench_source *source,
                             struct error *e) {
    struct model_options options = {
        .convert = !source->stored, .dtype = source->dtype, .random = !source->stored};
    *model = (struct bench_model){0};
    enum status status = backend_open(&model->backend, source->device, &source->backend, e);
    if (status == STATUS_OK) status = comm_open_single(&model->comm, e);
    if (status == STATUS_OK)
        status = source->folder ? model_open(&model->model, source->folder, model->backend,
                                             model->comm, &options, e)
                                : open_shape(model, source, &options, e);
    if (status) {
        bench_model_close(model);
        return status;
    }
    return STATUS_OK;
}

void bench_model_close(struct bench_model *model) {
    model_close(model->model);
    comm_close(model->comm);
    backend_close(model->backend);
    *model = (struct bench_model){0};
}

/* Matrices whose columns are no whole blocks stay wider than the rest; here all count as the
 * decoder's. */
static double weights_of(const struct model_info *info, double bytes) {
    return bytes / (double)matrix_bytes(info->dtype, SUPER_BLOCK) * SUPER_BLOCK;
}

struct bench_cost bench_cost_of(const struct model_info *info) {
    size_t output = (size_t)info->padded_vocab * (size_t)info->hidden;
    /* Queries and outputs of cross attention, which decode_bytes counts. */
    size_t cross = 2 * (size_t)info->n_retro_layers * (size_t)info->hidden *
                   (size_t)(info->heads * info->head_dim);
    double read = (double)(info->decode_bytes - matrix_bytes(info->dtype, cross));
    return (struct bench_cost){.read_bytes = read,
                               .row_weights = weights_of(info, read) - (double)output,
                               .logit_weights = (double)output};
}

/* The sequences of one load while it runs. */
struct run {
    struct session_pool *pool;
    struct session *sessions[MAX_SEQUENCES];
    int n, vocab;
    int32_t *ids; /* as many as the longest prompt step or source has; the same for all */
};

/* Sequences [first, first + n) with `rows` new tokens each, those of run.ids from `token` on, of
 * how many of those the logits are wanted, and how many tokens their encoder reads in this step. */
struct batch {
    int first, n, rows, token, logits, source;
};

static enum status run_step(struct run *run, struct batch batch, struct error *e) {
    static const struct neighbor_tokens none[STEP_ROWS];
    struct step_item items[MAX_SEQUENCES];
    struct tensor logits;
    CHECK(batch.token + batch.rows <= STEP_ROWS);
    for (int i = 0; i < batch.n; i++)
        items[i] = (struct step_item){.session = run->sessions[batch.first + i],
                                      .tokens = run->ids + batch.token,
                                      .n_tokens = batch.rows,
                                      .neighbors = none,
                                      .n_logits = batch.logits,
                                      .source = batch.source ? run->ids : NULL,
                                      .n_source = batch.source};
    return session_step(run->pool, items, batch.n, &logits, e);
}

/* As many sequences a step as fit; a prompt that does not fit alone is cut, and its last piece has
 * the logits. */
static enum status run_prompts(struct run *run, const struct bench_load *load, struct error *e) {
    int prompt = load->prompt;
    struct batch batch = {.n = max_int(1, STEP_ROWS / max_int(1, prompt))};
    enum status status = STATUS_OK;
    for (; batch.first < run->n && status == STATUS_OK; batch.first += batch.n) {
        batch.n = min_int(batch.n, run->n - batch.first);
        for (int done = 0; done < prompt && status == STATUS_OK; done += batch.rows) {
            batch.rows = min_int(STEP_ROWS, prompt - done);
            batch.logits = done + batch.rows == prompt;
            batch.source = done == 0 ? load->source : 0;
            status = run_step(run, batch, e);
        }
    }
    return status;
}

static enum status run_load(struct run *run, const struct bench_load *load,
                            struct bench_rates *rates, struct error *e) {
    double start = time_now();
    enum status status = run_prompts(run, load, e);
    double middle = time_now();
    struct batch all = {.n = run->n, .rows = 1, .logits = 1};
    for (int i = 0; i < load->tokens && status == STATUS_OK; i++) {
        all.token = i % STEP_ROWS; /* other tokens use other experts */
        status = run_step(run, all, e);
    }
    double end = time_now();
    rates->prompt = load->prompt ? run->n * load->prompt / (middle - start) : 0;
    rates->tokens = load->tokens ? run->n * load->tokens / (end - middle) : 0;
    return status;
}

static void fill_ids(struct run *run, int n) {
    run->ids = xmalloc((size_t)n * sizeof *run->ids);
    for (int i = 0; i < n; i++) run->ids[i] = (i * 7 + 1) % run->vocab;
}

enum status bench_generate(struct bench_rates *rates, struct bench_model *model,
                           const struct bench_load *load, struct error *e) {
    const struct model_info *info = model_info(model->model);
    struct session_limits limits = {.max_sessions = load->sequences,
                                    .max_tokens = load->prompt + load->tokens,
                                    .max_step_rows = STEP_ROWS,
                                    .max_logit_rows = load->sequences,
                                    .max_neighbors = max_int(1, info->num_neighbors),
                                    .kv_dtype = info->cache_dtype,
                                    .max_source = load->source};
    struct run run = {.vocab = info->vocab};
    if (load->sequences > MAX_SEQUENCES || load->prompt + load->tokens < 1)
        return error_set(e, STATUS_INVALID, "expected 1 to %d sequences and at least one token",
                         MAX_SEQUENCES);
    if (session_pool_open(&run.pool, model->model, &limits, e)) return e->status;
    fill_ids(&run, max_int(STEP_ROWS, load->source));
    int chunk = info->chunk_length;
    struct grid grid = chunk ? grid_make(GRID_START, 0, chunk) : (struct grid){1, 1};
    enum status status = STATUS_OK;
    while (run.n < load->sequences &&
           (status = session_open(&run.sessions[run.n], run.pool, grid, e)) == STATUS_OK)
        run.n++;
    if (status == STATUS_OK) status = run_load(&run, load, rates, e);
    for (int i = 0; i < run.n; i++) session_close(run.sessions[i]);
    session_pool_close(run.pool);
    free(run.ids);
    return status;
}
