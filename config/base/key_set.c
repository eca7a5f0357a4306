/* config/base/key_set.c: a hash table with open addresses, at most half full. See key_set.h. */
#include "config/base/key_set.h"

#include <stdlib.h>

#include "config/base/hash.h"

static size_t key_set_find(const struct key_set *s, uint64_t a, uint64_t b) {
    uint64_t key[2] = {a, b};
    size_t i = hash_bytes(key, sizeof key, 0) & (s->capacity - 1);
    while (s->slots[i].used && (s->slots[i].a != a || s->slots[i].b != b)) i = (i + 1) & (s->capacity - 1);
    return i;
}

bool key_set_add(struct key_set *s, uint64_t a, uint64_t b) {
    if (2 * s->n >= s->capacity) {
        struct key_set larger = {.capacity = s->capacity ? 2 * s->capacity : 256, .n = s->n};
        larger.slots = xcalloc(larger.capacity, sizeof *larger.slots);
        for (size_t i = 0; i < s->capacity; i++)
            if (s->slots[i].used) larger.slots[key_set_find(&larger, s->slots[i].a, s->slots[i].b)] = s->slots[i];
        free(s->slots);
        *s = larger;
    }
    size_t i = key_set_find(s, a, b);
    if (s->slots[i].used) return false;
    s->slots[i].a = a;
    s->slots[i].b = b;
    s->slots[i].number = 0;
    s->slots[i].used = true;
    s->n++;
    return true;
}

int64_t *key_set_number(const struct key_set *s, uint64_t a, uint64_t b) {
    if (s->capacity == 0) return NULL;
    size_t i = key_set_find(s, a, b);
    return s->slots[i].used ? &s->slots[i].number : NULL;
}

void key_set_free(struct key_set *s) {
    free(s->slots);
    *s = (struct key_set){0};
}
