/* server/schedule/engine.h: the thread that owns the model: it writes many sequences at once, one batch step after
 * another. Whoever wants text submits generations and reads them as they grow; everything else is the engine's own
 * affair. */
#pragma once

#include "server/schedule/generation.h"

struct engine;

/* Everything is borrowed and outlives the engine. Only the engine's thread touches model and backend. */
struct engine_options {
    struct model *model;
    struct backend *backend;
    const struct tokenizer *tokenizer;
    struct retrieval_thread *retrieval; /* NULL: no generation may ask to retrieve */
    int eod;                            /* the id that ends a text, -1: none */
    enum grid_mode grid;
    int max_sequences;    /* decoded together */
    int max_queue;        /* waiting beyond those */
    int max_context;      /* rows of one sequence */
    int max_step_tokens;  /* prompt rows of one step */
    int max_k;            /* neighbours of one chunk */
    int micro_batch_rows; /* session_limits */
};

struct engine_counts {
    int waiting; /* submitted, no sequence free yet */
    int running; /* sequences in use, parked ones included */
    int parked;  /* of those, waiting for neighbours */
    int64_t steps, prompt_tokens, generated_tokens;
};

/* The sessions an engine with these options will have; o's model and what comes with it need not be there yet. */
struct session_limits engine_limits(const struct engine_options *o, const struct model_info *info);
/* Allocates the session pool and starts the thread. */
enum status engine_open(struct engine **out, const struct engine_options *o, struct error *e);
/* Ends the thread. Generations in flight are finished with STATUS_CANCELLED, later ones refused. */
void engine_stop(struct engine *x);
void engine_close(struct engine *x);

/* Takes a reference of each of n complete generations: all are accepted or none. STATUS_BUSY when they do not fit into
 * max_sequences + max_queue with those in flight, or the engine has stopped; STATUS_DEVICE after the device failed. */
enum status engine_submit(struct engine *x, struct generation *const *generations, int n, struct error *e);
/* Tells the engine that a generation was cancelled. */
void engine_notice(struct engine *x);
struct engine_counts engine_counts(struct engine *x);
size_t engine_bytes(const struct engine *x); /* of the session pool */
bool engine_failed(struct engine *x);        /* the device failed; nothing is accepted any more */
