/* server/schedule/guided.h: answers under a grammar: which tokens may be drawn, and where such an answer ends. The
 * engine's thread alone calls these. */
#pragma once

#include "server/schedule/sequence.h"

struct engine_sequence;

/* Before the first draw; does nothing for a request without a grammar. */
void guided_open(struct engine_sequence *s);
void guided_close(struct engine_sequence *s);
/* The tokens that may be drawn now. NULL after an error, which guided_note returns once the draw is over. */
const uint32_t *guided_mask(struct engine_sequence *s);
/* A token was written that does not end the answer by itself, or by `how` its length. How it ends here: FINISH_STOP
 * where nothing may follow, FINISH_ERROR with s->matching set. */
enum finish guided_note(struct engine_sequence *s, int32_t token, enum finish how);
