/* server/schedule/engine_pictures.c: the rows of pictures in prompts: computed when a prompt begins to be read, as far
 * as no earlier prompt has left them, and a part at a time, so that those who write go on. See engine_private.h. */
#include <math.h>
#include <stdlib.h>

#include "server/schedule/engine_private.h"

void pictures_part_close(struct pictures_part *p) {
    free(p->rows);
    free(p->positions);
    picture_set_release(p->set);
}

void pictures_part_take(struct pictures_part *p, struct picture_set **set) {
    pictures_part_close(p);
    *p = (struct pictures_part){.set = *set};
    *set = NULL;
}

/* Rows of pictures among the sequence's first n. */
static int count_given(const struct engine_sequence *s, int n) {
    int given = 0;
    for (int i = 0; i < n; i++) given += s->rows[i] < 0;
    return given;
}

bool engine_wants_view(const struct engine_sequence *s) { return s->pictures.set && !s->pictures.done; }

static void begin_pictures(struct engine_sequence *s) {
    struct engine *x = s->engine;
    const struct picture_set *pictures = s->pictures.set;
    size_t values = (size_t)pictures->n_rows * (size_t)x->info.hidden;
    if (s->pictures.rows == NULL) s->pictures.rows = xmalloc((values + 1) * sizeof *s->pictures.rows);
    x->viewing = s;
    picture_pass_begin(&x->view, pictures, x->pool, count_given(s, session_length(s->session)), s->pictures.rows);
}

void engine_end_view(struct engine_sequence *s) {
    struct engine *x = s->engine;
    if (x->viewing != s) return;
    picture_pass_end(&x->view);
    x->viewing = NULL;
}

/* The first whose prompt is about to be read. */
static bool choose_viewing(struct engine *x) {
    for (int i = 0; i < x->n_active && x->viewing == NULL; i++) {
        struct engine_sequence *s = x->active[i];
        if (s->state == SEQUENCE_RUNNING && engine_wants_view(s) && engine_begin_prompt(s)) begin_pictures(s);
    }
    return x->viewing != NULL;
}

static void advance_pictures(struct engine *x) {
    struct engine_sequence *s = x->viewing;
    struct error e;
    bool done = false;
    if (picture_pass_advance(&x->view, &done, &e)) {
        engine_sequence_finish(s, FINISH_ERROR, &e);
    } else if (done) {
        s->pictures.done = true;
        engine_end_view(s);
    }
}

/* As long as the latest step took: those who write keep half of the device. */
bool engine_view_pictures(struct engine *x) {
    double start = time_now(), now = start, most = x->o.view_seconds;
    if (x->step.n > 0) most = fmin(most, x->step_seconds);
    if (!choose_viewing(x)) return false;
    do {
        advance_pictures(x);
        now = time_now();
    } while (now - start < most && choose_viewing(x));
    x->paced += now - start;
    return true;
}

void engine_give_rows(const struct engine_sequence *s, struct step_item *item, int first) {
    const struct picture_set *pictures = s->pictures.set;
    if (pictures == NULL || first >= s->n_rows) return;
    int before = count_given(s, first);
    item->names = pictures->names;
    if (s->pictures.positions) item->positions = s->pictures.positions + (size_t)first * PLACE_SECTIONS;
    if (count_given(s, first + item->n_tokens) > before)
        item->rows = s->pictures.rows + (size_t)before * (size_t)s->engine->info.hidden;
}
