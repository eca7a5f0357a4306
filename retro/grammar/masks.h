/* retro/grammar/masks.h: the tokens that a configuration allows, found by walking the vocabulary's
 * trie. */
#pragma once

#include "retro/grammar/automaton.h"
#include "retro/grammar/vocab.h"

/* The tokens that stay within one state's rule, whatever is below it, and where the others leave
 * it. */
struct mask_profile {
    bool known, many; /* many: there are too many ways out to list them */
    int32_t *ids;     /* [n_ids] or, where they are many, ... */
    int n_ids;
    uint32_t *bits;
    int *exits; /* [n_exits] nodes of the trie behind which the rule may be over */
    int n_exits;
};

/* A place of the trie where a quote may begin, and the configuration there. */
struct quote_exit {
    int node, config;
};

/* All such places that a configuration leads to, its own included. */
struct quote_exits {
    int config;              /* -1: free */
    struct quote_exit *list; /* [n] */
    int n, capacity;
};

enum { MASK_SLOTS = 48, EXIT_SLOTS = 16 };

struct mask_slot {
    int config; /* -1: free */
    uint32_t *bits;
    bool any;
};

struct masks {
    const struct vocab *vocab;
    struct automaton automaton;
    struct mask_profile *profiles; /* [n_profiles] by state */
    int n_profiles;
    struct mask_slot slots[MASK_SLOTS];
    int next_slot, words;
    struct quote_exits exits[EXIT_SLOTS];
    int next_exits;
};

void masks_open(struct masks *masks, const struct program *program, const struct vocab *vocab);
void masks_close(struct masks *masks);
/* NULL: the memo is full. *any: some token is allowed. */
const uint32_t *masks_find(struct masks *masks, int config, bool *any);
/* Where within a token, or before it, a quote may begin. NULL: the memo is full. */
const struct quote_exits *masks_quote_exits(struct masks *masks, int config);

static inline void masks_set_bit(uint32_t *bits, int32_t id) {
    bits[id / 32] |= (uint32_t)1 << (id % 32);
}
