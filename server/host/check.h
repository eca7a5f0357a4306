/* server/host/check.h: what the options, the model and the collection say of each other: the checks
 * of a start that need nothing loaded. The server asks them one by one as it opens its parts;
 * --check-config asks all at once. */
#pragma once

#include "retro/model/model.h"
#include "retro/text/tokenizer.h"
#include "server/host/options/config.h"
#include "server/host/options/retrieval_choice.h"
#include "server/host/prompt/picture_input.h"

/* Rows that a sequence may have: the model's limit, or a lower one of the operator. A model whose
 * positions have no end gets DEFAULT_CONTEXT, or what it was trained with where that is less:
 * caches of 128k tokens are asked for. */
enum { DEFAULT_CONTEXT = 4096 };
enum status check_context(const struct config *config, const struct model_info *model, int *context,
                          struct error *e);
/* Rows of the largest picture in the tower of a model that reads pictures: of the only size there
 * is, or those that server.max_picture_patches allows. */
int check_picture_rows(const struct config *config, const struct model_info *model);
/* Whether a step has room for a picture, in a model whose decoder reads one at once. */
enum status check_picture_steps(const struct config *config, const struct model *model,
                                struct error *e);
/* Likewise for pictures of any size, as they are made ready. */
enum status check_picture_rows_together(const struct config *config,
                                        const struct picture_input *input, struct error *e);
/* How the model reads what is found where a request does not say; never auto. */
enum status check_mode(const struct config *config, const struct model_info *model,
                       enum retrieval_mode *mode, struct error *e);
/* Whether the decoder of a folder can rewrite questions (retrieval.query), where it is to: it reads
 * passages in its prompt, and has a chat template. */
enum status check_query(const struct config *config, const struct model_info *model,
                        enum retrieval_mode mode, const char *folder, struct error *e);
/* Whether there is a collection for the reranker, where one is named. */
enum status check_reranker(const struct config *config, struct error *e);
/* Neighbours of a chunk for a model that attends to them, where a request does not say, and as many
 * as a request may ask for: retrieval.max_neighbors, at most retrieval.max_k. */
enum status check_neighbors(const struct config *config, const struct model_info *model, int *k,
                            int *most, struct error *e);
/* Passages of a prompt where a request does not say; at most retrieval.max_k. */
int usual_passages(const struct config *config);
/* Whether the model knows all ids of its folder's tokenizer. */
enum status check_vocabulary(const struct model_info *model, const struct tokenizer *tokenizer,
                             const char *folder, struct error *e);
/* A decoder that is open for checking: its context, its sessions and its folder's tokenizer. */
enum status check_model(const struct config *config, const char *folder, const struct model *model,
                        struct error *e);
/* Limits that contradict each other. A server starts with them, keeps to the lower one and says so;
 * --check-config refuses them. */
enum status check_limits(const struct config *config, struct error *e);

/* All of these, what the files of all models, collection and embedder say, and limits that
 * contradict each other. Loads no weights and no index, takes no device and no address. STATUS_OK:
 * what can still fail needs the machine. */
enum status check_configuration(const struct config *config, struct error *e);
