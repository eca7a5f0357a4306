/* server/api/text/provenance_json.h: where an answer comes from, as clients see it: which model and
 * collection, and how its tokens would fare with other documents. */
#pragma once

#include "config/json/json_writer.h"
#include "server/api/text/told_answer.h"

/* The member "system_fingerprint": of the model, and of the collection where the first answer
 * searches it; and "seed", which that answer is drawn by, where it is drawn. */
void origin_write(struct json_writer *w, const struct served_model *model,
                  const struct sequence *sequence);

/* Tokens of the answer that its text shows, from the first: those that begin in it, all of them
 * once max_tokens ended it, but no token that ended it unless the text has it too. `from` are known
 * to be shown. */
int tokens_shown(const struct sequence *sequence, const struct progress *progress, int from);

/* How a finished answer shared out its attention, as elements of "attention": one for each chunk
 * whose neighbours some row read, and for the prompt's passages: index, chunk, shares, and tokens
 * where they are asked for. */
void attention_write(struct json_writer *w, const struct told_answer *answer);

/* The finished comparison as an element of "compare": index, without, and tokens, each with its
 * text, its place in the answer, and its log-probability under both. */
void comparison_write(struct json_writer *w, const struct told_answer *answer);
