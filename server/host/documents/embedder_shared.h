/* server/host/documents/embedder_shared.h: an embedder that several threads use: each waits for the
 * others. */
#pragma once

#include "retrieval/embedder.h"

/* Puts a lock around an open embedder, in place, so that whoever borrowed it shares it too. */
void embedder_share(struct embedder *embedder);
/* Takes the lock away again, before the embedder is closed; of one that was not shared: nothing. */
void embedder_unshare(struct embedder *embedder);
/* Seconds that this thread has spent in shared embedders, waiting for them included. */
double embedder_shared_seconds(void);
