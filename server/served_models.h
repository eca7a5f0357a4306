/* server/served_models.h: the models that a server has open, each with what serves it: the one of
 * model.path, which may have a collection, and those of model.others. */
#pragma once

#include "server/served_decoder.h"

/* A model that embeds. */
struct embedder_part {
    struct embedder own;             /* of model.others */
    const struct embedder *embedder; /* that, or the collection's */
    char *name;
    struct tokenizer *tokenizer;
    struct embedding_thread *thread;
};

struct served_models {
    struct host_rules image_hosts; /* that the next fetches from */
    struct fetcher *fetcher;       /* NULL: nothing is fetched */
    struct picture_thread *pictures;
    struct decoder_part *decoders; /* [n_decoders] the first is that of model.path */
    int n_decoders;
    struct embedder_part
        *embedders; /* [n_embedders] the first is the collection's, where there is one */
    int n_embedders;
    struct embedder_part reranker; /* zeroed: there is none */
    struct served_model *served;   /* [n_decoders] */
    struct served_embedder *served_embedders;
    struct served_embedder served_reranker;
};

/* Room for all that the configuration names; served_models_close frees it. */
void served_models_init(struct served_models *served, const struct config *config);
/* The thread that reads pictures for all models, before any of them. */
enum status served_models_open_pictures(struct served_models *served, const struct config *config,
                                        struct error *e);
/* The collection's embedder and model.others, after the first decoder. */
enum status served_models_open_others(struct served_models *served, const struct config *config,
                                      struct error *e);
/* Fills in the models of the API. */
/* The right of clients to the documents: on a loopback address, or with keys, a client is somebody
 * whom the operator lets in. */
enum documents_access served_documents_access(const struct config *config, bool local);
enum status served_models_serve(struct served_models *served, const struct config *config,
                                struct api *api, struct error *e);

/* No thread works from here on. */
void served_models_stop(struct served_models *served);
bool served_models_failed(struct served_models *served); /* a device did */
void served_models_close(struct served_models *served);
