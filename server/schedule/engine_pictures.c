/* server/schedule/engine_pictures.c: the rows of pictures in prompts: computed when a prompt begins
 * to be read, as far as no earlier prompt has left them, and a part at a time, so that those who
 * write go on. See engine_private.h. */
#include <math.h>
#include <stdlib.h>

#include "server/schedule/engine_private.h"

void pictures_part_close(struct pictures_part *part) {
    free(part->rows);
    free(part->positions);
    picture_set_release(part->set);
}

void pictures_part_take(struct pictures_part *part, struct picture_set **set) {
    pictures_part_close(part);
    *part = (struct pictures_part){.set = *set};
    *set = NULL;
}

/* Rows of pictures among the sequence's first n. */
static int count_given(const struct engine_sequence *sequence, int n) {
    int given = 0;
    for (int i = 0; i < n; i++) given += sequence->rows[i] < 0;
    return given;
}

bool engine_wants_view(const struct engine_sequence *sequence) {
    return sequence->pictures.set && !sequence->pictures.done;
}

static void begin_pictures(struct engine_sequence *sequence) {
    struct engine *engine = sequence->engine;
    const struct picture_set *pictures = sequence->pictures.set;
    size_t values =
        (size_t)pictures->n_rows * (size_t)tower_columns(pictures->model, TOWER_PROJECTED);
    if (sequence->pictures.rows == NULL)
        sequence->pictures.rows = xmalloc((values + 1) * sizeof *sequence->pictures.rows);
    engine->viewing = sequence;
    picture_pass_begin(&engine->view, pictures, engine->pool,
                       count_given(sequence, session_length(sequence->session)),
                       sequence->pictures.rows);
}

void engine_end_view(struct engine_sequence *sequence) {
    struct engine *engine = sequence->engine;
    if (engine->viewing != sequence) return;
    picture_pass_end(&engine->view);
    engine->viewing = NULL;
}

/* The first whose prompt is about to be read. */
static bool choose_viewing(struct engine *engine) {
    for (int i = 0; i < engine->n_active && engine->viewing == NULL; i++) {
        struct engine_sequence *sequence = engine->active[i];
        if (sequence->state == SEQUENCE_RUNNING && engine_wants_view(sequence) &&
            engine_begin_prompt(sequence))
            begin_pictures(sequence);
    }
    return engine->viewing != NULL;
}

static void advance_pictures(struct engine *engine) {
    struct engine_sequence *sequence = engine->viewing;
    struct error e;
    bool done = false;
    if (picture_pass_advance(&engine->view, &done, &e)) {
        engine_sequence_finish(sequence, FINISH_ERROR, &e);
    } else if (done) {
        sequence->pictures.done = true;
        engine_end_view(sequence);
    }
}

/* As long as the latest step took: those who write keep half of the device. */
bool engine_view_pictures(struct engine *engine) {
    double start = time_now(), now = start, most = engine->o.view_seconds;
    if (engine->step.n > 0) most = fmin(most, engine->step_seconds);
    if (!choose_viewing(engine)) return false;
    do {
        advance_pictures(engine);
        now = time_now();
    } while (now - start < most && choose_viewing(engine));
    engine->paced += now - start;
    return true;
}

void engine_give_rows(const struct engine_sequence *sequence, struct step_item *item, int first) {
    const struct picture_set *pictures = sequence->pictures.set;
    if (pictures == NULL || first >= sequence->n_rows) return;
    int before = count_given(sequence, first);
    item->names = pictures->names;
    if (sequence->pictures.positions)
        item->positions = sequence->pictures.positions + (size_t)first * PLACE_SECTIONS;
    if (count_given(sequence, first + item->n_tokens) > before)
        item->rows = sequence->pictures.rows +
                     (size_t)before * (size_t)tower_columns(pictures->model, TOWER_PROJECTED);
}
