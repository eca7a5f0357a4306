/* server/schedule/guide.c: see guide.h. */
#include "server/schedule/guide.h"

#include <stdlib.h>

/* Tokens that end the answer and are no text of the grammar: the model's, and those that the
 * request names. */
static int list_ends(const struct sequence_end *end, const struct engine_options *o, int vocab, int32_t *ends) {
    int n = 0;
    for (int i = 0; i < o->ends.n && !end->ignore_eos; i++) {
        if (o->ends.ids[i] >= vocab) continue;
        ends[n] = o->ends.ids[i];
        n++;
    }
    for (int i = 0; i < end->n_stop_ids; i++) {
        if (!tokenizer_is_special(o->tokenizer, end->stop_ids[i])) continue;
        ends[n] = end->stop_ids[i];
        n++;
    }
    return n;
}

void guide_part_open(struct guide_part *p, const struct sequence_request *asked, const struct engine_options *o,
                     int vocab) {
    if (asked->grammar == NULL) return;
    int32_t *ends = xcalloc((size_t)o->ends.n + (size_t)asked->end.n_stop_ids + 1, sizeof *ends);
    int n = list_ends(&asked->end, o, vocab, ends);
    p->matcher = xcalloc(1, sizeof *p->matcher);
    matcher_open(p->matcher, asked->grammar, &asked->grammar_begin, vocab, ends, n);
    free(ends);
}

void guide_part_close(struct guide_part *p) {
    if (p->matcher) matcher_close(p->matcher);
    free(p->matcher);
}

const uint32_t *guide_mask(struct guide_part *p) {
    const uint32_t *mask;
    if (p->error.status || matcher_mask(p->matcher, &mask, &p->error)) return NULL;
    return mask;
}

enum finish guide_note(struct guide_part *p, int32_t token, enum finish how) {
    if (p->error.status || matcher_note(p->matcher, token, &p->error)) return FINISH_ERROR;
    if (guide_mask(p) == NULL) return FINISH_ERROR;
    return p->matcher->finished ? FINISH_STOP : how;
}

bool guide_is_complete(const struct guide_part *p) { return p->matcher && p->matcher->finished; }
