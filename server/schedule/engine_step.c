/* server/schedule/engine_step.c: one step of many sequences: which rows, their forward, what is drawn from the logits,
 * and what becomes of it. See engine_private.h. */
#include "server/schedule/scoring.h"
#include "server/schedule/told_attention.h"

static const double PART_SECONDS = 0.1;
enum { LEAST_PROMPT_ROWS = 256 };

/* Plan. */

static void plan_item(struct engine_sequence *s, const int32_t *tokens, int n_tokens, int n_logits) {
    struct engine_step *step = &s->engine->step;
    struct sequence *sequence = s->sequence;
    int i = step->n;
    step->n++;
    step->sequences[i] = s;
    step->items[i] = (struct step_item){
        .session = s->session,
        .tokens = tokens,
        .n_tokens = n_tokens,
        .neighbors = sequence->answer.n_chunks ? s->lookup.neighbors + session_next_chunk(s->session) : NULL,
        .n_logits = n_logits,
    };
    engine_give_rows(s, &step->items[i], session_length(s->session));
    told_attention_plan(s, &step->items[i]);
    if (!session_wants_source(s->session)) return;
    step->items[i].source = s->source;
    step->items[i].n_source = s->n_source;
}

static void plan_answers(struct engine *x) {
    for (int i = 0; i < x->n_active; i++) {
        struct engine_sequence *s = x->active[i];
        const struct sequence *sequence = s->sequence;
        if (s->state != SEQUENCE_RUNNING || session_length(s->session) < s->n_rows) continue;
        plan_item(s, &sequence->answer.ids[s->n_ids - 1], 1, 1);
    }
}

/* A step ends only between its parts once nobody waits for it, so slow machines get fewer rows a step: as many as make
 * a part of PART_SECONDS, but never so few that reading the weights takes longer than computing. */
static int prompt_rows(const struct engine *x) {
    double part = x->pace.prompt / session_pool_parts(x->pool);
    int most = x->o.max_step_tokens;
    if (part * most <= PART_SECONDS) return most;
    return min_int(most, max_int(LEAST_PROMPT_ROWS, (int)(PART_SECONDS / part)));
}

/* Prompts in the order of admission, as far as the rows of a step reach. */
static void plan_prompts(struct engine *x) {
    int rows = prompt_rows(x), scored_rows = ENGINE_SCORED_ROWS;
    for (int i = 0; i < x->n_active; i++) {
        struct engine_sequence *s = x->active[i];
        if (s->state != SEQUENCE_RUNNING || engine_wants_view(s) || !engine_begin_prompt(s)) continue;
        int done = session_length(s->session), n = min_int(s->n_rows - done, rows);
        int unscored = max_int(0, scoring_first_row(s) - done);
        bool scores = scoring_reads(s);
        if (scores) n = min_int(n, unscored + scored_rows);
        if (n <= 0) continue;
        if (session_wants_source(s->session))
            rows = max_int(n, rows - s->n_source); /* the encoder's rows take their time too */
        int n_logits = max_int(0, n - unscored);
        plan_item(s, s->rows + done, n, n_logits);
        rows -= n;
        if (scores) scored_rows -= n_logits;
    }
}

void engine_plan(struct engine *x) {
    x->step.n = 0;
    plan_answers(x);
    plan_prompts(x);
}

/* Draw. */

/* The items that have come to the end of their rows, and draw their next token. */
static void choose_rows(struct engine *x) {
    struct engine_step *step = &x->step;
    int next = 0;
    for (int i = 0; i < step->n; i++) {
        const struct engine_sequence *s = step->sequences[i];
        const struct sequence_request *asked = &s->sequence->asked;
        bool draws = asked->max_tokens > 0 && !s->scoring.forced && session_length(s->session) >= s->n_rows;
        next += step->items[i].n_logits;
        step->draw_row[i] = draws ? next - 1 : -1;
        step->params[i] = asked->sampling;
        step->params[i].draw = (uint64_t)s->n_ids;
        step->params[i].edits = s->edits.list;
        step->params[i].n_edits = s->edits.n;
        if (draws && s->guide.matcher) step->params[i].mask = guide_mask(&step->sequences[i]->guide);
    }
}

/* Runs of neighbouring rows are drawn in one call. */
static void draw_tokens(struct engine *x, struct tensor logits) {
    struct engine_step *step = &x->step;
    int end;
    for (int i = 0; i < step->n; i = end) {
        end = i + 1;
        if (step->draw_row[i] < 0) continue;
        while (end < step->n && step->draw_row[end] == step->draw_row[end - 1] + 1) end++;
        backend_sample(x->o.backend, &(struct sample_args){.logits = tensor_rows(logits, step->draw_row[i], end - i),
                                                           .params = step->params + i,
                                                           .n_vocab = x->info.vocab,
                                                           .ids = step->drawn + i,
                                                           .logprobs = step->drawn_logprobs + i});
    }
}

static enum status draw_and_score(struct engine *x, struct tensor logits, struct error *e) {
    int first = 0;
    choose_rows(x);
    draw_tokens(x, logits);
    if (backend_sync(x->o.backend, e) || told_attention_take(x, e)) return e->status;
    for (int i = 0; i < x->step.n; i++) {
        int n = x->step.items[i].n_logits;
        if (scoring_take(x, i, tensor_rows(logits, first, n), e)) return e->status;
        first += n;
    }
    return STATUS_OK;
}

/* Emit. */

static void emit_token(struct engine_sequence *s, int32_t token, float logprob) {
    const struct sequence_answer *answer = &s->sequence->answer;
    enum finish how = engine_sequence_append(s, token, logprob);
    int row = s->n_rows + s->n_ids - s->n_reread - 1;
    if (how)
        engine_sequence_finish(s, how, &s->guide.error);
    else if (engine_passages_are_due(s))
        engine_seek_passages(s);
    else if (answer->n_chunks && grid_closes(answer->grid, row))
        engine_close_chunks(s, grid_read(answer->grid, row), 1);
    else
        engine_sequence_publish(s);
}

static void emit(struct engine *x) {
    const struct engine_step *step = &x->step;
    for (int i = 0; i < step->n; i++) {
        struct engine_sequence *s = step->sequences[i];
        if (step->draw_row[i] >= 0)
            emit_token(s, step->drawn[i], step->drawn_logprobs[i]);
        else if (session_length(s->session) == s->n_rows)
            engine_sequence_finish(s, FINISH_LENGTH, NULL); /* only the scores were asked for */
    }
}

/* Step. */

/* A failed step ends everyone who was in it; a failed device ends everyone. */
static void fail_step(struct engine *x, const struct error *e) {
    struct error told = *e;
    log_error("a step of %d sequences failed: %s", x->step.n, e->text);
    if (e->status == STATUS_DEVICE) /* names of machines are not for clients */
        error_set(&told, STATUS_DEVICE, "the device has failed; the server must be started again");
    for (int i = 0; i < x->step.n; i++) engine_sequence_finish(x->step.sequences[i], FINISH_ERROR, &told);
    if (e->status != STATUS_DEVICE) return;
    pthread_mutex_lock(&x->lock);
    x->failed = true;
    pthread_mutex_unlock(&x->lock);
}

static struct workload count_work(const struct engine_step *step) {
    struct workload done = {0};
    for (int i = 0; i < step->n; i++) {
        const struct engine_sequence *s = step->sequences[i];
        bool decodes = session_length(s->session) > s->n_rows;
        done.prompt += decodes ? 0 : step->items[i].n_tokens;
        done.answer += step->draw_row[i] >= 0;
    }
    return done;
}

static void count_step(struct engine *x) {
    struct workload done = count_work(&x->step);
    double now = time_now();
    x->step_seconds = now - x->paced;
    pace_note(&x->pace, done, x->step_seconds);
    x->paced = now;
    pthread_mutex_lock(&x->lock);
    x->counts.steps++;
    x->counts.prompt_tokens += done.prompt;
    x->counts.generated_tokens += done.answer;
    pthread_mutex_unlock(&x->lock);
}

bool engine_step_abandoned(void *engine) {
    const struct engine_step *step = &((const struct engine *)engine)->step;
    for (int i = 0; i < step->n; i++)
        if (!engine_sequence_cancelled(step->sequences[i])) return false;
    return true;
}

void engine_run_step(struct engine *x) {
    struct error e = {0};
    struct tensor logits;
    enum status status = session_step(x->pool, x->step.items, x->step.n, &logits, &e);
    if (status == STATUS_CANCELLED) {
        x->paced = time_now();
        return; /* engine_receive ends those who were in it */
    }
    if (status || draw_and_score(x, logits, &e)) {
        fail_step(x, &e);
        return;
    }
    count_step(x);
    emit(x);
}
