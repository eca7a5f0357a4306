/* server/api/writing.h: from the fields that say how to write to what the engine is asked, for completions and chats.
 */
#pragma once

#include "server/api/api.h"

/* A number that nobody can guess: of ids, and of seeds that a request does not give. */
uint64_t random_number(void);

/* What the model says of the fields; once for a request. */
bool writing_check(const struct served_model *model, const struct request_writing *w, struct failure *f);
/* Whether passages are searched for. */
bool writing_searches(const struct served_model *model, const struct request_writing *w);
/* All that the fields say of one answer: how it is drawn, where it ends, what it reads beside the prompt. The caller
 * sets the prompt, max_tokens, and what is scored. `number` of the answer to its prompt, from 0: each draws by a seed
 * of its own, w->seed + number, where has_seed is set. */
bool writing_ask(const struct served_model *model, const struct request_writing *w, int number,
                 struct generation_request *asked, struct failure *f);
