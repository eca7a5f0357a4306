/* retro/run/session/attention_shares.h: rows of a step that tell how they share out their
 * attention: their part in the step's plan, and the tensor that the layers add to. */
#pragma once

#include "retro/run/session/session_private.h"

/* Adds what an item asks for, once its rows are planned; its spans are the plan's from `first` on,
 * its cross spans those from `first_cross` on. */
void attention_shares_item(struct session_pool *pool, const struct step_item *item, int first,
                           int first_cross);
/* The layers' part of it, for rows that are added to y [rows of the plan, 2 max_shares]; *out is
 * NULL where nobody asks. */
struct plan_shares {
    struct pass_shares self, cross;
};
void attention_shares_pass(const struct session_pool *pool, struct tensor y,
                           struct plan_shares *shares, struct pass *pass);
