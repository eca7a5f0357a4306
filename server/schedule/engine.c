/* server/schedule/engine.c: one thread owns the model, the device and every sequence. Its loop, top-down:
 *
 *   receive   new generations and neighbours that arrived come in through two queues; who left is dropped
 *   admit     waiting generations get a session while there are any; the chunks of a prompt are looked up in one batch
 *   plan      one step of many sequences: one row of each that decodes, and slices of prompts
 *   step      one forward of the model over all of them, then one draw
 *   emit      each drawn token is appended to its answer; text is published up to where it can no longer change
 *
 * A drawn token that closes a chunk needs that chunk's neighbours before its own row is computed: its generation is
 * parked until the retrieval thread answers, and the others go on. */
#include "server/schedule/engine.h"

#include <stdlib.h>
#include <string.h>

#include "server/schedule/queue.h"

/* Logits rows of prompts that are scored in one step, beside one row per sequence: bounds memory, not prompts. */
enum { SCORED_ROWS = 64 };

struct engine {
    struct engine_options o;
    struct model_info info;
    struct session_pool *pool;
    pthread_t thread;
    bool running;
    struct bell bell;
    struct queue pending;  /* submitted generations */
    struct queue answered; /* generations whose lookup is done */

    pthread_mutex_t lock; /* guards the next four */
    bool stopped, failed;
    int in_flight;
    struct engine_counts counts;

    /* The rest is the thread's own. */
    struct generation *waiting, **waiting_end; /* in order of arrival */
    struct generation **active;                /* [max_sequences] those with a session, in order of admission */
    int n_active, n_parked;
    struct step_item *items; /* [max_sequences] the step being made, and for each item: */
    struct generation **item_generation;
    struct sample_params *params;
    int *draw_row; /* row of the logits its next token is drawn from, -1: none is drawn */
    int32_t *drawn;
    float *drawn_logprobs;
    int n_items;
    int32_t *chunk_ids; /* [chunk_length] */
    float *row;         /* [padded vocabulary] one row of logits on the host */
    int32_t *top_ids;   /* [vocabulary] */
    float *top_logprobs;
};

/* Ends. */

static void tell(struct generation *g, bool always) {
    if (g->waker.wake && (always || g->wake_per_token)) g->waker.wake(g->waker.context);
}

/* Everything appended so far may be read. */
static void publish(struct generation *g) {
    pthread_mutex_lock(&g->lock);
    g->published = (struct progress){.n_ids = g->n_ids, .visible = g->visible, .n_found = g->n_neighbors};
    tell(g, false);
    pthread_mutex_unlock(&g->lock);
}

static void leave(struct engine *x, struct generation *g) {
    if (g->session == NULL) return;
    session_close(g->session);
    g->session = NULL;
    int i = 0;
    while (x->active[i] != g) i++;
    memmove(x->active + i, x->active + i + 1, (size_t)(--x->n_active - i) * sizeof(struct generation *));
}

/* The last publication; e only with FINISH_ERROR. The generation may be gone afterwards. */
static void finish(struct engine *x, struct generation *g, enum finish how, const struct error *e) {
    leave(x, g);
    g->state = GENERATION_DONE;
    pthread_mutex_lock(&x->lock);
    x->in_flight--;
    pthread_mutex_unlock(&x->lock);
    pthread_mutex_lock(&g->lock);
    if (how == FINISH_ERROR) g->error = *e;
    g->published = (struct progress){g->n_ids, g->visible, g->n_neighbors, how};
    tell(g, true);
    pthread_mutex_unlock(&g->lock);
    generation_release(g);
}

static void finish_cancelled(struct engine *x, struct generation *g) {
    struct error e;
    error_set(&e, STATUS_CANCELLED, "the request was cancelled: the client left or the server stops");
    finish(x, g, FINISH_ERROR, &e);
}

/* Neighbours. */

static void lookup_done(struct lookup *l) {
    struct generation *g = l->context;
    CHECK(queue_put(&g->engine->answered, (void *[]){g}, 1)); /* one lookup per session, so there is room */
}

/* Asks for the neighbours of chunks [first, first + n) and parks the generation. */
static void look_up(struct engine *x, struct generation *g, int first, int n) {
    struct lookup *l = &g->lookup;
    struct error e = {0};
    buffer_clear(&g->query_text);
    for (int j = 0; j < n; j++) {
        size_t before = g->query_text.size;
        int n_ids = generation_chunk(g, first + j, x->chunk_ids);
        tokenizer_decode(x->o.tokenizer, x->chunk_ids, n_ids, true, &g->query_text);
        l->queries[j] = (struct retriever_query){.text = {NULL, g->query_text.size - before},
                                                 .k = g->k,
                                                 .r = x->info.retrieved_length,
                                                 .min_similarity = g->min_similarity};
    }
    const char *text = g->query_text.data ? g->query_text.data : "";
    for (int j = 0; j < n; text += l->queries[j++].text.size) l->queries[j].text.text = text;
    l->n = n;
    l->hits = g->found + first;
    l->cancelled = &g->cancelled;
    l->done = lookup_done;
    l->context = g;
    g->state = GENERATION_PARKED;
    x->n_parked++;
    if (retrieval_thread_ask(x->o.retrieval, l, &e)) {
        x->n_parked--;
        finish(x, g, FINISH_ERROR, &e);
    }
}

/* Rows about to be computed close chunks [first, first + n): their neighbours are looked up, given, or none. */
static void close_chunks(struct engine *x, struct generation *g, int first, int n) {
    if (g->retrieve && n > 0) {
        look_up(x, g, first, n);
        return;
    }
    g->n_neighbors += n;
    publish(g);
}

static void accept_neighbors(struct engine *x, struct generation *g) {
    const struct lookup *l = &g->lookup;
    x->n_parked--;
    g->state = GENERATION_RUNNING;
    if (l->status) {
        struct error e = l->error;
        finish(x, g, FINISH_ERROR, &e);
        return;
    }
    for (int j = 0; j < l->n; j++)
        g->neighbors[g->n_neighbors++] = (struct neighbor_tokens){.ids = l->hits[j].ids, .k = l->hits[j].n};
    publish(g);
}

/* Receive and admit. */

static bool is_stopped(struct engine *x) {
    pthread_mutex_lock(&x->lock);
    bool stopped = x->stopped || x->failed;
    pthread_mutex_unlock(&x->lock);
    return stopped;
}

/* Who left costs nothing from here on. A parked generation is with the retrieval thread: its turn comes when it is
 * answered, which for a cancelled one is at once. */
static void drop_cancelled(struct engine *x, bool all) {
    for (struct generation **at = &x->waiting; *at;) {
        struct generation *g = *at;
        if (!all && !atomic_load(&g->cancelled)) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        if (*at == NULL) x->waiting_end = at;
        finish_cancelled(x, g);
    }
    for (int i = x->n_active - 1; i >= 0; i--) {
        struct generation *g = x->active[i];
        if (g->state != GENERATION_PARKED && (all || atomic_load(&g->cancelled))) finish_cancelled(x, g);
    }
}

static void receive(struct engine *x, bool stopped) {
    struct generation *g;
    while ((g = queue_take(&x->pending)) != NULL) {
        *x->waiting_end = g;
        x->waiting_end = &g->next;
    }
    while ((g = queue_take(&x->answered)) != NULL) accept_neighbors(x, g);
    drop_cancelled(x, stopped);
}

static void admit(struct engine *x) {
    while (x->waiting && x->n_active < x->o.max_sequences) {
        struct generation *g = x->waiting;
        struct error e = {0};
        x->waiting = g->next;
        if (x->waiting == NULL) x->waiting_end = &x->waiting;
        if (g->max_tokens == 0 && !g->score_prompt) {
            finish(x, g, FINISH_LENGTH, NULL);
        } else if (session_open(&g->session, x->pool, g->grid, &e)) {
            finish(x, g, FINISH_ERROR, &e);
        } else {
            x->active[x->n_active++] = g;
            g->state = GENERATION_RUNNING;
            close_chunks(x, g, 0, g->n_chunks ? grid_complete(g->grid, g->n_prompt) : 0);
        }
    }
}

/* Plan. */

static void plan_item(struct engine *x, struct generation *g, const int32_t *tokens, int n_tokens, int n_logits) {
    int done = session_length(g->session), i = x->n_items++;
    const struct neighbor_tokens *neighbors = g->n_chunks ? g->neighbors + grid_complete(g->grid, done) : NULL;
    x->items[i] = (struct step_item){
        .session = g->session, .tokens = tokens, .n_tokens = n_tokens, .neighbors = neighbors, .n_logits = n_logits};
    x->item_generation[i] = g;
}

static void plan_step(struct engine *x) {
    int prompt_rows = x->o.max_step_tokens, scored_rows = SCORED_ROWS;
    x->n_items = 0;
    for (int i = 0; i < x->n_active; i++) {
        struct generation *g = x->active[i];
        if (g->state != GENERATION_RUNNING || session_length(g->session) < g->n_prompt) continue;
        plan_item(x, g, &g->ids[g->n_ids - 1], 1, 1);
    }
    for (int i = 0; i < x->n_active; i++) {
        struct generation *g = x->active[i];
        if (g->state != GENERATION_RUNNING) continue;
        int done = session_length(g->session), n = min_int(g->n_prompt - done, prompt_rows);
        if (g->score_prompt) n = min_int(n, scored_rows);
        if (n <= 0) continue;
        bool last = done + n == g->n_prompt;
        plan_item(x, g, g->prompt + done, n, g->score_prompt ? n : last);
        prompt_rows -= n;
        if (g->score_prompt) scored_rows -= n;
    }
}

/* Emit. */

/* Log-probabilities of `token` under one row of logits, into row `entry` of the answer. */
static enum status score(struct engine *x, struct generation *g, int entry, struct tensor logits, int32_t token,
                         struct error *e) {
    int n = max_int(1, g->n_top), at = 0;
    size_t first = (size_t)entry * (size_t)g->n_top;
    backend_download(x->o.backend, x->row, logits.data, (size_t)x->info.padded_vocab * sizeof *x->row);
    if (backend_sync(x->o.backend, e)) return e->status;
    float log_sum = logprobs_top(x->row, x->info.vocab, n, x->top_ids, x->top_logprobs);
    while (at < n && x->top_ids[at] != token) at++;
    /* The same number as in the list when it is there: clients compare the two for equality. */
    g->logprobs[entry] = at < n ? x->top_logprobs[at] : x->row[token] - log_sum;
    memcpy(g->top_ids + first, x->top_ids, (size_t)g->n_top * sizeof *g->top_ids);
    memcpy(g->top_logprobs + first, x->top_logprobs, (size_t)g->n_top * sizeof *g->top_logprobs);
    return STATUS_OK;
}

/* The token's text, and how much of all text may be shown. Returns why the answer ends here, if it does. */
static enum finish append_token(struct engine *x, struct generation *g, int32_t token) {
    const struct tokenizer *t = x->o.tokenizer;
    bool ends = token == x->o.eod && !g->ignore_eos;
    enum finish how = ends ? FINISH_STOP : g->n_ids + 1 == g->max_tokens ? FINISH_LENGTH : FINISH_NONE;
    if (!ends && !tokenizer_is_special(t, token)) detokenizer_push(&g->detokenizer, t, token, &g->text);
    g->ids[g->n_ids] = token;
    g->text_ends[g->n_ids++] = g->text.size;
    if (stops_scan(&g->stops, g->text.data, g->text.size, &g->visible)) return FINISH_STOP;
    if (how == FINISH_NONE) return how;
    detokenizer_finish(&g->detokenizer, &g->text);
    g->visible = g->text.size;
    return how;
}

static void emit(struct engine *x, struct generation *g, int32_t token) {
    pthread_mutex_lock(&g->lock);
    enum finish how = append_token(x, g, token);
    pthread_mutex_unlock(&g->lock);
    int row = g->n_prompt + g->n_ids - 1;
    if (how)
        finish(x, g, how, NULL);
    else if (g->n_chunks && grid_closes(g->grid, row))
        close_chunks(x, g, grid_read(g->grid, row), 1);
    else
        publish(g);
}

/* Step. */

/* Draws the next token of every item that has come to the end of its rows; runs of neighbouring rows in one call. */
static void draw(struct engine *x, struct tensor logits) {
    int n = x->n_items, next = 0;
    for (int i = 0; i < n; i++) {
        struct generation *g = x->item_generation[i];
        next += x->items[i].n_logits;
        bool draws = g->max_tokens > 0 && session_length(g->session) >= g->n_prompt;
        x->draw_row[i] = draws ? next - 1 : -1;
        x->params[i] = g->sampling;
        x->params[i].draw = (uint64_t)g->n_ids;
    }
    for (int i = 0, end; i < n; i = end) {
        end = i + 1;
        if (x->draw_row[i] < 0) continue;
        while (end < n && x->draw_row[end] == x->draw_row[end - 1] + 1) end++;
        sample(x->o.backend, &(struct sample_args){.logits = tensor_rows(logits, x->draw_row[i], end - i),
                                                   .params = x->params + i,
                                                   .n_vocab = x->info.vocab,
                                                   .ids = x->drawn + i,
                                                   .logprobs = x->drawn_logprobs + i});
    }
}

/* Row i of a prompt predicts token i + 1; the last of the item's rows has just drawn. */
static enum status score_item(struct engine *x, int i, struct tensor logits, struct error *e) {
    struct generation *g = x->item_generation[i];
    int n = x->items[i].n_tokens, start = session_length(g->session) - n;
    for (int j = 0; g->score_prompt && j < n && start + j + 1 < g->n_prompt; j++)
        if (score(x, g, start + j + 1, tensor_rows(logits, j, 1), g->prompt[start + j + 1], e)) return e->status;
    if (g->n_top < 0 || x->draw_row[i] < 0) return STATUS_OK;
    return score(x, g, g->n_prompt + g->n_ids, tensor_rows(logits, logits.rows - 1, 1), x->drawn[i], e);
}

static enum status draw_and_score(struct engine *x, struct tensor logits, struct error *e) {
    draw(x, logits);
    if (backend_sync(x->o.backend, e)) return e->status;
    for (int i = 0, first = 0; i < x->n_items; first += x->items[i++].n_logits)
        if (score_item(x, i, tensor_rows(logits, first, x->items[i].n_logits), e)) return e->status;
    return STATUS_OK;
}

/* A failed step ends everyone who was in it; a failed device ends everyone. */
static void fail_step(struct engine *x, const struct error *e) {
    log_error("a step of %d sequences failed: %s", x->n_items, e->text);
    for (int i = 0; i < x->n_items; i++) finish(x, x->item_generation[i], FINISH_ERROR, e);
    if (e->status != STATUS_DEVICE) return;
    pthread_mutex_lock(&x->lock);
    x->failed = true;
    pthread_mutex_unlock(&x->lock);
}

static void count_step(struct engine *x) {
    pthread_mutex_lock(&x->lock);
    x->counts.steps++;
    for (int i = 0; i < x->n_items; i++) {
        bool decodes = session_length(x->item_generation[i]->session) > x->item_generation[i]->n_prompt;
        x->counts.prompt_tokens += decodes ? 0 : x->items[i].n_tokens;
        x->counts.generated_tokens += x->draw_row[i] >= 0;
    }
    pthread_mutex_unlock(&x->lock);
}

static void run_step(struct engine *x) {
    struct error e = {0};
    struct tensor logits;
    if (session_step(x->pool, x->items, x->n_items, &logits, &e) || draw_and_score(x, logits, &e)) {
        fail_step(x, &e);
        return;
    }
    count_step(x);
    for (int i = 0; i < x->n_items; i++) {
        struct generation *g = x->item_generation[i];
        if (x->draw_row[i] >= 0)
            emit(x, g, x->drawn[i]);
        else if (session_length(g->session) == g->n_prompt)
            finish(x, g, FINISH_LENGTH, NULL); /* max_tokens 0: only the scores were asked for */
    }
}

static void *run(void *argument) {
    struct engine *x = argument;
    for (;;) {
        bool stopped = is_stopped(x);
        receive(x, stopped);
        if (!stopped) admit(x);
        pthread_mutex_lock(&x->lock);
        x->counts.running = x->n_active;
        x->counts.parked = x->n_parked;
        bool ended = x->stopped && x->in_flight == 0;
        pthread_mutex_unlock(&x->lock);
        if (ended) return NULL;
        plan_step(x);
        if (x->n_items > 0)
            run_step(x);
        else
            bell_wait(&x->bell);
    }
}

/* What others call. */

static void open_buffers(struct engine *x) {
    size_t n = (size_t)x->o.max_sequences;
    x->waiting_end = &x->waiting;
    x->active = xcalloc(n, sizeof(struct generation *));
    x->items = xcalloc(n, sizeof *x->items);
    x->item_generation = xcalloc(n, sizeof(struct generation *));
    x->params = xcalloc(n, sizeof *x->params);
    x->draw_row = xcalloc(n, sizeof *x->draw_row);
    x->drawn = xcalloc(n, sizeof *x->drawn);
    x->drawn_logprobs = xcalloc(n, sizeof *x->drawn_logprobs);
    x->chunk_ids = xcalloc((size_t)x->info.chunk_length, sizeof *x->chunk_ids);
    x->row = xcalloc((size_t)x->info.padded_vocab, sizeof *x->row);
    x->top_ids = xcalloc((size_t)x->info.vocab, sizeof *x->top_ids);
    x->top_logprobs = xcalloc((size_t)x->info.vocab, sizeof *x->top_logprobs);
}

struct session_limits engine_limits(const struct engine_options *o, const struct model_info *info) {
    return (struct session_limits){
        .max_sessions = o->max_sequences,
        .max_tokens = o->max_context,
        .max_step_rows = o->max_step_tokens + o->max_sequences,
        .max_logit_rows = SCORED_ROWS + o->max_sequences,
        .max_neighbors = o->max_k,
        .micro_batch_rows = o->micro_batch_rows,
        .kv_dtype = info->dtype == DTYPE_F32 ? DTYPE_F32 : DTYPE_F16,
    };
}

enum status engine_open(struct engine **out, const struct engine_options *o, struct error *e) {
    struct engine *x = xcalloc(1, sizeof *x);
    x->o = *o;
    x->info = *model_info(o->model);
    pthread_mutex_init(&x->lock, NULL);
    bell_open(&x->bell);
    queue_open(&x->pending, o->max_sequences + o->max_queue, &x->bell);
    queue_open(&x->answered, o->max_sequences, &x->bell);
    open_buffers(x);
    struct session_limits limits = engine_limits(o, &x->info);
    enum status status = session_pool_open(&x->pool, o->model, &limits, e);
    if (status)
        error_prefix(e, "server.max_sequences %d of %d tokens, server.max_step_tokens %d, retrieval.max_k %d",
                     o->max_sequences, o->max_context, o->max_step_tokens, o->max_k);
    if (status == STATUS_OK) {
        x->running = pthread_create(&x->thread, NULL, run, x) == 0;
        if (!x->running) status = error_set(e, STATUS_NO_MEMORY, "the engine's thread could not be started");
    }
    if (status)
        engine_close(x);
    else
        *out = x;
    return status;
}

void engine_stop(struct engine *x) {
    if (x == NULL || !x->running) return;
    pthread_mutex_lock(&x->lock);
    x->stopped = true;
    pthread_mutex_unlock(&x->lock);
    bell_ring(&x->bell);
    pthread_join(x->thread, NULL);
    x->running = false;
}

void engine_close(struct engine *x) {
    if (x == NULL) return;
    engine_stop(x);
    session_pool_close(x->pool);
    queue_close(&x->pending);
    queue_close(&x->answered);
    bell_close(&x->bell);
    pthread_mutex_destroy(&x->lock);
    free(x->active);
    free(x->items);
    free(x->item_generation);
    free(x->params);
    free(x->draw_row);
    free(x->drawn);
    free(x->drawn_logprobs);
    free(x->chunk_ids);
    free(x->row);
    free(x->top_ids);
    free(x->top_logprobs);
    free(x);
}

static enum status check_room(const struct engine *x, int n, struct error *e) {
    if (x->failed) return error_set(e, STATUS_DEVICE, "the device has failed; the server must be started again");
    if (x->stopped) return error_set(e, STATUS_BUSY, "the server is stopping");
    if (x->in_flight + n > x->o.max_sequences + x->o.max_queue)
        return error_set(e, STATUS_BUSY,
                         "%d prompts are running or waiting and this request has %d; the limit is %d "
                         "(server.max_sequences %d and server.max_queue %d)",
                         x->in_flight, n, x->o.max_sequences + x->o.max_queue, x->o.max_sequences, x->o.max_queue);
    return STATUS_OK;
}

enum status engine_submit(struct engine *x, struct generation *const *generations, int n, struct error *e) {
    for (int i = 0; i < n; i++) {
        generation_prepare(generations[i], x->o.grid, x->info.chunk_length);
        generations[i]->engine = x;
    }
    pthread_mutex_lock(&x->lock);
    enum status status = check_room(x, n, e);
    if (status == STATUS_OK) {
        x->in_flight += n;
        for (int i = 0; i < n; i++) generation_hold(generations[i]);
        CHECK(queue_put(&x->pending, (void *const *)generations, n));
    }
    pthread_mutex_unlock(&x->lock);
    return status;
}

void engine_notice(struct engine *x) { bell_ring(&x->bell); }

struct engine_counts engine_counts(struct engine *x) {
    pthread_mutex_lock(&x->lock);
    struct engine_counts counts = x->counts;
    counts.waiting = max_int(0, x->in_flight - counts.running);
    pthread_mutex_unlock(&x->lock);
    return counts;
}

size_t engine_bytes(const struct engine *x) { return session_pool_bytes(x->pool); }

bool engine_failed(struct engine *x) {
    pthread_mutex_lock(&x->lock);
    bool failed = x->failed;
    pthread_mutex_unlock(&x->lock);
    return failed;
}
