/* retro/run/cross/encoder_group.c: packed texts through an encoder's layers. See encoder_group.h.
 */
#include "retro/run/cross/encoder_group.h"

#include <stdlib.h>
#include <string.h>

enum status encoder_group_measure(struct encoder_group *group, const struct model *model,
                                  int max_rows, struct error *e) {
    *group = (struct encoder_group){
        .model = model, .encoder = &model->stacks[STACK_ENCODER], .max_rows = max_rows};
    return scratch_measure(group->encoder, max_rows, &group->bytes, e);
}

enum status encoder_group_open(struct encoder_group *group, struct error *e) {
    size_t rows = (size_t)group->max_rows;
    if (scratch_open(&group->scratch, group->model, group->encoder, group->max_rows, e))
        return e->status;
    group->ids = xmalloc(rows * sizeof *group->ids);
    group->positions = xmalloc(rows * sizeof *group->positions);
    group->slot_row_of = xmalloc(rows * sizeof *group->slot_row_of);
    group->spans = xmalloc(rows * sizeof *group->spans);
    return STATUS_OK;
}

void encoder_group_close(struct encoder_group *group) {
    if (group->model == NULL) return;
    scratch_close(&group->scratch, group->model);
    free(group->ids);
    free(group->positions);
    free(group->slot_row_of);
    free(group->spans);
}

void encoder_group_clear(struct encoder_group *group) {
    group->n_rows = 0;
    group->n_spans = 0;
}

void encoder_group_add(struct encoder_group *group, const int32_t *ids, int n, int slot_row) {
    int first = group->n_rows;
    CHECK(n > 0 && n <= group->max_rows - first);
    memcpy(group->ids + first, ids, (size_t)n * sizeof *ids);
    for (int i = 0; i < n; i++) {
        group->positions[first + i] = i;
        group->slot_row_of[first + i] = slot_row + i;
    }
    group->spans[group->n_spans] = (struct attention_span){first, n, first, n, 0};
    group->n_spans++;
    group->n_rows += n;
}

struct tensor encoder_group_rows(const struct encoder_group *group) {
    return tensor_rows(group->scratch.x, 0, group->n_rows);
}

struct tensor encoder_group_run(const struct encoder_group *group, cross_function *cross,
                                void *context) {
    struct pass pass = {.model = group->model,
                        .stack = group->encoder,
                        .scratch = scratch_rows(&group->scratch, group->n_rows),
                        .spans = group->spans,
                        .n_spans = group->n_spans,
                        .positions = group->positions,
                        .cross = cross,
                        .context = context};
    stack_embed(group->model, group->encoder, pass.scratch.x, group->ids, group->positions);
    for (int i = 0; i < group->encoder->dims.n_layers; i++) {
        pass.layer_index = i;
        layer_forward(&pass, &group->encoder->layers[i]);
    }
    return pass.scratch.x;
}
