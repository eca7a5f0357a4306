/* retro/run/embed/scorer.c: pairs of texts through an encoder, each a text of a pass (text_stack.h). See scorer.h. The
 * embedding kernel adds one token type to all rows; here the second text has a type of its own, so the table of
 * positions is kept twice, with either type added. */
#include "retro/run/embed/scorer.h"

#include <stdlib.h>
#include <string.h>

#include "retro/run/embed/sequence_head.h"
#include "retro/run/embed/text_stack.h"
#include "retro/weights/weights.h"

struct scorer {
    struct text_stack pairs;
    struct tensor places;         /* f32 [2 P, d]: positions with type 0, positions with the second text's type */
    struct tokens prefix, suffix; /* what the tokenizer puts before and behind a text */
    bool doubled;                 /* two suffixes are between the texts: RoBERTa's kinds and MPNet */
    int max_tokens;
    uint64_t hash;
};

/* Opening. */

static enum status scorer_check(const struct text_stack *t, const char *folder, struct error *e) {
    const struct model *m = t->model;
    if (model_has_stack(m, STACK_DECODER) || m->spec.joint > 0 || t->stack->dims.reads != EDGE_NONE)
        return error_set(e, STATUS_UNSUPPORTED, "%s: a %s model is no reranker; one is BERT's kind", folder,
                         m->info.family);
    return STATUS_OK;
}

static enum status scorer_find_limit(struct scorer *s, int wanted, struct error *e) {
    const struct encoder_folder *folder = &s->pairs.folder;
    int positions = text_stack_positions(&s->pairs), limit = folder->tokenizer_tokens;
    if (limit == 0 || (positions > 0 && limit > positions)) limit = positions;
    if (limit == 0 && wanted == 0)
        return error_set(e, STATUS_INVALID, "%s: no file says how long a text may be: set retrieval.reranker_tokens",
                         folder->model);
    s->max_tokens = wanted > 0 && (limit == 0 || wanted < limit) ? wanted : limit;
    return STATUS_OK;
}

static enum status scorer_open_model(struct scorer *s, const char *folder, const struct encoder_options *o,
                                     struct error *e) {
    struct text_stack *t = &s->pairs;
    if (encoder_folder_read_model(&t->folder, folder, e) || text_stack_load(t, &o->model, e) ||
        scorer_check(t, folder, e) || sequence_head_read(&t->folder, t->stack->dims.hidden, e))
        return e->status;
    return scorer_find_limit(s, o->max_tokens, e);
}

static enum status scorer_open_tokenizer(struct scorer *s, struct error *e) {
    if (text_stack_open_tokenizer(&s->pairs, e)) return e->status;
    const struct tokenizer *tokenizer = s->pairs.tokenizer;
    struct tokens around = {0};
    enum status status = tokenizer_encode(tokenizer, "", 0, TOKENIZER_ADD_SPECIAL, &around, e);
    int n_prefix = around.n - tokenizer_suffix(tokenizer);
    for (int i = 0; i < around.n && status == STATUS_OK; i++)
        tokens_append(i < n_prefix ? &s->prefix : &s->suffix, around.ids[i], 0);
    tokens_free(&around);
    const char *family = s->pairs.model->info.family;
    s->doubled = strcmp(family, "roberta") == 0 || strcmp(family, "xlm-roberta") == 0 || strcmp(family, "mpnet") == 0;
    return status;
}

/* Rows of the embedding's table as they lie on the device, f32; a table that is missing gives zeros. */
static enum status scorer_read_table(const struct text_stack *t, const struct tensor *table, int row, int rows,
                                     float *out, struct error *e) {
    size_t d = (size_t)t->stack->dims.hidden, bytes = (size_t)rows * d * sizeof *out;
    memset(out, 0, bytes);
    if (table->data == NULL || row >= table->rows) return STATUS_OK;
    const char *from = (const char *)table->data + (size_t)row * d * sizeof *out;
    backend_download(t->backend, out, from, bytes);
    return backend_sync(t->backend, e);
}

/* Where there is one type, both texts have it. */
static enum status scorer_open_places(struct scorer *s, struct error *e) {
    const struct text_stack *t = &s->pairs;
    const struct embedding *table = &t->model->embedding;
    size_t d = (size_t)t->stack->dims.hidden, rows = (size_t)max_int(1, t->model->spec.max_positions);
    size_t bytes = 2 * rows * d * sizeof(float);
    float *host = xmalloc(bytes), *types = xmalloc(2 * d * sizeof *types);
    void *memory;
    int second = table->type.data && table->type.rows > 1;
    enum status status = scorer_read_table(t, &table->position, 0, (int)rows, host, e);
    if (status == STATUS_OK) status = scorer_read_table(t, &table->type, 0, 1, types, e);
    if (status == STATUS_OK) status = scorer_read_table(t, &table->type, second, 1, types + d, e);
    if (status == STATUS_OK) status = backend_alloc(t->backend, &memory, bytes, "positions", e);
    if (status == STATUS_OK) {
        s->places = tensor_make(memory, DTYPE_F32, 2 * (int)rows, (int)d);
        memcpy(host + rows * d, host, rows * d * sizeof *host);
        for (size_t i = 0; i < 2 * rows * d; i++) host[i] += types[(i >= rows * d ? d : 0) + i % d];
        backend_upload(t->backend, memory, host, bytes);
        status = backend_sync(t->backend, e);
    }
    free(host);
    free(types);
    return status;
}

static int scorer_rows(const struct scorer *s, const struct encoder_options *o) {
    return max_int(o->max_rows, s->max_tokens);
}

enum status scorer_open(struct scorer **out, const char *folder, struct backend *b, const struct encoder_options *o,
                        struct error *e) {
    struct scorer *s = xcalloc(1, sizeof *s);
    s->pairs.backend = b;
    enum status status = scorer_open_model(s, folder, o, e);
    if (status == STATUS_OK) status = scorer_open_tokenizer(s, e);
    if (status == STATUS_OK) s->hash = tokenizer_hash(s->pairs.tokenizer);
    if (status == STATUS_OK) status = weights_hash(s->pairs.folder.model, &s->hash, e);
    if (status == STATUS_OK) status = text_stack_open_rows(&s->pairs, scorer_rows(s, o), e);
    if (status == STATUS_OK) status = scorer_open_places(s, e);
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
    struct scorer s = {.pairs = {.backend = b}};
    struct encoder_options checked = *o;
    checked.model.check_only = true;
    *out = (struct encoder_bytes){0};
    enum status status = scorer_open_model(&s, folder, &checked, e);
    if (status == STATUS_OK) status = text_stack_measure(out, &s.pairs, scorer_rows(&s, o), e);
    if (status == STATUS_OK) {
        size_t places = 2 * (size_t)s.pairs.model->spec.max_positions;
        out->rows += places * (size_t)s.pairs.stack->dims.hidden * sizeof(float);
    }
    text_stack_close(&s.pairs);
    return status;
}

void scorer_close(struct scorer *s) {
    if (s == NULL) return;
    backend_release(s->pairs.backend, s->places.data);
    text_stack_close(&s->pairs);
    tokens_free(&s->prefix);
    tokens_free(&s->suffix);
    free(s);
}

int scorer_max_tokens(const struct scorer *s) { return s->max_tokens; }
uint64_t scorer_hash(const struct scorer *s) { return s->hash; }

/* Scoring. */

struct scoring_call {
    struct scorer *scorer;
    struct tokens query, text;
    float *logits; /* of the next pass */
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

static void scorer_add_tokens(struct scorer *s, const struct tokens *t, int n, int *position, bool second) {
    int table = second ? s->places.rows / 2 : 0;
    for (int i = 0; i < n; i++) {
        int place = text_stack_place(&s->pairs, t->ids[i], position);
        text_stack_add_row(&s->pairs, t->ids[i], table + place);
    }
}

static int scorer_marks(const struct scorer *s) { return s->prefix.n + (s->doubled ? 3 : 2) * s->suffix.n; }

/* [CLS] query [SEP] text [SEP], or <s> query </s></s> text </s>. */
static void scorer_lay_out(struct scoring_call *c, int n_query, int n_text) {
    struct scorer *s = c->scorer;
    int position = s->pairs.model->spec.position_pad + 1;
    scorer_add_tokens(s, &s->prefix, s->prefix.n, &position, false);
    scorer_add_tokens(s, &c->query, n_query, &position, false);
    scorer_add_tokens(s, &s->suffix, s->suffix.n, &position, false);
    if (s->doubled) scorer_add_tokens(s, &s->suffix, s->suffix.n, &position, false);
    scorer_add_tokens(s, &c->text, n_text, &position, true);
    scorer_add_tokens(s, &s->suffix, s->suffix.n, &position, true);
    text_stack_end_text(&s->pairs);
}

static enum status scorer_forward(struct scoring_call *c, struct error *e) {
    struct scorer *s = c->scorer;
    struct text_stack *t = &s->pairs;
    const struct model *m = t->model;
    if (t->n_texts == 0) return STATUS_OK;
    struct tensor x = text_stack_input(t);
    backend_embed(t->backend, &(struct embed_args){.y = x,
                                                   .word = &m->embedding.word,
                                                   .position = &s->places,
                                                   .ids = t->ids,
                                                   .positions = t->positions,
                                                   .scale = m->spec.embedding_scale});
    if (m->embedding.norm.gamma) stack_norm(m, t->stack, x, x, &m->embedding.norm);
    struct pooling_rows rows = text_stack_forward(t);

    float *logits = c->logits;
    c->logits += rows.n;
    return pooling_run(t->pooling, &rows, 1, true, logits, e);
}

static enum status scorer_encode(const struct scorer *s, struct text_span text, struct tokens *out, struct error *e) {
    out->n = 0;
    return tokenizer_encode(s->pairs.tokenizer, text.text, text.size, TOKENIZER_PLAIN, out, e);
}

static enum status score_pairs(struct scoring_call *c, const struct scorer_request *r, struct error *e) {
    const struct scorer *s = c->scorer;
    int room = s->max_tokens - scorer_marks(s);
    for (int i = 0; i < r->n; i++) {
        if (scorer_encode(s, r->texts[i], &c->text, e)) return e->status;
        int n_query = c->query.n, n_text = c->text.n;
        scorer_cut(room, &n_query, &n_text);
        int rows = n_query + n_text + scorer_marks(s);
        if (!text_stack_fits(&s->pairs, rows) && scorer_forward(c, e)) return e->status;
        scorer_lay_out(c, n_query, n_text);
        if (r->n_tokens) r->n_tokens[i] = rows;
    }
    return scorer_forward(c, e);
}

enum status scorer_score(struct scorer *s, const struct scorer_request *r, struct error *e) {
    struct scoring_call c = {.scorer = s, .logits = r->logits};
    text_stack_begin(&s->pairs);
    enum status status = scorer_encode(s, r->query, &c.query, e);
    if (status == STATUS_OK) status = score_pairs(&c, r, e);
    tokens_free(&c.query);
    tokens_free(&c.text);
    return status;
}
