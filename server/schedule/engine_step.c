/* server/schedule/engine_step.c: one step of many sequences: which rows, their forward, what is
 * drawn from the logits, and what becomes of it. See engine_private.h. */
#include "server/schedule/scoring.h"
#include "server/schedule/told_attention.h"

static const double PART_SECONDS = 0.1;
enum { LEAST_PROMPT_ROWS = 256 };

/* Plan. */

static void plan_item(struct engine_sequence *engine_sequence, const int32_t *tokens, int n_tokens,
                      int n_logits) {
    struct engine_step *step = &engine_sequence->engine->step;
    struct sequence *sequence = engine_sequence->sequence;
    int i = step->n;
    step->n++;
    step->sequences[i] = engine_sequence;
    step->items[i] = (struct step_item){
        .session = engine_sequence->session,
        .tokens = tokens,
        .n_tokens = n_tokens,
        .neighbors = sequence->answer.n_chunks ? engine_sequence->lookup.neighbors +
                                                     session_next_chunk(engine_sequence->session)
                                               : NULL,
        .n_logits = n_logits,
    };
    engine_give_rows(engine_sequence, &step->items[i], session_length(engine_sequence->session));
    told_attention_plan(engine_sequence, &step->items[i]);
    if (!session_wants_source(engine_sequence->session)) return;
    step->items[i].source = engine_sequence->source;
    step->items[i].n_source = engine_sequence->n_source;
}

static void plan_answers(struct engine *engine) {
    for (int i = 0; i < engine->n_active; i++) {
        struct engine_sequence *engine_sequence = engine->active[i];
        const struct sequence *sequence = engine_sequence->sequence;
        if (engine_sequence->state != SEQUENCE_RUNNING ||
            session_length(engine_sequence->session) < engine_sequence->n_rows)
            continue;
        plan_item(engine_sequence, &sequence->answer.ids[engine_sequence->n_ids - 1], 1, 1);
    }
}

/* A step ends only between its parts once nobody waits for it, so slow machines get fewer rows a
 * step: as many as make a part of PART_SECONDS, but never so few that reading the weights takes
 * longer than computing. */
static int prompt_rows(const struct engine *engine) {
    double part = engine->pace.prompt / session_pool_parts(engine->pool);
    int most = engine->o.max_step_tokens, least = LEAST_PROMPT_ROWS;
    if (part * most <= PART_SECONDS) return most;
    least = max_int(least, picture_rows_most(engine->o.model, engine->o.max_picture));
    return min_int(most, max_int(least, (int)(PART_SECONDS / part)));
}

/* The next rows of a prompt, at most so many: a picture whose rows see each other is read at once,
 * and waits for a step that has room for it. The first prompt of a step has that much. */
static int rows_that_fit(const struct engine_sequence *sequence, int done, int most) {
    return picture_rows_fit(sequence->engine->o.model, sequence->rows + done,
                            sequence->n_rows - done, most);
}

/* Prompts in the order of admission, as far as the rows of a step reach. */
static void plan_prompts(struct engine *engine) {
    int rows = prompt_rows(engine), scored_rows = ENGINE_SCORED_ROWS;
    for (int i = 0; i < engine->n_active; i++) {
        struct engine_sequence *sequence = engine->active[i];
        if (sequence->state != SEQUENCE_RUNNING || engine_wants_view(sequence) ||
            !engine_begin_prompt(sequence))
            continue;
        int done = session_length(sequence->session), n = rows_that_fit(sequence, done, rows);
        int unscored = max_int(0, scoring_first_row(sequence) - done);
        bool scores = scoring_reads(sequence);
        if (scores) n = rows_that_fit(sequence, done, min_int(n, unscored + scored_rows));
        if (n <= 0) continue;
        if (session_wants_source(sequence->session))
            rows =
                max_int(n, rows - sequence->n_source); /* the encoder's rows take their time too */
        int n_logits = max_int(0, n - unscored);
        plan_item(sequence, sequence->rows + done, n, n_logits);
        rows -= n;
        if (scores) scored_rows -= n_logits;
    }
}

void engine_plan(struct engine *engine) {
    engine->step.n = 0;
    plan_answers(engine);
    plan_prompts(engine);
    drafts_plan(engine);
}

/* Draw. */

/* The items that have come to the end of their rows, and draw their next token: from the row before
 * the first draft. */
static void choose_rows(struct engine *engine) {
    struct engine_step *step = &engine->step;
    int next = 0;
    for (int i = 0; i < step->n; i++) {
        const struct engine_sequence *sequence = step->sequences[i];
        const struct step_item *item = &step->items[i];
        bool draws = sequence->sequence->asked.max_tokens > 0 && !sequence->scoring.forced &&
                     session_length(sequence->session) >= sequence->n_rows;
        next += item->n_logits;
        step->draw_row[i] = draws ? next - 1 - item->n_drafts : -1;
    }
}

/* How the item's next token is drawn. */
static void set_params(struct engine_step *step, int item) {
    struct engine_sequence *sequence = step->sequences[item];
    struct sample_params *params = &step->params[item];
    *params = sequence->sequence->asked.sampling;
    params->draw = (uint64_t)sequence->n_ids;
    params->edits = sequence->edits.list;
    params->n_edits = sequence->edits.n;
    if (sequence->guide.matcher) params->mask = guide_mask(&sequence->guide);
}

/* Runs of neighbouring rows are drawn in one call. */
static void draw_tokens(struct engine *engine, struct tensor logits) {
    struct engine_step *step = &engine->step;
    int end;
    for (int i = 0; i < step->n; i++)
        if (step->draw_row[i] >= 0) set_params(step, i);
    for (int i = 0; i < step->n; i = end) {
        end = i + 1;
        if (step->draw_row[i] < 0) continue;
        while (end < step->n && step->draw_row[end] == step->draw_row[end - 1] + 1) end++;
        backend_sample(
            engine->o.backend,
            &(struct sample_args){.logits = tensor_rows(logits, step->draw_row[i], end - i),
                                  .params = step->params + i,
                                  .n_vocab = engine->info.vocab,
                                  .ids = step->drawn + i,
                                  .logprobs = step->drawn_logprobs + i});
    }
}

/* Takes log-probabilities and attention that the rows tell, those of drafts apart. */
static enum status take_rows(struct engine *engine, struct tensor logits, struct error *e) {
    int first = 0;
    if (told_attention_take(engine, e)) return e->status;
    for (int i = 0; i < engine->step.n; i++) {
        const struct step_item *item = &engine->step.items[i];
        int n = item->n_logits - item->n_drafts;
        if (scoring_take(engine, i, tensor_rows(logits, first, n), e)) return e->status;
        first += item->n_logits;
    }
    return STATUS_OK;
}

/* One token of every item that draws. */
static enum status draw_once(struct engine *engine, struct tensor logits, struct error *e) {
    const struct engine_step *step = &engine->step;
    draw_tokens(engine, logits);
    if (backend_sync(engine->o.backend, e)) return e->status;
    for (int i = 0; i < step->n; i++) {
        if (step->draw_row[i] < 0) continue;
        if (scoring_take_drawn(engine, i, tensor_rows(logits, step->draw_row[i], 1), e))
            return e->status;
    }
    return STATUS_OK;
}

/* Emit. */

/* Whether the token is the next draft, so that its row is there to draw from. */
static bool emit_token(struct engine_sequence *sequence, int32_t token, float logprob) {
    const struct sequence_answer *answer = &sequence->sequence->answer;
    enum finish how = engine_sequence_append(sequence, token, logprob);
    int row = sequence->n_rows + sequence->n_ids - sequence->n_reread - 1;
    if (drafts_take(sequence, token) && how == FINISH_NONE) {
        engine_sequence_publish(sequence);
        return true;
    }
    drafts_settle(sequence);
    if (how)
        engine_sequence_finish(sequence, how, &sequence->guide.error);
    else if (engine_passages_are_due(sequence))
        engine_seek_passages(sequence);
    else if (answer->n_chunks && grid_closes(answer->grid, row))
        engine_close_chunks(sequence, grid_read(answer->grid, row), 1);
    else
        engine_sequence_publish(sequence);
    return false;
}

/* Items that read only, to their end: only the scores were asked for. */
static void finish_scored(struct engine *engine) {
    struct engine_step *step = &engine->step;
    for (int i = 0; i < step->n; i++) {
        struct engine_sequence *sequence = step->sequences[i];
        if (step->draw_row[i] >= 0 || session_length(sequence->session) != sequence->n_rows)
            continue;
        step->sequences[i] = NULL;
        engine_sequence_finish(sequence, FINISH_LENGTH, NULL);
    }
}

/* Hands out one drawn token each. Returns how many items go on with the row of their next draft. */
static int emit(struct engine *engine) {
    struct engine_step *step = &engine->step;
    int going_on = 0;
    for (int i = 0; i < step->n; i++) {
        struct engine_sequence *sequence = step->sequences[i];
        if (step->draw_row[i] < 0) continue;
        if (emit_token(sequence, step->drawn[i], step->drawn_logprobs[i])) {
            told_attention_take_draft(engine, i);
            step->draw_row[i]++;
            going_on++;
        } else {
            step->draw_row[i] = -1;
            step->sequences[i] = NULL;
        }
    }
    return going_on;
}

/* Step. */

/* A failed step ends everyone who was in it; a failed device ends everyone. */
static void fail_step(struct engine *engine, const struct error *e) {
    struct error told = *e;
    log_error("a step of %d sequences failed: %s", engine->step.n, e->text);
    if (e->status == STATUS_DEVICE) /* names of machines are not for clients */
        error_set(&told, STATUS_DEVICE, "the device has failed; the server must be started again");
    for (int i = 0; i < engine->step.n; i++)
        if (engine->step.sequences[i])
            engine_sequence_finish(engine->step.sequences[i], FINISH_ERROR, &told);
    if (e->status != STATUS_DEVICE) return;
    pthread_mutex_lock(&engine->lock);
    engine->failed = true;
    pthread_mutex_unlock(&engine->lock);
}

/* Before anything is drawn: the rows of prompts, and the answers that are written. */
static struct workload count_work(const struct engine_step *step) {
    struct workload done = {0};
    for (int i = 0; i < step->n; i++) {
        const struct engine_sequence *sequence = step->sequences[i];
        const struct step_item *item = &step->items[i];
        bool decodes = session_length(sequence->session) - item->n_drafts > sequence->n_rows;
        done.prompt += decodes ? 0 : item->n_tokens;
        done.answer += step->draw_row[i] >= 0;
    }
    return done;
}

static void count_step(struct engine *engine, struct workload done) {
    double now = time_now();
    engine->step_seconds = now - engine->paced;
    pace_note(&engine->pace, done, engine->step_seconds);
    engine->paced = now;
    pthread_mutex_lock(&engine->lock);
    engine->counts.steps++;
    engine->counts.prompt_tokens += done.prompt;
    engine->counts.generated_tokens += done.answer;
    pthread_mutex_unlock(&engine->lock);
}

bool engine_step_abandoned(void *engine) {
    const struct engine_step *step = &((const struct engine *)engine)->step;
    for (int i = 0; i < step->n; i++)
        if (!engine_sequence_cancelled(step->sequences[i])) return false;
    return true;
}

/* Draws and hands out tokens for as long as drafts are what was drawn. */
static enum status draw_and_emit(struct engine *engine, struct tensor logits, struct error *e) {
    choose_rows(engine);
    struct workload done = count_work(&engine->step);
    if (take_rows(engine, logits, e) || draw_once(engine, logits, e)) return e->status;
    finish_scored(engine);
    int more = emit(engine);
    while (more > 0) {
        done.answer += more;
        if (draw_once(engine, logits, e)) return e->status;
        more = emit(engine);
    }
    count_step(engine, done);
    return STATUS_OK;
}

static int count_rows(const struct engine_step *step) {
    int rows = 0;
    for (int i = 0; i < step->n; i++) rows += step->items[i].n_tokens;
    return rows;
}

void engine_run_step(struct engine *engine) {
    struct error e = {0};
    struct tensor logits;
    double begun = time_now();
    enum status status =
        session_step(engine->pool, engine->step.items, engine->step.n, &logits, &e);
    if (status == STATUS_CANCELLED) {
        engine->paced = time_now();
        return; /* engine_receive ends those who were in it */
    }
    drafts_note_step(engine, count_rows(&engine->step), time_now() - begun);
    if (status || draw_and_emit(engine, logits, &e)) fail_step(engine, &e);
}
