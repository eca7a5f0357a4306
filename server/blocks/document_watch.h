/* server/blocks/document_watch.h: the documents whose text stands in rows that are kept, and which
 * of them have been deleted or changed since, by whichever process.
 *
 * A part of a document that was read has a key, by which rows are marked. Whoever takes rows over
 * asks first what has gone (document_watch_look), so that what it finds depends on the state of the
 * collection, and on nobody's turn. All of this is for one thread. */
#pragma once

#include "config/base/key_set.h"
#include "retrieval/retriever.h"
#include "retro/run/cache/block_file.h"
#include "retro/run/cache/session_text.h"

struct document_watch;

/* The key of what nobody can watch: a document of a collection on another machine. */
enum { DOCUMENT_UNWATCHED = 1 };

/* The collection is borrowed. */
struct document_watch *document_watch_open(struct collection *collection);
void document_watch_close(struct document_watch *watch);

/* Appends the keys, uint64_t each, of documents that were deleted or changed since the last look to
 * *gone; they are not watched any more. A document that was put back as it was has gone, too. Costs
 * a look at the collection's version where nothing has changed. */
void document_watch_look(struct document_watch *watch, struct buffer *gone);
/* The same of all documents that are not there any more as they were read, whenever they went. */
void document_watch_compare(struct document_watch *watch, struct buffer *gone);

/* The key of what is read of the hit's document, which is watched from now on; 0: the hit is of
 * none. *there: it is still what the newest state of the collection has. */
uint64_t document_watch_hit(struct document_watch *watch, const struct hit *hit, bool *there);
/* The key of what a file says to have read, which is watched from now on: before it is known
 * whether that is still there (document_watch_compare). */
uint64_t document_watch_part(struct document_watch *watch, const struct document_part *part);
/* The key of a part that is watched; 0: it is not, or has gone. */
uint64_t document_watch_find(const struct document_watch *watch, const struct document_part *part);
bool document_watch_has(const struct document_watch *watch, uint64_t document);
/* Appends the record of what was read; false where it is not watched. */
bool document_watch_print(const struct document_watch *watch, const struct read_document *document,
                          struct buffer *out);
/* Whether any is watched, so that looks are needed. */
bool document_watch_is_needed(const struct document_watch *watch);
/* Whether there are many more keys than were used the last time. */
bool document_watch_is_full(const struct document_watch *watch);
/* Keys {a key, 0} are used; the others are forgotten. */
void document_watch_keep(struct document_watch *watch, const struct key_set *used);
