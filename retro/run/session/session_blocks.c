/* retro/run/session/session_blocks.c: blocks that outlive the process, and documents whose rows
 * must not. See session.h. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "retro/run/session/session_private.h"

/* Watching. */

void session_pool_watch_blocks(struct session_pool *pool, const struct session_watch *watch) {
    pool->watch = *watch;
}

void session_set_origin(struct session *session, const struct block_address *origin) {
    CHECK(session->length == 0);
    session->origin = session->address = *origin;
}

static uint64_t base_bits(uint64_t root) { return root & (((uint64_t)1 << PREFIX_BASE_BITS) - 1); }

void tell_joined(struct session *session, int32_t block, const struct prefix_rows *rows) {
    struct session_pool *pool = session->pool;
    if (pool->watch.joined == NULL) return;
    const struct prefix_node *nodes = pool->tree.nodes;
    int parent = nodes[block].parent;
    struct session_block told = {.block = block,
                                 .before = session->address,
                                 .base = base_bits(rows->root),
                                 .ids = rows->ids,
                                 .read = rows->read,
                                 .n = rows->n,
                                 .n_read = rows->n_read,
                                 .documents = rows->documents,
                                 .n_documents = rows->n_documents,
                                 .behind = parent != PREFIX_NONE && !nodes[parent].pinned};
    if (!nodes[block].pinned) pool->watch.joined(pool->watch.context, &told);
    if (rows->n < ATTENTION_BLOCK) return;
    block_file_address(&(struct block_file){.before = told.before,
                                            .base = told.base,
                                            .ids = told.ids,
                                            .n = told.n,
                                            .read = told.read,
                                            .n_read = told.n_read},
                       &session->address);
}

void free_block(struct session_pool *pool, int32_t block, bool reads) {
    if (reads) wipe_block(pool, block);
    kv_cache_free(&pool->cache, block);
}

void tell_left(struct session_pool *pool, int32_t block, int there, bool reads) {
    if (pool->watch.left) pool->watch.left(pool->watch.context, block);
    state_cache_leave(&pool->states, block, there);
    free_block(pool, block, reads);
}

/* Blocks as bytes. */

enum status session_model_has_blocks(const struct model *model, struct error *e) {
    const struct dims *dims = &model_decoder(model)->dims;
    if (dims->reads == EDGE_SOURCE)
        return error_set(e, STATUS_UNSUPPORTED, "a %s model reads an encoder's text",
                         model->info.family);
    if (dims->state.kernel > 0)
        return error_set(e, STATUS_UNSUPPORTED,
                         "a %s model has states beside its rows, and files have rows alone",
                         model->info.family);
    return STATUS_OK;
}

enum status session_pool_has_blocks(const struct session_pool *pool, struct error *e) {
    const struct model *model = pool->model;
    if (model->comm->world->size > 1)
        return error_set(e, STATUS_UNSUPPORTED, "the model is on %d ranks",
                         model->comm->world->size);
    if (strcmp(model->backend->ops->name, "cpu") != 0)
        return error_set(e, STATUS_UNSUPPORTED, "the rows are in the memory of %s",
                         backend_describe(model->backend));
    if (session_model_has_blocks(model, e)) return e->status;
    if (!prefix_tree_keeps(&pool->tree))
        return error_set(e, STATUS_UNSUPPORTED, "no rows are kept in memory");
    return STATUS_OK;
}

size_t session_block_bytes(const struct session_pool *pool, int rows) {
    return kv_cache_image_bytes(&pool->cache, rows);
}

void session_block_get(const struct session_pool *pool, int32_t block, int rows, char *image) {
    kv_cache_get(&pool->cache, block, rows, image);
}

/* Those of the n documents that rows before `end` read. */
static void take_documents(struct session *session, const struct read_document *documents, int n,
                           int end) {
    for (int i = 0; i < n; i++)
        if (documents[i].row < end)
            session_read_document(session, documents[i].document, documents[i].row);
}

/* Loading. */

struct block_address session_address(const struct session *session) {
    return session->address;
}

uint64_t session_base(const struct session *session) {
    struct session_text none = {0};
    return base_bits(tree_text(session, &none, session->slot).root);
}

int session_share(struct session *session, const struct session_text *text) {
    struct prefix_text wanted = tree_text(session, text, session->slot);
    if (session->length % ATTENTION_BLOCK == 0) share_blocks(session, &wanted);
    return session->length;
}

int session_find_more(const struct session *session, const struct session_text *text) {
    const struct prefix_tree *tree = &session->pool->tree;
    struct prefix_text wanted = tree_text(session, text, session->slot);
    struct prefix_place at = session_place(session);
    int rows = 0, more = 0;
    do {
        at.block = prefix_tree_find(tree, at.block, &wanted, at.rows + more, &rows);
        more += rows;
    } while (rows == ATTENTION_BLOCK);
    return more;
}

bool session_block_address(const struct session *session, const struct session_text *text,
                           const struct block_address *before, int first,
                           struct block_address *address) {
    struct buffer read = {0};
    if (text->n - first < ATTENTION_BLOCK) return false;
    for (int row = first; row < first + ATTENTION_BLOCK; row++)
        append_read(session, text, row, &read);
    block_file_address(&(struct block_file){.before = *before,
                                            .base = session_base(session),
                                            .ids = text->ids + first,
                                            .n = ATTENTION_BLOCK,
                                            .read = (const int32_t *)(const void *)read.data,
                                            .n_read = (int)(read.size / sizeof(int32_t))},
                       address);
    buffer_free(&read);
    return true;
}

int session_agrees(const struct session *session, const struct session_text *text, int first,
                   const int32_t *ids, int n, const int32_t *read) {
    struct prefix_text wanted = tree_text(session, text, session->slot);
    struct prefix_rows rows = {.ids = ids, .n = n, .read = read};
    return prefix_rows_agree(&rows, session->pool->tree.r, &wanted, first);
}

bool session_is_found(const struct session *session, int rows) {
    return session->known == session->length && session->length + rows <= session->found_rows;
}

void session_load_block(struct session *session, const struct session_text *text,
                        const struct loaded_block *loaded) {
    struct session_pool *pool = session->pool;
    int first = session->length;
    CHECK(session_is_found(session, loaded->rows) && first % ATTENTION_BLOCK == 0 &&
          loaded->rows <= loaded->n && first + loaded->rows <= text->n);
    kv_cache_extend(&pool->cache, &session->blocks, first + loaded->rows);
    kv_cache_put(&pool->cache, session->blocks.blocks[session->blocks.n - 1], loaded->rows,
                 loaded->image, loaded->n);
    session->length += loaded->rows;
    if (loaded->rows == ATTENTION_BLOCK) /* else it is a copy, as of a block in memory */
        take_documents(session, loaded->documents, loaded->n_documents, session->length);
    learn_text(session, text, first, loaded->rows);
}

/* Documents. */

static const struct read_document *documents_of(const struct session *session, int *n) {
    *n = (int)(session->documents.size / sizeof(struct read_document));
    return (const struct read_document *)(const void *)session->documents.data;
}

void session_read_document(struct session *session, uint64_t document, int row) {
    int n;
    struct read_document *list = (struct read_document *)(uintptr_t)documents_of(session, &n);
    for (int i = 0; i < n; i++) {
        if (list[i].document != document) continue;
        list[i].row = min_int(list[i].row, row);
        return;
    }
    struct read_document read = {.document = document, .row = row};
    buffer_append(&session->documents, &read, sizeof read);
}

void session_move_documents(struct session *session, int row) {
    int n;
    struct read_document *list = (struct read_document *)(uintptr_t)documents_of(session, &n);
    for (int i = 0; i < n; i++) list[i].row = row;
    if (session->found_rows < INT_MAX) session->found_rows = min_int(session->found_rows, row);
}

const struct read_document *documents_within(struct session_pool *pool,
                                             const struct session *session, int rows, int *n) {
    int n_all;
    const struct read_document *list = documents_of(session, &n_all);
    buffer_clear(&pool->documents);
    for (int i = 0; i < n_all; i++)
        if (list[i].row < rows) buffer_append(&pool->documents, &list[i], sizeof list[i]);
    *n = (int)(pool->documents.size / sizeof *list);
    return (const struct read_document *)(const void *)pool->documents.data;
}

void inherit_documents(struct session *session, int block, int end) {
    const struct prefix_node *node = &session->pool->tree.nodes[block];
    take_documents(session, node->documents, node->n_documents, end);
}

/* The first row of the session that reads one of these documents; INT_MAX: none does. */
static int find_reading(const struct session *session, const uint64_t *documents, int n) {
    int n_read, first = INT_MAX;
    const struct read_document *list = documents_of(session, &n_read);
    for (int i = 0; i < n_read; i++)
        for (int j = 0; j < n; j++)
            if (list[i].document == documents[j]) first = min_int(first, list[i].row);
    return first;
}

/* The first row of the session in a block that is gone; INT_MAX: none is. */
static int find_gone(const struct session *session) {
    const struct prefix_tree *tree = &session->pool->tree;
    for (int i = 0; i < session->blocks.n; i++) {
        int32_t block = session->blocks.blocks[i];
        if (prefix_tree_has(tree, block) && tree->nodes[block].gone) return i * ATTENTION_BLOCK;
    }
    return INT_MAX;
}

void session_pool_forget(struct session_pool *pool, const uint64_t *documents, int n) {
    if (prefix_tree_keeps(&pool->tree)) {
        int *freed = xmalloc((size_t)pool->tree.n_blocks * sizeof *freed);
        int n_freed = prefix_tree_forget(&pool->tree, documents, n, freed);
        for (int i = 0; i < n_freed; i++) tell_left(pool, freed[i], PREFIX_NONE, true);
        free(freed);
        wipe_states(pool);
    }
    chunk_slots_forget(&pool->chunks, documents, n);
    wipe_chunks(pool);
    for (int i = 0; i < pool->limits.max_sessions; i++) {
        struct session *session = &pool->sessions[i];
        if (!session->open) continue;
        session->found_rows = min_int(session->found_rows, find_reading(session, documents, n));
        session->found_rows = min_int(session->found_rows, find_gone(session));
    }
}

void session_documents(const struct session *session, document_key_taker *take, void *context) {
    int n;
    const struct read_document *list = documents_of(session, &n);
    for (int i = 0; i < n; i++) take(context, list[i].document);
}

void session_pool_documents(const struct session_pool *pool, document_key_taker *take,
                            void *context) {
    for (int i = 0; prefix_tree_keeps(&pool->tree) && i < pool->tree.n_blocks; i++)
        for (int j = 0; j < pool->tree.nodes[i].n_documents; j++)
            take(context, pool->tree.nodes[i].documents[j].document);
    chunk_slots_documents(&pool->chunks, take, context);
    for (int i = 0; i < pool->limits.max_sessions; i++)
        if (pool->sessions[i].open) session_documents(&pool->sessions[i], take, context);
}
