/* server/served_models.c: see served_models.h. */
#include "server/served_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "config/base/log.h"
#include "retro/model/identity.h"
#include "server/api/text/grammars.h"
#include "server/host/check.h"
#include "server/host/documents/embedder_model.h"
#include "server/host/documents/embedder_shared.h"
#include "server/host/other_models.h"
#include "server/host/prompt/prefixes.h"

/* Pictures. */

void served_models_init(struct served_models *served, const struct config *config) {
    size_t most = config->model.others.count + 2; /* the collection's, and its pictures' */
    *served = (struct served_models){.n_decoders = 1};
    served->decoders = xcalloc(most, sizeof *served->decoders);
    served->embedders = xcalloc(most, sizeof *served->embedders);
    served->served = xcalloc(most, sizeof *served->served);
    served->served_embedders = xcalloc(most, sizeof *served->served_embedders);
}

static enum status open_fetcher(struct served_models *served, const struct config *config,
                                struct error *e) {
    const struct json_list *hosts = &config->server.image_urls;
    struct fetcher_options options = {.hosts = &served->image_hosts,
                                      .seconds = config->server.image_timeout,
                                      .seconds_option = "server.image_timeout",
                                      .bytes_option = "server.image_bytes"};
    if (hosts->count == 0) return STATUS_OK;
    if (host_rules_open(&served->image_hosts, hosts->items, hosts->count, e)) return e->status;
    return fetcher_open(&served->fetcher, &options, e);
}

enum status served_models_open_pictures(struct served_models *served, const struct config *config,
                                        struct error *e) {
    if (open_fetcher(served, config, e)) return e->status;
    /* One request for each connection, and what the engine reads for those that it writes. */
    int capacity = config->server.max_connections + engine_lookups(config->server.max_sequences);
    struct picture_thread_options options = {capacity, served->fetcher,
                                             (size_t)config->server.image_bytes};
    if (picture_thread_open(&served->pictures, &options, e)) return e->status;
    for (size_t i = 0; i <= config->model.others.count; i++)
        served->decoders[i].pictures = served->pictures;
    return STATUS_OK;
}

static enum status plan_sessions(void *context, const struct model_info *info,
                                 struct session_limits *limits, struct error *e) {
    struct engine_options options;
    if (served_engine_options(&options, context, info, e)) return e->status;
    *limits = engine_limits(&options, info);
    return STATUS_OK;
}

static enum status open_decoder(struct served_models *served, const struct config *config,
                                const struct other_model *other, struct error *e) {
    struct decoder_part *part = &served->decoders[served->n_decoders];
    struct budget_use budget = {.limits = plan_sessions, .context = (void *)(uintptr_t)config};
    struct opened_model_use use = {.budget = &budget};
    if (config->parallel.tensor * config->parallel.pipeline > 1)
        return error_set(e, STATUS_UNSUPPORTED,
                         "model.others has a decoder; decoders beside the first need one rank");
    if (opened_model_open(&part->opened, config, other->path, &use, e)) return e->status;
    served->n_decoders++;
    part->name = served_name(other->name, other->path);
    part->path = other->path;
    return decoder_part_open(part, config, false, e);
}

/* Embedders. */

static enum status open_embedder(struct embedder_part *part, const struct config *config,
                                 const struct embedder *embedder, const char *name,
                                 struct error *e) {
    part->embedder = embedder;
    part->name = served_name(name, embedder->name);
    if (tokenizer_open(&part->tokenizer, embedder->name, e)) return e->status;
    return embedding_thread_open(&part->thread, embedder, config->server.max_connections, e);
}

static enum status open_other(struct served_models *served, const struct config *config,
                              const struct other_model *other, struct error *e) {
    if (other->role == ROLE_DECODER) return open_decoder(served, config, other, e);
    struct embedder_part *part = &served->embedders[served->n_embedders];
    served->n_embedders++;
    if (embedder_model_open(&part->own, other->path, config, e)) return e->status;
    log_info("embedder %s: vectors of %d numbers", other->path, part->own.dim);
    return open_embedder(part, config, &part->own, other->name, e);
}

static enum status check_names(const struct served_models *served, struct error *e) {
    int n_decoders = served->n_decoders, n = n_decoders + served->n_embedders;
    char **names = xcalloc((size_t)n + 1, sizeof *names);
    for (int i = 0; i < n_decoders; i++) names[i] = served->decoders[i].name;
    for (int i = n_decoders; i < n; i++) names[i] = served->embedders[i - n_decoders].name;
    names[n] = served->reranker.name;
    enum status status = other_models_check_names(names, n + (names[n] != NULL), e);
    free(names);
    return status;
}

/* The pictures' own embedder, unless its name is that of the other one, by which requests would ask
 * for either. */
static enum status open_picture_embedder(struct served_models *served, const struct config *config,
                                         const struct documents *documents, struct error *e) {
    if (documents->pictures.self == NULL) return STATUS_OK;
    char *name = path_name(documents->pictures.name);
    bool taken = strcmp(name, served->embedders[0].name) == 0;
    free(name);
    if (taken) {
        log_info("the embedder %s is not served by itself: another one has its name",
                 documents->pictures.name);
        return STATUS_OK;
    }
    struct embedder_part *part = &served->embedders[served->n_embedders];
    served->n_embedders++;
    return open_embedder(part, config, &documents->pictures, "", e);
}

enum status served_models_open_others(struct served_models *served, const struct config *config,
                                      struct error *e) {
    const struct other_model *others = config->model.others.items;
    struct documents *documents = &served->decoders[0].documents;
    if (documents->retriever) {
        served->n_embedders++;
        if (open_embedder(&served->embedders[0], config, &documents->embedder, "", e) ||
            open_picture_embedder(served, config, documents, e))
            return e->status;
    }
    if (documents->reranker.self &&
        open_embedder(&served->reranker, config, &documents->reranker, "", e))
        return e->status;
    for (size_t i = 0; i < config->model.others.count; i++)
        if (open_other(served, config, &others[i], e))
            return error_prefix(e, "model.others[%zu], %s", i, others[i].path);
    return check_names(served, e);
}

/* The API's snapshot. */

enum documents_access served_documents_access(const struct config *config, bool local) {
    if (config->retrieval.documents != DOCUMENTS_AUTO)
        return (enum documents_access)config->retrieval.documents;
    return local || config->server.keys_file[0] ? DOCUMENTS_WRITE : DOCUMENTS_READ;
}

/* Tokens of the passages in a prompt, and rows of the pictures among them. */
static int passage_tokens_of(const struct decoder_part *part, const struct config *config) {
    bool sees = part->retrieval && documents_seer(&part->documents)->sees &&
                part->picture_input.words.text.size > 0;
    int pictures =
        sees ? config->retrieval.prompt_pictures * picture_input_least_rows(&part->picture_input)
             : 0;
    return config->retrieval.prompt_tokens + pictures;
}

static enum status serve_decoder(const struct decoder_part *part, const struct config *config,
                                 bool local, struct served_model *out, struct error *e) {
    const struct model_info *info = model_info(part->opened.model);
    int k = 0, max_neighbors = 0;
    if (info->chunk_length > 0 && check_neighbors(config, info, &k, &max_neighbors, e))
        return e->status;
    *out = (struct served_model){
        .id = part->name,
        .fingerprint = part->fingerprint,
        .info = info,
        .tokenizer = part->tokenizer,
        .chat = part->chat,
        .picture_input = part->picture_input.model ? &part->picture_input : NULL,
        .picture_thread = part->pictures,
        .eod = decoder_part_eod(part),
        .ends = part->ends,
        .engine = part->engine,
        .grammars = part->grammars,
        .retrieval = part->retrieval,
        .retriever = part->documents.retriever,
        .seer = part->retrieval ? documents_seer(&part->documents) : NULL,
        .collection = part->documents.collection,
        .collection_name = config->retrieval.collection,
        .has_collection = part->documents.collection != NULL,
        .document_thread = part->changes,
        .files = part->files,
        .page_thread = part->pages,
        .filter = part->documents.filter,
        .documents = served_documents_access(config, local),
        .upload_bytes = config->server.max_upload_text,
        .limits = {.vocab = info->vocab,
                   .max_prompts = config->server.max_prompts,
                   .max_choices = config->server.max_choices,
                   .max_stops = config->server.max_stops,
                   .max_biases = config->server.max_biases,
                   .max_logprobs = min_int(config->server.max_logprobs, info->vocab),
                   .retrieval = {.max_k = config->retrieval.max_k,
                                 .max_neighbors = max_neighbors,
                                 .min_every = config->retrieval.min_every,
                                 .max_excluded = config->retrieval.max_excluded,
                                 .max_filter_bytes = config->retrieval.max_filter_bytes},
                   .metadata = {config->retrieval.max_metadata_values,
                                config->retrieval.max_metadata_bytes},
                   .max_prompts_option = "server.max_prompts",
                   .sampling = config->model.sampling_defaults ? &info->generation.sampling : NULL},
        .slots = config->server.max_sequences,
        .choice = config->retrieval.choice,
        .rerank_candidates = rerank_candidates_of(&config->retrieval),
        .usual_neighbors = k,
        .usual_passages = usual_passages(config),
        .attends = part->retrieval ? part->documents.attends : info->chunk_length > 0,
        .passage_tokens = passage_tokens_of(part, config),
        .conversation_tokens = config->retrieval.conversation_tokens,
        .conversations = part->conversations,
        .rewrite = {config->retrieval.rewrite_tokens, config->retrieval.rewrite_context},
        .order_distance = config->retrieval.order_distance,
    };
    out->choice.mode = part->mode;
    return check_context(config, info, &out->limits.context, e);
}

static void serve_embedder(const struct embedder_part *part, struct picture_thread *pictures,
                           const struct config *config, struct served_embedder *out) {
    *out = (struct served_embedder){
        .id = part->name,
        .embedder = part->embedder,
        .tokenizer = part->tokenizer,
        .thread = part->thread,
        .picture_thread = pictures,
        .limits = {.vocab = tokenizer_vocab_size(part->tokenizer),
                   .context = part->embedder->max_tokens,
                   .max_prompts = config->server.max_inputs,
                   .max_prompts_option = "server.max_inputs"},
    };
}

static void limits_raise(struct request_limits *most, const struct request_limits *limits) {
    if (most->max_prompts_option == NULL) *most = *limits;
    most->vocab = max_int(most->vocab, limits->vocab);
    most->context = max_int(most->context, limits->context);
    most->max_logprobs = max_int(most->max_logprobs, limits->max_logprobs);
}

enum status served_models_serve(struct served_models *served, const struct config *config,
                                struct api *api, struct error *e) {
    const struct host_rules *hosts = served->fetcher ? &served->image_hosts : NULL;
    for (int i = 0; i < served->n_decoders; i++) {
        if (serve_decoder(&served->decoders[i], config, api->local, &served->served[i], e))
            return e->status;
        served->served[i].limits.image_hosts = hosts;
        limits_raise(&api->largest, &served->served[i].limits);
    }
    for (int i = 0; i < served->n_embedders; i++) {
        serve_embedder(&served->embedders[i], served->pictures, config,
                       &served->served_embedders[i]);
        served->served_embedders[i].limits.image_hosts = hosts;
        limits_raise(&api->largest_embedder, &served->served_embedders[i].limits);
    }
    api->models = served->served;
    api->n_models = served->n_decoders;
    api->embedders = served->served_embedders;
    api->n_embedders = served->n_embedders;
    if (served->reranker.name) {
        serve_embedder(&served->reranker, NULL, config, &served->served_reranker);
        api->reranker = &served->served_reranker;
    }
    return STATUS_OK;
}

/* The end. */

void served_models_stop(struct served_models *served) {
    fetcher_stop(served->fetcher);
    picture_thread_stop(served->pictures);
    for (int i = 0; i < served->n_decoders; i++) engine_stop(served->decoders[i].engine);
    for (int i = 0; i < served->n_decoders; i++)
        retrieval_thread_stop(served->decoders[i].retrieval);
    for (int i = 0; i < served->n_decoders; i++) document_thread_stop(served->decoders[i].changes);
    for (int i = 0; i < served->n_decoders; i++) page_thread_stop(served->decoders[i].pages);
    for (int i = 0; i < served->n_embedders; i++)
        embedding_thread_stop(served->embedders[i].thread);
    embedding_thread_stop(served->reranker.thread);
}

bool served_models_failed(struct served_models *served) {
    for (int i = 0; i < served->n_decoders; i++)
        if (engine_failed(served->decoders[i].engine)) return true;
    return false;
}

static void embedder_part_close(struct embedder_part *part) {
    embedding_thread_close(part->thread);
    tokenizer_close(part->tokenizer);
    embedder_model_close(&part->own);
    free(part->name);
}

void served_models_close(struct served_models *served) {
    embedder_part_close(&served->reranker);
    for (int i = served->n_embedders - 1; i >= 0; i--) embedder_part_close(&served->embedders[i]);
    for (int i = served->n_decoders - 1; i >= 0; i--) decoder_part_close(&served->decoders[i]);
    picture_thread_close(served->pictures);
    fetcher_close(served->fetcher);
    host_rules_free(&served->image_hosts);
    free(served->decoders);
    free(served->embedders);
    free(served->served);
    free(served->served_embedders);
}
