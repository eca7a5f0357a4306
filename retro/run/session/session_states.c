/* retro/run/session/session_states.c: the states of sessions (state_cache.h): which of them a step
 * reads and writes, which are kept for later sessions, and drafts that turn out to be rows. See
 * session.h.
 *
 * A step leaves a session's state behind its certain rows; drafts go on from there and leave none.
 * Their channels and gates are saved, and the rows that are taken are replayed from these when the
 * session settles. */
#include <string.h>

#include "retro/run/session/session_private.h"

/* Blocks from one state that is kept to the next; a prompt keeps one more at its end, and one where
 * it parts from an earlier prompt. */
enum { KEPT_BLOCKS = 16 };

/* Laying out. */

static void add_span(struct plan *plan, struct state_span span) {
    plan->state_spans[plan->n_state_spans] = span;
    plan->n_state_spans++;
}

int session_next_kept(const struct session *session, int found, int n) {
    int step = KEPT_BLOCKS * ATTENTION_BLOCK, last = (n - 1) / ATTENTION_BLOCK * ATTENTION_BLOCK;
    if (session->pool->states.model == NULL) return found + ATTENTION_BLOCK;
    return min_int((found / step + 1) * step, last);
}

/* The session is about to write the state. Some of its content may stay when a step fails. */
static void note_written(struct session *session, int32_t state) {
    struct state_cache *cache = &session->pool->states;
    cache->reads[state] = cache->reads[state] || session_reads(session);
}

/* Promises that no block redeemed: their rows are not known by ids. */
static void withdraw_promises(struct session *session) {
    struct session_state *state = &session->state;
    for (int i = 0; i < state->n_promised; i++)
        state_cache_withdraw(&session->pool->states, state->promised[i].state);
    state->n_promised = 0;
}

/* The last border of blocks in a prompt's rows behind which a row is left whose logits are wanted.
 */
static int last_border(const struct session *session, const struct step_item *item, int certain) {
    if (certain < 2) return 0;
    return (session->length + certain - (item->n_logits > 0)) / ATTENTION_BLOCK * ATTENTION_BLOCK;
}

static bool keeps_states(const struct session *session) {
    const struct session_pool *pool = session->pool;
    return prefix_tree_keeps(&pool->tree) && pool->states.most > 0 &&
           session->known == session->length;
}

/* Promises states at some borders of blocks in the item's certain rows. */
static void promise_states(struct session *session, const struct step_item *item, int certain) {
    struct session_pool *pool = session->pool;
    struct session_state *state = &session->state;
    int last = last_border(session, item, certain), end = session->length + certain;
    withdraw_promises(session);
    if (!keeps_states(session)) return;
    for (int rows = session->length / ATTENTION_BLOCK * ATTENTION_BLOCK + ATTENTION_BLOCK;
         rows <= end; rows += ATTENTION_BLOCK) {
        bool wanted = rows % (KEPT_BLOCKS * ATTENTION_BLOCK) == 0 || rows == state->fork;
        bool room = state->n_promised < PROMISED_STATES - 1;
        if (rows != last && (!wanted || !room)) continue;
        int32_t promised = state_cache_promise(&pool->states);
        if (promised == STATE_NONE) return;
        state->promised[state->n_promised] = (struct promised_state){rows, promised};
        state->n_promised++;
        note_written(session, promised);
    }
}

static void save_drafts(struct session_pool *pool, const struct step_item *item, int first_row) {
    struct plan *plan = &pool->plan;
    int certain = item->n_tokens - item->n_drafts;
    item->session->state.saved = pool->n_saved;
    for (int i = 0; i < item->n_tokens; i++) {
        plan->save_rows[first_row + i] = i < certain ? -1 : pool->n_saved;
        pool->n_saved += i >= certain;
    }
    plan->saves = plan->saves || item->n_drafts > 0;
}

void plan_states(struct session_pool *pool, const struct step_item *item, int first_row) {
    struct session *session = item->session;
    struct session_state *state = &session->state;
    struct plan *plan = &pool->plan;
    int certain = item->n_tokens - item->n_drafts, done = 0;
    if (state->own == STATE_NONE) state->own = state_cache_take(&pool->states);
    note_written(session, state->own);
    promise_states(session, item, certain);
    struct state_span span = {first_row, 0, session->length == 0 ? STATE_NONE : state->own,
                              state->own, 0};
    for (int i = 0; i <= state->n_promised; i++) {
        bool promised = i < state->n_promised;
        int end = promised ? state->promised[i].rows - session->length : certain;
        span.n = end - done;
        if (span.n > 0) add_span(plan, span);
        span = (struct state_span){first_row + end, 0, state->own, state->own, 1};
        if (promised) span.to = state->promised[i].state;
        if (promised) add_span(plan, span);
        span.to = state->own;
        done = end;
    }
    span.n = item->n_drafts;
    span.to = STATE_NONE;
    if (span.n > 0) add_span(plan, span);
    save_drafts(pool, item, first_row);
}

struct pass_states states_of(const struct session_pool *pool, int layer) {
    const struct plan *plan = &pool->plan;
    const struct state_cache *cache = &pool->states;
    return (struct pass_states){.states = state_cache_layer(cache, cache->states, layer),
                                .spans = plan->state_spans,
                                .n_spans = plan->n_state_spans,
                                .saved = state_cache_layer(cache, cache->saved, layer),
                                .save_rows = plan->saves ? plan->save_rows : NULL};
}

/* Keeping. */

/* A prompt's later state at its end replaces the one before, unless that has another use. */
static void replace_latest(struct session *session, int block, int rows) {
    struct state_cache *cache = &session->pool->states;
    struct kept_state *latest = &session->state.latest;
    const struct kept_state *there =
        latest->state == STATE_NONE ? NULL : state_cache_find(cache, latest->block);
    bool passing =
        latest->rows % (KEPT_BLOCKS * ATTENTION_BLOCK) != 0 && latest->rows != session->state.fork;
    if (there && there->state == latest->state && passing && !there->pinned)
        state_cache_leave(cache, latest->block, PREFIX_NONE);
    there = state_cache_find(cache, block);
    *latest = (struct kept_state){
        .state = there ? there->state : STATE_NONE, .block = block, .rows = rows};
}

void keep_promised(struct session *session, int block, int rows) {
    struct session_state *state = &session->state;
    int left = 0;
    for (int i = 0; i < state->n_promised; i++) {
        struct promised_state promised = state->promised[i];
        if (promised.rows != rows) {
            state->promised[left] = promised;
            left++;
            continue;
        }
        state_cache_keep(
            &session->pool->states,
            (struct kept_state){.state = promised.state, .block = block, .rows = ATTENTION_BLOCK});
        replace_latest(session, block, rows);
    }
    state->n_promised = left;
}

void release_state(struct session *session, int block, int rows, bool pinned) {
    struct session_pool *pool = session->pool;
    struct session_state *state = &session->state;
    if (pool->states.model == NULL) return;
    withdraw_promises(session);
    if (state->own == STATE_NONE) return;
    int32_t room = block == PREFIX_NONE ? STATE_NONE : state_cache_promise(&pool->states);
    if (room == STATE_NONE) {
        state_cache_free(&pool->states, state->own);
    } else { /* the session's own state takes the place of the one that was promised */
        state_cache_free(&pool->states, room);
        state_cache_keep(&pool->states,
                         (struct kept_state){
                             .state = state->own, .block = block, .rows = rows, .pinned = pinned});
    }
    *state = (struct session_state){.own = STATE_NONE, .latest = {.state = STATE_NONE}};
}

/* Taking over. */

int find_state(struct session_pool *pool, const struct prefix_text *text, int *agreed,
               int32_t *state) {
    int block = PREFIX_NONE, first = 0, best = 0, rows = ATTENTION_BLOCK;
    *state = STATE_NONE;
    *agreed = 0;
    while (rows == ATTENTION_BLOCK) {
        block = prefix_tree_find(&pool->tree, block, text, first, &rows);
        if (block < 0) break;
        const struct kept_state *kept = state_cache_find(&pool->states, block);
        if (kept && kept->rows <= rows) {
            best = first + kept->rows;
            *state = kept->state;
        }
        first += rows;
        *agreed = first;
    }
    return best;
}

/* On all ranks. */

struct state_copy {
    int32_t from, to; /* STATE_NONE: `to` becomes zeros */
};

static enum status tell_ranks(struct session_pool *pool, enum message kind, const void *body,
                              size_t bytes, struct error *e) {
    struct comm *world = pool->model->comm->world;
    if (world->size == 1) return STATUS_OK;
    buffer_clear(&pool->message);
    buffer_append(&pool->message, &kind, sizeof kind);
    buffer_append(&pool->message, body, bytes);
    return comm_broadcast(world, &pool->message, e);
}

void take_state(struct session *session, int32_t from) {
    struct session_pool *pool = session->pool;
    struct error e;
    CHECK(session->state.own == STATE_NONE);
    session->state.own = state_cache_take(&pool->states);
    struct state_copy copy = {from, session->state.own};
    if (tell_ranks(pool, MESSAGE_STATE, &copy, sizeof copy, &e))
        return; /* the next step fails, too */
    state_cache_copy(&pool->states, copy.from, copy.to);
    pool->states.reads[copy.to] |= pool->states.reads[copy.from];
}

void wipe_states(struct session_pool *pool) {
    struct state_cache *cache = &pool->states;
    struct error e;
    for (int i = 0; i < cache->n_free; i++) {
        struct state_copy wipe = {STATE_NONE, cache->free_states[i]};
        if (!cache->reads[wipe.to]) continue;
        if (tell_ranks(pool, MESSAGE_STATE, &wipe, sizeof wipe, &e))
            return; /* the next step fails, too */
        state_cache_wipe(cache, wipe.to);
        cache->reads[wipe.to] = false;
    }
}

void follow_state(const struct session_pool *pool, struct text_span in) {
    struct state_copy copy;
    CHECK(in.size == sizeof copy);
    memcpy(&copy, in.text, sizeof copy);
    if (copy.from == STATE_NONE)
        state_cache_wipe(&pool->states, copy.to);
    else
        state_cache_copy(&pool->states, copy.from, copy.to);
}

static void replay(const struct session_pool *pool, const struct state_span *span) {
    const struct state_cache *cache = &pool->states;
    const struct stack *stack = model_decoder(pool->model);
    struct pass pass = {.model = pool->model,
                        .stack = stack,
                        .scratch = scratch_rows(&pool->scratch, cache->saved.rows),
                        .states = {.spans = span, .n_spans = 1}};
    for (int i = stack->kept.first; i < stack->kept.first + stack->kept.n; i++) {
        if (!mixer_keeps_state(stack->layers[i].spec.mixer)) continue;
        pass.states.states = state_cache_layer(cache, cache->states, i);
        pass.states.saved = state_cache_layer(cache, cache->saved, i);
        layer_replay(&pass, &stack->layers[i]);
    }
}

void replay_drafts(struct session *session, int n) {
    struct session_pool *pool = session->pool;
    struct session_state *state = &session->state;
    struct error e;
    if (pool->states.model == NULL || n == 0) return;
    struct state_span span = {state->saved, n, state->own, state->own, 0};
    if (tell_ranks(pool, MESSAGE_REPLAY, &span, sizeof span, &e))
        return; /* the next step fails, too */
    replay(pool, &span);
}

void follow_replay(const struct session_pool *pool, struct text_span in) {
    struct state_span span;
    CHECK(in.size == sizeof span);
    memcpy(&span, in.text, sizeof span);
    replay(pool, &span);
}
