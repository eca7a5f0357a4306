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

    /* Six sizes of 32 bits cannot overflow 64. */
    uint64_t strings = (uint64_t)record.id_size + record.path_size + record.title_size +
                       record.metadata_size + record.source_size + 5;
    uint64_t marks = (uint64_t)record.n_marks * sizeof(struct mark);
    if (strings + marks > map->size - *at)
        return *problem = "reaches beyond the end of the file", STATUS_CORRUPT;
    const char *id = (const char *)map->data + *at, *path = id + record.id_size + 1;
    const char *title = path + record.path_size + 1, *metadata = title + record.title_size + 1;
    *document = (struct document){.id = id,
                                  .path = path,
                                  .title = title,
                                  .metadata = metadata,
                                  .source = metadata + record.metadata_size + 1,
                                  .marks = {id + strings, record.n_marks},
                                  .first_chunk = record.first_chunk,
                                  .n_chunks = record.n_chunks,
                                  .text_size = record.text_size};
    *at += strings + marks;

    if (document->id[record.id_size] != '\0' || document->path[record.path_size] != '\0' ||
        document->title[record.title_size] != '\0' ||
        document->metadata[record.metadata_size] != '\0' ||
        document->source[record.source_size] != '\0')
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
    uint64_t n = (uint64_t)generation->manifest.info.n_documents, next_chunk = 0, next_text = 0;
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
            document->n_chunks > (uint64_t)generation->manifest.info.n_chunks - next_chunk)
            return bad_document(folder, i, "has chunks that do not follow those before", e);
        if (document->text_size > text_size - next_text)
            return bad_document(folder, i, "has more text than documents.text", e);
        document->text = next_text;
        const char *fault = marks_fault(document->marks, document->text_size);
        if (fault) return bad_document(folder, i, fault, e);
        if (read_facts(generation, document, folder, i, e)) return e->status;
        next_chunk += document->n_chunks;
        next_text += document->text_size;
    }
    if (at != map->size || next_chunk != (uint64_t)generation->manifest.info.n_chunks ||
        next_text != text_size)
        return error_set(e, STATUS_CORRUPT,
                         "%s/documents: %zu bytes, %" PRIu64 " chunks and %" PRIu64
                         " bytes of text, expected %zu, %" PRId64 " and %" PRIu64,
                         folder, at, next_chunk, next_text, map->size,
                         generation->manifest.info.n_chunks, text_size);
    return STATUS_OK;
}

/* Chunks of a document follow each other in tokens and in its text; only its last one is short. */
static bool chunk_fits(const struct disk_generation *generation, uint64_t document, uint64_t id,
                       uint64_t next_token) {
    const struct document *the_document = &generation->documents[document];
    const struct chunk_record *chunk = &generation->chunks[id];
    uint64_t length = (uint64_t)generation->manifest.info.chunk_length,
             last = the_document->first_chunk + the_document->n_chunks - 1;
    return chunk->document == document && chunk->token == next_token && chunk->n_tokens >= 1 &&
           chunk->n_tokens <= length && (id == last || chunk->n_tokens == length) &&
           chunk->start <= chunk->end && chunk->end <= the_document->text_size &&
           (id == the_document->first_chunk || chunk->start >= generation->chunks[id - 1].end);
}

static enum status check_chunks(const struct disk_generation *generation, const char *folder,
                                struct error *e) {
    uint64_t token = 0, n_tokens = (uint64_t)generation->manifest.info.n_tokens;
    for (uint64_t i = 0; i < (uint64_t)generation->manifest.info.n_documents; i++)
        for (uint64_t j = 0; j < generation->documents[i].n_chunks; j++) {
            uint64_t id = generation->documents[i].first_chunk + j;
            if (!chunk_fits(generation, i, id, token) ||
                generation->chunks[id].n_tokens > n_tokens - token)
                return error_set(e, STATUS_CORRUPT,
                                 "%s/chunks.offsets: record %" PRIu64
                                 " does not follow the one before or leaves its "
                                 "document; build the collection again",
                                 folder, id);
            token += generation->chunks[id].n_tokens;
        }
    if (token != n_tokens)
        return error_set(e, STATUS_CORRUPT,
                         "%s/chunks.offsets: chunks hold %" PRIu64 " tokens, expected %" PRIu64,
                         folder, token, n_tokens);
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
