/* server/host/documents/document_group.c: see document_group.h. */
#include "server/host/documents/document_group.h"

#include <stdlib.h>
#include <string.h>

/* The most that is put together: so much text is embedded in some seconds, which an interruption loses. */
enum { GROUP_DOCUMENTS = 128, GROUP_BYTES = 256 << 10 };

static void *copy_bytes(const void *bytes, size_t size) {
    void *copy = xmalloc(size + 1);
    if (size > 0) memcpy(copy, bytes, size);
    return copy;
}

static void document_free(struct grouped_document *g) {
    struct collection_document *d = &g->document;
    free((char *)(uintptr_t)d->id);
    free((char *)(uintptr_t)d->path);
    free((char *)(uintptr_t)d->title);
    free((char *)(uintptr_t)d->metadata);
    free((char *)(uintptr_t)d->source);
    free((char *)(uintptr_t)d->text.text);
    free((void *)(uintptr_t)d->marks.bytes);
    free((void *)(uintptr_t)d->ids);
    free((void *)(uintptr_t)d->bounds);
    free((void *)(uintptr_t)d->picture);
    free(g->vectors);
}

void group_free(struct document_group *g) {
    for (int i = 0; i < g->n; i++) document_free(&g->list[i]);
    free(g->list);
    g->list = NULL;
    g->n = g->capacity = 0;
    g->bytes = 0;
}

static struct grouped_document *append_copy(struct document_group *g, const struct collection_document *d) {
    g->list = xgrow(g->list, g->n, &g->capacity, sizeof *g->list);
    struct grouped_document *copy = &g->list[g->n];
    g->n++;
    g->bytes += d->text.size;
    *copy = (struct grouped_document){
        .document = {.id = xstrdup(d->id),
                     .path = xstrdup(d->path),
                     .title = xstrdup(d->title),
                     .metadata = d->metadata ? xstrdup(d->metadata) : NULL,
                     .source = d->source ? xstrdup(d->source) : NULL,
                     .text = {copy_bytes(d->text.text, d->text.size), d->text.size},
                     .marks = {copy_bytes(d->marks.bytes, d->marks.n * sizeof(struct mark)), d->marks.n}}};
    return copy;
}

/* Copies tokens, chunks and vectors from the cutter. */
static void take_cut(struct grouped_document *g, const struct document_cutter *c) {
    struct collection_document *d = &g->document;
    size_t row = (size_t)c->embedder->dim * sizeof *c->vectors;
    g->n_chunks = c->n_chunks;
    d->n = c->tokens.n;
    d->ids = copy_bytes(c->tokens.ids, (size_t)c->tokens.n * sizeof *c->tokens.ids);
    d->bounds = copy_bytes(c->bounds, ((size_t)c->n_chunks + 1) * sizeof *c->bounds);
    g->vectors = copy_bytes(c->vectors, (size_t)c->n_chunks * row);
    if (cutter_picture(c)) d->picture = copy_bytes(c->picture, (size_t)c->pictures->dim * sizeof *c->picture);
}

static enum status flush_when_full(struct document_group *g, struct error *e) {
    bool full = !collection_is_remote(g->collection) || g->n >= GROUP_DOCUMENTS || g->bytes >= GROUP_BYTES;
    return full ? group_flush(g, e) : STATUS_OK;
}

enum status group_add(struct document_group *g, const struct collection_document *d, struct error *e) {
    append_copy(g, d);
    return flush_when_full(g, e);
}

enum status group_add_embedded(struct document_group *g, const struct collection_document *d, struct error *e) {
    take_cut(append_copy(g, d), g->cutter);
    return flush_when_full(g, e);
}

/* The vectors of a document that waits, and has this text. */
static bool take_waiting(struct document_group *g, struct text_span text) {
    struct document_cutter *c = g->cutter;
    size_t row = (size_t)c->embedder->dim * sizeof *c->vectors;
    for (int i = 0; i < g->n; i++) {
        const struct grouped_document *d = &g->list[i];
        if (d->vectors == NULL || d->n_chunks != c->n_chunks || !span_equals(d->document.text, text)) continue;
        document_make_room(c);
        memcpy(c->vectors, d->vectors, (size_t)c->n_chunks * row);
        if (cutter_picture(c)) memcpy(c->picture, d->document.picture, (size_t)c->pictures->dim * sizeof *c->picture);
        return true;
    }
    return false;
}

enum status group_embed(struct document_group *g, struct text_span text, int *n_embedded, struct error *e) {
    bool found = g->texts && take_waiting(g, text);
    *n_embedded = 0;
    if (g->texts && !found && known_texts_find(g->texts, g->collection, g->cutter, text, &found, e)) return e->status;
    if (found) return STATUS_OK;
    *n_embedded = g->cutter->n_chunks;
    return document_embed(g->cutter, text, g->cancelled, e);
}

static enum status cut_and_embed(struct document_group *g, struct grouped_document *d, struct error *e) {
    struct document_cutter *c = g->cutter;
    struct text_span text = d->document.text;
    if (g->cancelled && atomic_load(g->cancelled)) return error_set(e, STATUS_CANCELLED, "interrupted");
    enum status status = document_cut(c, text, e);
    if (status == STATUS_OK) status = group_embed(g, text, &d->n_embedded, e);
    if (status) return error_prefix(e, "%s", d->document.path);
    take_cut(d, c);
    return STATUS_OK;
}

/* Finds the documents that are there already. Those with vectors are put unasked. */
static enum status ask_there(struct document_group *g, bool *there, struct error *e) {
    const struct collection_document **asked = xcalloc((size_t)g->n, sizeof(struct collection_document *));
    int *places = xcalloc((size_t)g->n, sizeof *places), n = 0;
    bool *has = xcalloc((size_t)g->n, sizeof *has);
    for (int i = 0; i < g->n; i++) {
        if (g->list[i].vectors) continue;
        asked[n] = &g->list[i].document;
        places[n] = i;
        n++;
    }
    struct collection_asked all = {g->cutter->filter, asked, n};
    enum status status = n > 0 ? collection_has_all(g->collection, &all, has, e) : STATUS_OK;
    for (int i = 0; i < n && status == STATUS_OK; i++) there[places[i]] = has[i];
    free(asked);
    free(places);
    free(has);
    return status;
}

static void prepare_put(struct document_group *g, struct grouped_document *d, struct document_put *put) {
    put->status = collection_check_put(g->cutter->filter, &d->document, &put->error);
    if (put->status)
        put->effect = CHANGE_REFUSED;
    else
        put->status = cut_and_embed(g, d, &put->error);
}

/* Puts those that are not there and have vectors; of the others `puts` tells why. */
static void put_missing(struct document_group *g, struct document_put *puts, const bool *there) {
    struct document_put *wanted = xcalloc((size_t)g->n, sizeof *wanted);
    int *places = xcalloc((size_t)g->n, sizeof *places), n = 0;
    for (int i = 0; i < g->n; i++) {
        struct grouped_document *d = &g->list[i];
        if (!there[i] && puts[i].status == STATUS_OK && d->vectors == NULL) prepare_put(g, d, &puts[i]);
        if (there[i] || puts[i].status) continue;
        wanted[n] = (struct document_put){.document = &d->document, .vectors = d->vectors, .n_embedded = d->n_embedded};
        places[n] = i;
        n++;
    }
    collection_put_all(g->collection, g->cutter->filter, wanted, n);
    for (int i = 0; i < n; i++) puts[places[i]] = wanted[i];
    free(wanted);
    free(places);
}

enum status group_flush(struct document_group *g, struct error *e) {
    struct document_put *puts = xcalloc((size_t)g->n + 1, sizeof *puts);
    bool *there = xcalloc((size_t)g->n + 1, sizeof *there);
    struct error why;
    enum status status = ask_there(g, there, &why);
    for (int i = 0; i < g->n; i++) {
        puts[i].document = &g->list[i].document;
        puts[i].status = status;
        if (status) puts[i].error = why;
    }
    put_missing(g, puts, there);
    status = STATUS_OK;
    for (int i = 0; i < g->n && status == STATUS_OK; i++) status = g->take(g->context, &puts[i], e);
    free(puts);
    free(there);
    group_free(g);
    return status;
}
