/* server/api/text/infill.h: prompts with a suffix: the model writes what stands between, where its
 * tokenizer has tokens for that (fill in the middle). */
#pragma once

#include "server/api/api.h"

/* The rows of a prompt and what is to stand behind the answer, in the order of the model's family.
 * *end: a token that ends such an answer beside those that end a text, -1: none. False with
 * *failure set: 400 where the tokenizer has no such tokens. */
bool infill_tokenize(const struct served_model *model, const struct request_prompt *prompt,
                     struct text_span suffix, struct tokens *out, int32_t *end,
                     struct failure *failure);
