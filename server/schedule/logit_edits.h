/* server/schedule/logit_edits.h: how one answer's request changes the logits that its tokens are
 * drawn from: biases, penalties for what was written, tokens that would repeat a run of tokens, and
 * the ends that may not come before min_tokens. All of it depends on this answer alone, so that
 * company in a batch changes nothing. */
#pragma once

#include "kernels/backend.h"
#include "server/schedule/sequence.h"

/* Zero-initialised: no changes. */
struct logit_edits {
    struct logit_edit *list; /* [n] for the next draw */
    int n;
    int32_t *counts; /* [n] how often the answer has the token */
    int32_t *places; /* [vocab] of tokens in list, -1: none; NULL: the request changes nothing */
    int n_written;
    int n_held;       /* the first of list are ends that may not come yet */
    int32_t *history; /* [n_history] prompt and answer; NULL: runs may come again */
    int n_history;
    int32_t *barred; /* [n_barred] of the next draw: places of tokens that would repeat a run */
    int n_barred;
    const struct sequence_changes *changes;
    const struct sequence_end *end;
};

/* Takes the request's changes, borrowed, before the first draw; `ends` end texts. */
void logit_edits_open(struct logit_edits *edits, const struct sequence_request *asked, int vocab,
                      const struct end_ids *ends);
void logit_edits_close(struct logit_edits *edits);
/* A token was written. Allocates nothing. */
void logit_edits_note(struct logit_edits *edits, int32_t token);
