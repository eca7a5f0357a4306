/* server/schedule/guided.c: see guided.h. */
#include "server/schedule/guided.h"

#include <stdlib.h>

#include "server/schedule/engine_private.h"

/* Tokens that end the answer and are no text of the grammar: the model's, and those that the request names. */
static int list_ends(const struct engine_sequence *s, int32_t *ends) {
    const struct sequence_end *end = &s->sequence->asked.end;
    const struct end_ids *own = &s->engine->o.ends;
    int n = 0;
    for (int i = 0; i < own->n && !end->ignore_eos; i++) {
        if (own->ids[i] >= s->engine->info.vocab) continue;
        ends[n] = own->ids[i];
        n++;
    }
    for (int i = 0; i < end->n_stop_ids; i++) {
        if (!tokenizer_is_special(s->engine->o.tokenizer, end->stop_ids[i])) continue;
        ends[n] = end->stop_ids[i];
        n++;
    }
    return n;
}

void guided_open(struct engine_sequence *s) {
    const struct sequence_request *asked = &s->sequence->asked;
    if (asked->grammar == NULL) return;
    int32_t *ends = xcalloc((size_t)s->engine->o.ends.n + (size_t)asked->end.n_stop_ids + 1, sizeof *ends);
    int n = list_ends(s, ends);
    s->matcher = xcalloc(1, sizeof *s->matcher);
    matcher_open(s->matcher, asked->grammar, &asked->grammar_begin, s->engine->info.vocab, ends, n);
    free(ends);
}

void guided_close(struct engine_sequence *s) {
    if (s->matcher) matcher_close(s->matcher);
    free(s->matcher);
}

const uint32_t *guided_mask(struct engine_sequence *s) {
    const uint32_t *mask;
    if (s->matching.status || matcher_mask(s->matcher, &mask, &s->matching)) return NULL;
    return mask;
}

enum finish guided_note(struct engine_sequence *s, int32_t token, enum finish how) {
    if (s->matching.status || matcher_note(s->matcher, token, &s->matching)) return FINISH_ERROR;
    if (guided_mask(s) == NULL) return FINISH_ERROR;
    return s->matcher->finished ? FINISH_STOP : how;
}
