/* tools/index/index_parts.c: the parts of a build: tokenizer, embedders, collection, and whether
 * they fit. See index_builder.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json/json_table.h"
#include "retro/text/tokenizer.h"
#include "server/host/documents/documents.h"
#include "server/host/documents/embedder_model.h"
#include "server/host/models/budget.h"
#include "tools/index/index_builder.h"

enum { DEFAULT_CHUNK_LENGTH = 64, DEFAULT_CONTEXT = 32 };

struct model_facts {
    int chunk_length, eod; /* eod -1: the tokenizer's */
};

static const struct json_field model_fields[] = {
    {"retro_chunk_length", JSON_INT, JSON_AT(struct model_facts, chunk_length), .min = 1,
     .max = INT16_MAX},
    {"eod_token_id", JSON_INT, JSON_AT(struct model_facts, eod), .min = -1, .max = INT32_MAX},
};
static const struct json_table model_table = JSON_TABLE(model_fields, .open = true);

/* Megatron's database has vectors of chunks alone. */
static struct chunk_rules choose_rules(const struct build_options *options, int chunk_length) {
    int usual = options->cut == CHUNKS_GRID ? 0 : DEFAULT_CONTEXT;
    return (struct chunk_rules){
        .chunk_length = options->chunk_length ? options->chunk_length : chunk_length,
        .cut = options->cut,
        .context = options->context >= 0 ? options->context : usual,
        .overlap = options->overlap};
}

/* Chunk length and end-of-document id as the model was trained with. */
static enum status read_model(struct builder *builder, const char *folder, int32_t *eod,
                              struct error *e) {
    struct model_facts facts = {.chunk_length = DEFAULT_CHUNK_LENGTH, .eod = -1};
    struct buffer path = {0};
    struct json *root;
    buffer_printf(&path, "%s/config.json", folder);
    struct json_reader reader = {.name = path.data, .e = e};
    enum status status = json_parse_file(&root, path.data, e);
    if (status == STATUS_OK) status = json_table_read(&reader, &model_table, root, &facts);
    json_close(root);

    builder->cutter.tokenizer = builder->tokenizer;
    builder->cutter.rules = choose_rules(builder->options, facts.chunk_length);
    *eod = facts.eod >= 0 ? facts.eod : tokenizer_eod(builder->tokenizer);
    if (status == STATUS_OK && *eod < 0)
        status = error_set(e, STATUS_INVALID,
                           "%s: no eod_token_id, and the tokenizer has no end-of-document token",
                           path.data);
    buffer_free(&path);
    return status;
}

/* Checks the memory that embedding takes, before any of it is taken. */
static enum status check_embedding(const struct config *config, struct error *e) {
    struct budget_parts parts = {0};
    struct encoder_bytes embedder, pictures = {0};
    struct backend *device;
    const char *folder = config->retrieval.embedder;
    bool sees = config->retrieval.picture_embedder[0] != '\0';
    if (backend_open(&device, config->model.device, &(struct backend_options){.threads = 1}, e))
        return e->status;
    enum status status = embedder_model_measure(&embedder, folder, config, device, e);
    if (status == STATUS_OK && sees)
        status = picture_embedder_measure(&pictures, config->retrieval.picture_embedder, config,
                                          device, e);
    bool on_host = strcmp(device->ops->name, "cpu") == 0;
    backend_close(device);
    if (status) return error_prefix(e, "embedder");

    size_t bytes = encoder_bytes_own(&embedder);
    size_t of_pictures = encoder_bytes_own(&pictures);
    if (on_host)
        budget_add(&parts, (struct budget_part){.name = "embedder", .bytes = bytes},
                   "set retrieval.embedder_dtype to bf16 or lower retrieval.embedder_tokens, or "
                   "take a smaller embedder");
    if (on_host && sees)
        budget_add(&parts, (struct budget_part){.name = "pictures' embedder", .bytes = of_pictures},
                   "set retrieval.embedder_dtype to bf16, or take a smaller embedder for pictures");
    const char *const folders[] = {config->model.path, folder, config->retrieval.picture_embedder};
    budget_add_program(&parts, folders, sees ? 3 : 2);
    return budget_check_host(&parts, e);
}

/* About as many bytes of a file make a token. */
enum { BYTES_OF_TOKEN = 4 };

/* The index is in memory as a whole when it is built. */
enum status build_check_memory(const struct builder *builder, struct error *e) {
    struct budget_parts parts = {0};
    size_t chunks = (size_t)builder->walk.n,
           chunk_bytes = (size_t)builder->cutter.rules.chunk_length * BYTES_OF_TOKEN;
    for (int i = 0; i < builder->walk.n; i++)
        chunks += builder->walk.files[i].text_bytes / chunk_bytes;
    budget_add(
        &parts,
        (struct budget_part){.name = "document index",
                             .bytes = chunks * (size_t)builder->embedder.dim * sizeof(float)},
        "index fewer files, or in larger chunks (--chunk-length, now %d)",
        builder->cutter.rules.chunk_length);
    return budget_check_host(&parts, e);
}

static enum status open_unfinished(struct builder *builder, const struct config *config,
                                   struct error *e) {
    struct unfinished *unfinished = &builder->unfinished;
    enum status status =
        unfinished_open(unfinished, builder->options->out,
                        unfinished_maker(&builder->embedder, config), builder->embedder.dim, e);
    if (status == STATUS_OK && unfinished->n_kept > 0)
        fprintf(stderr,
                "going on: an interrupted build has left the vectors of %" PRId64 " chunks\n",
                unfinished->n_kept);
    return status;
}

static enum status open_pictures(struct builder *builder, const struct config *config,
                                 struct error *e) {
    const char *folder = config->retrieval.picture_embedder;
    if (folder[0] && picture_embedder_open(&builder->pictures, folder, config, e)) return e->status;
    builder->cutter.pictures = embedder_if_open(&builder->pictures);
    return STATUS_OK;
}

static enum status open_collection(struct builder *builder, const struct config *config,
                                   const struct collection_options *options, struct error *e) {
    const char *out = builder->options->out;
    if (!collection_name_is_remote(out))
        return builder_create(&builder->generation, out, options, e)
                   ? e->status
                   : open_unfinished(builder, config, e);
    if (documents_collection_make(config, out, options,
                                  tokenizer_vocab_size(builder->tokenizer) - 1, e))
        return e->status;
    enum status status = documents_collection_open(&builder->collection, config, out, e);
    builder->group = (struct document_group){.cutter = &builder->cutter,
                                             .collection = builder->collection,
                                             .texts = &builder->known,
                                             .cancelled = &index_interrupted,
                                             .take = build_take_put,
                                             .context = builder};
    return status;
}

enum status build_open_parts(struct builder *builder, const struct config *config,
                             struct error *e) {
    int32_t eod;
    if (config->model.path[0] == '\0' || config->retrieval.embedder[0] == '\0')
        return error_set(e, STATUS_INVALID,
                         "model.path and retrieval.embedder are needed: --config FILE or --set");
    builder->cutter.embedder = &builder->embedder;
    if (check_embedding(config, e) || tokenizer_open(&builder->tokenizer, config->model.path, e) ||
        read_model(builder, config->model.path, &eod, e) ||
        embedder_model_open(&builder->embedder, config->retrieval.embedder, config, e) ||
        open_pictures(builder, config, e))
        return e->status;
    if (config->retrieval.threads > 0) index_set_threads(config->retrieval.threads);
    builder->vectors =
        xmalloc((size_t)BATCH_CHUNKS * (size_t)builder->embedder.dim * sizeof *builder->vectors);
    /* Other programs may start in other folders. */
    char *embedder = realpath(config->retrieval.embedder, NULL),
         *tokenizer = realpath(config->model.path, NULL);
    char *pictures = realpath(config->retrieval.picture_embedder, NULL);
    struct collection_options options = {
        .chunk_length = builder->cutter.rules.chunk_length,
        .cut = builder->cutter.rules.cut,
        .context = builder->cutter.rules.context,
        .overlap = builder->cutter.rules.overlap,
        .eod = eod,
        .dim = builder->embedder.dim,
        .embedder_hash = builder->embedder.hash,
        .query_prompt = builder->embedder.prompts[EMBED_QUERY],
        .document_prompt = builder->embedder.prompts[EMBED_DOCUMENT],
        .tokenizer_hash = tokenizer_hash(builder->tokenizer),
        .embedder = embedder ? embedder : config->retrieval.embedder,
        .tokenizer = tokenizer ? tokenizer : config->model.path,
        .index_factory = builder->options->index_factory,
        .sparse = builder->embedder.sparse};
    if (builder->pictures.self)
        options.pictures = (struct picture_space){
            .embedder = pictures ? pictures : config->retrieval.picture_embedder,
            .embedder_hash = builder->pictures.hash,
            .query_prompt = builder->pictures.prompts[EMBED_QUERY],
            .document_prompt = builder->pictures.prompts[EMBED_DOCUMENT],
            .dim = builder->pictures.dim};
    enum status status = open_collection(builder, config, &options, e);
    free(embedder);
    free(pictures);
    free(tokenizer);
    return status;
}

struct chunk_counter {
    struct builder *builder;
    int64_t n_chunks;
};

static enum status count_document(void *context, const char *part, const struct document_text *text,
                                  struct error *e) {
    struct chunk_counter *counter = context;
    struct error why;
    (void)part;
    if (build_check_interrupted(e)) return e->status;
    const struct collection_document document = {.path = "",
                                                 .title = text->title.data,
                                                 .text = {text->text.data, text->text.size},
                                                 .marks = marks_of(&text->marks)};
    if (document_cut(&counter->builder->cutter, &document, &why)) return STATUS_OK;
    counter->n_chunks += counter->builder->cutter.n_chunks;
    return STATUS_OK;
}

/* Counts the chunks that the files will give, up to `enough`. */
static enum status count_chunks(struct builder *builder, int64_t enough, int64_t *n_chunks,
                                struct error *e) {
    struct chunk_counter counter = {.builder = builder};
    struct document_taker taker = {.context = &counter, .take = count_document};
    struct error unreadable;
    enum status status = STATUS_OK;
    for (int i = 0; i < builder->walk.n && counter.n_chunks < enough && status == STATUS_OK; i++) {
        read_documents(builder->options, &builder->walk.files[i], &index_interrupted, &taker,
                       &unreadable);
        status = build_check_interrupted(e);
    }
    *n_chunks = counter.n_chunks;
    return status;
}

enum status build_check_index(struct builder *builder, struct error *e) {
    const char *asked = builder->options->index_factory;
    int64_t least = index_least_vectors(asked), n_chunks = least;
    enum status status = index_check_factory(asked, builder->embedder.dim, e);
    if (status == STATUS_OK && least > 1) status = count_chunks(builder, least, &n_chunks, e);
    if (status || n_chunks >= least) return status;
    return error_set(e, STATUS_INVALID,
                     "--index %s needs at least %" PRId64
                     " chunks, one for each list or code that it learns, and these "
                     "documents give %" PRId64
                     ": ask for fewer lists, or leave --index out for one that fits",
                     asked, least, n_chunks);
}
