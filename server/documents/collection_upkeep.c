/* server/documents/collection_upkeep.c: see collection_upkeep.h. */
#include "server/documents/collection_upkeep.h"

#include <inttypes.h>

void upkeep_follow(struct collection *collection) {
    struct error e;
    if (collection_follow(collection, &e)) log_warn("the collection stays as it was: %s", e.text);
}

bool upkeep_is_due(struct collection *collection, int after) {
    struct collection_changes changes;
    struct error e;
    if (collection_count_changes(collection, &changes, &e)) return false;
    return after > 0 && changes.n_chunks + changes.n_deleted_chunks >= after;
}

bool upkeep_compact(struct collection *collection, const atomic_bool *stopped) {
    struct error e;
    double start = time_now();
    enum status status = collection_compact(collection, stopped, &e);
    if (status == STATUS_CANCELLED) return true;
    if (status) {
        log_warn("the collection is not compacted: %s", e.text);
        return false;
    }
    struct snapshot *snapshot = collection_hold(collection);
    log_info("collection: compacted to generation %d in %.1f s, %" PRId64 " documents, %" PRId64
             " chunks",
             snapshot->generation, time_now() - start, snapshot->n_documents, snapshot->n_chunks);
    snapshot_release(snapshot);
    return true;
}
