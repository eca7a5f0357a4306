/* server/served_models.h: the models that a server has open, each with what serves it: the one of
 * model.path, which may have a collection, and those of model.others. */
#pragma once

#include "server/api/api.h"
#include "server/host/documents/documents.h"
#include "server/host/models/opened_model.h"
#include "server/host/models/opened_tokenizer.h"
#include "server/host/prompt/picture_input.h"
#include "server/pictures/picture_thread.h"

/* A model that writes. */
struct decoder_part {
    struct opened_model opened;
    char *name;                       /* its id in the API */
    const char *path;                 /* of the configuration */
    char fingerprint[40];             /* "fp_", the model's checksum, and that of how it computes */
    struct tokenizer_opening opening; /* started before the model is loaded, or not at all */
    struct tokenizer *tokenizer;
    struct chat *chat;                  /* NULL: the model has no chat template */
    struct picture_input picture_input; /* model NULL: it reads no pictures */
    struct picture_thread *pictures;    /* borrowed */
    enum retrieval_mode mode;           /* of retrieval, where a request does not say */
    struct documents documents;         /* this and the next only with retrieval.collection */
    struct retrieval_thread *retrieval;
    struct tokenizer *cutter; /* that the collection is cut with, where it is not the model's */
    struct document_thread *changes;
    struct engine *engine;
    struct end_ids ends; /* what ends a text */
    struct grammars *grammars;
};

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

/* The engine's sizes, without what it works with. */
enum status served_models_engine_options(struct engine_options *options,
                                         const struct config *config, const struct model_info *info,
                                         struct error *e);

/* Room for all that the configuration names; served_models_close frees it. */
void served_models_init(struct served_models *served, const struct config *config);
/* The thread that reads pictures for all models, before any of them. */
enum status served_models_open_pictures(struct served_models *served, const struct config *config,
                                        struct error *e);
/* The tokenizer and, for the first one, the collection; then the engine. The model is open. */
enum status decoder_part_open(struct decoder_part *part, const struct config *config,
                              bool documents, struct error *e);
/* The collection's embedder and model.others, after the first decoder. */
enum status served_models_open_others(struct served_models *served, const struct config *config,
                                      struct error *e);
/* Fills in the models of the API. */
enum status served_models_serve(struct served_models *served, const struct config *config,
                                struct api *api, struct error *e);

/* No thread works from here on. */
void served_models_stop(struct served_models *served);
bool served_models_failed(struct served_models *served); /* a device did */
void served_models_close(struct served_models *served);
