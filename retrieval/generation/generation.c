/* retrieval/generation/generation.c: opening and reading a collection. Nothing of a file is used
 * before its checksum has been compared, and nothing in it is believed before its range has been
 * checked (generation_documents.c): after opening, accessors need no checks. Tokens and chunk
 * records stay in the file, mapped. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "retrieval/generation/change_log.h"
#include "retrieval/generation/generation_parts.h"

const struct collection_info *disk_generation_info(const struct disk_generation *generation) {
    return &generation->manifest.info;
}
const struct index *disk_generation_index(const struct disk_generation *generation) {
    return generation->index;
}
const struct index *disk_generation_pictures(const struct disk_generation *generation) {
    return generation->pictures;
}
const struct words *disk_generation_words(const struct disk_generation *generation) {
    return generation->words;
}
const struct sparse_index *disk_generation_sparse(const struct disk_generation *generation) {
    return generation->sparse;
}
enum status disk_generation_move(struct disk_generation *generation, const char *device,
                                 struct error *e) {
    if (index_move(generation->index, device, e)) return e->status;
    return generation->pictures ? index_move(generation->pictures, device, e) : STATUS_OK;
}

enum status manifest_read(struct manifest *manifest, const char *folder,
                          struct generation_origin origin, struct error *e) {
    char *path = disk_path(folder, "MANIFEST");
    struct buffer text = {0};
    *manifest = (struct manifest){0};
    enum status status = file_read(path, MANIFEST_LIMIT, &text, e);
    if (status == STATUS_OK) status = manifest_parse(manifest, text.data, text.size, path, e);
    if (status == STATUS_OK && (manifest->info.generation != origin.generation ||
                                manifest->checksum != origin.manifest_checksum))
        status =
            error_set(e, STATUS_CORRUPT,
                      "%s: generation %d, checksum %016" PRIx64 "; CURRENT names %d, %016" PRIx64,
                      path, manifest->info.generation, manifest->checksum, origin.generation,
                      origin.manifest_checksum);
    buffer_free(&text);
    free(path);
    return status;
}

enum status file_map_verified(struct file_map *map, const char *path,
                              const struct file_facts *facts, struct error *e) {
    enum status status = file_map_open(map, path, e);
    if (status) return status;
    if (map->size != facts->bytes)
        return error_set(e, STATUS_CORRUPT,
                         "%s: %zu bytes, MANIFEST says %" PRIu64 "; build the collection again",
                         path, map->size, facts->bytes);
    uint64_t found = hash_bytes(map->data, map->size, 0);
    if (found != facts->checksum)
        return error_set(e, STATUS_CORRUPT,
                         "%s: checksum %016" PRIx64 ", MANIFEST says %016" PRIx64
                         "; it is damaged, build the "
                         "collection again",
                         path, found, facts->checksum);
    return STATUS_OK;
}

static enum status map_verified(struct disk_generation *generation, enum generation_file file,
                                const char *path, struct error *e) {
    return file_map_verified(&generation->maps[file], path, &generation->manifest.files[file], e);
}

/* Vectors of one file: how many of which length, found by which index. */
struct vectors_shape {
    const char *index_factory;
    int64_t n;
    int dim;
};

/* Exact vectors are copied, FAISS reads its own file: either way the map has done its work. */
static enum status open_vectors(struct index **out, struct file_map *map, const char *path,
                                struct vectors_shape shape, struct error *e) {
    enum status status;
    if (generation_is_exact(shape.index_factory)) {
        float *vectors = malloc(map->size);
        if (vectors == NULL)
            return error_set(e, STATUS_NO_MEMORY, "%s: %zu bytes of vectors", path, map->size);
        memcpy(vectors, map->data, map->size);
        status = index_open_flat(out, vectors, shape.n, shape.dim, e);
    } else {
        status = index_open_faiss(out, path, shape.n, shape.dim, e);
    }
    file_map_close(map);
    return status;
}

static enum status open_file(struct disk_generation *generation, enum generation_file file,
                             const char *path, struct error *e) {
    const struct collection_info *info = &generation->manifest.info;
    struct file_map *map = &generation->maps[file];
    if (map_verified(generation, file, path, e)) return e->status;
    if (file == GENERATION_FILE_WORDS)
        return words_open(&generation->words,
                          (struct text_span){(const char *)map->data, map->size}, info->n_chunks,
                          path, e);
    if (file == GENERATION_FILE_SPARSE)
        return sparse_index_open(&generation->sparse,
                                 (struct text_span){(const char *)map->data, map->size},
                                 info->n_chunks, path, e);
    if (file == GENERATION_FILE_VECTORS) {
        struct vectors_shape shape = {info->index_factory, info->n_chunks, info->dim};
        return open_vectors(&generation->index, map, path, shape, e);
    }
    if (file == GENERATION_FILE_PICTURES) {
        struct vectors_shape shape = {info->pictures.index_factory, info->pictures.n,
                                      info->pictures.dim};
        return open_vectors(&generation->pictures, map, path, shape, e);
    }
    return STATUS_OK;
}

static enum status open_files(struct disk_generation *generation, const char *folder,
                              struct error *e) {
    enum status status = STATUS_OK;
    for (int i = 0; i < GENERATION_FILE_COUNT && status == STATUS_OK; i++) {
        enum generation_file file = (enum generation_file)i;
        if (!generation_has_file(file, &generation->manifest.info)) continue;
        char *path = disk_path(folder, generation_file_name(file, &generation->manifest.info));
        status = open_file(generation, file, path, e);
        free(path);
    }
    const struct file_map *originals = &generation->maps[GENERATION_FILE_ORIGINALS];
    if (status == STATUS_OK && originals->data)
        generation->index = index_refine(generation->index, generation->manifest.info.index_factory,
                                         (const float *)(const void *)originals->data);
    return status;
}

static enum status open_generation(struct disk_generation *disk_generation, const char *dir,
                                   int generation, uint64_t checksum, struct error *e) {
    disk_generation->folder = disk_generation_path(dir, generation);
    enum status status = manifest_read(&disk_generation->manifest, disk_generation->folder,
                                       (struct generation_origin){generation, checksum}, e);
    if (status == STATUS_OK) status = open_files(disk_generation, disk_generation->folder, e);
    if (status == STATUS_OK) {
        disk_generation->tokens =
            (const uint32_t *)(const void *)disk_generation->maps[GENERATION_FILE_TOKENS].data;
        disk_generation->chunks = (const struct chunk_record *)(const void *)disk_generation
                                      ->maps[GENERATION_FILE_OFFSETS]
                                      .data;
        disk_generation->picture_chunks =
            (const uint64_t *)(const void *)disk_generation->maps[GENERATION_FILE_PICTURE_CHUNKS]
                .data;
        status = generation_read_documents(disk_generation, e);
    }
    return status;
}

enum status generation_outline_read(struct collection_outline *out, const char *dir,
                                    struct error *e) {
    int generation;
    uint64_t checksum;
    struct disk_generation disk_generation = {0};
    *out = (struct collection_outline){0};
    if (current_read(dir, &generation, &checksum, e)) return e->status;
    char *folder = disk_generation_path(dir, generation);
    enum status status = manifest_read(&disk_generation.manifest, folder,
                                       (struct generation_origin){generation, checksum}, e);
    out->changes = (size_t)change_log_measure_changes(folder);
    free(folder);
    if (status) {
        manifest_free(&disk_generation.manifest);
        return status;
    }

    const struct manifest *manifest = &disk_generation.manifest;
    out->info = manifest->info;
    const struct collection_info *info = &manifest->info;
    uint64_t vectors = manifest->files[GENERATION_FILE_VECTORS].bytes,
             pictures = manifest->files[GENERATION_FILE_PICTURES].bytes, all = 0;
    for (int i = 0; i < GENERATION_FILE_COUNT; i++) all += manifest->files[i].bytes;
    uint64_t resident = index_resident(info->index_factory, vectors, info->n_chunks, info->dim);
    if (pictures > 0)
        resident += index_resident(info->pictures.index_factory, pictures, info->pictures.n,
                                   info->pictures.dim);
    out->mapped = (size_t)(all > resident ? all - resident : 0);
    /* Facts take about what the metadata takes, which is in `documents`. */
    out->index = (size_t)(resident + manifest->files[GENERATION_FILE_DOCUMENTS].bytes) +
                 (size_t)info->n_documents * sizeof(struct document);
    return STATUS_OK;
}

void collection_outline_free(struct collection_outline *outline) {
    struct manifest manifest = {.info = outline->info};
    manifest_free(&manifest);
    *outline = (struct collection_outline){0};
}

static void collection_free(struct disk_generation *generation) {
    words_free(generation->words);
    sparse_index_free(generation->sparse);
    index_close(generation->index);
    index_close(generation->pictures);
    for (int i = 0; i < GENERATION_FILE_COUNT; i++) file_map_close(&generation->maps[i]);
    free(generation->documents);
    buffer_free(&generation->facts);
    manifest_free(&generation->manifest);
    free(generation->folder);
    free(generation);
}

struct generation_origin disk_generation_origin(const struct disk_generation *generation) {
    return (struct generation_origin){generation->manifest.info.generation,
                                      generation->manifest.checksum};
}

const char *disk_generation_folder(const struct disk_generation *generation) {
    return generation->folder;
}

enum status disk_generation_open_one(struct disk_generation **out, const char *dir,
                                     struct generation_origin origin, struct error *e) {
    struct disk_generation *generation = xcalloc(1, sizeof *generation);
    atomic_init(&generation->holders, 1);
    enum status status =
        open_generation(generation, dir, origin.generation, origin.manifest_checksum, e);
    if (status) {
        disk_generation_close(generation);
        return status;
    }
    *out = generation;
    return STATUS_OK;
}

enum status disk_generation_open(struct disk_generation **out, const char *dir, struct error *e) {
    struct generation_origin origin, again;
    for (;;) {
        enum status status = current_read(dir, &origin.generation, &origin.manifest_checksum, e);
        if (status) return status;
        status = disk_generation_open_one(out, dir, origin, e);
        if (status == STATUS_OK) return STATUS_OK;
        /* Two builds may have finished meanwhile and removed what was being read: then CURRENT
         * names another. */
        if (current_read(dir, &again.generation, &again.manifest_checksum, NULL) ||
            again.generation == origin.generation)
            return status;
    }
}

void disk_generation_close(struct disk_generation *generation) {
    if (generation && atomic_fetch_sub(&generation->holders, 1) == 1) collection_free(generation);
}

struct disk_generation *disk_generation_hold(struct disk_generation *generation) {
    atomic_fetch_add(&generation->holders, 1);
    return generation;
}

struct chunk disk_generation_chunk(const struct disk_generation *generation, int64_t id) {
    CHECK(id >= 0 && id < generation->manifest.info.n_chunks);
    const struct chunk_record *record = &generation->chunks[id];
    const struct document *document = &generation->documents[record->document];
    const char *text = (const char *)generation->maps[GENERATION_FILE_TEXT].data;
    return (struct chunk){
        .id = id,
        .document = record->document,
        .document_id = document->id,
        .path = document->path,
        .title = document->title,
        .metadata = document->metadata,
        .tokens = generation->tokens + record->token,
        .n_tokens = (int)record->n_tokens,
        .n_following = (int)(document->token + document->n_tokens - record->token),
        .token = (int)(record->token - document->token),
        .start = record->start,
        .end = record->end,
        .text = {text + document->text + record->start, record->end - record->start},
        .source = {text + document->text, document->text_size},
        .marks = document->marks};
}

int64_t disk_generation_document_of(const struct disk_generation *generation, int64_t id) {
    CHECK(id >= 0 && id < generation->manifest.info.n_chunks);
    return generation->chunks[id].document;
}

int64_t disk_generation_picture_chunk(const struct disk_generation *generation, int64_t number) {
    CHECK(number >= 0 && number < generation->manifest.info.pictures.n);
    return (int64_t)generation->picture_chunks[number];
}

int64_t disk_generation_picture_of(const struct disk_generation *generation, int64_t chunk) {
    int64_t low = 0, high = generation->manifest.info.pictures.n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if ((int64_t)generation->picture_chunks[middle] < chunk)
            low = middle + 1;
        else
            high = middle;
    }
    return low < generation->manifest.info.pictures.n &&
                   (int64_t)generation->picture_chunks[low] == chunk
               ? low
               : -1;
}

struct stored_document disk_generation_document_at(const struct disk_generation *generation,
                                                   int64_t number) {
    CHECK(number >= 0 && number < generation->manifest.info.n_documents);
    const struct document *document = &generation->documents[number];
    const char *text = (const char *)generation->maps[GENERATION_FILE_TEXT].data;
    return (struct stored_document){
        .id = document->id,
        .path = document->path,
        .title = document->title,
        .metadata = document->metadata,
        .source = document->source,
        .file = document->file,
        .text = {text + document->text, document->text_size},
        .marks = document->marks,
        .facts = {document->facts_size ? generation->facts.data + document->facts : "",
                  document->facts_size},
        .first_chunk = (int64_t)document->first_chunk,
        .n_chunks = (int64_t)document->n_chunks};
}

/* Axis vectors in both directions as queries: every id an answer brings must be one of ours, and
 * once. */
static enum status probe_index(const struct index *index, const char *what, struct error *e) {
    enum { PROBES = 16, NEIGHBORS = 64 };
    int64_t ids[NEIGHBORS];
    float similarities[NEIGHBORS];
    float *query = xcalloc((size_t)index->dim, sizeof *query);
    enum status status = STATUS_OK;
    for (int p = 0; p < PROBES && status == STATUS_OK; p++) {
        int axis = p / 2 % index->dim;
        query[axis] = p % 2 ? -1 : 1;
        status = index_search(index, (struct index_query){.vectors = query, .n = 1, .k = NEIGHBORS},
                              ids, similarities, e);
        query[axis] = 0;
        for (int i = 0; i < NEIGHBORS && status == STATUS_OK; i++)
            for (int j = 0; j < i; j++)
                if (ids[i] >= index->count || (ids[i] >= 0 && ids[i] == ids[j]))
                    status = error_set(e, STATUS_CORRUPT,
                                       "index: %s %" PRId64 " of %" PRId64
                                       " is found twice or "
                                       "does not exist; build the collection again",
                                       what, ids[i], index->count);
    }
    free(query);
    return status;
}

enum status disk_generation_verify(const char *dir, struct error *e) {
    struct disk_generation *generation;
    enum status status = disk_generation_open(&generation, dir, e);
    if (status) return status;
    status = words_check(generation->words, e);
    if (status == STATUS_OK && generation->sparse)
        status = sparse_index_check(generation->sparse, e);
    if (status == STATUS_OK) status = probe_index(generation->index, "chunk", e);
    if (status == STATUS_OK && generation->pictures)
        status = probe_index(generation->pictures, "picture", e);
    disk_generation_close(generation);
    return status;
}
