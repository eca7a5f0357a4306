/* retrieval/document.c: see document.h. */
#include "retrieval/document.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/base/hash.h"

void text_hash(struct text_span text, char hash[DOCUMENT_ID_SIZE]) {
    snprintf(hash, DOCUMENT_ID_SIZE, "%016" PRIx64 "%016" PRIx64,
             hash_bytes(text.text, text.size, 0), hash_bytes(text.text, text.size, 1));
}

void document_id_of_path(const char *path, char id[DOCUMENT_ID_SIZE]) {
    text_hash((struct text_span){path, strlen(path)}, id);
}

struct chunk document_chunk(const struct collection_document *document, int i, int chunk_length,
                            int64_t number) {
    int first = i * chunk_length;
    uint32_t start = document->bounds[i], end = document->bounds[i + 1];
    return (struct chunk){.id = i,
                          .document = number,
                          .document_id = document->id,
                          .path = document->path,
                          .title = document->title,
                          .metadata = document->metadata,
                          .tokens = (const uint32_t *)document->ids + first,
                          .n_tokens = min_int(chunk_length, document->n - first),
                          .n_following = document->n - first,
                          .start = start,
                          .end = end,
                          .text = {document->text.text + start, end - start},
                          .source = document->text,
                          .marks = document->marks};
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
