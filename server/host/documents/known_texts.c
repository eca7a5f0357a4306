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

static void add_hash(struct known_texts *k, const char *hash, struct known_text text) {
    struct name_hash key = hash_name(hash);
    k->list = xgrow(k->list, k->n, &k->capacity, sizeof *k->list);
    k->list[k->n] = text;
    k->n++;
    key_set_add(&k->places, key.a, key.b);
    *key_set_number(&k->places, key.a, key.b) = k->n;
}

void known_texts_add(struct known_texts *k, struct text_span text, const char *id) {
    char hash[DOCUMENT_ID_SIZE];
    text_hash(text, hash);
    add_hash(k, hash, (struct known_text){.id = xstrdup(id), .first_chunk = -1});
}

void known_texts_free(struct known_texts *k) {
    for (int i = 0; i < k->n; i++) free(k->list[i].id);
    free(k->list);
    key_set_free(&k->places);
    snapshot_release(k->snapshot);
    *k = (struct known_texts){0};
}

/* Listing. */

static enum status list_text(void *context, const struct stored_document *d, struct error *e) {
    struct known_texts *k = context;
    struct known_text text = {.id = xstrdup(d->id), .first_chunk = d->first_chunk, .n_chunks = d->n_chunks};
    char hash[DOCUMENT_ID_SIZE];
    (void)e;
    if (d->text_hash == NULL) text_hash(d->text, hash);
    add_hash(k, d->text_hash ? d->text_hash : hash, text);
    return STATUS_OK;
}

static enum status list_texts(struct known_texts *k, struct collection *l, struct error *e) {
    known_texts_free(k);
    k->listed = true;
    k->snapshot = collection_hold(l);
    struct collection_walk walk = {.snapshot = k->snapshot, .take = list_text, .context = k};
    return collection_walk(l, &walk, e);
}

/* Finding. */

static const struct known_text *find_text(const struct known_texts *k, struct text_span text) {
    char hash[DOCUMENT_ID_SIZE];
    text_hash(text, hash);
    struct name_hash key = hash_name(hash);
    const int64_t *place = key_set_number(&k->places, key.a, key.b);
    return place ? &k->list[*place - 1] : NULL;
}

/* Of the document of a snapshot that begins with that chunk. */
static enum status read_from_snapshot(const struct snapshot *snapshot, int64_t first, struct document_cutter *c,
                                      struct error *e) {
    bool seen = false;
    document_make_room(c);
    if (snapshot_vectors(snapshot, first, c->n_chunks, c->vectors, e)) return e->status;
    if (!c->is_picture || c->pictures == NULL) return STATUS_OK;
    if (snapshot_picture_vector(snapshot, first, c->picture, &seen, e)) return e->status;
    return seen ? STATUS_OK : error_set(e, STATUS_NOT_FOUND, "the picture has no vector");
}

/* From the collection as it is now. */
static enum status read_newest(struct collection *l, const char *id, struct document_cutter *c, struct text_span text,
                               struct error *e) {
    struct collection_found from;
    if (collection_find(l, NULL, id, &from, e)) return e->status;
    enum status status = STATUS_OK;
    if (!span_equals(from.document.text, text) || from.document.n_chunks != c->n_chunks)
        status = error_set(e, STATUS_NOT_FOUND, "the document has another text now");
    else
        status = read_from_snapshot(from.snapshot, from.document.first_chunk, c, e);
    collection_found_release(&from);
    return status;
}

static enum status read_vectors(const struct known_texts *k, struct collection *l, struct document_cutter *c,
                                struct text_span text, struct error *e) {
    const struct known_text *known = find_text(k, text);
    if (known == NULL) return error_set(e, STATUS_NOT_FOUND, "no document has the text");
    if (known->first_chunk < 0) return read_newest(l, known->id, c, text, e);
    struct chunk first = snapshot_chunk(k->snapshot, known->first_chunk);
    if (!span_equals(first.source, text) || known->n_chunks != c->n_chunks)
        return error_set(e, STATUS_NOT_FOUND, "the document has another text");
    return read_from_snapshot(k->snapshot, known->first_chunk, c, e);
}

/* An index that gives no vectors back, and a document that goes meanwhile, leave *found false. */
enum status known_texts_find(struct known_texts *k, struct collection *l, struct document_cutter *c,
                             struct text_span text, bool *found, struct error *e) {
    *found = false;
    if (!k->listed && list_texts(k, l, e)) return e->status;
    enum status status = read_vectors(k, l, c, text, e);
    *found = status == STATUS_OK;
    return status == STATUS_NOT_FOUND || status == STATUS_UNSUPPORTED ? STATUS_OK : status;
}
