/* retro/run/embed/text_stack.c: see text_stack.h. */
#include "retro/run/embed/text_stack.h"

#include <stdlib.h>

/* Opening. */

static const struct stack *find_stack(const struct model *model) {
    return &model->stacks[model_has_stack(model, STACK_DECODER) ? STACK_DECODER : STACK_ENCODER];
}

/* Nothing is kept of a layer for later ones here. */
static enum status check_layers(const struct text_stack *stack, struct error *e) {
    const struct model *model = stack->model;
    bool words = stack->stack->dims.layer_input > 0 && model->spec.input_vocab > 0;
    if (model->spec.reuse_from == 0 && !words) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s: a %s model is no embedder: its layers read keys and values of others, or "
                     "have inputs of their own from a table",
                     stack->folder.model, model->info.family);
}

enum status text_stack_load(struct text_stack *stack, const struct model_options *model_options,
                            struct error *e) {
    struct model_options options = *model_options;
    options.rows_only = true;
    if (comm_open_single(&stack->comm, e) ||
        model_open(&stack->model, stack->folder.model, stack->backend, stack->comm, &options, e))
        return e->status;
    stack->stack = find_stack(stack->model);
    return check_layers(stack, e);
}

enum status text_stack_open_tokenizer(struct text_stack *stack, struct error *e) {
    if (tokenizer_open(&stack->tokenizer, stack->folder.model, e)) return e->status;
    if (tokenizer_vocab_size(stack->tokenizer) > stack->model->spec.vocab)
        return error_set(e, STATUS_INVALID, "%s: the tokenizer has %d ids, the model %d",
                         stack->folder.model, tokenizer_vocab_size(stack->tokenizer),
                         stack->model->spec.vocab);
    return STATUS_OK;
}

enum status text_stack_open_rows(struct text_stack *stack, int max_rows, struct error *e) {
    size_t rows = (size_t)max_rows;
    stack->max_rows = max_rows;
    if (scratch_open(&stack->scratch, stack->model, stack->stack, max_rows, e) ||
        pooling_open(&stack->pooling, &stack->folder, stack->backend, max_rows,
                     stack->stack->dims.hidden, e))
        return e->status;
    stack->ids = xmalloc(rows * sizeof *stack->ids);
    stack->positions = xmalloc(rows * sizeof *stack->positions);
    stack->starts = xcalloc(rows + 1, sizeof *stack->starts);
    stack->spans = xmalloc(rows * sizeof *stack->spans);
    stack->state_spans = xmalloc(rows * sizeof *stack->state_spans);
    return STATUS_OK;
}

enum status text_stack_measure(struct encoder_bytes *out, const struct text_stack *stack,
                               int max_rows, struct error *e) {
    if (scratch_measure(stack->stack, max_rows, &out->rows, e)) return e->status;
    out->rows += pooling_bytes(&stack->folder, max_rows, stack->stack->dims.hidden);
    out->weights = model_info(stack->model)->weight_bytes;
    out->mapped = model_info(stack->model)->mapped;
    return STATUS_OK;
}

void text_stack_close(struct text_stack *stack) {
    if (stack->model) scratch_close(&stack->scratch, stack->model);
    pooling_close(stack->pooling);
    tokenizer_close(stack->tokenizer);
    model_close(stack->model);
    comm_close(stack->comm);
    encoder_folder_free(&stack->folder);
    free(stack->ids);
    free(stack->positions);
    free(stack->starts);
    free(stack->spans);
    free(stack->state_spans);
}

int text_stack_positions(const struct text_stack *stack) {
    const struct model_spec *spec = &stack->model->spec;
    return spec->max_positions == 0 ? 0
                                    : max_int(1, spec->max_positions - (spec->position_pad + 1));
}

/* Laying out a pass. */

void text_stack_begin(struct text_stack *stack) {
    stack->n_texts = 0;
    stack->n_rows = 0;
    stack->longest = 0;
}

static bool is_far(const struct text_stack *stack, int rows) {
    int after = stack->stack->dims.rope_long_after;
    return after > 0 && rows > after;
}

/* A text is there whole, so that its own length chooses the table, as it does in transformers for a
 * text alone: it cannot change while the text grows, as it could in a session. */
bool text_stack_fits(const struct text_stack *stack, int rows) {
    bool alike = stack->n_texts == 0 || is_far(stack, rows) == is_far(stack, stack->longest);
    return alike && stack->n_rows + rows <= stack->max_rows && stack->n_texts < stack->max_rows;
}

int text_stack_place(const struct text_stack *stack, int32_t id, int *position) {
    int pad = stack->model->spec.position_pad;
    if (pad >= 0 && id == pad) return pad;
    int place = *position;
    *position += 1;
    return place;
}

void text_stack_add_row(struct text_stack *stack, int32_t id, int position) {
    CHECK(stack->n_rows < stack->max_rows);
    stack->ids[stack->n_rows] = id;
    stack->positions[stack->n_rows] = position;
    stack->n_rows++;
}

void text_stack_end_text(struct text_stack *stack) {
    int start = stack->starts[stack->n_texts], n = stack->n_rows - start;
    stack->spans[stack->n_texts] = (struct attention_span){start, n, start, n, 0};
    stack->state_spans[stack->n_texts] = (struct state_span){start, n, -1, -1, 0};
    stack->longest = max_int(stack->longest, n);
    stack->n_texts++;
    stack->starts[stack->n_texts] = stack->n_rows;
}

/* The pass. */

struct tensor text_stack_input(const struct text_stack *stack) {
    return scratch_rows(&stack->scratch, stack->n_rows).x;
}

void text_stack_embed(const struct text_stack *stack) {
    const struct scratch scratch = scratch_rows(&stack->scratch, stack->n_rows);
    stack_embed(stack->model, stack->stack, scratch.x, stack->ids, stack->positions);
    if (stack->stack->dims.layer_input > 0)
        stack_layer_inputs(stack->model, stack->stack, &scratch, stack->ids);
}

struct pooling_rows text_stack_forward(struct text_stack *stack) {
    const struct stack *the_stack = stack->stack;
    struct pass pass = {.model = stack->model,
                        .stack = the_stack,
                        .scratch = scratch_rows(&stack->scratch, stack->n_rows),
                        .spans = stack->spans,
                        .n_spans = stack->n_texts,
                        .states = {.spans = stack->state_spans, .n_spans = stack->n_texts},
                        .positions = stack->positions,
                        .most_tokens = stack->longest};
    struct pooling_rows rows = {.x = pass.scratch.x, .starts = stack->starts, .n = stack->n_texts};
    for (int i = 0; i < the_stack->dims.n_layers; i++) {
        pass.layer_index = i;
        layer_forward(&pass, &the_stack->layers[i]);
    }
    if (the_stack->final_norm.gamma)
        stack_norm(stack->model, the_stack, rows.x, rows.x, &the_stack->final_norm);
    text_stack_begin(stack);
    return rows;
}
