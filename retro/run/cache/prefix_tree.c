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
    for (int i = 0; i < tree->n_blocks; i++) free(tree->nodes[i].read);
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

void prefix_tree_drop(struct prefix_tree *tree, int block) {
    struct prefix_node *node = &tree->nodes[block];
    CHECK(node->holders > 0);
    node->holders--;
    if (node->holders == 0) node_keep(tree, block);
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

/* A block that nobody holds. */
static void node_forget(struct prefix_tree *tree, int block) {
    struct prefix_node *node = &tree->nodes[block];
    list_remove(tree, block);
    family_leave(tree, block);
    tree->n_kept--;
    free(node->read);
    *node = (struct prefix_node){0};
}

int prefix_tree_evict(struct prefix_tree *tree) {
    int block = tree->oldest;
    if (tree->n_kept <= tree->most || block < 0) return PREFIX_NONE;
    node_forget(tree, block);
    tree->evicted++;
    return block;
}

/* Finding. */

/* Whether the node's chunk, which is at `read`, had the neighbours that the text has. *read moves
 * on behind it. */
static bool read_agrees(const struct prefix_tree *tree, const int32_t **read,
                        const struct neighbor_tokens *wanted) {
    int k = **read;
    const int32_t *ids = *read + 1;
    size_t n = (size_t)k * (size_t)tree->r;
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

/* The rows from `first` on in which the node and the text agree. */
static int rows_agree(const struct prefix_tree *tree, const struct prefix_node *node,
                      const struct prefix_text *text, int first) {
    int most = min_int(node->n, text->n - first), n = 0;
    const int32_t *read = node->read;
    if (!root_agrees(node, text->root)) return 0;
    while (n < most && node->ids[n] == text->ids[first + n]) {
        int row = first + n;
        if (node->ids[n] < 0 && !name_agrees(&read, text->names, node->ids[n])) break;
        if (tree->r > 0 && grid_closes(text->grid, row) &&
            !read_agrees(tree, &read, &text->neighbors[grid_read(text->grid, row)]))
            break;
        n++;
    }
    return n;
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

static struct prefix_rows rows_of(const struct prefix_node *node) {
    return (struct prefix_rows){node->root, node->ids, node->n, node->read, node->n_read};
}

/* Whether `part` is how `whole` begins. */
static bool rows_cover(const struct prefix_rows *whole, const struct prefix_rows *part) {
    if (part->root != whole->root || part->n > whole->n || part->n_read > whole->n_read)
        return false;
    if (memcmp(whole->ids, part->ids, (size_t)part->n * sizeof *part->ids) != 0) return false;
    return part->n_read == 0 ||
           memcmp(whole->read, part->read, (size_t)part->n_read * sizeof *part->read) == 0;
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
    family_join(tree, block);
    node->holders = rows->n == ATTENTION_BLOCK;
    if (node->holders == 0) node_keep(tree, block);
}

/* Two blocks with one beginning cannot both be there unless one is pinned, so at most one has fewer
 * of the new rows and leaves. */
int prefix_tree_add(struct prefix_tree *tree, int block, int parent, const struct prefix_rows *rows,
                    int *freed) {
    int next;
    *freed = PREFIX_NONE;
    for (int other = *children_of(tree, parent); other >= 0 && *freed < 0; other = next) {
        struct prefix_rows there = rows_of(&tree->nodes[other]);
        next = tree->nodes[other].after;
        if (rows_cover(&there, rows)) {
            if (rows->n == ATTENTION_BLOCK) prefix_tree_hold(tree, other);
            return other;
        }
        if (tree->nodes[other].pinned || !rows_cover(rows, &there)) continue;
        node_forget(tree, other);
        *freed = other;
    }
    node_insert(tree, block, parent, rows);
    return block;
}
