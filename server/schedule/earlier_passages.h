/* server/schedule/earlier_passages.h: the passages of a conversation's earlier turns in a prompt,
 * where they stood when these turns were answered (conversations.h), and what is kept of this turn
 * for later ones. See engine_private.h.
 *
 * The turns that have theirs are settled before this turn's own are put in: those of the latest
 * turn's prompt, as long as they take no more than retrieval.conversation_tokens and leave the
 * turn's own passages their room. Where they take more, the oldest lose theirs until half is left:
 * so most turns lose none, and their prompts begin with the prompt before. */
#pragma once

#include "server/schedule/engine_private.h"

struct earlier_passages {
    struct passages *turns; /* [n_turns] the text of each; empty: nothing stands there */
    int n_turns;
    struct hit *list; /* [n] passages that stand, by their numbers */
    int n;
    int n_tokens;    /* of all texts */
    int last_number; /* that the conversation has given */
    int oldest;      /* what the user had said before the first turn that has passages */
};

/* Asks the next lookup for the passages of the turns that the request has. */
void engine_recall(struct engine_sequence *sequence);
/* Chooses among what was recalled, where `room` rows are left beside the prompt. Zeroed before;
 * close it either way. */
enum status earlier_choose(const struct engine_sequence *sequence, int room,
                           struct earlier_passages *out, struct error *e);
void earlier_close(struct earlier_passages *earlier);
/* None of them stands. */
void earlier_drop(const struct engine_sequence *sequence, struct earlier_passages *earlier);
/* Appends the prompt with these and the turn's own passages to *ids; own NULL: without. */
enum status earlier_place(const struct earlier_passages *earlier,
                          const struct sequence_place *place, const struct passages *own,
                          struct tokens *ids, struct error *e);
/* The prompt is made: the answer gets the passages that stand in it, and the conversation this
 * turn, with the passages that its search has put in, *hits. */
void engine_keep_turn(struct engine_sequence *sequence, const struct earlier_passages *earlier,
                      const struct hits *hits);
