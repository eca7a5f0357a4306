/* server/schedule/scoring.h: log-probabilities of tokens: of a prompt, of an answer as it is
 * drawn, and of an answer's tokens as the answer to another request: the same with other
 * documents, or with none. Such a comparison waits for its turn like any sequence, and its rows
 * are computed as a prompt's are, in steps with what others read and write; nothing is drawn.
 *
 * A sequence that asks for a comparison brings it along, unprepared, as asked.comparison. When
 * it is finished its comparison gets the tokens, and takes over its place among those in flight.
 * An answer that failed has none: the comparison stays as it is. */
#pragma once

#include "server/schedule/engine_private.h"

void scoring_part_close(struct scoring_part *part);
/* Whether tokens among its rows are scored: those of a prompt, or of a comparison. */
bool scoring_reads(const struct engine_sequence *sequence);
/* The first of its rows whose logits are needed: all before it can be taken over from another
 * prompt. */
int scoring_first_row(const struct engine_sequence *sequence);
/* Takes the log-probabilities that item i of the step has told by its rows of logits, drafts'
 * apart, into its answer: of tokens that it read. */
enum status scoring_take(struct engine *engine, int i, struct tensor logits, struct error *e);
/* The same of the token that it has just drawn from this row. */
enum status scoring_take_drawn(struct engine *engine, int i, struct tensor row, struct error *e);

/* The comparison of a sequence that is about to finish well, with the tokens and the snapshot of
 * its answer, or of the one that it is a comparison of itself; NULL: none was asked for. */
struct engine_sequence *comparison_open(const struct engine_sequence *sequence);
/* Puts the tokens of a comparison behind its prompt, which is complete; nothing for other
 * sequences. */
void comparison_begin(struct engine_sequence *sequence);
