/* server/schedule/engine_private.h: what the engine's files have in common. Its thread owns all
 * of it but what a lock guards.
 *
 *   engine.c           the loop, opening and closing, submitting
 *   engine_admit.c     who gets a session, and who leaves
 *   engine_step.c      plan one step, compute it, draw, hand out what was drawn
 *   engine_sequence.c  one sequence as it grows: tokens, text, publication
 *   engine_lookup.c   neighbours and passages on their way from the retrieval thread
 *   engine_ahead.c     neighbours of a chunk whose end is foretold
 *   engine_passages.c  passages in the prompt, sought once or again and again
 *   earlier_passages.c  those of a conversation's earlier turns
 *   engine_quotes.c    what an answer may quote, and what it has quoted
 *   engine_found.c     found pictures, from their files to their places in a prompt
 *   engine_pictures.c  the rows of pictures in prompts
 *   engine_blocks.c    rows from files, and documents that are gone
 *   engine_pinned.c    the operator's prefixes, whose rows are there from the start
 *   engine_prefix.c    rows that a prompt takes over from earlier ones
 *   scoring.c          log-probabilities, comparisons
 *   told_attention.c   attention that is told
 *   drafts.c           tokens guessed ahead of their rows
 *   guide.c, logit_edits.c  which tokens may be drawn, and how likely */
#pragma once

#include "config/base/key_set.h"
#include "retro/run/tower/picture_rows.h"
#include "server/schedule/drafts.h"
#include "server/schedule/engine_sequence.h"
#include "server/threads/client_counts.h"
#include "server/threads/queue.h"

/* Logits rows of prompts that are scored in one step, beside one row per sequence: bounds
 * memory, not prompts. */
enum { ENGINE_SCORED_ROWS = 64 };

/* One request on its way to the engine's thread. */
struct engine_submission {
    uint64_t client;
    int n;
    struct turn *items[]; /* [n] of sequences */
};

/* One step. Everything is [max_sequences]; n are in use. */
struct engine_step {
    struct step_item *items;
    struct engine_sequence **sequences; /* whose item it is; NULL: it is done with this step */
    struct sample_params *params;
    int *draw_row; /* row of the logits that the item's next token is drawn from, -1: none is, or no
                      more */
    int32_t *drawn;
    float *drawn_logprobs;
    int n;
};

struct engine {
    struct engine_options o;
    struct model_info info;
    struct session_pool *pool;
    pthread_t thread;
    bool running;
    struct bell bell;
    struct queue submitted; /* struct engine_submission: requests that came */
    struct queue answered;  /* struct engine_sequence: lookups that are done */

    pthread_mutex_t lock; /* guards the next seven */
    bool stopped, failed;
    int in_flight;                  /* prompts submitted and not finished */
    struct client_counts by_client; /* the same by client */
    struct engine_counts counts;
    struct engine_metrics told; /* what metrics was when the loop last came round */
    double running_seconds,
        waiting_seconds; /* that those with a session, and those without, will take */

    /* The rest is the thread's own. */
    struct engine_metrics metrics;
    struct turns turns; /* who waits */
    struct engine_sequence *
        *active; /* [max_sequences] those with a session, in order of admission */
    int n_active, n_parked;
    int n_left; /* sequences that are over and whose lookup is not */
    struct engine_step step;
    double step_seconds; /* that it took */
    struct engine_sequence
        *viewing; /* whose pictures are on their way through the tower; NULL: nobody's */
    struct picture_pass view; /* of these */
    struct workload waiting;  /* of all who wait */
    struct pace pace;
    struct draft_policy drafts;
    double paced; /* when the work that pace has not seen began; 0: there was none to do */
    struct document_watch *documents; /* that stand in rows; NULL: nothing is searched */
    struct block_store *blocks;       /* of files; NULL: there are none */
    struct key_set scopes;            /* of prompts, numbered from 1 (engine_prefix.c) */
    int32_t *chunk_ids;               /* [chunk_length] */
    float *row;                       /* [padded vocabulary] one row of logits on the host */
    float *shared_out; /* [rows of a step, 2 max_shares] session_shares on the host */
    int32_t *top_ids;  /* [vocabulary] */
    float *top_logprobs;
};

/* engine_admit.c */

/* Takes what has come in: requests and neighbours; drops those whose client left, or all. */
void engine_receive(struct engine *engine, bool drop_all);
void engine_admit(struct engine *engine);
/* One more sequence waits for its turn: a comparison, which its asker's request has let in. */
void engine_wait(struct engine_sequence *sequence);

/* engine_blocks.c */

/* When the pool is there, and before the thread starts; and when that has ended. */
enum status engine_open_blocks(struct engine *engine, struct error *e);
void engine_stop_blocks(struct engine *engine);
void engine_close_blocks(struct engine *engine);
/* Rows of documents that have gone by now are forgotten: before anybody takes rows over, so that a
 * request finds those that the state of the collection leaves, whatever was going on meanwhile. */
void engine_forget_gone(struct engine *engine);
/* Whether there is anything that may go. */
bool engine_watches_documents(const struct engine *engine);

/* engine_pictures.c */

/* Sequences whose prompt is about to be read get the rows of its pictures: a part of them.
 * False: there are none to compute. */
bool engine_view_pictures(struct engine *engine);

/* engine_pinned.c */

/* Before the thread starts: the rows of engine->o.prefixes are computed, or read from their files.
 */
enum status engine_pin_prefixes(struct engine *engine, struct error *e);

/* engine_step.c */

/* Lays out engine->step; its n is 0 when there is nothing to compute. */
void engine_plan(struct engine *engine);
void engine_run_step(struct engine *engine);
/* Whether nobody waits for x->step. */
bool engine_step_abandoned(void *engine);
