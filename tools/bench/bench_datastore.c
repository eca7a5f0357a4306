/* tools/bench/bench_datastore.c: a given or a random collection, and a clock at the embedder. See bench_datastore.h. */
#include "tools/bench/bench_datastore.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/host/documents/embedder_model.h"

enum { DEFAULT_CHUNKS = 100000, DOCUMENT_CHUNKS = 10 };

static enum status embed_timed(void *self, const struct embed_request *r, struct error *e) {
    struct datastore *d = self;
    d->embed_start = time_now();
    enum status status = embedder_embed(&d->inner, r, e);
    d->embed_end = time_now();
    return status;
}

static enum status open_embedder(struct datastore *d, const char *folder, int threads, struct error *e) {
    config_init(&d->config);
    d->config.model.threads = threads;
    if (embedder_model_open(&d->inner, folder, &d->config, e)) return error_prefix(e, "embedder");
    d->embedder = d->inner;
    d->embedder.embed = embed_timed;
    d->embedder.self = d;
    return STATUS_OK;
}

/* Made up as it is written. */
struct random_collection {
    struct generation_builder *builder;
    const struct model_info *info;
    int dim;
    uint64_t state;
    int n_documents;
    char *text; /* of one document, as the next */
    int32_t *ids;
    uint32_t *bounds; /* of its chunks: four bytes a token */
    float *vectors;   /* of its chunks */
};

static uint32_t draw(struct random_collection *r) {
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->state >> 32);
}

static enum status add_document(struct random_collection *r, int chunks, struct error *e) {
    size_t dim = (size_t)r->dim;
    int n = chunks * r->info->chunk_length;
    for (int i = 0; i < n; i++) r->ids[i] = (int32_t)(draw(r) % (uint32_t)r->info->vocab);
    for (int i = 0; i < chunks; i++) {
        r->bounds[i + 1] = 4 * (uint32_t)r->info->chunk_length * ((uint32_t)i + 1);
        float *v = r->vectors + (size_t)i * dim;
        double square = 0;
        for (size_t j = 0; j < dim; j++) {
            v[j] = (float)((int32_t)draw(r));
            square += (double)v[j] * (double)v[j];
        }
        for (size_t j = 0; j < dim; j++) v[j] *= (float)(1 / sqrt(square));
    }
    char path[32];
    snprintf(path, sizeof path, "random/%d", r->n_documents++);
    struct collection_document document = {
        .path = path, .title = "", .text = {r->text, r->bounds[chunks]}, .ids = r->ids, .bounds = r->bounds, .n = n};
    if (builder_add_document(r->builder, &document, e)) return e->status;
    return builder_add_vectors(r->builder, r->vectors, chunks, e);
}

static enum status write_random(struct datastore *d, const char *folder, const struct bench_options *o,
                                const struct model_info *info, struct error *e) {
    int left = o->chunks ? o->chunks : DEFAULT_CHUNKS;
    size_t rows = (size_t)DOCUMENT_CHUNKS * (size_t)info->chunk_length;
    struct random_collection r = {.info = info, .dim = d->embedder.dim, .state = 1};
    struct collection_options options = {.chunk_length = info->chunk_length,
                                         .eod = max_int(0, info->eod),
                                         .dim = d->embedder.dim,
                                         .embedder_hash = d->embedder.hash,
                                         .tokenizer_hash = tokenizer_hash(d->tokenizer),
                                         .embedder = d->embedder.name,
                                         .tokenizer = d->embedder.name};
    if (builder_create(&r.builder, folder, &options, e)) return e->status;
    r.text = xcalloc(rows, 4);
    r.ids = xcalloc(rows, sizeof *r.ids);
    r.bounds = xcalloc((size_t)DOCUMENT_CHUNKS + 1, sizeof *r.bounds);
    r.vectors = xcalloc((size_t)DOCUMENT_CHUNKS * (size_t)r.dim, sizeof *r.vectors);
    enum status status = STATUS_OK;
    for (int n; left > 0 && status == STATUS_OK; left -= n) {
        n = min_int(left, DOCUMENT_CHUNKS);
        status = add_document(&r, n, e);
    }
    if (status == STATUS_OK)
        status = builder_commit(r.builder, e);
    else
        builder_abandon(r.builder);
    free(r.text);
    free(r.ids);
    free(r.bounds);
    free(r.vectors);
    return status;
}

/* Open files stay readable when their names are gone, so none is ever left behind. */
static enum status open_random(struct datastore *d, const struct bench_options *o, const struct model_info *info,
                               struct error *e) {
    const char *embedder = o->embedder ? o->embedder : DEFAULT_EMBEDDER;
    char folder[BENCH_FOLDER_SIZE];
    if (open_embedder(d, embedder, o->threads, e) || tokenizer_open(&d->tokenizer, embedder, e) ||
        bench_folder_make(folder, e))
        return e->status;
    enum status status = write_random(d, folder, o, info, e);
    if (status == STATUS_OK) status = store_open(&d->collection, folder, e);
    bench_folder_remove(folder);
    return status;
}

/* The embedder and tokenizer of a collection that is given. */
static enum status open_makers(struct datastore *d, const struct bench_options *o, const struct snapshot *snapshot,
                               const struct model_info *model, struct error *e) {
    const struct collection_info *info = snapshot->info;
    if (snapshot->max_token >= model->padded_vocab)
        return error_set(e, STATUS_INVALID, "%s holds token %d, the model's vocabulary is %d", o->collection,
                         snapshot->max_token, model->padded_vocab);
    if (open_embedder(d, o->embedder ? o->embedder : info->embedder, o->threads, e) ||
        tokenizer_open(&d->tokenizer, info->tokenizer, e))
        return e->status;
    return collection_match_tokens(info, tokenizer_hash(d->tokenizer), model->chunk_length, e);
}

static enum status open_given(struct datastore *d, const struct bench_options *o, const struct model_info *model,
                              struct error *e) {
    if (store_open(&d->collection, o->collection, e)) return e->status;
    struct snapshot *snapshot = collection_hold(d->collection);
    enum status status = open_makers(d, o, snapshot, model, e);
    snapshot_release(snapshot);
    return status;
}

enum status datastore_open(struct datastore *d, const struct bench_options *o, const struct model_info *info,
                           struct error *e) {
    *d = (struct datastore){0};
    if (o->collection && o->chunks)
        return error_set(e, STATUS_INVALID, "--chunks is for random chunks, and --collection brings its own");
    if (o->collection ? open_given(d, o, info, e) : open_random(d, o, info, e)) return e->status;
    struct retriever_embedders embedders = {.texts = &d->embedder};
    return retriever_open(&d->retriever, d->collection, embedders, info->num_neighbors, e);
}

void datastore_close(struct datastore *d) {
    retriever_close(d->retriever);
    collection_close(d->collection);
    tokenizer_close(d->tokenizer);
    embedder_model_close(&d->inner);
    config_free(&d->config);
}
