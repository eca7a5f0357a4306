/* server/served_decoder.h: a model that writes, with all that serves it. */
#pragma once

#include "server/api/api.h"
#include "server/host/documents/documents.h"
#include "server/host/models/opened_model.h"
#include "server/host/models/opened_tokenizer.h"
#include "server/host/options/extract_options.h"
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
    struct chat *chat;                  /* NULL: the model holds no conversations */
    struct picture_input picture_input; /* model NULL: it reads no pictures */
    struct picture_thread *pictures;    /* borrowed */
    enum retrieval_mode mode;           /* of retrieval, where a request does not say */
    struct documents documents;         /* this and the next only with retrieval.collection */
    struct retrieval_thread *retrieval;
    struct tokenizer *cutter; /* that the collection is cut with, where it is not the model's */
    struct document_thread *changes;
    struct opened_reader reader;         /* of the pages of uploads */
    struct kept_files *files;            /* of the documents */
    struct page_thread *pages;           /* draws them; NULL: there are no files */
    struct conversations *conversations; /* what chats with the model have read */
    struct engine *engine;
    struct end_ids ends; /* what ends a text */
    struct grammars *grammars;
};

/* The engine's sizes, without what it works with. */
enum status served_engine_options(struct engine_options *options, const struct config *config,
                                  const struct model_info *info, struct error *e);

/* The tokenizer and, for the first one, the collection; then the engine. The model is open. */
enum status decoder_part_open(struct decoder_part *part, const struct config *config,
                              bool documents, struct error *e);
/* The collection, and the threads that search and change it. The part may be zeroed: then there is
 * no model that they are of. */
enum status decoder_part_open_documents(struct decoder_part *part, const struct config *config,
                                        struct error *e);
void decoder_part_close(struct decoder_part *part);
/* The token that begins an empty text and pads others, -1: none. */
int decoder_part_eod(const struct decoder_part *part);
