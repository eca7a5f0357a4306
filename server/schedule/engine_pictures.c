/* server/schedule/engine_pictures.c: the rows of pictures in prompts: computed when a prompt begins to be read, as far
 * as no earlier prompt has left them. See engine_private.h. */
#include <stdlib.h>

#include "server/schedule/engine_private.h"

/* Rows of pictures among the sequence's first n. */
static int count_given(const struct engine_sequence *s, int n) {
    int given = 0;
    for (int i = 0; i < n; i++) given += s->rows[i] < 0;
    return given;
}

static enum status view(struct engine_sequence *s, struct error *e) {
    struct engine *x = s->engine;
    const struct picture_set *pictures = s->generation->asked.pictures;
    int rows = picture_set_rows(pictures, x->o.model), done = session_length(s->session);
    size_t values = (size_t)rows * (size_t)x->info.hidden;
    if (s->given == NULL) s->given = xmalloc((values + 1) * sizeof *s->given);
    s->viewed = true;
    return picture_set_view(pictures, x->o.model, x->pool, count_given(s, done), s->given, e);
}

void engine_view_pictures(struct engine *x) {
    int i = 0;
    while (i < x->n_active) {
        struct engine_sequence *s = x->active[i];
        struct error e = {0};
        bool waits = s->state == SEQUENCE_RUNNING && s->generation->asked.pictures && !s->viewed;
        if (waits && engine_begin_prompt(s) && view(s, &e))
            sequence_finish(s, FINISH_ERROR, &e); /* and is no more among the active */
        else
            i++;
    }
}

void engine_give_rows(const struct engine_sequence *s, struct step_item *item, int first) {
    if (s->generation->asked.pictures == NULL || first >= s->n_rows) return;
    int before = count_given(s, first);
    if (count_given(s, first + item->n_tokens) > before)
        item->rows = s->given + (size_t)before * (size_t)s->engine->info.hidden;
}
