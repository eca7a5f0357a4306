/* server/host/documents/reranker_model.c: a backend and a scorer behind struct embedder. See reranker_model.h. */
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

static struct encoder_options reranker_options(const struct config *c) {
    return (struct encoder_options){
        .model = model_options_of(c->retrieval.embedder_dtype),
        .max_rows = strcmp(c->model.device, "cpu") == 0 ? RERANKER_CPU_ROWS : RERANKER_GPU_ROWS,
        .max_tokens = c->retrieval.reranker_tokens};
}

static enum status reranker_score(void *self, const struct embed_request *r, struct error *e) {
    struct reranker_model *m = self;
    struct scorer_request request = {
        .query = r->query, .texts = r->texts, .n = r->n, .logits = r->vectors, .n_tokens = r->n_tokens};
    enum status status = scorer_score(m->scorer, &request, e);
    for (int i = 0; i < r->n && status == STATUS_OK; i++) r->vectors[i] = 1 / (1 + expf(-r->vectors[i]));
    return status;
}

enum status reranker_model_open(struct embedder *out, const char *folder, const struct config *config,
                                struct error *e) {
    struct backend_options backend = {.threads = config->retrieval.threads ? config->retrieval.threads
                                                                           : config->model.threads};
    struct encoder_options options = reranker_options(config);
    struct reranker_model *m = xcalloc(1, sizeof *m);
    *out = (struct embedder){.self = m};
    enum status status = backend_open(&m->backend, config->model.device, &backend, e);
    if (status == STATUS_OK) status = scorer_open(&m->scorer, folder, m->backend, &options, e);
    if (status) {
        reranker_model_close(out);
        return error_prefix(e, "reranker");
    }
    m->name = xstrdup(folder);
    out->dim = 1;
    out->max_tokens = scorer_max_tokens(m->scorer);
    out->hash = scorer_hash(m->scorer);
    out->name = m->name;
    out->embed = reranker_score;
    for (int role = 0; role < EMBED_ROLES; role++) out->prompts[role] = "";
    return STATUS_OK;
}

enum status reranker_model_measure(struct encoder_bytes *out, const char *folder, const struct config *config,
                                   struct backend *b, struct error *e) {
    struct encoder_options options = reranker_options(config);
    return scorer_measure(out, folder, b, &options, e) ? error_prefix(e, "reranker") : STATUS_OK;
}

void reranker_model_close(struct embedder *reranker) {
    struct reranker_model *m = reranker->self;
    if (m == NULL) return;
    scorer_close(m->scorer);
    if (m->backend) backend_close(m->backend);
    free(m->name);
    free(m);
    *reranker = (struct embedder){0};
}
