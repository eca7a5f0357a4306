/* server/blocks/block_index.h: which blocks of keys and values a folder has, and which of them were
 * not used for longest. Pure bookkeeping: it knows no file. A block that is used brings those
 * before it along, so the least recently used block has none behind it. */
#pragma once

#include "retro/run/cache/block_file.h"
#include "retro/run/cache/session_text.h"

struct block_entry {
    struct block_address before, address;
    uint64_t base, bytes;
    int32_t *ids;  /* [n] owned, and what else the rows read behind them */
    int32_t *read; /* [n_read] */
    int n, n_read;
    struct read_document *documents; /* [n_documents] owned (document_watch.h) */
    int n_documents;
    int64_t used; /* when, in seconds of the system's clock; written into the file at the end */
    bool touched; /* used since the file was written */
    struct block_entry *older, *newer;
    struct block_entry *next_address, *next_child; /* in their buckets */
    struct block_entry **child_place;              /* what points to it among children */
};

/* Zero-initialise. */
struct block_index {
    struct block_entry **by_address, **by_before; /* [n_buckets] */
    size_t n_buckets;
    struct block_entry *oldest, *newest;
    int64_t n, bytes;
};

void block_index_free(struct block_index *index);
struct block_entry *block_index_at(const struct block_index *index,
                                   const struct block_address *address);
/* The next block behind `before` after `last`, the latest ones first; NULL: the first, and none.
 * Any number of blocks may be behind one: callers look at BLOCK_CHILDREN at most. */
enum { BLOCK_CHILDREN = 64 };
struct block_entry *block_index_child(const struct block_index *index,
                                      const struct block_address *before,
                                      const struct block_entry *last);
/* A block that is not there, the most recently used one. `file` and its parts are copied. */
struct block_entry *block_index_add(struct block_index *index, const struct block_file *file,
                                    const struct read_document *documents, int n_documents);
void block_index_use(struct block_index *index, struct block_entry *entry, int64_t now);
/* The entry leaves, and is the caller's; block_entry_free. */
void block_index_take(struct block_index *index, struct block_entry *entry);
void block_entry_free(struct block_entry *entry);
/* Puts all in order of `used`, a block with those before it. */
void block_index_sort(struct block_index *index);

bool block_entry_names(const struct block_entry *entry, uint64_t document);
/* Whether the rows of `part` are the first ones of `whole`. */
bool block_entry_covers(const struct block_entry *whole, const struct block_file *part);
