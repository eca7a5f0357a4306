/* retro/run/encoder.c: the sentence embedder: tokenise, one pass of packed texts through BERT's layers, mean pooling,
 * L2 norm. See encoder.h. Texts are packed without padding: each is a span of rows, so no work is spent on pad tokens
 * and a text's vector does not depend on its neighbours in the batch. */
#include "retro/run/encoder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/json/json_table.h"
#include "retro/model/layer.h"
#include "retro/text/tokenizer.h"

struct encoder {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    struct tokenizer *tokenizer;
    struct scratch scratch;
    struct tensor pooled; /* [max_rows, d] */
    int max_rows, max_tokens;
    uint64_t hash;
    /* Host arrays of one pass. */
    int32_t *ids, *positions, *starts;
    struct attention_span *spans;
};

static const struct stack *stack_of(const struct model *m) { return &m->stacks[STACK_ENCODER]; }

/* folder/name parsed; *out is NULL when the file is absent. */
static enum status read_optional(const char *folder, const char *name, struct json **out, struct error *e) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    *out = NULL;
    return access(path, F_OK) == 0 ? json_parse_file(out, path, e) : STATUS_OK;
}

/* Mean pooling is the one supported mode; another would need its own op, and silently different vectors are worse. */
static enum status check_pooling(const char *folder, struct error *e) {
    struct json *pooling;
    enum status status = read_optional(folder, "1_Pooling/config.json", &pooling, e);
    for (struct json_entry it = {0}; status == STATUS_OK && json_next(pooling, &it);) {
        bool mean = strcmp(it.name.text, "pooling_mode_mean_tokens") == 0;
        if (strncmp(it.name.text, "pooling_mode_", 13) == 0 && json_bool(it.value) != mean)
            status = error_set(e, STATUS_UNSUPPORTED, "%s/1_Pooling/config.json: %s; mean pooling is supported", folder,
                               it.name.text);
    }
    json_close(pooling);
    return status;
}

/* Transformer, Pooling, Normalize; a Dense layer or anything else would change the vectors. */
static enum status check_modules(const char *folder, struct error *e) {
    static const char *const known[] = {"Transformer", "Pooling", "Normalize"};
    struct json *modules;
    enum status status = read_optional(folder, "modules.json", &modules, e);
    for (size_t i = 0; status == STATUS_OK && i < json_count(modules); i++) {
        const char *type = json_word(json_member(json_item(modules, i), "type"));
        const char *last = type ? strrchr(type, '.') : NULL;
        bool found = false;
        for (size_t j = 0; last && j < ARRAY_COUNT(known); j++) found = found || strcmp(last + 1, known[j]) == 0;
        if (!found)
            status = error_set(e, STATUS_UNSUPPORTED,
                               "%s/modules.json: module %s; Transformer, mean Pooling and Normalize are supported",
                               folder, type ? type : "without a type");
    }
    json_close(modules);
    return status;
}

struct text_limit {
    int tokens;
};

static const struct json_field text_limit_fields[] = {
    {"max_seq_length", JSON_INT, JSON_AT(struct text_limit, tokens), .min = 3, .max = 1 << 24},
};
static const struct json_table text_limit_table = JSON_TABLE(text_limit_fields, .open = true);

/* The most tokens of a text. */
static enum status read_max_tokens(const struct model *m, const char *folder, int *max_tokens, struct error *e) {
    static const char file[] = "sentence_bert_config.json";
    struct text_limit limit = {.tokens = m->spec.max_positions};
    struct json_reader reader = {.name = file, .e = e};
    struct json *config;
    enum status status = read_optional(folder, file, &config, e);
    if (status == STATUS_OK && config) status = json_table_read(&reader, &text_limit_table, config, &limit);
    if (status == STATUS_OK && limit.tokens > m->spec.max_positions)
        status = error_set(e, STATUS_INVALID, "%s: max_seq_length is %d, the model has %d positions", file,
                           limit.tokens, m->spec.max_positions);
    json_close(config);
    *max_tokens = limit.tokens;
    return status;
}

/* Every file that changes a vector enters the hash. */
static enum status hash_folder(struct encoder *enc, const char *folder, struct error *e) {
    char path[4096];
    struct file_map map;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (file_map_open(&map, path, e)) return e->status;
    enc->hash = hash_bytes(map.data, map.size, tokenizer_hash(enc->tokenizer) + (uint64_t)enc->max_tokens);
    file_map_close(&map);
    return STATUS_OK;
}

/* Vectors of all texts of a forward; there are no more than rows. */
static size_t pooled_bytes(const struct model *m, size_t rows) {
    return rows * (size_t)stack_of(m)->dims.hidden * sizeof(float);
}

static enum status open_rows(struct encoder *enc, int max_rows, struct error *e) {
    size_t rows = (size_t)max_int(max_rows, enc->max_tokens);
    void *pooled;
    enc->max_rows = (int)rows;
    if (scratch_open(&enc->scratch, enc->model, stack_of(enc->model), enc->max_rows, e) ||
        backend_alloc(enc->backend, &pooled, pooled_bytes(enc->model, rows), "vectors", e))
        return e->status;
    enc->pooled = tensor_make(pooled, DTYPE_F32, enc->max_rows, stack_of(enc->model)->dims.hidden);
    enc->ids = xmalloc(rows * sizeof *enc->ids);
    enc->positions = xmalloc(rows * sizeof *enc->positions);
    enc->starts = xmalloc((rows + 1) * sizeof *enc->starts);
    enc->spans = xmalloc(rows * sizeof *enc->spans);
    return STATUS_OK;
}

static enum status open_parts(struct encoder *enc, const char *folder, const struct model_options *o, int max_rows,
                              struct error *e) {
    if (comm_open_single(&enc->comm, e) || model_open(&enc->model, folder, enc->backend, enc->comm, o, e))
        return e->status;
    if (model_writes(enc->model))
        return error_set(e, STATUS_UNSUPPORTED, "%s: a %s model writes text; an embedder is an encoder alone, as BERT",
                         folder, enc->model->info.family);
    if (check_pooling(folder, e) || check_modules(folder, e) ||
        read_max_tokens(enc->model, folder, &enc->max_tokens, e) || tokenizer_open(&enc->tokenizer, folder, e) ||
        hash_folder(enc, folder, e))
        return e->status;
    if (tokenizer_vocab_size(enc->tokenizer) > enc->model->spec.vocab)
        return error_set(e, STATUS_INVALID, "%s: the tokenizer has %d ids, the model %d", folder,
                         tokenizer_vocab_size(enc->tokenizer), enc->model->spec.vocab);
    return open_rows(enc, max_rows, e);
}

enum status encoder_open(struct encoder **out, const char *folder, struct backend *b, const struct model_options *o,
                         int max_rows, struct error *e) {
    struct error local;
    if (e == NULL) e = &local;
    struct encoder *enc = xcalloc(1, sizeof *enc);
    enc->backend = b;
    enum status status = open_parts(enc, folder, o, max_rows, e);
    if (status) {
        encoder_close(enc);
        return status;
    }
    *out = enc;
    return STATUS_OK;
}

enum status encoder_measure(struct encoder_bytes *out, const char *folder, struct backend *b,
                            const struct model_options *o, int max_rows, struct error *e) {
    struct model_options options = *o;
    struct comm *single;
    struct model *m;
    int max_tokens;
    options.check_only = true;
    if (comm_open_single(&single, e)) return e->status;
    enum status status = model_open(&m, folder, b, single, &options, e);
    if (status == STATUS_OK) {
        status = read_max_tokens(m, folder, &max_tokens, e);
        int rows = status == STATUS_OK ? max_int(max_rows, max_tokens) : 0;
        if (status == STATUS_OK) status = scratch_measure(stack_of(m), rows, &out->rows, e);
        out->rows += pooled_bytes(m, (size_t)rows);
        out->weights = model_info(m)->weight_bytes;
        out->mapped = model_info(m)->mapped;
        model_close(m);
    }
    comm_close(single);
    return status;
}

void encoder_close(struct encoder *enc) {
    if (enc == NULL) return;
    if (enc->model) scratch_close(&enc->scratch, enc->model);
    backend_release(enc->backend, enc->pooled.data);
    tokenizer_close(enc->tokenizer);
    model_close(enc->model);
    comm_close(enc->comm);
    free(enc->ids);
    free(enc->positions);
    free(enc->starts);
    free(enc->spans);
    free(enc);
}

int encoder_dim(const struct encoder *enc) { return stack_of(enc->model)->dims.hidden; }
int encoder_max_tokens(const struct encoder *enc) { return enc->max_tokens; }

uint64_t encoder_hash(const struct encoder *enc) { return enc->hash; }

/* [CLS] text [SEP], at most max_tokens: the text is cut, the [SEP] stays. A special token's name in the text is that
 * token, as sentence-transformers reads it: other vectors would not match an index made there. */
static enum status tokenize(struct encoder *enc, struct text_span text, struct tokens *t, int *n, struct error *e) {
    t->n = 0;
    if (tokenizer_encode(enc->tokenizer, text.text, text.size, TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL, t, e))
        return e->status;
    CHECK(t->n > 0);
    *n = min_int(t->n, enc->max_tokens);
    t->ids[*n - 1] = t->ids[t->n - 1];
    return STATUS_OK;
}

/* One pass over n texts, already laid out in ids, positions, spans and starts. */
static enum status forward(struct encoder *enc, int rows, int n, float *vectors, struct error *e) {
    const struct model *m = enc->model;
    const struct stack *encoder = stack_of(m);
    struct pass pass = {.model = m,
                        .stack = encoder,
                        .scratch = scratch_rows(&enc->scratch, rows),
                        .spans = enc->spans,
                        .n_spans = n,
                        .positions = enc->positions};
    struct tensor pooled = tensor_rows(enc->pooled, 0, n), x = pass.scratch.x;
    stack_embed(m, encoder, x, enc->ids, enc->positions);
    for (int i = 0; i < encoder->dims.n_layers; i++) layer_forward(&pass, &encoder->layers[i]);
    backend_mean_rows(m->backend,
                      &(struct mean_rows_args){.y = pooled, .x = x, .starts = enc->starts, .normalize = true});
    backend_download(m->backend, vectors, pooled.data, (size_t)n * (size_t)stack_of(m)->dims.hidden * sizeof(float));
    return backend_sync(m->backend, e);
}

static void lay_out(struct encoder *enc, const struct tokens *t, int n, int at, int row) {
    for (int i = 0; i < n; i++) {
        enc->ids[row + i] = t->ids[i];
        enc->positions[row + i] = i;
    }
    enc->spans[at] = (struct attention_span){row, n, row, n};
    enc->starts[at] = row;
    enc->starts[at + 1] = row + n;
}

enum status encoder_embed(struct encoder *enc, const struct text_span *texts, int n, float *vectors, struct error *e) {
    struct error local;
    if (e == NULL) e = &local;
    struct tokens t = {0};
    int rows = 0, first = 0; /* rows laid out; first text of the pass being laid out */
    size_t dim = (size_t)stack_of(enc->model)->dims.hidden;
    enum status status = STATUS_OK;
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        int length = 0;
        status = tokenize(enc, texts[i], &t, &length, e);
        if (status == STATUS_OK && rows + length > enc->max_rows) {
            status = forward(enc, rows, i - first, vectors + (size_t)first * dim, e);
            first = i;
            rows = 0;
        }
        if (status) break;
        lay_out(enc, &t, length, i - first, rows);
        rows += length;
    }
    if (status == STATUS_OK && rows > 0) status = forward(enc, rows, n - first, vectors + (size_t)first * dim, e);
    tokens_free(&t);
    return status;
}
