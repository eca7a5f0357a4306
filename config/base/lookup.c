/* config/base/lookup.c: see lookup.h. */
#include "config/base/lookup.h"

#include <stdlib.h>

#include "config/base/hash.h"

uint64_t lookup_hash(const void *bytes, size_t size) {
    /* Where the program lies in memory differs from start to start. */
    static const char place;
    return hash_bytes(bytes, size, (uint64_t)(uintptr_t)&place);
}

int lookup_next(const struct lookup_table *t, uint64_t hash, size_t *at) {
    while (*at < t->size) {
        const struct lookup_slot *s = &t->slots[(hash + *at) & (t->size - 1)];
        ++*at;
        if (s->number == 0) break;
        if (s->hash == hash) return s->number - 1;
    }
    return -1;
}

static void slot_take(struct lookup_table *t, uint64_t hash, int number) {
    size_t at = hash & (t->size - 1);
    while (t->slots[at].number != 0) at = (at + 1) & (t->size - 1);
    t->slots[at] = (struct lookup_slot){hash, number};
}

size_t lookup_wants(const struct lookup_table *t) {
    if (2 * (t->used + 1) <= t->size) return 0;
    return t->size ? t->size * 2 : 64;
}

void lookup_move(struct lookup_table *t, struct lookup_slot *slots, size_t size) {
    struct lookup_table old = *t;
    t->slots = slots;
    t->size = size;
    for (size_t i = 0; i < old.size; i++)
        if (old.slots[i].number != 0) slot_take(t, old.slots[i].hash, old.slots[i].number);
}

void lookup_add(struct lookup_table *t, uint64_t hash, int number) {
    size_t size = lookup_wants(t);
    struct lookup_slot *old = t->slots;
    if (size > 0) {
        lookup_move(t, xcalloc(size, sizeof *old), size);
        free(old);
    }
    slot_take(t, hash, number + 1);
    t->used++;
}

void lookup_free(struct lookup_table *t) {
    free(t->slots);
    *t = (struct lookup_table){0};
}
