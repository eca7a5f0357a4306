/* retro/run/session/step_given.c: rows that a step is given, such as a picture's, and their further
 * columns, which are added behind the first layers (deepstack). */
#include "retro/run/session/session_private.h"

/* Given rows, where a layer of this stage reads them. */
void step_upload_given(struct session_pool *pool) {
    const struct model *model = pool->model;
    if (pool->plan.n_given == 0) return;
    struct tensor given = tensor_rows(pool->given, 0, pool->plan.n_given);
    bool reads =
        model->comm->stage == 0 || model_decoder(model)->kept.first < model->spec.tower.n_deepstack;
    if (reads)
        backend_upload(model->backend, given.data, pool->plan.given,
                       (size_t)given.rows * (size_t)given.cols * sizeof(float));
}

/* The columns of given rows that are read before all layers, or behind layer `part` - 1. */
static struct tensor given_part(const struct session_pool *pool, int part) {
    int d = model_decoder(pool->model)->dims.hidden;
    return tensor_cols(tensor_rows(pool->given, 0, pool->plan.n_given), part * d, d);
}

/* Rows that were given take the place of a word of zeros, or of all that a row is. */
void step_add_given(struct session_pool *pool, struct scratch *scratch) {
    struct backend *backend = pool->model->backend;
    struct tensor given = given_part(pool, 0);
    backend_gather_rows(backend,
                        &(struct gather_rows_args){
                            .y = scratch->branch, .x = given, .rows = pool->plan.given_rows});
    backend_add(backend,
                &(struct add_args){.y = scratch->x, .a = scratch->x, .b = scratch->branch});
    backend_scatter_rows(backend, &(struct scatter_rows_args){
                                      .y = scratch->x, .x = given, .rows = pool->plan.given_to});
}

/* Behind a layer, its part of given rows is added to those that they are. */
void step_add_deepstack(struct session_pool *pool, struct scratch *scratch, int layer) {
    struct backend *backend = pool->model->backend;
    const int32_t *rows = pool->plan.given_to;
    int n = pool->plan.n_given;
    if (n == 0 || layer >= pool->model->spec.tower.n_deepstack) return;
    struct tensor sums = tensor_rows(scratch->branch, 0, n);
    backend_gather_rows(backend,
                        &(struct gather_rows_args){.y = sums, .x = scratch->x, .rows = rows});
    backend_add(backend,
                &(struct add_args){.y = sums, .a = sums, .b = given_part(pool, 1 + layer)});
    backend_scatter_rows(backend,
                         &(struct scatter_rows_args){.y = scratch->x, .x = sums, .rows = rows});
}
