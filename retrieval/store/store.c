/* retrieval/store/store.c: opening a collection that changes, and its snapshots. See store.h. */
#include "retrieval/store/store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/store/store_private.h"

/* Changes on their way from a log into an epoch. */
struct replay {
    struct epoch *epoch;
    uint64_t sequence;
};

/* Snapshots. */

static void close_snapshot(struct snapshot *snapshot) {
    epoch_release(store_snapshot_read(snapshot)->epoch);
    free(snapshot);
}

/* The number of the document of the log that has a chunk of the log: the last that begins at or
 * before it. */
int store_snapshot_logged(const struct store_snapshot *snapshot, int64_t chunk) {
    int low = 0, high = snapshot->n_logged - 1;
    CHECK(high >= 0);
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (epoch_logged(snapshot->epoch, middle)->first_chunk <= chunk)
            low = middle;
        else
            high = middle - 1;
    }
    const struct logged_document *document = epoch_logged(snapshot->epoch, low);
    CHECK(chunk >= document->first_chunk &&
          chunk < document->first_chunk + document->bytes->image.document.n_chunks);
    return low;
}

static struct chunk read_chunk(const struct snapshot *snapshot, int64_t id) {
    const struct store_snapshot *store_snapshot = store_snapshot_read(snapshot);
    if (id < snapshot->info->n_chunks)
        return disk_generation_chunk(store_snapshot->epoch->generation, id);
    int number = store_snapshot_logged(store_snapshot, id);
    const struct logged_document *logged = epoch_logged(store_snapshot->epoch, number);
    struct chunk chunk =
        document_chunk(&logged->bytes->image.document, (int)(id - logged->first_chunk),
                       snapshot->info->n_documents + number);
    chunk.id = id;
    return chunk;
}

static enum status read_vectors(const struct snapshot *snapshot, int64_t first, int n,
                                float *vectors, struct error *e) {
    const struct store_snapshot *store_snapshot = store_snapshot_read(snapshot);
    const struct index *index = disk_generation_index(store_snapshot->epoch->generation);
    if (first < snapshot->info->n_chunks) return index_vectors(index, first, n, vectors, e);
    const struct logged_document *document =
        epoch_logged(store_snapshot->epoch, store_snapshot_logged(store_snapshot, first));
    size_t dim = (size_t)snapshot->info->dim;
    memcpy(vectors, document->bytes->image.vectors + (size_t)(first - document->first_chunk) * dim,
           (size_t)n * dim * sizeof *vectors);
    return STATUS_OK;
}

static enum status read_picture_vector(const struct snapshot *snapshot, int64_t id, float *vector,
                                       bool *has, struct error *e) {
    const struct store_snapshot *store_snapshot = store_snapshot_read(snapshot);
    const struct disk_generation *generation = store_snapshot->epoch->generation;
    if (id < snapshot->info->n_chunks) {
        int64_t number = disk_generation_picture_of(generation, id);
        *has = number >= 0;
        return *has ? index_vectors(disk_generation_pictures(generation), number, 1, vector, e)
                    : STATUS_OK;
    }
    const struct logged_document *document =
        epoch_logged(store_snapshot->epoch, store_snapshot_logged(store_snapshot, id));
    const float *picture =
        id == document->first_chunk ? document->bytes->image.document.picture : NULL;
    *has = picture != NULL;
    if (*has) memcpy(vector, picture, (size_t)snapshot->info->pictures.dim * sizeof *vector);
    return STATUS_OK;
}

static enum status read_sparse(const struct snapshot *snapshot, int64_t first, int n,
                               struct sparse_rows *rows, struct error *e) {
    for (int i = 0; i < n; i++) {
        struct sparse_row row;
        if (store_sparse_row(store_snapshot_read(snapshot), first + i, &row, e)) return e->status;
        sparse_rows_add(rows, row);
    }
    return STATUS_OK;
}

static const struct snapshot_ops snapshot_ops = {close_snapshot, read_chunk, read_vectors,
                                                 read_picture_vector, read_sparse};

const struct store_snapshot *store_snapshot_read(const struct snapshot *snapshot) {
    CHECK(snapshot->ops == &snapshot_ops);
    return (const struct store_snapshot *)snapshot;
}

static int64_t count_chunk_numbers(const struct epoch *epoch) {
    int64_t of_generation = disk_generation_info(epoch->generation)->n_chunks;
    if (epoch->n_logged == 0) return of_generation;
    const struct logged_document *last = epoch_logged(epoch, epoch->n_logged - 1);
    return last->first_chunk + last->bytes->image.document.n_chunks;
}

static struct store_snapshot *make_snapshot(struct epoch *epoch, uint64_t sequence) {
    struct store_snapshot *snapshot = xcalloc(1, sizeof *snapshot);
    CHECK(sequence <= UINT32_MAX);
    snapshot->base.ops = &snapshot_ops;
    snapshot->base.info = disk_generation_info(epoch->generation);
    snapshot->base.embedder = epoch->embedder ? &epoch->embedder->embedder : NULL;
    snapshot->base.generation = snapshot->base.info->generation;
    snapshot->base.n_changes = (int64_t)sequence;
    snapshot->base.version = ((int64_t)snapshot->base.generation << 32) | (int64_t)sequence;
    snapshot->base.n_documents = epoch->n_there;
    snapshot->base.n_chunks = epoch->n_chunks_there;
    snapshot->base.chunk_limit = count_chunk_numbers(epoch);
    snapshot->base.max_token = epoch->max_token;
    atomic_init(&snapshot->base.holders, 1);
    snapshot->epoch = epoch_hold(epoch);
    snapshot->sequence = sequence;
    snapshot->n_logged = epoch->n_logged;
    return snapshot;
}

void store_renew(struct store *store) {
    struct store_snapshot *old = store->newest;
    store->newest = make_snapshot(store->epoch, store->end.sequence);
    if (old) snapshot_release(&old->base);
}

static struct snapshot *hold_newest(struct collection *collection) {
    struct store *store = store_of(collection);
    pthread_mutex_lock(&store->lock);
    store_refresh(store);
    struct snapshot *snapshot = snapshot_hold(&store->newest->base);
    pthread_mutex_unlock(&store->lock);
    return snapshot;
}

bool store_has_chunk(const struct snapshot *snapshot, int64_t id) {
    const struct store_snapshot *store_snapshot = store_snapshot_read(snapshot);
    const struct epoch *epoch = store_snapshot->epoch;
    if (id < snapshot->info->n_chunks)
        return store_snapshot_has(store_snapshot, 0,
                                  &epoch->gone[disk_generation_document_of(epoch->generation, id)]);
    const struct logged_document *document =
        epoch_logged(epoch, store_snapshot_logged(store_snapshot, id));
    return store_snapshot_has(store_snapshot, document->added, &document->gone);
}

/* Whether the document at a place is in the snapshot. */
static bool has_place(const struct store_snapshot *snapshot, int64_t place) {
    const struct epoch *epoch = snapshot->epoch;
    int64_t n_documents = disk_generation_info(epoch->generation)->n_documents;
    if (place < n_documents) return store_snapshot_has(snapshot, 0, &epoch->gone[place]);
    const struct logged_document *logged = epoch_logged(epoch, (int)(place - n_documents));
    return store_snapshot_has(snapshot, logged->added, &logged->gone);
}

static int64_t count_places(const struct store_snapshot *snapshot) {
    return disk_generation_info(snapshot->epoch->generation)->n_documents + snapshot->n_logged;
}

/* From the document at place `first` on. */
static enum status walk_from(const struct store_snapshot *snapshot, int64_t first,
                             document_taker *take, void *context, struct error *e) {
    enum status status = STATUS_OK;
    for (int64_t i = first; i < count_places(snapshot) && status == STATUS_OK; i++) {
        if (!has_place(snapshot, i)) continue;
        struct stored_document document = epoch_document(snapshot->epoch, i);
        status = take(context, &document, e);
    }
    return status;
}

enum status store_walk(const struct snapshot *snapshot, document_taker *take, void *context,
                       struct error *e) {
    return walk_from(store_snapshot_read(snapshot), 0, take, context, e);
}

/* The place of a document that a walk begins behind. Where the snapshot has another version of it,
 * which is somewhere else: the first of all. */
static int64_t find_begin(struct store *store, const struct store_snapshot *snapshot,
                          const char *after) {
    if (after == NULL) return 0;
    pthread_mutex_lock(&store->lock);
    int64_t place = epoch_find(snapshot->epoch, after);
    pthread_mutex_unlock(&store->lock);
    return place >= 0 && place < count_places(snapshot) && has_place(snapshot, place) ? place : 0;
}

/* The document that it begins behind is the first that is taken. */
static enum status walk_documents(struct collection *collection, const struct collection_walk *walk,
                                  struct error *e) {
    struct snapshot *snapshot =
        walk->snapshot ? snapshot_hold(walk->snapshot) : hold_newest(collection);
    const struct store_snapshot *store_snapshot = store_snapshot_read(snapshot);
    int64_t first = find_begin(store_of(collection), store_snapshot, walk->after);
    enum status status = walk_from(store_snapshot, first, walk->take, walk->context, e);
    snapshot_release(snapshot);
    return status;
}

static enum status find_document(struct collection *collection, const struct filter *filter,
                                 const char *id, struct collection_found *out, struct error *e) {
    struct store *store = store_of(collection);
    pthread_mutex_lock(&store->lock);
    store_refresh(store);
    int64_t place = epoch_find_allowed(store->epoch, filter, id);
    if (place >= 0)
        *out = (struct collection_found){epoch_document(store->epoch, place),
                                         snapshot_hold(&store->newest->base)};
    pthread_mutex_unlock(&store->lock);
    return place >= 0 ? STATUS_OK
                      : error_set(e, STATUS_NOT_FOUND, "no document has the id %.200s", id);
}

static bool list_gone(struct collection *collection, int64_t *position, struct buffer *ids) {
    struct store *store = store_of(collection);
    pthread_mutex_lock(&store->lock);
    store_refresh(store);
    const struct gone_documents *gone = &store->gone;
    bool known = gone->n - *position <= GONE_MOST;
    for (int64_t i = *position; known && i < gone->n; i++)
        buffer_append(ids, &gone->ids[i % GONE_MOST], sizeof *gone->ids);
    *position = gone->n;
    pthread_mutex_unlock(&store->lock);
    return known;
}

static enum status shows_all(struct collection *collection, const struct filter *filter,
                             const char *const *ids, int n, bool *shows, struct error *e) {
    struct store *store = store_of(collection);
    (void)e;
    pthread_mutex_lock(&store->lock);
    store_refresh(store);
    for (int i = 0; i < n; i++) shows[i] = epoch_find_allowed(store->epoch, filter, ids[i]) >= 0;
    pthread_mutex_unlock(&store->lock);
    return STATUS_OK;
}

/* Opening. */

static enum status change_epoch(void *context, enum change_kind kind, char *bytes, size_t size,
                                struct error *e) {
    struct replay *replay = context;
    replay->sequence++;
    return epoch_change(replay->epoch, replay->sequence, kind, bytes, size, e);
}

enum status epoch_load(struct epoch **out, struct disk_generation *generation,
                       struct change_log_end *end, struct error *e) {
    struct replay replay = {.epoch = epoch_open(generation)};
    *end = (struct change_log_end){0};
    enum status status =
        change_log_read(disk_generation_folder(generation), disk_generation_origin(generation),
                        change_epoch, &replay, end, e);
    if (status) {
        epoch_release(replay.epoch);
        return status;
    }
    *out = replay.epoch;
    return STATUS_OK;
}

void store_turn(struct store *store, struct epoch *epoch, const struct change_log_end *end) {
    if (store->epoch) store->epoch->told = NULL;
    epoch->told = &store->gone;
    epoch->older = store->epoch;
    store->epoch = epoch;
    store->end = *end;
    store->astray = false;
    store_renew(store);
}

void store_tidy(struct store *store) {
    pthread_mutex_lock(&store->lock);
    struct epoch *detached = epoch_detach_older(store->epoch);
    pthread_mutex_unlock(&store->lock);
    epoch_release(detached);
}

/* Another program may have taken changes off the log again that it could not put on the disk, and
 * written others. */
static bool went_astray(const struct change_log_end *before, const struct change_log_end *now,
                        enum status status) {
    return status == STATUS_CORRUPT || (now->damaged && !before->damaged);
}

void store_refresh(struct store *store) {
    struct error e;
    const struct disk_generation *generation = store->epoch->generation;
    if (store->log || !change_log_is_news(disk_generation_folder(generation), &store->end)) return;
    if (store->end.sequence > 0 && change_log_measure(disk_generation_folder(generation)) == 0) {
        store->astray = true; /* of a generation that is gone, or taken back as a whole */
        return;
    }
    struct replay replay = {.epoch = store->epoch, .sequence = store->end.sequence};
    struct change_log_end before = store->end;
    enum status status =
        change_log_read(disk_generation_folder(generation), disk_generation_origin(generation),
                        change_epoch, &replay, &store->end, &e);
    if (status) log_warn("changes of another program are not read: %s", e.text);
    if (went_astray(&before, &store->end, status)) store->astray = true;
    if (store->end.sequence != before.sequence) store_renew(store);
}

/* The table. */

static enum status move_index(struct collection *collection, const char *device, struct error *e) {
    struct store *store = store_of(collection);
    free(store->device);
    store->device = xstrdup(device);
    return disk_generation_move(store->epoch->generation, device, e);
}

static struct collection_changes count_changes(struct collection *collection) {
    struct store *store = store_of(collection);
    pthread_mutex_lock(&store->lock);
    const struct epoch *epoch = store->epoch;
    const struct words *words = disk_generation_words(epoch->generation);
    const struct sparse_index *sparse = disk_generation_sparse(epoch->generation);
    struct collection_changes changes = {.n_documents = epoch->n_logged,
                                         .n_chunks = epoch->n_logged_chunks,
                                         .n_deleted = epoch->n_gone,
                                         .n_deleted_chunks = atomic_load(&epoch->n_gone_chunks),
                                         .log_bytes = store->end.size,
                                         .damaged = store->end.damaged,
                                         .n_words = words_count(words),
                                         .words_bytes = words_size(words),
                                         .n_sparse = sparse ? sparse_index_weights(sparse) : 0};
    pthread_mutex_unlock(&store->lock);
    return changes;
}

static enum status search_vectors(struct collection *collection, struct snapshot *snapshot,
                                  const struct nearest_query *query, struct nearest_found *out,
                                  struct error *e) {
    size_t n = (size_t)query->n * (size_t)query->k;
    (void)collection;
    out->ids = xmalloc(n * sizeof *out->ids);
    out->similarities = xmalloc(n * sizeof *out->similarities);
    enum status status = store_search(snapshot, query, out->ids, out->similarities, e);
    if (status == STATUS_OK) out->snapshot = snapshot_hold(snapshot);
    return status;
}

static enum status search_words(struct collection *collection, struct snapshot *snapshot,
                                const struct word_query *query, struct word_found *found,
                                struct error *e) {
    (void)collection;
    return store_search_words(snapshot, query, found, e);
}

/* Words of so few documents of the log are made in some milliseconds. */
enum { QUICK_DOCUMENTS = 200 };

static enum status search_sparse(struct collection *collection, struct snapshot *snapshot,
                                 const struct sparse_query *query, struct sparse_found *found,
                                 struct error *e) {
    (void)collection;
    return store_search_sparse(snapshot, query, found, e);
}

static bool has_words(struct collection *collection, const struct snapshot *snapshot) {
    (void)collection;
    const struct store_snapshot *store_snapshot = store_snapshot_read(snapshot);
    return store_snapshot->n_logged - atomic_load(&store_snapshot->epoch->n_with_words) <=
           QUICK_DOCUMENTS;
}

static void close_store(struct collection *collection) {
    struct store *store = store_of(collection);
    CHECK(store->n_changing == 0);
    if (store->newest) snapshot_release(&store->newest->base);
    epoch_release(store->epoch);
    pthread_cond_destroy(&store->changed);
    pthread_mutex_destroy(&store->lock);
    free(store->dir);
    free(store->device);
    free(store);
}

enum status store_open(struct collection **out, const char *dir, struct error *e) {
    static const struct collection_ops ops = {.close = close_store,
                                              .hold = hold_newest,
                                              .follow = store_follow_folder,
                                              .search = search_vectors,
                                              .search_words = search_words,
                                              .search_sparse = search_sparse,
                                              .has_words = has_words,
                                              .find = find_document,
                                              .walk = walk_documents,
                                              .shows_all = shows_all,
                                              .has_all = store_has_all,
                                              .put_all = store_put_all,
                                              .remove = store_remove,
                                              .list_gone = list_gone,
                                              .move = move_index,
                                              .follow_embedders = store_follow_embedders,
                                              .changes = count_changes,
                                              .compact = store_compact};
    struct store *store = xcalloc(1, sizeof *store);
    struct epoch *epoch;
    struct change_log_end end;
    store->base.ops = &ops;
    store->dir = xstrdup(dir);
    store->lock_file = -1;
    store->pending_end = &store->pending;
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->changed, NULL);
    enum status status = store_load_newest(store, &epoch, &end, e);
    if (status) {
        close_store(&store->base);
        return status;
    }
    store_turn(store, epoch, &end);
    *out = &store->base;
    return STATUS_OK;
}
