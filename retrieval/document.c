/* retrieval/document.c: see document.h. */
#include "retrieval/document.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/base/hash.h"

const struct json_choice chunk_cuts[] = {{"text", CHUNKS_TEXT}, {"grid", CHUNKS_GRID}, {NULL, 0}};

void text_hash(struct text_span text, char hash[DOCUMENT_ID_SIZE]) {
    snprintf(hash, DOCUMENT_ID_SIZE, "%016" PRIx64 "%016" PRIx64,
             hash_bytes(text.text, text.size, 0), hash_bytes(text.text, text.size, 1));
}

void document_id_of_path(const char *path, char id[DOCUMENT_ID_SIZE]) {
    text_hash((struct text_span){path, strlen(path)}, id);
}

struct text_span document_title(const struct collection_document *document) {
    const char *name = strrchr(document->path, '/');
    const char *title = document->title && document->title[0] ? document->title
                        : name                                ? name + 1
                                                              : document->path;
    return (struct text_span){title, strlen(title)};
}

struct chunk document_chunk(const struct collection_document *document, int i, int64_t number) {
    const struct chunk_range *range = &document->chunks[i];
    return (struct chunk){.id = i,
                          .document = number,
                          .document_id = document->id,
                          .path = document->path,
                          .title = document->title,
                          .metadata = document->metadata,
                          .tokens = (const uint32_t *)document->ids + range->token,
                          .n_tokens = (int)range->n_tokens,
                          .n_following = document->n - (int)range->token,
                          .token = (int)range->token,
                          .start = range->start,
                          .end = range->end,
                          .text = {document->text.text + range->start, range->end - range->start},
                          .source = document->text,
                          .marks = document->marks};
}

/* Beyond what all chunks keep to: a grid has no gaps, and only its last chunk is short. */
static const char *grid_fault(const struct chunk_limits *limits, const struct chunk_range *before,
                              const struct chunk_range *range, bool last) {
    uint64_t end = (uint64_t)range->token + range->n_tokens;
    if (range->token != (before ? before->token + before->n_tokens : 0) ||
        (before && range->start != before->end))
        return "a chunk of the grid does not begin where the one before ends";
    if (!last && range->n_tokens != (uint32_t)limits->chunk_length)
        return "a chunk of the grid is short, and not the last";
    if (last && (end != limits->n_tokens || range->end != limits->text_size))
        return "its chunks do not end where its text ends";
    return NULL;
}

const char *chunk_range_fault(const struct chunk_limits *limits, const struct chunk_range *before,
                              const struct chunk_range *range, bool last) {
    uint64_t end = (uint64_t)range->token + range->n_tokens;
    if (range->n_tokens < 1 || range->n_tokens > (uint32_t)limits->chunk_length)
        return "a chunk has no tokens, or more than the chunk length";
    if (range->start > range->end) return "a chunk ends before it begins";
    if (end > limits->n_tokens || range->end > limits->text_size)
        return "a chunk leaves its document";
    if (before && (range->token < before->token + before->n_tokens || range->start < before->end))
        return "a chunk begins before the one before ends";
    return limits->cut == CHUNKS_GRID ? grid_fault(limits, before, range, last) : NULL;
}

const char *document_chunks_fault(const struct collection_document *document, enum chunk_cut cut,
                                  int chunk_length) {
    struct chunk_limits limits = {cut, chunk_length, (uint64_t)document->n, document->text.size};
    const char *fault = document->n_chunks < 1 ? "it has no chunk" : NULL;
    for (int i = 0; i < document->n_chunks && fault == NULL; i++)
        fault = chunk_range_fault(&limits, i > 0 ? &document->chunks[i - 1] : NULL,
                                  &document->chunks[i], i + 1 == document->n_chunks);
    return fault;
}

enum status document_ask_filter(const struct filter *filter, filter_question *asks,
                                const struct collection_document *document, bool *yes,
                                struct error *e) {
    struct buffer facts = {0};
    enum status status = facts_append(&facts, document->metadata, e);
    struct filter_subject subject = {document->id, document->path, {facts.data, facts.size}};
    *yes = status == STATUS_OK && asks(filter, &subject);
    buffer_free(&facts);
    return status;
}
