/* retrieval/generation/generation_builder.c: writing a collection. Documents and vectors are appended to files of a new
 * generation as they come, so memory does not grow with the collection; commit builds the index, writes MANIFEST and
 * turns CURRENT. The order of commit is what makes a crash harmless: files, fsync each; MANIFEST, fsync; folder fsync;
 * CURRENT.tmp, fsync; rename; folder fsync. Before the rename a reader sees the old generation, after it the new one.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/base/key_set.h"
#include "config/base/utf8.h"
#include "retrieval/generation/generation_private.h"

/* An append-only file with a buffer, whose writes go through disk_write. */
struct writer {
    char *path;
    int fd;
    struct buffer pending;
};
enum { WRITER_BUFFER = 1 << 20 };

struct generation_builder {
    char *dir, *folder;
    int lock;    /* -1: the caller's */
    int current; /* generation that CURRENT names, 0: none */
    struct manifest manifest;
    char *index_asked; /* NULL: by size */
    struct writer tokens, offsets, documents, text, vectors;
    struct writer pictures, picture_chunks; /* open from the first picture on */
    struct key_set ids;                     /* of the documents added */
    uint64_t n_vectors;
};

static enum status writer_open(struct writer *w, const char *folder, const char *name, struct error *e) {
    w->path = disk_path(folder, name);
    return disk_create(&w->fd, w->path, e);
}

static enum status writer_flush(struct writer *w, struct error *e) {
    if (w->pending.size == 0) return STATUS_OK;
    enum status status = disk_write(w->fd, w->path, w->pending.data, w->pending.size, e);
    buffer_clear(&w->pending);
    return status;
}

static enum status writer_append(struct writer *w, const void *bytes, size_t size, struct error *e) {
    buffer_append(&w->pending, bytes, size);
    return w->pending.size >= WRITER_BUFFER ? writer_flush(w, e) : STATUS_OK;
}

static void writer_close(struct writer *w) {
    if (w->fd >= 0) close(w->fd);
    w->fd = -1;
    free(w->path);
    w->path = NULL;
    buffer_free(&w->pending);
}

enum status store_lock(int *lock, const char *dir, struct error *e) {
    *lock = -1;
    if (disk_make_folder(dir, e)) return e->status;
    char *path = disk_path(dir, "LOCK");
    enum status status = STATUS_OK;
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*lock < 0)
        status = error_errno(e, "%s: create", path);
    else if (flock(*lock, LOCK_EX | LOCK_NB) != 0)
        status = errno == EWOULDBLOCK
                     ? error_set(e, STATUS_BUSY, "%s: another program is changing this collection", path)
                     : error_errno(e, "%s: lock", path);
    free(path);
    if (status) {
        store_unlock(*lock);
        *lock = -1;
    }
    return status;
}

enum status store_lock_soon(int *lock, const char *dir, struct error *e) {
    enum { WAIT_SECONDS = 10, LOOK_MILLISECONDS = 10 };
    double end = time_now() + WAIT_SECONDS;
    enum status status = store_lock(lock, dir, e);
    while (status == STATUS_BUSY && time_now() < end) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MILLISECONDS * 1000000L}, NULL);
        status = store_lock(lock, dir, e);
    }
    return status;
}

void store_unlock(int lock) {
    if (lock >= 0) close(lock);
}

/* Picks the new generation's number and removes what an interrupted build left: generations above CURRENT's. When
 * CURRENT is damaged nothing is removed, so that a person can still repair it. */
static enum status choose_generation(struct generation_builder *b, struct error *e) {
    uint64_t checksum;
    struct error why = {0};
    int *found, n = disk_list_generations(b->dir, &found);
    enum status status = current_read(b->dir, &b->current, &checksum, &why);
    bool damaged = status != STATUS_OK && status != STATUS_NOT_FOUND;
    if (status != STATUS_OK) b->current = 0;
    status = STATUS_OK;
    while (!damaged && n > 0 && found[n - 1] > b->current && status == STATUS_OK) {
        n--;
        status = disk_remove_generation(b->dir, found[n], e);
    }
    int highest = n > 0 ? found[n - 1] : 0;
    free(found);
    if (status == STATUS_OK && highest == INT32_MAX)
        status = error_set(e, STATUS_INVALID, "%s: generation numbers are used up; remove gen-%d", b->dir, highest);
    b->manifest.info.generation = highest + 1;
    return status;
}

static enum status make_generation(struct generation_builder *b, struct error *e) {
    enum status status = choose_generation(b, e);
    if (status) return status;
    b->folder = disk_generation_path(b->dir, b->manifest.info.generation);
    return disk_make_folder(b->folder, e);
}

static enum status open_writers(struct generation_builder *b, struct error *e) {
    if (writer_open(&b->tokens, b->folder, "chunks.tokens", e) ||
        writer_open(&b->offsets, b->folder, "chunks.offsets", e) ||
        writer_open(&b->documents, b->folder, "documents", e) ||
        writer_open(&b->text, b->folder, "documents.text", e) ||
        writer_open(&b->vectors, b->folder, VECTORS_WAITING, e))
        return e->status;
    return STATUS_OK;
}

static enum status check_options(const struct collection_options *o, struct error *e) {
    if (o->chunk_length < 1 || o->chunk_length > COLLECTION_MAX_CHUNK_LENGTH)
        return error_set(e, STATUS_INVALID, "chunk length %d: 1 .. %d is possible", o->chunk_length,
                         COLLECTION_MAX_CHUNK_LENGTH);
    if (o->dim < 1 || o->dim > COLLECTION_MAX_DIM)
        return error_set(e, STATUS_INVALID, "vectors of %d numbers: 1 .. %d is possible", o->dim, COLLECTION_MAX_DIM);
    if (o->pictures.embedder && (o->pictures.dim < 1 || o->pictures.dim > COLLECTION_MAX_DIM))
        return error_set(e, STATUS_INVALID, "vectors of pictures of %d numbers: 1 .. %d is possible", o->pictures.dim,
                         COLLECTION_MAX_DIM);
    if (o->eod < 0) return error_set(e, STATUS_INVALID, "end-of-document id %d: the model has none", o->eod);
    /* The MANIFEST is JSON, which cannot hold other bytes; a changed name would name another folder. */
    if (!utf8_is_valid(o->embedder, strlen(o->embedder)) || !utf8_is_valid(o->tokenizer, strlen(o->tokenizer)))
        return error_set(e, STATUS_INVALID, "the path of the embedder or of the tokenizer is not valid UTF-8");
    if (o->pictures.embedder && !utf8_is_valid(o->pictures.embedder, strlen(o->pictures.embedder)))
        return error_set(e, STATUS_INVALID, "the path of the pictures' embedder is not valid UTF-8");
    const char *const prompts[] = {o->query_prompt, o->document_prompt, o->pictures.query_prompt,
                                   o->pictures.document_prompt};
    for (size_t i = 0; i < ARRAY_COUNT(prompts); i++)
        if (prompts[i] && !utf8_is_valid(prompts[i], strlen(prompts[i])))
            return error_set(e, STATUS_INVALID, "a prompt of the embedder is not valid UTF-8");
    return STATUS_OK;
}

static struct generation_builder *make_builder(const char *dir) {
    struct generation_builder *b = xcalloc(1, sizeof *b);
    b->dir = xstrdup(dir);
    b->lock = b->tokens.fd = b->offsets.fd = b->documents.fd = b->text.fd = b->vectors.fd = -1;
    b->pictures.fd = b->picture_chunks.fd = -1;
    return b;
}

enum status builder_adopt(struct generation_builder **out, const char *dir, struct manifest *m, struct error *e) {
    struct generation_builder *b = make_builder(dir);
    b->manifest = *m;
    *m = (struct manifest){0};
    enum status status = store_lock_soon(&b->lock, dir, e);
    if (status == STATUS_OK) status = make_generation(b, e);
    if (status) {
        builder_abandon(b);
        return status;
    }
    *out = b;
    return STATUS_OK;
}

const char *builder_folder(const struct generation_builder *b) { return b->folder; }

struct generation_origin builder_origin(const struct generation_builder *b) {
    return (struct generation_origin){b->manifest.info.generation, b->manifest.checksum};
}

static const char *copy_text(const char *text) { return xstrdup(text ? text : ""); }

static struct picture_space copy_space(const struct picture_space *p) {
    if (p->embedder == NULL) return (struct picture_space){0};
    return (struct picture_space){.embedder = xstrdup(p->embedder),
                                  .embedder_hash = p->embedder_hash,
                                  .query_prompt = copy_text(p->query_prompt),
                                  .document_prompt = copy_text(p->document_prompt),
                                  .dim = p->dim};
}

enum status builder_create(struct generation_builder **out, const char *dir, const struct collection_options *o,
                           struct error *e) {
    if (check_options(o, e) || disk_make_folder(dir, e)) return e->status;
    struct generation_builder *b = make_builder(dir);
    b->index_asked = o->index_factory ? xstrdup(o->index_factory) : NULL;
    b->manifest.info = (struct collection_info){.chunk_length = o->chunk_length,
                                                .eod = o->eod,
                                                .max_token = o->eod,
                                                .dim = o->dim,
                                                .embedder_hash = o->embedder_hash,
                                                .tokenizer_hash = o->tokenizer_hash,
                                                .embedder = xstrdup(o->embedder),
                                                .query_prompt = copy_text(o->query_prompt),
                                                .document_prompt = copy_text(o->document_prompt),
                                                .tokenizer = xstrdup(o->tokenizer),
                                                .pictures = copy_space(&o->pictures)};
    enum status status = o->locked ? STATUS_OK : store_lock(&b->lock, dir, e);
    if (status == STATUS_OK) status = make_generation(b, e);
    if (status == STATUS_OK) status = open_writers(b, e);
    if (status) {
        builder_abandon(b);
        return status;
    }
    *out = b;
    return STATUS_OK;
}

static enum status check_document(const struct generation_builder *b, const struct collection_document *d,
                                  struct error *e) {
    if (d->n < 1) return error_set(e, STATUS_INVALID, "%s: no text", d->path);
    if (b->manifest.info.n_documents == INT32_MAX)
        return error_set(e, STATUS_TOO_LARGE, "%s: a collection holds %d documents", d->path, INT32_MAX);
    if (d->id && (d->id[0] == '\0' || strlen(d->id) > COLLECTION_MAX_ID))
        return error_set(e, STATUS_INVALID, "%s: an id of %zu bytes; 1 .. %d are possible", d->path, strlen(d->id),
                         COLLECTION_MAX_ID);
    int n_chunks = document_count_chunks(d->n, b->manifest.info.chunk_length);
    if (d->bounds[n_chunks] != d->text.size)
        return error_set(e, STATUS_INVALID, "%s: the chunks end at byte %u, the text at %zu", d->path,
                         d->bounds[n_chunks], d->text.size);
    for (int i = 0; i < n_chunks; i++)
        if (d->bounds[i] > d->bounds[i + 1])
            return error_set(e, STATUS_INVALID, "%s: chunk %d has bytes [%u, %u)", d->path, i, d->bounds[i],
                             d->bounds[i + 1]);
    const char *fault = marks_fault(d->marks, d->text.size);
    if (fault) return error_set(e, STATUS_INVALID, "%s: %s", d->path, fault);
    for (int i = 0; i < d->n; i++)
        if (d->ids[i] < 0) return error_set(e, STATUS_INVALID, "%s: token %d has id %d", d->path, i, d->ids[i]);
    const struct picture_space *pictures = &b->manifest.info.pictures;
    if (d->picture && (pictures->embedder == NULL || !vector_is_unit(d->picture, pictures->dim)))
        return error_set(e, STATUS_INVALID, "%s: its picture has a vector, and the collection takes none such",
                         d->path);
    return STATUS_OK;
}

/* The picture whose first chunk comes next. */
static enum status write_picture(struct generation_builder *b, const float *vector, struct error *e) {
    struct picture_space *pictures = &b->manifest.info.pictures;
    uint64_t chunk = (uint64_t)b->manifest.info.n_chunks;
    if (vector == NULL) return STATUS_OK;
    if (pictures->n == 0 && (writer_open(&b->pictures, b->folder, PICTURES_WAITING, e) ||
                             writer_open(&b->picture_chunks, b->folder, "pictures.chunks", e)))
        return e->status;
    pictures->n++;
    if (writer_append(&b->picture_chunks, &chunk, sizeof chunk, e)) return e->status;
    return writer_append(&b->pictures, vector, (size_t)pictures->dim * sizeof *vector, e);
}

static enum status write_chunks(struct generation_builder *b, const struct collection_document *d, int n_chunks,
                                struct error *e) {
    const struct collection_info *info = &b->manifest.info;
    enum status status = STATUS_OK;
    for (int i = 0; i < n_chunks && status == STATUS_OK; i++) {
        int first = i * info->chunk_length;
        struct chunk_record chunk = {.token = (uint64_t)info->n_tokens + (uint64_t)first,
                                     .start = d->bounds[i],
                                     .end = d->bounds[i + 1],
                                     .document = (uint32_t)info->n_documents,
                                     .n_tokens = (uint32_t)min_int(info->chunk_length, d->n - first)};
        status = writer_append(&b->offsets, &chunk, sizeof chunk, e);
    }
    return status;
}

static enum status write_entry(struct generation_builder *b, const struct collection_document *d, const char *id,
                               int n_chunks, struct error *e) {
    const char *metadata = d->metadata ? d->metadata : "", *source = d->source ? d->source : "";
    struct document_record record = {.first_chunk = (uint64_t)b->manifest.info.n_chunks,
                                     .n_chunks = (uint64_t)n_chunks,
                                     .text_size = d->text.size,
                                     .id_size = (uint32_t)strlen(id),
                                     .path_size = (uint32_t)strlen(d->path),
                                     .title_size = (uint32_t)strlen(d->title),
                                     .metadata_size = (uint32_t)strlen(metadata),
                                     .n_marks = d->marks.n,
                                     .source_size = (uint32_t)strlen(source)};
    if (writer_append(&b->documents, &record, sizeof record, e) ||
        writer_append(&b->documents, id, record.id_size + (size_t)1, e) ||
        writer_append(&b->documents, d->path, record.path_size + (size_t)1, e) ||
        writer_append(&b->documents, d->title, record.title_size + (size_t)1, e) ||
        writer_append(&b->documents, metadata, record.metadata_size + (size_t)1, e) ||
        writer_append(&b->documents, source, record.source_size + (size_t)1, e) ||
        writer_append(&b->documents, d->marks.bytes, d->marks.n * sizeof(struct mark), e))
        return e->status;
    return STATUS_OK;
}

enum status builder_add_document(struct generation_builder *b, const struct collection_document *d, struct error *e) {
    struct collection_info *info = &b->manifest.info;
    char of_path[DOCUMENT_ID_SIZE];
    int n_chunks = document_count_chunks(d->n, info->chunk_length);
    enum status status = check_document(b, d, e);
    if (status) return status;

    document_id_of_path(d->path, of_path);
    const char *id = d->id ? d->id : of_path;
    if (!key_set_add(&b->ids, hash_bytes(id, strlen(id), 0), hash_bytes(id, strlen(id), 1)))
        return error_set(e, STATUS_INVALID, "%s: another document has the id %s already; paths and ids differ", d->path,
                         id);

    status = write_chunks(b, d, n_chunks, e);
    if (status == STATUS_OK) status = writer_append(&b->tokens, d->ids, (size_t)d->n * sizeof *d->ids, e);
    if (status == STATUS_OK) status = writer_append(&b->text, d->text.text, d->text.size, e);
    if (status == STATUS_OK) status = write_entry(b, d, id, n_chunks, e);
    if (status == STATUS_OK) status = write_picture(b, d->picture, e);

    for (int i = 0; i < d->n; i++) info->max_token = max_int(info->max_token, d->ids[i]);
    info->n_documents++;
    info->n_chunks += n_chunks;
    info->n_tokens += d->n;
    return status;
}

enum status builder_add_vectors(struct generation_builder *b, const float *vectors, int n, struct error *e) {
    int dim = b->manifest.info.dim;
    for (int i = 0; i < n; i++) {
        double square = 0;
        for (int j = 0; j < dim; j++) {
            double v = vectors[(size_t)i * (size_t)dim + (size_t)j];
            square += v * v;
        }
        /* Written so that NaN fails too. */
        if (!(fabs(square - 1) < 1e-3))
            return error_set(e, STATUS_INVALID, "vector of chunk %" PRIu64 ": length %g, expected 1",
                             b->n_vectors + (uint64_t)i, sqrt(square));
    }
    b->n_vectors += (uint64_t)n;
    return writer_append(&b->vectors, vectors, (size_t)n * (size_t)dim * sizeof *vectors, e);
}

/* Everything buffered is in the files and synced; writers are closed. */
static enum status finish_writers(struct generation_builder *b, struct error *e) {
    struct writer *writers[] = {&b->tokens,  &b->offsets,  &b->documents,     &b->text,
                                &b->vectors, &b->pictures, &b->picture_chunks};
    for (size_t i = 0; i < ARRAY_COUNT(writers); i++) {
        if (writers[i]->fd < 0) continue;
        enum status status = writer_flush(writers[i], e);
        if (status == STATUS_OK && writers[i] != &b->vectors && writers[i] != &b->pictures)
            status = disk_sync(writers[i]->path, e);
        if (status) return status;
        writer_close(writers[i]);
    }
    return STATUS_OK;
}

static enum status measure_files(struct generation_builder *b, struct error *e) {
    enum status status = STATUS_OK;
    for (int i = 0; i < GENERATION_FILE_COUNT && status == STATUS_OK; i++) {
        struct file_map map;
        enum generation_file file = (enum generation_file)i;
        if (!generation_has_file(file, &b->manifest.info)) continue;
        char *path = disk_path(b->folder, generation_file_name(file, &b->manifest.info));
        status = file_map_open(&map, path, e);
        if (status == STATUS_OK) {
            b->manifest.files[i].bytes = map.size;
            b->manifest.files[i].checksum = hash_bytes(map.data, map.size, 0);
            file_map_close(&map);
        }
        free(path);
    }
    return status;
}

/* Every MANIFEST must read back, whatever an option's text holds: the reader's parser is asked before publishing. */
enum status builder_seal(struct generation_builder *b, struct error *e) {
    struct buffer text = {0};
    struct manifest again;
    char *path = disk_path(b->folder, "MANIFEST");
    manifest_print(&b->manifest, &text);
    enum status status = manifest_parse(&again, text.data, text.size, path, e);
    manifest_free(&again);
    if (status == STATUS_OK) status = disk_write_whole(path, &text, e);
    if (status == STATUS_OK) status = disk_sync(b->folder, e);
    if (status == STATUS_OK) status = disk_sync(b->dir, e);
    buffer_free(&text);
    free(path);
    return status;
}

/* Keeps the new generation and the one it replaces, which a reader may be opening right now. A generation that cannot
 * be removed costs disk space and nothing else, and the next build tries again. */
static void remove_old(const struct generation_builder *b) {
    int *found, n = disk_list_generations(b->dir, &found);
    for (int i = 0; i < n; i++)
        if (found[i] != b->manifest.info.generation && found[i] != b->current) {
            struct error e;
            if (disk_remove_generation(b->dir, found[i], &e)) log_warn("old generation stays: %s", e.text);
        }
    free(found);
}

static void builder_free(struct generation_builder *b) {
    writer_close(&b->tokens);
    writer_close(&b->offsets);
    writer_close(&b->documents);
    writer_close(&b->text);
    writer_close(&b->vectors);
    writer_close(&b->pictures);
    writer_close(&b->picture_chunks);
    store_unlock(b->lock);
    manifest_free(&b->manifest);
    key_set_free(&b->ids);
    free(b->dir);
    free(b->folder);
    free(b->index_asked);
    free(b);
}

enum status builder_prepare(struct generation_builder *b, struct error *e) {
    const struct collection_info *info = &b->manifest.info;
    if (info->n_chunks == 0) return error_set(e, STATUS_INVALID, "%s: no document was added", b->dir);
    if ((uint64_t)info->n_chunks != b->n_vectors)
        return error_set(e, STATUS_INVALID, "%s: %" PRId64 " chunks but %" PRIu64 " vectors", b->dir, info->n_chunks,
                         b->n_vectors);
    if (finish_writers(b, e) || vectors_build(b->folder, &b->manifest.info, b->index_asked, e) || measure_files(b, e) ||
        builder_seal(b, e))
        return e->status;
    return STATUS_OK;
}

enum status builder_commit(struct generation_builder *b, struct error *e) {
    enum status status = builder_prepare(b, e);
    if (status == STATUS_OK) return builder_publish(b, e);
    builder_abandon(b);
    return status;
}

enum status builder_open_prepared(struct disk_generation **out, const struct generation_builder *b, struct error *e) {
    return disk_generation_open_one(out, b->dir, builder_origin(b), e);
}

enum status builder_publish(struct generation_builder *b, struct error *e) {
    enum status status = current_write(b->dir, builder_origin(b), e);
    if (status) {
        builder_abandon(b);
        return status;
    }
    /* From here on the new generation is what readers see; if this last sync fails, a power cut may bring the old one
     * back, whole, until a change settles CURRENT. */
    status = disk_sync(b->dir, e);
    if (status == STATUS_OK && b->current == 0) status = disk_sync_name(b->dir, e);
    if (status == STATUS_OK) remove_old(b);
    builder_free(b);
    return status;
}

void builder_abandon(struct generation_builder *b) {
    struct error e;
    if (b == NULL) return;
    char *temporary = disk_path(b->dir, "CURRENT.tmp");
    if (b->folder) {
        disk_remove(temporary, NULL);
        if (disk_remove_generation(b->dir, b->manifest.info.generation, &e))
            log_warn("an unfinished generation stays until the next build: %s", e.text);
    }
    free(temporary);
    builder_free(b);
}
