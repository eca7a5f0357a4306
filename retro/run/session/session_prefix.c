/* retro/run/session/session_prefix.c: rows that sessions take over from earlier ones, and leave to
 * later ones. prefix_tree.h knows which blocks have which rows; session.h says what is promised. */
#include <string.h>

#include "retro/run/session/session_private.h"

static bool reads_neighbors(const struct session_pool *pool) {
    return pool->model->spec.retro.n_layers > 0;
}

void attach_source(struct session *session, int slot) {
    struct sources *sources = &session->pool->sources;
    sources_hold(sources, slot);
    session->slot = slot;
    session->slot_rows = sources->texts[slot].n;
}

/* All rows of a session depend on this beside the ids: the grid where neighbours are read, or the
 * encoder's source. A source that is encoded again has another number; the rows that read it before
 * are then not found. */
static uint64_t base_of(const struct session_pool *pool, struct grid grid, int slot) {
    if (pool->sources.model) return slot >= 0 ? pool->sources.texts[slot].number : 0;
    return reads_neighbors(pool) ? (uint64_t)grid.f : 0;
}

static uint64_t root_of(const struct session *session, int slot) {
    uint64_t base = base_of(session->pool, session->grid, slot);
    CHECK(base < (uint64_t)1 << PREFIX_BASE_BITS &&
          session->scope < (uint64_t)1 << (64 - PREFIX_BASE_BITS));
    return (uint64_t)session->scope << PREFIX_BASE_BITS | base;
}

/* Finding. */

struct prefix_text tree_text(const struct session *session, const struct session_text *text,
                             int slot) {
    return (struct prefix_text){.root = root_of(session, slot),
                                .grid = session->grid,
                                .ids = text->ids,
                                .names = text->names,
                                .neighbors = text->neighbors,
                                .n = text->n};
}

/* Moves on by one full block of the text. */
static bool find_next(const struct prefix_tree *tree, const struct prefix_text *text,
                      struct prefix_place *at) {
    int rows, block = prefix_tree_find(tree, at->block, text, at->rows, &rows);
    if (block < 0 || rows < ATTENTION_BLOCK) return false;
    *at = (struct prefix_place){block, at->rows + ATTENTION_BLOCK};
    return true;
}

/* The slot that has the text's source; -1 also of models without. */
static int find_source(const struct session *session, const struct session_text *text) {
    const struct sources *sources = &session->pool->sources;
    return sources->model ? sources_find(sources, session->scope, text->source, text->n_source)
                          : -1;
}

int session_find(const struct session *session, const struct session_text *text) {
    const struct session_pool *pool = session->pool;
    struct prefix_place at = {PREFIX_NONE, 0};
    int slot = find_source(session, text);
    if (!prefix_tree_keeps(&pool->tree) || (pool->sources.model && slot < 0)) return 0;
    struct prefix_text wanted = tree_text(session, text, slot);
    int agreed;
    int32_t state;
    if (pool->states.model)
        return find_state(session->pool, &wanted, &agreed, &state) / ATTENTION_BLOCK *
               ATTENTION_BLOCK;
    while (find_next(&pool->tree, &wanted, &at)) continue;
    return at.rows;
}

/* Taking over. */

/* Appends what a row is computed from beside ids: a given row's name, and the neighbours of the
 * chunk that it closes. */
static void append_parts(const struct session_pool *pool, const struct row_name *name,
                         const struct neighbor_tokens *neighbors, struct buffer *out) {
    if (name) buffer_append(out, name, sizeof *name);
    if (neighbors == NULL) return;
    int32_t k = neighbors->k;
    buffer_append(out, &k, sizeof k);
    buffer_append(out, neighbors->ids, (size_t)k * (size_t)pool->tree.r * sizeof *neighbors->ids);
}

/* Row `row` has id `id`, and where that is a given row's, this name; when it closes a chunk, these
 * neighbours. */
static void note_row(struct session *session, int row, int32_t id, const struct row_name *name,
                     const struct neighbor_tokens *neighbors) {
    session->open_ids[row % ATTENTION_BLOCK] = id;
    append_parts(session->pool, name, neighbors, &session->open_read);
}

/* The name of the row with this id; NULL when the id is a token's. */
static const struct row_name *name_of(const struct row_name *names, int32_t id) {
    return id < 0 ? &names[-1 - id] : NULL;
}

/* The neighbours that `row` reads first, of a list that begins with chunk `first`; NULL when it
 * closes no chunk. */
static const struct neighbor_tokens *closed_by(const struct session *session, int row,
                                               const struct neighbor_tokens *list, int first) {
    if (!reads_neighbors(session->pool) || !grid_closes(session->grid, row)) return NULL;
    return &list[grid_read(session->grid, row) - first];
}

void append_read(const struct session *session, const struct session_text *text, int row,
                 struct buffer *out) {
    append_parts(session->pool, name_of(text->names, text->ids[row]),
                 closed_by(session, row, text->neighbors, 0), out);
}

struct prefix_place session_place(const struct session *session) {
    const struct block_list *list = &session->blocks;
    return (struct prefix_place){list->n > 0 ? list->blocks[list->n - 1] : PREFIX_NONE,
                                 session->length};
}

static void take_block(struct session *session, int block) {
    struct prefix_tree *tree = &session->pool->tree;
    const struct prefix_node *node = &tree->nodes[block];
    struct prefix_rows rows = {node->root,   node->ids,       node->n,          node->read,
                               node->n_read, node->documents, node->n_documents};
    prefix_tree_hold(tree, block);
    session->blocks.blocks[session->blocks.n] = block;
    session->blocks.n++;
    inherit_documents(session, block, session->length + ATTENTION_BLOCK);
    tell_joined(session, block, &rows);
    session->length = session->known = session->length + ATTENTION_BLOCK;
}

void share_blocks(struct session *session, const struct prefix_text *text) {
    struct prefix_place at = session_place(session);
    while (find_next(&session->pool->tree, text, &at)) take_block(session, at.block);
}

/* The rows of a block that begins like the rest of the text become the session's first own ones.
 * They are what the session's own text gives: documents in it are those that the session reads
 * itself. */
static void copy_beginning(struct session *session, const struct prefix_text *text) {
    struct session_pool *pool = session->pool;
    struct error e;
    int first = session->length, rows;
    int from = prefix_tree_find(&pool->tree, session_place(session).block, text, first, &rows);
    if (from < 0) return;
    kv_cache_extend(&pool->cache, &session->blocks, first + rows);
    if (copy_block(pool, from, session->blocks.blocks[session->blocks.n - 1], rows, &e))
        return; /* the next step fails, too */
    for (int row = first; row < first + rows; row++)
        note_row(session, row, text->ids[row], name_of(text->names, text->ids[row]),
                 closed_by(session, row, text->neighbors, 0));
    session->length += rows;
}

/* Leaves the rows of the text that a kept state follows; false: there are none. */
static bool limit_to_state(struct session *session, struct prefix_text *text) {
    int agreed;
    int32_t state;
    text->n = find_state(session->pool, text, &agreed, &state);
    session->state.fork = agreed > text->n ? agreed / ATTENTION_BLOCK * ATTENTION_BLOCK : 0;
    if (text->n == 0) return false;
    take_state(session, state);
    return true;
}

/* The session's rows, which it has taken over, are told the names of its chunks. */
static void tell_history(struct session *session, const struct session_text *text) {
    for (int row = 0; row < session->length; row++) {
        if (text->ids[row] < 0)
            chunk_history_lose(&session->history);
        else
            chunk_history_add(&session->history, text->ids[row]);
        if (grid_closes(session->grid, row)) chunk_history_close(&session->history);
    }
}

int session_reuse(struct session *session, const struct session_text *text) {
    struct session_pool *pool = session->pool;
    CHECK(session->length == session->known && text->n <= pool->limits.max_tokens);
    int slot = find_source(session, text);
    if (!prefix_tree_keeps(&pool->tree) || (pool->sources.model && slot < 0)) return 0;
    if (pool->sources.model) attach_source(session, slot);

    struct prefix_text wanted = tree_text(session, text, slot);
    if (pool->states.model && !limit_to_state(session, &wanted)) return 0;
    if (session->length % ATTENTION_BLOCK == 0) {
        share_blocks(session, &wanted);
        copy_beginning(session, &wanted);
    }
    if (text->positions && session->length > 0)
        session->shift = position_behind(pool, text->positions, session->length) - session->length;
    session->known = session->length;
    session->rereads = reads_neighbors(pool) && grid_complete(session->grid, session->length) > 0;
    if (pool->chunks.keeps) tell_history(session, text);
    return session->length + (pool->sources.model ? text->n_source : 0);
}

/* Leaving. */

static struct prefix_rows open_rows(const struct session *session, int n) {
    int n_documents;
    const struct read_document *documents =
        documents_within(session->pool, session, session->known, &n_documents);
    return (struct prefix_rows){.documents = documents,
                                .n_documents = n_documents,
                                .root = root_of(session, session->slot),
                                .ids = session->open_ids,
                                .n = n,
                                .read = (const int32_t *)(const void *)session->open_read.data,
                                .n_read = (int)(session->open_read.size / sizeof(int32_t))};
}

/* The block of the last n known rows goes into the tree. Returns the block that has them there. */
static int add_block(struct session *session, int n) {
    struct session_pool *pool = session->pool;
    int last = blocks_of(session->known) - 1,
        parent = last > 0 ? session->blocks.blocks[last - 1] : PREFIX_NONE, freed;
    int32_t own = session->blocks.blocks[last];
    struct prefix_rows rows = open_rows(session, n);
    int there = prefix_tree_add(&pool->tree, own, parent, &rows, &freed);
    const struct prefix_node *node = &pool->tree.nodes[there];
    if (freed >= 0) tell_left(pool, freed, there, node->n_documents > 0);
    rows.documents = node->documents;
    rows.n_documents = node->n_documents;
    tell_joined(session, there, &rows);
    inherit_documents(session, there, session->known);
    buffer_clear(&session->open_read);
    if (there == own || n < ATTENTION_BLOCK) return there;
    /* Another session was faster: the same rows, bit by bit. */
    free_block(pool, own, session_reads(session));
    session->blocks.blocks[last] = there;
    return there;
}

void learn_row(struct session *session, int32_t id, const struct row_name *name,
               const struct neighbor_tokens *neighbors) {
    if (session->known >= session->found_rows) return;
    note_row(session, session->known, id, name, neighbors);
    session->known++;
    if (session->known % ATTENTION_BLOCK != 0) return;
    int block = add_block(session, ATTENTION_BLOCK);
    if (session->pool->states.model) keep_promised(session, block, session->known);
}

void learn_text(struct session *session, const struct session_text *text, int first, int n) {
    for (int row = first; row < first + n; row++)
        learn_row(session, text->ids[row], name_of(text->names, text->ids[row]),
                  closed_by(session, row, text->neighbors, 0));
}

static void keep_item(struct session_pool *pool, const struct step_item *item) {
    struct session *session = item->session;
    int before = session->length - item->n_tokens, n = item->n_tokens - item->n_drafts, first = 0;
    if (reads_neighbors(pool))
        first = grid_complete(session->grid, before) -
                session->rereads; /* whose neighbours are item's first */
    session->rereads = false;
    if (session->known < before || item->tokens == NULL)
        return; /* given rows have no ids to be found by */
    for (int i = 0; i < n; i++) {
        int32_t id = item->tokens[i];
        if (id < 0 && item->names == NULL) return;
        learn_row(session, id, name_of(item->names, id),
                  closed_by(session, before + i, item->neighbors, first));
    }
}

void keep_rows(struct session_pool *pool, const struct step_item *items, int n) {
    for (int i = 0; i < n && prefix_tree_keeps(&pool->tree); i++) keep_item(pool, &items[i]);
}

static bool evict_block(struct session_pool *pool) {
    const struct prefix_node *nodes = pool->tree.nodes;
    bool reads = pool->tree.oldest >= 0 && nodes[pool->tree.oldest].n_documents > 0;
    int block = prefix_tree_evict(&pool->tree);
    if (block >= 0) tell_left(pool, block, PREFIX_NONE, reads);
    return block >= 0;
}

/* Blocks of the tree stay there, and the last one is let go of first: the first ones count as used
 * last. */
void release_blocks(struct session *session, bool pinned) {
    struct session_pool *pool = session->pool;
    struct block_list *list = &session->blocks;
    int block, end = PREFIX_NONE, tail = session->known % ATTENTION_BLOCK;
    bool whole = session->known > 0 && session->known == session->length && !session->cut &&
                 session->known <= session->found_rows,
         reads = session_reads(session);
    if (prefix_tree_keeps(&pool->tree) && whole)
        end = tail > 0 ? add_block(session, tail) : list->blocks[list->n - 1];
    release_state(session, end, tail > 0 ? tail : ATTENTION_BLOCK, pinned);
    while (list->n > 0) {
        list->n--;
        block = list->blocks[list->n];
        if (pinned && prefix_tree_has(&pool->tree, block)) prefix_tree_pin(&pool->tree, block);
        if (!prefix_tree_has(&pool->tree, block))
            free_block(pool, block, reads);
        else if (pool->tree.nodes[block].n == ATTENTION_BLOCK &&
                 prefix_tree_drop(&pool->tree, block))
            tell_left(pool, block, PREFIX_NONE, true);
    }
    while (prefix_tree_keeps(&pool->tree) && evict_block(pool)) continue;
    session->known = session->length = 0;
    session->address = session->origin;
    chunk_history_begin(&session->history, session->scope);
    wipe_states(pool);
    session->rereads = false;
    if (reads && session->open_read.size > 0)
        explicit_bzero(session->open_read.data, session->open_read.size);
    buffer_clear(&session->open_read);
}
