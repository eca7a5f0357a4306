/* server/blocks/document_watch.c: see document_watch.h. */
#include "server/blocks/document_watch.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"

enum {
    LEAST_KNOWN =
        1 << 16, /* bytes of a text, from where it was read: what follows a passage is read
                    by cross attention, and passages that begin together have one key */
    LEAST_FULL = 4096
};

struct watched_part {
    uint64_t key, id_hash;     /* id_hash: collection_hash_id */
    struct document_part part; /* its id is owned */
};

struct document_watch {
    struct collection *collection;
    int64_t position;           /* collection_list_gone */
    struct watched_part *parts; /* [n] owned */
    int n, capacity, n_used;
    struct key_set places; /* of keys among the parts */
    struct key_set ids;    /* {id_hash, 0} of the parts */
};

/* Parts of documents. */

/* A document as a hit or as the collection shows it. */
struct shown_document {
    const char *id, *path, *title;
    struct text_span text;
};

/* Of a text that was read from `start` on, `read` bytes of it. */
static struct document_part part_of(const struct shown_document *document, uint64_t start,
                                    uint64_t read) {
    uint64_t left = document->text.size - start, known = read < LEAST_KNOWN ? LEAST_KNOWN : read;
    if (known > left) known = left;
    uint64_t hash = hash_bytes(document->text.text + start, (size_t)known, 0);
    hash = hash_bytes(document->path, strlen(document->path), hash);
    hash = hash_bytes(document->title, strlen(document->title), hash);
    return (struct document_part){.id = {document->id, strlen(document->id)},
                                  .start = start,
                                  .size = document->text.size,
                                  .known = known,
                                  .hash = hash};
}

/* Whichever rows read it. */
static uint64_t key_of(const struct document_part *part) {
    struct document_part anywhere = *part;
    struct buffer record = {0};
    anywhere.row = 0;
    document_part_print(&anywhere, &record);
    uint64_t key = hash_bytes(record.data, record.size, 0);
    buffer_free(&record);
    return key > DOCUMENT_UNWATCHED ? key : DOCUMENT_UNWATCHED + 1;
}

/* Whether the newest state of the collection has what was read; nobody would see it go from one on
 * another machine. */
static bool is_there(const struct document_watch *watch, const struct document_part *part) {
    struct collection_found found;
    struct error e;
    if (collection_is_remote(watch->collection) ||
        collection_find(watch->collection, NULL, part->id.text, &found, &e))
        return false;
    const struct stored_document *document = &found.document;
    bool same = document->text.text && part->start <= document->text.size;
    if (same) {
        struct document_part now = part_of(
            &(struct shown_document){document->id, document->path, document->title, document->text},
            part->start, part->known);
        same = now.size == part->size && now.known == part->known && now.hash == part->hash;
    }
    collection_found_release(&found);
    return same;
}

/* The list. */

static const struct watched_part *find_part(const struct document_watch *watch, uint64_t key) {
    const int64_t *place = key_set_number(&watch->places, key, 0);
    return place ? &watch->parts[*place] : NULL;
}

/* False where it is there already. */
static bool add_part(struct document_watch *watch, const struct document_part *part, uint64_t key) {
    bool added;
    int64_t *place = key_set_put(&watch->places, key, 0, &added);
    if (!added) return false;
    *place = watch->n;
    if (watch->n == watch->capacity) {
        watch->capacity = 2 * watch->capacity + 64;
        watch->parts = xrealloc(watch->parts, (size_t)watch->capacity * sizeof *watch->parts);
    }
    struct watched_part *new = &watch->parts[watch->n];
    char *id = xmalloc(part->id.size + 1);
    memcpy(id, part->id.text, part->id.size);
    id[part->id.size] = '\0';
    *new = (struct watched_part){.key = key, .id_hash = collection_hash_id(id), .part = *part};
    new->part.id.text = id;
    key_set_add(&watch->ids, new->id_hash, 0);
    watch->n++;
    return true;
}

/* Whether a part stays in the list. */
typedef bool part_question(const struct document_watch *watch, const struct watched_part *part,
                           const void *context);

/* Keys of those that leave are appended to *gone, where that is not NULL. */
static void keep_parts(struct document_watch *watch, part_question *stays, const void *context,
                       struct buffer *gone) {
    int n = 0;
    key_set_free(&watch->places);
    key_set_free(&watch->ids);
    for (int i = 0; i < watch->n; i++) {
        struct watched_part *part = &watch->parts[i];
        bool added;
        if (!stays(watch, part, context)) {
            if (gone) buffer_append(gone, &part->key, sizeof part->key);
            free((char *)(uintptr_t)part->part.id.text);
            continue;
        }
        watch->parts[n] = *part;
        *key_set_put(&watch->places, part->key, 0, &added) = n;
        key_set_add(&watch->ids, part->id_hash, 0);
        n++;
    }
    watch->n = n;
}

/* Looking. */

static bool is_same(const struct document_watch *watch, const struct watched_part *part,
                    const void *context) {
    (void)context;
    return is_there(watch, &part->part);
}

static bool is_not_named(const struct document_watch *watch, const struct watched_part *part,
                         const void *context) {
    (void)watch;
    return key_set_number(context, part->id_hash, 0) == NULL;
}

void document_watch_compare(struct document_watch *watch, struct buffer *gone) {
    keep_parts(watch, is_same, NULL, gone);
}

void document_watch_look(struct document_watch *watch, struct buffer *gone) {
    struct buffer ids = {0};
    struct key_set named = {0};
    bool known = collection_list_gone(watch->collection, &watch->position, &ids);
    for (size_t i = 0; i < ids.size / sizeof(uint64_t); i++) {
        uint64_t id = ((const uint64_t *)(const void *)ids.data)[i];
        if (key_set_number(&watch->ids, id, 0)) key_set_add(&named, id, 0);
    }
    if (!known)
        document_watch_compare(watch, gone);
    else if (named.n > 0)
        keep_parts(watch, is_not_named, &named, gone);
    buffer_free(&ids);
    key_set_free(&named);
}

/* Adding. */

uint64_t document_watch_part(struct document_watch *watch, const struct document_part *part) {
    uint64_t key = key_of(part);
    add_part(watch, part, key);
    return key;
}

/* A part that is watched was there at the last look, as it was read. */
uint64_t document_watch_hit(struct document_watch *watch, const struct hit *hit, bool *there) {
    *there = true;
    if (hit->document == NULL || hit->document[0] == '\0') return 0;
    if (collection_is_remote(watch->collection) || hit->source.text == NULL ||
        hit->start > hit->end || hit->end > hit->source.size)
        return DOCUMENT_UNWATCHED;
    struct document_part part =
        part_of(&(struct shown_document){hit->document, hit->path, hit->title, hit->source},
                hit->start, hit->end - hit->start);
    uint64_t key = key_of(&part);
    if (find_part(watch, key)) return key;
    *there = is_there(watch, &part);
    if (*there) add_part(watch, &part, key);
    return key;
}

uint64_t document_watch_find(const struct document_watch *watch, const struct document_part *part) {
    uint64_t key = key_of(part);
    return find_part(watch, key) ? key : 0;
}

bool document_watch_has(const struct document_watch *watch, uint64_t document) {
    return find_part(watch, document) != NULL;
}

bool document_watch_print(const struct document_watch *watch, const struct read_document *document,
                          struct buffer *out) {
    const struct watched_part *watched = find_part(watch, document->document);
    if (watched == NULL) return false;
    struct document_part part = watched->part;
    part.row = document->row;
    document_part_print(&part, out);
    return true;
}

bool document_watch_is_needed(const struct document_watch *watch) { return watch->n > 0; }

bool document_watch_is_full(const struct document_watch *watch) {
    return watch->n > LEAST_FULL && watch->n > 2 * watch->n_used;
}

static bool is_used(const struct document_watch *watch, const struct watched_part *part,
                    const void *context) {
    (void)watch;
    return key_set_number(context, part->key, 0) != NULL;
}

void document_watch_keep(struct document_watch *watch, const struct key_set *used) {
    keep_parts(watch, is_used, used, NULL);
    watch->n_used = watch->n;
}

/* Opening and closing. */

struct document_watch *document_watch_open(struct collection *collection) {
    struct document_watch *watch = xcalloc(1, sizeof *watch);
    struct buffer before = {0};
    watch->collection = collection;
    collection_list_gone(collection, &watch->position, &before);
    buffer_free(&before);
    return watch;
}

void document_watch_close(struct document_watch *watch) {
    if (watch == NULL) return;
    for (int i = 0; i < watch->n; i++) free((char *)(uintptr_t)watch->parts[i].part.id.text);
    free(watch->parts);
    key_set_free(&watch->places);
    key_set_free(&watch->ids);
    free(watch);
}
