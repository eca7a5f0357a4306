/* server/host/documents/documents.c: opens what a model retrieves from. See documents.h. */
#include "server/host/documents/documents.h"

#include <stdlib.h>
#include <string.h>

#include "server/host/documents/embedder_model.h"
#include "server/host/documents/reranker_model.h"

/* The settings without a token: whoever fills it in wipes it. */
static struct milvus_settings milvus_settings_from(const struct config *config) {
    const struct retrieval_settings *settings = &config->retrieval;
    return (struct milvus_settings){
        .authority = settings->milvus_authority,
        .seconds = settings->milvus_seconds,
        .attempts = settings->milvus_attempts,
        .consistency = (enum milvus_consistency)settings->milvus_consistency};
}

static void forget_token(char *token) {
    if (token) explicit_bzero(token, strlen(token));
    free(token);
}

/* The settings with their token, where the name is one in Milvus. Forget it, on failure too. */
static enum status read_settings(struct milvus_settings *out, char **token,
                                 const struct config *config, const char *name, struct error *e) {
    *token = NULL;
    *out = milvus_settings_from(config);
    enum status status = collection_name_is_remote(name)
                             ? milvus_token_read(token, config->retrieval.milvus_token_file, e)
                             : STATUS_OK;
    out->token = *token;
    return status;
}

enum status documents_collection_open(struct collection **out, const struct config *config,
                                      const char *name, struct error *e) {
    struct milvus_settings settings;
    char *token;
    enum status status = read_settings(&settings, &token, config, name, e);
    if (status == STATUS_OK) status = collection_open(out, name, &settings, e);
    forget_token(token);
    return status;
}

enum status documents_collection_make(const struct config *config, const char *name,
                                      const struct collection_options *options, int32_t max_token,
                                      struct error *e) {
    struct milvus_settings settings;
    char *token;
    enum status status = read_settings(&settings, &token, config, name, e);
    if (status == STATUS_OK)
        status = milvus_collection_create(name, &settings, options, max_token, e);
    forget_token(token);
    return status;
}

bool documents_wanted(const struct config *config) {
    return config->retrieval.collection[0] != '\0';
}

const char *documents_embedder(const struct config *config, const char *of_collection) {
    return config->retrieval.embedder[0] ? config->retrieval.embedder : of_collection;
}

static const char *folder_of_pictures(const struct config *config,
                                      const struct collection_info *info) {
    return config->retrieval.picture_embedder[0] ? config->retrieval.picture_embedder
                                                 : info->pictures.embedder;
}

/* Whether the configuration names an embedder for pictures alone where the collection has none. */
static enum status check_pictures(const struct config *config, const struct collection_info *info,
                                  struct error *e) {
    const struct embedder any = {0};
    if (info->pictures.embedder || config->retrieval.picture_embedder[0] == '\0') return STATUS_OK;
    return collection_match_picture_embedder(info, &any, e);
}

enum status documents_open_pictures(struct embedder *out, const struct config *config,
                                    const struct collection_info *info, struct error *e) {
    *out = (struct embedder){0};
    if (check_pictures(config, info, e)) return e->status;
    if (info->pictures.embedder == NULL) return STATUS_OK;
    if (picture_embedder_open(out, folder_of_pictures(config, info), config, e))
        return error_prefix(e, "pictures' embedder");
    return collection_match_picture_embedder(info, out, e);
}

/* Whether the model can read the tokens of the collection. */
static enum status match_tokens(const struct collection_info *info, const struct model_info *model,
                                const struct tokenizer *tokenizer, const char *folder,
                                struct error *e) {
    if (collection_match_tokens(info, tokenizer_hash(tokenizer), model->chunk_length, e))
        return error_prefix(e, "%s", folder);
    if (info->max_token >= model->padded_vocab)
        return error_set(e, STATUS_INVALID, "%s holds token %d, the model's vocabulary is %d",
                         folder, info->max_token, model->padded_vocab);
    return STATUS_OK;
}

/* *attends: it can. A failure only where the mode asks for it: as text every collection can be
 * read. */
static enum status match_mode(const struct config *config, const struct collection_info *info,
                              const struct model_info *model, const struct tokenizer *tokenizer,
                              bool *attends, struct error *e) {
    bool can = model->chunk_length > 0;
    enum retrieval_mode mode = retrieval_mode_of(config->retrieval.choice.mode, can);
    *attends =
        can && match_tokens(info, model, tokenizer, config->retrieval.collection, e) == STATUS_OK;
    return can && !*attends && retrieval_attends(mode) ? e->status : STATUS_OK;
}

static enum status open_reranker(struct documents *documents, const struct config *config,
                                 struct error *e) {
    if (config->retrieval.reranker[0] == '\0') return STATUS_OK;
    if (reranker_model_open(&documents->reranker, config->retrieval.reranker, config, e))
        return e->status;
    retriever_set_reranker(documents->retriever, &documents->reranker);
    return STATUS_OK;
}

/* The embedders that the collection was made with. */
static enum status open_embedders(struct documents *documents, const struct config *config,
                                  const struct collection_info *info, struct error *e) {
    if (embedder_model_open(&documents->embedder, documents_embedder(config, info->embedder),
                            config, e))
        return error_prefix(e, "embedder");
    if (collection_match_embedder(info, &documents->embedder, e) ||
        documents_open_pictures(&documents->pictures, config, info, e))
        return error_prefix(e, "%s", config->retrieval.collection);
    return STATUS_OK;
}

enum status documents_open_search(struct documents *documents, const struct config *config,
                                  int max_k, struct error *e) {
    *documents = (struct documents){0};
    if (documents_collection_open(&documents->collection, config, config->retrieval.collection, e))
        return e->status;
    if (collection_move(documents->collection, config->retrieval.device, e))
        return error_prefix(e, "retrieval.device");
    struct snapshot *snapshot = collection_hold(documents->collection);
    enum status status = open_embedders(documents, config, snapshot->info, e);
    snapshot_release(snapshot);
    struct retriever_embedders embedders = {&documents->embedder,
                                            embedder_if_open(&documents->pictures)};
    if (status == STATUS_OK)
        status = retriever_open(&documents->retriever, documents->collection, embedders, max_k, e);
    return status ? status : open_reranker(documents, config, e);
}

enum status documents_open(struct documents *documents, const struct config *config,
                           const struct model_info *model, const struct tokenizer *tokenizer,
                           int max_k, struct error *e) {
    if (documents_open_search(documents, config, max_k, e)) return e->status;
    struct snapshot *snapshot = collection_hold(documents->collection);
    struct collection_info info = *snapshot->info;
    info.max_token = snapshot->max_token;
    enum status status =
        model ? match_mode(config, &info, model, tokenizer, &documents->attends, e) : STATUS_OK;
    snapshot_release(snapshot);
    return status
               ? status
               : filter_parse(&documents->filter, config->retrieval.filter, "retrieval.filter", e);
}

void documents_close(struct documents *documents) {
    retriever_close(documents->retriever);
    embedder_model_close(&documents->embedder);
    embedder_model_close(&documents->pictures);
    reranker_model_close(&documents->reranker);
    collection_close(documents->collection);
    filter_release(documents->filter);
    *documents = (struct documents){0};
}

static enum status read_outline(struct collection_outline *out, const struct config *config,
                                struct error *e) {
    const char *name = config->retrieval.collection;
    struct milvus_settings settings;
    char *token;
    enum status status = read_settings(&settings, &token, config, name, e);
    if (status == STATUS_OK) status = collection_outline_read(out, name, &settings, e);
    forget_token(token);
    return status;
}

enum status documents_check(const struct config *config, const struct model_info *model,
                            const struct tokenizer *tokenizer, struct error *e) {
    struct collection_outline outline;
    if (read_outline(&outline, config, e)) return e->status;
    bool attends;
    enum status status = match_mode(config, &outline.info, model, tokenizer, &attends, e);
    if (status == STATUS_OK) status = check_pictures(config, &outline.info, e);
    collection_outline_free(&outline);
    return status;
}

static enum status measure_reranker(const struct config *config, struct backend *backend,
                                    struct budget_parts *parts, struct error *e) {
    struct encoder_bytes reranker;
    if (config->retrieval.reranker[0] == '\0') return STATUS_OK;
    if (reranker_model_measure(&reranker, config->retrieval.reranker, config, backend, e))
        return e->status;
    budget_add(parts,
               (struct budget_part){.name = "reranker", .bytes = encoder_bytes_own(&reranker)},
               "leave retrieval.reranker out, or take a smaller one");
    return STATUS_OK;
}

static enum status measure_pictures(const struct config *config, const struct collection_info *info,
                                    struct backend *backend, struct budget_parts *parts,
                                    struct error *e) {
    struct encoder_bytes pictures;
    if (info->pictures.embedder == NULL) return STATUS_OK;
    if (picture_embedder_measure(&pictures, folder_of_pictures(config, info), config, backend, e))
        return error_prefix(e, "pictures' embedder");
    budget_add(
        parts,
        (struct budget_part){.name = "pictures' embedder", .bytes = encoder_bytes_own(&pictures)},
        "set retrieval.embedder_dtype to bf16, or take a smaller embedder for pictures");
    return STATUS_OK;
}

static enum status measure_collection(const struct config *config,
                                      const struct collection_outline *collection,
                                      struct backend *backend, struct budget_parts *parts,
                                      struct error *e) {
    struct encoder_bytes embedder;
    const char *folder = documents_embedder(config, collection->info.embedder);
    if (embedder_model_measure(&embedder, folder, config, backend, e))
        return error_prefix(e, "embedder");
    budget_add(parts,
               (struct budget_part){.name = "embedder", .bytes = encoder_bytes_own(&embedder)},
               "set retrieval.embedder_dtype to bf16 or lower retrieval.embedder_tokens, or take a "
               "smaller embedder");
    if (measure_pictures(config, &collection->info, backend, parts, e) ||
        measure_reranker(config, backend, parts, e))
        return e->status;
    if (collection_name_is_remote(config->retrieval.collection)) {
        budget_add_program(parts, (const char *const[]){config->model.path, folder}, 2);
        return STATUS_OK;
    }
    budget_add(
        parts,
        (struct budget_part){.name = "document index", .bytes = collection->index, .on_host = true},
        "build the collection with an index that compresses (retro-index build --index ivfsq8)");
    if (collection->changes > 0)
        budget_add(parts,
                   (struct budget_part){
                       .name = "changed documents", .bytes = collection->changes, .on_host = true},
                   "retro-index compact writes them into the index");
    budget_add(
        parts,
        (struct budget_part){
            .name = "documents", .bytes = collection->mapped, .on_host = true, .mapped = true},
        "they are read as needed");
    const char *of_pictures =
        collection->info.pictures.embedder ? folder_of_pictures(config, &collection->info) : NULL;
    budget_add_program(parts, (const char *const[]){config->model.path, folder, of_pictures},
                       of_pictures ? 3 : 2);
    return STATUS_OK;
}

enum status documents_measure(const struct config *config, struct backend *backend,
                              struct budget_parts *parts, struct error *e) {
    struct collection_outline collection;
    if (!documents_wanted(config)) {
        budget_add_program(parts, (const char *const[]){config->model.path}, 1);
        return STATUS_OK;
    }
    if (read_outline(&collection, config, e)) return e->status;
    enum status status = measure_collection(config, &collection, backend, parts, e);
    collection_outline_free(&collection);
    return status;
}
