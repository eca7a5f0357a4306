/* retro/run/embed/text_stack.c: see text_stack.h. */
#include "retro/run/embed/text_stack.h"

#include <stdlib.h>

/* Opening. */

static const struct stack *find_stack(const struct model *m) {
    return &m->stacks[model_has_stack(m, STACK_DECODER) ? STACK_DECODER : STACK_ENCODER];
}

enum status text_stack_load(struct text_stack *t, const struct model_options *o, struct error *e) {
    struct model_options options = *o;
    options.rows_only = true;
    if (comm_open_single(&t->comm, e) || model_open(&t->model, t->folder.model, t->backend, t->comm, &options, e))
        return e->status;
    t->stack = find_stack(t->model);
    return STATUS_OK;
}

enum status text_stack_open_tokenizer(struct text_stack *t, struct error *e) {
    if (tokenizer_open(&t->tokenizer, t->folder.model, e)) return e->status;
    if (tokenizer_vocab_size(t->tokenizer) > t->model->spec.vocab)
        return error_set(e, STATUS_INVALID, "%s: the tokenizer has %d ids, the model %d", t->folder.model,
                         tokenizer_vocab_size(t->tokenizer), t->model->spec.vocab);
    return STATUS_OK;
}

enum status text_stack_open_rows(struct text_stack *t, int max_rows, struct error *e) {
    size_t rows = (size_t)max_rows;
    t->max_rows = max_rows;
    if (scratch_open(&t->scratch, t->model, t->stack, max_rows, e) ||
        pooling_open(&t->pooling, &t->folder, t->backend, max_rows, t->stack->dims.hidden, e))
        return e->status;
    t->ids = xmalloc(rows * sizeof *t->ids);
    t->positions = xmalloc(rows * sizeof *t->positions);
    t->starts = xcalloc(rows + 1, sizeof *t->starts);
    t->spans = xmalloc(rows * sizeof *t->spans);
    return STATUS_OK;
}

enum status text_stack_measure(struct encoder_bytes *out, const struct text_stack *t, int max_rows, struct error *e) {
    if (scratch_measure(t->stack, max_rows, &out->rows, e)) return e->status;
    out->rows += pooling_bytes(&t->folder, max_rows, t->stack->dims.hidden);
    out->weights = model_info(t->model)->weight_bytes;
    out->mapped = model_info(t->model)->mapped;
    return STATUS_OK;
}

void text_stack_close(struct text_stack *t) {
    if (t->model) scratch_close(&t->scratch, t->model);
    pooling_close(t->pooling);
    tokenizer_close(t->tokenizer);
    model_close(t->model);
    comm_close(t->comm);
    encoder_folder_free(&t->folder);
    free(t->ids);
    free(t->positions);
    free(t->starts);
    free(t->spans);
}

int text_stack_positions(const struct text_stack *t) {
    const struct model_spec *spec = &t->model->spec;
    return spec->max_positions == 0 ? 0 : max_int(1, spec->max_positions - (spec->position_pad + 1));
}

/* Laying out a pass. */

void text_stack_begin(struct text_stack *t) {
    t->n_texts = 0;
    t->n_rows = 0;
}

bool text_stack_fits(const struct text_stack *t, int rows) {
    return t->n_rows + rows <= t->max_rows && t->n_texts < t->max_rows;
}

int text_stack_place(const struct text_stack *t, int32_t id, int *position) {
    int pad = t->model->spec.position_pad;
    if (pad >= 0 && id == pad) return pad;
    int place = *position;
    *position += 1;
    return place;
}

void text_stack_add_row(struct text_stack *t, int32_t id, int position) {
    CHECK(t->n_rows < t->max_rows);
    t->ids[t->n_rows] = id;
    t->positions[t->n_rows] = position;
    t->n_rows++;
}

void text_stack_end_text(struct text_stack *t) {
    int start = t->starts[t->n_texts], n = t->n_rows - start;
    t->spans[t->n_texts] = (struct attention_span){start, n, start, n};
    t->n_texts++;
    t->starts[t->n_texts] = t->n_rows;
}

/* The pass. */

struct tensor text_stack_input(const struct text_stack *t) {
    return scratch_rows(&t->scratch, t->n_rows).x;
}

struct pooling_rows text_stack_forward(struct text_stack *t) {
    const struct stack *s = t->stack;
    struct pass pass = {.model = t->model,
                        .stack = s,
                        .scratch = scratch_rows(&t->scratch, t->n_rows),
                        .spans = t->spans,
                        .n_spans = t->n_texts,
                        .positions = t->positions};
    struct pooling_rows rows = {.x = pass.scratch.x, .starts = t->starts, .n = t->n_texts};
    for (int i = 0; i < s->dims.n_layers; i++) layer_forward(&pass, &s->layers[i]);
    if (s->final_norm.gamma) stack_norm(t->model, s, rows.x, rows.x, &s->final_norm);
    text_stack_begin(t);
    return rows;
}
