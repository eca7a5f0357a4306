/* kernels/cpu/experts.c: mixtures of experts: the choice of each row's experts, and their products.
 *
 * Plain loops in one order, the same in all variants; the products are those of linear.c, whose rows do not depend on
 * each other. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

static float rank_of(float logit) { return isnan(logit) ? -INFINITY : logit; }

/* The largest of n logits that comes after `last` in the order of choice; last -1: the first. */
static int choose_next(const float *logits, int n, int last) {
    int best = -1;
    for (int i = 0; i < n; i++) {
        float x = rank_of(logits[i]), before = last < 0 ? INFINITY : rank_of(logits[last]);
        bool chosen = last >= 0 && (x > before || (x == before && i <= last));
        if (!chosen && (best < 0 || x > rank_of(logits[best]))) best = i;
    }
    return best;
}

static void route_row(const void *context, int i, int thread) {
    (void)thread;
    const struct route_args *a = context;
    const float *logits = row_f32(a->logits, i);
    float *y = row_f32(a->y, i);
    int k = a->y.cols / 2, n = a->logits.cols, first = choose_next(logits, n, -1), expert = -1;
    double sum = 0, kept = 0;
    for (int j = 0; j < n; j++) sum += exp((double)logits[j] - (double)logits[first]);
    for (int j = 0; j < k; j++) {
        expert = choose_next(logits, n, expert);
        double weight = exp((double)logits[expert] - (double)logits[first]) / sum;
        kept += weight;
        y[j] = (float)weight;
        y[k + j] = (float)expert;
    }
    for (int j = 0; j < k && a->renormalise; j++) y[j] = (float)((double)y[j] / kept);
}

void cpu_route(struct backend *b, const struct route_args *a) {
    cpu_run(b, (double)a->logits.rows * a->logits.cols * a->y.cols, a->logits.rows, route_row, a);
}

/* The place that a row gave an expert among its routes, -1: it does not use it. */
static int find_slot(const struct experts_args *a, int row, int expert) {
    int k = a->routes.cols / 2;
    const float *numbers = row_f32(a->routes, row) + k;
    for (int j = 0; j < k; j++)
        if ((int)numbers[j] == expert) return j;
    return -1;
}

/* The rows that use an expert, one after the other, to `few`; how many. */
static int gather_inputs(const struct experts_args *a, int expert) {
    int n = 0;
    for (int i = 0; i < a->x.rows; i++) {
        if (find_slot(a, i, expert) < 0) continue;
        memcpy(row_f32(a->few, n), row_f32(a->x, i), (size_t)a->x.cols * sizeof(float));
        n++;
    }
    return n;
}

/* Each row takes its part from `few`. */
static void scatter_outputs(const struct experts_args *a, int expert) {
    int n = 0;
    for (int i = 0; i < a->x.rows; i++) {
        int slot = find_slot(a, i, expert);
        if (slot < 0) continue;
        float *to = row_f32(a->parts, i) + (size_t)slot * (size_t)a->x.cols;
        memcpy(to, row_f32(a->few, n), (size_t)a->x.cols * sizeof(float));
        n++;
    }
}

/* Through the table of ops: retro-convert looks at products there. */
static void run_expert(struct backend *b, const struct experts_args *a, int expert) {
    int n = gather_inputs(a, expert);
    if (n == 0) return;
    struct tensor few = tensor_rows(a->few, 0, n), wide = tensor_rows(a->wide, 0, n),
                  gated = tensor_rows(a->gated, 0, n);
    b->ops->linear(b, &(struct linear_args){.y = wide, .x = few, .weight = &a->fc1[expert]});
    b->ops->glu(b, &(struct glu_args){.y = gated, .x = wide, .activation = a->activation});
    b->ops->linear(b, &(struct linear_args){.y = few, .x = gated, .weight = &a->fc2[expert]});
    scatter_outputs(a, expert);
}

static void combine_row(const void *context, int i, int thread) {
    (void)thread;
    const struct experts_args *a = context;
    int k = a->routes.cols / 2, d = a->x.cols;
    const float *weights = row_f32(a->routes, i);
    float *y = row_f32(a->y, i);
    for (int j = 0; j < d; j++) y[j] = 0;
    for (int slot = 0; slot < k; slot++) {
        const float *part = row_f32(a->parts, i) + (size_t)slot * (size_t)d, weight = weights[slot];
        for (int j = 0; j < d; j++) y[j] += weight * part[j];
    }
    if (a->shared.data == NULL) return;
    const float *shared = row_f32(a->shared, i), gate = 1 / (1 + expf(-*row_f32(a->gate, i)));
    for (int j = 0; j < d; j++) y[j] += gate * shared[j];
}

void cpu_experts(struct backend *b, const struct experts_args *a) {
    for (int expert = 0; expert < a->n_experts; expert++) run_expert(b, a, expert);
    cpu_run(b, (double)a->parts.rows * a->parts.cols, a->x.rows, combine_row, a);
}
