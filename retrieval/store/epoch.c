/* retrieval/store/epoch.c: a generation and the changes since, in memory: where each document is, when it came
 * and when it went. */
#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "config/base/lookup.h"
#include "retrieval/store/store_private.h"

/* Documents of the log. */

enum status logged_bytes_read(struct logged_bytes **out, char *bytes, size_t size, const struct collection_info *info,
                              struct error *e) {
    struct logged_bytes *b = xcalloc(1, sizeof *b);
    atomic_init(&b->holders, 1);
    words_once_open(&b->words);
    b->bytes = bytes;
    b->size = size;
    enum status status = document_image_read(&b->image, (struct text_span){bytes, size}, info, e);
    if (status == STATUS_OK) status = facts_append(&b->facts, b->image.document.metadata, e);
    if (status) {
        logged_bytes_release(b);
        return status;
    }
    *out = b;
    return STATUS_OK;
}

enum status logged_bytes_make(struct logged_bytes **out, const struct collection_document *d, const float *vectors,
                              const struct collection_info *info, struct error *e) {
    struct buffer image = {0};
    enum status status = document_image_write(&image, d, vectors, info, e);
    if (status == STATUS_OK) return logged_bytes_read(out, image.data, image.size, info, e);
    buffer_free(&image);
    return status;
}

struct logged_bytes *logged_bytes_hold(struct logged_bytes *b) {
    atomic_fetch_add(&b->holders, 1);
    return b;
}

void logged_bytes_release(struct logged_bytes *b) {
    if (b == NULL || atomic_fetch_sub(&b->holders, 1) > 1) return;
    free(b->bytes);
    buffer_free(&b->facts);
    words_once_close(&b->words);
    free(b);
}

/* Places. */

/* An id stands for its hash. Clients choose ids, so the seeds are secret: nobody can make one that meets another's. */
struct id_hash {
    uint64_t first, second;
};

static struct id_hash hash_id(const char *id) {
    size_t size = strlen(id);
    uint64_t first = lookup_hash(id, size);
    return (struct id_hash){first, hash_bytes(id, size, first)};
}

static int64_t *find_place(const struct epoch *x, const char *id) {
    struct id_hash hash = hash_id(id);
    return key_set_number(&x->places, hash.first, hash.second);
}

static void set_place(struct epoch *x, const char *id, int64_t place) {
    struct id_hash hash = hash_id(id);
    key_set_add(&x->places, hash.first, hash.second);
    *find_place(x, id) = place + 1;
}

int64_t epoch_find(const struct epoch *x, const char *id) {
    const int64_t *place = find_place(x, id);
    return place ? *place - 1 : -1;
}

struct stored_document epoch_document(const struct epoch *x, int64_t place) {
    int64_t n_documents = disk_generation_info(x->generation)->n_documents;
    if (place < n_documents) return disk_generation_document_at(x->generation, place);
    const struct logged_document *logged = epoch_logged(x, (int)(place - n_documents));
    const struct collection_document *d = &logged->bytes->image.document;
    return (struct stored_document){.id = d->id,
                                    .path = d->path,
                                    .title = d->title,
                                    .metadata = d->metadata,
                                    .source = d->source,
                                    .text = d->text,
                                    .marks = d->marks,
                                    .facts = {logged->bytes->facts.data, logged->bytes->facts.size},
                                    .n_chunks = logged->bytes->image.n_chunks,
                                    .first_chunk = logged->first_chunk};
}

int64_t epoch_find_allowed(const struct epoch *x, const struct filter *filter, const char *id) {
    int64_t place = epoch_find(x, id);
    if (place < 0 || filter == NULL) return place;
    struct stored_document d = epoch_document(x, place);
    return document_is_allowed(filter, &d) ? place : -1;
}

/* Opening and closing. */

struct epoch *epoch_open(struct disk_generation *c) {
    const struct collection_info *info = disk_generation_info(c);
    struct epoch *x = xcalloc(1, sizeof *x);
    atomic_init(&x->holders, 1);
    x->generation = c;
    selections_open(&x->selections);
    words_once_open(&x->words);
    x->gone = xcalloc((size_t)info->n_documents, sizeof *x->gone);
    x->n_logged_chunks = 0;
    x->n_there = info->n_documents;
    x->n_chunks_there = info->n_chunks;
    x->max_token = info->max_token;
    for (int64_t i = 0; i < info->n_documents; i++) set_place(x, disk_generation_document_at(c, i).id, i);
    return x;
}

struct epoch *epoch_hold(struct epoch *x) {
    atomic_fetch_add(&x->holders, 1);
    return x;
}

void epoch_release(struct epoch *x) {
    if (x == NULL || atomic_fetch_sub(&x->holders, 1) > 1) return;
    epoch_release(x->older);
    for (int i = 0; i < x->n_logged; i++) logged_bytes_release(epoch_logged(x, i)->bytes);
    for (int i = 0; i < LOG_PAGES; i++) free(x->pages[i]);
    key_set_free(&x->places);
    selections_close(&x->selections);
    words_once_close(&x->words);
    disk_generation_close(x->generation);
    free(x->gone);
    free(x);
}

/* Changes. */

enum status epoch_check_room(const struct epoch *x, struct error *e) {
    if (x->n_logged < LOG_PAGE * LOG_PAGES) return STATUS_OK;
    return error_set(e, STATUS_TOO_LARGE,
                     "%d documents were added since the last compaction, more than are kept in memory; retro-index "
                     "compact writes them into the index",
                     x->n_logged);
}

static struct logged_document *logged_at(const struct epoch *x, int64_t place) {
    int64_t n_documents = disk_generation_info(x->generation)->n_documents;
    return place < n_documents ? NULL : epoch_logged(x, (int)(place - n_documents));
}

static void set_gone(struct epoch *x, int64_t place, uint64_t when) {
    struct logged_document *logged = logged_at(x, place);
    atomic_store_explicit(logged ? &logged->gone : &x->gone[place], when, memory_order_release);
}

/* Takes the document away from the snapshots that come. */
static void take_away(struct epoch *x, int64_t place, uint64_t when) {
    int64_t n_documents = disk_generation_info(x->generation)->n_documents;
    struct stored_document d = epoch_document(x, place);
    set_gone(x, place, when);
    x->n_there--;
    x->n_chunks_there -= d.n_chunks;
    if (place >= n_documents) return;
    x->n_gone++;
    atomic_fetch_add(&x->n_gone_chunks, d.n_chunks);
}

void epoch_put(struct epoch *x, struct logged_bytes *bytes, uint64_t sequence) {
    const struct collection_info *info = disk_generation_info(x->generation);
    const struct document_image *image = &bytes->image;
    int64_t before = epoch_find(x, image->document.id);
    if (before >= 0) take_away(x, before, sequence);

    int number = x->n_logged;
    struct logged_document **page = &x->pages[number / LOG_PAGE];
    if (*page == NULL) *page = xcalloc(LOG_PAGE, sizeof **page);
    struct logged_document *d = epoch_logged(x, number);
    d->bytes = bytes;
    d->added = sequence;
    d->first_chunk = info->n_chunks + x->n_logged_chunks;
    d->replaced = before;

    x->n_logged++;
    x->n_logged_chunks += image->n_chunks;
    x->n_there++;
    x->n_chunks_there += image->n_chunks;
    for (int i = 0; i < image->document.n; i++) x->max_token = max_int(x->max_token, image->document.ids[i]);
    set_place(x, image->document.id, info->n_documents + number);
}

/* From all snapshots, older ones included, in each version. */
static bool take_from_views(struct epoch *x, const char *id, uint64_t sequence) {
    int64_t place = epoch_find(x, id);
    if (place < 0) return false;
    take_away(x, place, sequence | GONE_FOR_ALL);
    for (struct logged_document *d = logged_at(x, place); d && d->replaced >= 0; d = logged_at(x, d->replaced))
        set_gone(x, d->replaced, sequence | GONE_FOR_ALL);
    set_place(x, id, -1);
    return true;
}

bool epoch_delete(struct epoch *x, const char *id, uint64_t sequence) {
    for (struct epoch *older = x->older; older; older = older->older) take_from_views(older, id, sequence);
    return take_from_views(x, id, sequence);
}

struct epoch *epoch_detach_older(struct epoch *x) {
    struct epoch **at = &x->older, *detached = NULL;
    while (*at) {
        struct epoch *older = *at;
        if (atomic_load(&older->holders) > 1) {
            at = &older->older;
            continue;
        }
        *at = older->older;
        older->older = detached;
        detached = older;
    }
    return detached;
}

static enum status change_by_put(struct epoch *x, uint64_t sequence, char *bytes, size_t size, struct error *e) {
    struct logged_bytes *logged;
    if (epoch_check_room(x, e)) {
        free(bytes);
        return e->status;
    }
    if (logged_bytes_read(&logged, bytes, size, disk_generation_info(x->generation), e)) return e->status;
    epoch_put(x, logged, sequence);
    return STATUS_OK;
}

static enum status change_by_delete(struct epoch *x, uint64_t sequence, char *bytes, size_t size, struct error *e) {
    bool ended = size > 0 && strnlen(bytes, size) == size - 1;
    bool found = ended && epoch_delete(x, bytes, sequence);
    free(bytes);
    return found ? STATUS_OK : error_set(e, STATUS_CORRUPT, "it deletes a document that is not there");
}

enum status epoch_change(struct epoch *x, uint64_t sequence, enum change_kind kind, char *bytes, size_t size,
                         struct error *e) {
    if (kind == CHANGE_PUT) return change_by_put(x, sequence, bytes, size, e);
    if (kind == CHANGE_DELETE) return change_by_delete(x, sequence, bytes, size, e);
    free(bytes);
    return error_set(e, STATUS_CORRUPT, "a change of a kind that this version does not know");
}
