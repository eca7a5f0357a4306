/* retrieval/document.c: see document.h. */
#include "retrieval/document.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/base/hash.h"

void text_hash(struct text_span text, char hash[DOCUMENT_ID_SIZE]) {
    snprintf(hash, DOCUMENT_ID_SIZE, "%016" PRIx64 "%016" PRIx64, hash_bytes(text.text, text.size, 0),
             hash_bytes(text.text, text.size, 1));
}

void document_id_of_path(const char *path, char id[DOCUMENT_ID_SIZE]) {
    text_hash((struct text_span){path, strlen(path)}, id);
}

struct chunk document_chunk(const struct collection_document *d, int i, int chunk_length, int64_t number) {
    int first = i * chunk_length;
    uint32_t start = d->bounds[i], end = d->bounds[i + 1];
    return (struct chunk){.id = i,
                          .document = number,
                          .document_id = d->id,
                          .path = d->path,
                          .title = d->title,
                          .metadata = d->metadata,
                          .tokens = (const uint32_t *)d->ids + first,
                          .n_tokens = min_int(chunk_length, d->n - first),
                          .n_following = d->n - first,
                          .start = start,
                          .end = end,
                          .text = {d->text.text + start, end - start},
                          .source = d->text,
                          .marks = d->marks};
}

enum status document_ask_filter(const struct filter *filter, filter_question *asks, const struct collection_document *d,
                                bool *yes, struct error *e) {
    struct buffer facts = {0};
    enum status status = facts_append(&facts, d->metadata, e);
    struct filter_subject subject = {d->id, d->path, {facts.data, facts.size}};
    *yes = status == STATUS_OK && asks(filter, &subject);
    buffer_free(&facts);
    return status;
}
