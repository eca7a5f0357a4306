/* retro/run/cache/state_cache.h: the states of many sequences: what layers keep that keep no rows
 * (enum mixer). A state has a part in each of these layers, and is as large at the start of
 * a sequence as at its end.
 *
 * A session has one state, which its steps write. Some more are kept beside blocks of keys and
 * values: a sequence that takes over rows (prefix_tree.h) goes on from a state that was kept where
 * they end. At most `most` are kept; the least recently used goes first, and none that is pinned.
 */
#pragma once

#include "retro/model/layer.h"
#include "retro/run/cache/prefix_tree.h"

enum { STATE_NONE = -1 };

/* A state that is kept: that of a sequence behind the first `rows` rows of the block. */
struct kept_state {
    int32_t state, block;
    int rows;
    bool pinned;
    int64_t used;
};

struct state_cache {
    const struct model *model; /* NULL: the model has no states */
    struct tensor states; /* of this rank's first layer with states: [n_states, columns]; others lie
                             behind */
    struct tensor saved;  /* likewise: [drafted rows of a step, channels + gates] */
    void *memory;
    size_t bytes, state_bytes; /* of all, and of one state */
    int layers;                /* of this rank that have states */
    int n_states, n_free;
    int32_t *free_states; /* [n_states], the next one last */
    bool *reads; /* [n_states] what it holds may come from documents (session_read_document) */
    /* On the rank that leads. */
    struct kept_state *kept; /* [most] */
    int32_t *of_block;       /* [n_blocks] which of `kept`, -1: none */
    int n_kept, n_promised, most;
    int64_t clock;
};

/* Fills in what there will be and allocates nothing: a state for each of `sessions`, `kept` more,
 * and rows for drafts. model NULL where it has none. STATUS_NO_MEMORY beyond the address space. */
enum status state_cache_measure(struct state_cache *cache, const struct model *model, int sessions,
                                int kept, int saved, struct error *e);
/* After state_cache_measure, of a model with states. */
enum status state_cache_open(struct state_cache *cache, int n_blocks, struct error *e);
void state_cache_close(struct state_cache *cache);

/* A state whose content is anything. The caller has seen to it that there is one. */
int32_t state_cache_take(struct state_cache *cache);
void state_cache_free(struct state_cache *cache, int32_t state);
/* A state that is to be kept once it is written, or STATE_NONE where all are pinned or promised. */
int32_t state_cache_promise(struct state_cache *cache);
/* It is not written after all. */
void state_cache_withdraw(struct state_cache *cache, int32_t state);

/* The state is kept for the first `rows` rows of the block; it was promised. A block has one: that
 * of the most rows. */
void state_cache_keep(struct state_cache *cache, struct kept_state kept);
/* The kept state of a block, NULL without. */
struct kept_state *state_cache_find(struct state_cache *cache, int block);
/* The block leaves the tree; `to` has its rows and more, PREFIX_NONE: no block has. */
void state_cache_leave(struct state_cache *cache, int block, int to);

/* States, or saved rows, of one layer that this rank keeps. */
struct tensor state_cache_layer(const struct state_cache *cache, struct tensor first, int layer);
/* State `to` becomes what `from` is, on this rank. */
void state_cache_copy(const struct state_cache *cache, int32_t from, int32_t to);
/* All of the state becomes zeros, on this rank. */
void state_cache_wipe(const struct state_cache *cache, int32_t state);
