/* server/host/documents/known_texts.c: see known_texts.h. */
#include "server/host/documents/known_texts.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"

struct name_hash {
    uint64_t a, b;
};

static struct name_hash hash_name(const char *name) {
    size_t size = strlen(name);
    return (struct name_hash){hash_bytes(name, size, 0), hash_bytes(name, size, 1)};
}

static void add_hash(struct known_texts *texts, const char *hash, struct known_text text) {
    struct name_hash key = hash_name(hash);
    texts->list = xgrow(texts->list, texts->n, &texts->capacity, sizeof *texts->list);
    texts->list[texts->n] = text;
    texts->n++;
    key_set_add(&texts->places, key.a, key.b);
    *key_set_number(&texts->places, key.a, key.b) = texts->n;
}

void known_texts_add(struct known_texts *texts, struct text_span text, const char *id) {
    char hash[DOCUMENT_ID_SIZE];
    text_hash(text, hash);
    add_hash(texts, hash, (struct known_text){.id = xstrdup(id), .first_chunk = -1});
}

void known_texts_free(struct known_texts *texts) {
    for (int i = 0; i < texts->n; i++) free(texts->list[i].id);
    free(texts->list);
    key_set_free(&texts->places);
    snapshot_release(texts->snapshot);
    *texts = (struct known_texts){0};
}

/* Listing. */

static enum status list_text(void *context, const struct stored_document *document,
                             struct error *e) {
    struct known_texts *texts = context;
    struct known_text text = {.id = xstrdup(document->id),
                              .first_chunk = document->first_chunk,
                              .n_chunks = document->n_chunks};
    char hash[DOCUMENT_ID_SIZE];
    (void)e;
    if (document->text_hash == NULL) text_hash(document->text, hash);
    add_hash(texts, document->text_hash ? document->text_hash : hash, text);
    return STATUS_OK;
}

static enum status list_texts(struct known_texts *texts, struct collection *collection,
                              struct error *e) {
    known_texts_free(texts);
    texts->listed = true;
    texts->snapshot = collection_hold(collection);
    struct collection_walk walk = {
        .snapshot = texts->snapshot, .take = list_text, .context = texts};
    return collection_walk(collection, &walk, e);
}

/* Finding. */

bool known_text_equals(const struct collection_document *left,
                       const struct collection_document *right) {
    bool named = left->title[0] || strcmp(left->path, right->path) == 0;
    return named && span_equals(left->text, right->text) &&
           strcmp(left->title, right->title) == 0 && marks_alike(left->marks, right->marks);
}

static const struct known_text *find_text(const struct known_texts *texts, struct text_span text) {
    char hash[DOCUMENT_ID_SIZE];
    text_hash(text, hash);
    struct name_hash key = hash_name(hash);
    const int64_t *place = key_set_number(&texts->places, key.a, key.b);
    return place ? &texts->list[*place - 1] : NULL;
}

/* Of the document of a snapshot that begins with that chunk. */
static enum status read_from_snapshot(const struct snapshot *snapshot, int64_t first,
                                      struct document_cutter *cutter, struct error *e) {
    bool seen = false;
    if (collection_match_embedder(snapshot->info, cutter->embedder, e))
        return error_set(e, STATUS_NOT_FOUND, "the vectors there are of another embedder");
    document_make_room(cutter);
    sparse_rows_clear(&cutter->sparse);
    if (snapshot_vectors(snapshot, first, cutter->n_chunks, cutter->vectors, e) ||
        snapshot_sparse(snapshot, first, cutter->n_chunks, &cutter->sparse, e))
        return e->status;
    if (!cutter->is_picture || cutter->pictures == NULL) return STATUS_OK;
    if (snapshot_picture_vector(snapshot, first, cutter->picture, &seen, e)) return e->status;
    return seen ? STATUS_OK : error_set(e, STATUS_NOT_FOUND, "the picture has no vector");
}

enum status known_text_take(struct collection *collection, const struct known_place *place,
                            struct document_cutter *cutter,
                            const struct collection_document *document, struct error *e) {
    struct collection_found from;
    if (collection_find(collection, place->filter, place->id, &from, e)) return e->status;
    enum status status = STATUS_OK;
    struct collection_document there = document_again(&from.document);
    if (!known_text_equals(&there, document) || from.document.first_chunk < 0 ||
        from.document.n_chunks != cutter->n_chunks)
        status = error_set(e, STATUS_NOT_FOUND, "the document has another text now");
    else
        status = read_from_snapshot(from.snapshot, from.document.first_chunk, cutter, e);
    collection_found_release(&from);
    return status;
}

static enum status read_vectors(const struct known_texts *texts, struct collection *collection,
                                struct document_cutter *cutter,
                                const struct collection_document *document, struct error *e) {
    const struct known_text *known = find_text(texts, document->text);
    if (known == NULL) return error_set(e, STATUS_NOT_FOUND, "no document has the text");
    if (known->first_chunk < 0)
        return known_text_take(collection, &(struct known_place){NULL, known->id}, cutter, document,
                               e);
    struct chunk first = snapshot_chunk(texts->snapshot, known->first_chunk);
    struct collection_document there = {
        .path = first.path, .title = first.title, .text = first.source, .marks = first.marks};
    if (!known_text_equals(&there, document) || known->n_chunks != cutter->n_chunks)
        return error_set(e, STATUS_NOT_FOUND, "the document has another text");
    return read_from_snapshot(texts->snapshot, known->first_chunk, cutter, e);
}

/* An index that gives no vectors back, and a document that goes meanwhile, leave *found false. */
enum status known_texts_find(struct known_texts *texts, struct collection *collection,
                             struct document_cutter *cutter,
                             const struct collection_document *document, bool *found,
                             struct error *e) {
    *found = false;
    if (!texts->listed && list_texts(texts, collection, e)) return e->status;
    enum status status = read_vectors(texts, collection, cutter, document, e);
    *found = status == STATUS_OK;
    return status == STATUS_NOT_FOUND || status == STATUS_UNSUPPORTED ? STATUS_OK : status;
}
