/* retrieval/store/epoch.c: a generation and the changes since, in memory: where each document is,
 * when it came and when it went. */
#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "config/base/lookup.h"
#include "retrieval/store/store_private.h"

/* Documents of the log. */

enum status logged_bytes_read(struct logged_bytes **out, char *bytes, size_t size,
                              const struct collection_info *info, struct error *e) {
    struct logged_bytes *logged_bytes = xcalloc(1, sizeof *logged_bytes);
    atomic_init(&logged_bytes->holders, 1);
    words_once_open(&logged_bytes->words);
    logged_bytes->bytes = bytes;
    logged_bytes->size = size;
    enum status status =
        document_image_read(&logged_bytes->image, (struct text_span){bytes, size}, info, e);
    if (status == STATUS_OK)
        status = facts_append(&logged_bytes->facts, logged_bytes->image.document.metadata, e);
    if (status) {
        logged_bytes_release(logged_bytes);
        return status;
    }
    *out = logged_bytes;
    return STATUS_OK;
}

enum status logged_bytes_make(struct logged_bytes **out, const struct collection_document *document,
                              const float *vectors, const struct collection_info *info,
                              struct error *e) {
    struct buffer image = {0};
    enum status status = document_image_write(&image, document, vectors, info, e);
    if (status == STATUS_OK) return logged_bytes_read(out, image.data, image.size, info, e);
    buffer_free(&image);
    return status;
}

struct logged_bytes *logged_bytes_hold(struct logged_bytes *bytes) {
    atomic_fetch_add(&bytes->holders, 1);
    return bytes;
}

void logged_bytes_release(struct logged_bytes *bytes) {
    if (bytes == NULL || atomic_fetch_sub(&bytes->holders, 1) > 1) return;
    free(bytes->bytes);
    buffer_free(&bytes->facts);
    words_once_close(&bytes->words);
    free(bytes);
}

/* Places. */

/* An id stands for its hash. Clients choose ids, so the seeds are secret: nobody can make one that
 * meets another's. */
struct id_hash {
    uint64_t first, second;
};

static struct id_hash hash_id(const char *id) {
    size_t size = strlen(id);
    uint64_t first = lookup_hash(id, size);
    return (struct id_hash){first, hash_bytes(id, size, first)};
}

static int64_t *find_place(const struct epoch *epoch, const char *id) {
    struct id_hash hash = hash_id(id);
    return key_set_number(&epoch->places, hash.first, hash.second);
}

static void set_place(struct epoch *epoch, const char *id, int64_t place) {
    struct id_hash hash = hash_id(id);
    key_set_add(&epoch->places, hash.first, hash.second);
    *find_place(epoch, id) = place + 1;
}

int64_t epoch_find(const struct epoch *epoch, const char *id) {
    const int64_t *place = find_place(epoch, id);
    return place ? *place - 1 : -1;
}

struct stored_document epoch_document(const struct epoch *epoch, int64_t place) {
    int64_t n_documents = disk_generation_info(epoch->generation)->n_documents;
    if (place < n_documents) return disk_generation_document_at(epoch->generation, place);
    const struct logged_document *logged = epoch_logged(epoch, (int)(place - n_documents));
    const struct collection_document *document = &logged->bytes->image.document;
    return (struct stored_document){.id = document->id,
                                    .path = document->path,
                                    .title = document->title,
                                    .metadata = document->metadata,
                                    .source = document->source,
                                    .file = document->file,
                                    .text = document->text,
                                    .marks = document->marks,
                                    .facts = {logged->bytes->facts.data, logged->bytes->facts.size},
                                    .n_chunks = logged->bytes->image.document.n_chunks,
                                    .first_chunk = logged->first_chunk};
}

int64_t epoch_find_allowed(const struct epoch *epoch, const struct filter *filter, const char *id) {
    int64_t place = epoch_find(epoch, id);
    if (place < 0 || filter == NULL) return place;
    struct stored_document document = epoch_document(epoch, place);
    return document_is_allowed(filter, &document) ? place : -1;
}

/* Opening and closing. */

struct epoch *epoch_open(struct disk_generation *generation) {
    const struct collection_info *info = disk_generation_info(generation);
    struct epoch *epoch = xcalloc(1, sizeof *epoch);
    atomic_init(&epoch->holders, 1);
    epoch->generation = generation;
    selections_open(&epoch->selections);
    epoch->gone = xcalloc((size_t)info->n_documents, sizeof *epoch->gone);
    epoch->gone_list = xcalloc((size_t)info->n_documents, sizeof *epoch->gone_list);
    epoch->n_logged_chunks = 0;
    epoch->n_there = info->n_documents;
    epoch->n_chunks_there = info->n_chunks;
    epoch->max_token = info->max_token;
    for (int64_t i = 0; i < info->n_documents; i++)
        set_place(epoch, disk_generation_document_at(generation, i).id, i);
    return epoch;
}

struct epoch *epoch_hold(struct epoch *epoch) {
    atomic_fetch_add(&epoch->holders, 1);
    return epoch;
}

void epoch_release(struct epoch *epoch) {
    if (epoch == NULL || atomic_fetch_sub(&epoch->holders, 1) > 1) return;
    epoch_release(epoch->older);
    for (int i = 0; i < epoch->n_logged; i++) logged_bytes_release(epoch_logged(epoch, i)->bytes);
    for (int i = 0; i < LOG_PAGES; i++) free(epoch->pages[i]);
    key_set_free(&epoch->places);
    selections_close(&epoch->selections);
    disk_generation_close(epoch->generation);
    embedder_release(epoch->embedder);
    free(epoch->gone);
    free(epoch->gone_list);
    free(epoch);
}

/* Changes. */

enum status epoch_check_room(const struct epoch *epoch, struct error *e) {
    if (epoch->n_logged < LOG_PAGE * LOG_PAGES) return STATUS_OK;
    return error_set(e, STATUS_TOO_LARGE,
                     "%d documents were added since the last compaction, more than are kept in "
                     "memory; retro-index "
                     "compact writes them into the index",
                     epoch->n_logged);
}

static struct logged_document *logged_at(const struct epoch *epoch, int64_t place) {
    int64_t n_documents = disk_generation_info(epoch->generation)->n_documents;
    return place < n_documents ? NULL : epoch_logged(epoch, (int)(place - n_documents));
}

static void set_gone(struct epoch *epoch, int64_t place, uint64_t when) {
    struct logged_document *logged = logged_at(epoch, place);
    atomic_store_explicit(logged ? &logged->gone : &epoch->gone[place], when, memory_order_release);
}

/* Takes the document away from the snapshots that come. */
static void take_away(struct epoch *epoch, int64_t place, uint64_t when) {
    int64_t n_documents = disk_generation_info(epoch->generation)->n_documents;
    struct stored_document document = epoch_document(epoch, place);
    set_gone(epoch, place, when);
    if (epoch->told) {
        epoch->told->ids[epoch->told->n % GONE_MOST] = collection_hash_id(document.id);
        epoch->told->n++;
    }
    epoch->n_there--;
    epoch->n_chunks_there -= document.n_chunks;
    if (place >= n_documents) return;
    epoch->gone_list[epoch->n_gone] = (int32_t)place;
    epoch->n_gone++;
    atomic_store_explicit(&epoch->n_gone_listed, epoch->n_gone, memory_order_release);
    atomic_fetch_add(&epoch->n_gone_chunks, document.n_chunks);
}

void epoch_put(struct epoch *epoch, struct logged_bytes *bytes, uint64_t sequence) {
    const struct collection_info *info = disk_generation_info(epoch->generation);
    const struct document_image *image = &bytes->image;
    int64_t before = epoch_find(epoch, image->document.id);
    if (before >= 0) take_away(epoch, before, sequence);

    int number = epoch->n_logged;
    struct logged_document **page = &epoch->pages[number / LOG_PAGE];
    if (*page == NULL) *page = xcalloc(LOG_PAGE, sizeof **page);
    struct logged_document *document = epoch_logged(epoch, number);
    document->bytes = bytes;
    document->added = sequence;
    document->first_chunk = info->n_chunks + epoch->n_logged_chunks;
    document->replaced = before;

    epoch->n_logged++;
    epoch->n_logged_chunks += image->document.n_chunks;
    epoch->n_there++;
    epoch->n_chunks_there += image->document.n_chunks;
    for (int i = 0; i < image->document.n; i++)
        epoch->max_token = max_int(epoch->max_token, image->document.ids[i]);
    set_place(epoch, image->document.id, info->n_documents + number);
}

/* From all snapshots, older ones included, in each version. */
static bool take_from_views(struct epoch *epoch, const char *id, uint64_t sequence) {
    int64_t place = epoch_find(epoch, id);
    if (place < 0) return false;
    take_away(epoch, place, sequence | GONE_FOR_ALL);
    for (struct logged_document *document = logged_at(epoch, place);
         document && document->replaced >= 0; document = logged_at(epoch, document->replaced))
        set_gone(epoch, document->replaced, sequence | GONE_FOR_ALL);
    set_place(epoch, id, -1);
    return true;
}

bool epoch_delete(struct epoch *epoch, const char *id, uint64_t sequence) {
    for (struct epoch *older = epoch->older; older; older = older->older)
        take_from_views(older, id, sequence);
    return take_from_views(epoch, id, sequence);
}

struct epoch *epoch_detach_older(struct epoch *epoch) {
    struct epoch **at = &epoch->older, *detached = NULL;
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

static enum status change_by_put(struct epoch *epoch, uint64_t sequence, char *bytes, size_t size,
                                 struct error *e) {
    struct logged_bytes *logged;
    if (epoch_check_room(epoch, e)) {
        free(bytes);
        return e->status;
    }
    if (logged_bytes_read(&logged, bytes, size, disk_generation_info(epoch->generation), e))
        return e->status;
    epoch_put(epoch, logged, sequence);
    return STATUS_OK;
}

static enum status change_by_delete(struct epoch *epoch, uint64_t sequence, char *bytes,
                                    size_t size, struct error *e) {
    bool ended = size > 0 && strnlen(bytes, size) == size - 1;
    bool found = ended && epoch_delete(epoch, bytes, sequence);
    free(bytes);
    return found ? STATUS_OK
                 : error_set(e, STATUS_CORRUPT, "it deletes a document that is not there");
}

enum status epoch_change(struct epoch *epoch, uint64_t sequence, enum change_kind kind, char *bytes,
                         size_t size, struct error *e) {
    if (kind == CHANGE_PUT) return change_by_put(epoch, sequence, bytes, size, e);
    if (kind == CHANGE_DELETE) return change_by_delete(epoch, sequence, bytes, size, e);
    free(bytes);
    return error_set(e, STATUS_CORRUPT, "a change of a kind that this version does not know");
}
