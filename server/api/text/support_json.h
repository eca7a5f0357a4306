/* server/api/text/support_json.h: how much what was read supports the sentences of an answer, as
 * clients see it (server/host/prompt/support.h). */
#pragma once

#include "config/json/json_writer.h"
#include "server/api/text/told_answer.h"

/* Of an answer whose comparisons are over, each sentence of its text as an element of "support":
 * index, answer_start and answer_end in characters, support, and the chunk and the passage of it
 * that supports the sentence most. The three are null where none of the sentence's tokens read
 * anything, or none has a text of its own. */
void support_write(struct json_writer *w, const struct told_answer *answer);
