/* server/documents/collection_upkeep.c: see collection_upkeep.h. */
#include "server/documents/collection_upkeep.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

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

/* A compaction in a thread of its own. */
struct calm_compaction {
    struct collection *collection;
    const atomic_bool *stopped;
    enum status status;
    struct error *e;
};

/* Threads of OpenMP that it begins are as calm: on Linux a priority is a thread's, and is
 * inherited. A refusal costs time alone. */
static void *run_calmly(void *context) {
    enum { CALM = 10 };
    struct calm_compaction *calm = context;
    (void)setpriority(PRIO_PROCESS, 0, CALM);
    calm->status = collection_compact(calm->collection, calm->stopped, calm->e);
    return NULL;
}

/* Building an index takes all cores for minutes, and searches come before it. */
static enum status compact_calmly(struct collection *collection, const atomic_bool *stopped,
                                  struct error *e) {
    struct calm_compaction calm = {.collection = collection, .stopped = stopped, .e = e};
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, run_calmly, &calm);
    if (failed) return error_set(e, STATUS_NO_MEMORY, "a thread: %s", strerror(failed));
    pthread_join(thread, NULL);
    return calm.status;
}

bool upkeep_compact(struct collection *collection, const atomic_bool *stopped) {
    struct error e;
    double start = time_now();
    enum status status = compact_calmly(collection, stopped, &e);
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
