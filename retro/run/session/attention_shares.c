/* retro/run/session/attention_shares.c: see attention_shares.h. */
#include "retro/run/session/attention_shares.h"

/* The rows of a span from `row` on; keys are counted from the span's end, so its last rows see what
 * they saw. */
static void add_span(struct attention_shares *kind, struct attention_span span, int row,
                     struct key_group groups) {
    int skipped = max_int(0, row - span.q_start);
    if (skipped >= span.q_count || span.k_count == 0 || groups.n == 0) return;
    span.q_start += skipped;
    span.q_count -= skipped;
    kind->spans[kind->n] = span;
    kind->span_groups[kind->n] = groups;
    kind->n++;
}

static struct key_group add_groups(struct plan *plan, const struct key_group *groups, int n) {
    struct key_group added = {plan->n_groups, n};
    for (int i = 0; i < n; i++) plan->groups[plan->n_groups + i] = groups[i];
    plan->n_groups += n;
    return added;
}

/* The neighbours of any chunk lie behind each other, r rows each; those of all chunks are one list.
 */
static struct key_group list_neighbors(struct session_pool *pool) {
    struct plan *plan = &pool->plan;
    struct key_group list = {plan->n_groups, pool->limits.max_shares};
    int r = pool->model->spec.retro.retrieved_length;
    for (int i = 0; i < list.n; i++)
        plan->groups[plan->n_groups + i] = (struct key_group){i * r, r};
    plan->n_groups += list.n;
    return list;
}

void attention_shares_item(struct session_pool *pool, const struct step_item *item, int first,
                           int first_cross) {
    struct plan *plan = &pool->plan;
    int end = plan->spans[first].q_start + item->n_tokens,
        r = pool->model->spec.retro.retrieved_length;
    bool neighbors = model_decoder(pool->model)->dims.reads == EDGE_NEIGHBORS;
    struct key_group groups = {0, 0};
    if (item->n_self_shares + item->n_cross_shares > 0) plan->tells = 1;
    if (item->n_groups > 0) groups = add_groups(plan, item->groups, item->n_groups);
    for (int i = first; item->n_self_shares > 0 && i < plan->n_spans; i++)
        add_span(&plan->self_shares, plan->spans[i], end - item->n_self_shares, groups);
    if (item->n_cross_shares == 0) return;
    if (neighbors) groups = list_neighbors(pool);
    for (int i = first_cross; i < plan->n_cross_spans; i++) {
        if (neighbors)
            groups.n = min_int(pool->limits.max_shares, plan->cross_spans[i].k_count / r);
        add_span(&plan->cross_shares, plan->cross_spans[i], end - item->n_cross_shares, groups);
    }
}

static int layers_with_cross(const struct stack *stack) {
    int n = 0;
    for (int i = 0; i < stack->dims.n_layers; i++) n += stack->layers[i].spec.cross;
    return n;
}

/* Those whose self attention reads rows; one at least. */
static int layers_with_rows(const struct stack *stack) {
    int n = stack->dims.n_layers;
    return max_int(1, stack_count_attention(stack, 0, n));
}

static struct pass_shares make_shares(const struct plan *plan, const struct attention_shares *kind,
                                      struct tensor y, int terms) {
    return (struct pass_shares){.y = y,
                                .spans = kind->spans,
                                .ordered_spans = kind->ordered_spans,
                                .n_spans = kind->n,
                                .groups = plan->groups,
                                .span_groups = kind->span_groups,
                                .n_groups = plan->n_groups,
                                .weight = 1.0f / (float)terms};
}

void attention_shares_pass(const struct session_pool *pool, struct tensor y,
                           struct plan_shares *shares, struct pass *pass) {
    const struct plan *plan = &pool->plan;
    const struct stack *stack = model_decoder(pool->model);
    int most = pool->limits.max_shares, heads = stack->dims.heads;
    if (plan->cross_shares.n > 0) {
        shares->cross = make_shares(plan, &plan->cross_shares, tensor_cols(y, 0, most),
                                    heads * layers_with_cross(stack));
        pass->cross_shares = &shares->cross;
    }
    if (plan->self_shares.n > 0) {
        shares->self = make_shares(plan, &plan->self_shares, tensor_cols(y, most, most),
                                   heads * layers_with_rows(stack));
        pass->self_shares = &shares->self;
    }
}
