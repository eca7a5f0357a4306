/* server/schedule/comparison.h: an answer's tokens, scored as the answer to another request: the same with other
 * documents, or with none. A comparison waits for its turn like any sequence, and its rows are computed as a prompt's
 * are, in steps with what others read and write; nothing is drawn.
 *
 * A sequence that asks for one brings it along, unprepared, as asked.comparison. When it is finished its comparison
 * gets the tokens, and takes over its place among those in flight. An answer that failed has none: the comparison stays
 * as it is. */
#pragma once

#include "server/schedule/engine_private.h"

/* The comparison of a sequence that is about to finish well, with the tokens and the snapshot of its answer; NULL: none
 * was asked for. */
struct engine_sequence *comparison_open(const struct engine_sequence *s);
/* Puts the tokens of a comparison behind its prompt, which is complete; nothing for other sequences. */
void comparison_begin(struct engine_sequence *s);
