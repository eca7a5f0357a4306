/* config/base/lookup.c: see lookup.h. */
#include "config/base/lookup.h"

#include <stdlib.h>

#include "config/base/hash.h"

uint64_t lookup_hash(const void *bytes, size_t size) {
    /* Where the program lies in memory differs from start to start. */
    static const char place;
    return hash_bytes(bytes, size, (uint64_t)(uintptr_t)&place);
}

int lookup_next(const struct lookup_table *table, uint64_t hash, size_t *at) {
    while (*at < table->size) {
        const struct lookup_slot *slot = &table->slots[(hash + *at) & (table->size - 1)];
        ++*at;
        if (slot->number == 0) break;
        if (slot->hash == hash) return slot->number - 1;
    }
    return -1;
}

static void slot_take(struct lookup_table *table, uint64_t hash, int number) {
    size_t at = hash & (table->size - 1);
    while (table->slots[at].number != 0) at = (at + 1) & (table->size - 1);
    table->slots[at] = (struct lookup_slot){hash, number};
}

size_t lookup_wants(const struct lookup_table *table) {
    if (2 * (table->used + 1) <= table->size) return 0;
    return table->size ? table->size * 2 : 64;
}

void lookup_move(struct lookup_table *table, struct lookup_slot *slots, size_t size) {
    struct lookup_table old = *table;
    table->slots = slots;
    table->size = size;
    for (size_t i = 0; i < old.size; i++)
        if (old.slots[i].number != 0) slot_take(table, old.slots[i].hash, old.slots[i].number);
}

void lookup_add(struct lookup_table *table, uint64_t hash, int number) {
    size_t size = lookup_wants(table);
    struct lookup_slot *old = table->slots;
    if (size > 0) {
        lookup_move(table, xcalloc(size, sizeof *old), size);
        free(old);
    }
    slot_take(table, hash, number + 1);
    table->used++;
}

void lookup_free(struct lookup_table *table) {
    free(table->slots);
    *table = (struct lookup_table){0};
}
