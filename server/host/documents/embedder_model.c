/* server/host/documents/embedder_model.c: a backend and an encoder behind struct embedder. See
 * embedder_model.h. */
#include "server/host/documents/embedder_model.h"

#include <stdlib.h>
#include <string.h>

#include "retro/pictures/preprocessor.h"

struct embedder_model {
    struct backend *backend;
    struct encoder *encoder;
    bool sees;
    struct preprocessor preprocessor; /* where it sees */
    int dim;                          /* of a vector where a request does not say */
    char *name;
    char *prompts[EMBED_ROLES];
};

/* Token rows of one forward: enough to keep the matrix products busy. On a CPU few enough that what
 * one layer hands to the next stays in the second-level cache: with 2048 rows MiniLM in int8 is 15
 * % slower, and more where others use the memory. */
enum { CPU_ROWS = 256, GPU_ROWS = 2048 };

static struct encoder_options options_of(const struct config *config) {
    return (struct encoder_options){
        .model = model_options_of(config->retrieval.embedder_dtype, MODEL_DTYPE_AUTO),
        .max_rows = strcmp(config->model.device, "cpu") == 0 ? CPU_ROWS : GPU_ROWS,
        .max_tokens = config->retrieval.embedder_tokens};
}

/* The whole picture is one tile. */
static enum status read_picture(const void *self, struct text_span file,
                                struct embedder_picture *out, struct error *e) {
    const struct embedder_model *model = self;
    struct picture picture = {0};
    struct picture_tiles tiles = {0};
    enum status status = picture_read(&picture, file, &picture_default_rules, e);
    if (status == STATUS_OK) status = preprocessor_run(&tiles, &model->preprocessor, &picture, e);
    picture_free(&picture);
    if (status == STATUS_OK)
        *out = (struct embedder_picture){tiles.pixels, tiles.height, tiles.width};
    return status;
}

static enum status embed_pictures(struct embedder_model *model, const struct embed_request *request,
                                  int dimensions, struct error *e) {
    for (int i = 0; i < request->n; i++) {
        const struct embedder_picture *embedder_picture = &request->pictures[i];
        struct tower_picture picture = {embedder_picture->pixels, embedder_picture->height,
                                        embedder_picture->width};
        float *vector = request->vectors + (size_t)i * (size_t)dimensions;
        if (encoder_embed_pictures(model->encoder, &picture, 1, dimensions, vector, e))
            return e->status;
        if (request->n_tokens) request->n_tokens[i] = 0;
    }
    return STATUS_OK;
}

static enum status embed_texts(void *self, const struct embed_request *embed_request,
                               struct error *e) {
    struct embedder_model *model = self;
    struct encoder_request request = {
        .texts = embed_request->texts,
        .n = embed_request->n,
        .prompt = model->prompts[embed_request->role],
        .dimensions = embed_request->dimensions ? embed_request->dimensions : model->dim,
        .raw = embed_request->raw,
        .vectors = embed_request->vectors,
        .n_tokens = embed_request->n_tokens,
        .sparse = embed_request->sparse};
    if (embed_request->dimensions < 0 || embed_request->dimensions > model->dim)
        return error_set(e, STATUS_INVALID, "%d dimensions; the embedder's vectors have %d",
                         embed_request->dimensions, model->dim);
    if (embed_request->pictures) return embed_pictures(model, embed_request, request.dimensions, e);
    return encoder_embed(model->encoder, &request, e);
}

static enum status choose_dimensions(struct embedder_model *model, const struct config *config,
                                     const char *folder, struct error *e) {
    int all = encoder_dim(model->encoder), wanted = config->retrieval.embedder_dimensions;
    model->dim = wanted ? wanted : all;
    if (wanted <= all) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "retrieval.embedder_dimensions is %d, the vectors of %s have %d", wanted,
                     folder, all);
}

/* A folder that does not say how pictures are made ready is an embedder of texts. */
static enum status open_sight(struct embedder_model *model, const char *folder, struct error *e) {
    if (!encoder_sees(model->encoder)) return STATUS_OK;
    enum status status = preprocessor_open(&model->preprocessor, folder, e);
    model->sees = status == STATUS_OK;
    if (model->sees && model->preprocessor.kind != PREPROCESSOR_PLAIN &&
        model->preprocessor.kind != PREPROCESSOR_LLAVA)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: the image processor makes tiles; an embedder reads whole pictures",
                         folder);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/* The configuration's prompts, else the folder's. */
static void choose_prompts(struct embedder_model *model, const struct config *config) {
    static const enum encoder_role roles[EMBED_ROLES] = {[EMBED_PLAIN] = ENCODER_PLAIN,
                                                         [EMBED_QUERY] = ENCODER_QUERY,
                                                         [EMBED_DOCUMENT] = ENCODER_DOCUMENT};
    const char *set[EMBED_ROLES] = {[EMBED_PLAIN] = "",
                                    [EMBED_QUERY] = config->retrieval.query_prompt,
                                    [EMBED_DOCUMENT] = config->retrieval.document_prompt};
    for (int role = 0; role < EMBED_ROLES; role++) {
        const char *prompt = set[role][0] ? set[role] : encoder_prompt(model->encoder, roles[role]);
        model->prompts[role] = xstrdup(prompt);
    }
}

enum status embedder_model_open(struct embedder *out, const char *folder,
                                const struct config *config, struct error *e) {
    struct backend_options backend = {
        .threads = config->retrieval.threads ? config->retrieval.threads : config->model.threads};
    struct encoder_options options = options_of(config);
    struct embedder_model *model = xcalloc(1, sizeof *model);
    *out = (struct embedder){.self = model};
    enum status status = backend_open(&model->backend, config->model.device, &backend, e);
    if (status == STATUS_OK)
        status = encoder_open(&model->encoder, folder, model->backend, &options, e);
    if (status == STATUS_OK) status = choose_dimensions(model, config, folder, e);
    if (status == STATUS_OK) status = open_sight(model, folder, e);
    if (status) {
        embedder_model_close(out);
        return status;
    }
    choose_prompts(model, config);
    model->name = xstrdup(folder);
    out->dim = model->dim;
    out->raw = encoder_is_raw(model->encoder);
    out->sees = model->sees;
    out->sparse = encoder_is_sparse(model->encoder);
    out->max_tokens = encoder_max_tokens(model->encoder);
    out->hash = encoder_hash(model->encoder);
    out->name = model->name;
    out->embed = embed_texts;
    out->read_picture = read_picture;
    for (int role = 0; role < EMBED_ROLES; role++) out->prompts[role] = model->prompts[role];
    return STATUS_OK;
}

enum status embedder_model_measure(struct encoder_bytes *out, const char *folder,
                                   const struct config *config, struct backend *backend,
                                   struct error *e) {
    struct encoder_options options = options_of(config);
    return encoder_measure(out, folder, backend, &options, e);
}

static struct config config_of_pictures(const struct config *config) {
    static char none[1];
    struct config own = *config;
    own.retrieval.embedder_dimensions = 0;
    own.retrieval.embedder_tokens = 0;
    own.retrieval.query_prompt = none;
    own.retrieval.document_prompt = none;
    return own;
}

enum status picture_embedder_open(struct embedder *out, const char *folder,
                                  const struct config *config, struct error *e) {
    const struct config own = config_of_pictures(config);
    if (embedder_model_open(out, folder, &own, e)) return e->status;
    if (out->sees) return STATUS_OK;
    embedder_model_close(out);
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s reads texts alone; retrieval.picture_embedder needs one that reads "
                     "pictures, such as CLIP or "
                     "SigLIP",
                     folder);
}

enum status picture_embedder_measure(struct encoder_bytes *out, const char *folder,
                                     const struct config *config, struct backend *backend,
                                     struct error *e) {
    const struct config own = config_of_pictures(config);
    return embedder_model_measure(out, folder, &own, backend, e);
}

void embedder_model_close(struct embedder *embedder) {
    struct embedder_model *model = embedder->self;
    if (model == NULL) return;
    encoder_close(model->encoder);
    if (model->backend) backend_close(model->backend);
    for (int role = 0; role < EMBED_ROLES; role++) free(model->prompts[role]);
    free(model->name);
    free(model);
    *embedder = (struct embedder){0};
}
