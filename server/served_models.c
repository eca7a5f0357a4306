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
#include "server/host/prompt/prefixes.h"

/* Decoders. */

enum status served_models_engine_options(struct engine_options *o, const struct config *c,
                                         const struct model_info *info, struct error *e) {
    int k, max_neighbors = 0;
    if (info->chunk_length > 0 && check_neighbors(c, info, &k, &max_neighbors, e)) return e->status;
    *o = (struct engine_options){
        .grid = (enum grid_mode)c->retrieval.grid,
        .max_sequences = c->server.max_sequences,
        .max_queue = c->server.max_queue,
        .max_step_tokens = c->server.max_step_tokens,
        .max_picture = check_picture_rows(c, info),
        .prefix_cache_mb = c->server.prefix_cache_mb,
        .prefixes_of_filter = c->server.prefix_sharing == PREFIXES_OF_FILTER,
        .max_neighbors = max_neighbors,
        .max_k = c->retrieval.max_k,
        .rerank_candidates = rerank_candidates_of(&c->retrieval),
        .write_without = c->retrieval.away == AWAY_WRITE_WITHOUT,
        .passages = {.template = c->retrieval.template,
                     .max_tokens = c->retrieval.prompt_tokens,
                     .max_pictures = c->retrieval.prompt_pictures},
        .micro_batch_rows = c->parallel.micro_batch_rows,
        .view_seconds = 0.1,
    };
    return check_context(c, info, &o->max_context, e);
}

void served_models_init(struct served_models *p, const struct config *c) {
    size_t most = c->model.others.count + 2; /* the collection's, and its pictures' */
    *p = (struct served_models){.n_decoders = 1};
    p->decoders = xcalloc(most, sizeof *p->decoders);
    p->embedders = xcalloc(most, sizeof *p->embedders);
    p->served = xcalloc(most, sizeof *p->served);
    p->served_embedders = xcalloc(most, sizeof *p->served_embedders);
}

static enum status open_fetcher(struct served_models *p, const struct config *c, struct error *e) {
    const struct json_list *hosts = &c->server.image_urls;
    struct fetcher_options o = {.hosts = &p->image_hosts,
                                .seconds = c->server.image_timeout,
                                .seconds_option = "server.image_timeout",
                                .bytes_option = "server.image_bytes"};
    if (hosts->count == 0) return STATUS_OK;
    if (host_rules_open(&p->image_hosts, hosts->items, hosts->count, e)) return e->status;
    return fetcher_open(&p->fetcher, &o, e);
}

enum status served_models_open_pictures(struct served_models *p, const struct config *c, struct error *e) {
    if (open_fetcher(p, c, e)) return e->status;
    /* One request for each connection, and what the engine reads for those that it writes. */
    int capacity = c->server.max_connections + engine_lookups(c->server.max_sequences);
    struct picture_thread_options o = {capacity, p->fetcher, (size_t)c->server.image_bytes};
    if (picture_thread_open(&p->pictures, &o, e)) return e->status;
    for (size_t i = 0; i <= c->model.others.count; i++) p->decoders[i].pictures = p->pictures;
    return STATUS_OK;
}

static char *part_name(const char *name, const char *path) { return name[0] ? xstrdup(name) : path_name(path); }

static void log_sampling(const struct decoder_part *d, const struct config *c) {
    struct buffer text = {0};
    if (c->model.sampling_defaults) sampling_defaults_print(&model_info(d->opened.model)->generation.sampling, &text);
    if (text.size > 0) log_info("requests get %s from generation_config.json where they do not say", text.data);
    buffer_free(&text);
}

/* "1100.0 M parameters", and this rank's where there are others. */
static void log_model(const struct decoder_part *d) {
    const struct model_info *info = model_info(d->opened.model);
    const struct comm *world = d->opened.comm->world;
    char local[60] = "";
    if (world->size > 1) snprintf(local, sizeof local, " (%.1f M on this rank)", 1e-6 * (double)info->local_parameters);
    log_info("model %s: %s, %.1f M parameters%s, %s, %.1f MB", d->path, info->family, 1e-6 * (double)info->n_parameters,
             local, dtype_name(info->dtype), 1e-6 * (double)info->weight_bytes);
    log_info("backend %s, rank %d of %d, %s", backend_describe(d->opened.backend), world->rank, world->size,
             d->opened.comm->ops->name);
}

/* The tokenizer that the collection is cut with; NULL where it is not there any more. */
static const struct tokenizer *open_cutter(struct decoder_part *d, const struct collection_info *info) {
    struct error e;
    if (tokenizer_hash(d->tokenizer) == info->tokenizer_hash) return d->tokenizer;
    enum status status = tokenizer_open(&d->cutter, info->tokenizer, &e);
    if (status == STATUS_OK) status = collection_match_tokens(info, tokenizer_hash(d->cutter), info->chunk_length, &e);
    if (status == STATUS_OK) return d->cutter;
    log_warn("documents can be deleted, not added: %s", e.text);
    return NULL;
}

static enum status open_changes(struct decoder_part *d, const struct config *c, struct error *e) {
    struct snapshot *snapshot = collection_hold(d->documents.collection);
    const struct collection_info *info = snapshot->info;
    log_info("collection %s: %lld documents, %lld chunks, generation %d with %lld changes, embedder %s, searched on %s",
             c->retrieval.collection, (long long)snapshot->n_documents, (long long)snapshot->n_chunks,
             snapshot->generation, (long long)snapshot->n_changes, d->documents.embedder.name, c->retrieval.device);
    if (d->documents.pictures.self) log_info("pictures of the collection: embedder %s", d->documents.pictures.name);
    struct document_thread_options o = {.collection = d->documents.collection,
                                        .embedder = &d->documents.embedder,
                                        .pictures = embedder_if_open(&d->documents.pictures),
                                        .tokenizer = open_cutter(d, info),
                                        .chunk_length = info->chunk_length,
                                        .capacity = c->server.max_connections,
                                        .upload_seconds = c->retrieval.upload_seconds,
                                        .readers = c->retrieval.upload_readers,
                                        .compact_after = c->retrieval.compact_after};
    enum status status = document_thread_open(&d->changes, &o, e);
    snapshot_release(snapshot);
    return status;
}

static enum status open_documents(struct decoder_part *d, const struct config *c, struct error *e) {
    if (!documents_wanted(c) && c->retrieval.reranker[0])
        return error_set(e, STATUS_INVALID, "retrieval.reranker is for a collection: set retrieval.collection");
    if (!documents_wanted(c)) {
        log_info("no retrieval: retrieval.collection is not set");
        return STATUS_OK;
    }
    /* The engine's lookups, and one search for each connection. */
    int capacity = engine_lookups(c->server.max_sequences) + c->server.max_connections;
    int threads = c->retrieval.threads ? c->retrieval.threads : c->model.threads;
    struct documents *documents = &d->documents;
    if (documents_open(documents, c, model_info(d->opened.model), d->tokenizer, c->retrieval.max_k, e))
        return e->status;
    embedder_share(&documents->embedder); /* with clients that ask for vectors */
    if (documents->pictures.self) embedder_share(&documents->pictures);
    if (documents->reranker.self) embedder_share(&documents->reranker);
    if (retrieval_thread_open(&d->retrieval, documents->retriever, capacity, threads, e)) return e->status;
    return open_changes(d, c, e);
}

static int choose_eod(const struct decoder_part *d) {
    int eod = model_info(d->opened.model)->eod;
    return eod >= 0 ? eod : tokenizer_eod(d->tokenizer);
}

static struct end_ids choose_ends(const struct decoder_part *d) {
    struct end_ids ends = model_info(d->opened.model)->ends;
    if (ends.n == 0 && choose_eod(d) >= 0) ends = (struct end_ids){{choose_eod(d)}, 1};
    return ends;
}

/* The engine with the rows of server.prefixes, whose ids are not needed any more once it is open. */
static enum status open_with_prefixes(struct decoder_part *d, const struct config *c, struct engine_options *o,
                                      struct error *e) {
    const struct json_list *items = &c->server.prefixes;
    struct prefix_files files = {.n = (int)items->count, .folder = c->server.prefix_folder};
    struct engine_prefix *prefixes = xcalloc(items->count + 1, sizeof *prefixes);
    struct comm *world = d->opened.comm->world;
    struct prefix_list list;
    files.paths = xcalloc(items->count + 1, sizeof *files.paths);
    for (int i = 0; i < files.n; i++) files.paths[i] = ((const struct prefix_path *)items->items)[i].path;

    enum status status = prefixes_open(&list, &files, d->tokenizer, d->chat, e);
    for (int i = 0; i < list.n; i++) {
        const struct named_prefix *p = &list.list[i];
        prefixes[i] = (struct engine_prefix){.name = p->name, .ids = p->ids.ids, .n = p->ids.n, .file = p->stored};
    }
    o->prefixes = prefixes;
    o->n_prefixes = list.n;
    bool stores = list.n > 0 && files.folder[0] && world->size == 1;
    if (stores) o->identity = prefixes_identity(d->path, world, model_info(o->model), o->backend);
    if (status == STATUS_OK) status = engine_open(&d->engine, o, e);
    prefixes_close(&list);
    free(prefixes);
    free(files.paths);
    return status;
}

static enum status open_engine(struct decoder_part *d, const struct config *c, bool first, struct error *e) {
    struct engine_options o;
    if (served_models_engine_options(&o, c, model_info(d->opened.model), e)) return e->status;
    o.model = d->opened.model;
    o.backend = d->opened.backend;
    o.tokenizer = d->tokenizer;
    o.retrieval = d->retrieval;
    o.picture_input = d->picture_input.model ? &d->picture_input : NULL;
    o.pictures = d->pictures;
    o.passages.words = &d->picture_input.words;
    o.ends = d->ends = choose_ends(d);
    d->grammars = grammars_open(d->tokenizer, model_info(d->opened.model)->vocab, d->ends.ids, d->ends.n);
    if (first ? open_with_prefixes(d, c, &o, e) : engine_open(&d->engine, &o, e)) return e->status;
    log_info("sessions: %d sequences of %d tokens, %.1f MB", o.max_sequences, o.max_context,
             1e-6 * (double)engine_bytes(d->engine));
    return STATUS_OK;
}

/* All that an answer depends on beside the request and the collection: the model's folder and its tokenizer; the
 * program's version, the kernels, and the ranks and types that rows are computed and kept in. The number of threads
 * changes nothing. */
static enum status take_fingerprint(struct decoder_part *d, struct error *e) {
    const struct model_info *info = model_info(d->opened.model);
    const struct comm *world = d->opened.comm->world;
    const char *kernels = backend_describe(d->opened.backend);
    struct buffer model = {0}, how = {0};
    struct comm *alone;
    if (comm_open_single(&alone, e)) return e->status;
    model_identify(d->path, alone, &model);
    comm_close(alone);
    buffer_printf(&how, "%s %.*s %s %s %d %d", RETRO_VERSION, (int)strcspn(kernels, ","), kernels,
                  dtype_name(info->dtype), dtype_name(info->cache_dtype), world->size, world->stages);
    uint64_t hash = hash_bytes(model.data, model.size, tokenizer_hash(d->tokenizer));
    snprintf(d->fingerprint, sizeof d->fingerprint, "fp_%016llx_%08x", (unsigned long long)hash,
             (unsigned)hash_bytes(how.data, how.size, 0));
    buffer_free(&model);
    buffer_free(&how);
    return STATUS_OK;
}

/* Chats are refused without a template; all else works. */
static enum status open_chat(struct decoder_part *d, struct error *e) {
    enum status status = chat_open(&d->chat, d->path, e);
    if (status != STATUS_NOT_FOUND) return status;
    log_info("no chats: %s", e->text);
    return STATUS_OK;
}

/* Found pictures are read by their captions where the template does not tell how they stand in a text. */
static void open_words(struct decoder_part *d) {
    int32_t id = model_picture_id(d->opened.model);
    struct error e;
    if (d->chat && picture_words_open(&d->picture_input.words, d->chat, d->tokenizer, id, &e))
        log_info("found pictures are read by their captions: %s", e.text);
}

/* Pictures are refused where the folder does not say what to make of them; all else works. */
static enum status open_sight(struct decoder_part *d, const struct config *c, struct error *e) {
    const struct model *m = d->opened.model;
    if (model_info(m)->picture_rows == 0) return STATUS_OK;
    if (model_info(m)->max_positions > 0) {
        log_info("no pictures: the decoder has a table of positions, and pictures are served to decoders with RoPE");
        return STATUS_OK;
    }
    int rows = check_picture_rows(c, model_info(m));
    enum status status = picture_input_open(&d->picture_input, m, d->path, rows, e);
    if (status == STATUS_OK) {
        log_info("pictures: the tower reads them in %s%d rows", model_info(m)->any_picture ? "at most " : "", rows);
        open_words(d);
        return STATUS_OK;
    }
    d->picture_input.model = NULL;
    if (status != STATUS_NOT_FOUND) return status;
    log_info("no pictures: %s", e->text);
    return STATUS_OK;
}

enum status decoder_part_open(struct decoder_part *d, const struct config *c, bool documents, struct error *e) {
    const struct model_info *info = model_info(d->opened.model);
    if (!d->opening.started && tokenizer_opening_start(&d->opening, d->path, e)) return e->status;
    if (tokenizer_opening_finish(&d->opening, &d->tokenizer, e)) return e->status;
    log_model(d);
    log_sampling(d, c);
    if (check_vocabulary(info, d->tokenizer, d->path, e) || open_chat(d, e) || open_sight(d, c, e) ||
        take_fingerprint(d, e))
        return e->status;
    d->mode = retrieval_mode_of(RETRIEVAL_AUTO, info->chunk_length > 0);
    if (documents && (check_mode(c, info, &d->mode, e) || open_documents(d, c, e))) return e->status;
    return open_engine(d, c, documents, e);
}

static enum status plan_sessions(void *context, const struct model_info *info, struct session_limits *l,
                                 struct error *e) {
    struct engine_options o;
    if (served_models_engine_options(&o, context, info, e)) return e->status;
    *l = engine_limits(&o, info);
    return STATUS_OK;
}

static enum status open_decoder(struct served_models *p, const struct config *c, const struct other_model *other,
                                struct error *e) {
    struct decoder_part *d = &p->decoders[p->n_decoders];
    struct budget_use budget = {.limits = plan_sessions, .context = (void *)(uintptr_t)c};
    struct opened_model_use use = {.budget = &budget};
    if (c->parallel.tensor * c->parallel.pipeline > 1)
        return error_set(e, STATUS_UNSUPPORTED, "model.others has a decoder; decoders beside the first need one rank");
    if (opened_model_open(&d->opened, c, other->path, &use, e)) return e->status;
    p->n_decoders++;
    d->name = part_name(other->name, other->path);
    d->path = other->path;
    return decoder_part_open(d, c, false, e);
}

/* Embedders. */

static enum status open_embedder(struct embedder_part *part, const struct config *c, const struct embedder *embedder,
                                 const char *name, struct error *e) {
    part->embedder = embedder;
    part->name = part_name(name, embedder->name);
    if (tokenizer_open(&part->tokenizer, embedder->name, e)) return e->status;
    return embedding_thread_open(&part->thread, embedder, c->server.max_connections, e);
}

static enum status open_other(struct served_models *p, const struct config *c, const struct other_model *other,
                              struct error *e) {
    if (other->role == ROLE_DECODER) return open_decoder(p, c, other, e);
    struct embedder_part *part = &p->embedders[p->n_embedders];
    p->n_embedders++;
    if (embedder_model_open(&part->own, other->path, c, e)) return e->status;
    log_info("embedder %s: vectors of %d numbers", other->path, part->own.dim);
    return open_embedder(part, c, &part->own, other->name, e);
}

static const char *name_of(const struct served_models *p, int i) {
    int embedder = i - p->n_decoders;
    if (embedder < 0) return p->decoders[i].name;
    return embedder < p->n_embedders ? p->embedders[embedder].name : p->reranker.name;
}

static enum status check_names(const struct served_models *p, struct error *e) {
    int n = p->n_decoders + p->n_embedders + (p->reranker.name != NULL);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(name_of(p, i), name_of(p, j)) == 0)
                return error_set(e, STATUS_INVALID,
                                 "two models are called %s: give them names (model.name, \"name\" in model.others)",
                                 name_of(p, i));
    return STATUS_OK;
}

/* The pictures' own embedder, unless its name is that of the other one, by which requests would ask for either. */
static enum status open_picture_embedder(struct served_models *p, const struct config *c,
                                         const struct documents *documents, struct error *e) {
    if (documents->pictures.self == NULL) return STATUS_OK;
    char *name = path_name(documents->pictures.name);
    bool taken = strcmp(name, p->embedders[0].name) == 0;
    free(name);
    if (taken) {
        log_info("the embedder %s is not served by itself: another one has its name", documents->pictures.name);
        return STATUS_OK;
    }
    struct embedder_part *part = &p->embedders[p->n_embedders];
    p->n_embedders++;
    return open_embedder(part, c, &documents->pictures, "", e);
}

enum status served_models_open_others(struct served_models *p, const struct config *c, struct error *e) {
    const struct other_model *others = c->model.others.items;
    struct documents *documents = &p->decoders[0].documents;
    if (documents->retriever) {
        p->n_embedders++;
        if (open_embedder(&p->embedders[0], c, &documents->embedder, "", e) ||
            open_picture_embedder(p, c, documents, e))
            return e->status;
    }
    if (documents->reranker.self && open_embedder(&p->reranker, c, &documents->reranker, "", e)) return e->status;
    for (size_t i = 0; i < c->model.others.count; i++)
        if (open_other(p, c, &others[i], e)) return error_prefix(e, "model.others[%zu], %s", i, others[i].path);
    return check_names(p, e);
}

/* The API's snapshot. */

/* On a loopback address, or with keys, a client is somebody whom the operator lets in. */
static enum documents_access documents_access_of(const struct config *c, bool local) {
    if (c->retrieval.documents != DOCUMENTS_AUTO) return (enum documents_access)c->retrieval.documents;
    return local || c->server.keys_file[0] ? DOCUMENTS_WRITE : DOCUMENTS_READ;
}

/* Tokens of the passages in a prompt, and rows of the pictures among them. */
static int passage_tokens_of(const struct decoder_part *d, const struct config *c) {
    bool sees = d->retrieval && documents_seer(&d->documents)->sees && d->picture_input.words.text.size > 0;
    int pictures = sees ? c->retrieval.prompt_pictures * picture_input_least_rows(&d->picture_input) : 0;
    return c->retrieval.prompt_tokens + pictures;
}

static enum status serve_decoder(const struct decoder_part *d, const struct config *c, bool local,
                                 struct served_model *out, struct error *e) {
    const struct model_info *info = model_info(d->opened.model);
    bool attends = d->retrieval ? d->documents.attends : info->chunk_length > 0;
    int k = 0, max_neighbors = 0;
    if (info->chunk_length > 0 && check_neighbors(c, info, &k, &max_neighbors, e)) return e->status;
    *out = (struct served_model){
        .id = d->name,
        .fingerprint = d->fingerprint,
        .info = info,
        .tokenizer = d->tokenizer,
        .chat = d->chat,
        .picture_input = d->picture_input.model ? &d->picture_input : NULL,
        .picture_thread = d->pictures,
        .eod = choose_eod(d),
        .ends = d->ends,
        .engine = d->engine,
        .grammars = d->grammars,
        .retrieval = d->retrieval,
        .retriever = d->documents.retriever,
        .seer = d->retrieval ? documents_seer(&d->documents) : NULL,
        .collection = d->documents.collection,
        .document_thread = d->changes,
        .filter = d->documents.filter,
        .documents = documents_access_of(c, local),
        .upload_bytes = c->server.max_upload_text,
        .limits = {.vocab = info->vocab,
                   .max_prompts = c->server.max_prompts,
                   .max_choices = c->server.max_choices,
                   .max_stops = c->server.max_stops,
                   .max_biases = c->server.max_biases,
                   .max_logprobs = min_int(c->server.max_logprobs, info->vocab),
                   .retrieval = {.max_k = c->retrieval.max_k,
                                 .max_neighbors = max_neighbors,
                                 .min_every = c->retrieval.min_every,
                                 .max_excluded = c->retrieval.max_excluded,
                                 .max_filter_bytes = c->retrieval.max_filter_bytes},
                   .metadata = {c->retrieval.max_metadata_values, c->retrieval.max_metadata_bytes},
                   .max_prompts_option = "server.max_prompts",
                   .sampling = c->model.sampling_defaults ? &info->generation.sampling : NULL},
        .slots = c->server.max_sequences,
        .choice = c->retrieval.choice,
        .rerank_candidates = rerank_candidates_of(&c->retrieval),
        .usual_neighbors = k,
        .usual_passages = usual_passages(c),
        .attends = attends,
        .passage_tokens = passage_tokens_of(d, c),
    };
    out->choice.mode = d->mode;
    return check_context(c, info, &out->limits.context, e);
}

static void serve_embedder(const struct embedder_part *part, struct picture_thread *pictures, const struct config *c,
                           struct served_embedder *out) {
    *out = (struct served_embedder){
        .id = part->name,
        .embedder = part->embedder,
        .tokenizer = part->tokenizer,
        .thread = part->thread,
        .picture_thread = pictures,
        .limits = {.vocab = tokenizer_vocab_size(part->tokenizer),
                   .context = part->embedder->max_tokens,
                   .max_prompts = c->server.max_inputs,
                   .max_prompts_option = "server.max_inputs"},
    };
}

static void limits_raise(struct request_limits *most, const struct request_limits *l) {
    if (most->max_prompts_option == NULL) *most = *l;
    most->vocab = max_int(most->vocab, l->vocab);
    most->context = max_int(most->context, l->context);
    most->max_logprobs = max_int(most->max_logprobs, l->max_logprobs);
}

enum status served_models_serve(struct served_models *p, const struct config *c, struct api *a, struct error *e) {
    const struct host_rules *hosts = p->fetcher ? &p->image_hosts : NULL;
    for (int i = 0; i < p->n_decoders; i++) {
        if (serve_decoder(&p->decoders[i], c, a->local, &p->served[i], e)) return e->status;
        p->served[i].limits.image_hosts = hosts;
        limits_raise(&a->largest, &p->served[i].limits);
    }
    for (int i = 0; i < p->n_embedders; i++) {
        serve_embedder(&p->embedders[i], p->pictures, c, &p->served_embedders[i]);
        p->served_embedders[i].limits.image_hosts = hosts;
        limits_raise(&a->largest_embedder, &p->served_embedders[i].limits);
    }
    a->models = p->served;
    a->n_models = p->n_decoders;
    a->embedders = p->served_embedders;
    a->n_embedders = p->n_embedders;
    if (p->reranker.name) {
        serve_embedder(&p->reranker, NULL, c, &p->served_reranker);
        a->reranker = &p->served_reranker;
    }
    return STATUS_OK;
}

/* The end. */

void served_models_stop(struct served_models *p) {
    fetcher_stop(p->fetcher);
    picture_thread_stop(p->pictures);
    for (int i = 0; i < p->n_decoders; i++) engine_stop(p->decoders[i].engine);
    for (int i = 0; i < p->n_decoders; i++) retrieval_thread_stop(p->decoders[i].retrieval);
    for (int i = 0; i < p->n_decoders; i++) document_thread_stop(p->decoders[i].changes);
    for (int i = 0; i < p->n_embedders; i++) embedding_thread_stop(p->embedders[i].thread);
    embedding_thread_stop(p->reranker.thread);
}

bool served_models_failed(struct served_models *p) {
    for (int i = 0; i < p->n_decoders; i++)
        if (engine_failed(p->decoders[i].engine)) return true;
    return false;
}

static void embedder_part_close(struct embedder_part *part) {
    embedding_thread_close(part->thread);
    tokenizer_close(part->tokenizer);
    embedder_model_close(&part->own);
    free(part->name);
}

static void decoder_part_close(struct decoder_part *d) {
    engine_close(d->engine);
    grammars_close(d->grammars);
    retrieval_thread_close(d->retrieval);
    document_thread_close(d->changes);
    tokenizer_close(d->cutter);
    embedder_unshare(&d->documents.embedder);
    embedder_unshare(&d->documents.pictures);
    embedder_unshare(&d->documents.reranker);
    documents_close(&d->documents);
    tokenizer_opening_discard(&d->opening);
    picture_input_close(&d->picture_input);
    chat_close(d->chat);
    tokenizer_close(d->tokenizer);
    opened_model_close(&d->opened);
    free(d->name);
}

void served_models_close(struct served_models *p) {
    embedder_part_close(&p->reranker);
    for (int i = p->n_embedders - 1; i >= 0; i--) embedder_part_close(&p->embedders[i]);
    for (int i = p->n_decoders - 1; i >= 0; i--) decoder_part_close(&p->decoders[i]);
    picture_thread_close(p->pictures);
    fetcher_close(p->fetcher);
    host_rules_free(&p->image_hosts);
    free(p->decoders);
    free(p->embedders);
    free(p->served);
    free(p->served_embedders);
}
