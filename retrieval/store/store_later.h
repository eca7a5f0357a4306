/* retrieval/store/store_later.h: documents that came and went between two snapshots, without a look
 * at all others. */
#pragma once

#include "retrieval/store/store.h"

/* Whether both are of one generation, and of one reading of its log: store_walk_later needs that.
 */
bool snapshots_share_epoch(const struct snapshot *before, const struct snapshot *after);

typedef enum status id_taker(void *context, const char *id, struct error *e);

/* Calls `came` for each document of `after` that came behind `before`, replacements included, then
 * `went` for the id of each that went: `after` may have the id, in another version. Takes as long
 * as there are changes since the generation. Ends with what is returned where that is not
 * STATUS_OK. */
struct later_takers {
    document_taker *came;
    id_taker *went;
    void *context;
};
enum status store_walk_later(const struct snapshot *before, const struct snapshot *after,
                             const struct later_takers *takers, struct error *e);
