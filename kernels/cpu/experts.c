/* kernels/cpu/experts.c: mixtures of experts: the choice of each row's experts, and their products.
 *
 * Plain loops in one order, the same in all variants; the products are those of linear.c, whose
 * rows do not depend on each other. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/fetch.h"

static float rank_of(float key) { return isnan(key) ? -INFINITY : key; }

/* The largest of n keys that comes after `last` in the order of choice; last -1: the first. */
static int choose_next(const float *keys, int n, int last) {
    int best = -1;
    for (int i = 0; i < n; i++) {
        float x = rank_of(keys[i]), before = last < 0 ? INFINITY : rank_of(keys[last]);
        bool chosen = last >= 0 && (x > before || (x == before && i <= last));
        if (!chosen && (best < 0 || x > rank_of(keys[best]))) best = i;
    }
    return best;
}

/* The scores of a row are exp(logit - largest) / sum, or sigmoid(logit). */
struct row_scores {
    const float *logits;
    bool sigmoid;
    double largest, sum;
};

static struct row_scores make_scores(const struct route_args *args, const float *logits) {
    struct row_scores scores = {.logits = logits, .sigmoid = args->sigmoid};
    int n = args->logits.cols;
    if (args->sigmoid) return scores;
    scores.largest = logits[choose_next(logits, n, -1)];
    for (int i = 0; i < n; i++) scores.sum += exp((double)logits[i] - scores.largest);
    return scores;
}

static double score_of(const struct row_scores *scores, int expert) {
    double logit = scores->logits[expert];
    return scores->sigmoid ? 1 / (1 + exp(-logit)) : exp(logit - scores->largest) / scores->sum;
}

/* Experts of groups that are not chosen from get the key -infinity. */
static void drop_groups(const struct route_args *args, float *keys) {
    int size = args->logits.cols / args->groups, group = -1;
    float sums[ROUTE_EXPERTS];
    bool kept[ROUTE_EXPERTS] = {false};
    for (int i = 0; i < args->groups; i++) {
        const float *own = keys + (ptrdiff_t)i * size;
        int first = choose_next(own, size, -1),
            second = args->group_best == 1 ? -1 : choose_next(own, size, first);
        sums[i] = rank_of(own[first]) + (second < 0 ? 0 : rank_of(own[second]));
    }
    for (int i = 0; i < args->groups_used; i++) {
        group = choose_next(sums, args->groups, group);
        kept[group] = true;
    }
    for (int i = 0; i < args->logits.cols; i++)
        if (!kept[i / size]) keys[i] = -INFINITY;
}

/* The numbers that experts are chosen by: logits have the order of scores. */
static const float *make_keys(const struct route_args *args, const struct row_scores *scores,
                              float *room) {
    bool grouped = args->groups > 1;
    if (!args->bias && !grouped) return scores->logits;
    for (int i = 0; i < args->logits.cols; i++)
        room[i] = (float)score_of(scores, i) + (args->bias ? args->bias[i] : 0);
    if (grouped) drop_groups(args, room);
    return room;
}

static void route_row(const void *context, int i, int thread) {
    (void)thread;
    const struct route_args *args = context;
    float *y = row_f32(args->y, i), room[ROUTE_EXPERTS];
    struct row_scores scores = make_scores(args, row_f32(args->logits, i));
    const float *keys = make_keys(args, &scores, room);
    int k = args->y.cols / 2, expert = -1;
    double kept = (double)args->epsilon;
    for (int j = 0; j < k; j++) {
        expert = choose_next(keys, args->logits.cols, expert);
        double weight = score_of(&scores, expert);
        kept += weight;
        y[j] = (float)weight;
        y[k + j] = (float)expert;
    }
    for (int j = 0; j < k && args->renormalise; j++) y[j] = (float)((double)y[j] / kept);
    for (int j = 0; j < k && args->scale > 0; j++) y[j] *= args->scale;
    for (int j = 0; j < k && args->factors; j++) y[j] *= args->factors[(int)y[k + j]];
}

void cpu_route(struct backend *backend, const struct route_args *args) {
    cpu_run(backend, (double)args->logits.rows * args->logits.cols * args->y.cols,
            args->logits.rows, route_row, args);
}

/* The place that a row gave an expert among its routes, -1: it does not use it. */
static int find_slot(const struct experts_args *args, int row, int expert) {
    int k = args->routes.cols / 2;
    const float *numbers = row_f32(args->routes, row) + k;
    for (int j = 0; j < k; j++)
        if ((int)numbers[j] == expert) return j;
    return -1;
}

/* The rows that use an expert, one after the other, to `few`; how many. */
static int gather_inputs(const struct experts_args *args, int expert) {
    int n = 0;
    for (int i = 0; i < args->x.rows; i++) {
        int slot = find_slot(args, i, expert);
        if (slot < 0) continue;
        const float *x = row_f32(args->x, i);
        float *to = row_f32(args->few, n),
              weight = args->weighs_inputs ? row_f32(args->routes, i)[slot] : 1;
        for (int j = 0; j < args->x.cols; j++) to[j] = weight * x[j];
        n++;
    }
    return n;
}

/* Each row takes its part from `few`. */
static void scatter_outputs(const struct experts_args *args, int expert) {
    int n = 0;
    for (int i = 0; i < args->x.rows; i++) {
        int slot = find_slot(args, i, expert);
        if (slot < 0) continue;
        float *to = row_f32(args->parts, i) + (size_t)slot * (size_t)args->x.cols;
        memcpy(to, row_f32(args->few, n), (size_t)args->x.cols * sizeof(float));
        n++;
    }
}

/* Through the table of ops: retro-convert looks at products there. */
static void run_expert(struct backend *backend, const struct experts_args *args, int expert) {
    int n = gather_inputs(args, expert);
    if (n == 0) return;
    struct tensor few = tensor_rows(args->few, 0, n), wide = tensor_rows(args->wide, 0, n),
                  gated = tensor_rows(args->gated, 0, n);
    const float *bias1 = args->bias1 ? args->bias1[expert] : NULL,
                *bias2 = args->bias2 ? args->bias2[expert] : NULL;
    backend->ops->linear(
        backend,
        &(struct linear_args){.y = wide, .x = few, .weight = &args->fc1[expert], .bias = bias1});
    backend->ops->glu(backend, &(struct glu_args){.y = gated, .x = wide, .gating = args->gating});
    backend->ops->linear(
        backend,
        &(struct linear_args){.y = few, .x = gated, .weight = &args->fc2[expert], .bias = bias2});
    scatter_outputs(args, expert);
}

/* Experts that one row each uses. Their products are made side by side, as many at a time as
 * `most`. */
struct lone_use {
    int expert, row, slot; /* the expert's place among the row's routes */
};
struct lone_experts {
    struct lone_use uses[LONE_PRODUCTS];
    struct linear_args products[LONE_PRODUCTS];
    int n, most;
};

static size_t lone_row_bytes(const struct backend *backend, const struct experts_args *args,
                             int expert) {
    size_t first = cpu_lone_row_bytes(backend, &args->fc1[expert]),
           second = cpu_lone_row_bytes(backend, &args->fc2[expert]);
    return first > second ? first : second;
}

/* Of experts with the types of this one: what the room for rows holds. */
static int lone_most(const struct backend *backend, const struct experts_args *args, int expert) {
    size_t floats = (size_t)args->wide.cols + (size_t)args->gated.cols,
           bytes = lone_row_bytes(backend, args, expert) + floats * sizeof(float),
           most = INPUT_BYTES / bytes;
    return most < LONE_PRODUCTS ? (int)most : LONE_PRODUCTS;
}

/* The slot of a use in its row's parts. Before the expert's result it holds the input, where that
 * is weighed. */
static struct tensor slot_of(const struct experts_args *args, struct lone_use use) {
    struct tensor parts = tensor_rows(args->parts, use.row, 1);
    return tensor_cols(parts, use.slot * args->x.cols, args->x.cols);
}

static struct tensor lone_input(const struct experts_args *args, struct lone_use use) {
    if (!args->weighs_inputs) return tensor_rows(args->x, use.row, 1);
    struct tensor to = slot_of(args, use);
    float weight = row_f32(args->routes, use.row)[use.slot];
    const float *x = row_f32(args->x, use.row);
    for (int i = 0; i < args->x.cols; i++) row_f32(to, 0)[i] = weight * x[i];
    return to;
}

static void run_lone(struct backend *backend, const struct experts_args *args,
                     struct lone_experts *lone) {
    if (lone->n == 0) return;
    size_t row_bytes = lone_row_bytes(backend, args, lone->uses[0].expert);
    char *room = cpu_of(backend)->inputs;
    float *between = (float *)(void *)(room + (size_t)lone->n * row_bytes);
    struct tensor wide = tensor_make(between, DTYPE_F32, lone->n, args->wide.cols),
                  gated = tensor_make(between + (ptrdiff_t)lone->n * wide.cols, DTYPE_F32, lone->n,
                                      args->gated.cols);

    for (int i = 0; i < lone->n; i++) {
        struct lone_use use = lone->uses[i];
        lone->products[i] =
            (struct linear_args){.y = tensor_rows(wide, i, 1),
                                 .x = lone_input(args, use),
                                 .weight = &args->fc1[use.expert],
                                 .bias = args->bias1 ? args->bias1[use.expert] : NULL};
    }
    cpu_linear_lone(backend, lone->products, lone->n, room);

    backend->ops->glu(backend, &(struct glu_args){.y = gated, .x = wide, .gating = args->gating});

    for (int i = 0; i < lone->n; i++) {
        struct lone_use use = lone->uses[i];
        lone->products[i] =
            (struct linear_args){.y = slot_of(args, use),
                                 .x = tensor_rows(gated, i, 1),
                                 .weight = &args->fc2[use.expert],
                                 .bias = args->bias2 ? args->bias2[use.expert] : NULL};
    }
    cpu_linear_lone(backend, lone->products, lone->n, room);
    lone->n = 0;
}

static bool types_equal(const struct experts_args *args, int a, int b) {
    return args->fc1[a].dtype == args->fc1[b].dtype && args->fc2[a].dtype == args->fc2[b].dtype;
}

/* Whether the expert's products wait for those of others: one row uses it, and the room holds it.
 */
static bool lone_takes(struct backend *backend, const struct experts_args *args,
                       struct lone_experts *lone, int expert) {
    struct lone_use use = {.expert = expert};
    int rows = 0;
    for (int i = 0; i < args->x.rows && rows < 2; i++) {
        int slot = find_slot(args, i, expert);
        if (slot < 0) continue;
        use.row = i;
        use.slot = slot;
        rows++;
    }
    if (rows != 1) return false;
    bool full = lone->n == lone->most;
    if (lone->n > 0 && (full || !types_equal(args, lone->uses[0].expert, expert)))
        run_lone(backend, args, lone);
    if (lone->n == 0) lone->most = lone_most(backend, args, expert);
    if (lone->most == 0) return false;
    lone->uses[lone->n] = use;
    lone->n++;
    return true;
}

static void combine_row(const void *context, int i, int thread) {
    (void)thread;
    const struct experts_args *args = context;
    int k = args->routes.cols / 2, d = args->x.cols;
    const float *weights = row_f32(args->routes, i);
    float *y = row_f32(args->y, i);
    for (int j = 0; j < d; j++) y[j] = 0;
    for (int slot = 0; slot < k; slot++) {
        const float *part = row_f32(args->parts, i) + (size_t)slot * (size_t)d,
                    weight = args->weighs_inputs ? 1 : weights[slot];
        for (int j = 0; j < d; j++) y[j] += weight * part[j];
    }
    if (args->shared.data == NULL) return;
    const float *shared = row_f32(args->shared, i);
    float gate = args->gate.data ? 1 / (1 + expf(-*row_f32(args->gate, i))) : 1;
    for (int j = 0; j < d; j++) y[j] += gate * shared[j];
}

/* Products that somebody looks at (retro-convert) go through the table of ops, and experts that the
 * disk still reads are multiplied one after the other, as they come: those do not wait for others.
 */
void cpu_experts(struct backend *backend, const struct experts_args *args) {
    struct expert_fetch fetch;
    struct lone_experts lone = {.n = 0};
    if (args->fetched) expert_fetch_begin(&fetch, backend, args);
    const bool there = !args->fetched || expert_fetch_has_all(&fetch),
               side_by_side = there && backend->ops->linear == cpu_linear;
    for (int expert = 0; expert < args->n_experts; expert++) {
        if (args->fetched) expert_fetch_advance(&fetch, expert);
        if (!side_by_side || !lone_takes(backend, args, &lone, expert))
            run_expert(backend, args, expert);
    }
    run_lone(backend, args, &lone);
    if (args->fetched) expert_fetch_end(&fetch);
    cpu_run(backend, (double)args->parts.rows * args->parts.cols, args->x.rows, combine_row, args);
}
