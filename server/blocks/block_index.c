/* server/blocks/block_index.c: see block_index.h. */
#include "server/blocks/block_index.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_BUCKETS = 256 };

static size_t bucket_of(const struct block_index *index, const struct block_address *address) {
    uint64_t hash; /* an address is a hash already */
    memcpy(&hash, address->bytes, sizeof hash);
    return (size_t)(hash % index->n_buckets);
}

static bool same_address(const struct block_address *left, const struct block_address *right) {
    return memcmp(left, right, sizeof *left) == 0;
}

/* The list of all, by when they were used. */

static void list_append(struct block_index *index, struct block_entry *entry) {
    entry->older = index->newest;
    entry->newer = NULL;
    if (index->newest)
        index->newest->newer = entry;
    else
        index->oldest = entry;
    index->newest = entry;
}

static void list_remove(struct block_index *index, struct block_entry *entry) {
    if (entry->older)
        entry->older->newer = entry->newer;
    else
        index->oldest = entry->newer;
    if (entry->newer)
        entry->newer->older = entry->older;
    else
        index->newest = entry->older;
}

/* Buckets. */

static void buckets_join(struct block_index *index, struct block_entry *entry) {
    struct block_entry **address = &index->by_address[bucket_of(index, &entry->address)],
                       **child = &index->by_before[bucket_of(index, &entry->before)];
    entry->next_address = *address;
    *address = entry;
    entry->next_child = *child;
    entry->child_place = child;
    if (*child) (*child)->child_place = &entry->next_child;
    *child = entry;
}

static void buckets_leave(struct block_index *index, struct block_entry *entry) {
    struct block_entry **address = &index->by_address[bucket_of(index, &entry->address)];
    while (*address != entry) address = &(*address)->next_address;
    *address = entry->next_address;
    *entry->child_place = entry->next_child;
    if (entry->next_child) entry->next_child->child_place = entry->child_place;
}

static void make_room(struct block_index *index) {
    if ((size_t)index->n < index->n_buckets) return;
    free(index->by_address);
    free(index->by_before);
    index->n_buckets = index->n_buckets > 0 ? 2 * index->n_buckets : FIRST_BUCKETS;
    index->by_address = xcalloc(index->n_buckets, sizeof(struct block_entry *));
    index->by_before = xcalloc(index->n_buckets, sizeof(struct block_entry *));
    for (struct block_entry *entry = index->oldest; entry; entry = entry->newer)
        buckets_join(index, entry);
}

void block_index_free(struct block_index *index) {
    while (index->oldest) {
        struct block_entry *entry = index->oldest;
        index->oldest = entry->newer;
        block_entry_free(entry);
    }
    free(index->by_address);
    free(index->by_before);
    *index = (struct block_index){0};
}

/* Finding. */

struct block_entry *block_index_at(const struct block_index *index,
                                   const struct block_address *address) {
    if (index->n == 0) return NULL;
    struct block_entry *entry = index->by_address[bucket_of(index, address)];
    while (entry && !same_address(&entry->address, address)) entry = entry->next_address;
    return entry;
}

struct block_entry *block_index_child(const struct block_index *index,
                                      const struct block_address *before,
                                      const struct block_entry *last) {
    if (index->n == 0) return NULL;
    struct block_entry *entry =
        last ? last->next_child : index->by_before[bucket_of(index, before)];
    while (entry && !same_address(&entry->before, before)) entry = entry->next_child;
    return entry;
}

bool block_entry_names(const struct block_entry *entry, uint64_t document) {
    for (int i = 0; i < entry->n_documents; i++)
        if (entry->documents[i].document == document) return true;
    return false;
}

bool block_entry_covers(const struct block_entry *whole, const struct block_file *part) {
    if (part->base != whole->base || part->n > whole->n || part->n_read > whole->n_read)
        return false;
    if (memcmp(whole->ids, part->ids, (size_t)part->n * sizeof *part->ids) != 0) return false;
    return part->n_read == 0 ||
           memcmp(whole->read, part->read, (size_t)part->n_read * sizeof *part->read) == 0;
}

/* Coming and going. */

struct block_entry *block_index_add(struct block_index *index, const struct block_file *file,
                                    const struct read_document *documents, int n_documents) {
    size_t n = (size_t)file->n, n_read = (size_t)file->n_read, n_keys = (size_t)n_documents;
    struct block_entry *entry = xmalloc(sizeof *entry);
    *entry = (struct block_entry){.before = file->before,
                                  .address = file->address,
                                  .base = file->base,
                                  .bytes = block_file_bytes(file),
                                  .ids = xmalloc((n + n_read) * sizeof *entry->ids),
                                  .n = file->n,
                                  .n_read = file->n_read,
                                  .documents = xcalloc(n_keys + 1, sizeof *entry->documents),
                                  .n_documents = n_documents};
    entry->read = entry->ids + n;
    memcpy(entry->ids, file->ids, n * sizeof *entry->ids);
    if (n_read > 0) memcpy(entry->read, file->read, n_read * sizeof *entry->read);
    if (n_keys > 0) memcpy(entry->documents, documents, n_keys * sizeof *entry->documents);
    make_room(index);
    list_append(index, entry);
    buckets_join(index, entry);
    index->n++;
    index->bytes += (int64_t)entry->bytes;
    return entry;
}

void block_index_use(struct block_index *index, struct block_entry *entry, int64_t now) {
    for (; entry; entry = block_index_at(index, &entry->before)) {
        list_remove(index, entry);
        list_append(index, entry);
        entry->used = now;
        entry->touched = true;
    }
}

void block_index_take(struct block_index *index, struct block_entry *entry) {
    list_remove(index, entry);
    buckets_leave(index, entry);
    index->n--;
    index->bytes -= (int64_t)entry->bytes;
}

void block_entry_free(struct block_entry *entry) {
    explicit_bzero(entry->ids, (size_t)(entry->n + entry->n_read) * sizeof *entry->ids);
    free(entry->ids);
    free(entry->documents);
    free(entry);
}

/* Order. */

static int compare_used(const void *left, const void *right) {
    const struct block_entry *const *one = left, *const *other = right;
    return ((*one)->used > (*other)->used) - ((*one)->used < (*other)->used);
}

void block_index_sort(struct block_index *index) {
    struct block_entry **all = xcalloc((size_t)index->n + 1, sizeof(struct block_entry *));
    size_t n = 0;
    for (struct block_entry *entry = index->oldest; entry; entry = entry->newer) {
        all[n] = entry;
        n++;
    }
    qsort(all, n, sizeof(struct block_entry *), compare_used);
    for (size_t i = 0; i < n; i++) {
        for (struct block_entry *entry = all[i]; entry;
             entry = block_index_at(index, &entry->before)) {
            list_remove(index, entry);
            list_append(index, entry);
        }
    }
    free(all);
}
