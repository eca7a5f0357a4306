/* retro/run/cross/chunk_slots.h: which slot of the cross cache has which chunk's encoded
 * neighbours. Pure bookkeeping, on the rank that leads: it knows the numbers of slots and no
 * device.
 *
 * Sessions hold the slot of their latest chunk, and a step those that it fills. A slot that nobody
 * holds keeps its chunk under a name (chunk_name.h) until another chunk needs the slot, the least
 * recently used first: a later session that reads the same chunk need not encode it. So kept chunks
 * take no memory beside what running sequences need. */
#pragma once

#include "retro/run/cross/chunk_name.h"

enum { CHUNK_NONE = -1 };

struct chunk_slot {
    struct chunk_name name;
    bool named;  /* others may find what is encoded there, once it is `filled` */
    bool filled; /* the step that encoded it was computed to its end */
    int rows;    /* that are encoded there: the slot's first ones */
    int written; /* its first rows that were ever encoded, so that they are not zeros */
    int holders;
    uint64_t used;           /* when it was held last, as a count of such events */
    struct buffer documents; /* uint64_t each: keys of documents that the rows depend on */
    bool gone;               /* one of these is gone: the rows are not to outlive their holders */
    bool behind; /* rows behind the encoded ones depend on documents, of earlier times */
};

struct chunk_slots {
    struct chunk_slot *slots; /* [n] */
    int n;
    bool keeps; /* chunks are found again */
    uint64_t events;
    int64_t encoded, found; /* chunks so far */
};

void chunk_slots_open(struct chunk_slots *slots, int n, bool keeps);
void chunk_slots_close(struct chunk_slots *slots); /* also of zeros */

/* The slot that has the chunk of this name; CHUNK_NONE: none has. */
int chunk_slots_find(struct chunk_slots *slots, const struct chunk_name *name);
/* A slot that this step fills with so many rows, held once. One is free: sessions hold one each at
 * most, and a step those that it fills. */
int chunk_slots_take(struct chunk_slots *slots, int rows);
/* The slot's chunk will be found by this name. */
void chunk_slots_name(struct chunk_slots *slots, int slot, const struct chunk_name *name);
void chunk_slots_unname(struct chunk_slots *slots, int slot);
/* The step that takes slots has ended: what it encoded is there, or was never computed. */
void chunk_slots_settle(struct chunk_slots *slots, bool computed);
/* One holder more, or one less; CHUNK_NONE: nothing. */
void chunk_slots_hold(struct chunk_slots *slots, int slot);
void chunk_slots_drop(struct chunk_slots *slots, int slot);
int chunk_slots_kept(const struct chunk_slots *slots); /* that nobody holds and others may find */

/* The slot's rows depend on the document. */
void chunk_slots_note(struct chunk_slots *slots, int slot, uint64_t document);
/* They depend on a document that is gone already. */
void chunk_slots_doubt(struct chunk_slots *slots, int slot);
/* These documents are gone: nobody finds what depends on them. */
void chunk_slots_forget(struct chunk_slots *slots, const uint64_t *documents, int n);
/* Calls `take` for each document that rows of a slot depend on, some more than once. */
void chunk_slots_documents(const struct chunk_slots *slots, document_key_taker *take,
                           void *context);
/* Between steps: the next slot with rows [*first, *first + *n) that are to be overwritten now,
 * because a document of theirs is gone or nobody would notice that it goes; CHUNK_NONE: there is
 * none. */
int chunk_slots_next_stale(struct chunk_slots *slots, int *first, int *n);
