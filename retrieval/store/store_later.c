/* retrieval/store/store_later.c: see store_later.h. */
#include "retrieval/store/store_later.h"

#include "retrieval/store/store_private.h"

bool snapshots_share_epoch(const struct snapshot *before, const struct snapshot *after) {
    return store_snapshot_read(before)->epoch == store_snapshot_read(after)->epoch;
}

/* The sequence of the change that took a document away; 0: it is there. */
static uint64_t gone_sequence(const gone_at *gone) {
    return atomic_load_explicit(gone, memory_order_acquire) & ~GONE_FOR_ALL;
}

static enum status walk_came(const struct store_snapshot *before,
                             const struct store_snapshot *after, const struct later_takers *takers,
                             struct error *e) {
    const struct epoch *epoch = after->epoch;
    int64_t n_documents = disk_generation_info(epoch->generation)->n_documents;
    enum status status = STATUS_OK;
    for (int i = before->n_logged; i < after->n_logged && status == STATUS_OK; i++) {
        const struct logged_document *logged = epoch_logged(epoch, i);
        struct stored_document document = epoch_document(epoch, n_documents + i);
        if (store_snapshot_has(after, logged->added, &logged->gone))
            status = takers->came(takers->context, &document, e);
    }
    return status;
}

/* Documents of the generation are listed in the order in which they went. */
static enum status walk_went(const struct store_snapshot *before,
                             const struct store_snapshot *after, const struct later_takers *takers,
                             struct error *e) {
    struct epoch *epoch = after->epoch;
    int64_t n_documents = disk_generation_info(epoch->generation)->n_documents,
            n_listed = atomic_load_explicit(&epoch->n_gone_listed, memory_order_acquire);
    enum status status = STATUS_OK;
    for (int64_t i = n_listed - 1; i >= 0 && status == STATUS_OK; i--) {
        int64_t place = epoch->gone_list[i];
        if (gone_sequence(&epoch->gone[place]) <= before->sequence) break;
        status = takers->went(takers->context, epoch_document(epoch, place).id, e);
    }
    for (int i = 0; i < after->n_logged && status == STATUS_OK; i++)
        if (gone_sequence(&epoch_logged(epoch, i)->gone) > before->sequence)
            status = takers->went(takers->context, epoch_document(epoch, n_documents + i).id, e);
    return status;
}

enum status store_walk_later(const struct snapshot *before, const struct snapshot *after,
                             const struct later_takers *takers, struct error *e) {
    CHECK(snapshots_share_epoch(before, after));
    const struct store_snapshot *from = store_snapshot_read(before),
                                *to = store_snapshot_read(after);
    enum status status = walk_came(from, to, takers, e);
    return status ? status : walk_went(from, to, takers, e);
}
