/* retrieval/store/store_embed.c: see store_embed.h. */
#include "retrieval/store/store_embed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "retrieval/store/store_private.h"

/* Where a collection is built anew while its vectors are changed, it begins again so often. */
enum { EMBED_ATTEMPTS = 3 };

struct embedding {
    const char *dir;
    char *folder; /* DIR/embedding */
    const struct vector_change *change;
    struct collection *source, *target;
    struct generation_builder *builder; /* of the target */
    struct snapshot *snapshot; /* of the source: what the target is made like */
    int64_t version;           /* of the source's snapshot that the target holds; -1: none */
    struct chunk_range *chunks; /* of a document, as the next two */
    float *vectors, *picture;
    int64_t capacity; /* chunks that there is room for */
    struct vector_changed *out;
};

static enum status check_cancelled(const struct embedding *embedding, struct error *e) {
    const atomic_bool *cancelled = embedding->change->cancelled;
    if (cancelled == NULL || !atomic_load(cancelled)) return STATUS_OK;
    return error_set(e, STATUS_CANCELLED, "interrupted; the collection is as it was");
}

static void tell(const struct embedding *embedding, const char *step) {
    if (embedding->change->tell) embedding->change->tell(embedding->change->context, step);
}

/* Documents. */

static void grow_room(struct embedding *embedding, int64_t n_chunks) {
    if (n_chunks <= embedding->capacity) return;
    embedding->capacity = 2 * n_chunks;
    size_t n = (size_t)embedding->capacity;
    embedding->chunks = xrealloc(embedding->chunks, n * sizeof *embedding->chunks);
    embedding->vectors = xrealloc(
        embedding->vectors, n * (size_t)embedding->change->dim * sizeof *embedding->vectors);
}

/* A document of the source, with the picture's vector. */
static enum status read_document(struct embedding *embedding,
                                 const struct stored_document *document,
                                 struct collection_document *out, struct error *e) {
    bool has_picture;
    grow_room(embedding, document->n_chunks);
    *out = snapshot_document_again(embedding->snapshot, document, embedding->chunks);
    enum status status = snapshot_picture_vector(embedding->snapshot, document->first_chunk,
                                                 embedding->picture, &has_picture, e);
    if (status == STATUS_OK && has_picture) out->picture = embedding->picture;
    return status;
}

/* The source as it is now. */
static enum status take_snapshot(struct embedding *embedding, struct error *e) {
    if (collection_follow(embedding->source, e)) return e->status;
    snapshot_release(embedding->snapshot);
    embedding->snapshot = collection_hold(embedding->source);
    embedding->picture =
        xrealloc(embedding->picture, ((size_t)embedding->snapshot->info->pictures.dim + 1) *
                                         sizeof *embedding->picture);
    if (embedding->snapshot->n_documents > 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "%s: every document is deleted; a collection keeps at least one",
                     embedding->dir);
}

/* The target. */

/* What the target is to be made with. */
static struct collection_options options_of(const struct embedding *embedding) {
    const struct vector_change *change = embedding->change;
    const struct collection_info *info = embedding->snapshot->info;
    struct collection_options options = collection_options_of(info);
    options.embedder = change->embedder;
    options.embedder_hash = change->embedder_hash;
    options.query_prompt = change->query_prompt;
    options.document_prompt = change->document_prompt;
    options.dim = change->dim;
    options.index_factory = change->index_factory
                                ? change->index_factory
                                : index_asked(info->index_factory, info->n_chunks, info->dim);
    return options;
}

static bool target_fits(const struct embedding *embedding) {
    struct collection_options options = options_of(embedding);
    struct snapshot *snapshot = collection_hold(embedding->target);
    bool fits = collection_is_made_so(snapshot->info, &options) &&
                strcmp(snapshot->info->embedder, options.embedder) == 0;
    snapshot_release(snapshot);
    return fits;
}

static void close_target(struct embedding *embedding) {
    collection_close(embedding->target);
    embedding->target = NULL;
    embedding->version = -1;
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
    struct embedding *embedding = context;
    struct collection_document copy;
    if (check_cancelled(embedding, e) || read_document(embedding, document, &copy, e))
        return e->status;
    enum status status =
        embedding->change->embed(embedding->change->context, &copy, embedding->vectors, e);
    if (status == STATUS_OK) status = builder_add_document(embedding->builder, &copy, e);
    return status ? status
                  : builder_add_vectors(embedding->builder, embedding->vectors, copy.n_chunks, e);
}

static enum status build_target(struct embedding *embedding, struct error *e) {
    const struct collection_options options = options_of(embedding);
    enum status status = empty_folder(embedding->folder, e);
    if (status == STATUS_OK)
        status = builder_create(&embedding->builder, embedding->folder, &options, e);
    if (status) return status;
    status = store_walk(embedding->snapshot, build_document, embedding, e);
    struct generation_builder *builder = embedding->builder;
    embedding->builder = NULL;
    if (status) {
        builder_abandon(builder);
        return status;
    }
    tell(embedding, "building the index");
    status = builder_commit(builder, e);
    return status ? status : store_open(&embedding->target, embedding->folder, e);
}

/* What a call before has left is taken up where it is whole and made alike. */
static enum status open_target(struct embedding *embedding, struct error *e) {
    struct error why;
    embedding->version = -1;
    if (store_open(&embedding->target, embedding->folder, &why)) embedding->target = NULL;
    if (embedding->target && target_fits(embedding)) return STATUS_OK;
    close_target(embedding);
    return build_target(embedding, e);
}

/* What came and went meanwhile. */

static enum status bring_document(void *context, const struct stored_document *document,
                                  struct error *e) {
    struct embedding *embedding = context;
    const struct vector_change *change = embedding->change;
    struct collection_document copy;
    enum change_effect effect;
    bool has;
    if (check_cancelled(embedding, e) || read_document(embedding, document, &copy, e) ||
        collection_has(embedding->target, NULL, &copy, &has, e))
        return e->status;
    if (has) return STATUS_OK;
    embedding->out->n_later++;
    enum status status = change->embed(change->context, &copy, embedding->vectors, e);
    return status ? status
                  : collection_put(embedding->target, NULL, &copy, embedding->vectors, &effect, e);
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

static enum status delete_gone(struct embedding *embedding, struct error *e) {
    struct gone_ids gone = {.source = embedding->source};
    struct collection_walk walk = {.take = list_gone, .context = &gone};
    enum status status = collection_walk(embedding->target, &walk, e);
    for (int i = 0; i < gone.n && status == STATUS_OK; i++)
        status = collection_delete(embedding->target, NULL, gone.ids[i], e);
    embedding->out->n_later += gone.n;
    for (int i = 0; i < gone.n; i++) free(gone.ids[i]);
    free(gone.ids);
    return status;
}

/* Documents come first: a target without any would not be a collection. */
static enum status catch_up(struct embedding *embedding, struct error *e) {
    if (embedding->version == embedding->snapshot->version) return STATUS_OK;
    enum status status = store_walk(embedding->snapshot, bring_document, embedding, e);
    if (status == STATUS_OK) status = delete_gone(embedding, e);
    if (status == STATUS_OK) embedding->version = embedding->snapshot->version;
    return status;
}

/* The switch. */

static enum status check_log(struct embedding *embedding, struct error *e) {
    struct collection_changes changes;
    if (collection_count_changes(embedding->source, &changes, e)) return e->status;
    if (!changes.damaged) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT,
                     "%s: its log of changes is damaged; retro-index verify --repair cuts it",
                     embedding->dir);
}

/* Nobody else changes the collection meanwhile. *again: it was built anew with other options. */
static enum status turn_locked(struct embedding *embedding, bool *again, struct error *e) {
    enum status status = take_snapshot(embedding, e);
    if (status == STATUS_OK) status = check_log(embedding, e);
    *again = status == STATUS_OK && !target_fits(embedding);
    if (*again)
        return error_set(e, STATUS_BUSY, "%s is built anew faster than it is embedded",
                         embedding->dir);
    if (status == STATUS_OK) status = catch_up(embedding, e);
    if (status) return status;
    close_target(embedding);
    return store_move(embedding->folder, embedding->dir, e);
}

static enum status turn(struct embedding *embedding, bool *again, struct error *e) {
    int lock;
    if (generation_lock_soon(&lock, embedding->dir, e)) return e->status;
    double start = time_now();
    enum status status = turn_locked(embedding, again, e);
    generation_unlock(lock);
    embedding->out->locked_seconds = time_now() - start;
    return status;
}

/* One attempt. */
static enum status change_vectors(struct embedding *embedding, bool *again, struct error *e) {
    enum status status = take_snapshot(embedding, e);
    *again = false;
    if (status == STATUS_OK) status = open_target(embedding, e);
    if (status == STATUS_OK) tell(embedding, "looking for what came meanwhile");
    if (status == STATUS_OK) status = take_snapshot(embedding, e);
    if (status == STATUS_OK && target_fits(embedding)) status = catch_up(embedding, e);
    if (status == STATUS_OK) tell(embedding, "turning to the new vectors");
    if (status == STATUS_OK) status = turn(embedding, again, e);
    close_target(embedding);
    return status;
}

enum status store_change_vectors(const char *dir, const struct vector_change *change,
                                 struct vector_changed *out, struct error *e) {
    struct embedding embedding = {.dir = dir, .change = change, .version = -1, .out = out};
    bool again, there;
    struct error why;
    *out = (struct vector_changed){0};
    enum status status = store_open(&embedding.source, dir, e);
    if (status == STATUS_OK) status = store_embedding_folder(&embedding.folder, dir, e);
    again = status == STATUS_OK;
    for (int i = 0; i < EMBED_ATTEMPTS && again; i++)
        status = change_vectors(&embedding, &again, e);
    if (status == STATUS_OK && store_embedding_remove(dir, &there, &why))
        log_warn("%s stays on the disk: %s", embedding.folder, why.text);
    snapshot_release(embedding.snapshot);
    collection_close(embedding.source);
    free(embedding.chunks);
    free(embedding.vectors);
    free(embedding.picture);
    free(embedding.folder);
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
