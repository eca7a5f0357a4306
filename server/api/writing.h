/* server/api/writing.h: from the fields that say how to write to what the engine is asked, for completions and chats.
 */
#pragma once

#include "server/api/api.h"

/* A number that nobody can guess: of ids, and of seeds that a request does not give. */
uint64_t random_number(void);

/* The models that answer completions and chats, for the parser of a request. */
struct request_models writing_models(struct api *a);
/* All that the fields say of one answer: how it is drawn, where it ends, what it reads beside the prompt. The caller
 * sets the prompt, max_tokens, and what is scored. `number` of the answer to its prompt, from 0: each draws by a seed
 * of its own, w->seed + number, where has_seed is set. */
bool writing_ask(const struct served_model *model, const struct request_writing *w, int number,
                 struct generation_request *asked, struct failure *f);
/* The ids of a prompt, for a generation_request to own. */
int32_t *writing_copy_ids(const struct tokens *ids);
/* Hands n generations to the model's engine, all or none; a refusal says when to come back. */
bool writing_submit(const struct served_model *model, struct generation **generations, int n, struct failure *f);
/* An answer that is one JSON document, or a stream of events. */
void writing_answer_init(struct answer *a, const struct answer_ops *ops, bool stream);
