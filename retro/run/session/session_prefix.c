/* retro/run/session/session_prefix.c: rows that sessions take over from earlier ones, and leave to later ones.
 * prefix_tree.h knows which blocks have which rows; session.h says what is promised. */
#include <string.h>

#include "retro/run/session/session_private.h"

static bool reads_neighbors(const struct session_pool *p) { return p->model->spec.retro.n_layers > 0; }

void attach_source(struct session *s, int slot) {
    struct sources *sources = &s->pool->sources;
    sources_hold(sources, slot);
    s->slot = slot;
    s->slot_rows = sources->texts[slot].n;
}

/* All rows of a session depend on this beside the ids: the grid where neighbours are read, or the encoder's source. A
 * source that is encoded again has another number; the rows that read it before are then not found. */
static uint64_t base_of(const struct session_pool *p, struct grid grid, int slot) {
    if (p->sources.model) return slot >= 0 ? p->sources.texts[slot].number : 0;
    return reads_neighbors(p) ? (uint64_t)grid.f : 0;
}

static uint64_t root_of(const struct session *s, int slot) {
    uint64_t base = base_of(s->pool, s->grid, slot);
    CHECK(base < (uint64_t)1 << PREFIX_BASE_BITS && s->scope < (uint64_t)1 << (64 - PREFIX_BASE_BITS));
    return (uint64_t)s->scope << PREFIX_BASE_BITS | base;
}

/* Finding. */

/* A place in the tree: the block that holds the rows before `rows`. */
struct prefix_place {
    int block, rows;
};

static struct prefix_text tree_text(const struct session *s, const struct session_text *text, int slot) {
    return (struct prefix_text){.root = root_of(s, slot),
                                .grid = s->grid,
                                .ids = text->ids,
                                .names = text->names,
                                .neighbors = text->neighbors,
                                .n = text->n};
}

/* Moves on by one full block of the text. */
static bool find_next(const struct prefix_tree *t, const struct prefix_text *text, struct prefix_place *at) {
    int rows, block = prefix_tree_find(t, at->block, text, at->rows, &rows);
    if (block < 0 || rows < ATTENTION_BLOCK) return false;
    *at = (struct prefix_place){block, at->rows + ATTENTION_BLOCK};
    return true;
}

/* The slot that has the text's source; -1 also of models without. */
static int find_source(const struct session *s, const struct session_text *text) {
    const struct sources *sources = &s->pool->sources;
    return sources->model ? sources_find(sources, s->scope, text->source, text->n_source) : -1;
}

int session_find(const struct session *s, const struct session_text *text) {
    const struct session_pool *p = s->pool;
    struct prefix_place at = {PREFIX_NONE, 0};
    int slot = find_source(s, text);
    if (!prefix_tree_keeps(&p->tree) || (p->sources.model && slot < 0)) return 0;
    struct prefix_text wanted = tree_text(s, text, slot);
    while (find_next(&p->tree, &wanted, &at)) continue;
    return at.rows;
}

/* Taking over. */

/* Row `row` has id `id`, and where that is a given row's, this name; when it closes a chunk, these neighbours. */
static void note_row(struct session *s, int row, int32_t id, const struct row_name *name,
                     const struct neighbor_tokens *neighbors) {
    s->open_ids[row % ATTENTION_BLOCK] = id;
    if (name) buffer_append(&s->open_read, name, sizeof *name);
    if (neighbors == NULL) return;
    int32_t k = neighbors->k;
    buffer_append(&s->open_read, &k, sizeof k);
    buffer_append(&s->open_read, neighbors->ids, (size_t)k * (size_t)s->pool->tree.r * sizeof *neighbors->ids);
}

/* The name of the row with this id; NULL when the id is a token's. */
static const struct row_name *name_of(const struct row_name *names, int32_t id) {
    return id < 0 ? &names[-1 - id] : NULL;
}

/* The neighbours that `row` reads first, of a list that begins with chunk `first`; NULL when it closes no chunk. */
static const struct neighbor_tokens *closed_by(const struct session *s, int row, const struct neighbor_tokens *list,
                                               int first) {
    if (!reads_neighbors(s->pool) || !grid_closes(s->grid, row)) return NULL;
    return &list[grid_read(s->grid, row) - first];
}

static void share_blocks(struct session *s, const struct prefix_text *text) {
    struct prefix_tree *t = &s->pool->tree;
    struct prefix_place at = {PREFIX_NONE, 0};
    while (find_next(t, text, &at)) {
        prefix_tree_hold(t, at.block);
        s->blocks.blocks[s->blocks.n] = at.block;
        s->blocks.n++;
        s->length = at.rows;
    }
}

/* The rows of a block that begins like the rest of the text become the session's first own ones. */
static void copy_beginning(struct session *s, const struct prefix_text *text) {
    struct session_pool *p = s->pool;
    struct error e;
    int parent = s->blocks.n > 0 ? s->blocks.blocks[s->blocks.n - 1] : PREFIX_NONE, first = s->length, rows;
    int from = prefix_tree_find(&p->tree, parent, text, first, &rows);
    if (from < 0) return;
    kv_cache_extend(&p->cache, &s->blocks, first + rows);
    if (copy_block(p, from, s->blocks.blocks[s->blocks.n - 1], rows, &e)) return; /* the next step fails, too */
    for (int row = first; row < first + rows; row++)
        note_row(s, row, text->ids[row], name_of(text->names, text->ids[row]), closed_by(s, row, text->neighbors, 0));
    s->length += rows;
}

int session_reuse(struct session *s, const struct session_text *text) {
    struct session_pool *p = s->pool;
    CHECK(s->length == 0 && s->blocks.n == 0 && text->n <= p->limits.max_tokens);
    int slot = find_source(s, text);
    if (!prefix_tree_keeps(&p->tree) || (p->sources.model && slot < 0)) return 0;
    if (p->sources.model) attach_source(s, slot);

    struct prefix_text wanted = tree_text(s, text, slot);
    share_blocks(s, &wanted);
    copy_beginning(s, &wanted);
    if (text->positions && s->length > 0) s->shift = position_behind(p, text->positions, s->length) - s->length;
    s->known = s->length;
    s->rereads = reads_neighbors(p) && grid_complete(s->grid, s->length) > 0;
    return s->length + (p->sources.model ? text->n_source : 0);
}

/* Leaving. */

static struct prefix_rows open_rows(const struct session *s, int n) {
    return (struct prefix_rows){.root = root_of(s, s->slot),
                                .ids = s->open_ids,
                                .n = n,
                                .read = (const int32_t *)(const void *)s->open_read.data,
                                .n_read = (int)(s->open_read.size / sizeof(int32_t))};
}

/* The block of the last n known rows goes into the tree. */
static void add_block(struct session *s, int n) {
    struct session_pool *p = s->pool;
    int last = blocks_of(s->known) - 1, parent = last > 0 ? s->blocks.blocks[last - 1] : PREFIX_NONE, freed;
    int32_t own = s->blocks.blocks[last];
    struct prefix_rows rows = open_rows(s, n);
    int there = prefix_tree_add(&p->tree, own, parent, &rows, &freed);
    if (freed >= 0) kv_cache_free(&p->cache, freed);
    buffer_clear(&s->open_read);
    if (there == own || n < ATTENTION_BLOCK) return;
    kv_cache_free(&p->cache, own); /* another session was faster: the same rows, bit by bit */
    s->blocks.blocks[last] = there;
}

void learn_row(struct session *s, int32_t id, const struct row_name *name, const struct neighbor_tokens *neighbors) {
    note_row(s, s->known, id, name, neighbors);
    s->known++;
    if (s->known % ATTENTION_BLOCK == 0) add_block(s, ATTENTION_BLOCK);
}

static void keep_item(struct session_pool *p, const struct step_item *item) {
    struct session *s = item->session;
    int before = s->length - item->n_tokens, first = 0;
    if (reads_neighbors(p)) first = grid_complete(s->grid, before) - s->rereads; /* whose neighbours are item's first */
    s->rereads = false;
    if (s->known < before || item->tokens == NULL) return; /* given rows have no ids to be found by */
    for (int i = 0; i < item->n_tokens; i++) {
        int32_t id = item->tokens[i];
        if (id < 0 && item->names == NULL) return;
        learn_row(s, id, name_of(item->names, id), closed_by(s, before + i, item->neighbors, first));
    }
}

void keep_rows(struct session_pool *p, const struct step_item *items, int n) {
    for (int i = 0; i < n && prefix_tree_keeps(&p->tree); i++) keep_item(p, &items[i]);
}

/* Blocks of the tree stay there, and the last one is let go of first: the first ones count as used last. */
void release_blocks(struct session *s, bool pinned) {
    struct session_pool *p = s->pool;
    struct block_list *l = &s->blocks;
    int block, tail = s->known % ATTENTION_BLOCK;
    bool whole = s->known == s->length && !s->cut;
    if (prefix_tree_keeps(&p->tree) && whole && tail > 0) add_block(s, tail);
    while (l->n > 0) {
        l->n--;
        block = l->blocks[l->n];
        if (pinned && prefix_tree_has(&p->tree, block)) prefix_tree_pin(&p->tree, block);
        if (!prefix_tree_has(&p->tree, block))
            kv_cache_free(&p->cache, block);
        else if (p->tree.nodes[block].n == ATTENTION_BLOCK)
            prefix_tree_drop(&p->tree, block);
    }
    while (prefix_tree_keeps(&p->tree) && (block = prefix_tree_evict(&p->tree)) >= 0) kv_cache_free(&p->cache, block);
    s->known = 0;
    s->rereads = false;
    buffer_clear(&s->open_read);
}
