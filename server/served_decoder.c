/* server/served_decoder.c: see served_decoder.h. */
#include "server/served_decoder.h"

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
#include "server/host/prompt/conversations.h"
#include "server/host/prompt/prefixes.h"

enum status served_engine_options(struct engine_options *options, const struct config *config,
                                  const struct model_info *info, struct error *e) {
    int k, max_neighbors = 0;
    if (info->chunk_length > 0 && check_neighbors(config, info, &k, &max_neighbors, e))
        return e->status;
    *options = (struct engine_options){
        .grid = (enum grid_mode)config->retrieval.grid,
        .max_sequences = config->server.max_sequences,
        .max_queue = config->server.max_queue,
        .max_step_tokens = config->server.max_step_tokens,
        .drafts = (enum drafts_choice)config->server.drafts,
        .max_picture = check_picture_rows(config, info),
        .prefix_cache_mb = config->server.prefix_cache_mb,
        .prefixes_of_filter = config->server.prefix_sharing == PREFIXES_OF_FILTER,
        .max_neighbors = max_neighbors,
        .max_k = config->retrieval.max_k,
        .rerank_candidates = rerank_candidates_of(&config->retrieval),
        .write_without = config->retrieval.away == AWAY_WRITE_WITHOUT,
        .passages = {.template = config->retrieval.template,
                     .again = config->retrieval.again,
                     .max_tokens = config->retrieval.prompt_tokens,
                     .max_earlier = config->retrieval.conversation_tokens,
                     .max_pictures = config->retrieval.prompt_pictures},
        .micro_batch_rows = config->parallel.micro_batch_rows,
        .cache_folder_bytes = (int64_t)config->server.cache_folder_mb * 1000000,
        .view_seconds = 0.1,
    };
    return check_context(config, info, &options->max_context, e);
}

static void log_sampling(const struct decoder_part *part, const struct config *config) {
    const struct generation_config *generation = &model_info(part->opened.model)->generation;
    struct buffer text = {0};
    if (config->model.sampling_defaults) sampling_defaults_print(&generation->sampling, &text);
    if (text.size > 0)
        log_info(
            "requests get %s from %s where they do not say", text.data,
            generation->from_keys ? "general.sampling of the GGUF file" : "generation_config.json");
    buffer_free(&text);
}

/* "1100.0 M parameters", and this rank's where there are others. */
static void log_model(const struct decoder_part *part) {
    const struct model_info *info = model_info(part->opened.model);
    const struct comm *world = part->opened.comm->world;
    char local[60] = "";
    if (world->size > 1)
        snprintf(local, sizeof local, " (%.1f M on this rank)",
                 1e-6 * (double)info->local_parameters);
    log_info("model %s: %s, %.1f M parameters%s, %s, %.1f MB", part->path, info->family,
             1e-6 * (double)info->n_parameters, local, dtype_name(info->dtype),
             1e-6 * (double)info->weight_bytes);
    log_info("backend %s, rank %d of %d, %s", backend_describe(part->opened.backend), world->rank,
             world->size, part->opened.comm->ops->name);
}

/* The tokenizer that the collection is cut with; NULL where it is not there any more. */
static const struct tokenizer *open_cutter(struct decoder_part *part,
                                           const struct collection_info *info) {
    struct error e;
    if (part->tokenizer && tokenizer_hash(part->tokenizer) == info->tokenizer_hash)
        return part->tokenizer;
    enum status status = tokenizer_open(&part->cutter, info->tokenizer, &e);
    if (status == STATUS_OK)
        status =
            collection_match_tokens(info, tokenizer_hash(part->cutter), info->chunk_length, &e);
    if (status == STATUS_OK) return part->cutter;
    log_warn("documents can be deleted, not added: %s", e.text);
    return NULL;
}

static enum status open_changes(struct decoder_part *part, const struct config *config,
                                struct error *e) {
    struct snapshot *snapshot = collection_hold(part->documents.collection);
    const struct collection_info *info = snapshot->info;
    log_info(
        "collection %s: %lld documents, %lld chunks, generation %d with %lld changes, embedder %s, "
        "searched on %s",
        config->retrieval.collection, (long long)snapshot->n_documents,
        (long long)snapshot->n_chunks, snapshot->generation, (long long)snapshot->n_changes,
        part->documents.embedder.name, config->retrieval.device);
    if (part->documents.pictures.self)
        log_info("pictures of the collection: embedder %s", part->documents.pictures.name);
    struct document_thread_options options = {
        .collection = part->documents.collection,
        .embedder = &part->documents.embedder,
        .pictures = embedder_if_open(&part->documents.pictures),
        .tokenizer = open_cutter(part, info),
        .rules = chunk_rules_of(info),
        .capacity = config->server.max_connections,
        .upload_seconds = config->retrieval.upload_seconds,
        .readers = config->retrieval.upload_readers,
        .ocr = {.off = !config->retrieval.ocr,
                .languages = config->retrieval.ocr_languages,
                .page_seconds = config->retrieval.page_seconds},
        .compact_after = config->retrieval.compact_after};
    enum status status = opened_reader_open(&part->reader, &config->extract, e);
    options.model = opened_reader_model(&part->reader);
    if (status == STATUS_OK)
        status = kept_files_open(&part->files, config->retrieval.collection,
                                 (enum keep_files)config->retrieval.keep_files, e);
    options.files = kept_files_folder(part->files);
    if (status == STATUS_OK) status = document_thread_open(&part->changes, &options, e);
    if (status == STATUS_OK)
        status =
            page_thread_open(&part->pages, options.collection, part->files, options.capacity, e);
    snapshot_release(snapshot);
    return status;
}

enum status decoder_part_open_documents(struct decoder_part *part, const struct config *config,
                                        struct error *e) {
    if (check_reranker(config, e)) return e->status;
    if (!documents_wanted(config)) {
        log_info("no retrieval: retrieval.collection is not set");
        return STATUS_OK;
    }
    /* The engine's lookups, and one search for each connection. */
    int capacity = engine_lookups(config->server.max_sequences) + config->server.max_connections;
    int threads = config->retrieval.threads ? config->retrieval.threads : config->model.threads;
    struct documents *documents = &part->documents;
    const struct model_info *info = part->opened.model ? model_info(part->opened.model) : NULL;
    if (documents_open(documents, config, info, part->tokenizer, config->retrieval.max_k, e))
        return e->status;
    embedder_share(&documents->embedder); /* with clients that ask for vectors */
    if (documents->pictures.self) embedder_share(&documents->pictures);
    if (documents->reranker.self) embedder_share(&documents->reranker);
    documents->follower =
        (struct embedder_follower){.config = config,
                                   .first = &documents->embedder,
                                   .pictures = embedder_if_open(&documents->pictures),
                                   .shares = true};
    embedders_follow(&documents->follower, documents->collection);
    if (retrieval_thread_open(&part->retrieval, documents->retriever, capacity, threads, e))
        return e->status;
    return open_changes(part, config, e);
}

int decoder_part_eod(const struct decoder_part *part) {
    int eod = model_info(part->opened.model)->eod;
    return eod >= 0 ? eod : tokenizer_eod(part->tokenizer);
}

static struct end_ids choose_ends(const struct decoder_part *part) {
    struct end_ids ends = model_info(part->opened.model)->ends;
    if (ends.n == 0 && decoder_part_eod(part) >= 0)
        ends = (struct end_ids){{decoder_part_eod(part)}, 1};
    return ends;
}

/* The engine with the rows of server.prefixes, whose ids are not needed any more once it is open.
 */
static enum status open_with_prefixes(struct decoder_part *part, const struct config *config,
                                      struct engine_options *options, struct error *e) {
    const struct json_list *items = &config->server.prefixes;
    struct prefix_files files = {.n = (int)items->count,
                                 .folder = config->server.prefix_folder,
                                 .model = model_info(options->model),
                                 .context = options->max_context};
    struct engine_prefix *prefixes = xcalloc(items->count + 1, sizeof *prefixes);
    struct comm *world = part->opened.comm->world;
    struct prefix_list list;
    files.paths = xcalloc(items->count + 1, sizeof *files.paths);
    for (int i = 0; i < files.n; i++)
        files.paths[i] = ((const struct prefix_path *)items->items)[i].path;

    enum status status = prefixes_open(&list, &files, part->tokenizer, part->chat, e);
    for (int i = 0; i < list.n; i++) {
        const struct named_prefix *prefix = &list.list[i];
        prefixes[i] = (struct engine_prefix){.name = prefix->name,
                                             .ids = prefix->ids.ids,
                                             .n = prefix->ids.n,
                                             .file = prefix->stored};
    }
    options->prefixes = prefixes;
    options->n_prefixes = list.n;
    options->cache_folder = config->server.cache_folder;
    bool stores = (list.n > 0 && files.folder[0]) || options->cache_folder[0];
    if (stores && world->size == 1)
        options->identity =
            prefixes_identity(part->path, world, model_info(options->model), options->backend);
    if (status == STATUS_OK) status = engine_open(&part->engine, options, e);
    prefixes_close(&list);
    free(prefixes);
    free(files.paths);
    return status;
}

static enum status open_engine(struct decoder_part *part, const struct config *config, bool first,
                               struct error *e) {
    struct engine_options options;
    if (served_engine_options(&options, config, model_info(part->opened.model), e))
        return e->status;
    options.model = part->opened.model;
    options.backend = part->opened.backend;
    options.tokenizer = part->tokenizer;
    options.retrieval = part->retrieval;
    options.collection = part->documents.collection;
    options.picture_input = part->picture_input.model ? &part->picture_input : NULL;
    options.pictures = part->pictures;
    options.passages.words = &part->picture_input.words;
    options.ends = part->ends = choose_ends(part);
    part->grammars = grammars_open(part->tokenizer, model_info(part->opened.model)->vocab,
                                   part->ends.ids, part->ends.n);
    if (first ? open_with_prefixes(part, config, &options, e)
              : engine_open(&part->engine, &options, e))
        return e->status;
    log_info("sessions: %d sequences of %d tokens, %.1f MB; the cache has %zu bytes a token",
             options.max_sequences, options.max_context, 1e-6 * (double)engine_bytes(part->engine),
             model_info(part->opened.model)->cache_row_bytes);
    return STATUS_OK;
}

/* All that an answer depends on beside the request and the collection: the model's folder and its
 * tokenizer; the program's version, the kernels, and the ranks and types that rows are computed and
 * kept in. The number of threads changes nothing. */
static enum status take_fingerprint(struct decoder_part *part, struct error *e) {
    const struct model_info *info = model_info(part->opened.model);
    const struct comm *world = part->opened.comm->world;
    const char *kernels = backend_describe(part->opened.backend);
    struct buffer model = {0}, how = {0};
    struct comm *alone;
    if (comm_open_single(&alone, e)) return e->status;
    model_identify(part->path, alone, &model);
    comm_close(alone);
    buffer_printf(&how, "%s %.*s %s %s %d %d", RETRO_VERSION, (int)strcspn(kernels, ","), kernels,
                  dtype_name(info->dtype), dtype_name(info->cache_dtype), world->size,
                  world->stages);
    uint64_t hash = hash_bytes(model.data, model.size, tokenizer_hash(part->tokenizer));
    snprintf(part->fingerprint, sizeof part->fingerprint, "fp_%016llx_%08x",
             (unsigned long long)hash, (unsigned)hash_bytes(how.data, how.size, 0));
    buffer_free(&model);
    buffer_free(&how);
    return STATUS_OK;
}

/* A model without a template is asked by questions and answers. One that an encoder reads for holds
 * no conversations; all else works. */
static enum status open_chat(struct decoder_part *part, struct error *e) {
    enum status status = chat_open(&part->chat, part->path, e);
    if (status != STATUS_NOT_FOUND) return status;
    if (model_info(part->opened.model)->reads_source) {
        log_info("no chats: %s", e->text);
        return STATUS_OK;
    }
    log_info("chats are questions and answers as plain text: %s", e->text);
    return chat_open_plain(&part->chat, part->tokenizer, e);
}

/* Found pictures are read by their captions where the template does not tell how they stand in a
 * text. */
static void open_words(struct decoder_part *part) {
    int32_t id = model_picture_id(part->opened.model);
    struct error e;
    if (part->chat &&
        picture_words_open(&part->picture_input.words, part->chat, part->tokenizer, id, &e))
        log_info("found pictures are read by their captions: %s", e.text);
}

/* Pictures are refused where the folder does not say what to make of them; all else works. */
static enum status open_sight(struct decoder_part *part, const struct config *config,
                              struct error *e) {
    const struct model *model = part->opened.model;
    if (model_info(model)->picture_rows == 0) return STATUS_OK;
    if (model_info(model)->max_positions > 0) {
        log_info(
            "no pictures: the decoder has a table of positions, and pictures are served to "
            "decoders with RoPE");
        return STATUS_OK;
    }
    if (check_picture_steps(config, model, e)) return e->status;
    int rows = check_picture_rows(config, model_info(model));
    enum status status =
        picture_input_open(&part->picture_input, model, part->tokenizer, part->path, rows, e);
    if (status == STATUS_OK && check_picture_rows_together(config, &part->picture_input, e))
        return e->status;
    if (status == STATUS_OK) {
        log_info("pictures: the tower reads them in %s%d rows",
                 model_info(model)->any_picture ? "at most " : "", rows);
        open_words(part);
        return STATUS_OK;
    }
    part->picture_input.model = NULL;
    if (status != STATUS_NOT_FOUND) return status;
    log_info("no pictures: %s", e->text);
    return STATUS_OK;
}

static enum status check_rewrites(const struct decoder_part *part, const struct config *config,
                                  struct error *e) {
    if (!documents_wanted(config)) return STATUS_OK;
    return check_query(config, model_info(part->opened.model), part->mode, part->path, e);
}

enum status decoder_part_open(struct decoder_part *part, const struct config *config,
                              bool documents, struct error *e) {
    const struct model_info *info = model_info(part->opened.model);
    if (!part->opening.started && tokenizer_opening_start(&part->opening, part->path, e))
        return e->status;
    if (tokenizer_opening_finish(&part->opening, &part->tokenizer, e)) return e->status;
    log_model(part);
    log_sampling(part, config);
    if (check_vocabulary(info, part->tokenizer, part->path, e) || open_chat(part, e) ||
        open_sight(part, config, e) || take_fingerprint(part, e))
        return e->status;
    part->mode = retrieval_mode_of(RETRIEVAL_AUTO, info->chunk_length > 0);
    if (documents && (check_mode(config, info, &part->mode, e) || check_rewrites(part, config, e) ||
                      decoder_part_open_documents(part, config, e)))
        return e->status;
    part->conversations = conversations_open((size_t)config->retrieval.conversations_mb << 20,
                                             config->server.prefix_sharing == PREFIXES_OF_FILTER);
    return open_engine(part, config, documents, e);
}

void decoder_part_close(struct decoder_part *part) {
    engine_close(part->engine);
    conversations_close(part->conversations);
    grammars_close(part->grammars);
    retrieval_thread_close(part->retrieval);
    page_thread_close(part->pages);
    document_thread_close(part->changes);
    opened_reader_close(&part->reader);
    kept_files_close(part->files);
    tokenizer_close(part->cutter);
    embedder_unshare(&part->documents.embedder);
    embedder_unshare(&part->documents.pictures);
    embedder_unshare(&part->documents.reranker);
    documents_close(&part->documents);
    tokenizer_opening_discard(&part->opening);
    picture_input_close(&part->picture_input);
    chat_close(part->chat);
    tokenizer_close(part->tokenizer);
    opened_model_close(&part->opened);
    free(part->name);
}
