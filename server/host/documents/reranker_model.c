/* server/host/documents/reranker_model.c: a backend and a scorer behind struct embedder. See
 * reranker_model.h. */
#include "server/host/documents/reranker_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reranker_model {
    struct backend *backend;
    struct scorer *scorer;
    char *name;
};

/* Token rows of one forward, as an embedder's. */
enum { RERANKER_CPU_ROWS = 256, RERANKER_GPU_ROWS = 2048 };

static struct scorer_options reranker_options(const struct config *config) {
    bool on_cpu = strcmp(config->model.device, "cpu") == 0;
    return (struct scorer_options){
        .encoder = {.model = model_options_of(config->retrieval.embedder_dtype, MODEL_DTYPE_AUTO),
                    .max_rows = on_cpu ? RERANKER_CPU_ROWS : RERANKER_GPU_ROWS,
                    .max_tokens = config->retrieval.reranker_tokens},
        .instruction = config->retrieval.reranker_instruction};
}

static enum status reranker_score(void *self, const struct embed_request *embed_request,
                                  struct error *e) {
    struct reranker_model *model = self;
    struct scorer_request request = {.query = embed_request->query,
                                     .texts = embed_request->texts,
                                     .n = embed_request->n,
                                     .logits = embed_request->vectors,
                                     .n_tokens = embed_request->n_tokens};
    enum status status = scorer_score(model->scorer, &request, e);
    for (int i = 0; i < embed_request->n && status == STATUS_OK; i++)
        embed_request->vectors[i] = 1 / (1 + expf(-embed_request->vectors[i]));
    return status;
}

enum status reranker_model_open(struct embedder *out, const char *folder,
                                const struct config *config, struct error *e) {
    struct backend_options backend = {
        .threads = config->retrieval.threads ? config->retrieval.threads : config->model.threads};
    struct scorer_options options = reranker_options(config);
    struct reranker_model *model = xcalloc(1, sizeof *model);
    *out = (struct embedder){.self = model};
    enum status status = backend_open(&model->backend, config->model.device, &backend, e);
    if (status == STATUS_OK)
        status = scorer_open(&model->scorer, folder, model->backend, &options, e);
    if (status) {
        reranker_model_close(out);
        return error_prefix(e, "reranker");
    }
    model->name = xstrdup(folder);
    out->dim = 1;
    out->max_tokens = scorer_max_tokens(model->scorer);
    out->hash = scorer_hash(model->scorer);
    out->name = model->name;
    out->embed = reranker_score;
    for (int role = 0; role < EMBED_ROLES; role++) out->prompts[role] = "";
    return STATUS_OK;
}

enum status reranker_model_measure(struct encoder_bytes *out, const char *folder,
                                   const struct config *config, struct backend *backend,
                                   struct error *e) {
    struct scorer_options options = reranker_options(config);
    return scorer_measure(out, folder, backend, &options, e) ? error_prefix(e, "reranker")
                                                             : STATUS_OK;
}

void reranker_model_close(struct embedder *reranker) {
    struct reranker_model *model = reranker->self;
    if (model == NULL) return;
    scorer_close(model->scorer);
    if (model->backend) backend_close(model->backend);
    free(model->name);
    free(model);
    *reranker = (struct embedder){0};
}
