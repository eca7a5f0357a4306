/* server/schedule/told_attention.h: how an answer's tokens shared out their attention over what was
 * read beside the prompt: neighbours of chunks by cross attention, passages in the prompt by self
 * attention, or by an encoder's source.
 */
#pragma once

#include "server/schedule/engine_private.h"

void attention_part_close(struct attention_part *part);
/* Whether all of its rows are to tell, so that none may be taken over from an earlier prompt. */
bool told_attention_of_all(const struct engine_sequence *sequence);
/* Adds to an item of the step what it is to tell, where its request asks. */
void told_attention_plan(const struct engine_sequence *sequence, struct step_item *item);
/* Takes what the step's items told, drafts' rows apart, into their answers. */
enum status told_attention_take(struct engine *engine, struct error *e);
/* The same of the row of the draft that item i has taken last. */
void told_attention_take_draft(struct engine *engine, int i);
/* Passages stand in the composed text, the i-th within tokens [ends[i - 1], ends[i]) from `first`
 * on. */
void told_attention_place(struct engine_sequence *sequence, const int *ends, int n, int first);
