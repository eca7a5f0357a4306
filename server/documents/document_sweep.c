/* server/documents/document_sweep.c: see document_sweep.h. */
#include "server/documents/document_sweep.h"

#include "retrieval/kept/kept_copy.h"

enum {
    SWEEP_PAUSE = 20,  /* times as long as the sweep before */
    AGAIN_SECONDS = 60 /* after one that failed */
};

void document_sweep(struct document_sweeper *sweeper, int64_t n_written) {
    struct kept_swept swept;
    struct error e;
    double start = time_now();
    if (sweeper->folder == NULL || start < sweeper->next) return;
    struct snapshot *snapshot = collection_hold(sweeper->collection);
    int64_t version = snapshot->version;
    snapshot_release(snapshot);
    if (version == sweeper->version && n_written == sweeper->n_written) return;

    enum status status = kept_sweep(sweeper->folder, sweeper->collection, &swept, &e);
    double took = time_now() - start;
    sweeper->next = start + took + SWEEP_PAUSE * took;
    if (status) {
        log_warn("copies of files that went stay on the disk: %s", e.text);
        sweeper->next = time_now() + AGAIN_SECONDS;
        return;
    }
    if (swept.n_removed > 0)
        log_debug("%d copies of files went with their documents", swept.n_removed);
    sweeper->version = swept.n_held > 0 ? -1 : version;
    sweeper->n_written = n_written;
}
