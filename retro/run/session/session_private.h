/* retro/run/session/session_private.h: the state of a session pool, for session*.c and step.c. */
#pragma once

#include "retro/run/cache/kv_cache.h"
#include "retro/run/cache/prefix_tree.h"
#include "retro/run/cache/state_cache.h"
#include "retro/run/session/plan.h"
#include "retro/run/session/session.h"

/* The kinds of rank 0's messages to the others; the bytes of the limits, the plan or the copy
 * follow. An empty message is the end. */
enum message {
    MESSAGE_OPEN,
    MESSAGE_STEP,
    MESSAGE_COPY,
    MESSAGE_STATE,
    MESSAGE_REPLAY,
    MESSAGE_WIPE,
    MESSAGE_WIPE_CHUNK,
    MESSAGE_PICTURES,
    MESSAGE_PICTURE_PASS,
    MESSAGE_CLOSE
};

/* A state that the present step writes, to be kept with the block that ends behind `rows` rows. */
struct promised_state {
    int rows;
    int32_t state;
};
enum { PROMISED_STATES = 4 };

/* A session of a model with states has this beside its rows (session_states.c). */
struct session_state {
    int32_t own; /* STATE_NONE before its first rows */
    int saved;   /* which of the saved rows are its drafts */
    int fork;    /* rows behind which an earlier text went on otherwise, in whole blocks; 0: none */
    struct promised_state promised[PROMISED_STATES];
    int n_promised;
    struct kept_state
        latest; /* of its prompt, which a later one replaces; state STATE_NONE: none */
};

struct session {
    struct session_pool *pool;
    struct grid grid;
    int length;
    int n_drafts;             /* of these rows the last ones, which are guesses (session_settle) */
    int shift;                /* of positions: a row's are its number and this */
    struct block_list blocks; /* of keys and values */
    int slot, slot_rows;      /* rows that cross attention reads: of the latest closed chunk, or the
                                 source; -1: none */
    int next_slot, next_slot_rows; /* the same of a chunk behind the present step */
    struct chunk_history history;  /* of its certain rows */
    uint32_t scope;                /* session_set_scope */
    bool open;
    bool cut;     /* its rows were never computed to the end */
    bool rereads; /* the latest closed chunk is to be encoded again */
    struct session_state state;
    /* For later sessions (session_prefix.c): its rows whose content is known, and of the block that
     * these do not fill yet the ids and the neighbours read, as in a prefix_node. */
    int known;
    int32_t open_ids[ATTENTION_BLOCK];
    struct buffer open_read;
    struct block_address origin, address; /* of no rows, and of the full blocks among these */
    struct buffer documents;              /* struct read_document each (session_read_document) */
    int found_rows; /* of its rows others may find these first ones: a document that later ones read
                       has gone; INT_MAX: all */
};

struct session_pool {
    struct model *model;
    struct session_limits limits;
    struct session_bytes bytes;
    struct session *sessions; /* [max_sessions] */
    int32_t *block_memory;    /* of all sessions' lists */
    int max_closings;

    struct scratch scratch;
    struct kv_cache cache;
    struct prefix_tree tree;    /* of the cache's blocks, on the rank that leads */
    struct state_cache states;  /* model NULL without states */
    int n_saved;                /* rows that the present step saves so far */
    struct cross_cache cross;   /* model NULL without cross attention */
    struct chunk_slots chunks;  /* of a model with neighbours, on the rank that leads */
    struct neighbors neighbors; /* model NULL without retro layers */
    struct sources sources;     /* model NULL without an encoder of sources */
    struct tensor given;        /* [max_given, model_given_columns] */
    struct tower *tower;        /* NULL where nothing is viewed, and on later stages */
    float *followed;            /* on ranks other than 0, the rows that are rank 0's to keep */
    void *head;
    struct tensor picked, logits; /* [max_logit_rows, d], [max_logit_rows, V] */
    struct tensor local_logits;   /* [max_logit_rows, V / ranks] */
    struct tensor shares;         /* [max_step_rows, 2 max_shares] */

    struct plan plan;
    struct buffer message;   /* to the other ranks */
    struct buffer documents; /* of documents_within */
    struct buffer verdict;   /* likewise, in the middle of a step: whether it was abandoned */
    struct cross_source source;

    struct session_watch watch;       /* functions NULL: nobody does */
    bool (*abandoned)(void *context); /* NULL: nobody asks */
    void *abandoned_context;
    bool cut; /* the present step was abandoned */
};

/* One rank's share of a pool; all ranks get theirs or none does. */
enum status session_pool_open_rank(struct session_pool **out, struct model *model,
                                   const struct session_limits *limits, struct error *e);
void session_pool_free_rank(struct session_pool *pool);

/* Rows [0, rows) of block `to` become those of `from`, on all ranks. */
enum status copy_block(struct session_pool *pool, int32_t from, int32_t to, int rows,
                       struct error *e);

/* All rows of the block become zeros, on all ranks; a failure is told by the next step. */
void wipe_block(struct session_pool *pool, int32_t block);

/* Rows of slots that documents which are gone may have left become zeros, on all ranks; a failure
 * is told by the next step. */
void wipe_chunks(struct session_pool *pool);

/* session_states.c */

/* The states that an item's rows go on from and leave, in the plan. */
void plan_states(struct session_pool *pool, const struct step_item *item, int first_row);
/* The block that ends behind so many rows of the session is in the tree: what was promised for it
 * is kept. */
void keep_promised(struct session *session, int block, int rows);
/* The session has no rows any more; where `block` is one and has its last `rows` rows, its state is
 * kept there, whatever comes where it is pinned. */
void release_state(struct session *session, int block, int rows, bool pinned);
/* The most rows of the text that can be taken over: those behind which a state is kept. *state is
 * that one. */
int find_state(struct session_pool *pool, const struct prefix_text *text, int *agreed,
               int32_t *state);
/* The session goes on from what this state is. */
void take_state(struct session *session, int32_t from);
/* The first n of the session's drafts become rows of its state. */
void replay_drafts(struct session *session, int n);
/* Free states that may come from documents become zeros, on all ranks; a failure is told by the
 * next step. */
void wipe_states(struct session_pool *pool);
/* Other ranks do the same. */
void follow_state(const struct session_pool *pool, struct text_span in);
void follow_replay(const struct session_pool *pool, struct text_span in);
/* The layers' states of a plan's rows. */
struct pass_states states_of(const struct session_pool *pool, int layer);

/* session_prefix.c */

/* A place in the tree: the block that holds the rows before `rows`. */
struct prefix_place {
    int block, rows;
};
/* The text as the tree looks for it, of a session that reads this slot's source. */
struct prefix_text tree_text(const struct session *session, const struct session_text *text,
                             int slot);

/* The session reads the text in this slot of the cross cache. */
void attach_source(struct session *session, int slot);
/* The last part of a step that was computed: its rows may be taken over by others from now on. */
void keep_rows(struct session_pool *pool, const struct step_item *items, int n);
/* The content of a session's next row that is computed: its id; of a given row its name, else NULL;
 * and when it closes a chunk, the neighbours. */
void learn_row(struct session *session, int32_t id, const struct row_name *name,
               const struct neighbor_tokens *neighbors);
/* Appends what row `row` of the text is computed from beside ids, as a prefix_node has it. */
void append_read(const struct session *session, const struct session_text *text, int row,
                 struct buffer *out);
/* The rows that the session's last block has, where the next row goes on. */
struct prefix_place session_place(const struct session *session);
/* Full blocks of the text that are kept become the session's next ones. */
void share_blocks(struct session *session, const struct prefix_text *text);

/* The text's rows [first, first + n) are the session's next known ones. */
void learn_text(struct session *session, const struct session_text *text, int first, int n);
/* The session's blocks are free, or kept; `pinned`: they stay whatever comes. */
void release_blocks(struct session *session, bool pinned);

/* session_blocks.c */

/* The block is free. Where `reads`, its rows may depend on documents, and are overwritten. */
void free_block(struct session_pool *pool, int32_t block, bool reads);
static inline bool session_reads(const struct session *session) {
    return session->documents.size > 0;
}
/* The documents that the first `rows` rows read, [*n]; valid until the next call. */
const struct read_document *documents_within(struct session_pool *pool,
                                             const struct session *session, int rows, int *n);
/* Rows of this block, which the tree has, are the session's, the last one before row `end`: it
 * reads what these have read. */
void inherit_documents(struct session *session, int block, int end);
/* The block with these rows is the session's next one in the tree: whoever watches is told. */
void tell_joined(struct session *session, int32_t block, const struct prefix_rows *rows);
/* A block has left the tree, and is free; `there` has its rows, or no block has (PREFIX_NONE). */
void tell_left(struct session_pool *pool, int32_t block, int there, bool reads);

/* Positions of a row: several for multimodal RoPE. */
static inline int sections_of(const struct session_pool *pool) {
    return max_int(1, pool->model->stacks[STACK_DECODER].dims.rope_sections);
}
/* Where a text goes on behind n rows of these positions: after the largest of the last row. */
int position_behind(const struct session_pool *pool, const int32_t *positions, int n);

/* Lays out pool->plan: the next rows of n sessions, which take the blocks and slots that they need.
 */
void plan_step(struct session_pool *pool, const struct step_item *items, int n);
/* The sessions of pool->plan move on. */
void plan_advance(struct session_pool *pool, const struct step_item *items, int n);
/* How many of the items one plan takes: all, or with stages as many as have
 * limits.micro_batch_rows, but one at least.
 */
int count_items(const struct session_pool *pool, const struct step_item *items, int n);
/* Where the rows of a plan go in the step's logits and shares. */
struct plan_place {
    int logits, rows;
};
/* Given rows of pool->plan: to the device, where a layer of this stage reads them; into scratch->x,
 * in place of a word of zeros or of all that a row is; and behind layer `layer` its columns of
 * them, added to the rows that they are. */
void step_upload_given(struct session_pool *pool);
void step_add_given(struct session_pool *pool, struct scratch *scratch);
void step_add_deepstack(struct session_pool *pool, struct scratch *scratch, int layer);
/* This rank's share of pool->plan. */
void run_plan(struct session_pool *pool, struct plan_place place);
/* This rank's share of the plans in `in`, one after the other. The logits are whole on the last
 * stage and on rank 0. */
struct tensor run_plans(struct session_pool *pool, struct text_span in);
