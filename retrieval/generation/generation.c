/* retrieval/generation/generation.c: opening and reading a collection. Nothing of a file is used before its checksum
 * has been compared, and nothing in it is believed before its range has been checked: after opening, accessors need no
 * checks. Tokens and chunk records stay in the file, mapped. */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "retrieval/filter/facts.h"
#include "retrieval/generation/change_log.h"
#include "retrieval/generation/generation_private.h"

struct document {
    const char *id, *path, *title, *metadata, *source; /* in the map */
    struct mark_span marks;                            /* the same */
    uint64_t first_chunk, n_chunks;
    uint64_t text, text_size; /* in documents.text */
    size_t facts, facts_size; /* in the collection's */
};

struct disk_generation {
    atomic_int holders;
    char *folder; /* of its generation */
    struct manifest manifest;
    struct file_map maps[GENERATION_FILE_COUNT]; /* of vectors only while they are verified */
    const uint32_t *tokens;
    const struct chunk_record *chunks;
    struct document *documents;
    struct buffer facts; /* of all metadata */
    struct index *index;
    struct index *pictures;         /* by their own embedder; NULL: there are none */
    const uint64_t *picture_chunks; /* [n] in the map */
};

const struct collection_info *disk_generation_info(const struct disk_generation *c) { return &c->manifest.info; }
const struct index *disk_generation_index(const struct disk_generation *c) { return c->index; }
const struct index *disk_generation_pictures(const struct disk_generation *c) { return c->pictures; }
enum status disk_generation_move(struct disk_generation *c, const char *device, struct error *e) {
    if (index_move(c->index, device, e)) return e->status;
    return c->pictures ? index_move(c->pictures, device, e) : STATUS_OK;
}

enum status manifest_read(struct manifest *m, const char *folder, struct generation_origin origin, struct error *e) {
    char *path = disk_path(folder, "MANIFEST");
    struct buffer text = {0};
    *m = (struct manifest){0};
    enum status status = file_read(path, MANIFEST_LIMIT, &text, e);
    if (status == STATUS_OK) status = manifest_parse(m, text.data, text.size, path, e);
    if (status == STATUS_OK && (m->info.generation != origin.generation || m->checksum != origin.manifest_checksum))
        status =
            error_set(e, STATUS_CORRUPT, "%s: generation %d, checksum %016" PRIx64 "; CURRENT names %d, %016" PRIx64,
                      path, m->info.generation, m->checksum, origin.generation, origin.manifest_checksum);
    buffer_free(&text);
    free(path);
    return status;
}

enum status file_map_verified(struct file_map *map, const char *path, const struct file_facts *facts, struct error *e) {
    enum status status = file_map_open(map, path, e);
    if (status) return status;
    if (map->size != facts->bytes)
        return error_set(e, STATUS_CORRUPT, "%s: %zu bytes, MANIFEST says %" PRIu64 "; build the collection again",
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

static enum status map_verified(struct disk_generation *c, enum generation_file file, const char *path,
                                struct error *e) {
    return file_map_verified(&c->maps[file], path, &c->manifest.files[file], e);
}

/* Vectors of one file: how many of which length, found by which index. */
struct vectors_shape {
    const char *index_factory;
    int64_t n;
    int dim;
};

/* Exact vectors are copied, FAISS reads its own file: either way the map has done its work. */
static enum status open_vectors(struct index **out, struct file_map *map, const char *path, struct vectors_shape shape,
                                struct error *e) {
    enum status status;
    if (generation_is_exact(shape.index_factory)) {
        float *vectors = malloc(map->size);
        if (vectors == NULL) return error_set(e, STATUS_NO_MEMORY, "%s: %zu bytes of vectors", path, map->size);
        memcpy(vectors, map->data, map->size);
        status = index_open_flat(out, vectors, shape.n, shape.dim, e);
    } else {
        status = index_open_faiss(out, path, shape.n, shape.dim, e);
    }
    file_map_close(map);
    return status;
}

static enum status open_file(struct disk_generation *c, enum generation_file file, const char *path, struct error *e) {
    const struct collection_info *info = &c->manifest.info;
    struct file_map *map = &c->maps[file];
    if (map_verified(c, file, path, e)) return e->status;
    if (file == GENERATION_FILE_VECTORS) {
        struct vectors_shape shape = {info->index_factory, info->n_chunks, info->dim};
        return open_vectors(&c->index, map, path, shape, e);
    }
    if (file == GENERATION_FILE_PICTURES) {
        struct vectors_shape shape = {info->pictures.index_factory, info->pictures.n, info->pictures.dim};
        return open_vectors(&c->pictures, map, path, shape, e);
    }
    return STATUS_OK;
}

static enum status open_files(struct disk_generation *c, const char *folder, struct error *e) {
    enum status status = STATUS_OK;
    for (int i = 0; i < GENERATION_FILE_COUNT && status == STATUS_OK; i++) {
        enum generation_file file = (enum generation_file)i;
        if (!generation_has_file(file, &c->manifest.info)) continue;
        char *path = disk_path(folder, generation_file_name(file, &c->manifest.info));
        status = open_file(c, file, path, e);
        free(path);
    }
    const struct file_map *originals = &c->maps[GENERATION_FILE_ORIGINALS];
    if (status == STATUS_OK && originals->data)
        c->index = index_refine(c->index, (const float *)(const void *)originals->data);
    return status;
}

static enum status bad_document(const char *folder, uint64_t number, const char *what, struct error *e) {
    return error_set(e, STATUS_CORRUPT, "%s/documents: entry %" PRIu64 " %s; build the collection again", folder,
                     number, what);
}

/* One entry at *at: strings terminated inside the file, chunks following those of the entry before. */
static enum status read_document(const struct file_map *map, size_t *at, struct document *d, const char **problem) {
    struct document_record record;
    if (map->size - *at < sizeof record) return *problem = "is cut off", STATUS_CORRUPT;
    memcpy(&record, map->data + *at, sizeof record);
    *at += sizeof record;

    /* Six sizes of 32 bits cannot overflow 64. */
    uint64_t strings =
        (uint64_t)record.id_size + record.path_size + record.title_size + record.metadata_size + record.source_size + 5;
    uint64_t marks = (uint64_t)record.n_marks * sizeof(struct mark);
    if (strings + marks > map->size - *at) return *problem = "reaches beyond the end of the file", STATUS_CORRUPT;
    const char *id = (const char *)map->data + *at, *path = id + record.id_size + 1;
    const char *title = path + record.path_size + 1, *metadata = title + record.title_size + 1;
    *d = (struct document){.id = id,
                           .path = path,
                           .title = title,
                           .metadata = metadata,
                           .source = metadata + record.metadata_size + 1,
                           .marks = {id + strings, record.n_marks},
                           .first_chunk = record.first_chunk,
                           .n_chunks = record.n_chunks,
                           .text_size = record.text_size};
    *at += strings + marks;

    if (d->id[record.id_size] != '\0' || d->path[record.path_size] != '\0' || d->title[record.title_size] != '\0' ||
        d->metadata[record.metadata_size] != '\0' || d->source[record.source_size] != '\0')
        return *problem = "has a string without its end", STATUS_CORRUPT;
    if (record.id_size == 0 || record.id_size > COLLECTION_MAX_ID || strlen(d->id) != record.id_size)
        return *problem = "has no id, or one that is too long", STATUS_CORRUPT;
    return STATUS_OK;
}

static enum status read_facts(struct disk_generation *c, struct document *d, const char *folder, uint64_t number,
                              struct error *e) {
    d->facts = c->facts.size;
    if (facts_append(&c->facts, d->metadata, e)) {
        e->status = STATUS_CORRUPT;
        return error_prefix(e, "%s/documents: entry %" PRIu64, folder, number);
    }
    d->facts_size = c->facts.size - d->facts;
    return STATUS_OK;
}

static enum status read_documents(struct disk_generation *c, const char *folder, struct error *e) {
    const struct file_map *map = &c->maps[GENERATION_FILE_DOCUMENTS];
    uint64_t n = (uint64_t)c->manifest.info.n_documents, next_chunk = 0, next_text = 0;
    uint64_t text_size = c->maps[GENERATION_FILE_TEXT].size;
    size_t at = 0;
    if (n > map->size / sizeof(struct document_record))
        return error_set(e, STATUS_CORRUPT, "%s/documents: %zu bytes cannot hold %" PRIu64 " documents", folder,
                         map->size, n);
    c->documents = malloc((size_t)n * sizeof *c->documents);
    if (c->documents == NULL) return error_set(e, STATUS_NO_MEMORY, "%s: %" PRIu64 " documents", folder, n);
    for (uint64_t i = 0; i < n; i++) {
        const char *problem;
        struct document *d = &c->documents[i];
        if (read_document(map, &at, d, &problem)) return bad_document(folder, i, problem, e);
        if (d->first_chunk != next_chunk || d->n_chunks < 1 ||
            d->n_chunks > (uint64_t)c->manifest.info.n_chunks - next_chunk)
            return bad_document(folder, i, "has chunks that do not follow those before", e);
        if (d->text_size > text_size - next_text)
            return bad_document(folder, i, "has more text than documents.text", e);
        d->text = next_text;
        const char *fault = marks_fault(d->marks, d->text_size);
        if (fault) return bad_document(folder, i, fault, e);
        if (read_facts(c, d, folder, i, e)) return e->status;
        next_chunk += d->n_chunks;
        next_text += d->text_size;
    }
    if (at != map->size || next_chunk != (uint64_t)c->manifest.info.n_chunks || next_text != text_size)
        return error_set(e, STATUS_CORRUPT,
                         "%s/documents: %zu bytes, %" PRIu64 " chunks and %" PRIu64
                         " bytes of text, expected %zu, %" PRId64 " and %" PRIu64,
                         folder, at, next_chunk, next_text, map->size, c->manifest.info.n_chunks, text_size);
    return STATUS_OK;
}

/* Chunks of a document follow each other in tokens and in its text; only its last one is short. */
static bool chunk_fits(const struct disk_generation *c, uint64_t document, uint64_t id, uint64_t next_token) {
    const struct document *d = &c->documents[document];
    const struct chunk_record *chunk = &c->chunks[id];
    uint64_t length = (uint64_t)c->manifest.info.chunk_length, last = d->first_chunk + d->n_chunks - 1;
    return chunk->document == document && chunk->token == next_token && chunk->n_tokens >= 1 &&
           chunk->n_tokens <= length && (id == last || chunk->n_tokens == length) && chunk->start <= chunk->end &&
           chunk->end <= d->text_size && (id == d->first_chunk || chunk->start >= c->chunks[id - 1].end);
}

static enum status check_chunks(const struct disk_generation *c, const char *folder, struct error *e) {
    uint64_t token = 0, n_tokens = (uint64_t)c->manifest.info.n_tokens;
    for (uint64_t i = 0; i < (uint64_t)c->manifest.info.n_documents; i++)
        for (uint64_t j = 0; j < c->documents[i].n_chunks; j++) {
            uint64_t id = c->documents[i].first_chunk + j;
            if (!chunk_fits(c, i, id, token) || c->chunks[id].n_tokens > n_tokens - token)
                return error_set(e, STATUS_CORRUPT,
                                 "%s/chunks.offsets: record %" PRIu64
                                 " does not follow the one before or leaves its "
                                 "document; build the collection again",
                                 folder, id);
            token += c->chunks[id].n_tokens;
        }
    if (token != n_tokens)
        return error_set(e, STATUS_CORRUPT, "%s/chunks.offsets: chunks hold %" PRIu64 " tokens, expected %" PRIu64,
                         folder, token, n_tokens);
    uint32_t largest = (uint32_t)c->manifest.info.eod;
    for (uint64_t i = 0; i < n_tokens; i++) largest = c->tokens[i] > largest ? c->tokens[i] : largest;
    if (largest != (uint32_t)c->manifest.info.max_token)
        return error_set(e, STATUS_CORRUPT, "%s/chunks.tokens: largest id %u, MANIFEST says %d", folder, largest,
                         c->manifest.info.max_token);
    return STATUS_OK;
}

/* Pictures follow each other, each at the first chunk of a document. */
static enum status check_pictures(const struct disk_generation *c, const char *folder, struct error *e) {
    int64_t n = c->manifest.info.pictures.n;
    for (int64_t i = 0; i < n; i++) {
        uint64_t id = c->picture_chunks[i];
        bool fits = id < (uint64_t)c->manifest.info.n_chunks && (i == 0 || id > c->picture_chunks[i - 1]) &&
                    c->documents[c->chunks[id].document].first_chunk == id;
        if (!fits)
            return error_set(e, STATUS_CORRUPT,
                             "%s/pictures.chunks: picture %" PRId64 " is at chunk %" PRIu64
                             ", which begins no document or does not follow the one before; build the collection again",
                             folder, i, id);
    }
    return STATUS_OK;
}

static enum status open_generation(struct disk_generation *c, const char *dir, int generation, uint64_t checksum,
                                   struct error *e) {
    c->folder = disk_generation_path(dir, generation);
    enum status status = manifest_read(&c->manifest, c->folder, (struct generation_origin){generation, checksum}, e);
    if (status == STATUS_OK) status = open_files(c, c->folder, e);
    if (status == STATUS_OK) {
        c->tokens = (const uint32_t *)(const void *)c->maps[GENERATION_FILE_TOKENS].data;
        c->chunks = (const struct chunk_record *)(const void *)c->maps[GENERATION_FILE_OFFSETS].data;
        c->picture_chunks = (const uint64_t *)(const void *)c->maps[GENERATION_FILE_PICTURE_CHUNKS].data;
        status = read_documents(c, c->folder, e);
    }
    if (status == STATUS_OK) status = check_chunks(c, c->folder, e);
    return status ? status : check_pictures(c, c->folder, e);
}

enum status store_outline_read(struct collection_outline *out, const char *dir, struct error *e) {
    int generation;
    uint64_t checksum;
    struct disk_generation c = {0};
    *out = (struct collection_outline){0};
    if (current_read(dir, &generation, &checksum, e)) return e->status;
    char *folder = disk_generation_path(dir, generation);
    enum status status = manifest_read(&c.manifest, folder, (struct generation_origin){generation, checksum}, e);
    out->changes = (size_t)change_log_measure_changes(folder);
    free(folder);
    if (status) {
        manifest_free(&c.manifest);
        return status;
    }

    const struct manifest *m = &c.manifest;
    out->info = m->info;
    for (int i = 0; i < GENERATION_FILE_COUNT; i++)
        if (i != GENERATION_FILE_VECTORS && i != GENERATION_FILE_PICTURES) out->mapped += (size_t)m->files[i].bytes;
    out->text = (size_t)m->files[GENERATION_FILE_TEXT].bytes;
    /* Facts take about what the metadata takes, which is in `documents`. */
    out->index = (size_t)m->files[GENERATION_FILE_VECTORS].bytes + (size_t)m->files[GENERATION_FILE_PICTURES].bytes +
                 (size_t)m->files[GENERATION_FILE_DOCUMENTS].bytes +
                 (size_t)m->info.n_documents * sizeof(struct document);
    return STATUS_OK;
}

void collection_outline_free(struct collection_outline *o) {
    struct manifest m = {.info = o->info};
    manifest_free(&m);
    *o = (struct collection_outline){0};
}

static void collection_free(struct disk_generation *c) {
    index_close(c->index);
    index_close(c->pictures);
    for (int i = 0; i < GENERATION_FILE_COUNT; i++) file_map_close(&c->maps[i]);
    free(c->documents);
    buffer_free(&c->facts);
    manifest_free(&c->manifest);
    free(c->folder);
    free(c);
}

struct generation_origin disk_generation_origin(const struct disk_generation *c) {
    return (struct generation_origin){c->manifest.info.generation, c->manifest.checksum};
}

const char *disk_generation_folder(const struct disk_generation *c) { return c->folder; }

enum status disk_generation_open_one(struct disk_generation **out, const char *dir, struct generation_origin origin,
                                     struct error *e) {
    struct disk_generation *c = xcalloc(1, sizeof *c);
    atomic_init(&c->holders, 1);
    enum status status = open_generation(c, dir, origin.generation, origin.manifest_checksum, e);
    if (status) {
        disk_generation_close(c);
        return status;
    }
    *out = c;
    return STATUS_OK;
}

enum status disk_generation_open(struct disk_generation **out, const char *dir, struct error *e) {
    struct generation_origin origin, again;
    for (;;) {
        enum status status = current_read(dir, &origin.generation, &origin.manifest_checksum, e);
        if (status) return status;
        status = disk_generation_open_one(out, dir, origin, e);
        if (status == STATUS_OK) return STATUS_OK;
        /* Two builds may have finished meanwhile and removed what was being read: then CURRENT names another. */
        if (current_read(dir, &again.generation, &again.manifest_checksum, NULL) ||
            again.generation == origin.generation)
            return status;
    }
}

void disk_generation_close(struct disk_generation *c) {
    if (c && atomic_fetch_sub(&c->holders, 1) == 1) collection_free(c);
}

struct disk_generation *disk_generation_hold(struct disk_generation *c) {
    atomic_fetch_add(&c->holders, 1);
    return c;
}

struct chunk disk_generation_chunk(const struct disk_generation *c, int64_t id) {
    CHECK(id >= 0 && id < c->manifest.info.n_chunks);
    const struct chunk_record *record = &c->chunks[id];
    const struct document *d = &c->documents[record->document];
    const struct chunk_record *last = &c->chunks[d->first_chunk + d->n_chunks - 1];
    const char *text = (const char *)c->maps[GENERATION_FILE_TEXT].data;
    return (struct chunk){.id = id,
                          .document = record->document,
                          .document_id = d->id,
                          .path = d->path,
                          .title = d->title,
                          .metadata = d->metadata,
                          .tokens = c->tokens + record->token,
                          .n_tokens = (int)record->n_tokens,
                          .n_following = (int)(last->token + last->n_tokens - record->token),
                          .start = record->start,
                          .end = record->end,
                          .text = {text + d->text + record->start, record->end - record->start},
                          .source = {text + d->text, d->text_size},
                          .marks = d->marks};
}

int64_t disk_generation_document_of(const struct disk_generation *c, int64_t id) {
    CHECK(id >= 0 && id < c->manifest.info.n_chunks);
    return c->chunks[id].document;
}

int64_t disk_generation_picture_chunk(const struct disk_generation *c, int64_t number) {
    CHECK(number >= 0 && number < c->manifest.info.pictures.n);
    return (int64_t)c->picture_chunks[number];
}

int64_t disk_generation_picture_of(const struct disk_generation *c, int64_t chunk) {
    int64_t low = 0, high = c->manifest.info.pictures.n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if ((int64_t)c->picture_chunks[middle] < chunk)
            low = middle + 1;
        else
            high = middle;
    }
    return low < c->manifest.info.pictures.n && (int64_t)c->picture_chunks[low] == chunk ? low : -1;
}

struct stored_document disk_generation_document_at(const struct disk_generation *c, int64_t number) {
    CHECK(number >= 0 && number < c->manifest.info.n_documents);
    const struct document *d = &c->documents[number];
    const char *text = (const char *)c->maps[GENERATION_FILE_TEXT].data;
    return (struct stored_document){.id = d->id,
                                    .path = d->path,
                                    .title = d->title,
                                    .metadata = d->metadata,
                                    .source = d->source,
                                    .text = {text + d->text, d->text_size},
                                    .marks = d->marks,
                                    .facts = {d->facts_size ? c->facts.data + d->facts : "", d->facts_size},
                                    .first_chunk = (int64_t)d->first_chunk,
                                    .n_chunks = (int64_t)d->n_chunks};
}

/* Axis vectors in both directions as queries: every id an answer brings must be one of ours, and once. */
static enum status probe_index(const struct index *index, const char *what, struct error *e) {
    enum { PROBES = 16, NEIGHBORS = 64 };
    int64_t ids[NEIGHBORS];
    float similarities[NEIGHBORS];
    float *query = xcalloc((size_t)index->dim, sizeof *query);
    enum status status = STATUS_OK;
    for (int p = 0; p < PROBES && status == STATUS_OK; p++) {
        int axis = p / 2 % index->dim;
        query[axis] = p % 2 ? -1 : 1;
        status =
            index_search(index, (struct index_query){.vectors = query, .n = 1, .k = NEIGHBORS}, ids, similarities, e);
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
    struct disk_generation *c;
    enum status status = disk_generation_open(&c, dir, e);
    if (status) return status;
    status = probe_index(c->index, "chunk", e);
    if (status == STATUS_OK && c->pictures) status = probe_index(c->pictures, "picture", e);
    disk_generation_close(c);
    return status;
}
