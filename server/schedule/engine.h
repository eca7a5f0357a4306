/* server/schedule/engine.h: the thread that owns the model: it writes many sequences at once, one
 * batch step after another. Whoever wants text submits sequences and reads them as they grow;
 * everything else is the engine's own affair. */
#pragma once

#include "retro/text/tokenizer.h"
#include "server/blocks/block_store.h"
#include "server/host/options/server_options.h"
#include "server/host/prompt/passages.h"
#include "server/host/prompt/picture_input.h"
#include "server/reading/retrieval_thread.h"
#include "server/schedule/drafts/draft_table.h"
#include "server/schedule/sequence.h"
#include "server/threads/histogram.h"

struct engine;
struct picture_thread;

/* A text of the operator's whose rows are there from the start. */
struct engine_prefix {
    const char *name;
    const int32_t *ids; /* [n] */
    int n;
    const char
        *file; /* that keeps the rows from one start to the next; NULL: they are computed at each */
};

/* Everything is borrowed and outlives the engine. Only the engine's thread touches model and
 * backend. */
struct engine_options {
    struct model *model;
    struct backend *backend;
    const struct tokenizer *tokenizer;
    struct retrieval_thread *retrieval; /* NULL: no sequence may ask to retrieve */
    struct end_ids ends;                /* the ids that end a text */
    enum grid_mode grid;
    int max_sequences;         /* decoded together */
    int max_queue;             /* prompts waiting beyond those */
    int max_context;           /* rows of one sequence, and of one source */
    int max_step_tokens;       /* prompt rows of one step */
    enum drafts_choice drafts; /* whether tokens are guessed ahead of their rows (drafts.h) */
    int max_picture;           /* rows of a picture in the tower, where the model reads pictures */
    int prefix_cache_mb;     /* of keys and values kept for later prompts; 0: none; -1: half of what
                                sequences may take */
    bool prefixes_of_filter; /* clients of one filter take over each other's; else each key its own
                                alone */
    int max_neighbors;       /* of one chunk */
    int max_k;               /* passages of one prompt */
    int rerank_candidates;   /* hits that the reranker reads; 0: there is none */
    bool write_without; /* neighbours that a search did not find because the collection is away */
    struct passage_options passages;
    const struct picture_input *picture_input; /* with `pictures`: found pictures stand in prompts;
                                                  NULL: the model reads none */
    struct picture_thread *pictures;
    int micro_batch_rows;                 /* session_limits */
    const struct engine_prefix *prefixes; /* [n_prefixes] */
    int n_prefixes;
    double view_seconds; /* of pictures between two steps, at most; but one layer of the tower at
                            least */
    uint64_t identity;   /* of model, program and device: whose rows the files have */
    struct collection *collection; /* that is searched; NULL: none is */
    const char *cache_folder;      /* keeps blocks of rows; "": none are */
    int64_t cache_folder_bytes;    /* of files in it, at most */
};

struct engine_counts {
    int waiting; /* submitted, no sequence free yet */
    int running; /* sequences in use, parked ones included */
    int parked;  /* of those, waiting for neighbours */
    int64_t steps, prompt_tokens, generated_tokens;
};

/* Of all answers so far, in seconds. */
struct engine_metrics {
    struct histogram queue;       /* from the request to a sequence */
    struct histogram first_token; /* from the request to the first token */
    struct histogram per_token;   /* from each token to the next */
    struct histogram request;     /* from the request to the end */
    int64_t finished[FINISH_KINDS];
    struct session_blocks blocks; /* of keys and values */
    struct session_chunks chunks; /* with neighbours */
    int64_t prefix_queries;       /* tokens of prompts that were looked for among kept rows */
    int64_t prefix_hits;          /* of these, tokens whose rows were taken over */
    int64_t file_hits;            /* of these, tokens whose rows were read from files */
    struct block_store_counts files;
    int64_t passages_kept;  /* of earlier turns, in prompts of their conversations */
    int64_t passages_again; /* that were found again and named by their numbers */
    int64_t passages_gone;  /* that were not shown again: they had changed or gone */
    struct draft_counts drafts;
    int64_t fetched_bytes; /* of experts that memory does not hold, from disk */
    int64_t mapped_expert_bytes, held_expert_bytes; /* as struct model_info has them */
    int64_t lookups_ahead; /* of neighbours of chunks that were not complete yet */
    int64_t lookups_used;  /* of these, those whose chunk became what was foretold */
};

/* Prompts in flight from which on requests are refused; no request may have more. */
static inline int engine_capacity(const struct engine_options *options) {
    return options->max_sequences + options->max_queue;
}
/* Places beyond those, for clients that have no prompt in flight: one client cannot fill the queue
 * for all. */
static inline int engine_reserve(const struct engine_options *options) {
    return options->max_sequences;
}
/* Lookups that an engine may have under way in the retrieval thread: of those it writes, and of as
 * many that left. */
static inline int engine_lookups(int max_sequences) { return 2 * max_sequences; }

/* The sessions an engine with these options will have; o's model and what comes with it need not be
 * there yet. */
struct session_limits engine_limits(const struct engine_options *options,
                                    const struct model_info *info);
/* Allocates the session pool and starts the thread. */
enum status engine_open(struct engine **out, const struct engine_options *options, struct error *e);
/* Ends the thread. Generations in flight are finished with STATUS_CANCELLED, later ones refused. */
void engine_stop(struct engine *engine);
void engine_close(struct engine *engine);

/* Takes a reference of each of n complete sequences, the prompts of one request: all are accepted
 * or none. STATUS_TOO_LARGE when they are more than the capacity, STATUS_BUSY when that many are in
 * flight already or the engine has stopped, STATUS_DEVICE after the device failed. */
enum status engine_submit(struct engine *engine, struct sequence *const *sequences, int n,
                          struct error *e);
/* Seconds, 1 to 60, until a request that was refused as STATUS_BUSY would be let in, if nobody else
 * came: tokens still to be read and written by those who must end before, at the speed of the
 * latest steps. */
int engine_retry_after(struct engine *engine);
/* Tells the engine that sequences were cancelled. */
void engine_notice(struct engine *engine);
struct engine_counts engine_counts(struct engine *engine);
void engine_metrics_read(struct engine *engine, struct engine_metrics *out);
size_t engine_bytes(const struct engine *engine); /* of the session pool */
bool engine_failed(struct engine *engine); /* the device failed; nothing is accepted any more */
