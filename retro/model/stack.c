/* retro/model/stack.c: scratch rows, embedding and norm of a stack. See stack.h. */
#include "retro/model/stack.h"

#include <string.h>

enum { SCRATCH_PARTS = 14 };

/* All parts, in one order. */
static void list_parts(struct scratch *scratch, struct tensor *parts[SCRATCH_PARTS]) {
    struct tensor *all[SCRATCH_PARTS] = {
        &scratch->x,    &scratch->normed, &scratch->branch,  &scratch->qkv,     &scratch->mixed,
        &scratch->wide, &scratch->gated,  &scratch->squares, &scratch->choices, &scratch->routes,
        &scratch->few,  &scratch->shared, &scratch->parts,   &scratch->gates};
    memcpy(parts, all, sizeof all);
}

struct delta_columns stack_delta_columns(const struct stack *stack) {
    const struct delta_dims *delta = &stack->dims.delta;
    if (delta->kernel == 0) return (struct delta_columns){0};
    int keys = stack->delta_heads.n * delta->key_dim,
        heads = stack->delta_heads.n * (delta->value_heads / delta->key_heads);
    return (struct delta_columns){.heads = heads,
                                  .values = heads * delta->value_dim,
                                  .channels = 2 * keys + heads * delta->value_dim};
}

/* The largest F of the stack's MLPs. */
static int widest_ffn(const struct stack *stack) {
    return max_int(stack->ffn.n, max_int(stack->expert_ffn.n, stack->shared_ffn.n));
}

/* Columns of the parts. */
static void count_columns(const struct stack *stack, int cols[SCRATCH_PARTS]) {
    const struct dims *dims = &stack->dims;
    const struct delta_columns delta = stack_delta_columns(stack);
    bool experts = dims->experts > 0, shared = dims->shared_ffn > 0;
    int q = stack->heads.n * dims->head_dim, k = stack->kv_heads.n * dims->head_dim;
    cols[0] = cols[1] = cols[2] = dims->hidden;
    cols[3] = max_int((dims->head_gate ? 2 : 1) * q + 2 * k, delta.channels + delta.values);
    cols[4] = max_int(q, delta.values);
    cols[5] = (dims->gated ? 2 : 1) * widest_ffn(stack);
    cols[6] = dims->gated ? widest_ffn(stack) : 0;
    cols[7] = dims->qk_norm == QK_NORM_WHOLE ? 2 : 0;
    cols[8] = experts ? dims->experts + 1 : 0;
    cols[9] = 2 * dims->experts_used;
    cols[10] = experts ? dims->hidden : 0;
    cols[11] = shared ? dims->hidden : 0;
    cols[12] = dims->experts_used * dims->hidden;
    cols[13] = 2 * delta.heads;
}

enum status scratch_measure(const struct stack *stack, int max_rows, size_t *bytes,
                            struct error *e) {
    int cols[SCRATCH_PARTS];
    size_t row = 0;
    count_columns(stack, cols);
    for (int i = 0; i < SCRATCH_PARTS; i++) row += (size_t)cols[i] * sizeof(float);
    if (!mul_overflows(row, (size_t)max_rows, bytes)) return STATUS_OK;
    return error_set(e, STATUS_NO_MEMORY, "scratch of %d rows does not fit the address space",
                     max_rows);
}

enum status scratch_open(struct scratch *scratch, const struct model *model,
                         const struct stack *stack, int max_rows, struct error *e) {
    struct tensor *parts[SCRATCH_PARTS];
    int cols[SCRATCH_PARTS];
    void *memory;
    if (scratch_measure(stack, max_rows, &scratch->bytes, e) ||
        backend_alloc(model->backend, &memory, scratch->bytes, "activations of one step", e))
        return e->status;
    scratch->memory = memory;
    scratch->max_rows = max_rows;

    float *at = scratch->memory;
    count_columns(stack, cols);
    list_parts(scratch, parts);
    for (int i = 0; i < SCRATCH_PARTS; i++) {
        *parts[i] = tensor_make(at, DTYPE_F32, max_rows, cols[i]);
        at += (size_t)max_rows * (size_t)cols[i];
    }
    if (!stack->dims.gated) scratch->gated = scratch->wide;
    return STATUS_OK;
}

void scratch_close(struct scratch *scratch, const struct model *model) {
    backend_release(model->backend, scratch->memory);
}

struct scratch scratch_rows(const struct scratch *scratch, int rows) {
    struct scratch part = *scratch;
    struct tensor *all[SCRATCH_PARTS];
    CHECK(rows <= scratch->max_rows);
    list_parts(&part, all);
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) *all[i] = tensor_rows(*all[i], 0, rows);
    part.memory = NULL;
    return part;
}

void stack_norm(const struct model *model, const struct stack *stack, struct tensor y,
                struct tensor x, const struct norm_weights *weights) {
    backend_norm(model->backend, &(struct norm_args){.y = y,
                                                     .x = x,
                                                     .gamma = weights->gamma,
                                                     .beta = weights->beta,
                                                     .epsilon = stack->dims.epsilon,
                                                     .kind = stack->dims.norm});
}

void stack_embed(const struct model *model, const struct stack *stack, struct tensor x,
                 const int32_t *ids, const int32_t *positions) {
    const struct embedding *table = &model->embedding;
    backend_embed(model->backend,
                  &(struct embed_args){.y = x,
                                       .word = &table->word,
                                       .position = table->position.data ? &table->position : NULL,
                                       .type = table->type.data ? &table->type : NULL,
                                       .ids = ids,
                                       .positions = positions,
                                       .scale = model->spec.embedding_scale});
    if (table->norm.gamma) stack_norm(model, stack, x, x, &table->norm);
}
