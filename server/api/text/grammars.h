/* server/api/text/grammars.h: the grammars that requests ask for, compiled for one model's
 * vocabulary. Those asked for last are kept, so that the next request with the same one finds it
 * compiled and knows what others found out. */
#pragma once

#include "retro/grammar/grammar.h"
#include "server/api/fields/guide_fields.h"

struct grammars;

/* Tokenizer and ends are borrowed. Nothing is computed before the first request that needs it. */
struct grammars *grammars_open(const struct tokenizer *tokenizer, int n_ids, const int32_t *ends,
                               int n_ends);
void grammars_close(struct grammars *grammars);
/* A reference to the grammar of a guide that is not GUIDE_NONE; from any thread. NULL with *failure
 * set: 400. */
struct grammar *grammars_get(struct grammars *grammars, const struct request_guide *guide,
                             struct failure *failure);
