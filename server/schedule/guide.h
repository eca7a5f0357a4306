/* server/schedule/guide.h: answers under a grammar: which tokens may be drawn, and where such an
 * answer ends. The engine's thread alone calls these. */
#pragma once

#include "server/schedule/engine.h"

/* A passage that may be quoted, as struct sequence_quote tells it. */
struct quotable_passage {
    int entry, hit;
    size_t size; /* bytes of it */
};

struct guide_part {
    struct matcher *matcher; /* owned; of the request's grammar, NULL: it has none */
    struct error error;      /* why it cannot go on, if it cannot */
    size_t text_start;       /* bytes of the answer's text before the grammar began */
    /* Of a grammar with quotes (engine_quotes.c). */
    struct quotable_passage *passages; /* [n_passages] owned, by the matcher's numbers */
    int n_passages, passages_capacity;
};

/* Before the first draw; `vocab` is the model's. Does nothing for a request without a grammar. */
void guide_part_open(struct guide_part *part, const struct sequence_request *asked,
                     const struct engine_options *options, int vocab);
void guide_part_close(struct guide_part *part);
/* The tokens that may be drawn now. NULL after an error, which guide_note returns once the draw
 * is over. */
const uint32_t *guide_mask(struct guide_part *part);
/* A token was written, behind `before` bytes of the answer's text, that does not end the answer by
 * itself, or by `how` its length. How it ends here: FINISH_STOP where nothing may follow,
 * FINISH_ERROR with part->error set. */
enum finish guide_note(struct guide_part *part, int32_t token, size_t before, enum finish how);
/* Whether the grammar leaves nothing to be written. */
bool guide_is_complete(const struct guide_part *part);
