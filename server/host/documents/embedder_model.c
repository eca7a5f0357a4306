/* server/host/documents/embedder_model.c: a backend and an encoder behind struct embedder. See embedder_model.h. */
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

/* Token rows of one forward: enough to keep the matrix products busy. On a CPU few enough that what one layer hands to
 * the next stays in the second-level cache: with 2048 rows MiniLM in int8 is 15 % slower, and more where others use the
 * memory. */
enum { CPU_ROWS = 256, GPU_ROWS = 2048 };

static struct encoder_options options_of(const struct config *c) {
    return (struct encoder_options){.model = model_options_of(c->retrieval.embedder_dtype),
                                    .max_rows = strcmp(c->model.device, "cpu") == 0 ? CPU_ROWS : GPU_ROWS,
                                    .max_tokens = c->retrieval.embedder_tokens};
}

/* The whole picture is one tile. */
static enum status read_picture(const void *self, struct text_span file, struct embedder_picture *out,
                                struct error *e) {
    const struct embedder_model *m = self;
    struct picture picture = {0};
    struct picture_tiles tiles = {0};
    enum status status = picture_read(&picture, file, &picture_default_rules, e);
    if (status == STATUS_OK) status = preprocessor_run(&tiles, &m->preprocessor, &picture, e);
    picture_free(&picture);
    if (status == STATUS_OK) *out = (struct embedder_picture){tiles.pixels, tiles.height, tiles.width};
    return status;
}

static enum status embed_pictures(struct embedder_model *m, const struct embed_request *r, int dimensions,
                                  struct error *e) {
    for (int i = 0; i < r->n; i++) {
        const struct embedder_picture *p = &r->pictures[i];
        struct tower_picture picture = {p->pixels, p->height, p->width};
        float *vector = r->vectors + (size_t)i * (size_t)dimensions;
        if (encoder_embed_pictures(m->encoder, &picture, 1, dimensions, vector, e)) return e->status;
        if (r->n_tokens) r->n_tokens[i] = 0;
    }
    return STATUS_OK;
}

static enum status embed_texts(void *self, const struct embed_request *r, struct error *e) {
    struct embedder_model *m = self;
    struct encoder_request request = {.texts = r->texts,
                                      .n = r->n,
                                      .prompt = m->prompts[r->role],
                                      .dimensions = r->dimensions ? r->dimensions : m->dim,
                                      .raw = r->raw,
                                      .vectors = r->vectors,
                                      .n_tokens = r->n_tokens};
    if (r->dimensions < 0 || r->dimensions > m->dim)
        return error_set(e, STATUS_INVALID, "%d dimensions; the embedder's vectors have %d", r->dimensions, m->dim);
    if (r->pictures) return embed_pictures(m, r, request.dimensions, e);
    return encoder_embed(m->encoder, &request, e);
}

static enum status choose_dimensions(struct embedder_model *m, const struct config *c, const char *folder,
                                     struct error *e) {
    int all = encoder_dim(m->encoder), wanted = c->retrieval.embedder_dimensions;
    m->dim = wanted ? wanted : all;
    if (wanted <= all) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "retrieval.embedder_dimensions is %d, the vectors of %s have %d", wanted,
                     folder, all);
}

/* A folder that does not say how pictures are made ready is an embedder of texts. */
static enum status open_sight(struct embedder_model *m, const char *folder, struct error *e) {
    if (!encoder_sees(m->encoder)) return STATUS_OK;
    enum status status = preprocessor_open(&m->preprocessor, folder, e);
    m->sees = status == STATUS_OK;
    if (m->sees && m->preprocessor.kind != PREPROCESSOR_PLAIN && m->preprocessor.kind != PREPROCESSOR_LLAVA)
        return error_set(e, STATUS_UNSUPPORTED, "%s: the image processor makes tiles; an embedder reads whole pictures",
                         folder);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/* The configuration's prompts, else the folder's. */
static void choose_prompts(struct embedder_model *m, const struct config *c) {
    static const enum encoder_role roles[EMBED_ROLES] = {
        [EMBED_PLAIN] = ENCODER_PLAIN, [EMBED_QUERY] = ENCODER_QUERY, [EMBED_DOCUMENT] = ENCODER_DOCUMENT};
    const char *set[EMBED_ROLES] = {
        [EMBED_PLAIN] = "", [EMBED_QUERY] = c->retrieval.query_prompt, [EMBED_DOCUMENT] = c->retrieval.document_prompt};
    for (int role = 0; role < EMBED_ROLES; role++) {
        const char *prompt = set[role][0] ? set[role] : encoder_prompt(m->encoder, roles[role]);
        m->prompts[role] = xstrdup(prompt);
    }
}

enum status embedder_model_open(struct embedder *out, const char *folder, const struct config *config,
                                struct error *e) {
    struct backend_options backend = {.threads = config->retrieval.threads ? config->retrieval.threads
                                                                           : config->model.threads};
    struct encoder_options options = options_of(config);
    struct embedder_model *m = xcalloc(1, sizeof *m);
    *out = (struct embedder){.self = m};
    enum status status = backend_open(&m->backend, config->model.device, &backend, e);
    if (status == STATUS_OK) status = encoder_open(&m->encoder, folder, m->backend, &options, e);
    if (status == STATUS_OK) status = choose_dimensions(m, config, folder, e);
    if (status == STATUS_OK) status = open_sight(m, folder, e);
    if (status) {
        embedder_model_close(out);
        return status;
    }
    choose_prompts(m, config);
    m->name = xstrdup(folder);
    out->dim = m->dim;
    out->raw = encoder_is_raw(m->encoder);
    out->sees = m->sees;
    out->max_tokens = encoder_max_tokens(m->encoder);
    out->hash = encoder_hash(m->encoder);
    out->name = m->name;
    out->embed = embed_texts;
    out->read_picture = read_picture;
    for (int role = 0; role < EMBED_ROLES; role++) out->prompts[role] = m->prompts[role];
    return STATUS_OK;
}

enum status embedder_model_measure(struct encoder_bytes *out, const char *folder, const struct config *config,
                                   struct backend *b, struct error *e) {
    struct encoder_options options = options_of(config);
    return encoder_measure(out, folder, b, &options, e);
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

enum status picture_embedder_open(struct embedder *out, const char *folder, const struct config *config,
                                  struct error *e) {
    const struct config own = config_of_pictures(config);
    if (embedder_model_open(out, folder, &own, e)) return e->status;
    if (out->sees) return STATUS_OK;
    embedder_model_close(out);
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s reads texts alone; retrieval.picture_embedder needs one that reads pictures, such as CLIP or "
                     "SigLIP",
                     folder);
}

enum status picture_embedder_measure(struct encoder_bytes *out, const char *folder, const struct config *config,
                                     struct backend *b, struct error *e) {
    const struct config own = config_of_pictures(config);
    return embedder_model_measure(out, folder, &own, b, e);
}

void embedder_model_close(struct embedder *embedder) {
    struct embedder_model *m = embedder->self;
    if (m == NULL) return;
    encoder_close(m->encoder);
    if (m->backend) backend_close(m->backend);
    for (int role = 0; role < EMBED_ROLES; role++) free(m->prompts[role]);
    free(m->name);
    free(m);
    *embedder = (struct embedder){0};
}
