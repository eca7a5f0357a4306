/* config/base/key_set.h: a set of 128-bit keys: files by device and inode, texts and names by hash. Zero-initialise. */
#pragma once

#include "config/base/base.h"

struct key_set {
    struct key_slot {
        uint64_t a, b;
        bool used;
    } * slots;
    size_t n, capacity;
};
bool key_set_add(struct key_set *s, uint64_t a, uint64_t b); /* false when it was there */
void key_set_free(struct key_set *s);
