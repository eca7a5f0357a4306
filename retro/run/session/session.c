/* retro/run/session/session.c: sessions of a pool, and the checks before a step. step.c lays out
 * and runs a step, session_ranks.c does what all ranks do beside steps. See session.h. */
#include "retro/run/session/session_private.h"
#include "retro/run/tower/picture_rows.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum status session_open(struct session **out, struct session_pool *pool, struct grid grid,
                         struct error *e) {
    for (int i = 0; i < pool->limits.max_sessions; i++) {
        struct session *session = &pool->sessions[i];
        if (session->open) continue;
        buffer_clear(&session->open_read);
        buffer_clear(&session->documents);
        chunk_history_begin(&session->history, 0);
        *session = (struct session){.pool = pool,
                                    .grid = grid,
                                    .blocks = {.blocks = session->blocks.blocks},
                                    .slot = -1,
                                    .state = {.own = STATE_NONE, .latest = {.state = STATE_NONE}},
                                    .found_rows = INT_MAX,
                                    .open = true,
                                    .history = session->history,
                                    .open_read = session->open_read,
                                    .documents = session->documents};
        *out = session;
        return STATUS_OK;
    }
    return error_set(e, STATUS_BUSY, "all %d sequences are in use", pool->limits.max_sessions);
}

void session_set_scope(struct session *session, uint32_t scope) {
    session->scope = scope;
    chunk_history_begin(&session->history, scope);
}

static void release_slot(struct session *session) {
    if (session->pool->sources.model)
        sources_drop(&session->pool->sources, session->slot);
    else
        chunk_slots_drop(&session->pool->chunks, session->slot);
    session->slot = -1;
    wipe_chunks(session->pool);
}

static void leave_pool(struct session *session, bool pinned) {
    release_blocks(session, pinned);
    release_slot(session);
    session->open = false;
}

void session_close(struct session *session) {
    if (session) leave_pool(session, false);
}

void session_pin(struct session *session) { leave_pool(session, true); }

struct grid session_grid(const struct session *session) {
    return session->grid;
}

int session_length(const struct session *session) { return session->length; }

/* Gives back the blocks behind the first n. */
static void cut_blocks(struct session *session, int n) {
    struct block_list *list = &session->blocks;
    while (list->n > n) {
        list->n--;
        free_block(session->pool, list->blocks[list->n], session_reads(session));
    }
}

void session_rewind(struct session *session, int length, struct grid grid) {
    struct session_pool *pool = session->pool;
    bool counted =
        session->shift == 0; /* else it is not known what rows within the text are shifted by */
    bool stays = model_decoder(pool->model)->dims.reads == EDGE_NONE && counted &&
                 !prefix_tree_keeps(&pool->tree) && pool->states.model == NULL;
    int blocks = stays ? min_int(length, session->length) / ATTENTION_BLOCK : 0;
    CHECK(session->open && !session->cut && session->n_drafts == 0 && length >= 0);
    if (!stays) release_blocks(session, false);
    cut_blocks(session, blocks);
    release_slot(session);
    session->length = blocks * ATTENTION_BLOCK;
    if (session->length > 0) return;
    session->grid = grid;
    session->shift = 0;
}

void session_settle(struct session *session, const int32_t *ids, int n_kept) {
    struct session_pool *pool = session->pool;
    int first = session->length - session->n_drafts;
    bool learns = prefix_tree_keeps(&pool->tree) && session->known == first;
    CHECK(session->open && !session->cut && n_kept >= 0 && n_kept <= session->n_drafts);

    session->length = first + n_kept;
    session->n_drafts = 0;
    replay_drafts(session, n_kept);
    cut_blocks(session, blocks_of(session->length));
    for (int i = 0; i < n_kept && learns; i++) learn_row(session, ids[i], NULL, NULL);
    for (int i = 0; i < n_kept && pool->chunks.keeps; i++)
        chunk_history_add(&session->history, ids[i]);
}

int session_closes(const struct session *session, int n_tokens) {
    if (session->pool->model->spec.retro.n_layers == 0) return 0;
    return grid_complete(session->grid, session->length + n_tokens) - session_next_chunk(session);
}

int session_next_chunk(const struct session *session) {
    if (session->pool->model->spec.retro.n_layers == 0) return 0;
    return grid_complete(session->grid, session->length) - session->rereads;
}

bool session_wants_source(const struct session *session) {
    return session->pool->sources.model && session->slot < 0;
}

/* Checking a step before anything is touched. */

static enum status check_ids(const struct session_pool *pool, const int32_t *ids, int n,
                             const char *what, struct error *e) {
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= pool->model->spec.padded_vocab)
            return error_set(e, STATUS_INVALID, "%s %d is id %d, the vocabulary has %d", what, i,
                             ids[i], pool->model->spec.padded_vocab);
    return STATUS_OK;
}

/* A model with an encoder reads one source, with the session's first rows. */
static enum status check_source(const struct session_pool *pool, const struct step_item *item,
                                struct error *e) {
    bool wanted = session_wants_source(item->session);
    if (!wanted && item->n_source == 0) return STATUS_OK;
    if (!wanted)
        return error_set(
            e, STATUS_INVALID, "a source of %d ids, which %s", item->n_source,
            pool->sources.model ? "comes with a session's first rows" : "this model does not read");
    if (item->n_source < 1 || item->n_source > pool->limits.max_source)
        return error_set(e, item->n_source < 1 ? STATUS_INVALID : STATUS_TOO_LARGE,
                         "a source of %d ids, allowed is 1 .. %d", item->n_source,
                         pool->limits.max_source);
    return check_ids(pool, item->source, item->n_source, "source id", e);
}

/* Rows that a step brings as they are. */
static int count_given(const struct step_item *item) {
    int n = 0;
    if (item->tokens == NULL) return item->n_tokens;
    for (int i = 0; i < item->n_tokens; i++) n += item->tokens[i] < 0;
    return n;
}

static enum status check_ids_and_names(const struct session_pool *pool,
                                       const struct step_item *item, struct error *e) {
    if (item->rows == NULL && item->tokens)
        return check_ids(pool, item->tokens, item->n_tokens, "token", e);
    if (item->rows == NULL || count_given(item) == 0)
        return error_set(e, STATUS_INVALID, "a step item has %s",
                         item->rows ? "ids and rows" : "neither ids nor rows");
    for (int i = 0; item->tokens && i < item->n_tokens; i++)
        if (item->tokens[i] >= pool->model->spec.padded_vocab)
            return error_set(e, STATUS_INVALID, "token %d is id %d, the vocabulary has %d", i,
                             item->tokens[i], pool->model->spec.padded_vocab);
    return STATUS_OK;
}

/* A picture whose rows see each other is read to its end, behind the rows of it that are there. */
static enum status check_pictures(const struct session_pool *pool, const struct step_item *item,
                                  struct error *e) {
    const struct model *model = pool->model;
    if (picture_rows_together(model) == 0) return STATUS_OK;
    for (int i = 0; item->tokens && i < item->n_tokens; i++) {
        int left = picture_rows_left(model, item->tokens + i, item->n_tokens - i);
        bool ends = i + 1 == item->n_tokens || item->tokens[i + 1] != item->tokens[i] - 1;
        if (left > 1 && ends)
            return error_set(e, STATUS_INVALID,
                             "token %d is followed by no more of its picture, and %d rows that "
                             "see each other are left of it: one step reads them",
                             i, left - 1);
        if (i == 0 && left > 0 && picture_rows_together(model) - left > item->session->length)
            return error_set(e, STATUS_INVALID, "a text begins with the last %d rows of a picture",
                             left);
    }
    return STATUS_OK;
}

static enum status check_positions(const struct session_pool *pool, const struct step_item *item,
                                   struct error *e) {
    const struct model_spec *spec = &pool->model->spec;
    for (int i = 0; item->positions && spec->learned_positions && i < item->n_tokens; i++)
        if (item->positions[i] < 0 || item->positions[i] >= spec->max_positions)
            return error_set(e, STATUS_TOO_LARGE,
                             "token %d stands at position %d, the model has %d", i,
                             item->positions[i], spec->max_positions);
    return STATUS_OK;
}

static enum status check_item(const struct session_pool *pool, const struct step_item *item,
                              struct error *e) {
    const struct session *session = item->session;
    const struct session_limits *limits = &pool->limits;
    CHECK(session->pool == pool && session->open && !session->cut && session->n_drafts == 0);
    if (item->n_tokens < 1 || item->n_logits < 0 || item->n_logits > item->n_tokens)
        return error_set(e, STATUS_INVALID, "a step item has %d tokens and %d rows of logits",
                         item->n_tokens, item->n_logits);
    if (item->n_drafts < 0 || item->n_drafts >= item->n_tokens)
        return error_set(e, STATUS_INVALID, "a step item has %d tokens, %d of them drafts",
                         item->n_tokens, item->n_drafts);
    int certain = item->n_tokens - item->n_drafts;
    if (session_closes(session, item->n_tokens) > session_closes(session, certain))
        return error_set(e, STATUS_INVALID, "a draft closes a chunk");
    if (item->n_tokens > limits->max_tokens - session->length)
        return error_set(e, STATUS_TOO_LARGE, "%d tokens after %d, the limit is %d per sequence",
                         item->n_tokens, session->length, limits->max_tokens);
    if (check_ids_and_names(pool, item, e) || check_pictures(pool, item, e) ||
        check_positions(pool, item, e))
        return e->status;
    if (check_source(pool, item, e)) return e->status;
    int told = max_int(item->n_cross_shares, item->n_self_shares);
    if (told > item->n_tokens || (told > 0 && limits->max_shares == 0))
        return error_set(e, STATUS_INVALID,
                         "shares of attention of %d rows of %d, of %d groups at most", told,
                         item->n_tokens, limits->max_shares);
    if (item->n_groups < 0 || item->n_groups > limits->max_shares)
        return error_set(e, STATUS_TOO_LARGE, "shares of %d groups of keys, the limit is %d",
                         item->n_groups, limits->max_shares);
    for (int j = session_closes(session, item->n_tokens) - 1; j >= 0; j--) {
        const struct neighbor_tokens *nb = &item->neighbors[j];
        if (nb->k < 0 || nb->k > limits->max_neighbors)
            return error_set(e, STATUS_TOO_LARGE, "%d neighbours for one chunk, the limit is %d",
                             nb->k, limits->max_neighbors);
        if (check_ids(pool, nb->ids, nb->k * pool->model->spec.retro.retrieved_length,
                      "neighbour token", e))
            return e->status;
    }
    return STATUS_OK;
}

static enum status check_step(const struct session_pool *pool, const struct step_item *items, int n,
                              struct error *e) {
    int64_t rows = 0, logits = 0, given = 0, drafts = 0;
    if (n < 1 || n > pool->limits.max_sessions)
        return error_set(e, STATUS_INVALID, "%d sequences in a step, allowed is 1 .. %d", n,
                         pool->limits.max_sessions);
    for (int i = 0; i < n; i++) {
        if (check_item(pool, &items[i], e)) return e->status;
        rows += items[i].n_tokens;
        logits += items[i].n_logits;
        given += count_given(&items[i]);
        drafts += items[i].n_drafts;
        for (int j = 0; j < i; j++) CHECK(items[j].session != items[i].session);
    }
    if (rows > pool->limits.max_step_rows || logits > pool->limits.max_logit_rows)
        return error_set(e, STATUS_TOO_LARGE,
                         "%lld rows and %lld rows of logits in a step, the limits are %d and %d",
                         (long long)rows, (long long)logits, pool->limits.max_step_rows,
                         pool->limits.max_logit_rows);
    if (pool->states.model && drafts > pool->limits.max_draft_rows)
        return error_set(e, STATUS_TOO_LARGE, "%lld drafts in a step, the limit is %d",
                         (long long)drafts, pool->limits.max_draft_rows);
    if (given > pool->limits.max_given)
        return error_set(e, STATUS_TOO_LARGE, "%lld given rows in a step, the limit is %d",
                         (long long)given, pool->limits.max_given);
    return STATUS_OK;
}

/* Running a step. */

void session_pool_watch(struct session_pool *pool, bool (*abandoned)(void *context),
                        void *context) {
    pool->abandoned = abandoned;
    pool->abandoned_context = context;
}

int session_pool_parts(const struct session_pool *pool) {
    return pool->model->comm->stages == 1 ? model_decoder(pool->model)->dims.n_layers : 1;
}

/* The step was abandoned between two layers. */
static enum status cut_step(const struct step_item *items, int n, struct error *e) {
    for (int i = 0; i < n; i++) items[i].session->cut = true;
    return error_set(e, STATUS_CANCELLED, "nobody waits for the %d sequences of the step", n);
}

/* A step that only this rank computes needs no message. */
static enum status step_alone(struct session_pool *pool, const struct step_item *items, int n_items,
                              struct tensor *logits, struct error *e) {
    plan_step(pool, items, n_items);
    plan_advance(pool, items, n_items);
    run_plan(pool, (struct plan_place){0, 0});
    *logits = tensor_rows(pool->logits, 0, pool->plan.n_logits);
    if (backend_sync(pool->model->backend, e)) return e->status;
    return pool->cut ? cut_step(items, n_items, e) : STATUS_OK;
}

/* All plans of the step go to the other ranks first, so that stages wait for nothing but their
 * rows. */
static enum status step_together(struct session_pool *pool, const struct step_item *items,
                                 int n_items, struct tensor *logits, struct error *e) {
    const struct model *model = pool->model;
    buffer_clear(&pool->message);
    buffer_append(&pool->message, &(enum message){MESSAGE_STEP}, sizeof(enum message));
    int first = 0;
    while (first < n_items) {
        int n = count_items(pool, items + first, n_items - first);
        plan_step(pool, items + first, n);
        plan_write(&pool->plan, model->spec.retro.retrieved_length, &pool->message);
        plan_advance(pool, items + first, n);
        first += n;
    }
    if (comm_broadcast(model->comm->world, &pool->message, e)) return e->status;
    *logits = run_plans(pool, (struct text_span){pool->message.data + sizeof(enum message),
                                                 pool->message.size - sizeof(enum message)});
    if (backend_sync(model->backend, e)) return e->status;
    return pool->cut ? cut_step(items, n_items, e) : STATUS_OK;
}

enum status session_step(struct session_pool *pool, const struct step_item *items, int n_items,
                         struct tensor *logits, struct error *e) {
    struct error local;
    if (e == NULL) e = &local;
    if (check_step(pool, items, n_items, e)) return e->status;
    pool->n_saved = 0;
    bool alone = pool->model->comm->world->size == 1;
    enum status status = alone ? step_alone(pool, items, n_items, logits, e)
                               : step_together(pool, items, n_items, logits, e);
    if (status == STATUS_DEVICE) comm_leave(pool->model->comm, e);
    if (status == STATUS_OK) keep_rows(pool, items, n_items);
    chunk_slots_settle(&pool->chunks, status == STATUS_OK);
    wipe_chunks(pool);
    return status;
}

struct tensor session_shares(const struct session_pool *pool) {
    return pool->shares;
}
