/* retro/run/session/step.c: one batch step: laying it out on rank 0, running a rank's share of it.
 * The chunk grid is grid.h, neighbours are neighbors.h, sources are sources.h, the layer is
 * layer.h. */
#include <string.h>

#include "retro/run/session/attention_shares.h"
#include "retro/run/tower/picture_rows.h"

/* Laying out. */

/* Row `row` of an item whose spans begin at number `first`. Items may read the same chunk, and each
 * has spans of its own, because each is told of its own attention. */
static void plan_cross_span(struct plan *plan, int first, int row, int k_start, int k_count) {
    struct attention_span *last =
        plan->n_cross_spans > first ? &plan->cross_spans[plan->n_cross_spans - 1] : NULL;
    if (last && last->q_start + last->q_count == row && last->k_start == k_start) {
        last->q_count++;
        return;
    }
    plan->cross_spans[plan->n_cross_spans] = (struct attention_span){row, 1, k_start, k_count, 0};
    plan->n_cross_spans++;
}

/* Row i of the item is told the names of its session's chunks, unless it is a draft, which closes
 * none and may go. */
static void tell_name(const struct step_item *item, int i) {
    struct session *session = item->session;
    bool has_id = item->tokens && item->tokens[i] >= 0 && item->positions == NULL;
    if (i >= item->n_tokens - item->n_drafts) return;
    if (has_id)
        chunk_history_add(&session->history, item->tokens[i]);
    else
        chunk_history_lose(&session->history);
    if (grid_closes(session->grid, session->length + i)) chunk_history_close(&session->history);
}

/* The session's latest closed chunk, which has these neighbours, is found by others by this name:
 * false where a document that it reads is gone. */
static bool name_chunk(const struct session_pool *pool, const struct session *session, int chunk,
                       const struct neighbor_tokens *neighbors, struct chunk_name *name) {
    int r = pool->model->spec.retro.retrieved_length;
    int end = grid_end(session->grid, chunk);
    if (!pool->chunks.keeps || session->history.closed_rows != end || end > session->found_rows)
        return false;
    return chunk_history_name(&session->history, neighbors, r, name);
}

/* This step encodes chunk j of an item's session into a slot. */
static int plan_closing(struct session_pool *pool, const struct session *session, int first_span,
                        int chunk, const struct neighbor_tokens *neighbors) {
    struct plan *plan = &pool->plan;
    int start = grid_start(session->grid, chunk);
    int rows = neighbors->k * pool->model->spec.retro.retrieved_length;
    struct closing *closing = &plan->closings[plan->n_closings];
    *closing = (struct closing){
        .blocks = plan->spans[first_span].k_start,
        .start = start,
        .n = grid_end(session->grid, chunk) - start,
        .slot = chunk_slots_take(&pool->chunks, rows),
        .k = neighbors->k,
        .ids = neighbors->ids,
    };
    plan->n_closings++;
    return closing->slot;
}

/* The slot with chunk j of an item's session, whose neighbours are the item's next ones: one that
 * has it already, or that this step fills. The plan holds it. CHUNK_NONE: there are none. */
static int plan_chunk(struct session_pool *pool, const struct step_item *item, int first_span,
                      int chunk) {
    const struct session *session = item->session;
    const struct neighbor_tokens *neighbors = &item->neighbors[chunk - session_next_chunk(session)];
    struct chunk_name name;
    int slot = CHUNK_NONE, n_documents;
    if (neighbors->k == 0) return CHUNK_NONE;

    bool named = name_chunk(pool, session, chunk, neighbors, &name);
    if (named) slot = chunk_slots_find(&pool->chunks, &name);
    if (slot != CHUNK_NONE) {
        chunk_slots_hold(&pool->chunks, slot);
    } else {
        slot = plan_closing(pool, session, first_span, chunk, neighbors);
        if (named) chunk_slots_name(&pool->chunks, slot, &name);
    }
    int end = grid_end(session->grid, chunk);
    const struct read_document *documents = documents_within(pool, session, end, &n_documents);
    for (int i = 0; i < n_documents; i++)
        chunk_slots_note(&pool->chunks, slot, documents[i].document);
    if (end > session->found_rows) chunk_slots_doubt(&pool->chunks, slot);
    pool->plan.slots[pool->plan.n_slots] = slot;
    pool->plan.n_slots++;
    return slot;
}

/* Chunked cross attention of one item's rows: each reads the latest chunk closed at or before it.
 * Later sessions find the chunk that the session goes on with, and the one at which this session
 * took over rows: others may part from its text there, too. */
static void plan_chunks(struct session_pool *pool, const struct step_item *item, int first_span,
                        int first_row) {
    struct session *session = item->session;
    const struct retro_spec *retro = &pool->model->spec.retro;
    struct plan *plan = &pool->plan;
    int slot = session->slot, slot_rows = session->slot_rows, passing = CHUNK_NONE,
        first_cross = plan->n_cross_spans;
    for (int i = 0; i < item->n_tokens; i++) {
        int row = first_row + i, position = session->length + i,
            chunk = grid_read(session->grid, position);
        bool closes = grid_closes(session->grid, position);
        if (pool->chunks.keeps) tell_name(item, i);
        if (closes || (i == 0 && session->rereads)) {
            if (passing != CHUNK_NONE) chunk_slots_unname(&pool->chunks, passing);
            slot = plan_chunk(pool, item, first_span, chunk);
            slot_rows = slot >= 0 ? pool->chunks.slots[slot].rows : 0;
            passing = closes && slot >= 0 && !pool->chunks.slots[slot].filled ? slot : CHUNK_NONE;
        }
        plan->row_scale[row] = slot >= 0 ? retro->gate : 0.0f;
        if (slot >= 0)
            plan_cross_span(plan, first_cross, row, slot * pool->cross.slot_rows, slot_rows);
    }
    session->next_slot = slot;
    session->next_slot_rows = slot_rows;
}

/* A session's source is encoded in its first step, and read by all its rows. */
static void plan_source(struct session_pool *pool, const struct step_item *item, int first_row) {
    struct session *session = item->session;
    struct plan *plan = &pool->plan;
    if (item->n_source > 0) {
        int slot = sources_find(&pool->sources, session->scope, item->source, item->n_source);
        if (slot < 0) {
            slot = sources_take(&pool->sources, session->scope, item->source, item->n_source);
            plan->sources[plan->n_sources] = (struct source){slot, item->n_source, item->source};
            plan->n_sources++;
        }
        attach_source(session, slot);
    }
    plan->cross_spans[plan->n_cross_spans] = (struct attention_span){
        first_row, item->n_tokens, session->slot * pool->cross.slot_rows, session->slot_rows, 0};
    plan->n_cross_spans++;
}

/* The rows of an item that are given: of those without an id, words, or whole rows where they have
 * names. */
static void plan_given(struct plan *plan, const struct step_item *item, int first) {
    int before = plan->n_given;
    size_t columns = (size_t)plan->given_columns;
    for (int i = 0; i < item->n_tokens; i++) {
        bool given = item->tokens == NULL || item->tokens[i] < 0;
        plan->given_rows[first + i] = item->tokens == NULL ? plan->n_given : -1;
        if (!given) continue;
        plan->given_to[plan->n_given] = item->tokens ? first + i : -1;
        plan->n_given++;
    }
    size_t values = (size_t)(plan->n_given - before) * columns;
    if (values > 0)
        memcpy(plan->given + (size_t)before * columns, item->rows, values * sizeof(float));
}

static void plan_positions(struct session_pool *pool, const struct step_item *item) {
    const struct session *session = item->session;
    int sections = sections_of(pool), n = item->n_tokens * sections;
    int32_t *positions = pool->plan.positions + (size_t)pool->plan.n_rows * (size_t)sections;
    for (int i = 0; i < n; i++)
        positions[i] =
            item->positions ? item->positions[i] : session->length + i / sections + session->shift;
}

/* The new rows of one session: ids or given rows, and the places of their keys and values. */
static void plan_rows(struct session_pool *pool, const struct step_item *item) {
    struct session *session = item->session;
    struct plan *plan = &pool->plan;
    int first = plan->n_rows;
    kv_cache_extend(&pool->cache, &session->blocks, session->length + item->n_tokens);
    plan_positions(pool, item);
    for (int i = 0; i < item->n_tokens; i++) {
        plan->ids[first + i] = item->tokens ? max_int(item->tokens[i], -1) : -1;
        plan->cache_rows[first + i] = block_row(&session->blocks, session->length + i);
    }
    if (plan->given_rows) plan_given(plan, item, first);
    for (int i = item->n_tokens - item->n_logits; i < item->n_tokens; i++) {
        plan->logit_rows[plan->n_logits] = first + i;
        plan->n_logits++;
    }
}

/* Rows of the item from `from` on that attend alike: what is left of a picture whose rows see each
 * other (*mutual), or the rows before the next such picture. */
static int count_alike(const struct session_pool *pool, const struct step_item *item, int from,
                       int *mutual) {
    const struct model *model = pool->model;
    const int32_t *ids = item->tokens;
    int n = item->n_tokens, end = from + 1;
    int left = ids ? picture_rows_left(model, ids + from, n - from) : 0;
    *mutual = left > 0;
    if (ids == NULL) return n;
    if (left > 0) return left;
    while (end < n && picture_rows_left(model, ids + end, n - end) == 0) end++;
    return end - from;
}

/* The rows' self attention. Where a span ends has no effect on rows that see only those before. */
static void plan_spans(struct session_pool *pool, const struct step_item *item, int first_row) {
    struct plan *plan = &pool->plan;
    int from = 0;
    while (from < item->n_tokens) {
        int mutual, n = count_alike(pool, item, from, &mutual);
        plan->spans[plan->n_spans] = (struct attention_span){
            first_row + from, n, plan->n_blocks, item->session->length + from + n, mutual};
        plan->n_spans++;
        from += n;
    }
}

/* A layer of fewer rows takes no longer than the message that would end it. */
enum { WATCHED_ROWS = 32 };

static bool is_watched(const struct session_pool *pool) {
    const struct comm *comm = pool->model->comm;
    bool pays = comm->size == 1 || pool->plan.n_rows >= WATCHED_ROWS;
    return pool->abandoned && comm->stages == 1 && pays;
}

void plan_step(struct session_pool *pool, const struct step_item *items, int n) {
    struct plan *plan = &pool->plan;
    enum edge reads = model_decoder(pool->model)->dims.reads;
    plan_clear(plan);
    for (int j = 0; j < n; j++) {
        const struct step_item *item = &items[j];
        const struct session *session = item->session;
        int first = plan->n_rows, first_span = plan->n_spans;
        plan_rows(pool, item);
        plan_spans(pool, item, first);
        memcpy(plan->blocks + plan->n_blocks, session->blocks.blocks,
               (size_t)session->blocks.n * sizeof *plan->blocks);
        plan->n_blocks += session->blocks.n;
        int first_cross = plan->n_cross_spans;
        if (pool->states.model) plan_states(pool, item, first);
        if (reads == EDGE_NEIGHBORS) plan_chunks(pool, item, first_span, first);
        if (reads == EDGE_SOURCE) plan_source(pool, item, first);
        attention_shares_item(pool, item, first_span, first_cross);
        plan->n_rows += item->n_tokens;
    }
    plan->watched = is_watched(pool);
}

int position_behind(const struct session_pool *pool, const int32_t *positions, int n) {
    int sections = sections_of(pool), largest = 0;
    for (int i = (n - 1) * sections; i < n * sections; i++)
        largest = max_int(largest, positions[i]);
    return largest + 1;
}

static void advance_item(const struct step_item *item) {
    struct session *session = item->session;
    session->length += item->n_tokens;
    session->n_drafts = item->n_drafts;
    if (item->positions)
        session->shift =
            position_behind(session->pool, item->positions, item->n_tokens) - session->length;
}

/* A session holds the slot of its latest chunk; earlier ones are free again. */
static void advance_chunk(struct session_pool *pool, struct session *session) {
    chunk_slots_hold(&pool->chunks, session->next_slot);
    chunk_slots_drop(&pool->chunks, session->slot);
    session->slot = session->next_slot;
    session->slot_rows = session->next_slot_rows;
}

void plan_advance(struct session_pool *pool, const struct step_item *items, int n) {
    const struct plan *plan = &pool->plan;
    for (int j = 0; j < n; j++) advance_item(&items[j]);
    for (int j = 0; j < n && pool->neighbors.model; j++) advance_chunk(pool, items[j].session);
    for (int c = 0; c < plan->n_slots; c++) chunk_slots_drop(&pool->chunks, plan->slots[c]);
}

int count_items(const struct session_pool *pool, const struct step_item *items, int n) {
    int limit = pool->model->comm->stages > 1 ? pool->limits.micro_batch_rows : 0,
        rows = items[0].n_tokens, taken = 1;
    if (limit == 0) return n;
    while (taken < n && rows + items[taken].n_tokens <= limit) {
        rows += items[taken].n_tokens;
        taken++;
    }
    return taken;
}

/* Running. */

/* The keys and values that a layer's cross attention reads. At the first retro layer the closed
 * chunks are encoded; later layers find their keys and values ready (spec 3). */
static const struct cross_source *read_cross(void *context, int layer_index, struct tensor normed) {
    struct session_pool *pool = context;
    struct plan *plan = &pool->plan;
    bool neighbors = pool->neighbors.model != NULL;
    if (neighbors && layer_index == pool->model->spec.retro.first_layer) {
        neighbors_keep(&pool->neighbors, normed, plan->cache_rows);
        neighbors_encode(&pool->neighbors, plan->blocks, plan->closings, plan->n_closings);
    }
    if (plan->n_cross_spans == 0) return NULL;
    pool->source = (struct cross_source){.k = pool->cross.k[layer_index],
                                         .v = pool->cross.v[layer_index],
                                         .spans = plan->cross_spans,
                                         .n_spans = plan->n_cross_spans,
                                         .row_scale = neighbors ? plan->row_scale : NULL};
    return &pool->source;
}

/* The first stage embeds the rows; others get the encoder's output, where they read any, and the
 * rows from the one before. */
static void enter_stage(struct session_pool *pool, struct scratch *scratch) {
    const struct model *model = pool->model;
    const struct comm *comm = model->comm;
    if (comm->stage == 0) {
        stack_embed(model, model_decoder(pool->model), scratch->x, pool->plan.ids,
                    pool->plan.positions);
        if (pool->plan.n_given > 0) step_add_given(pool, scratch);
        if (model_decoder(model)->dims.layer_input > 0) {
            plan_input_ids(&pool->plan, model->spec.picture.stand_in);
            stack_layer_inputs(model, model_decoder(model), scratch, pool->plan.input_ids);
        }
        return;
    }
    if (comm->stage > model->encodes && comm->stage <= model->reads)
        neighbors_encode(&pool->neighbors, pool->plan.blocks, pool->plan.closings,
                         pool->plan.n_closings);
    comm_receive(comm->world, model->backend, scratch->x, comm->world->rank - comm->size);
}

/* Rank 0 knows whether anybody waits, and all ranks of its group do as it says. */
static bool is_abandoned(struct session_pool *pool) {
    const struct model *model = pool->model;
    struct comm *comm = model->comm;
    struct error e = {0};
    char gone = comm->rank == 0 && pool->plan.watched && pool->abandoned(pool->abandoned_context);
    if (!pool->plan.watched || comm->size == 1) return gone;

    buffer_clear(&pool->verdict);
    buffer_append(&pool->verdict, &gone, 1);
    if (comm_broadcast_soon(comm, &pool->verdict, &e)) {
        comm_fail_backend(model->backend, &e);
        return true;
    }
    return pool->verdict.data[0];
}

/* The plan's rows of what is told of attention: nothing yet, or what earlier stages found. */
static void enter_shares(struct session_pool *pool, struct tensor shares) {
    const struct model *model = pool->model;
    const struct comm *comm = model->comm;
    backend_gather_rows(model->backend, &(struct gather_rows_args){
                                            .y = shares, .x = shares, .rows = pool->plan.no_rows});
    if (comm->stage > 0)
        comm_receive(comm->world, model->backend, shares, comm->world->rank - comm->size);
}

/* Later stages add to them; then those of all ranks are summed, each of which has its heads'. */
static void leave_shares(struct session_pool *pool, struct tensor shares) {
    const struct model *model = pool->model;
    const struct comm *comm = model->comm;
    if (comm->stage < comm->stages - 1)
        comm_send(comm->world, model->backend, shares, comm->world->rank + comm->size);
    else
        comm_allreduce_sum(model->comm, model->backend, shares);
}

static void enter_layer_cache(const struct kv_cache *cache, int layer, struct pass_cache *pass) {
    pass->k = kv_cache_layer(cache, KV_CACHE_KEYS, layer);
    pass->v = kv_cache_layer(cache, KV_CACHE_VALUES, layer);
    if (cache->dtype != DTYPE_INT8) return;
    pass->k_scales = kv_cache_layer(cache, KV_CACHE_KEY_SCALES, layer);
    pass->v_scales = kv_cache_layer(cache, KV_CACHE_VALUE_SCALES, layer);
}

/* Returns early when nobody waits for the step any more. */
static void run_layers(struct session_pool *pool, struct tensor told) {
    const struct model *model = pool->model;
    const struct stack *stack = model_decoder(pool->model);
    const struct plan *plan = &pool->plan;
    struct pass pass = {
        .model = model,
        .stack = stack,
        .scratch = scratch_rows(&pool->scratch, plan->n_rows),
        .spans = plan->spans,
        .ordered_spans = plan->ordered_spans,
        .n_spans = plan->n_spans,
        .positions = plan->positions,
        .most_tokens = pool->limits.max_tokens,
        .cache = {.rows = plan->cache_rows, .blocks = plan->blocks, .n_blocks = plan->n_blocks},
        .cross = read_cross,
        .context = pool};
    struct plan_shares shares;
    plan_order_spans(&pool->plan);
    step_upload_given(pool);
    enter_stage(pool, &pass.scratch);
    if (plan->tells) enter_shares(pool, told);
    attention_shares_pass(pool, told, &shares, &pass);
    for (int i = stack->kept.first; i < stack->kept.first + stack->kept.n; i++) {
        pool->cut = is_abandoned(pool);
        if (pool->cut) return;
        pass.layer_index = i;
        if (mixer_keeps_state(stack->layers[i].spec.mixer)) {
            pass.states = states_of(pool, i);
        } else if (stack->layers[i].spec.mixer == MIXER_ATTENTION) {
            enter_layer_cache(&pool->cache, i, &pass.cache);
        }
        layer_forward(&pass, &stack->layers[i]);
        step_add_deepstack(pool, &pass.scratch, i);
    }
}

/* Logits [first, first + n) = final_norm(x) W^T + bias of the rows that were asked for, capped
 * where the model caps them; the norm iff the model has one (spec 7). */
static void run_head(struct session_pool *pool, int first) {
    const struct model *model = pool->model;
    const struct stack *stack = model_decoder(pool->model);
    int n = pool->plan.n_logits;
    if (n == 0 || pool->cut) return;
    struct tensor x = tensor_rows(pool->scratch.x, 0, pool->plan.n_rows),
                  picked = tensor_rows(pool->picked, 0, n);
    struct tensor logits = tensor_rows(pool->logits, first, n);
    struct tensor local = model->comm->size > 1 ? tensor_rows(pool->local_logits, 0, n) : logits;
    backend_gather_rows(model->backend, &(struct gather_rows_args){
                                            .y = picked, .x = x, .rows = pool->plan.logit_rows});
    if (stack->final_norm.gamma) stack_norm(model, stack, picked, picked, &stack->final_norm);
    backend_linear(
        model->backend,
        &(struct linear_args){
            .y = local, .x = picked, .weight = &model->output.weight, .bias = model->output.bias});
    if (model->spec.logit_cap > 0)
        backend_softcap(model->backend,
                        &(struct softcap_args){.x = local, .cap = model->spec.logit_cap});
    comm_allgather_cols(model->comm, model->backend, logits, local);
}

void run_plan(struct session_pool *pool, struct plan_place place) {
    const struct model *model = pool->model;
    const struct comm *comm = model->comm, *world = comm->world;
    pool->cut = false;
    struct tensor told = {0};
    if (pool->plan.tells) told = tensor_rows(pool->shares, place.rows, pool->plan.n_rows);
    if (pool->plan.n_sources > 0)
        sources_encode(&pool->sources, pool->plan.sources, pool->plan.n_sources);
    run_layers(pool, told);
    if (comm->stage == comm->stages - 1)
        run_head(pool, place.logits);
    else
        comm_send(comm->world, model->backend, tensor_rows(pool->scratch.x, 0, pool->plan.n_rows),
                  world->rank + comm->size);
    if (pool->plan.tells) leave_shares(pool, told);
}

/* The last stage's rows go to rank 0. */
static void hand_back(struct session_pool *pool, struct tensor t) {
    const struct model *model = pool->model;
    const struct comm *comm = model->comm, *world = comm->world;
    if (comm->stage == comm->stages - 1 && comm->rank == 0)
        comm_send(comm->world, model->backend, t, 0);
    if (world->rank == 0) comm_receive(comm->world, model->backend, t, world->size - comm->size);
}

/* Stages wait for nothing but their rows, so while the next stage works on one plan this one is at
 * the next. */
struct tensor run_plans(struct session_pool *pool, struct text_span in) {
    const struct model *model = pool->model;
    bool tells = false;
    struct plan_place end = {0, 0};
    while (in.size > 0) {
        plan_read(&pool->plan, model->spec.retro.retrieved_length, &in);
        run_plan(pool, end);
        end.logits += pool->plan.n_logits;
        end.rows += pool->plan.n_rows;
        tells = tells || pool->plan.tells;
    }
    struct tensor logits = tensor_rows(pool->logits, 0, end.logits);
    if (model->comm->stages > 1 && end.logits > 0) hand_back(pool, logits);
    if (model->comm->stages > 1 && tells) hand_back(pool, tensor_rows(pool->shares, 0, end.rows));
    return logits;
}
