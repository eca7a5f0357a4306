/* tests/reference/print_experts.c: print_experts MODEL ID...: the experts that the tokens of one
 * sequence choose. A line for each layer with experts: its number, how many different experts the
 * tokens choose, and how many of a token's experts are foretold by those of the token before, and
 * by this layer's router where it reads the rows that the router before it read (-1: there is
 * none).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "retro/model/model_private.h"
#include "retro/run/session/session.h"

/* The model's backend, which keeps the routes of all rows. */
static struct {
    const struct backend_ops *original;
    struct backend_ops ops;
    const struct stack *stack;
    int layer;               /* whose router multiplied last */
    struct tensor x;         /* that it read */
    struct tensor *chosen;   /* [layers]: routes; data NULL of a layer without experts */
    struct tensor *foretold; /* [layers]: by the rows of the layer with experts before it */
} seen;

static _Noreturn void fail(const struct error *e) {
    fprintf(stderr, "%s\n", e->text);
    exit(1);
}

static struct tensor make_rows(int rows, int cols) {
    return tensor_make(xcalloc((size_t)rows * (size_t)cols, sizeof(float)), DTYPE_F32, rows, cols);
}

static void watch_linear(struct backend *backend, const struct linear_args *args) {
    for (int i = 0; i < seen.stack->dims.n_layers; i++) {
        if (args->weight != &seen.stack->layers[i].router.weight) continue;
        seen.layer = i;
        seen.x = args->x;
    }
    seen.original->linear(backend, args);
}

/* Rows that a norm with one layer's gamma made, as another's makes them. */
static struct tensor exchange_gamma(struct tensor x, const float *from, const float *to) {
    struct tensor y = make_rows(x.rows, x.cols);
    for (int i = 0; i < x.rows; i++)
        for (int j = 0; j < x.cols; j++)
            row_f32(y, i)[j] = from && to ? row_f32(x, i)[j] / from[j] * to[j] : row_f32(x, i)[j];
    return y;
}

static void foretell(struct backend *backend, const struct route_args *args, int next) {
    const struct layer *from = &seen.stack->layers[seen.layer], *to = &seen.stack->layers[next];
    struct tensor logits = make_rows(args->logits.rows, args->logits.cols),
                  x = exchange_gamma(seen.x, from->norm_mlp.gamma, to->norm_mlp.gamma);
    struct route_args route = *args;
    seen.original->linear(
        backend, &(struct linear_args){
                     .y = logits, .x = x, .weight = &to->router.weight, .bias = to->router.bias});
    seen.foretold[next] = make_rows(args->y.rows, args->y.cols);
    route.y = seen.foretold[next];
    route.logits = logits;
    route.bias = to->router_bias.data;
    route.factors = NULL;
    seen.original->route(backend, &route);
    free(logits.data);
    free(x.data);
}

static void watch_route(struct backend *backend, const struct route_args *args) {
    seen.original->route(backend, args);
    struct tensor *chosen = &seen.chosen[seen.layer];
    *chosen = make_rows(args->y.rows, args->y.cols);
    for (int i = 0; i < args->y.rows; i++)
        memcpy(row_f32(*chosen, i), row_f32(args->y, i), (size_t)args->y.cols * sizeof(float));
    for (int i = seen.layer + 1; i < seen.stack->dims.n_layers; i++) {
        if (!seen.stack->layers[i].spec.experts) continue;
        foretell(backend, args, i);
        return;
    }
}

static void watch(struct backend *backend, const struct model *model) {
    seen.stack = model_decoder(model);
    seen.original = backend->ops;
    seen.ops = *backend->ops;
    seen.ops.linear = watch_linear;
    seen.ops.route = watch_route;
    backend->ops = &seen.ops;
    seen.chosen = xcalloc((size_t)seen.stack->dims.n_layers, sizeof *seen.chosen);
    seen.foretold = xcalloc((size_t)seen.stack->dims.n_layers, sizeof *seen.foretold);
}

static void read_text(struct model *model, const int32_t *ids, int n) {
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = n,
                                    .max_step_rows = n,
                                    .max_logit_rows = 1,
                                    .kv_dtype = model_info(model)->cache_dtype};
    struct session_pool *pool = NULL;
    struct session *session = NULL;
    struct step_item item = {.tokens = ids, .n_tokens = n, .n_logits = 1};
    struct tensor logits;
    struct error e;
    if (session_pool_open(&pool, model, &limits, &e) ||
        session_open(&session, pool, (struct grid){1, 1}, &e))
        fail(&e);
    item.session = session;
    if (session_step(pool, &item, 1, &logits, &e)) fail(&e);
    session_close(session);
    session_pool_close(pool);
}

static bool has_expert(struct tensor routes, int row, int expert) {
    int used = routes.cols / 2;
    for (int i = 0; i < used; i++)
        if ((int)row_f32(routes, row)[used + i] == expert) return true;
    return false;
}

static int count_distinct(struct tensor routes, int experts) {
    int n = 0;
    for (int expert = 0; expert < experts; expert++) {
        int row = 0;
        while (row < routes.rows && !has_expert(routes, row, expert)) row++;
        n += row < routes.rows;
    }
    return n;
}

/* The share of the experts of rows from `first` on that row - first of `by` names. */
static double share_foretold(struct tensor routes, struct tensor by, int first) {
    int used = routes.cols / 2, hits = 0, all = (routes.rows - first) * used;
    if (by.data == NULL || all == 0) return -1;
    for (int row = first; row < routes.rows; row++)
        for (int i = 0; i < used; i++)
            hits += has_expert(by, row - first, (int)row_f32(routes, row)[used + i]);
    return (double)hits / all;
}

static void report(void) {
    for (int i = 0; i < seen.stack->dims.n_layers; i++) {
        struct tensor chosen = seen.chosen[i];
        if (chosen.data == NULL) continue;
        printf("%d %d %.3f %.3f\n", i, count_distinct(chosen, seen.stack->dims.experts),
               share_foretold(chosen, chosen, 1), share_foretold(chosen, seen.foretold[i], 0));
        free(chosen.data);
        free(seen.foretold[i].data);
    }
    free(seen.chosen);
    free(seen.foretold);
}

int main(int argc, char **argv) {
    struct backend *backend = NULL;
    struct comm *comm = NULL;
    struct model *model = NULL;
    struct error e;
    if (argc < 3) {
        fprintf(stderr, "usage: print_experts MODEL ID...\n");
        return 2;
    }
    int32_t *ids = xcalloc((size_t)argc, sizeof *ids);
    for (int i = 2; i < argc; i++) ids[i - 2] = atoi(argv[i]);
    if (backend_open(&backend, "cpu", &(struct backend_options){0}, &e) ||
        comm_open_single(&comm, &e) ||
        model_open(&model, argv[1], backend, comm, &(struct model_options){0}, &e))
        fail(&e);
    watch(backend, model);
    read_text(model, ids, argc - 2);
    report();
    model_close(model);
    comm_close(comm);
    backend_close(backend);
    free(ids);
    return 0;
}
