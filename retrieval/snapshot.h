/* retrieval/snapshot.h: one state of what is searched. It never changes, and it stays readable for as long as somebody
 * holds it, whatever newer state is opened meanwhile. A request holds one from its first chunk to its last; hits hold
 * the one that they were found in. Any thread may hold and release. */
#pragma once

#include <stdatomic.h>

#include "config/base/base.h"

struct snapshot {
    int64_t version; /* of the same source: a later state has a larger one */
    int generation;  /* that it stands on, and how many changes it has since, for people */
    int64_t n_changes;
    int64_t n_documents, n_chunks;
    void (*close)(struct snapshot *s); /* by whoever releases it last */
    atomic_int holders;                /* 1 when made: its maker's */
};

/* The caller holds it already, or whoever does cannot release it meanwhile. NULL is nothing. */
static inline struct snapshot *snapshot_hold(struct snapshot *s) {
    if (s) atomic_fetch_add(&s->holders, 1);
    return s;
}

static inline void snapshot_release(struct snapshot *s) {
    if (s && atomic_fetch_sub(&s->holders, 1) == 1) s->close(s);
}
