/* config/base/key_set.h: a set of 128-bit keys, each with a number: files by device and inode,
 * texts and names by hash. Zero-initialise. */
#pragma once

#include "config/base/base.h"

struct key_set {
    struct key_slot {
        uint64_t a, b;
        int64_t number; /* 0 at first */
        bool used;
    } * slots;
    size_t n, capacity;
};
bool key_set_add(struct key_set *set, uint64_t a, uint64_t b); /* false when it was there */
/* The number of a key, to read and to set until the next key is added; NULL where it is not in the
 * set. */
int64_t *key_set_number(const struct key_set *set, uint64_t a, uint64_t b);
/* Adds a key if it is not there, and returns its number as key_set_number does. */
int64_t *key_set_put(struct key_set *set, uint64_t a, uint64_t b, bool *added);
void key_set_free(struct key_set *set);
