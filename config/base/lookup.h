/* config/base/lookup.h: numbers by what they stand for, where strangers choose what that is: the
 * hash has a seed that they do not know, so that none can choose texts which meet in one place. */
#pragma once

#include "config/base/base.h"

struct lookup_slot {
    uint64_t hash;
    int number; /* + 1; 0: free */
};

/* Zero-initialise, lookup_free when done. */
struct lookup_table {
    struct lookup_slot *slots; /* [size] */
    size_t size, used;
};

uint64_t lookup_hash(const void *bytes, size_t size);
/* The next number that was added with this hash, *at being 0 at first; -1: there are no more. */
int lookup_next(const struct lookup_table *table, uint64_t hash, size_t *at);
void lookup_add(struct lookup_table *table, uint64_t hash, int number);
void lookup_free(struct lookup_table *table);

/* For slots that are not freed by lookup_free: how many, all zero, lookup_move must be given before
 * one more number is added; 0: there is room. */
size_t lookup_wants(const struct lookup_table *table);
void lookup_move(struct lookup_table *table, struct lookup_slot *slots, size_t size);
