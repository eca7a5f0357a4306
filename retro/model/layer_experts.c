/* retro/model/layer_experts.c: experts of a layer that read and give rows of another width than the
 * layer's, between two products that all of them share. See layer_private.h. */
#include "retro/model/layer_private.h"

void layer_project_part(const struct model *model, struct tensor y, struct tensor x,
                        const struct projection *projection) {
    struct projection mine = *projection;
    if (model->comm->rank != 0) mine.bias = NULL;
    layer_project_rows(model, y, x, &mine, ACTIVATION_NONE);
}

void layer_run_experts(const struct pass *pass, const struct layer *layer,
                       const struct experts_args *args) {
    const struct model *model = pass->model;
    int n = pass->stack->dims.expert_width;
    if (n == 0) {
        backend_experts(model->backend, args);
        return;
    }
    struct experts_args narrow = *args;
    CHECK(args->gate.data == NULL);
    narrow.x = tensor_cols(pass->scratch.narrow, 0, n);
    narrow.y = tensor_cols(pass->scratch.narrow, n, n);
    narrow.shared = (struct tensor){0};

    layer_project_rows(model, narrow.x, args->x, &layer->experts_in, ACTIVATION_NONE);
    backend_experts(model->backend, &narrow);
    layer_project_part(model, args->y, narrow.y, &layer->experts_out);
    if (args->shared.data)
        backend_add(model->backend,
                    &(struct add_args){.y = args->y, .a = args->y, .b = args->shared});
}
