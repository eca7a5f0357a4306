/* server/api/text/citations.h: the passages that an answer names: "[2]" in it is passage 2 of its
 * prompt. */
#pragma once

#include "config/json/json_writer.h"
#include "server/api/text/told_answer.h"

/* Whether passages stand in the answer's prompt by their numbers. */
bool citations_may_be(const struct sequence *sequence, const struct progress *progress);
/* Of a finished answer: each number in brackets that a passage has of those in the prompt when the
 * brackets were written, alone or in a list
 * ("[1, 3]"), as an element of "citations": index, number, the passage's document, title, start and
 * end, and the brackets' place in the answer, answer_start and answer_end in characters. */
void citations_write(struct json_writer *w, const struct told_answer *answer);
