/* config/base/key_set.c: a hash table with open addresses, at most half full. See key_set.h. */
#include "config/base/key_set.h"

#include <stdlib.h>

#include "config/base/hash.h"

static size_t key_set_find(const struct key_set *set, uint64_t a, uint64_t b) {
    uint64_t key[2] = {a, b};
    size_t i = hash_bytes(key, sizeof key, 0) & (set->capacity - 1);
    while (set->slots[i].used && (set->slots[i].a != a || set->slots[i].b != b))
        i = (i + 1) & (set->capacity - 1);
    return i;
}

static void key_set_enlarge(struct key_set *set) {
    struct key_set larger = {.capacity = set->capacity ? 2 * set->capacity : 256, .n = set->n};
    larger.slots = xcalloc(larger.capacity, sizeof *larger.slots);
    for (size_t i = 0; i < set->capacity; i++)
        if (set->slots[i].used)
            larger.slots[key_set_find(&larger, set->slots[i].a, set->slots[i].b)] = set->slots[i];
    free(set->slots);
    *set = larger;
}

int64_t *key_set_put(struct key_set *set, uint64_t a, uint64_t b, bool *added) {
    if (2 * set->n >= set->capacity) key_set_enlarge(set);
    struct key_slot *slot = &set->slots[key_set_find(set, a, b)];
    *added = !slot->used;
    if (*added) {
        *slot = (struct key_slot){.a = a, .b = b, .used = true};
        set->n++;
    }
    return &slot->number;
}

bool key_set_add(struct key_set *set, uint64_t a, uint64_t b) {
    bool added;
    key_set_put(set, a, b, &added);
    return added;
}

int64_t *key_set_number(const struct key_set *set, uint64_t a, uint64_t b) {
    if (set->capacity == 0) return NULL;
    size_t i = key_set_find(set, a, b);
    return set->slots[i].used ? &set->slots[i].number : NULL;
}

void key_set_free(struct key_set *set) {
    free(set->slots);
    *set = (struct key_set){0};
}
