/* retrieval/generation/generation_builder.c: writing a collection. Documents and vectors are
 * appended to files of a new generation as they come, so memory does not grow with the collection;
 * commit builds the index, writes MANIFEST and turns CURRENT. The order of commit is what makes a
 * crash harmless: files, fsync each; MANIFEST, fsync; folder fsync; CURRENT.tmp, fsync; rename;
 * folder fsync. Before the rename a reader sees the old generation, after it the new one.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/base/key_set.h"
#include "retrieval/generation/generation_private.h"
#include "retrieval/generation/generation_writer.h"
#include "retrieval/words/chunk_words.h"

struct generation_builder {
    char *dir, *folder;
    int lock;    /* -1: the caller's */
    int current; /* generation that CURRENT names, 0: none */
    struct manifest manifest;
    char *index_asked; /* NULL: by size */
    struct generation_writer tokens, offsets, documents, text, vectors;
    struct generation_writer pictures, picture_chunks; /* open from the first picture on */
    struct generation_writer sparse, sparse_ends;      /* open where the collection is sparse */
    struct words_writer *words;                        /* of the chunks */
    struct key_set ids;                                /* of the documents added */
    uint64_t n_vectors;
    uint64_t n_sparse, n_weights; /* chunks with sparse weights, and these */
};

/* Picks the new generation's number and removes what an interrupted build left: generations above
 * CURRENT's. When CURRENT is damaged nothing is removed, so that a person can still repair it. */
static enum status choose_generation(struct generation_builder *builder, struct error *e) {
    uint64_t checksum;
    struct error why = {0};
    int *found, n = disk_list_generations(builder->dir, &found);
    enum status status = current_read(builder->dir, &builder->current, &checksum, &why);
    bool damaged = status != STATUS_OK && status != STATUS_NOT_FOUND;
    if (status != STATUS_OK) builder->current = 0;
    status = STATUS_OK;
    while (!damaged && n > 0 && found[n - 1] > builder->current && status == STATUS_OK) {
        n--;
        status = disk_remove_generation(builder->dir, found[n], e);
    }
    int highest = n > 0 ? found[n - 1] : 0;
    free(found);
    if (status == STATUS_OK && highest == INT32_MAX)
        status = error_set(e, STATUS_INVALID, "%s: generation numbers are used up; remove gen-%d",
                           builder->dir, highest);
    builder->manifest.info.generation = highest + 1;
    return status;
}

static enum status make_generation(struct generation_builder *builder, struct error *e) {
    enum status status = choose_generation(builder, e);
    if (status) return status;
    builder->folder = disk_generation_path(builder->dir, builder->manifest.info.generation);
    return disk_make_folder(builder->folder, e);
}

static enum status open_writers(struct generation_builder *builder, struct error *e) {
    if (generation_writer_open(&builder->tokens, builder->folder, "chunks.tokens", e) ||
        generation_writer_open(&builder->offsets, builder->folder, "chunks.offsets", e) ||
        generation_writer_open(&builder->documents, builder->folder, "documents", e) ||
        generation_writer_open(&builder->text, builder->folder, "documents.text", e) ||
        generation_writer_open(&builder->vectors, builder->folder, VECTORS_WAITING, e))
        return e->status;
    if (builder->manifest.info.sparse &&
        (generation_writer_open(&builder->sparse, builder->folder, "chunks.sparse", e) ||
         generation_writer_open(&builder->sparse_ends, builder->folder, SPARSE_WAITING, e)))
        return e->status;
    return STATUS_OK;
}

static struct generation_builder *make_builder(const char *dir) {
    struct generation_builder *builder = xcalloc(1, sizeof *builder);
    builder->dir = xstrdup(dir);
    builder->lock = builder->tokens.fd = builder->offsets.fd = builder->documents.fd =
        builder->text.fd = builder->vectors.fd = -1;
    builder->pictures.fd = builder->picture_chunks.fd = -1;
    builder->sparse.fd = builder->sparse_ends.fd = -1;
    return builder;
}

enum status builder_adopt(struct generation_builder **out, const char *dir,
                          struct manifest *manifest, bool locked, struct error *e) {
    struct generation_builder *builder = make_builder(dir);
    builder->manifest = *manifest;
    *manifest = (struct manifest){0};
    enum status status = disk_make_folder(dir, e);
    if (status == STATUS_OK && !locked) status = generation_lock_soon(&builder->lock, dir, e);
    if (status == STATUS_OK) status = make_generation(builder, e);
    if (status) {
        builder_abandon(builder);
        return status;
    }
    *out = builder;
    return STATUS_OK;
}

const char *builder_folder(const struct generation_builder *builder) { return builder->folder; }

struct generation_origin builder_origin(const struct generation_builder *builder) {
    return (struct generation_origin){builder->manifest.info.generation,
                                      builder->manifest.checksum};
}

static const char *copy_text(const char *text) { return xstrdup(text ? text : ""); }

static struct picture_space copy_space(const struct picture_space *space) {
    if (space->embedder == NULL) return (struct picture_space){0};
    return (struct picture_space){.embedder = xstrdup(space->embedder),
                                  .embedder_hash = space->embedder_hash,
                                  .query_prompt = copy_text(space->query_prompt),
                                  .document_prompt = copy_text(space->document_prompt),
                                  .dim = space->dim};
}

enum status builder_create(struct generation_builder **out, const char *dir,
                           const struct collection_options *options, struct error *e) {
    if (generation_check_options(options, e) || disk_make_folder(dir, e)) return e->status;
    struct generation_builder *builder = make_builder(dir);
    builder->index_asked = options->index_factory ? xstrdup(options->index_factory) : NULL;
    builder->manifest.info =
        (struct collection_info){.chunk_length = options->chunk_length,
                                 .cut = options->cut,
                                 .context = options->context,
                                 .overlap = options->overlap,
                                 .eod = options->eod,
                                 .max_token = options->eod,
                                 .dim = options->dim,
                                 .embedder_hash = options->embedder_hash,
                                 .tokenizer_hash = options->tokenizer_hash,
                                 .embedder = xstrdup(options->embedder),
                                 .query_prompt = copy_text(options->query_prompt),
                                 .document_prompt = copy_text(options->document_prompt),
                                 .tokenizer = xstrdup(options->tokenizer),
                                 .sparse = options->sparse,
                                 .pictures = copy_space(&options->pictures)};
    enum status status = options->locked ? STATUS_OK : generation_lock(&builder->lock, dir, e);
    if (status == STATUS_OK) status = make_generation(builder, e);
    if (status == STATUS_OK) status = open_writers(builder, e);
    if (status == STATUS_OK) builder->words = words_writer_open(builder->folder, WORDS_RUN);
    if (status) {
        builder_abandon(builder);
        return status;
    }
    *out = builder;
    return STATUS_OK;
}

static enum status check_document(const struct generation_builder *builder,
                                  const struct collection_document *document, struct error *e) {
    if (document->n < 1) return error_set(e, STATUS_INVALID, "%s: no text", document->path);
    if (builder->manifest.info.n_documents == INT32_MAX)
        return error_set(e, STATUS_TOO_LARGE, "%s: a collection holds %d documents", document->path,
                         INT32_MAX);
    if (document->id && (document->id[0] == '\0' || strlen(document->id) > COLLECTION_MAX_ID))
        return error_set(e, STATUS_INVALID, "%s: an id of %zu bytes; 1 .. %d are possible",
                         document->path, strlen(document->id), COLLECTION_MAX_ID);
    const char *fault = document_chunks_fault(document, builder->manifest.info.cut,
                                              builder->manifest.info.chunk_length);
    if (fault == NULL) fault = marks_fault(document->marks, document->text.size);
    if (fault) return error_set(e, STATUS_INVALID, "%s: %s", document->path, fault);
    for (int i = 0; i < document->n; i++)
        if (document->ids[i] < 0)
            return error_set(e, STATUS_INVALID, "%s: token %d has id %d", document->path, i,
                             document->ids[i]);
    const struct picture_space *pictures = &builder->manifest.info.pictures;
    if (document->picture &&
        (pictures->embedder == NULL || !vector_is_unit(document->picture, pictures->dim)))
        return error_set(e, STATUS_INVALID,
                         "%s: its picture has a vector, and the collection takes none such",
                         document->path);
    return STATUS_OK;
}

/* The picture whose first chunk comes next. */
static enum status write_picture(struct generation_builder *builder, const float *vector,
                                 struct error *e) {
    struct picture_space *pictures = &builder->manifest.info.pictures;
    uint64_t chunk = (uint64_t)builder->manifest.info.n_chunks;
    if (vector == NULL) return STATUS_OK;
    if (pictures->n == 0 &&
        (generation_writer_open(&builder->pictures, builder->folder, PICTURES_WAITING, e) ||
         generation_writer_open(&builder->picture_chunks, builder->folder, "pictures.chunks", e)))
        return e->status;
    pictures->n++;
    if (generation_writer_append(&builder->picture_chunks, &chunk, sizeof chunk, e))
        return e->status;
    return generation_writer_append(&builder->pictures, vector,
                                    (size_t)pictures->dim * sizeof *vector, e);
}

static enum status write_chunks(struct generation_builder *builder,
                                const struct collection_document *document, struct error *e) {
    const struct collection_info *info = &builder->manifest.info;
    struct chunk_words_reader words = {.document = document};
    enum status status = STATUS_OK;
    for (int i = 0; i < document->n_chunks && status == STATUS_OK; i++) {
        const struct chunk_range *range = &document->chunks[i];
        struct chunk_record chunk = {.token = (uint64_t)info->n_tokens + range->token,
                                     .start = range->start,
                                     .end = range->end,
                                     .document = (uint32_t)info->n_documents,
                                     .n_tokens = range->n_tokens};
        status = generation_writer_append(&builder->offsets, &chunk, sizeof chunk, e);
        if (status == STATUS_OK)
            status = words_writer_add(builder->words, chunk_words_read(&words, i), e);
    }
    buffer_free(&words.text);
    return status;
}

static enum status write_entry(struct generation_builder *builder,
                               const struct collection_document *document, const char *id,
                               struct error *e) {
    const char *metadata = document->metadata ? document->metadata : "",
               *source = document->source ? document->source : "",
               *file = document->file ? document->file : "";
    struct document_record record = {.first_chunk = (uint64_t)builder->manifest.info.n_chunks,
                                     .n_chunks = (uint64_t)document->n_chunks,
                                     .n_tokens = (uint64_t)document->n,
                                     .text_size = document->text.size,
                                     .id_size = (uint32_t)strlen(id),
                                     .path_size = (uint32_t)strlen(document->path),
                                     .title_size = (uint32_t)strlen(document->title),
                                     .metadata_size = (uint32_t)strlen(metadata),
                                     .n_marks = document->marks.n,
                                     .source_size = (uint32_t)strlen(source),
                                     .file_size = (uint32_t)strlen(file)};
    if (generation_writer_append(&builder->documents, &record, sizeof record, e) ||
        generation_writer_append(&builder->documents, id, record.id_size + (size_t)1, e) ||
        generation_writer_append(&builder->documents, document->path, record.path_size + (size_t)1,
                                 e) ||
        generation_writer_append(&builder->documents, document->title,
                                 record.title_size + (size_t)1, e) ||
        generation_writer_append(&builder->documents, metadata, record.metadata_size + (size_t)1,
                                 e) ||
        generation_writer_append(&builder->documents, source, record.source_size + (size_t)1, e) ||
        generation_writer_append(&builder->documents, file, record.file_size + (size_t)1, e) ||
        generation_writer_append(&builder->documents, document->marks.bytes,
                                 document->marks.n * sizeof(struct mark), e))
        return e->status;
    return STATUS_OK;
}

enum status builder_add_document(struct generation_builder *builder,
                                 const struct collection_document *document, struct error *e) {
    struct collection_info *info = &builder->manifest.info;
    char of_path[DOCUMENT_ID_SIZE];
    enum status status = check_document(builder, document, e);
    if (status) return status;

    document_id_of_path(document->path, of_path);
    const char *id = document->id ? document->id : of_path;
    if (!key_set_add(&builder->ids, hash_bytes(id, strlen(id), 0), hash_bytes(id, strlen(id), 1)))
        return error_set(e, STATUS_INVALID,
                         "%s: another document has the id %s already; paths and ids differ",
                         document->path, id);

    status = write_chunks(builder, document, e);
    if (status == STATUS_OK)
        status = generation_writer_append(&builder->tokens, document->ids,
                                          (size_t)document->n * sizeof *document->ids, e);
    if (status == STATUS_OK)
        status =
            generation_writer_append(&builder->text, document->text.text, document->text.size, e);
    if (status == STATUS_OK) status = write_entry(builder, document, id, e);
    if (status == STATUS_OK) status = write_picture(builder, document->picture, e);

    for (int i = 0; i < document->n; i++)
        info->max_token = max_int(info->max_token, document->ids[i]);
    info->n_documents++;
    info->n_chunks += document->n_chunks;
    info->n_tokens += document->n;
    return status;
}

enum status builder_add_vectors(struct generation_builder *builder, const float *vectors, int n,
                                struct error *e) {
    int dim = builder->manifest.info.dim;
    for (int i = 0; i < n; i++) {
        double square = 0;
        for (int j = 0; j < dim; j++) {
            double v = vectors[(size_t)i * (size_t)dim + (size_t)j];
            square += v * v;
        }
        /* Written so that NaN fails too. */
        if (!(fabs(square - 1) < 1e-3))
            return error_set(e, STATUS_INVALID,
                             "vector of chunk %" PRIu64 ": length %g, expected 1",
                             builder->n_vectors + (uint64_t)i, sqrt(square));
    }
    builder->n_vectors += (uint64_t)n;
    return generation_writer_append(&builder->vectors, vectors,
                                    (size_t)n * (size_t)dim * sizeof *vectors, e);
}

enum status builder_add_sparse(struct generation_builder *builder, const struct sparse_table *table,
                               int n, struct error *e) {
    CHECK(builder->manifest.info.sparse);
    for (int i = 0; i < n; i++) {
        struct sparse_row row = sparse_table_row(table, i);
        const char *fault = sparse_row_fault(row);
        if (fault)
            return error_set(e, STATUS_INVALID, "chunk %" PRIu64 ": %s", builder->n_sparse, fault);
        builder->n_weights += (uint64_t)row.n;
        builder->n_sparse++;
        if (generation_writer_append(&builder->sparse, row.list, (size_t)row.n * sizeof *row.list,
                                     e) ||
            generation_writer_append(&builder->sparse_ends, &builder->n_weights,
                                     sizeof builder->n_weights, e))
            return e->status;
    }
    return STATUS_OK;
}

/* Everything buffered is in the files and synced; writers are closed. */
static enum status finish_writers(struct generation_builder *builder, struct error *e) {
    struct generation_writer *writers[] = {
        &builder->tokens,         &builder->offsets, &builder->documents,
        &builder->text,           &builder->vectors, &builder->pictures,
        &builder->picture_chunks, &builder->sparse,  &builder->sparse_ends};
    for (size_t i = 0; i < ARRAY_COUNT(writers); i++) {
        if (writers[i]->fd < 0) continue;
        enum status status = generation_writer_flush(writers[i], e);
        if (status == STATUS_OK && writers[i] != &builder->vectors &&
            writers[i] != &builder->pictures && writers[i] != &builder->sparse &&
            writers[i] != &builder->sparse_ends)
            status = disk_sync(writers[i]->path, e);
        if (status) return status;
        generation_writer_close(writers[i]);
    }
    return STATUS_OK;
}

static enum status measure_files(struct generation_builder *builder, struct error *e) {
    enum status status = STATUS_OK;
    for (int i = 0; i < GENERATION_FILE_COUNT && status == STATUS_OK; i++) {
        struct file_map map;
        enum generation_file file = (enum generation_file)i;
        if (!generation_has_file(file, &builder->manifest.info)) continue;
        char *path =
            disk_path(builder->folder, generation_file_name(file, &builder->manifest.info));
        status = file_map_open(&map, path, e);
        if (status == STATUS_OK) {
            builder->manifest.files[i].bytes = map.size;
            builder->manifest.files[i].checksum = hash_bytes(map.data, map.size, 0);
            file_map_close(&map);
        }
        free(path);
    }
    return status;
}

/* Every MANIFEST must read back, whatever an option's text holds: the reader's parser is asked
 * before publishing. */
enum status builder_seal(struct generation_builder *builder, struct error *e) {
    struct buffer text = {0};
    struct manifest again;
    char *path = disk_path(builder->folder, "MANIFEST");
    manifest_print(&builder->manifest, &text);
    enum status status = manifest_parse(&again, text.data, text.size, path, e);
    manifest_free(&again);
    if (status == STATUS_OK) status = disk_write_whole(path, &text, e);
    if (status == STATUS_OK) status = disk_sync(builder->folder, e);
    if (status == STATUS_OK) status = disk_sync(builder->dir, e);
    buffer_free(&text);
    free(path);
    return status;
}

/* Keeps the new generation and the one it replaces, which a reader may be opening right now. A
 * generation that cannot be removed costs disk space and nothing else, and the next build tries
 * again. */
static void remove_old(const struct generation_builder *builder) {
    int *found, n = disk_list_generations(builder->dir, &found);
    for (int i = 0; i < n; i++)
        if (found[i] != builder->manifest.info.generation && found[i] != builder->current) {
            struct error e;
            if (disk_remove_generation(builder->dir, found[i], &e))
                log_warn("old generation stays: %s", e.text);
        }
    free(found);
}

static void builder_free(struct generation_builder *builder) {
    generation_writer_close(&builder->tokens);
    generation_writer_close(&builder->offsets);
    generation_writer_close(&builder->documents);
    generation_writer_close(&builder->text);
    generation_writer_close(&builder->vectors);
    generation_writer_close(&builder->pictures);
    generation_writer_close(&builder->picture_chunks);
    generation_writer_close(&builder->sparse);
    generation_writer_close(&builder->sparse_ends);
    words_writer_free(builder->words);
    generation_unlock(builder->lock);
    manifest_free(&builder->manifest);
    key_set_free(&builder->ids);
    free(builder->dir);
    free(builder->folder);
    free(builder->index_asked);
    free(builder);
}

enum status builder_prepare(struct generation_builder *builder, struct error *e) {
    const struct collection_info *info = &builder->manifest.info;
    if (info->n_chunks == 0)
        return error_set(e, STATUS_INVALID, "%s: no document was added", builder->dir);
    if ((uint64_t)info->n_chunks != builder->n_vectors)
        return error_set(e, STATUS_INVALID, "%s: %" PRId64 " chunks but %" PRIu64 " vectors",
                         builder->dir, info->n_chunks, builder->n_vectors);
    if (info->sparse && (uint64_t)info->n_chunks != builder->n_sparse)
        return error_set(e, STATUS_INVALID, "%s: %" PRId64 " chunks but sparse weights of %" PRIu64,
                         builder->dir, info->n_chunks, builder->n_sparse);
    if (finish_writers(builder, e) || words_write(builder->folder, builder->words, e) ||
        (info->sparse && sparse_write(builder->folder, info->n_chunks, e)) ||
        vectors_build(builder->folder, &builder->manifest.info, builder->index_asked, e) ||
        measure_files(builder, e) || builder_seal(builder, e))
        return e->status;
    return STATUS_OK;
}

enum status builder_commit(struct generation_builder *builder, struct error *e) {
    enum status status = builder_prepare(builder, e);
    if (status == STATUS_OK) return builder_publish(builder, e);
    builder_abandon(builder);
    return status;
}

enum status builder_open_prepared(struct disk_generation **out,
                                  const struct generation_builder *builder, struct error *e) {
    return disk_generation_open_one(out, builder->dir, builder_origin(builder), e);
}

enum status builder_publish(struct generation_builder *builder, struct error *e) {
    enum status status = current_write(builder->dir, builder_origin(builder), e);
    if (status) {
        builder_abandon(builder);
        return status;
    }
    /* From here on the new generation is what readers see; if this last sync fails, a power cut may
     * bring the old one back, whole, until a change settles CURRENT. */
    status = disk_sync(builder->dir, e);
    if (status == STATUS_OK && builder->current == 0) status = disk_sync_name(builder->dir, e);
    if (status == STATUS_OK) remove_old(builder);
    builder_free(builder);
    return status;
}

void builder_abandon(struct generation_builder *builder) {
    struct error e;
    if (builder == NULL) return;
    char *temporary = disk_path(builder->dir, "CURRENT.tmp");
    if (builder->folder) {
        disk_remove(temporary, NULL);
        if (disk_remove_generation(builder->dir, builder->manifest.info.generation, &e))
            log_warn("an unfinished generation stays until the next build: %s", e.text);
    }
    free(temporary);
    builder_free(builder);
}
