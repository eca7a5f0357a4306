/* server/api/text/citations.h: the passages that an answer names, "[2]" in it is passage 2 of its
 * prompt, and those that it quotes. */
#pragma once

#include "config/json/json_writer.h"
#include "server/api/text/told_answer.h"

/* Whether passages stand in the answer's prompt by their numbers, or it may quote. */
bool citations_may_be(const struct sequence *sequence, const struct progress *progress);
/* Of a finished answer: each number in brackets that a passage has of those in the prompt when the
 * brackets were written, alone or in a list
 * ("[1, 3]"), as an element of "citations": index, number, the passage's document, title, start and
 * end, and the brackets' place in the answer, answer_start and answer_end in characters. Then each
 * quote whose end was written: start and end are the quote's own, and so is its place in the
 * answer, null where that is not a part of the text; "quote" is its text in the passage, "chunk"
 * and "position" are those of the entry of "retrieval" that has the passage, as its neighbour
 * `number`.
 */
void citations_write(struct json_writer *w, const struct told_answer *answer);
