/* server/host/documents/document_group.c: see document_group.h. */
#include "server/host/documents/document_group.h"

#include <stdlib.h>
#include <string.h>

/* The most that is put together: so much text is embedded in some seconds, which an interruption
 * loses. */
enum { GROUP_DOCUMENTS = 128, GROUP_BYTES = 256 << 10 };

static void *copy_bytes(const void *bytes, size_t size) {
    void *copy = xmalloc(size + 1);
    if (size > 0) memcpy(copy, bytes, size);
    return copy;
}

static void document_free(struct grouped_document *document) {
    struct collection_document *collection_document = &document->document;
    free((char *)(uintptr_t)collection_document->id);
    free((char *)(uintptr_t)collection_document->path);
    free((char *)(uintptr_t)collection_document->title);
    free((char *)(uintptr_t)collection_document->metadata);
    free((char *)(uintptr_t)collection_document->source);
    free((char *)(uintptr_t)collection_document->file);
    free((char *)(uintptr_t)collection_document->text.text);
    free((void *)(uintptr_t)collection_document->marks.bytes);
    free((void *)(uintptr_t)collection_document->ids);
    free((void *)(uintptr_t)collection_document->chunks);
    free((void *)(uintptr_t)collection_document->picture);
    free((void *)(uintptr_t)collection_document->sparse.ends);
    free((void *)(uintptr_t)collection_document->sparse.weights);
    free(document->vectors);
}

void group_free(struct document_group *group) {
    for (int i = 0; i < group->n; i++) document_free(&group->list[i]);
    free(group->list);
    group->list = NULL;
    group->n = group->capacity = 0;
    group->bytes = 0;
}

static struct grouped_document *append_copy(struct document_group *group,
                                            const struct collection_document *document) {
    group->list = xgrow(group->list, group->n, &group->capacity, sizeof *group->list);
    struct grouped_document *copy = &group->list[group->n];
    group->n++;
    group->bytes += document->text.size;
    *copy = (struct grouped_document){
        .document = {
            .id = xstrdup(document->id),
            .path = xstrdup(document->path),
            .title = xstrdup(document->title),
            .metadata = document->metadata ? xstrdup(document->metadata) : NULL,
            .source = document->source ? xstrdup(document->source) : NULL,
            .file = document->file ? xstrdup(document->file) : NULL,
            .text = {copy_bytes(document->text.text, document->text.size), document->text.size},
            .marks = {copy_bytes(document->marks.bytes, document->marks.n * sizeof(struct mark)),
                      document->marks.n}}};
    return copy;
}

/* Copies tokens, chunks and vectors from the cutter. */
static void take_cut(struct grouped_document *document, const struct document_cutter *cutter) {
    struct collection_document *collection_document = &document->document;
    size_t row = (size_t)cutter->embedder->dim * sizeof *cutter->vectors;
    cutter_fill(cutter, collection_document);
    collection_document->ids =
        copy_bytes(collection_document->ids, (size_t)cutter->tokens.n * sizeof(int32_t));
    collection_document->chunks = copy_bytes(collection_document->chunks,
                                             (size_t)cutter->n_chunks * sizeof(struct chunk_range));
    document->vectors = copy_bytes(cutter->vectors, (size_t)cutter->n_chunks * row);
    struct sparse_table *sparse = &collection_document->sparse;
    if (sparse->ends)
        *sparse = (struct sparse_table){copy_bytes(sparse->ends, cutter->sparse.ends.size),
                                        copy_bytes(sparse->weights, cutter->sparse.weights.size)};
    if (collection_document->picture)
        collection_document->picture =
            copy_bytes(collection_document->picture, (size_t)cutter->pictures->dim * sizeof(float));
}

static enum status flush_when_full(struct document_group *group, struct error *e) {
    bool full = !collection_is_remote(group->collection) || group->n >= GROUP_DOCUMENTS ||
                group->bytes >= GROUP_BYTES;
    return full ? group_flush(group, e) : STATUS_OK;
}

enum status group_add(struct document_group *group, const struct collection_document *document,
                      struct error *e) {
    append_copy(group, document);
    return flush_when_full(group, e);
}

enum status group_add_embedded(struct document_group *group,
                               const struct collection_document *document, struct error *e) {
    take_cut(append_copy(group, document), group->cutter);
    return flush_when_full(group, e);
}

/* The vectors of a document that waits, and is embedded as this one is. */
static bool take_waiting(struct document_group *group, const struct collection_document *wanted) {
    struct document_cutter *cutter = group->cutter;
    size_t row = (size_t)cutter->embedder->dim * sizeof *cutter->vectors;
    for (int i = 0; i < group->n; i++) {
        const struct grouped_document *document = &group->list[i];
        if (document->vectors == NULL || document->document.n_chunks != cutter->n_chunks ||
            !known_text_equals(wanted, &document->document))
            continue;
        document_make_room(cutter);
        sparse_rows_clear(&cutter->sparse);
        for (int j = 0; j < cutter->n_chunks && document->document.sparse.ends; j++)
            sparse_rows_add(&cutter->sparse, sparse_table_row(&document->document.sparse, j));
        memcpy(cutter->vectors, document->vectors, (size_t)cutter->n_chunks * row);
        if (cutter_picture(cutter))
            memcpy(cutter->picture, document->document.picture,
                   (size_t)cutter->pictures->dim * sizeof *cutter->picture);
        return true;
    }
    return false;
}

enum status group_embed(struct document_group *group, const struct collection_document *document,
                        int *n_embedded, struct error *e) {
    bool found = group->texts && take_waiting(group, document);
    *n_embedded = 0;
    if (group->texts && !found &&
        known_texts_find(group->texts, group->collection, group->cutter, document, &found, e))
        return e->status;
    if (found) return STATUS_OK;
    *n_embedded = group->cutter->n_chunks;
    return document_embed(group->cutter, document, group->cancelled, e);
}

static enum status cut_and_embed(struct document_group *group, struct grouped_document *document,
                                 struct error *e) {
    struct document_cutter *cutter = group->cutter;
    if (group->cancelled && atomic_load(group->cancelled))
        return error_set(e, STATUS_CANCELLED, "interrupted");
    enum status status = document_cut(cutter, &document->document, e);
    if (status == STATUS_OK)
        status = group_embed(group, &document->document, &document->n_embedded, e);
    if (status) return error_prefix(e, "%s", document->document.path);
    take_cut(document, cutter);
    return STATUS_OK;
}

/* Finds the documents that are there already. Those with vectors are put unasked. */
static enum status ask_there(struct document_group *group, bool *there, struct error *e) {
    const struct collection_document **asked =
        xcalloc((size_t)group->n, sizeof(struct collection_document *));
    int *places = xcalloc((size_t)group->n, sizeof *places), n = 0;
    bool *has = xcalloc((size_t)group->n, sizeof *has);
    for (int i = 0; i < group->n; i++) {
        if (group->list[i].vectors) continue;
        asked[n] = &group->list[i].document;
        places[n] = i;
        n++;
    }
    struct collection_asked all = {group->cutter->filter, asked, n};
    enum status status = n > 0 ? collection_has_all(group->collection, &all, has, e) : STATUS_OK;
    for (int i = 0; i < n && status == STATUS_OK; i++) there[places[i]] = has[i];
    free(asked);
    free(places);
    free(has);
    return status;
}

static void prepare_put(struct document_group *group, struct grouped_document *document,
                        struct document_put *put) {
    put->status = collection_check_put(group->cutter->filter, &document->document, &put->error);
    if (put->status)
        put->effect = CHANGE_REFUSED;
    else
        put->status = cut_and_embed(group, document, &put->error);
}

/* Puts those that are not there and have vectors; of the others `puts` tells why. */
static void put_missing(struct document_group *group, struct document_put *puts,
                        const bool *there) {
    struct document_put *wanted = xcalloc((size_t)group->n, sizeof *wanted);
    int *places = xcalloc((size_t)group->n, sizeof *places), n = 0;
    for (int i = 0; i < group->n; i++) {
        struct grouped_document *document = &group->list[i];
        if (!there[i] && puts[i].status == STATUS_OK && document->vectors == NULL)
            prepare_put(group, document, &puts[i]);
        if (there[i] || puts[i].status) continue;
        wanted[n] = (struct document_put){.document = &document->document,
                                          .vectors = document->vectors,
                                          .n_embedded = document->n_embedded};
        places[n] = i;
        n++;
    }
    collection_put_all(group->collection, group->cutter->filter, wanted, n);
    for (int i = 0; i < n; i++) puts[places[i]] = wanted[i];
    free(wanted);
    free(places);
}

enum status group_flush(struct document_group *group, struct error *e) {
    struct document_put *puts = xcalloc((size_t)group->n + 1, sizeof *puts);
    bool *there = xcalloc((size_t)group->n + 1, sizeof *there);
    struct error why;
    enum status status = ask_there(group, there, &why);
    for (int i = 0; i < group->n; i++) {
        puts[i].document = &group->list[i].document;
        puts[i].status = status;
        if (status) puts[i].error = why;
    }
    put_missing(group, puts, there);
    status = STATUS_OK;
    for (int i = 0; i < group->n && status == STATUS_OK; i++)
        status = group->take(group->context, &puts[i], e);
    free(puts);
    free(there);
    group_free(group);
    return status;
}
