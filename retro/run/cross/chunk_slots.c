/* retro/run/cross/chunk_slots.c: see chunk_slots.h. */
#include "retro/run/cross/chunk_slots.h"

#include <stdlib.h>
#include <string.h>

void chunk_slots_open(struct chunk_slots *slots, int n, bool keeps) {
    *slots = (struct chunk_slots){.n = n, .keeps = keeps};
    slots->slots = xcalloc((size_t)n, sizeof *slots->slots);
}

void chunk_slots_close(struct chunk_slots *slots) {
    for (int i = 0; i < slots->n; i++) buffer_free(&slots->slots[i].documents);
    free(slots->slots);
}

void chunk_slots_hold(struct chunk_slots *slots, int slot) {
    if (slot == CHUNK_NONE) return;
    slots->events++;
    slots->slots[slot].holders++;
    slots->slots[slot].used = slots->events;
}

void chunk_slots_drop(struct chunk_slots *slots, int slot) {
    if (slot == CHUNK_NONE) return;
    CHECK(slots->slots[slot].holders > 0);
    slots->slots[slot].holders--;
}

int chunk_slots_find(struct chunk_slots *slots, const struct chunk_name *name) {
    for (int i = 0; i < slots->n; i++) {
        const struct chunk_slot *slot = &slots->slots[i];
        if (!slot->named || !slot->filled || memcmp(&slot->name, name, sizeof *name) != 0) continue;
        slots->found++;
        return i;
    }
    return CHUNK_NONE;
}

/* Whether `left` is given to another chunk before `right`: one that nobody will find, else the one
 * that was used earlier. */
static bool goes_before(const struct chunk_slot *left, const struct chunk_slot *right) {
    if (left->named != right->named) return right->named;
    return left->used < right->used;
}

static int choose_slot(const struct chunk_slots *slots) {
    int best = CHUNK_NONE;
    for (int i = 0; i < slots->n; i++) {
        const struct chunk_slot *slot = &slots->slots[i];
        if (slot->holders == 0 && (best == CHUNK_NONE || goes_before(slot, &slots->slots[best])))
            best = i;
    }
    CHECK(best != CHUNK_NONE);
    return best;
}

int chunk_slots_take(struct chunk_slots *slots, int rows) {
    int taken = choose_slot(slots);
    struct chunk_slot *slot = &slots->slots[taken];
    slots->encoded++;
    slot->named = slot->filled = slot->gone = false;
    slot->behind = slot->behind || slot->documents.size > 0;
    slot->rows = rows;
    slot->written = max_int(slot->written, rows);
    buffer_clear(&slot->documents);
    chunk_slots_hold(slots, taken);
    return taken;
}

void chunk_slots_name(struct chunk_slots *slots, int slot, const struct chunk_name *name) {
    slots->slots[slot].name = *name;
    slots->slots[slot].named = true;
}

void chunk_slots_unname(struct chunk_slots *slots, int slot) { slots->slots[slot].named = false; }

void chunk_slots_settle(struct chunk_slots *slots, bool computed) {
    for (int i = 0; i < slots->n; i++) {
        struct chunk_slot *slot = &slots->slots[i];
        slot->named = slot->named && (slot->filled || computed);
        slot->filled = slot->filled || computed;
    }
}

int chunk_slots_kept(const struct chunk_slots *slots) {
    int n = 0;
    for (int i = 0; i < slots->n; i++)
        n += slots->slots[i].holders == 0 && slots->slots[i].named && slots->slots[i].filled;
    return n;
}

/* Documents. */

static bool names_document(const struct chunk_slot *slot, uint64_t document) {
    for (size_t at = 0; at < slot->documents.size; at += sizeof document)
        if (memcmp(slot->documents.data + at, &document, sizeof document) == 0) return true;
    return false;
}

void chunk_slots_note(struct chunk_slots *slots, int slot, uint64_t document) {
    struct chunk_slot *noted = &slots->slots[slot];
    if (!names_document(noted, document))
        buffer_append(&noted->documents, &document, sizeof document);
}

void chunk_slots_documents(const struct chunk_slots *slots, document_key_taker *take,
                           void *context) {
    for (int i = 0; i < slots->n; i++) {
        const struct buffer *documents = &slots->slots[i].documents;
        for (size_t at = 0; at < documents->size; at += sizeof(uint64_t)) {
            uint64_t document;
            memcpy(&document, documents->data + at, sizeof document);
            take(context, document);
        }
    }
}

void chunk_slots_doubt(struct chunk_slots *slots, int slot) {
    slots->slots[slot].named = false;
    slots->slots[slot].gone = true;
}

void chunk_slots_forget(struct chunk_slots *slots, const uint64_t *documents, int n) {
    for (int i = 0; i < slots->n; i++)
        for (int j = 0; j < n; j++)
            if (names_document(&slots->slots[i], documents[j])) chunk_slots_doubt(slots, i);
}

/* The slot's rows from the first stale one on; -1: none is. */
static int find_stale(const struct chunk_slot *slot) {
    if (slot->gone && slot->holders == 0) return 0;
    return slot->behind ? slot->rows : -1;
}

int chunk_slots_next_stale(struct chunk_slots *slots, int *first, int *n) {
    for (int i = 0; i < slots->n; i++) {
        struct chunk_slot *slot = &slots->slots[i];
        *first = find_stale(slot);
        if (*first < 0) continue;
        *n = slot->written - *first;
        slot->written = *first;
        slot->behind = false;
        if (*first == 0) {
            slot->gone = false;
            buffer_clear(&slot->documents);
        }
        if (*n > 0) return i;
    }
    return CHUNK_NONE;
}
