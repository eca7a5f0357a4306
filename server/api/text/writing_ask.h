/* server/api/text/writing_ask.h: from the fields that say how to write to what the engine is asked,
 * for completions and chats. */
#pragma once

#include "server/api/api.h"

/* A number that nobody can guess: of ids, and of seeds that a request does not give. */
uint64_t random_number(void);

/* The models that answer completions and chats, for the parser of a request. */
struct request_models writing_models(struct api *api);
/* A random seed where the request has none; once for a request, before all that follows. */
void writing_choose_seed(struct request_writing *writing);
/* All that the fields say of one answer: how it is drawn, where it ends, what it reads beside the
 * prompt. The caller sets the prompt, max_tokens, and what is scored. It is drawn by writing->seed
 * + number. */
bool writing_ask(const struct served_model *model, const struct request_writing *writing,
                 int number, struct sequence_request *asked, struct failure *failure);
/* Gives a sequence whose request is complete but for its place the comparison that is asked for,
 * and to that, or in its place, the one without passages by which sentences are judged. */
bool writing_compare(const struct served_model *model, const struct request_writing *writing,
                     struct sequence *sequence, struct failure *failure);
/* A copy of n ids, for a sequence_request to own; NULL of none. */
int32_t *writing_copy_ids(const int32_t *ids, int n);
