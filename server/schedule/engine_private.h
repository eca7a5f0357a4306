/* server/schedule/engine_private.h: what the engine's files share. Its thread owns all of it but what a lock guards.
 *
 *   engine.c        the loop, opening and closing, submitting
 *   engine_admit.c  who gets a sequence, who leaves, whose neighbours are looked up
 *   engine_passages.c  passages in the prompt, sought once or again and again
 *   engine_found.c  found pictures, from their files to their places in a prompt
 *   engine_pictures.c  the rows of pictures in prompts
 *   engine_pinned.c the operator's prefixes, whose rows are there from the start
 *   engine_prefix.c rows that a prompt takes over from earlier ones
 *   engine_step.c   plan one step, compute it, draw, hand out what was drawn
 *   engine_sequence.c  one answer as it grows: tokens, text, publication */
#pragma once

#include "config/base/key_set.h"
#include "retro/text/tokenizer.h"
#include "server/pictures/picture_thread.h"
#include "server/schedule/engine.h"
#include "server/schedule/guided.h"
#include "server/schedule/logit_edits.h"
#include "server/schedule/pace.h"
#include "server/threads/client_shares.h"
#include "server/threads/queue.h"
#include "server/threads/turns.h"

/* Logits rows of prompts that are scored in one step, beside one row per sequence: bounds memory, not prompts. */
enum { ENGINE_SCORED_ROWS = 64 };

enum sequence_state {
    SEQUENCE_WAITING, /* has no session yet */
    SEQUENCE_RUNNING,
    SEQUENCE_PARKED, /* waits for neighbours */
    SEQUENCE_LEFT    /* is over, and a lookup still writes to it */
};

/* The engine's side of a sequence. */
struct engine_sequence {
    struct turn turn; /* first: one is cast to the other */
    struct engine *engine;
    struct sequence *sequence; /* a reference */
    enum sequence_state state;
    struct session *session; /* NULL: none yet, or none any more */
    /* Rows that the decoder reads before it writes on, and the encoder's: as asked, or with passages among them, and
     * then with the n_reread tokens that had been written when these were put there. Passages add n_prefix rows. */
    const int32_t *rows, *source;
    int n_rows, n_source, n_prefix, n_reread;
    struct picture_set *pictures; /* held: of these rows, the request's with found ones among them; NULL: none */
    float *given;                 /* owned [rows of pictures, d] in the order of the text; NULL without */
    bool viewed;                  /* these are computed, as far as the session has not their keys and values */
    int32_t *positions;           /* owned, of the rows when they are read (picture_set_place); NULL: their numbers */
    int32_t *composed_rows, *composed_source; /* owned, where passages stand among them */
    bool begun;                               /* it has looked for rows to take over, and computes what is left */
    int n_cached;                             /* tokens of its prompt that needed no computing when it was read first */
    uint32_t scope;                           /* engine_scope */
    int32_t *forced;                          /* owned, of a comparison that has begun: its rows, and the last token */
    struct key_group
        *passage_keys; /* [n_passages] owned: rows, or the source's, where passages stand; if they are told */
    int n_passages;
    int n_ids;          /* tokens written, perhaps not yet published */
    double logprob_sum; /* of these */
    struct logit_edits edits;
    struct matcher *matcher;  /* owned; of the request's grammar, NULL: it has none (guided.h) */
    struct error matching;    /* why it cannot go on, if it cannot */
    int stop_string, stop_id; /* what has stopped it, as progress has it */
    double submitted, latest; /* when it came, and when its latest token did */
    struct buffer text;       /* all of it; what may be shown is [0, visible) */
    size_t visible;
    struct detokenizer detokenizer;
    struct neighbor_tokens *neighbors; /* [n_chunks] what the model reads */
    int n_neighbors;                   /* chunks that have theirs, perhaps not yet published */
    int n_searched;                    /* times that passages were put into the prompt, likewise */
    bool seeks_passages;               /* the lookup is for them */
    bool reads_pictures;               /* it is parked until the next is over */
    struct picture_job *reading;       /* a reference: the found pictures that may stand in the prompt; NULL: none */
    struct filter *filter;             /* held: of its searches, the request's and its principal's */
    struct lookup lookup;              /* keeps the snapshot of the first for all */
    struct buffer query_text;
};

/* One request on its way to the engine's thread. */
struct engine_submission {
    uint64_t client;
    int n;
    struct turn *items[]; /* [n] of sequences */
};

/* One step. Everything is [max_sequences]; n are in use. */
struct engine_step {
    struct step_item *items;
    struct engine_sequence **sequences; /* whose item it is */
    struct sample_params *params;
    int *draw_row; /* row of the logits that the item's next token is drawn from, -1: none is drawn */
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
    int in_flight;        /* prompts submitted and not finished */
    struct shares shares; /* the same by client */
    struct engine_counts counts;
    struct engine_metrics told;              /* what metrics was when the loop last came round */
    double running_seconds, waiting_seconds; /* that those with a session, and those without, will take */

    /* The rest is the thread's own. */
    struct engine_metrics metrics;
    struct turns turns;              /* who waits */
    struct engine_sequence **active; /* [max_sequences] those with a session, in order of admission */
    int n_active, n_parked;
    int n_left; /* sequences that are over and whose lookup is not */
    struct engine_step step;
    double step_seconds;             /* that it took */
    struct engine_sequence *viewing; /* whose pictures are on their way through the tower; NULL: nobody's */
    struct picture_view view;        /* of these */
    struct workload waiting;         /* of all who wait */
    struct pace pace;
    double paced;          /* when the work that pace has not seen began; 0: there was none to do */
    struct key_set scopes; /* of prompts, numbered from 1 (engine_prefix.c) */
    int32_t *chunk_ids;    /* [chunk_length] */
    float *row;            /* [padded vocabulary] one row of logits on the host */
    float *shared_out;     /* [rows of a step, 2 max_k] session_shares on the host */
    int32_t *top_ids;      /* [vocabulary] */
    float *top_logprobs;
};

/* sequence.c */

/* Takes a reference of the sequence, whose answer is prepared. */
struct engine_sequence *engine_sequence_open(struct engine *x, struct sequence *sequence);
void engine_sequence_free(struct engine_sequence *s);
/* The rows and tokens still to be computed. */
struct workload engine_sequence_left(const struct engine_sequence *s);
/* Appends one token, its log-probability and its text. Returns why the answer ends here, if it does. */
enum finish engine_sequence_append(struct engine_sequence *s, int32_t token, float logprob);
/* Everything appended so far may be read. */
void engine_sequence_publish(struct engine_sequence *s);
/* The last publication; e only with FINISH_ERROR. The sequence is gone, or will be once its lookup is done. */
void engine_sequence_finish(struct engine_sequence *s, enum finish how, const struct error *e);
/* Whether the asker waits no more. */
static inline bool engine_sequence_cancelled(const struct engine_sequence *s) {
    return atomic_load(&s->sequence->cancelled);
}

/* The token of row i, which exists. */
static inline int32_t engine_sequence_row(const struct engine_sequence *s, int i) {
    return i < s->n_rows ? s->rows[i] : s->sequence->answer.ids[i - s->n_rows + s->n_reread];
}
/* The grid of its session: the answer's, or where it reads no neighbours the one that all such sessions have. */
struct grid engine_sequence_grid(const struct engine_sequence *s);
/* Whether log-probabilities of the rows that it reads are wanted: of a prompt that is read for the first time. */
static inline bool engine_sequence_scores_prompt(const struct engine_sequence *s) {
    return s->sequence->asked.score_prompt && s->n_reread == 0;
}
/* Whether tokens among its rows are scored: those of a prompt, or of a comparison. */
static inline bool engine_sequence_scores(const struct engine_sequence *s) {
    return engine_sequence_scores_prompt(s) || s->forced;
}
/* The first of its rows whose logits are needed: all before it can be taken over from another prompt. */
static inline int engine_sequence_first_logits(const struct engine_sequence *s) {
    if (s->forced) return s->n_prefix + s->sequence->asked.n_prompt - 1;
    return engine_sequence_scores_prompt(s) ? s->n_prefix : s->n_rows - 1;
}

/* engine_admit.c */

/* Takes what has come in: requests and neighbours; drops those whose client left, or all. */
void engine_receive(struct engine *x, bool drop_all);
void engine_admit(struct engine *x);
/* One more sequence waits for its turn: a comparison, which its asker's request has let in. */
void engine_wait(struct engine_sequence *s);
/* Rows of s about to be computed close chunks [first, first + n): their neighbours are looked up, given, or none. */
void engine_close_chunks(struct engine_sequence *s, int first, int n);
/* Asks what s->lookup's n queries find, for entries [first, first + n) of the answer's, and parks the sequence. */
void engine_look_up(struct engine_sequence *s, int first, int n);

/* engine_passages.c */

/* Looks for passages, or takes those given, and puts them into the prompt in the place of earlier ones. */
void engine_seek_passages(struct engine_sequence *s);
/* The lookup for them is done; and then, the pictures among them are decoded. */
void engine_accept_passages(struct engine_sequence *s);
void engine_accept_pictures(struct engine_sequence *s);
/* Whether others are to be sought behind the tokens written so far. */
static inline bool engine_passages_are_due(const struct engine_sequence *s) {
    int every = s->sequence->asked.choice.every;
    return s->sequence->asked.passages.search && every > 0 && s->n_ids % every == 0;
}

/* engine_found.c: pictures of the search whose hits have come last. */

/* Has them decoded and parks the sequence. False: there are none to decode. */
bool engine_read_found(struct engine_sequence *s);
/* They are decoded, as far as they can be. */
void engine_note_found(struct engine_sequence *s);
/* Those that were, the most similar first, and their places in s->reading->set; returns how many. */
int engine_list_found(const struct engine_sequence *s, struct passage_picture *out, int *places);
/* Notes those that do not stand in the prompt. */
void engine_tell_found(struct engine_sequence *s, const struct passage_picture *pictures, int n);

/* engine_pictures.c */

/* Sequences whose prompt is about to be read get the rows of its pictures: a part of them. False: there are none to
 * compute. */
bool engine_view_pictures(struct engine *x);
/* Whether its prompt cannot be read before that. */
bool engine_wants_view(const struct engine_sequence *s);
/* Its pictures are not computed any further. */
void engine_end_view(struct engine_sequence *s);
/* The item's rows of pictures, which begins at row `first`, and their names. */
void engine_give_rows(const struct engine_sequence *s, struct step_item *item, int first);

/* engine_pinned.c */

/* Before the thread starts: the rows of x->o.prefixes are computed, or read from their files. */
enum status engine_pin_prefixes(struct engine *x, struct error *e);

/* engine_prefix.c */

/* The scope of the session that serves it (session_set_scope). */
uint32_t engine_scope(struct engine *x, const struct engine_sequence *s);
/* Before the first rows of a prompt are computed: takes over what is kept of them. False: not now, because another
 * prompt is about to compute rows that this one can take over. */
bool engine_begin_prompt(struct engine_sequence *s);

/* engine_step.c */

/* Lays out x->step; its n is 0 when there is nothing to compute. */
void engine_plan(struct engine *x);
void engine_run_step(struct engine *x);
/* Whether nobody waits for x->step. */
bool engine_step_abandoned(void *engine);
