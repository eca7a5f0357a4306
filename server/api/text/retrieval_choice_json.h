/* server/api/text/retrieval_choice_json.h: what an answer reads beside its prompt: from a request's field `retrieval`
 * to what the engine is asked. */
#pragma once

#include "server/api/api.h"

/* How the request's hits are chosen. */
/* Whether the model can choose so; on false *f is set, `field` is where it was said: "retrieval.rerank". */
bool reading_check_choice(const struct served_model *model, const struct request_choice *c, const char *field,
                          struct failure *f);
struct retriever_choice reading_choice(const struct served_model *model, const struct request_choice *c);
/* Checks the field against the model; once for a request. */
bool reading_check(const struct served_model *model, const struct request_retrieval *r, struct failure *f);
/* Whether passages stand in the prompt: sought, or the request's. */
bool reading_prompts(const struct served_model *model, const struct request_retrieval *r);
/* What passages of a chat are sought by. */
enum retrieval_query reading_query(const struct served_model *model, const struct request_retrieval *r);
/* Neighbours and passages of one answer. */
bool reading_ask(const struct served_model *model, const struct request_retrieval *r, struct sequence_request *asked,
                 struct failure *f);
/* The same without the documents that the answer is to be compared without. */
bool reading_ask_without(const struct served_model *model, const struct request_retrieval *r,
                         struct sequence_request *asked, struct failure *f);
