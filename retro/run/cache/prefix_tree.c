/* retro/run/cache/prefix_tree.c: blocks by what their rows were computed from. See prefix_tree.h.
 */
#include "retro/run/cache/prefix_tree.h"

#include <stdlib.h>
#include <string.h>

void prefix_tree_open(struct prefix_tree *tree, int n_blocks, int most, int r) {
    *tree = (struct prefix_tree){.n_blocks = n_blocks, .r = r, .most = most};
    tree->top = tree->oldest = tree->newest = PREFIX_NONE;
    if (most > 0) tree->nodes = xcalloc((size_t)n_blocks, sizeof *tree->nodes);
}

void prefix_tree_close(struct prefix_tree *tree) {
    if (tree->nodes == NULL) return;
    for (int i = 0; i < tree->n_blocks; i++) {
        free(tree->nodes[i].read);
        free(tree->nodes[i].documents);
    }
    free(tree->nodes);
}

/* The list of blocks that nobody holds, by when they were used last. */

static void list_append(struct prefix_tree *tree, int block) {
    struct prefix_node *node = &tree->nodes[block];
    node->older = tree->newest;
    node->newer = PREFIX_NONE;
    if (tree->newest >= 0)
        tree->nodes[tree->newest].newer = block;
    else
        tree->oldest = block;
    tree->newest = block;
}

static void list_remove(struct prefix_tree *tree, int block) {
    struct prefix_node *node = &tree->nodes[block];
    if (node->older >= 0)
        tree->nodes[node->older].newer = node->newer;
    else
        tree->oldest = node->newer;
    if (node->newer >= 0)
        tree->nodes[node->newer].older = node->older;
    else
        tree->newest = node->older;
}

static void node_keep(struct prefix_tree *tree, int block) {
    tree->n_kept++;
    if (!tree->nodes[block].pinned) list_append(tree, block);
}

void prefix_tree_hold(struct prefix_tree *tree, int block) {
    struct prefix_node *node = &tree->nodes[block];
    node->holders++;
    if (node->holders > 1) return;
    tree->n_kept--;
    if (!node->pinned) list_remove(tree, block);
}

void prefix_tree_pin(struct prefix_tree *tree, int block) {
    struct prefix_node *node = &tree->nodes[block];
    if (node->holders == 0 && !node->pinned) list_remove(tree, block);
    node->pinned = true;
}

/* Family. */

static int *children_of(struct prefix_tree *tree, int parent) {
    return parent >= 0 ? &tree->nodes[parent].child : &tree->top;
}

static void family_join(struct prefix_tree *tree, int block) {
    struct prefix_node *node = &tree->nodes[block];
    int *first = children_of(tree, node->parent);
    node->child = node->before = PREFIX_NONE;
    node->after = *first;
    if (*first >= 0) tree->nodes[*first].before = block;
    *first = block;
}

static void family_leave(struct prefix_tree *tree, int block) {
    struct prefix_node *node = &tree->nodes[block];
    CHECK(node->child < 0);
    if (node->before >= 0)
        tree->nodes[node->before].after = node->after;
    else
        *children_of(tree, node->parent) = node->after;
    if (node->after >= 0) tree->nodes[node->after].before = node->before;
}

/* The text may be a deleted document's, so that nothing of it stays in free memory. */
static void node_clear(struct prefix_node *node) {
    if (node->read) explicit_bzero(node->read, (size_t)node->n_read * sizeof *node->read);
    free(node->read);
    free(node->documents);
    explicit_bzero(node, sizeof *node);
}

/* A block that nobody holds. */
static void node_forget(struct prefix_tree *tree, int block) {
    struct prefix_node *node = &tree->nodes[block];
    list_remove(tree, block);
    family_leave(tree, block);
    tree->n_kept--;
    node_clear(node);
}

bool prefix_tree_drop(struct prefix_tree *tree, int block) {
    struct prefix_node *node = &tree->nodes[block];
    CHECK(node->holders > 0);
    node->holders--;
    if (node->holders > 0) return false;
    if (!node->gone) {
        node_keep(tree, block);
        return false;
    }
    family_leave(tree, block);
    node_clear(node);
    return true;
}

int prefix_tree_evict(struct prefix_tree *tree) {
    int block = tree->oldest;
    if (tree->n_kept <= tree->most || block < 0) return PREFIX_NONE;
    node_forget(tree, block);
    tree->evicted++;
    return block;
}

/* Finding. */

static struct prefix_rows rows_of(const struct prefix_node *node) {
    return (struct prefix_rows){node->root,   node->ids,       node->n,          node->read,
                                node->n_read, node->documents, node->n_documents};
}

/* Whether the node's chunk, which is at `read`, had the neighbours that the text has. *read moves
 * on behind it. */
static bool read_agrees(int r, const int32_t **read, const struct neighbor_tokens *wanted) {
    int k = **read;
    const int32_t *ids = *read + 1;
    size_t n = (size_t)k * (size_t)r;
    *read = ids + n;
    return k == wanted->k && (n == 0 || memcmp(ids, wanted->ids, n * sizeof *ids) == 0);
}

/* Whether the node's given row, whose name is at `read`, is the text's. */
static bool name_agrees(const int32_t **read, const struct row_name *names, int32_t id) {
    const int32_t *name = *read;
    *read = name + PREFIX_NAME_INTS;
    return names && memcmp(name, &names[-1 - id], sizeof *names) == 0;
}

/* Whether a session of the text's root may take over the node's rows. */
static bool root_agrees(const struct prefix_node *node, uint64_t root) {
    uint64_t base = root & (((uint64_t)1 << PREFIX_BASE_BITS) - 1);
    return node->root == root || (node->pinned && node->root == base);
}

int prefix_rows_agree(const struct prefix_rows *rows, int r, const struct prefix_text *text,
                      int first) {
    int most = min_int(rows->n, text->n - first), n = 0;
    const int32_t *read = rows->read;
    while (n < most && rows->ids[n] == text->ids[first + n]) {
        int row = first + n;
        if (rows->ids[n] < 0 && !name_agrees(&read, text->names, rows->ids[n])) break;
        if (r > 0 && grid_closes(text->grid, row) &&
            !read_agrees(r, &read, &text->neighbors[grid_read(text->grid, row)]))
            break;
        n++;
    }
    return n;
}

/* The same of a node, which a session of the text's root may take over. */
static int rows_agree(const struct prefix_tree *tree, const struct prefix_node *node,
                      const struct prefix_text *text, int first) {
    struct prefix_rows rows = rows_of(node);
    if (node->gone || !root_agrees(node, text->root)) return 0;
    return prefix_rows_agree(&rows, tree->r, text, first);
}

int prefix_tree_find(const struct prefix_tree *tree, int parent, const struct prefix_text *text,
                     int first, int *rows) {
    int best = PREFIX_NONE;
    *rows = 0;
    for (int block = parent >= 0 ? tree->nodes[parent].child : tree->top; block >= 0;
         block = tree->nodes[block].after) {
        int n = rows_agree(tree, &tree->nodes[block], text, first);
        if (n <= *rows) continue;
        *rows = n;
        best = block;
        if (n == ATTENTION_BLOCK) break;
    }
    return best;
}

/* Adding. */

/* Whether `part` is how `whole` begins. */
static bool rows_cover(const struct prefix_rows *whole, const struct prefix_rows *part) {
    if (part->root != whole->root || part->n > whole->n || part->n_read > whole->n_read)
        return false;
    if (memcmp(whole->ids, part->ids, (size_t)part->n * sizeof *part->ids) != 0) return false;
    return part->n_read == 0 ||
           memcmp(whole->read, part->read, (size_t)part->n_read * sizeof *part->read) == 0;
}

static bool node_names(const struct prefix_node *node, uint64_t document) {
    for (int i = 0; i < node->n_documents; i++)
        if (node->documents[i].document == document) return true;
    return false;
}

/* The operator's own texts stay, whatever they are equal to. */
static void node_note(struct prefix_node *node, const struct read_document *documents, int n) {
    for (int i = 0; i < n && !node->pinned; i++) {
        if (node_names(node, documents[i].document)) continue;
        node->documents =
            xrealloc(node->documents, ((size_t)node->n_documents + 1) * sizeof *node->documents);
        node->documents[node->n_documents] = documents[i];
        node->n_documents++;
    }
}

static void node_insert(struct prefix_tree *tree, int block, int parent,
                        const struct prefix_rows *rows) {
    struct prefix_node *node = &tree->nodes[block];
    size_t n_read = (size_t)rows->n_read;
    CHECK(node->n == 0);
    *node = (struct prefix_node){
        .root = rows->root, .n = rows->n, .n_read = rows->n_read, .parent = parent};
    memcpy(node->ids, rows->ids, (size_t)rows->n * sizeof *node->ids);
    if (n_read > 0) {
        node->read = xmalloc(n_read * sizeof *node->read);
        memcpy(node->read, rows->read, n_read * sizeof *node->read);
    }
    node_note(node, rows->documents, rows->n_documents);
    family_join(tree, block);
    node->holders = rows->n == ATTENTION_BLOCK;
    if (node->holders == 0) node_keep(tree, block);
}

/* Two blocks with one beginning cannot both be there unless one is pinned, so at most one has fewer
 * of the new rows and leaves. */
int prefix_tree_add(struct prefix_tree *tree, int block, int parent, const struct prefix_rows *rows,
                    int *freed) {
    struct read_document *documents = NULL;
    int next, n_documents = 0;
    *freed = PREFIX_NONE;
    for (int other = *children_of(tree, parent); other >= 0 && *freed < 0; other = next) {
        struct prefix_rows there = rows_of(&tree->nodes[other]);
        next = tree->nodes[other].after;
        if (tree->nodes[other].gone) continue;
        if (rows_cover(&there, rows)) {
            node_note(&tree->nodes[other], rows->documents, rows->n_documents);
            if (rows->n == ATTENTION_BLOCK) prefix_tree_hold(tree, other);
            return other;
        }
        if (tree->nodes[other].pinned || !rows_cover(rows, &there)) continue;
        documents = tree->nodes[other].documents;
        n_documents = tree->nodes[other].n_documents;
        tree->nodes[other].documents = NULL;
        node_forget(tree, other);
        *freed = other;
    }
    node_insert(tree, block, parent, rows);
    node_note(&tree->nodes[block], documents, n_documents);
    free(documents);
    return block;
}

/* Forgetting. */

/* The next node behind `block` and before the nodes behind it. */
static int next_node(const struct prefix_tree *tree, int block) {
    if (tree->nodes[block].child >= 0) return tree->nodes[block].child;
    while (block >= 0 && tree->nodes[block].after < 0) block = tree->nodes[block].parent;
    return block >= 0 ? tree->nodes[block].after : PREFIX_NONE;
}

static bool names_any(const struct prefix_node *node, const uint64_t *documents, int n) {
    for (int i = 0; i < n; i++)
        if (node_names(node, documents[i])) return true;
    return false;
}

/* Removes `block` where nobody holds it, then its parents which have no other children. */
static int remove_gone(struct prefix_tree *tree, int block, int *freed) {
    int n = 0;
    while (block >= 0 && tree->nodes[block].gone && tree->nodes[block].child < 0 &&
           tree->nodes[block].holders == 0) {
        int parent = tree->nodes[block].parent;
        node_forget(tree, block);
        freed[n] = block;
        n++;
        block = parent;
    }
    return n;
}

int prefix_tree_forget(struct prefix_tree *tree, const uint64_t *documents, int n, int *freed) {
    int n_freed = 0;
    for (int block = tree->top; block >= 0; block = next_node(tree, block)) {
        struct prefix_node *node = &tree->nodes[block];
        bool behind = node->parent >= 0 && tree->nodes[node->parent].gone;
        node->gone = !node->pinned && (node->gone || behind || names_any(node, documents, n));
    }
    for (int block = 0; block < tree->n_blocks; block++)
        n_freed += remove_gone(tree, block, freed + n_freed);
    return n_freed;
}
