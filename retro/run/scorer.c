/* retro/run/scorer.c: pairs of texts through an encoder. See scorer.h. Pairs are packed without padding, as the
 * embedder's texts are. The embedding kernel adds one token type to all rows; here the second text has a type of its
 * own, so the table of positions is kept twice, with either type added. */
#include "retro/run/scorer.h"

#include <stdlib.h>
#include <string.h>

#include "retro/model/layer.h"
#include "retro/run/pooling.h"
#include "retro/run/sequence_head.h"
#include "retro/text/tokenizer.h"
#include "retro/weights/weights.h"

struct scorer {
    struct encoder_folder folder;
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    struct tokenizer *tokenizer;
    struct scratch scratch;
    struct pooling *pooling;
    struct tensor places;         /* f32 [2 P, d]: positions with type 0, positions with the second text's type */
    struct tokens prefix, suffix; /* what the tokenizer puts before and behind a text */
    bool doubled;                 /* two suffixes are between the texts: RoBERTa's kinds and MPNet */
    int max_rows, max_tokens;
    uint64_t hash;
    /* Host arrays of one pass. */
    int32_t *ids, *positions, *starts;
    struct attention_span *spans;
};

static const struct stack *scorer_stack(const struct model *m) { return &m->stacks[STACK_ENCODER]; }

/* Opening. */

static enum status scorer_check(const struct scorer *s, const char *folder, struct error *e) {
    if (model_has_stack(s->model, STACK_DECODER) || s->model->spec.joint > 0 ||
        scorer_stack(s->model)->dims.reads != EDGE_NONE)
        return error_set(e, STATUS_UNSUPPORTED, "%s: a %s model is no reranker; one is BERT's kind", folder,
                         s->model->info.family);
    return STATUS_OK;
}

static enum status scorer_find_limit(struct scorer *s, int wanted, struct error *e) {
    const struct model_spec *spec = &s->model->spec;
    int positions = spec->max_positions == 0 ? 0 : max_int(1, spec->max_positions - (spec->position_pad + 1));
    int limit = s->folder.tokenizer_tokens;
    if (limit == 0 || (positions > 0 && limit > positions)) limit = positions;
    if (limit == 0 && wanted == 0)
        return error_set(e, STATUS_INVALID, "%s: no file says how long a text may be: set retrieval.reranker_tokens",
                         s->folder.model);
    s->max_tokens = wanted > 0 && (limit == 0 || wanted < limit) ? wanted : limit;
    return STATUS_OK;
}

static enum status scorer_open_model(struct scorer *s, const char *folder, const struct encoder_options *o,
                                     struct error *e) {
    struct model_options model = o->model;
    model.rows_only = true;
    if (encoder_folder_read_model(&s->folder, folder, e) || comm_open_single(&s->comm, e) ||
        model_open(&s->model, s->folder.model, s->backend, s->comm, &model, e) || scorer_check(s, folder, e))
        return e->status;
    if (sequence_head_read(&s->folder, scorer_stack(s->model)->dims.hidden, e)) return e->status;
    return scorer_find_limit(s, o->max_tokens, e);
}

static enum status scorer_open_tokenizer(struct scorer *s, struct error *e) {
    if (tokenizer_open(&s->tokenizer, s->folder.model, e)) return e->status;
    if (tokenizer_vocab_size(s->tokenizer) > s->model->spec.vocab)
        return error_set(e, STATUS_INVALID, "%s: the tokenizer has %d ids, the model %d", s->folder.model,
                         tokenizer_vocab_size(s->tokenizer), s->model->spec.vocab);
    struct tokens around = {0};
    enum status status = tokenizer_encode(s->tokenizer, "", 0, TOKENIZER_ADD_SPECIAL, &around, e);
    int n_prefix = around.n - tokenizer_suffix(s->tokenizer);
    for (int i = 0; i < around.n && status == STATUS_OK; i++)
        tokens_append(i < n_prefix ? &s->prefix : &s->suffix, around.ids[i], 0);
    tokens_free(&around);
    const char *family = s->model->info.family;
    s->doubled = strcmp(family, "roberta") == 0 || strcmp(family, "xlm-roberta") == 0 || strcmp(family, "mpnet") == 0;
    return status;
}

/* Rows of the embedding's table as they lie on the device, f32; a table that is missing gives zeros. */
static enum status scorer_read_table(const struct scorer *s, const struct tensor *table, int row, int rows, float *out,
                                     struct error *e) {
    size_t d = (size_t)scorer_stack(s->model)->dims.hidden, bytes = (size_t)rows * d * sizeof *out;
    memset(out, 0, bytes);
    if (table->data == NULL || row >= table->rows) return STATUS_OK;
    const char *from = (const char *)table->data + (size_t)row * d * sizeof *out;
    backend_download(s->backend, out, from, bytes);
    return backend_sync(s->backend, e);
}

/* Where there is one type, both texts have it. */
static enum status scorer_open_places(struct scorer *s, struct error *e) {
    const struct embedding *table = &s->model->embedding;
    size_t d = (size_t)scorer_stack(s->model)->dims.hidden, rows = (size_t)max_int(1, s->model->spec.max_positions);
    size_t bytes = 2 * rows * d * sizeof(float);
    float *host = xmalloc(bytes), *types = xmalloc(2 * d * sizeof *types);
    void *memory;
    int second = table->type.data && table->type.rows > 1;
    enum status status = scorer_read_table(s, &table->position, 0, (int)rows, host, e);
    if (status == STATUS_OK) status = scorer_read_table(s, &table->type, 0, 1, types, e);
    if (status == STATUS_OK) status = scorer_read_table(s, &table->type, second, 1, types + d, e);
    if (status == STATUS_OK) status = backend_alloc(s->backend, &memory, bytes, "positions", e);
    if (status == STATUS_OK) {
        s->places = tensor_make(memory, DTYPE_F32, 2 * (int)rows, (int)d);
        memcpy(host + rows * d, host, rows * d * sizeof *host);
        for (size_t i = 0; i < 2 * rows * d; i++) host[i] += types[(i >= rows * d ? d : 0) + i % d];
        backend_upload(s->backend, memory, host, bytes);
        status = backend_sync(s->backend, e);
    }
    free(host);
    free(types);
    return status;
}

static enum status scorer_open_rows(struct scorer *s, const struct encoder_options *o, struct error *e) {
    const struct stack *stack = scorer_stack(s->model);
    s->max_rows = max_int(o->max_rows, s->max_tokens);
    size_t rows = (size_t)s->max_rows;
    if (scratch_open(&s->scratch, s->model, stack, s->max_rows, e) ||
        pooling_open(&s->pooling, &s->folder, s->backend, s->max_rows, stack->dims.hidden, e))
        return e->status;
    s->ids = xmalloc(rows * sizeof *s->ids);
    s->positions = xmalloc(rows * sizeof *s->positions);
    s->starts = xmalloc((rows + 1) * sizeof *s->starts);
    s->spans = xmalloc(rows * sizeof *s->spans);
    return scorer_open_places(s, e);
}

enum status scorer_open(struct scorer **out, const char *folder, struct backend *b, const struct encoder_options *o,
                        struct error *e) {
    struct scorer *s = xcalloc(1, sizeof *s);
    s->backend = b;
    enum status status = scorer_open_model(s, folder, o, e);
    if (status == STATUS_OK) status = scorer_open_tokenizer(s, e);
    if (status == STATUS_OK) s->hash = tokenizer_hash(s->tokenizer);
    if (status == STATUS_OK) status = weights_hash(s->folder.model, &s->hash, e);
    if (status == STATUS_OK) status = scorer_open_rows(s, o, e);
    if (status == STATUS_OK && s->prefix.n + 3 * s->suffix.n + 2 > s->max_tokens)
        status = error_set(e, STATUS_INVALID, "%s: %d tokens of a pair leave no room for texts", folder, s->max_tokens);
    if (status) {
        scorer_close(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

enum status scorer_measure(struct encoder_bytes *out, const char *folder, struct backend *b,
                           const struct encoder_options *o, struct error *e) {
    struct scorer s = {.backend = b};
    struct encoder_options checked = *o;
    checked.model.check_only = true;
    *out = (struct encoder_bytes){0};
    enum status status = scorer_open_model(&s, folder, &checked, e);
    if (status == STATUS_OK) {
        const struct stack *stack = scorer_stack(s.model);
        int rows = max_int(o->max_rows, s.max_tokens);
        status = scratch_measure(stack, rows, &out->rows, e);
        out->rows += pooling_bytes(&s.folder, rows, stack->dims.hidden);
        out->rows += 2 * (size_t)s.model->spec.max_positions * (size_t)stack->dims.hidden * sizeof(float);
        out->weights = model_info(s.model)->weight_bytes;
        out->mapped = model_info(s.model)->mapped;
    }
    model_close(s.model);
    comm_close(s.comm);
    encoder_folder_free(&s.folder);
    return status;
}

void scorer_close(struct scorer *s) {
    if (s == NULL) return;
    if (s->model) scratch_close(&s->scratch, s->model);
    pooling_close(s->pooling);
    backend_release(s->backend, s->places.data);
    tokenizer_close(s->tokenizer);
    model_close(s->model);
    comm_close(s->comm);
    encoder_folder_free(&s->folder);
    tokens_free(&s->prefix);
    tokens_free(&s->suffix);
    free(s->ids);
    free(s->positions);
    free(s->starts);
    free(s->spans);
    free(s);
}

int scorer_max_tokens(const struct scorer *s) { return s->max_tokens; }
uint64_t scorer_hash(const struct scorer *s) { return s->hash; }

/* Scoring. */

struct scoring_call {
    struct scorer *scorer;
    struct tokens query, text;
    float *logits;
    int first, rows; /* the first pair of the pass being laid out, and its rows */
};

/* How many tokens of each text are kept of `room` in all: the shorter one whole where it can be, else half each. */
static void scorer_cut(int room, int *a, int *b) {
    int *shorter = *a <= *b ? a : b, *longer = *a <= *b ? b : a;
    if (*shorter + *longer <= room) return;
    *longer = *shorter > room ? *shorter : max_int(*shorter, room - *shorter);
    if (*shorter + *longer <= room) return;
    *shorter = room / 2;
    *longer = room / 2 + room % 2;
}

/* One more row: padding's name in a text counts no position where the model leaves it out, as in an embedder. */
static void scorer_add_row(struct scoring_call *c, int32_t id, int *position, bool second) {
    struct scorer *s = c->scorer;
    const struct model_spec *spec = &s->model->spec;
    bool skipped = spec->position_pad >= 0 && id == spec->position_pad;
    int place = skipped ? spec->position_pad : *position;
    s->ids[c->rows] = id;
    s->positions[c->rows] = place + (second ? s->places.rows / 2 : 0);
    if (!skipped) *position += 1;
    c->rows++;
}

static void scorer_add_tokens(struct scoring_call *c, const struct tokens *t, int n, int *position, bool second) {
    for (int i = 0; i < n; i++) scorer_add_row(c, t->ids[i], position, second);
}

static int scorer_marks(const struct scorer *s) { return s->prefix.n + (s->doubled ? 3 : 2) * s->suffix.n; }

/* [CLS] query [SEP] text [SEP], or <s> query </s></s> text </s>. */
static void scorer_lay_out(struct scoring_call *c, int at, int n_query, int n_text) {
    struct scorer *s = c->scorer;
    int start = c->rows, position = s->model->spec.position_pad + 1;
    scorer_add_tokens(c, &s->prefix, s->prefix.n, &position, false);
    scorer_add_tokens(c, &c->query, n_query, &position, false);
    scorer_add_tokens(c, &s->suffix, s->suffix.n, &position, false);
    if (s->doubled) scorer_add_tokens(c, &s->suffix, s->suffix.n, &position, false);
    scorer_add_tokens(c, &c->text, n_text, &position, true);
    scorer_add_tokens(c, &s->suffix, s->suffix.n, &position, true);
    int n = c->rows - start;
    s->spans[at] = (struct attention_span){start, n, start, n};
    s->starts[at] = start;
    s->starts[at + 1] = c->rows;
}

static enum status scorer_forward(struct scoring_call *c, int end, struct error *e) {
    struct scorer *s = c->scorer;
    const struct model *m = s->model;
    const struct stack *stack = scorer_stack(m);
    struct pass pass = {.model = m,
                        .stack = stack,
                        .scratch = scratch_rows(&s->scratch, c->rows),
                        .spans = s->spans,
                        .n_spans = end - c->first,
                        .positions = s->positions};
    struct tensor x = pass.scratch.x;
    if (end == c->first) return STATUS_OK;

    backend_embed(s->backend, &(struct embed_args){.y = x,
                                                   .word = &m->embedding.word,
                                                   .position = &s->places,
                                                   .ids = s->ids,
                                                   .positions = s->positions,
                                                   .scale = m->spec.embedding_scale});
    if (m->embedding.norm.gamma) stack_norm(m, stack, x, x, &m->embedding.norm);
    for (int i = 0; i < stack->dims.n_layers; i++) layer_forward(&pass, &stack->layers[i]);
    if (stack->final_norm.gamma) stack_norm(m, stack, x, x, &stack->final_norm);

    struct pooling_rows rows = {.x = x, .starts = s->starts, .n = end - c->first};
    float *logits = c->logits + c->first;
    c->first = end;
    c->rows = 0;
    return pooling_run(s->pooling, &rows, 1, logits, e);
}

static enum status scorer_encode(const struct scorer *s, struct text_span text, struct tokens *out, struct error *e) {
    out->n = 0;
    return tokenizer_encode(s->tokenizer, text.text, text.size, TOKENIZER_PLAIN, out, e);
}

static enum status score_pairs(struct scoring_call *c, const struct scorer_request *r, struct error *e) {
    const struct scorer *s = c->scorer;
    int room = s->max_tokens - scorer_marks(s);
    for (int i = 0; i < r->n; i++) {
        if (scorer_encode(s, r->texts[i], &c->text, e)) return e->status;
        int n_query = c->query.n, n_text = c->text.n;
        scorer_cut(room, &n_query, &n_text);
        int rows = n_query + n_text + scorer_marks(s);
        bool full = c->rows + rows > s->max_rows;
        if (full && scorer_forward(c, i, e)) return e->status;
        scorer_lay_out(c, i - c->first, n_query, n_text);
        if (r->n_tokens) r->n_tokens[i] = rows;
    }
    return scorer_forward(c, r->n, e);
}

enum status scorer_score(struct scorer *s, const struct scorer_request *r, struct error *e) {
    struct scoring_call c = {.scorer = s, .logits = r->logits};
    enum status status = scorer_encode(s, r->query, &c.query, e);
    if (status == STATUS_OK) status = score_pairs(&c, r, e);
    tokens_free(&c.query);
    tokens_free(&c.text);
    return status;
}
