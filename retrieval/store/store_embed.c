/* retrieval/store/store_embed.c: see store_embed.h. */
#include "retrieval/store/store_embed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "retrieval/store/store_later.h"
#include "retrieval/store/store_private.h"

/* Where a collection is built anew while its vectors are changed, it begins again so often. */
enum { EMBED_ATTEMPTS = 3 };

struct second_set {
    const char *dir;
    char *folder; /* DIR/embedding */
    const struct vector_change *change;
    struct collection *source, *target;
    struct generation_builder *builder; /* of the target */
    struct snapshot *snapshot;          /* of the source: what the target is made like */
    struct snapshot *reached;           /* of the source: what the target holds; NULL: not known */
    bool locked;                        /* the folder is: others wait */
    struct chunk_range *chunks;         /* of a document, as the next two */
    float *vectors, *picture;
    struct sparse_rows sparse;
    int64_t capacity; /* chunks that there is room for */
    struct vector_changed *out;
};

static enum status check_cancelled(const struct second_set *set, struct error *e) {
    const atomic_bool *cancelled = set->change->cancelled;
    if (cancelled == NULL || !atomic_load(cancelled)) return STATUS_OK;
    return error_set(e, STATUS_CANCELLED, "interrupted; the collection is as it was");
}

static void tell(const struct second_set *set, const char *step) {
    if (set->change->tell) set->change->tell(set->change->context, step);
}

/* Documents. */

static void grow_room(struct second_set *set, int64_t n_chunks) {
    if (n_chunks <= set->capacity) return;
    set->capacity = 2 * n_chunks;
    size_t n = (size_t)set->capacity;
    set->chunks = xrealloc(set->chunks, n * sizeof *set->chunks);
    set->vectors = xrealloc(set->vectors, n * (size_t)set->change->dim * sizeof *set->vectors);
}

/* A document of the source, with the picture's vector. */
static enum status read_document(struct second_set *set, const struct stored_document *document,
                                 struct collection_document *out, struct error *e) {
    bool has_picture;
    grow_room(set, document->n_chunks);
    *out = snapshot_document_again(set->snapshot, document, set->chunks);
    enum status status = snapshot_picture_vector(set->snapshot, document->first_chunk, set->picture,
                                                 &has_picture, e);
    if (status == STATUS_OK && has_picture) out->picture = set->picture;
    return status;
}

/* Its vectors and sparse weights by the new embedder. */
static enum status embed_document(struct second_set *set, struct collection_document *document,
                                  struct error *e) {
    const struct vector_change *change = set->change;
    sparse_rows_clear(&set->sparse);
    if (change->embed(change->context, document, set->locked, set->vectors, &set->sparse, e))
        return e->status;
    CHECK(!change->sparse || sparse_rows_count(&set->sparse) == document->n_chunks);
    if (change->sparse) document->sparse = sparse_rows_table(&set->sparse);
    return STATUS_OK;
}

/* The source as it is now. */
static enum status take_snapshot(struct second_set *set, struct error *e) {
    if (collection_follow(set->source, e)) return e->status;
    snapshot_release(set->snapshot);
    set->snapshot = collection_hold(set->source);
    set->picture = xrealloc(set->picture,
                            ((size_t)set->snapshot->info->pictures.dim + 1) * sizeof *set->picture);
    if (set->snapshot->n_documents > 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "%s: every document is deleted; a collection keeps at least one", set->dir);
}

/* The target. */

/* The options that the target is to be made with. */
static struct collection_options options_of(const struct second_set *set) {
    const struct vector_change *change = set->change;
    const struct collection_info *info = set->snapshot->info;
    struct collection_options options = collection_options_of(info);
    options.embedder = change->embedder;
    options.embedder_hash = change->embedder_hash;
    options.query_prompt = change->query_prompt;
    options.document_prompt = change->document_prompt;
    options.dim = change->dim;
    options.sparse = change->sparse;
    options.index_factory = change->index_factory
                                ? change->index_factory
                                : index_asked(info->index_factory, info->n_chunks, info->dim);
    return options;
}

static bool target_fits(const struct second_set *set) {
    struct collection_options options = options_of(set);
    struct snapshot *snapshot = collection_hold(set->target);
    bool fits = collection_is_made_so(snapshot->info, &options) &&
                snapshot->info->sparse == options.sparse &&
                strcmp(snapshot->info->embedder, options.embedder) == 0;
    snapshot_release(snapshot);
    return fits;
}

static void set_reached(struct second_set *set, struct snapshot *snapshot) {
    struct snapshot *before = set->reached;
    set->reached = snapshot ? snapshot_hold(snapshot) : NULL;
    snapshot_release(before);
}

static void close_target(struct second_set *set) {
    collection_close(set->target);
    set->target = NULL;
    set_reached(set, NULL);
}

/* The generations of the folder, and CURRENT; the vectors that a program keeps in it stay. */
static enum status empty_folder(const char *folder, struct error *e) {
    int *found, n = disk_list_generations(folder, &found);
    char *current = disk_path(folder, "CURRENT");
    enum status status = disk_remove(current, e);
    for (int i = 0; i < n && status == STATUS_OK; i++)
        status = disk_remove_generation(folder, found[i], e);
    free(current);
    free(found);
    return status;
}

static enum status build_document(void *context, const struct stored_document *document,
                                  struct error *e) {
    struct second_set *set = context;
    struct collection_document copy;
    if (check_cancelled(set, e) || read_document(set, document, &copy, e)) return e->status;
    enum status status = embed_document(set, &copy, e);
    if (status == STATUS_OK) status = builder_add_document(set->builder, &copy, e);
    if (status == STATUS_OK)
        status = builder_add_vectors(set->builder, set->vectors, copy.n_chunks, e);
    return status == STATUS_OK && copy.sparse.ends
               ? builder_add_sparse(set->builder, &copy.sparse, copy.n_chunks, e)
               : status;
}

static enum status build_target(struct second_set *set, struct error *e) {
    const struct collection_options options = options_of(set);
    enum status status = empty_folder(set->folder, e);
    if (status == STATUS_OK) status = builder_create(&set->builder, set->folder, &options, e);
    if (status) return status;
    status = store_walk(set->snapshot, build_document, set, e);
    struct generation_builder *builder = set->builder;
    set->builder = NULL;
    if (status) {
        builder_abandon(builder);
        return status;
    }
    tell(set, "building the index");
    status = builder_commit(builder, e);
    if (status == STATUS_OK) status = store_open(&set->target, set->folder, e);
    if (status == STATUS_OK) set_reached(set, set->snapshot);
    return status;
}

/* A target that a call before has left is taken up where it is whole and made alike. */
static enum status open_target(struct second_set *set, struct error *e) {
    struct error why;
    if (store_open(&set->target, set->folder, &why)) set->target = NULL;
    if (set->target && target_fits(set)) return STATUS_OK;
    close_target(set);
    return build_target(set, e);
}

/* Changes meanwhile. */

static enum status bring_document(void *context, const struct stored_document *document,
                                  struct error *e) {
    struct second_set *set = context;
    struct collection_document copy;
    enum change_effect effect;
    bool has;
    if (check_cancelled(set, e) || read_document(set, document, &copy, e) ||
        collection_has(set->target, NULL, &copy, &has, e))
        return e->status;
    if (has) return STATUS_OK;
    set->out->n_later++;
    enum status status = embed_document(set, &copy, e);
    return status ? status : collection_put(set->target, NULL, &copy, set->vectors, &effect, e);
}

/* Documents of the target that the source has no more. */
struct gone_ids {
    struct collection *source;
    char **ids; /* [n] */
    int n, capacity;
};

static enum status list_gone(void *context, const struct stored_document *document,
                             struct error *e) {
    struct gone_ids *gone = context;
    struct collection_found found;
    enum status status = collection_find(gone->source, NULL, document->id, &found, e);
    collection_found_release(&found);
    if (status != STATUS_NOT_FOUND) return status;
    gone->ids = xgrow(gone->ids, gone->n, &gone->capacity, sizeof *gone->ids);
    gone->ids[gone->n] = xstrdup(document->id);
    gone->n++;
    return STATUS_OK;
}

static enum status delete_gone(struct second_set *set, struct error *e) {
    struct gone_ids gone = {.source = set->source};
    struct collection_walk walk = {.take = list_gone, .context = &gone};
    enum status status = collection_walk(set->target, &walk, e);
    for (int i = 0; i < gone.n && status == STATUS_OK; i++)
        status = collection_delete(set->target, NULL, gone.ids[i], e);
    set->out->n_later += gone.n;
    for (int i = 0; i < gone.n; i++) free(gone.ids[i]);
    free(gone.ids);
    return status;
}

/* A document that went from the source, unless another version of it came. */
static enum status follow_gone(void *context, const char *id, struct error *e) {
    struct second_set *set = context;
    struct gone_ids gone = {.source = set->source};
    const struct stored_document document = {.id = id};
    enum status status = list_gone(&gone, &document, e);
    if (status == STATUS_OK && gone.n > 0) {
        status = collection_delete(set->target, NULL, id, e);
        if (status == STATUS_OK) set->out->n_later++;
        if (status == STATUS_NOT_FOUND) status = STATUS_OK; /* it came and went since */
    }
    for (int i = 0; i < gone.n; i++) free(gone.ids[i]);
    free(gone.ids);
    return status;
}

/* Whether the target can be brought to the snapshot by the changes since. */
static bool is_near(const struct second_set *set) {
    return set->reached && snapshots_share_epoch(set->reached, set->snapshot);
}

/* Documents come first: a target without any would not be a collection. */
static enum status catch_up(struct second_set *set, struct error *e) {
    const struct later_takers takers = {bring_document, follow_gone, set};
    enum status status = check_cancelled(set, e);
    if (status) return status;
    if (is_near(set)) {
        status = store_walk_later(set->reached, set->snapshot, &takers, e);
    } else {
        status = store_walk(set->snapshot, bring_document, set, e);
        if (status == STATUS_OK) status = delete_gone(set, e);
    }
    if (status == STATUS_OK) set_reached(set, set->snapshot);
    return status;
}

/* The switch. */

static enum status check_log(struct second_set *set, struct error *e) {
    struct collection_changes changes;
    if (collection_count_changes(set->source, &changes, e)) return e->status;
    if (!changes.damaged) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT,
                     "%s: its log of changes is damaged; retro-index verify --repair cuts it",
                     set->dir);
}

/* How a turn under the lock ended without one. */
struct turn_end {
    bool again; /* the collection was built anew with other options: all begins again */
    bool far;   /* it has another generation: the changes since are looked for without the lock */
};

/* Nobody else changes the collection meanwhile. */
static enum status turn_locked(struct second_set *set, struct turn_end *end, bool last,
                               struct error *e) {
    enum status status = take_snapshot(set, e);
    if (status == STATUS_OK) status = check_log(set, e);
    end->again = status == STATUS_OK && !target_fits(set);
    if (end->again)
        return error_set(e, STATUS_BUSY, "%s is built anew faster than it is embedded", set->dir);
    end->far = status == STATUS_OK && !is_near(set) && !last;
    if (end->far) return STATUS_OK;
    if (status == STATUS_OK) status = catch_up(set, e);
    return status ? status : store_move(set->folder, set->dir, e);
}

/* A server may compact just now, or take one change behind the other: that is worth waiting for. */
static enum status take_lock(const struct second_set *set, int *lock, struct error *e) {
    enum { LOCK_ATTEMPTS = 30 }; /* of ten seconds */
    enum status status = STATUS_BUSY;
    for (int i = 0; i < LOCK_ATTEMPTS && status == STATUS_BUSY; i++) {
        status = generation_lock_soon(lock, set->dir, e);
        if (status == STATUS_BUSY && check_cancelled(set, e)) return e->status;
    }
    return status;
}

static enum status turn(struct second_set *set, struct turn_end *end, bool last, struct error *e) {
    int lock;
    *end = (struct turn_end){0};
    if (take_lock(set, &lock, e)) return e->status;
    double start = time_now();
    set->locked = true;
    enum status status = turn_locked(set, end, last, e);
    set->locked = false;
    generation_unlock(lock);
    set->out->locked_seconds += time_now() - start;
    return status;
}

/* Brings over what came meanwhile until little of it is left for the time under the lock. Where
 * changes come faster than they are embedded, the lock ends the race. */
static enum status catch_up_unlocked(struct second_set *set, struct error *e) {
    enum { ROUNDS = 8, LITTLE = 4 }; /* documents */
    enum status status = STATUS_OK;
    int64_t brought = LITTLE + 1;
    for (int i = 0; i < ROUNDS && brought > LITTLE; i++) {
        const int64_t before = set->out->n_later;
        status = take_snapshot(set, e);
        if (status || !target_fits(set)) break;
        status = catch_up(set, e);
        if (status) break;
        brought = set->out->n_later - before;
    }
    return status;
}

/* One attempt. A compaction may have come before the lock was taken; where one comes after the
 * other, the lock ends the race. */
static enum status change_vectors(struct second_set *set, bool *again, struct error *e) {
    enum status status = take_snapshot(set, e);
    struct turn_end end = {.far = true};
    if (status == STATUS_OK) status = open_target(set, e);
    for (int i = 1; i <= EMBED_ATTEMPTS && status == STATUS_OK && end.far; i++) {
        tell(set, "looking for what came meanwhile");
        status = catch_up_unlocked(set, e);
        if (status) break;
        tell(set, "turning to the new vectors");
        status = turn(set, &end, i == EMBED_ATTEMPTS, e);
    }
    *again = end.again;
    close_target(set);
    return status;
}

enum status store_change_vectors(const char *dir, const struct vector_change *change,
                                 struct vector_changed *out, struct error *e) {
    struct second_set set = {.dir = dir, .change = change, .out = out};
    bool again, there;
    struct error why;
    *out = (struct vector_changed){0};
    enum status status = store_open(&set.source, dir, e);
    if (status == STATUS_OK) status = store_embedding_folder(&set.folder, dir, e);
    again = status == STATUS_OK;
    for (int i = 0; i < EMBED_ATTEMPTS && again; i++) status = change_vectors(&set, &again, e);
    if (status == STATUS_OK && store_embedding_remove(dir, &there, &why))
        log_warn("%s stays on the disk: %s", set.folder, why.text);
    snapshot_release(set.snapshot);
    collection_close(set.source);
    free(set.chunks);
    free(set.vectors);
    sparse_rows_free(&set.sparse);
    free(set.picture);
    free(set.folder);
    return status;
}

/* The folder. */

enum status store_embedding_folder(char **out, const char *dir, struct error *e) {
    *out = disk_path(dir, EMBEDDING_FOLDER);
    return disk_make_folder(*out, e);
}

enum status store_embedding_remove(const char *dir, bool *there, struct error *e) {
    char *folder = disk_path(dir, EMBEDDING_FOLDER);
    *there = access(folder, F_OK) == 0;
    enum status status = *there ? empty_folder(folder, e) : STATUS_OK;
    if (status == STATUS_OK) status = disk_remove_folder(folder, e);
    free(folder);
    return status;
}
