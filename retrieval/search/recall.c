/* retrieval/search/recall.c: see recall.h and retriever.h. */
#include "retrieval/search/recall.h"

#include "config/base/hash.h"
#include "retrieval/search/ranking.h"

static uint64_t hash_word(const char *word, uint64_t seed) {
    return hash_bytes(word, strlen(word) + 1, seed);
}

uint64_t hit_version(const struct hit *hit) {
    if (hit->source.text == NULL || hit->path == NULL) return 0;
    uint64_t names = hash_word(hit->title, hash_word(hit->path, hit->source.size)),
             version = hash_bytes(hit->source.text, hit->source.size, names);
    return version ? version : 1;
}

/* The document as a hit of all its text. */
static struct hit show_document(const struct stored_document *document) {
    return (struct hit){.document = document->id,
                        .path = document->path,
                        .title = document->title,
                        .end = document->text.size,
                        .text = document->text,
                        .source = document->text,
                        .marks = document->marks,
                        .relevance = -1};
}

/* Cuts the hit down to a passage's bytes, where its document is still the same. */
static bool cut_to(struct hit *hit, const struct recalled *recalled) {
    bool within = recalled->start < recalled->end && recalled->end <= hit->source.size;
    if (!within || hit_version(hit) != recalled->version) return false;
    hit->start = recalled->start;
    hit->end = recalled->end;
    hit->text = (struct text_span){hit->source.text + hit->start, hit->end - hit->start};
    hit->confidence = marks_confidence(hit->marks, hit->start, hit->end);
    hit->version = recalled->version;
    return true;
}

/* Passages of one document come behind each other in most turns: it is looked up once for them. */
void recall_from(struct collection *collection, const struct recall *recall) {
    struct collection_found found = {0};
    const char *latest = NULL;
    for (int i = 0; i < recall->n; i++) {
        struct recalled *recalled = &recall->list[i];
        struct error e;
        if (latest == NULL || strcmp(latest, recalled->document) != 0) {
            collection_found_release(&found);
            found = (struct collection_found){0};
            collection->ops->find(collection, recall->filter, recalled->document, &found, &e);
            latest = recalled->document;
        }
        if (found.snapshot == NULL) continue;
        struct hit hit = show_document(&found.document);
        if (names_are_excluded(recall->excluded, recall->n_excluded, hit.path, hit.document) ||
            !cut_to(&hit, recalled))
            continue;
        hit.similarity = recalled->hit.similarity;
        hit.number = recalled->hit.number;
        recalled->hit = hit;
        recalled->pinned = snapshot_hold(found.snapshot);
    }
    collection_found_release(&found);
}
