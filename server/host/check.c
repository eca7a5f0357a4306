/* server/host/check.c: a configuration against the files it names. See check.h. */
#include "server/host/check.h"

#include <stdlib.h>

#include "retro/chat/chat.h"
#include "retro/run/session/session.h"
#include "retro/run/tower/picture_rows.h"
#include "server/host/documents/documents.h"
#include "server/host/documents/embedder_model.h"
#include "server/host/other_models.h"
#include "server/host/prompt/prefixes.h"

/* Passages in a prompt. */
enum { DEFAULT_PASSAGES = 4 };

enum status check_context(const struct config *config, const struct model_info *model, int *context,
                          struct error *e) {
    int most = model->max_positions, wanted = config->server.max_context,
        trained = model->trained_positions;
    if (most > 0 && wanted > most)
        return error_set(e, STATUS_INVALID, "server.max_context is %d, the model's limit is %d",
                         wanted, most);
    int usual = trained > 0 ? min_int(trained, DEFAULT_CONTEXT) : DEFAULT_CONTEXT;
    *context = wanted ? wanted : most ? most : usual;
    return STATUS_OK;
}

int check_picture_rows(const struct config *config, const struct model_info *model) {
    return model->any_picture ? min_int(config->server.max_picture_patches, model->picture_rows)
                              : model->picture_rows;
}

static enum status check_rows_together(const struct config *config, int rows, struct error *e) {
    if (rows <= config->server.max_step_tokens) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "server.max_step_tokens is %d, and one step reads all %d rows of a picture, "
                     "which see each other in this model: raise it to %d at least",
                     config->server.max_step_tokens, rows, rows);
}

enum status check_picture_steps(const struct config *config, const struct model *model,
                                struct error *e) {
    return check_rows_together(config, model_sees(model) ? picture_rows_together(model) : 0, e);
}

enum status check_picture_rows_together(const struct config *config,
                                        const struct picture_input *input, struct error *e) {
    return check_rows_together(config, picture_input_most_together(input), e);
}

enum status check_mode(const struct config *config, const struct model_info *model,
                       enum retrieval_mode *mode, struct error *e) {
    bool attends = model->chunk_length > 0;
    *mode = retrieval_mode_of(config->retrieval.choice.mode, attends);
    if (retrieval_attends(*mode) && !attends)
        return error_set(e, STATUS_INVALID,
                         "retrieval.mode is %s, and the model, a %s, has no chunked cross "
                         "attention; it is for prompt",
                         retrieval_mode_name(*mode), model->family);
    if (config->retrieval.choice.every > 0 && retrieval_attends(*mode))
        return error_set(e, STATUS_INVALID,
                         "retrieval.every is %d and retrieval.mode %s; by cross attention every "
                         "chunk has neighbours of "
                         "its own, so retrieval.every is for prompt",
                         config->retrieval.choice.every, retrieval_mode_name(*mode));
    return STATUS_OK;
}

enum status check_query(const struct config *config, const struct model_info *model,
                        enum retrieval_mode mode, const char *folder, struct error *e) {
    struct chat *chat;
    if (config->retrieval.choice.query != RETRIEVAL_BY_REWRITTEN) return STATUS_OK;
    if (!retrieval_prompts(mode))
        return error_set(e, STATUS_INVALID,
                         "retrieval.query is rewritten, which is for passages in a prompt, and "
                         "the model, a %s, reads neighbours by cross attention: set "
                         "retrieval.mode=prompt or retrieval.query=message",
                         model->family);
    if (model->reads_source)
        return error_set(e, STATUS_INVALID,
                         "retrieval.query is rewritten, and the model, a %s, holds no "
                         "conversations: set retrieval.query=message",
                         model->family);
    enum status status = chat_open(&chat, folder, e);
    if (status == STATUS_OK) chat_close(chat);
    if (status != STATUS_NOT_FOUND) return status;
    return error_set(e, STATUS_INVALID,
                     "retrieval.query is rewritten, and the model could not be asked for it: %s "
                     "has no chat template; set retrieval.query=conversation",
                     folder);
}

enum status check_reranker(const struct config *config, struct error *e) {
    if (documents_wanted(config) || config->retrieval.reranker[0] == '\0') return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "retrieval.reranker is for a collection: set retrieval.collection");
}

enum status check_neighbors(const struct config *config, const struct model_info *model, int *k,
                            int *most, struct error *e) {
    int room = config->retrieval.max_neighbors, max_k = config->retrieval.max_k;
    *k = config->retrieval.choice.k ? config->retrieval.choice.k : model->num_neighbors;
    *most = min_int(room ? room : max_int(*k, max_int(1, model->num_neighbors)), max_k);
    if (*k > max_k)
        return error_set(e, STATUS_INVALID, "the model reads %d neighbours, retrieval.max_k is %d",
                         *k, max_k);
    if (*k > *most)
        return error_set(e, STATUS_INVALID,
                         "the model reads %d neighbours, retrieval.max_neighbors is %d", *k, room);
    return STATUS_OK;
}

/* config_check keeps retrieval.k below retrieval.max_k. */
int usual_passages(const struct config *config) {
    return config->retrieval.choice.k ? config->retrieval.choice.k
                                      : min_int(DEFAULT_PASSAGES, config->retrieval.max_k);
}

enum status check_vocabulary(const struct model_info *model, const struct tokenizer *tokenizer,
                             const char *folder, struct error *e) {
    if (tokenizer_vocab_size(tokenizer) <= model->text_ids) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "%s: the tokenizer has %d ids, the model's vocabulary is %d", folder,
                     tokenizer_vocab_size(tokenizer), model->text_ids);
}

/* A request of as many prompts as are allowed is taken by an idle server. */
enum status check_limits(const struct config *config, struct error *e) {
    int room = config->server.max_sequences + config->server.max_queue;
    if (config->server.max_prompts <= room) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "server.max_prompts is %d, but only %d prompts can run or wait "
                     "(server.max_sequences %d and "
                     "server.max_queue %d): raise server.max_queue or lower server.max_prompts",
                     config->server.max_prompts, room, config->server.max_sequences,
                     config->server.max_queue);
}

static enum status check_sessions(const struct config *config, const struct model *model,
                                  struct error *e) {
    struct session_bytes bytes;
    struct session_limits limits = {
        .max_sessions = 1, .max_step_rows = 2, .max_logit_rows = 1, .max_neighbors = 1};
    if (check_context(config, model_info(model), &limits.max_tokens, e)) return e->status;
    limits.kv_dtype = DTYPE_F32;
    limits.max_source = model_info(model)->reads_source ? 1 : 0;
    return session_pool_measure(&bytes, model, &limits, e);
}

static enum status check_tokenizer(const struct model_info *info, const char *folder,
                                   struct tokenizer **out, struct error *e) {
    if (tokenizer_open(out, folder, e)) return e->status;
    return check_vocabulary(info, *out, folder, e);
}

enum status check_model(const struct config *config, const char *folder, const struct model *model,
                        struct error *e) {
    struct tokenizer *tokenizer = NULL;
    enum status status = check_sessions(config, model, e);
    if (status == STATUS_OK) status = check_tokenizer(model_info(model), folder, &tokenizer, e);
    tokenizer_close(tokenizer);
    return status;
}

/* The folder's words on pictures. Without its processor's file a start refuses pictures, and so
 * it does for a decoder with a table of positions. */
static enum status check_pictures(const struct config *config, const struct model *model,
                                  const struct tokenizer *tokenizer, struct error *e) {
    const struct model_info *info = model_info(model);
    struct picture_input input = {0};
    if (info->picture_rows == 0 || info->max_positions > 0) return STATUS_OK;
    if (check_picture_steps(config, model, e)) return e->status;
    enum status status = picture_input_open(&input, model, tokenizer, config->model.path,
                                            check_picture_rows(config, info), e);
    if (status == STATUS_NOT_FOUND) return STATUS_OK;
    if (status) return error_prefix(e, "model.path: %s", config->model.path);
    status = check_picture_rows_together(config, &input, e);
    picture_input_close(&input);
    return status;
}

static enum status check_documents(const struct config *config, const struct model_info *model,
                                   const struct tokenizer *tokenizer, struct backend *backend,
                                   struct error *e) {
    struct budget_parts parts = {0};
    if (!documents_wanted(config)) return STATUS_OK;
    if (documents_check(config, model, tokenizer, e) ||
        documents_measure(config, backend, &parts, e))
        return e->status;
    return STATUS_OK;
}

/* Rows in files. */
static enum status check_blocks(const struct config *config, const struct model *model,
                                struct error *e) {
    if (config->server.cache_folder[0] == '\0' || session_model_has_blocks(model, e) == STATUS_OK)
        return STATUS_OK;
    return error_prefix(e, "server.cache_folder");
}

/* The texts of server.prefixes; whether there is memory for their rows, a start tells. */
static enum status check_prefixes(const struct config *config, const struct model_info *model,
                                  const struct tokenizer *tokenizer, struct error *e) {
    const struct json_list *items = &config->server.prefixes;
    struct prefix_files files = {
        .n = (int)items->count, .folder = config->server.prefix_folder, .model = model};
    struct prefix_list list;
    struct chat *chat = NULL;
    if (check_context(config, model, &files.context, e)) return e->status;
    enum status status = files.n > 0 ? chat_open(&chat, config->model.path, e) : STATUS_OK;
    if (status == STATUS_NOT_FOUND)
        status = model->reads_source ? STATUS_OK : chat_open_plain(&chat, tokenizer, e);
    if (status) return status;

    files.paths = xcalloc(items->count + 1, sizeof *files.paths);
    for (int i = 0; i < files.n; i++)
        files.paths[i] = ((const struct prefix_path *)items->items)[i].path;
    status = prefixes_open(&list, &files, tokenizer, chat, e);
    prefixes_close(&list);
    free(files.paths);
    chat_close(chat);
    return status;
}

static enum status check_parts(const struct config *config, const struct model *model,
                               struct backend *backend, struct error *e) {
    const struct model_info *info = model_info(model);
    struct tokenizer *tokenizer = NULL;
    enum retrieval_mode mode;
    int k, most;
    enum status status = check_sessions(config, model, e);
    if (status) return error_prefix(e, "model.path: %s", config->model.path);
    status = check_blocks(config, model, e);
    if (status == STATUS_OK) status = check_mode(config, info, &mode, e);
    if (status == STATUS_OK && documents_wanted(config))
        status = check_query(config, info, mode, config->model.path, e);
    if (status == STATUS_OK && info->chunk_length > 0)
        status = check_neighbors(config, info, &k, &most, e);
    if (status == STATUS_OK) status = check_tokenizer(info, config->model.path, &tokenizer, e);
    if (status == STATUS_OK) status = check_pictures(config, model, tokenizer, e);
    if (status == STATUS_OK) status = check_prefixes(config, info, tokenizer, e);
    if (status == STATUS_OK) status = check_documents(config, info, tokenizer, backend, e);
    tokenizer_close(tokenizer);
    return status;
}

/* The one thing about a device that a CPU's backend cannot tell. */
static enum status check_cache_device(const struct config *config, struct error *e) {
    const char *device = backend_choose(config->model.device);
    if (config->model.cache_dtype != MODEL_DTYPE_INT8 || strcmp(device, "cpu") == 0)
        return STATUS_OK;
    return error_set(
        e, STATUS_UNSUPPORTED,
        "model.cache_dtype int8 is for the device \"cpu\", and model.device is %s: set "
        "model.cache_dtype to auto",
        config->model.device);
}

/* Whatever device it is for, a CPU's backend can check a model: it computes nothing. */
enum status check_configuration(const struct config *config, struct error *e) {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    struct model_options options = model_options_of(config->model.dtype, config->model.cache_dtype);
    options.check_only = true;
    if (check_limits(config, e) || check_cache_device(config, e) || check_reranker(config, e))
        return e->status;
    if (config->model.path[0] == '\0') return STATUS_OK;
    if (backend_open(&backend, "cpu", &(struct backend_options){.threads = 1}, e)) return e->status;
    enum status status = comm_open_single(&comm, e);
    if (status == STATUS_OK) {
        status = model_open(&model, config->model.path, backend, comm, &options, e);
        if (status == STATUS_OK) {
            status = check_parts(config, model, backend, e);
            model_close(model);
        }
        comm_close(comm);
    }
    if (status == STATUS_OK) status = other_models_check(config, backend, e);
    backend_close(backend);
    return status;
}
