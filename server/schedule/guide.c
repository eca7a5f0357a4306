/* server/schedule/guide.c: see guide.h. */
#include "server/schedule/guide.h"

#include <stdlib.h>

/* Tokens that end the answer and are no text of the grammar: the model's, and those that the
 * request names. */
static int list_ends(const struct sequence_end *end, const struct engine_options *options,
                     int vocab, int32_t *ends) {
    int n = 0;
    for (int i = 0; i < options->ends.n && !end->ignore_eos; i++) {
        if (options->ends.ids[i] >= vocab) continue;
        ends[n] = options->ends.ids[i];
        n++;
    }
    for (int i = 0; i < end->n_stop_ids; i++) {
        if (!tokenizer_is_special(options->tokenizer, end->stop_ids[i])) continue;
        ends[n] = end->stop_ids[i];
        n++;
    }
    return n;
}

void guide_part_open(struct guide_part *part, const struct sequence_request *asked,
                     const struct engine_options *options, int vocab) {
    if (asked->grammar == NULL) return;
    int32_t *ends =
        xcalloc((size_t)options->ends.n + (size_t)asked->end.n_stop_ids + 1, sizeof *ends);
    int n = list_ends(&asked->end, options, vocab, ends);
    part->matcher = xcalloc(1, sizeof *part->matcher);
    matcher_open(part->matcher, asked->grammar, &asked->grammar_begin, vocab, ends, n);
    free(ends);
}

void guide_part_close(struct guide_part *part) {
    if (part->matcher) matcher_close(part->matcher);
    free(part->matcher);
    free(part->passages);
}

const uint32_t *guide_mask(struct guide_part *part) {
    const uint32_t *mask;
    if (part->error.status || matcher_mask(part->matcher, &mask, &part->error)) return NULL;
    return mask;
}

enum finish guide_note(struct guide_part *part, int32_t token, size_t before, enum finish how) {
    if (part->error.status || matcher_note(part->matcher, token, &part->error)) return FINISH_ERROR;
    if (part->matcher->n_written == 1) part->text_start = before;
    if (guide_mask(part) == NULL) return FINISH_ERROR;
    return part->matcher->finished ? FINISH_STOP : how;
}

bool guide_is_complete(const struct guide_part *part) {
    return part->matcher && part->matcher->finished;
}
