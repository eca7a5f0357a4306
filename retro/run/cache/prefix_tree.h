/* retro/run/cache/prefix_tree.h: which blocks of keys and values hold the rows of which text, so
 * that a later sequence takes them over instead of computing them. Pure bookkeeping: it knows the
 * numbers of blocks and no device.
 *
 * A block is a node, and its parent holds the rows before its own: the path from the top to a node
 * is a text. A node has the ids of its rows and everything else that the rows were computed from:
 * the names of given rows, the neighbours of the chunks that they close, and `root` (the scope of
 * its session, and the chunk grid or the encoder's source). All of it is compared, no hash stands
 * for any. The model is the pool's only one. A full block is shared and never written again. A
 * block with fewer rows was the end of a sequence; its rows are copied, and it has no children.
 *
 * Sequences hold the blocks of their tables. Blocks that nobody holds are kept, `most` of them; the
 * least recently used goes first, and since a sequence lets go of its last block first, a parent
 * never goes before its children. */
#pragma once

#include "kernels/backend.h"
#include "retro/model/grid.h"
#include "retro/run/cache/session_text.h"

enum { PREFIX_NONE = -1 };
/* A root is a scope above so many bits of what rows were computed from. Pinned nodes of scope 0 are
 * for all scopes. */
enum { PREFIX_BASE_BITS = 40 };
/* A name among what a node's rows were computed from. */
enum { PREFIX_NAME_INTS = sizeof(struct row_name) / sizeof(int32_t) };

struct prefix_node {
    uint64_t root;
    int32_t ids[ATTENTION_BLOCK];
    int n; /* rows; 0: the block is not in the tree */
    /* [n_read] owned, row by row: of a given one its name; of one that closes a chunk k, then
     * neighbours' ids [k, r] */
    int32_t *read;
    int n_read;
    /* [n_documents] owned: documents whose text these rows or rows before them were computed from
     */
    struct read_document *documents;
    int n_documents;
    int parent, child, before,
        after; /* blocks: `child` the newest, before and after it its siblings */
    int holders;
    bool pinned;      /* stays when nobody holds it */
    bool gone;        /* a document of its is gone: nobody finds it, and the last holder frees it */
    int older, newer; /* among those that nobody holds and that are not pinned */
};

struct prefix_tree {
    struct prefix_node *nodes; /* [n_blocks]; NULL: nothing is kept */
    int n_blocks, r;           /* r: ids of a neighbour, 0 for a model without */
    int top;                   /* the newest node without a parent */
    int oldest, newest;
    int n_kept, most; /* nodes that nobody holds, pinned ones too */
    int64_t evicted;  /* so far */
};

/* A text whose rows are looked for, or put in. */
struct prefix_text {
    uint64_t root;
    struct grid grid;             /* of a model with neighbours */
    const int32_t *ids;           /* [n] from row 0 on */
    const struct row_name *names; /* as session_text has them */
    const struct neighbor_tokens
        *neighbors; /* of the chunks that these rows close, from chunk 0 on */
    int n;
};

/* `most` 0: nothing is ever kept, and the functions below may not be called. */
void prefix_tree_open(struct prefix_tree *tree, int n_blocks, int most, int r);
void prefix_tree_close(struct prefix_tree *tree);
static inline bool prefix_tree_keeps(const struct prefix_tree *tree) { return tree->nodes != NULL; }
static inline bool prefix_tree_has(const struct prefix_tree *tree, int block) {
    return tree->nodes && tree->nodes[block].n > 0;
}

/* The child of `parent` (PREFIX_NONE: the top) that agrees with the text in the most rows from
 * `first` on, which is where the parent's rows end. *rows says in how many; PREFIX_NONE when in
 * none. */
int prefix_tree_find(const struct prefix_tree *tree, int parent, const struct prefix_text *text,
                     int first, int *rows);

/* The rows of one block, and what they were computed from beside the rows before them. */
struct prefix_rows {
    uint64_t root;
    const int32_t *ids;
    int n;
    const int32_t *read; /* [n_read] as a node's */
    int n_read;
    const struct read_document *documents; /* [n_documents] */
    int n_documents;
};
/* How many rows of the text from `first` on these are; the root is not looked at. `r` as the
 * tree's. */
int prefix_rows_agree(const struct prefix_rows *rows, int r, const struct prefix_text *text,
                      int first);

/* Puts the block in behind `parent`, held by one sequence when it is full, by none otherwise.
 * Returns the block that has the rows: another one where they are in the tree already, all or more
 * of them; it then has one holder more when the rows are a full block, and `block` stays outside.
 * It has the documents of both.
 * *freed is a block with fewer of the same rows, which has left the tree, or PREFIX_NONE. */
int prefix_tree_add(struct prefix_tree *tree, int block, int parent, const struct prefix_rows *rows,
                    int *freed);
/* A sequence has the block in its table, or has it no more. */
void prefix_tree_hold(struct prefix_tree *tree, int block);
/* True: that was the last holder of a block that is gone, which then is not in the tree. */
bool prefix_tree_drop(struct prefix_tree *tree, int block);
/* The block stays when nobody holds it; fewer than `most` are pinned. */
void prefix_tree_pin(struct prefix_tree *tree, int block);
/* The least recently used block where more than `most` are kept, which then is not in the tree;
 * else PREFIX_NONE. */
int prefix_tree_evict(struct prefix_tree *tree);
/* Blocks with rows of these documents, and all behind them, are gone. Those that nobody holds leave
 * the tree at once, into freed [n_blocks]; returns how many. */
int prefix_tree_forget(struct prefix_tree *tree, const uint64_t *documents, int n, int *freed);
