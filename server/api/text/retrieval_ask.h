/* server/api/text/retrieval_ask.h: the texts that an answer reads beside its prompt: from a
 * request's field `retrieval` to what the engine is asked. */
#pragma once

#include "server/api/api.h"

/* Whether there is a reranker where a request wants one; on false *failure is set, `field` is where
 * it was said: "retrieval.rerank". */
bool retrieval_check_reranker(const struct served_model *model,
                              const struct retrieval_choice *choice, const char *field,
                              struct failure *failure);
/* Whether what an answer reads is sought in the model's collection. */
bool retrieval_searches(const struct served_model *model,
                        const struct request_retrieval *retrieval);
/* Whether an answer reads anything beside its prompt. */
bool retrieval_reads(const struct served_model *model, const struct request_retrieval *retrieval);
/* Gives the field the model's values where it says nothing, and checks it against the model;
 * once for a request, before all that follows. */
bool retrieval_settle(const struct served_model *model, struct request_retrieval *retrieval,
                      struct failure *failure);
/* Whether passages stand in the prompt: sought, or the request's. */
bool retrieval_reads_passages(const struct served_model *model,
                              const struct request_retrieval *retrieval);
/* Whether earlier turns of a chat keep theirs: those that were sought once. */
bool retrieval_keeps(const struct served_model *model, const struct request_retrieval *retrieval);
/* Neighbours and passages of one answer. */
bool retrieval_ask(const struct served_model *model, const struct request_retrieval *retrieval,
                   struct sequence_request *asked, struct failure *failure);
/* The same without the documents that the answer is to be compared without. */
bool retrieval_ask_without(const struct served_model *model,
                           const struct request_retrieval *retrieval,
                           struct sequence_request *asked, struct failure *failure);
