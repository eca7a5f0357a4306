/* retro/run/cross/cross_cache.h: keys and values that the decoder's cross attention reads: an
 * encoder's output, projected once for every layer that reads it. Slots hold the output for one
 * chunk's neighbours, or for one session's source. */
#pragma once

#include "retro/model/layer.h"

struct cross_cache {
    const struct model *model; /* NULL: the model has no cross attention */
    int n_slots, slot_rows;
    enum dtype dtype;
    struct tensor *k,
        *v; /* [decoder layers]; those with cross attention: [slots * slot_rows, H h] */
    struct tensor projected; /* [group rows, 2 H h] one layer's keys and values on their way */
    void *memory, *projected_memory;
    size_t bytes, projected_bytes;
};

struct cross_cache_sizes {
    int n_slots, slot_rows;
    int group_rows; /* that are filled at once */
    enum dtype dtype;
};
/* Fills in what there will be and allocates nothing. */
enum status cross_cache_measure(struct cross_cache *cache, const struct model *model,
                                const struct cross_cache_sizes *sizes, struct error *e);
/* After cross_cache_measure. */
enum status cross_cache_open(struct cross_cache *cache, struct error *e);
void cross_cache_close(struct cross_cache *cache);
size_t cross_cache_bytes(const struct cross_cache *cache);

/* Row i of an encoder's output becomes row rows[i] of this stage's keys and values. */
void cross_cache_fill(struct cross_cache *cache, struct tensor encoded, const int32_t *rows);
/* Rows [first, first + n) of the slot become zeros. */
void cross_cache_wipe(const struct cross_cache *cache, int slot, int first, int n);
