/* retrieval/generation/generation_documents.c: the table of documents of a generation, and the
 * ranges of documents, chunks and pictures. See generation_parts.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/filter/facts.h"
#include "retrieval/generation/generation_parts.h"

static enum status bad_document(const char *folder, uint64_t number, const char *what,
                                struct error *e) {
    return error_set(e, STATUS_CORRUPT,
                     "%s/documents: entry %" PRIu64 " %s; build the collection again", folder,
                     number, what);
}

/* One entry at *at: strings terminated inside the file, chunks following those of the entry before.
 */
static enum status read_document(const struct file_map *map, size_t *at, struct document *document,
                                 const char **problem) {
    struct document_record record;
    if (map->size - *at < sizeof record) return *problem = "is cut off", STATUS_CORRUPT;
    memcpy(&record, map->data + *at, sizeof record);
    *at += sizeof record;

    /* Seven sizes of 32 bits cannot overflow 64. */
    uint64_t strings = (uint64_t)record.id_size + record.path_size + record.title_size +
                       record.metadata_size + record.source_size + record.file_size + 6;
    uint64_t marks = (uint64_t)record.n_marks * sizeof(struct mark);
    if (strings + marks > map->size - *at)
        return *problem = "reaches beyond the end of the file", STATUS_CORRUPT;
    const char *id = (const char *)map->data + *at, *path = id + record.id_size + 1;
    const char *title = path + record.path_size + 1, *metadata = title + record.title_size + 1;
    const char *source = metadata + record.metadata_size + 1;
    *document = (struct document){.id = id,
                                  .path = path,
                                  .title = title,
                                  .metadata = metadata,
                                  .source = source,
                                  .file = source + record.source_size + 1,
                                  .marks = {id + strings, record.n_marks},
                                  .first_chunk = record.first_chunk,
                                  .n_chunks = record.n_chunks,
                                  .n_tokens = record.n_tokens,
                                  .text_size = record.text_size};
    *at += strings + marks;

    if (document->id[record.id_size] != '\0' || document->path[record.path_size] != '\0' ||
        document->title[record.title_size] != '\0' ||
        document->metadata[record.metadata_size] != '\0' ||
        document->source[record.source_size] != '\0' || document->file[record.file_size] != '\0')
        return *problem = "has a string without its end", STATUS_CORRUPT;
    if (record.id_size == 0 || record.id_size > COLLECTION_MAX_ID ||
        strlen(document->id) != record.id_size)
        return *problem = "has no id, or one that is too long", STATUS_CORRUPT;
    return STATUS_OK;
}

static enum status read_facts(struct disk_generation *generation, struct document *document,
                              const char *folder, uint64_t number, struct error *e) {
    document->facts = generation->facts.size;
    if (facts_append(&generation->facts, document->metadata, e)) {
        e->status = STATUS_CORRUPT;
        return error_prefix(e, "%s/documents: entry %" PRIu64, folder, number);
    }
    document->facts_size = generation->facts.size - document->facts;
    return STATUS_OK;
}

static enum status read_documents(struct disk_generation *generation, const char *folder,
                                  struct error *e) {
    const struct file_map *map = &generation->maps[GENERATION_FILE_DOCUMENTS];
    const struct collection_info *info = &generation->manifest.info;
    uint64_t n = (uint64_t)info->n_documents, next_chunk = 0, next_token = 0, next_text = 0;
    uint64_t text_size = generation->maps[GENERATION_FILE_TEXT].size;
    size_t at = 0;
    if (n > map->size / sizeof(struct document_record))
        return error_set(e, STATUS_CORRUPT,
                         "%s/documents: %zu bytes cannot hold %" PRIu64 " documents", folder,
                         map->size, n);
    generation->documents = malloc((size_t)n * sizeof *generation->documents);
    if (generation->documents == NULL)
        return error_set(e, STATUS_NO_MEMORY, "%s: %" PRIu64 " documents", folder, n);
    for (uint64_t i = 0; i < n; i++) {
        const char *problem;
        struct document *document = &generation->documents[i];
        if (read_document(map, &at, document, &problem)) return bad_document(folder, i, problem, e);
        if (document->first_chunk != next_chunk || document->n_chunks < 1 ||
            document->n_chunks > (uint64_t)info->n_chunks - next_chunk)
            return bad_document(folder, i, "has chunks that do not follow those before", e);
        if (document->n_tokens < 1 || document->n_tokens > INT32_MAX ||
            document->n_tokens > (uint64_t)info->n_tokens - next_token)
            return bad_document(folder, i, "has more tokens than chunks.tokens, or none", e);
        if (document->text_size > text_size - next_text)
            return bad_document(folder, i, "has more text than documents.text", e);
        document->text = next_text;
        document->token = next_token;
        const char *fault = marks_fault(document->marks, document->text_size);
        if (fault) return bad_document(folder, i, fault, e);
        if (read_facts(generation, document, folder, i, e)) return e->status;
        next_chunk += document->n_chunks;
        next_text += document->text_size;
        next_token += document->n_tokens;
    }
    if (at != map->size || next_chunk != (uint64_t)info->n_chunks || next_text != text_size ||
        next_token != (uint64_t)info->n_tokens)
        return error_set(e, STATUS_CORRUPT,
                         "%s/documents: %zu bytes, %" PRIu64 " chunks, %" PRIu64
                         " tokens and %" PRIu64 " bytes of text, expected %zu, %" PRId64
                         ", %" PRId64 " and %" PRIu64,
                         folder, at, next_chunk, next_token, next_text, map->size, info->n_chunks,
                         info->n_tokens, text_size);
    return STATUS_OK;
}

/* A record as a range of its document; false where it cannot be one. */
static bool read_range(const struct document *document, const struct chunk_record *record,
                       struct chunk_range *range) {
    if (record->token < document->token || record->token - document->token > UINT32_MAX ||
        record->start > UINT32_MAX || record->end > UINT32_MAX)
        return false;
    *range = (struct chunk_range){(uint32_t)record->start, (uint32_t)record->end,
                                  (uint32_t)(record->token - document->token), record->n_tokens};
    return true;
}

/* The fault of the chunk of that number of a document; NULL: there is none. */
static const char *find_chunk_fault(const struct disk_generation *generation, uint64_t number,
                                    uint64_t id) {
    const struct collection_info *info = &generation->manifest.info;
    const struct document *document = &generation->documents[number];
    const struct chunk_record *record = &generation->chunks[id];
    struct chunk_limits limits = {info->cut, info->chunk_length, document->n_tokens,
                                  document->text_size};
    struct chunk_range before, range;
    bool first = id == document->first_chunk,
         last = id == document->first_chunk + document->n_chunks - 1;
    if (record->document != number || !read_range(document, record, &range) ||
        (!first && !read_range(document, record - 1, &before)))
        return "is not of its document";
    return chunk_range_fault(&limits, first ? NULL : &before, &range, last);
}

static enum status check_chunks(const struct disk_generation *generation, const char *folder,
                                struct error *e) {
    uint64_t n_tokens = (uint64_t)generation->manifest.info.n_tokens;
    for (uint64_t i = 0; i < (uint64_t)generation->manifest.info.n_documents; i++)
        for (uint64_t j = 0; j < generation->documents[i].n_chunks; j++) {
            uint64_t id = generation->documents[i].first_chunk + j;
            const char *fault = find_chunk_fault(generation, i, id);
            if (fault)
                return error_set(e, STATUS_CORRUPT,
                                 "%s/chunks.offsets: record %" PRIu64
                                 ": %s; build the collection again",
                                 folder, id, fault);
        }
    uint32_t largest = (uint32_t)generation->manifest.info.eod;
    for (uint64_t i = 0; i < n_tokens; i++)
        largest = generation->tokens[i] > largest ? generation->tokens[i] : largest;
    if (largest != (uint32_t)generation->manifest.info.max_token)
        return error_set(e, STATUS_CORRUPT, "%s/chunks.tokens: largest id %u, MANIFEST says %d",
                         folder, largest, generation->manifest.info.max_token);
    return STATUS_OK;
}

/* Pictures follow each other, each at the first chunk of a document. */
static enum status check_pictures(const struct disk_generation *generation, const char *folder,
                                  struct error *e) {
    int64_t n = generation->manifest.info.pictures.n;
    for (int64_t i = 0; i < n; i++) {
        uint64_t id = generation->picture_chunks[i];
        bool fits = id < (uint64_t)generation->manifest.info.n_chunks &&
                    (i == 0 || id > generation->picture_chunks[i - 1]) &&
                    generation->documents[generation->chunks[id].document].first_chunk == id;
        if (!fits)
            return error_set(e, STATUS_CORRUPT,
                             "%s/pictures.chunks: picture %" PRId64 " is at chunk %" PRIu64
                             ", which begins no document or does not follow the one before; build "
                             "the collection again",
                             folder, i, id);
    }
    return STATUS_OK;
}

enum status generation_read_documents(struct disk_generation *generation, struct error *e) {
    const char *folder = generation->folder;
    if (read_documents(generation, folder, e) || check_chunks(generation, folder, e) ||
        check_pictures(generation, folder, e))
        return e->status;
    return STATUS_OK;
}
