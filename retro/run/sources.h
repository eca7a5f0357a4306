/* retro/run/sources.h: the texts that the decoder of an encoder-decoder model reads (T5): each is encoded once, when
 * its session begins, and kept as keys and values in a slot of the cross cache until the session closes. */
#pragma once

#include "retro/run/cross_cache.h"
#include "retro/run/encoder_group.h"
#include "retro/run/session.h"

/* A text that this step encodes. */
struct source {
    int slot, n;
    const int32_t *ids; /* [n] */
};

struct sources {
    const struct model *model; /* NULL: no such model */
    struct cross_cache *cache;
    struct encoder_group group;
    size_t bytes;
};

/* Measuring fills in both what there will be and the cache, and allocates nothing. */
enum status sources_measure(struct sources *s, struct cross_cache *cache, const struct model *m,
                            const struct session_limits *l, struct error *e);
/* After sources_measure and the cache's opening. */
enum status sources_open(struct sources *s, struct error *e);
void sources_close(struct sources *s);

/* Encodes n texts and fills their slots (docs/spec/t5-model.md 5). Each text is a span of its own, so its rows do not
 * depend on the others. */
void sources_encode(struct sources *s, const struct source *list, int n);
