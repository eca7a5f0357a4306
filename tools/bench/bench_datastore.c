/* tools/bench/bench_datastore.c: a given or a random collection, and a clock at the embedder. See
 * bench_datastore.h. */
#include "tools/bench/bench_datastore.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/host/documents/embedder_model.h"

enum { DEFAULT_CHUNKS = 100000, DOCUMENT_CHUNKS = 10 };

static enum status embed_timed(void *self, const struct embed_request *request, struct error *e) {
    struct datastore *datastore = self;
    datastore->embed_start = time_now();
    enum status status = embedder_embed(&datastore->inner, request, e);
    datastore->embed_end = time_now();
    return status;
}

static enum status open_embedder(struct datastore *datastore, const char *folder, int threads,
                                 struct error *e) {
    config_init(&datastore->config);
    datastore->config.model.threads = threads;
    if (embedder_model_open(&datastore->inner, folder, &datastore->config, e))
        return error_prefix(e, "embedder");
    datastore->embedder = datastore->inner;
    datastore->embedder.embed = embed_timed;
    datastore->embedder.self = datastore;
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
    struct chunk_range *chunks; /* of it: four bytes a token */
    float *vectors;             /* of its chunks */
};

static uint32_t draw(struct random_collection *collection) {
    collection->state = collection->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(collection->state >> 32);
}

static enum status add_document(struct random_collection *collection, int chunks, struct error *e) {
    size_t dim = (size_t)collection->dim;
    int n = chunks * collection->info->chunk_length;
    for (int i = 0; i < n; i++)
        collection->ids[i] = (int32_t)(draw(collection) % (uint32_t)collection->info->vocab);
    for (int i = 0; i < chunks; i++) {
        uint32_t length = (uint32_t)collection->info->chunk_length, first = length * (uint32_t)i;
        collection->chunks[i] =
            (struct chunk_range){4 * first, 4 * (first + length), first, length};
        float *v = collection->vectors + (size_t)i * dim;
        double square = 0;
        for (size_t j = 0; j < dim; j++) {
            v[j] = (float)((int32_t)draw(collection));
            square += (double)v[j] * (double)v[j];
        }
        for (size_t j = 0; j < dim; j++) v[j] *= (float)(1 / sqrt(square));
    }
    char path[32];
    snprintf(path, sizeof path, "random/%d", collection->n_documents++);
    struct collection_document document = {.path = path,
                                           .title = "",
                                           .text = {collection->text, 4 * (size_t)n},
                                           .ids = collection->ids,
                                           .chunks = collection->chunks,
                                           .n_chunks = chunks,
                                           .n = n};
    if (builder_add_document(collection->builder, &document, e)) return e->status;
    return builder_add_vectors(collection->builder, collection->vectors, chunks, e);
}

static enum status write_random(struct datastore *datastore, const char *folder,
                                const struct bench_options *bench_options,
                                const struct model_info *info, struct error *e) {
    int left = bench_options->chunks ? bench_options->chunks : DEFAULT_CHUNKS;
    size_t rows = (size_t)DOCUMENT_CHUNKS * (size_t)info->chunk_length;
    struct random_collection collection = {
        .info = info, .dim = datastore->embedder.dim, .state = 1};
    struct collection_options options = {.chunk_length = info->chunk_length,
                                         .cut = CHUNKS_GRID,
                                         .eod = max_int(0, info->eod),
                                         .dim = datastore->embedder.dim,
                                         .embedder_hash = datastore->embedder.hash,
                                         .tokenizer_hash = tokenizer_hash(datastore->tokenizer),
                                         .embedder = datastore->embedder.name,
                                         .tokenizer = datastore->embedder.name};
    if (builder_create(&collection.builder, folder, &options, e)) return e->status;
    collection.text = xcalloc(rows, 4);
    collection.ids = xcalloc(rows, sizeof *collection.ids);
    collection.chunks = xcalloc(DOCUMENT_CHUNKS, sizeof *collection.chunks);
    collection.vectors =
        xcalloc((size_t)DOCUMENT_CHUNKS * (size_t)collection.dim, sizeof *collection.vectors);
    enum status status = STATUS_OK;
    for (int n; left > 0 && status == STATUS_OK; left -= n) {
        n = min_int(left, DOCUMENT_CHUNKS);
        status = add_document(&collection, n, e);
    }
    if (status == STATUS_OK)
        status = builder_commit(collection.builder, e);
    else
        builder_abandon(collection.builder);
    free(collection.text);
    free(collection.ids);
    free(collection.chunks);
    free(collection.vectors);
    return status;
}

/* Open files stay readable when their names are gone, so none is ever left behind. */
static enum status open_random(struct datastore *datastore, const struct bench_options *options,
                               const struct model_info *info, struct error *e) {
    const char *embedder = options->embedder ? options->embedder : DEFAULT_EMBEDDER;
    char folder[BENCH_FOLDER_SIZE];
    if (open_embedder(datastore, embedder, options->threads, e) ||
        tokenizer_open(&datastore->tokenizer, embedder, e) || bench_folder_make(folder, e))
        return e->status;
    enum status status = write_random(datastore, folder, options, info, e);
    if (status == STATUS_OK) status = store_open(&datastore->collection, folder, e);
    bench_folder_remove(folder);
    return status;
}

/* The embedder and tokenizer of a collection that is given. */
static enum status open_makers(struct datastore *datastore, const struct bench_options *options,
                               const struct snapshot *snapshot, const struct model_info *model,
                               struct error *e) {
    const struct collection_info *info = snapshot->info;
    if (snapshot->max_token >= model->padded_vocab)
        return error_set(e, STATUS_INVALID, "%s holds token %d, the model's vocabulary is %d",
                         options->collection, snapshot->max_token, model->padded_vocab);
    if (open_embedder(datastore, options->embedder ? options->embedder : info->embedder,
                      options->threads, e) ||
        tokenizer_open(&datastore->tokenizer, info->tokenizer, e))
        return e->status;
    return collection_match_tokens(info, tokenizer_hash(datastore->tokenizer), model->chunk_length,
                                   e);
}

static enum status open_given(struct datastore *datastore, const struct bench_options *options,
                              const struct model_info *model, struct error *e) {
    if (store_open(&datastore->collection, options->collection, e)) return e->status;
    struct snapshot *snapshot = collection_hold(datastore->collection);
    enum status status = open_makers(datastore, options, snapshot, model, e);
    snapshot_release(snapshot);
    return status;
}

enum status datastore_open(struct datastore *datastore, const struct bench_options *options,
                           const struct model_info *info, struct error *e) {
    *datastore = (struct datastore){0};
    if (options->collection && options->chunks)
        return error_set(e, STATUS_INVALID,
                         "--chunks is for random chunks, and --collection brings its own");
    if (options->collection ? open_given(datastore, options, info, e)
                            : open_random(datastore, options, info, e))
        return e->status;
    struct retriever_embedders embedders = {.texts = &datastore->embedder};
    return retriever_open(&datastore->retriever, datastore->collection, embedders,
                          info->num_neighbors, e);
}

void datastore_close(struct datastore *datastore) {
    retriever_close(datastore->retriever);
    collection_close(datastore->collection);
    tokenizer_close(datastore->tokenizer);
    embedder_model_close(&datastore->inner);
    config_free(&datastore->config);
}
