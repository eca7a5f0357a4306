/* server/host/embedder_bert.c: a backend and an encoder behind struct embedder. See embedder_bert.h. */
#include "server/host/embedder_bert.h"

#include <stdlib.h>
#include <string.h>

struct bert {
    struct backend *backend;
    struct encoder *encoder;
    char *name;
};

/* Token rows of one forward: enough to keep the matrix products busy. On a CPU few enough that what one layer hands to
 * the next stays in the second-level cache: with 2048 rows MiniLM in int8 is 15 % slower, and more where others use the
 * memory. */
enum { CPU_ROWS = 256, GPU_ROWS = 2048 };

static int rows_for(const struct config *c) { return strcmp(c->model.device, "cpu") == 0 ? CPU_ROWS : GPU_ROWS; }

static enum status embed_texts(void *self, const struct text_span *texts, int n, float *vectors, struct error *e) {
    return encoder_embed(((struct bert *)self)->encoder, texts, n, vectors, e);
}

enum status embedder_bert_open(struct embedder *out, const char *folder, const struct config *config, struct error *e) {
    struct backend_options options = {.threads = config->retrieval.threads ? config->retrieval.threads
                                                                           : config->model.threads};
    struct model_options model = model_options_of(config->retrieval.embedder_dtype);
    struct bert *bert = xcalloc(1, sizeof *bert);
    *out = (struct embedder){.self = bert};
    enum status status = backend_open(&bert->backend, config->model.device, &options, e);
    if (status == STATUS_OK) status = encoder_open(&bert->encoder, folder, bert->backend, &model, rows_for(config), e);
    if (status) {
        embedder_bert_close(out);
        return status;
    }
    bert->name = xstrdup(folder);
    out->dim = encoder_dim(bert->encoder);
    out->max_tokens = encoder_max_tokens(bert->encoder);
    out->hash = encoder_hash(bert->encoder);
    out->name = bert->name;
    out->embed = embed_texts;
    return STATUS_OK;
}

enum status embedder_bert_measure(struct encoder_bytes *out, const char *folder, const struct config *config,
                                  struct backend *b, struct error *e) {
    struct model_options model = model_options_of(config->retrieval.embedder_dtype);
    return encoder_measure(out, folder, b, &model, rows_for(config), e);
}

void embedder_bert_close(struct embedder *embedder) {
    struct bert *bert = embedder->self;
    if (bert == NULL) return;
    encoder_close(bert->encoder);
    if (bert->backend) backend_close(bert->backend);
    free(bert->name);
    free(bert);
    *embedder = (struct embedder){0};
}
