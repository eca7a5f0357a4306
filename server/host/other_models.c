/* server/host/other_models.c: see other_models.h. */
#include "server/host/other_models.h"

#include <stdlib.h>
#include <string.h>

#include "server/host/check.h"
#include "server/host/documents/documents.h"
#include "server/host/documents/embedder_model.h"

/* Called with a decoder that is open for checking. */
typedef enum status decoder_visit(const struct config *c, const char *folder, const struct model *m,
                                  void *context, struct error *e);

static enum status visit_decoder(const struct config *config, const char *folder,
                                 struct backend *backend, decoder_visit *visit, void *context,
                                 struct error *e) {
    struct comm *comm;
    struct model *model;
    struct model_options options = model_options_of(config->model.dtype, config->model.cache_dtype);
    options.check_only = true;
    if (config->parallel.tensor * config->parallel.pipeline > 1)
        return error_set(e, STATUS_UNSUPPORTED, "decoders beside the first need one rank");
    if (comm_open_single(&comm, e)) return e->status;
    enum status status = model_open(&model, folder, backend, comm, &options, e);
    if (status == STATUS_OK) {
        status = visit(config, folder, model, context, e);
        model_close(model);
    }
    comm_close(comm);
    return status;
}

static enum status check_decoder(const struct config *config, const char *folder,
                                 const struct model *model, void *context, struct error *e) {
    (void)context;
    return check_model(config, folder, model, e);
}

enum status other_models_check_names(char *const *names, int n, struct error *e) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(names[i], names[j]) == 0)
                return error_set(e, STATUS_INVALID,
                                 "two models are called %s: give them names (model.name, \"name\" "
                                 "in model.others)",
                                 names[i]);
    return STATUS_OK;
}

char *served_name(const char *name, const char *path) {
    return name[0] ? xstrdup(name) : path_name(path);
}

struct model_names {
    char **names; /* [n], owned */
    int n, capacity;
};

static void add_name(struct model_names *list, const char *name, const char *path) {
    if (path[0] == '\0') return;
    list->names = xgrow(list->names, list->n, &list->capacity, sizeof *list->names);
    list->names[list->n] = served_name(name, path);
    list->n++;
}

/* An embedder that the collection alone names is not among them. */
static enum status check_names(const struct config *config, struct error *e) {
    const struct other_model *others = config->model.others.items;
    struct model_names list = {0};
    add_name(&list, config->model.name, config->model.path);
    for (size_t i = 0; i < config->model.others.count; i++)
        add_name(&list, others[i].name, others[i].path);
    if (documents_wanted(config)) {
        add_name(&list, "", config->retrieval.embedder);
        add_name(&list, "", config->retrieval.reranker);
    }
    enum status status = other_models_check_names(list.names, list.n, e);
    for (int i = 0; i < list.n; i++) free(list.names[i]);
    free(list.names);
    return status;
}

enum status other_models_check(const struct config *config, struct backend *backend,
                               struct error *e) {
    const struct other_model *others = config->model.others.items;
    for (size_t i = 0; i < config->model.others.count; i++) {
        const struct other_model *other = &others[i];
        struct encoder_bytes bytes;
        enum status status =
            other->role == ROLE_DECODER
                ? visit_decoder(config, other->path, backend, check_decoder, NULL, e)
                : embedder_model_measure(&bytes, other->path, config, backend, e);
        if (status) return error_prefix(e, "model.others[%zu], %s", i, other->path);
    }
    return check_names(config, e);
}

/* A sum over the models, and how sessions of a decoder are limited. */
struct others_sum {
    const struct budget_use *sessions;
    size_t bytes;
};

static enum status add_bytes(struct others_sum *sum, size_t bytes, struct error *e) {
    if (!add_overflows(sum->bytes, bytes, &sum->bytes)) return STATUS_OK;
    return error_set(e, STATUS_NO_MEMORY,
                     "the models of model.others do not fit the address space");
}

static enum status add_decoder(const struct config *config, const char *folder,
                               const struct model *model, void *context, struct error *e) {
    struct others_sum *sum = context;
    const struct model_info *info = model_info(model);
    struct session_limits limits;
    struct session_bytes bytes;
    (void)config, (void)folder;
    if (sum->sessions->limits(sum->sessions->context, info, &limits, e) ||
        session_pool_measure(&bytes, model, &limits, e) ||
        add_bytes(sum, budget_picture_rows(info, &limits), e))
        return e->status;
    return add_bytes(sum, session_bytes_all(&bytes) + (info->mapped ? 0 : info->weight_bytes), e);
}

static enum status add_embedder(const struct config *config, const char *folder,
                                struct backend *backend, struct others_sum *sum, struct error *e) {
    struct encoder_bytes bytes;
    if (embedder_model_measure(&bytes, folder, config, backend, e)) return e->status;
    return add_bytes(sum, encoder_bytes_own(&bytes), e);
}

enum status other_models_measure(const struct config *config, struct backend *backend,
                                 const struct budget_use *sessions, struct budget_parts *parts,
                                 struct error *e) {
    const struct other_model *others = config->model.others.items;
    struct others_sum sum = {.sessions = sessions};
    for (size_t i = 0; i < config->model.others.count; i++) {
        const struct other_model *other = &others[i];
        enum status status = other->role == ROLE_DECODER
                                 ? visit_decoder(config, other->path, backend, add_decoder, &sum, e)
                                 : add_embedder(config, other->path, backend, &sum, e);
        if (status == STATUS_OK) status = add_bytes(&sum, budget_model_overhead(other->path), e);
        if (status) return error_prefix(e, "model.others[%zu], %s", i, other->path);
    }
    if (config->model.others.count > 0)
        budget_add(parts, (struct budget_part){.name = "other models", .bytes = sum.bytes},
                   "take models out of model.others (%zu), or smaller ones",
                   config->model.others.count);
    return STATUS_OK;
}
