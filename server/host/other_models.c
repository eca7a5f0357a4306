/* server/host/other_models.c: see other_models.h. */
#include "server/host/other_models.h"

#include "server/host/check.h"
#include "server/host/documents/embedder_model.h"

/* Called with a decoder that is open for checking. */
typedef enum status decoder_visit(const struct config *c, const char *folder, const struct model *m, void *context,
                                  struct error *e);

static enum status visit_decoder(const struct config *c, const char *folder, struct backend *b, decoder_visit *visit,
                                 void *context, struct error *e) {
    struct comm *comm;
    struct model *m;
    struct model_options options = model_options_of(c->model.dtype);
    options.check_only = true;
    if (c->parallel.tensor * c->parallel.pipeline > 1)
        return error_set(e, STATUS_UNSUPPORTED, "decoders beside the first need one rank");
    if (comm_open_single(&comm, e)) return e->status;
    enum status status = model_open(&m, folder, b, comm, &options, e);
    if (status == STATUS_OK) {
        status = visit(c, folder, m, context, e);
        model_close(m);
    }
    comm_close(comm);
    return status;
}

static enum status check_decoder(const struct config *c, const char *folder, const struct model *m, void *context,
                                 struct error *e) {
    (void)context;
    return check_model(c, folder, m, e);
}

enum status other_models_check(const struct config *c, struct backend *b, struct error *e) {
    const struct other_model *others = c->model.others.items;
    for (size_t i = 0; i < c->model.others.count; i++) {
        const struct other_model *other = &others[i];
        struct encoder_bytes bytes;
        enum status status = other->role == ROLE_DECODER ? visit_decoder(c, other->path, b, check_decoder, NULL, e)
                                                         : embedder_model_measure(&bytes, other->path, c, b, e);
        if (status) return error_prefix(e, "model.others[%zu], %s", i, other->path);
    }
    return STATUS_OK;
}

/* A sum over the models, and how sessions of a decoder are limited. */
struct others_sum {
    const struct budget_use *sessions;
    size_t bytes;
};

static enum status add_bytes(struct others_sum *sum, size_t bytes, struct error *e) {
    if (!add_overflows(sum->bytes, bytes, &sum->bytes)) return STATUS_OK;
    return error_set(e, STATUS_NO_MEMORY, "the models of model.others do not fit the address space");
}

static enum status add_decoder(const struct config *c, const char *folder, const struct model *m, void *context,
                               struct error *e) {
    struct others_sum *sum = context;
    const struct model_info *info = model_info(m);
    struct session_limits limits;
    struct session_bytes bytes;
    (void)c, (void)folder;
    if (sum->sessions->limits(sum->sessions->context, info, &limits, e) || session_pool_measure(&bytes, m, &limits, e))
        return e->status;
    return add_bytes(sum, session_bytes_all(&bytes) + (info->mapped ? 0 : info->weight_bytes), e);
}

static enum status add_embedder(const struct config *c, const char *folder, struct backend *b, struct others_sum *sum,
                                struct error *e) {
    struct encoder_bytes bytes;
    if (embedder_model_measure(&bytes, folder, c, b, e)) return e->status;
    return add_bytes(sum, encoder_bytes_own(&bytes), e);
}

enum status other_models_measure(const struct config *c, struct backend *b, const struct budget_use *sessions,
                                 struct budget_parts *parts, struct error *e) {
    const struct other_model *others = c->model.others.items;
    struct others_sum sum = {.sessions = sessions};
    for (size_t i = 0; i < c->model.others.count; i++) {
        const struct other_model *other = &others[i];
        enum status status = other->role == ROLE_DECODER ? visit_decoder(c, other->path, b, add_decoder, &sum, e)
                                                         : add_embedder(c, other->path, b, &sum, e);
        if (status == STATUS_OK) status = add_bytes(&sum, budget_model_overhead(other->path), e);
        if (status) return error_prefix(e, "model.others[%zu], %s", i, other->path);
    }
    if (c->model.others.count > 0)
        budget_add(parts, (struct budget_part){.name = "other models", .bytes = sum.bytes},
                   "take models out of model.others (%zu), or smaller ones", c->model.others.count);
    return STATUS_OK;
}
