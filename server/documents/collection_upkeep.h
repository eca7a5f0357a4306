/* server/documents/collection_upkeep.h: what the thread that keeps a collection in order does: it
 * follows what other programs have done, and compacts. Each tells in the log how it went. */
#pragma once

#include <stdatomic.h>

#include "retrieval/collection.h"

void upkeep_follow(struct collection *collection);
/* Whether so many chunks came or went since its generation was written; after 0: never. */
bool upkeep_is_due(struct collection *collection, int after);
/* Returns false where it failed. *stopped ends it. */
bool upkeep_compact(struct collection *collection, const atomic_bool *stopped);
