/* retro/run/cross/sources.h: the texts that the decoder of an encoder-decoder model reads (T5):
 * each is encoded once, when a session begins that reads it, and stays as keys and values in a slot
 * of the cross cache. Sessions that read the same text share its slot, and a free slot keeps its
 * text until another one needs the slot, the least recently used first. */
#pragma once

#include "retro/run/cache/session_limits.h"
#include "retro/run/cross/cross_cache.h"
#include "retro/run/cross/encoder_group.h"

/* A text that this step encodes. */
struct source {
    int slot, n;
    const int32_t *ids; /* [n] */
};

/* The text in one slot of the cross cache. */
struct source_text {
    int32_t *ids;          /* [n] owned */
    int n;                 /* 0: the slot has none */
    uint32_t scope;        /* of the session that it came with (session_set_scope) */
    int holders;           /* sessions that read it */
    uint64_t number, used; /* when it came and when it was held last, as counts of such events:
                              never 0, never twice */
};

struct sources {
    const struct model *model; /* NULL: no such model */
    struct cross_cache *cache;
    bool keeps;                /* texts are found again */
    struct source_text *texts; /* [slots] on the rank that leads */
    uint64_t events;
    struct encoder_group group;
    size_t bytes;
};

/* Measuring fills in both what there will be and the cache, and allocates nothing. */
enum status sources_measure(struct sources *sources, struct cross_cache *cache,
                            const struct model *model, const struct session_limits *limits,
                            struct error *e);
/* After sources_measure and the cache's opening. */
enum status sources_open(struct sources *sources, struct error *e);
void sources_close(struct sources *sources);

/* The slot of a text of that scope that is there already, -1 when none is. */
int sources_find(const struct sources *sources, uint32_t scope, const int32_t *ids, int n);
/* A slot for a text that is to be encoded into it by the next step. One is free: each session holds
 * one at most. */
int sources_take(struct sources *sources, uint32_t scope, const int32_t *ids, int n);
/* One session more reads the slot's text, or one less; -1: none. */
void sources_hold(struct sources *sources, int slot);
void sources_drop(struct sources *sources, int slot);

/* Encodes n texts and fills their slots (docs/spec/t5-model.md 5). Each text is a span of its own,
 * so its rows do not depend on the others. */
void sources_encode(struct sources *sources, const struct source *list, int n);
