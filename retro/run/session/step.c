/* retro/run/session/step.c: one batch step: laying it out on rank 0, running a rank's share of it. The chunk grid is
 * grid.h, neighbours are neighbors.h, sources are sources.h, the layer is layer.h. */
#include <string.h>

#include "retro/run/session/attention_shares.h"

/* Laying out. */

static void plan_cross_span(struct plan *plan, int row, int k_start, int k_count) {
    struct attention_span *last = plan->n_cross_spans ? &plan->cross_spans[plan->n_cross_spans - 1] : NULL;
    if (last && last->q_start + last->q_count == row && last->k_start == k_start) {
        last->q_count++;
        return;
    }
    plan->cross_spans[plan->n_cross_spans] = (struct attention_span){row, 1, k_start, k_count};
    plan->n_cross_spans++;
}

/* Chunk j of an item's session, whose neighbours are the item's next ones. */
static const struct closing *plan_closing(struct session_pool *p, const struct step_item *item, int item_index,
                                          int chunk) {
    const struct session *s = item->session;
    struct plan *plan = &p->plan;
    int start = grid_start(s->grid, chunk);
    const struct neighbor_tokens *found = &item->neighbors[chunk - session_next_chunk(s)];
    struct closing *closing = &plan->closings[plan->n_closings];
    *closing = (struct closing){
        .item = item_index,
        .blocks = plan->spans[item_index].k_start,
        .start = start,
        .n = grid_end(s->grid, chunk) - start,
        .slot = found->k ? cross_cache_take(&p->cross) : -1,
        .k = found->k,
        .ids = found->ids,
    };
    plan->n_closings++;
    return closing;
}

/* Chunked cross attention of one item's rows: each reads the latest chunk closed at or before it. */
static void plan_chunks(struct session_pool *p, const struct step_item *item, int item_index, int first_row) {
    const struct session *s = item->session;
    const struct retro_spec *retro = &p->model->spec.retro;
    struct plan *plan = &p->plan;
    int slot = s->slot, slot_rows = s->slot_rows;
    for (int i = 0; i < item->n_tokens; i++) {
        int row = first_row + i, position = s->length + i;
        if (grid_closes(s->grid, position) || (i == 0 && s->rereads)) {
            const struct closing *closing = plan_closing(p, item, item_index, grid_read(s->grid, position));
            slot = closing->slot;
            slot_rows = closing->k * retro->retrieved_length;
        }
        plan->row_scale[row] = slot >= 0 ? retro->gate : 0.0f;
        if (slot >= 0) plan_cross_span(plan, row, slot * p->cross.slot_rows, slot_rows);
    }
}

/* A session's source is encoded in its first step, and read by all its rows. */
static void plan_source(struct session_pool *p, const struct step_item *item, int first_row) {
    struct session *s = item->session;
    struct plan *plan = &p->plan;
    if (item->n_source > 0) {
        int slot = sources_find(&p->sources, s->scope, item->source, item->n_source);
        if (slot < 0) {
            slot = sources_take(&p->sources, s->scope, item->source, item->n_source);
            plan->sources[plan->n_sources] = (struct source){slot, item->n_source, item->source};
            plan->n_sources++;
        }
        attach_source(s, slot);
    }
    plan->cross_spans[plan->n_cross_spans] =
        (struct attention_span){first_row, item->n_tokens, s->slot * p->cross.slot_rows, s->slot_rows};
    plan->n_cross_spans++;
}

/* The rows of an item that are given: of those without an id, words, or whole rows where they have names. */
static void plan_given(struct plan *plan, const struct step_item *item, int first, int d) {
    int before = plan->n_given;
    for (int i = 0; i < item->n_tokens; i++) {
        bool given = item->tokens == NULL || item->tokens[i] < 0;
        plan->given_rows[first + i] = item->tokens == NULL ? plan->n_given : -1;
        if (!given) continue;
        plan->given_to[plan->n_given] = item->tokens ? first + i : -1;
        plan->n_given++;
    }
    size_t values = (size_t)(plan->n_given - before) * (size_t)d;
    if (values > 0) memcpy(plan->given + (size_t)before * (size_t)d, item->rows, values * sizeof(float));
}

static void plan_positions(struct session_pool *p, const struct step_item *item) {
    const struct session *s = item->session;
    int sections = sections_of(p), n = item->n_tokens * sections;
    int32_t *positions = p->plan.positions + (size_t)p->plan.n_rows * (size_t)sections;
    for (int i = 0; i < n; i++)
        positions[i] = item->positions ? item->positions[i] : s->length + i / sections + s->shift;
}

/* The new rows of one session: ids or given rows, and the places of their keys and values. */
static void plan_rows(struct session_pool *p, const struct step_item *item) {
    struct session *s = item->session;
    struct plan *plan = &p->plan;
    int first = plan->n_rows, d = model_decoder(p->model)->dims.hidden;
    kv_cache_extend(&p->cache, &s->blocks, s->length + item->n_tokens);
    plan_positions(p, item);
    for (int i = 0; i < item->n_tokens; i++) {
        plan->ids[first + i] = item->tokens ? max_int(item->tokens[i], -1) : -1;
        plan->cache_rows[first + i] = block_row(&s->blocks, s->length + i);
    }
    if (plan->given_rows) plan_given(plan, item, first, d);
    for (int i = item->n_tokens - item->n_logits; i < item->n_tokens; i++) {
        plan->logit_rows[plan->n_logits] = first + i;
        plan->n_logits++;
    }
}

/* A layer of fewer rows takes no longer than the message that would end it. */
enum { WATCHED_ROWS = 32 };

static bool is_watched(const struct session_pool *p) {
    const struct comm *c = p->model->comm;
    bool pays = c->size == 1 || p->plan.n_rows >= WATCHED_ROWS;
    return p->abandoned && c->stages == 1 && pays;
}

void plan_step(struct session_pool *p, const struct step_item *items, int n) {
    struct plan *plan = &p->plan;
    enum edge reads = model_decoder(p->model)->dims.reads;
    plan_clear(plan);
    plan->n_items = n;
    for (int j = 0; j < n; j++) {
        const struct step_item *item = &items[j];
        const struct session *s = item->session;
        int first = plan->n_rows;
        plan_rows(p, item);
        plan->spans[j] = (struct attention_span){first, item->n_tokens, plan->n_blocks, s->length + item->n_tokens};
        memcpy(plan->blocks + plan->n_blocks, s->blocks.blocks, (size_t)s->blocks.n * sizeof *plan->blocks);
        plan->n_blocks += s->blocks.n;
        int first_cross = plan->n_cross_spans;
        if (reads == EDGE_NEIGHBORS) plan_chunks(p, item, j, first);
        if (reads == EDGE_SOURCE) plan_source(p, item, first);
        attention_shares_item(p, item, j, first_cross);
        plan->n_rows += item->n_tokens;
    }
    plan->watched = is_watched(p);
}

int position_behind(const struct session_pool *p, const int32_t *positions, int n) {
    int sections = sections_of(p), largest = 0;
    for (int i = (n - 1) * sections; i < n * sections; i++) largest = max_int(largest, positions[i]);
    return largest + 1;
}

static void advance_item(const struct step_item *item) {
    struct session *s = item->session;
    s->length += item->n_tokens;
    if (item->positions) s->shift = position_behind(s->pool, item->positions, item->n_tokens) - s->length;
}

/* A session keeps the slot of its latest chunk; earlier ones are free again. */
void plan_advance(struct session_pool *p, const struct step_item *items, int n) {
    const struct plan *plan = &p->plan;
    for (int j = 0; j < n; j++) advance_item(&items[j]);
    for (int c = 0; c < plan->n_closings; c++) {
        struct session *s = items[plan->closings[c].item].session;
        cross_cache_free(&p->cross, s->slot);
        s->slot = plan->closings[c].slot;
        s->slot_rows = plan->closings[c].k * p->model->spec.retro.retrieved_length;
    }
}

int count_items(const struct session_pool *p, const struct step_item *items, int n) {
    int limit = p->model->comm->stages > 1 ? p->limits.micro_batch_rows : 0, rows = items[0].n_tokens, taken = 1;
    if (limit == 0) return n;
    while (taken < n && rows + items[taken].n_tokens <= limit) {
        rows += items[taken].n_tokens;
        taken++;
    }
    return taken;
}

/* Running. */

/* The keys and values that a layer's cross attention reads. At the first retro layer the closed chunks are encoded;
 * later layers find their keys and values ready (spec 3). */
static const struct cross_source *read_cross(void *context, int layer_index, struct tensor normed) {
    struct session_pool *p = context;
    struct plan *plan = &p->plan;
    bool neighbors = p->neighbors.model != NULL;
    if (neighbors && layer_index == p->model->spec.retro.first_layer) {
        neighbors_keep(&p->neighbors, normed, plan->cache_rows);
        neighbors_encode(&p->neighbors, plan->blocks, plan->closings, plan->n_closings);
    }
    if (plan->n_cross_spans == 0) return NULL;
    p->source = (struct cross_source){.k = p->cross.k[layer_index],
                                      .v = p->cross.v[layer_index],
                                      .spans = plan->cross_spans,
                                      .n_spans = plan->n_cross_spans,
                                      .row_scale = neighbors ? plan->row_scale : NULL};
    return &p->source;
}

/* Rows that were given take the place of a word of zeros, or of all that a row is. */
static void add_given(struct session_pool *p, struct scratch *scratch) {
    struct backend *b = p->model->backend;
    struct tensor given = tensor_rows(p->given, 0, p->plan.n_given);
    backend_upload(b, given.data, p->plan.given, (size_t)given.rows * (size_t)given.cols * sizeof(float));
    backend_gather_rows(b, &(struct gather_rows_args){.y = scratch->branch, .x = given, .rows = p->plan.given_rows});
    backend_add(b, &(struct add_args){.y = scratch->x, .a = scratch->x, .b = scratch->branch});
    backend_scatter_rows(b, &(struct scatter_rows_args){.y = scratch->x, .x = given, .rows = p->plan.given_to});
}

/* The first stage embeds the rows; others get the encoder's output, where they read any, and the rows from the one
 * before. */
static void enter_stage(struct session_pool *p, struct scratch *scratch) {
    const struct model *m = p->model;
    const struct comm *c = m->comm;
    if (c->stage == 0) {
        stack_embed(m, model_decoder(p->model), scratch->x, p->plan.ids, p->plan.positions);
        if (p->plan.n_given > 0) add_given(p, scratch);
        return;
    }
    if (c->stage > m->encodes && c->stage <= m->reads)
        neighbors_encode(&p->neighbors, p->plan.blocks, p->plan.closings, p->plan.n_closings);
    comm_receive(c->world, m->backend, scratch->x, c->world->rank - c->size);
}

/* Rank 0 knows whether anybody waits, and all ranks of its group do as it says. */
static bool is_abandoned(struct session_pool *p) {
    const struct model *m = p->model;
    struct comm *c = m->comm;
    struct error e = {0};
    char gone = c->rank == 0 && p->plan.watched && p->abandoned(p->abandoned_context);
    if (!p->plan.watched || c->size == 1) return gone;

    buffer_clear(&p->verdict);
    buffer_append(&p->verdict, &gone, 1);
    if (comm_broadcast_soon(c, &p->verdict, &e)) {
        comm_fail_backend(m->backend, &e);
        return true;
    }
    return p->verdict.data[0];
}

/* The plan's rows of what is told of attention: nothing yet, or what earlier stages found. */
static void enter_shares(struct session_pool *p, struct tensor shares) {
    const struct model *m = p->model;
    const struct comm *c = m->comm;
    backend_gather_rows(m->backend, &(struct gather_rows_args){.y = shares, .x = shares, .rows = p->plan.no_rows});
    if (c->stage > 0) comm_receive(c->world, m->backend, shares, c->world->rank - c->size);
}

/* Later stages add to them; then those of all ranks are summed, each of which has its heads'. */
static void leave_shares(struct session_pool *p, struct tensor shares) {
    const struct model *m = p->model;
    const struct comm *c = m->comm;
    if (c->stage < c->stages - 1)
        comm_send(c->world, m->backend, shares, c->world->rank + c->size);
    else
        comm_allreduce_sum(m->comm, m->backend, shares);
}

/* Returns early when nobody waits for the step any more. */
static void run_layers(struct session_pool *p, struct tensor told) {
    const struct model *m = p->model;
    const struct stack *s = model_decoder(p->model);
    const struct plan *plan = &p->plan;
    struct pass pass = {.model = m,
                        .stack = s,
                        .scratch = scratch_rows(&p->scratch, plan->n_rows),
                        .spans = plan->spans,
                        .n_spans = plan->n_items,
                        .positions = plan->positions,
                        .most_tokens = p->limits.max_tokens,
                        .cache = {.rows = plan->cache_rows, .blocks = plan->blocks, .n_blocks = plan->n_blocks},
                        .cross = read_cross,
                        .context = p};
    struct plan_shares shares;
    enter_stage(p, &pass.scratch);
    if (plan->tells) enter_shares(p, told);
    attention_shares_pass(p, told, &shares, &pass);
    for (int i = s->kept.first; i < s->kept.first + s->kept.n; i++) {
        p->cut = is_abandoned(p);
        if (p->cut) return;
        pass.layer_index = i;
        pass.cache.k = kv_cache_layer(&p->cache, p->cache.k, i);
        pass.cache.v = kv_cache_layer(&p->cache, p->cache.v, i);
        layer_forward(&pass, &s->layers[i]);
    }
}

/* Logits [first, first + n) = final_norm(x) W^T + bias of the rows that were asked for, capped where the model caps
 * them; the norm iff the model has one (spec 7). */
static void run_head(struct session_pool *p, int first) {
    const struct model *m = p->model;
    const struct stack *s = model_decoder(p->model);
    int n = p->plan.n_logits;
    if (n == 0 || p->cut) return;
    struct tensor x = tensor_rows(p->scratch.x, 0, p->plan.n_rows), picked = tensor_rows(p->picked, 0, n);
    struct tensor logits = tensor_rows(p->logits, first, n);
    struct tensor local = m->comm->size > 1 ? tensor_rows(p->local_logits, 0, n) : logits;
    backend_gather_rows(m->backend, &(struct gather_rows_args){.y = picked, .x = x, .rows = p->plan.logit_rows});
    if (s->final_norm.gamma) stack_norm(m, s, picked, picked, &s->final_norm);
    backend_linear(m->backend,
                   &(struct linear_args){.y = local, .x = picked, .weight = &m->output.weight, .bias = m->output.bias});
    if (m->spec.logit_cap > 0)
        backend_softcap(m->backend, &(struct softcap_args){.x = local, .cap = m->spec.logit_cap});
    comm_allgather_cols(m->comm, m->backend, logits, local);
}

void run_plan(struct session_pool *p, struct plan_place place) {
    const struct model *m = p->model;
    const struct comm *c = m->comm, *world = c->world;
    p->cut = false;
    struct tensor told = {0};
    if (p->plan.tells) told = tensor_rows(p->shares, place.rows, p->plan.n_rows);
    if (p->plan.n_sources > 0) sources_encode(&p->sources, p->plan.sources, p->plan.n_sources);
    run_layers(p, told);
    if (c->stage == c->stages - 1)
        run_head(p, place.logits);
    else
        comm_send(c->world, m->backend, tensor_rows(p->scratch.x, 0, p->plan.n_rows), world->rank + c->size);
    if (p->plan.tells) leave_shares(p, told);
}

/* The last stage's rows go to rank 0. */
static void hand_back(struct session_pool *p, struct tensor t) {
    const struct model *m = p->model;
    const struct comm *c = m->comm, *world = c->world;
    if (c->stage == c->stages - 1 && c->rank == 0) comm_send(c->world, m->backend, t, 0);
    if (world->rank == 0) comm_receive(c->world, m->backend, t, world->size - c->size);
}

/* Stages wait for nothing but their rows, so while the next stage works on one plan this one is at the next. */
struct tensor run_plans(struct session_pool *p, struct text_span in) {
    const struct model *m = p->model;
    bool tells = false;
    struct plan_place end = {0, 0};
    while (in.size > 0) {
        plan_read(&p->plan, m->spec.retro.retrieved_length, model_decoder(p->model)->dims.hidden, &in);
        run_plan(p, end);
        end.logits += p->plan.n_logits;
        end.rows += p->plan.n_rows;
        tells = tells || p->plan.tells;
    }
    struct tensor logits = tensor_rows(p->logits, 0, end.logits);
    if (m->comm->stages > 1 && end.logits > 0) hand_back(p, logits);
    if (m->comm->stages > 1 && tells) hand_back(p, tensor_rows(p->shares, 0, end.rows));
    return logits;
}
