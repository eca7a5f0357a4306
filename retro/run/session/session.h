/* retro/run/session/session.h: sequences being written. A pool owns the key/value cache and the
 * scratch of one model; a session is one sequence's mutable timeline in it. One thread at a time
 * may call these functions for one pool.
 *
 * The unit of work is a batch step: session_step runs one forward over any mix of sessions, each
 * with one or many new rows (prompt rows, or the one token it drew). When a session's rows close a
 * chunk, the step brings that chunk's neighbours; the closing row already reads them (grid.h). The
 * logits of a session are bitwise the same alone or in any mix, and however its rows are split into
 * steps.
 *
 * Over several ranks (kernels/comm/comm.h), rank 0 calls these functions as if it were alone, one
 * pool at a time, and every other rank calls session_follow, which does its share of what rank 0
 * does. Rank 0 has the logits. */
#pragma once

#include "retro/model/model.h"
#include "retro/run/cache/block_file.h"
#include "retro/run/cache/session_limits.h"
#include "retro/run/cache/session_text.h"
#include "retro/run/tower/tower.h"

struct session_pool;
struct session;

/* The bytes that a pool takes of a rank's device. */
struct session_bytes {
    size_t cache;  /* keys and values: max_sessions times max_tokens */
    size_t states; /* states: max_sessions, and what max_draft_rows save */
    size_t kept;   /* keys and values of kept_blocks, and kept_states */
    size_t cross;  /* those of neighbours or sources, and their encoder: max_neighbors, max_source,
                      max_sessions */
    size_t steps;  /* activations and logits: max_step_rows, max_logit_rows, max_picture_rows */
};
static inline size_t session_bytes_all(const struct session_bytes *bytes) {
    return bytes->cache + bytes->states + bytes->kept + bytes->cross + bytes->steps;
}

/* On any rank, of the rank's share; m may be open for checking only. */
enum status session_pool_measure(struct session_bytes *out, const struct model *model,
                                 const struct session_limits *limits, struct error *e);
/* Allocates everything a step will ever need. m is borrowed. */
enum status session_pool_open(struct session_pool **out, struct model *model,
                              const struct session_limits *limits, struct error *e);
void session_pool_close(struct session_pool *pool);
size_t session_pool_bytes(const struct session_pool *pool);
/* Blocks of keys and values. */
struct session_blocks {
    int used, all;       /* those that open sessions have, and may have */
    int kept, kept_most; /* those that no session has, and that the next ones may take over */
    int64_t evicted;     /* kept blocks that were given up for others, so far */
    size_t bytes;        /* of one, on this rank */
};
struct session_blocks session_pool_blocks(const struct session_pool *pool);
/* Chunks whose neighbours were encoded, so far; that read what was encoded for an earlier one in
 * place of that; and whose encoded neighbours are kept for later ones, beside those that sessions
 * read. */
struct session_chunks {
    int64_t encoded, found;
    int kept;
};
struct session_chunks session_pool_chunks(const struct session_pool *pool);

/* STATUS_BUSY when all max_sessions are open. The grid is fixed for the life of the session; a
 * model without retrieval ignores it ((struct grid){0} will do). */
enum status session_open(struct session **out, struct session_pool *pool, struct grid grid,
                         struct error *e);
/* Rows of the session are taken over by sessions of the same scope only, and it takes over those of
 * its scope and pinned ones. Before its first step and session_reuse; 0 where nothing is said. */
void session_set_scope(struct session *session, uint32_t scope);
void session_close(struct session *session);
/* Closes the session; its rows stay for later sessions until the pool closes. The caller has seen
 * to it that all such rows are in fewer than kept_blocks blocks. */
void session_pin(struct session *session);
struct grid session_grid(const struct session *session);
int session_length(const struct session *session); /* rows processed so far, or taken over */
/* Forgets the rows behind the first `length`, so that others can follow these: at most so many
 * stay, and the new length is session_length. Only whole blocks of keys and values stay, and
 * nothing of a session with cross attention or with positions other than the rows' numbers. A grid
 * is only for a session that keeps nothing. In a pool that keeps blocks none stays with the
 * session: session_reuse takes them over. */
void session_rewind(struct session *session, int length, struct grid grid);

/* How many rows of the text are in full blocks that are kept. */
int session_find(const struct session *session, const struct session_text *text);
/* How many rows of a prompt of n can be taken over next, beyond `found`, while the session computes
 * them: a full block more, or in models with states the next rows behind which one is kept. Not
 * more than `found`: no others will be. */
int session_next_kept(const struct session *session, int found, int n);
/* Takes over the text's rows that are kept, before the first step of the session: rows that an
 * earlier session computed from the same ids, in the same grid, with the same neighbours and
 * source. Full blocks are shared, of one more its rows are copied. Afterwards session_length has
 * these rows. They are bitwise what computing them would give, so only time tells the difference;
 * their logits are not to be had. Returns how many ids of rows and source need no computing. */
int session_reuse(struct session *session, const struct session_text *text);
/* The rows of a session as bytes, for a file: of models without cross attention that are on one
 * rank. They are only of use to the same model and program on the same kind of device. */
bool session_has_image(const struct session_pool *pool);
size_t session_image_bytes(const struct session_pool *pool, int rows);
/* All rows of the session, session_image_bytes of its length. */
enum status session_image_get(const struct session *session, char *image, struct error *e);
/* Before the first step of the session: its first n rows, which have these ids, are those of the
 * image. */
enum status session_image_put(struct session *session, const int32_t *ids, int n, const char *image,
                              struct error *e);

/* Blocks that outlive the process. Blocks are known by the address of all that their rows were
 * computed from (block_file.h), which begins with the session's origin. */

/* Before the session's first step: whose rows they are, beside the scope. */
void session_set_origin(struct session *session, const struct block_address *origin);
/* Rows of one block that the pool keeps. */
struct session_block {
    int32_t block;
    struct block_address before; /* of the rows before */
    uint64_t base;               /* as block_file has it */
    const int32_t *ids, *read;   /* [n], [n_read] as a prefix_node has them */
    int n, n_read;
    const struct read_document *documents; /* [n_documents] */
    int n_documents;
    bool behind; /* another block that is told of has the rows before */
};
/* Called by the thread that owns the pool: a session has put the block where it is found, or has
 * found it; a block is about to be overwritten by other rows. Between the two nobody writes these
 * rows. */
struct session_watch {
    void (*joined)(void *context, const struct session_block *block);
    void (*left)(void *context, int32_t block);
    void *context;
};
void session_pool_watch_blocks(struct session_pool *pool, const struct session_watch *watch);
/* Whether blocks can be read beside steps, and put into another pool: not over several ranks, nor
 * on a device with memory of its own, nor where rows depend on an encoder's text, nor where rows
 * alone are of no use without states. The words say which. */
enum status session_pool_has_blocks(const struct session_pool *pool, struct error *e);
/* The same as far as the model alone tells. */
enum status session_model_has_blocks(const struct model *model, struct error *e);
size_t session_block_bytes(const struct session_pool *pool, int rows);
/* Rows [0, rows) of a block that has joined and not left; any thread. */
void session_block_get(const struct session_pool *pool, int32_t block, int rows, char *image);

/* Before session_reuse: takes over full blocks that are kept, and no more. Returns session_length.
 */
int session_share(struct session *session, const struct session_text *text);
/* The address of the session's rows, which fill blocks; and the base of its rows. */
struct block_address session_address(const struct session *session);
uint64_t session_base(const struct session *session);
/* How many of the text's next rows kept rows have: full blocks' and one more's (session_reuse). */
int session_find_more(const struct session *session, const struct session_text *text);
/* The text's next rows are those of a block that another pool had. */
struct loaded_block {
    const char *image; /* session_block_bytes of n */
    int n;
    int rows; /* the first of these are the text's; fewer than a block's are the last ones */
    const struct read_document *documents; /* [n_documents] */
    int n_documents;
};
/* Whether others will find the session's next rows, this many. */
bool session_is_found(const struct session *session, int rows);
void session_load_block(struct session *session, const struct session_text *text,
                        const struct loaded_block *loaded);
/* The address of the text's full block from `first` on, where `before` is that of the rows before;
 * false: the text ends within it. */
bool session_block_address(const struct session *session, const struct session_text *text,
                           const struct block_address *before, int first,
                           struct block_address *address);
/* How many rows of the text from `first` on are those of a block with these ids, n of them, and
 * with what else they read. */
int session_agrees(const struct session *session, const struct session_text *text, int first,
                   const int32_t *ids, int n, const int32_t *read);

/* Rows of the session from `row` on depend on the text of a document, which has this key. */
void session_read_document(struct session *session, uint64_t document, int row);
/* The session begins anew behind session_rewind: of the documents that it has read, only what was
 * written from them is read again, from `row` on. */
void session_move_documents(struct session *session, int row);
/* These n documents are gone: rows and states that depend on them are not taken over any more, and
 * are overwritten as soon as no session reads them. */
void session_pool_forget(struct session_pool *pool, const uint64_t *documents, int n);
/* Calls `take` for each document that rows of the session depend on, or that rows of the pool do,
 * then some more than once. */
void session_documents(const struct session *session, document_key_taker *take, void *context);
void session_pool_documents(const struct session_pool *pool, document_key_taker *take,
                            void *context);

/* Pictures through the model's tower and projector, on all ranks: one picture's rows after
 * another's, to host memory [sum of tower_count, d] (tower.h). */
enum status session_encode_pictures(struct session_pool *pool, const struct tower_picture *pictures,
                                    int n, float *rows, struct error *e);
/* The same in parts, between which there can be steps: a pass over the first *taken pictures, and
 * its layers (tower_begin, tower_advance). */
enum status session_pictures_begin(struct session_pool *pool, const struct tower_picture *pictures,
                                   int n, int *taken, struct error *e);
enum status session_pictures_advance(struct session_pool *pool, float *rows, bool *done,
                                     struct error *e);

/* The chunk whose neighbours come first in the next step: the next one to close, or of a session
 * that took over rows the latest closed one, which is encoded again where it is not kept. */
int session_next_chunk(const struct session *session);
/* Whether the next step brings the session's source. */
bool session_wants_source(const struct session *session);

/* The next rows of one session. */
struct step_item {
    struct session *session;
    /* [n_tokens] ids; -1 - i is given row i of the session's text. NULL: all are given. */
    const int32_t *tokens;
    int n_tokens;
    const struct row_name *
        names; /* of all given rows of the text; NULL: the step's rows are not kept from these on */
    const struct neighbor_tokens *neighbors; /* session_closes many, from session_next_chunk on */
    int n_logits; /* logits of the last n_logits rows are computed, 0..n_tokens */
    int n_drafts; /* the last n_drafts rows, of ids, are guesses until session_settle; none of them
                     closes a chunk, and one row at least comes before them */
    /* Host [given rows, d] in place of embedded ids: those of this step. Beside tokens a row takes
     * the place of word and position, as a vision tower's projector makes it; without tokens, the
     * place of the word alone. Rows of a model whose tower has a deepstack have the further columns
     * of TOWER_PROJECTED. */
    const float *rows;
    /* [n_tokens, positions of a row] where they are not counted from 0 on: later steps count on
     * from the largest of the last row. Models with learned positions count a picture once; with
     * multimodal RoPE (dims.rope_sections) a row has several, and a picture's are of its grid
     * (picture_rows.h). */
    const int32_t *positions;
    const int32_t
        *source; /* [n_source] the text that the encoder reads; where session_wants_source */
    int n_source;
    /* Of its last so many rows it is told how they share out their attention (session_shares):
     * cross attention over neighbours, or over `groups` of the source; self attention over `groups`
     * of the session's rows. */
    int n_cross_shares, n_self_shares;
    const struct key_group *groups; /* [n_groups] */
    int n_groups;
};

/* After a step that brought drafts, and before the next: the first n_kept of them, which have these
 * ids, are rows of the session, and the rest is forgotten as if it had never been computed. */
void session_settle(struct session *session, const int32_t *ids, int n_kept);

/* How many chunks the next n_tokens rows of the session read first: those that they close, and
 * perhaps the one before. 0 for a model without retrieval. */
int session_closes(const struct session *session, int n_tokens);

/* `abandoned` is asked between the layers of every step, by the thread that called session_step.
 * Once it is true, nobody waits for any sequence of the step: session_step ends with
 * STATUS_CANCELLED, and these sessions can only be closed. Ranks of a group hear it from rank 0 in
 * a message a layer, so over several ranks only steps of many rows ask; and stages do not ask at
 * all: each is at work on rows that the one before has sent already. */
void session_pool_watch(struct session_pool *pool, bool (*abandoned)(void *context), void *context);
/* Into how many parts a step can be cut so. */
int session_pool_parts(const struct session_pool *pool);

/* One forward. Sessions are distinct. Fails without touching any session when a limit is exceeded.
 * *logits [sum of n_logits, padded_vocab] f32 on the device, item after item; valid until the next
 * step of the pool. */
enum status session_step(struct session_pool *pool, const struct step_item *items, int n_items,
                         struct tensor *logits, struct error *e);

/* How the latest step's rows share out their attention, [rows of the step, 2 max_shares] f32 on the
 * device of rank 0, item after item: first what cross attention gives to neighbour i, or to group i
 * of the source, then what self attention gives to group i; each the mean over the heads and over
 * the layers that have such attention. Rows that were not asked for may hold anything. Valid as the
 * logits are, after a step that asked. */
struct tensor session_shares(const struct session_pool *pool);

/* On ranks other than 0: opens the pools that rank 0 opens and computes this rank's share of their
 * steps, until session_release_followers is called there. Fails with STATUS_DEVICE when any rank
 * fails; when it is this one, the others are told. */
enum status session_follow(struct model *model, struct error *e);
/* On rank 0, when its pools are closed. */
void session_release_followers(struct model *model);
