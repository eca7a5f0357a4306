/* server/schedule/generation.h: one prompt and the answer that grows from it: what the HTTP side and the engine share.
 *
 * The asker fills in what is asked and hands the generation to the engine. The engine appends to the answer and then
 * publishes how far it may be read; what is published never changes, so readers need the lock only for the counts and
 * for the text. Both sides hold a reference: a client that leaves cancels and lets go, the engine notices and lets go.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "retro/run/session.h"
#include "retro/text/tokenizer.h"
#include "server/schedule/retrieval_thread.h"
#include "server/schedule/stops.h"

enum finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_ERROR };

/* Called, with the generation's lock held, whenever there is something new to read: it must only pass the word on. */
struct waker {
    void (*wake)(void *context);
    void *context;
};

/* How far the answer may be read. */
struct progress {
    int n_ids;      /* tokens of ids, and their log-probabilities */
    size_t visible; /* bytes of text: whole characters, no part of a stop string */
    int n_found;    /* chunks of found, and of neighbors */
    enum finish finish;
};

enum generation_state { GENERATION_WAITING, GENERATION_PARKED, GENERATION_RUNNING, GENERATION_DONE };

struct generation {
    /* What is asked. Constant once submitted. */
    int32_t *prompt; /* [n_prompt] */
    int n_prompt, max_tokens;
    struct sample_params sampling; /* `draw` counts on */
    bool ignore_eos;
    bool wake_per_token; /* else only when finished */
    int n_top;           /* alternatives per token in log-probabilities, -1: no log-probabilities at all */
    bool score_prompt;   /* log-probabilities of the prompt's tokens too */
    struct stops stops;
    bool retrieve; /* search neighbours for every chunk */
    int k;
    float min_similarity;
    int32_t *given_ids; /* [given_k, r] the caller's own neighbours, read at every chunk */
    int given_k;

    /* The answer. Arrays are as long as the answer can get; entries [0, published count) are constant. */
    pthread_mutex_t lock; /* guards published, text, error and waker */
    struct progress published;
    struct buffer text;
    struct error error; /* when published.finish is FINISH_ERROR */
    struct waker waker;
    int32_t *ids;      /* [max_tokens] */
    size_t *text_ends; /* [max_tokens] bytes of text when the token had been added */
    /* Log-probabilities of row i: prompt token i when scored, then generated tokens; n_top >= 0 only. */
    float *logprobs;     /* [n_prompt + max_tokens] of the token itself */
    int32_t *top_ids;    /* [n_prompt + max_tokens, n_top] */
    float *top_logprobs; /* the same */
    struct grid grid;
    int n_chunks;       /* that can close */
    struct hits *found; /* [n_chunks] when retrieve */

    /* The engine's own. */
    struct engine *engine;
    enum generation_state state;
    struct session *session;
    int n_ids;                         /* appended, perhaps not yet published */
    size_t visible;                    /* likewise */
    struct neighbor_tokens *neighbors; /* [n_chunks] what the model reads */
    int n_neighbors;                   /* chunks that have theirs */
    struct detokenizer detokenizer;
    struct lookup lookup;
    struct buffer query_text;
    struct generation *next;

    atomic_bool cancelled;
    atomic_int references;
};

/* Empty, with one reference, the caller's. */
struct generation *generation_open(void);
/* Allocates the answer of a generation whose question is complete. m is 0 for a model without retrieval. */
void generation_prepare(struct generation *g, enum grid_mode mode, int m);
void generation_hold(struct generation *g);
void generation_release(struct generation *g);

/* Reader's side. The text in [from, visible) is appended to *text; *e is filled in when the finish is FINISH_ERROR. */
struct progress generation_read(struct generation *g, size_t from, struct buffer *text, struct error *e);
/* No wake will be called after this returns. */
void generation_detach(struct generation *g);

/* The first row that reads chunk j: the one that closes it. */
int generation_chunk_position(const struct generation *g, int j);
/* The tokens of chunk j, all of which exist, into ids [m]; returns how many. */
int generation_chunk(const struct generation *g, int j, int32_t *ids);
