/* server/schedule/engine.c: one thread owns the model, the device and every sequence. Its loop, top-down:
 *
 *   receive   requests and neighbours that arrived come in through two queues; whoever left is dropped
 *   admit     waiting prompts get a sequence while there are any; the chunks of a prompt are looked up in one batch
 *   view      a part of the pictures in prompts goes through the tower
 *   plan      one step of many sequences: one row of each that decodes, and slices of prompts
 *   step      one forward of the model over all of them, then one draw
 *   emit      each drawn token is appended to its answer; text is published up to where it can no longer change
 *
 * A drawn token that closes a chunk needs that chunk's neighbours before its own row is computed: its sequence is
 * parked until the retrieval thread answers, and the others go on. engine_admit.c has the first two, engine_step.c the
 * others; here are the loop and what other threads call. */
#include <math.h>
#include <stdlib.h>

#include "server/schedule/engine_private.h"

/* Seconds that a refused client may be told to wait. */
enum { RETRY_LEAST = 1, RETRY_MOST = 60 };
/* How late a deadline may be seen while nothing is computed. */
static const double DEADLINE_SECONDS = 0.2;

/* The loop. */

static bool engine_is_over(struct engine *x) {
    pthread_mutex_lock(&x->lock);
    bool over = x->stopped || x->failed;
    pthread_mutex_unlock(&x->lock);
    return over;
}

static double active_seconds(const struct engine *x) {
    double seconds = 0;
    for (int i = 0; i < x->n_active; i++) seconds += pace_seconds(&x->pace, engine_sequence_left(x->active[i]));
    return seconds;
}

/* Publishes the figures that others may ask for. True when the thread is to end. */
static bool engine_tell(struct engine *x) {
    double running = active_seconds(x), waiting = pace_seconds(&x->pace, x->waiting);
    x->metrics.blocks = session_pool_blocks(x->pool);
    pthread_mutex_lock(&x->lock);
    x->counts.running = x->n_active;
    x->counts.parked = x->n_parked;
    x->running_seconds = running;
    x->waiting_seconds = waiting;
    x->told = x->metrics;
    bool ended = x->stopped && x->in_flight == 0 && x->n_left == 0;
    pthread_mutex_unlock(&x->lock);
    return ended;
}

/* Until something comes. Those who wait for neighbours may have a deadline. */
static void engine_rest(struct engine *x) {
    if (x->n_active > 0)
        bell_wait_for(&x->bell, DEADLINE_SECONDS);
    else
        bell_wait(&x->bell);
}

static void *engine_run(void *argument) {
    struct engine *x = argument;
    for (;;) {
        bool over = engine_is_over(x), idle = x->n_active == 0;
        engine_receive(x, over);
        if (!over) engine_admit(x);
        if (idle) x->paced = time_now(); /* work begins here, if any has come */
        if (engine_tell(x)) return NULL;
        bool views = engine_view_pictures(x);
        engine_plan(x);
        if (x->step.n > 0)
            engine_run_step(x);
        else if (!views)
            engine_rest(x);
    }
}

/* Opening and closing. */

static void open_buffers(struct engine *x) {
    size_t n = (size_t)x->o.max_sequences;
    struct engine_step *step = &x->step;
    x->active = xcalloc(n, sizeof(struct engine_sequence *));
    step->items = xcalloc(n, sizeof *step->items);
    step->sequences = xcalloc(n, sizeof(struct engine_sequence *));
    step->params = xcalloc(n, sizeof *step->params);
    step->draw_row = xcalloc(n, sizeof *step->draw_row);
    step->drawn = xcalloc(n, sizeof *step->drawn);
    step->drawn_logprobs = xcalloc(n, sizeof *step->drawn_logprobs);
    x->chunk_ids = xcalloc((size_t)x->info.chunk_length, sizeof *x->chunk_ids);
    x->row = xcalloc((size_t)x->info.padded_vocab, sizeof *x->row);
    size_t shares = (n + (size_t)x->o.max_step_tokens) * 2 * (size_t)x->o.max_k;
    x->shared_out = xcalloc(shares, sizeof *x->shared_out);
    x->top_ids = xcalloc((size_t)x->info.vocab, sizeof *x->top_ids);
    x->top_logprobs = xcalloc((size_t)x->info.vocab, sizeof *x->top_logprobs);
}

static void free_buffers(struct engine *x) {
    struct engine_step *step = &x->step;
    key_set_free(&x->scopes);
    free(x->active);
    free(step->items);
    free(step->sequences);
    free(step->params);
    free(step->draw_row);
    free(step->drawn);
    free(step->drawn_logprobs);
    free(x->chunk_ids);
    free(x->row);
    free(x->shared_out);
    free(x->top_ids);
    free(x->top_logprobs);
}

/* Blocks that are kept for later prompts. */
static int kept_blocks(const struct engine_options *o, const struct model_info *info) {
    double block = (double)ATTENTION_BLOCK * (double)info->cache_row_bytes;
    double own = (double)o->max_sequences * ((o->max_context + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK);
    double blocks = o->prefix_cache_mb < 0 ? own / 2 : 1e6 * o->prefix_cache_mb / block;
    return (int)fmin(blocks, INT32_MAX / ATTENTION_BLOCK);
}

struct session_limits engine_limits(const struct engine_options *o, const struct model_info *info) {
    return (struct session_limits){
        .max_sessions = o->max_sequences,
        .max_tokens = o->max_context,
        .max_step_rows = o->max_step_tokens + o->max_sequences,
        .max_logit_rows = ENGINE_SCORED_ROWS + o->max_sequences,
        .max_neighbors = o->max_neighbors,
        .max_shares = max_int(o->max_k, o->max_neighbors),
        .micro_batch_rows = o->micro_batch_rows,
        .kv_dtype = info->cache_dtype,
        .max_given = info->picture_rows ? o->max_step_tokens : 0,
        .max_picture_rows = info->picture_rows ? o->max_picture : 0,
        .max_source = info->reads_source ? o->max_context : 0,
        .kept_blocks = kept_blocks(o, info),
    };
}

static enum status start_thread(struct engine *x, struct error *e) {
    x->running = pthread_create(&x->thread, NULL, engine_run, x) == 0;
    return x->running ? STATUS_OK : error_set(e, STATUS_NO_MEMORY, "the engine's thread could not be started");
}

enum status engine_open(struct engine **out, const struct engine_options *o, struct error *e) {
    struct engine *x = xcalloc(1, sizeof *x);
    x->o = *o;
    x->info = *model_info(o->model);
    pthread_mutex_init(&x->lock, NULL);
    bell_open(&x->bell);
    queue_open(&x->submitted, engine_capacity(o) + engine_reserve(o), &x->bell);
    queue_open(&x->answered, engine_lookups(o->max_sequences), &x->bell);
    turns_open(&x->turns);
    open_buffers(x);

    struct session_limits limits = engine_limits(o, &x->info);
    enum status status = session_pool_open(&x->pool, o->model, &limits, e);
    if (status)
        error_prefix(e, "server.max_sequences %d of %d tokens, server.max_step_tokens %d, retrieval.max_neighbors %d",
                     o->max_sequences, o->max_context, o->max_step_tokens, o->max_neighbors);
    if (status == STATUS_OK) {
        status = engine_pin_prefixes(x, e);
    }
    if (status == STATUS_OK) {
        session_pool_watch(x->pool, engine_step_abandoned, x);
        status = start_thread(x, e);
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
    queue_close(&x->submitted);
    queue_close(&x->answered);
    turns_close(&x->turns);
    bell_close(&x->bell);
    pthread_mutex_destroy(&x->lock);
    client_counts_free(&x->by_client);
    free_buffers(x);
    free(x);
}

/* Submitting. */

/* A request is let in as soon as one place is free, and then with all its prompts: many prompts are refused no more
 * often than one. So there may be more in flight than the limit, by less than one request. A client that has nothing in
 * flight also gets one of the places in reserve. */
static enum status check_room(const struct engine *x, uint64_t client, int n, struct error *e) {
    const struct engine_options *o = &x->o;
    int capacity = engine_capacity(o), places = capacity;
    if (client_counts_of(&x->by_client, client) == 0) places += engine_reserve(o);
    if (x->failed) return error_set(e, STATUS_DEVICE, "the device has failed; the server must be started again");
    if (x->stopped) return error_set(e, STATUS_BUSY, "the server is stopping");
    if (n > capacity)
        return error_set(e, STATUS_TOO_LARGE,
                         "the request has %d prompts; %d is the most that are taken at a time (server.max_sequences %d "
                         "and server.max_queue %d)",
                         n, capacity, o->max_sequences, o->max_queue);
    if (x->in_flight >= places)
        return error_set(e, STATUS_BUSY,
                         "%d prompts are running or waiting and this request has %d; the limit is %d "
                         "(server.max_sequences %d and server.max_queue %d)",
                         x->in_flight, n, capacity, o->max_sequences, o->max_queue);
    return STATUS_OK;
}

static struct engine_submission *make_submission(struct engine *x, struct sequence *const *sequences, int n) {
    const struct sequence_rows rows = {x->o.grid, x->info.chunk_length, x->o.max_context};
    struct engine_submission *submission = xmalloc(sizeof *submission + (size_t)n * sizeof(struct turn *));
    struct snapshot *snapshot = x->o.retrieval ? retrieval_thread_hold(x->o.retrieval) : NULL;
    submission->client = sequences[0]->asked.principal.client;
    submission->n = n;
    for (int i = 0; i < n; i++) {
        struct sequence *sequence = sequences[i];
        sequence_prepare(sequence, &rows);
        if (sequence_searches(&sequence->asked)) sequence->answer.snapshot = snapshot_hold(snapshot);
        submission->items[i] = &engine_sequence_open(x, sequence)->turn;
    }
    snapshot_release(snapshot);
    return submission;
}

static void free_submission(struct engine_submission *submission) {
    for (int i = 0; i < submission->n; i++) engine_sequence_free((struct engine_sequence *)submission->items[i]);
    free(submission);
}

enum status engine_submit(struct engine *x, struct sequence *const *sequences, int n, struct error *e) {
    struct engine_submission *submission = make_submission(x, sequences, n);
    pthread_mutex_lock(&x->lock);
    enum status status = check_room(x, submission->client, n, e);
    if (status == STATUS_OK) {
        x->in_flight += n;
        client_counts_add(&x->by_client, submission->client, n);
        CHECK(queue_put(&x->submitted, (void *[]){submission}, 1)); /* each has a prompt in flight, so there is room */
    }
    pthread_mutex_unlock(&x->lock);
    if (status) free_submission(submission);
    return status;
}

void engine_notice(struct engine *x) { bell_ring(&x->bell); }

/* Asking. */

/* Places become free when all that run are done, more of them when some of those who wait are done, too. */
int engine_retry_after(struct engine *x) {
    pthread_mutex_lock(&x->lock);
    int running = x->counts.running, waiting = max_int(0, x->in_flight - running);
    int wanted = max_int(1, x->in_flight - engine_capacity(&x->o) + 1);
    double seconds = x->running_seconds;
    if (waiting > 0) seconds += x->waiting_seconds * max_int(0, wanted - running) / waiting;
    pthread_mutex_unlock(&x->lock);
    return (int)fmin(fmax(ceil(seconds), RETRY_LEAST), RETRY_MOST);
}

struct engine_counts engine_counts(struct engine *x) {
    pthread_mutex_lock(&x->lock);
    struct engine_counts counts = x->counts;
    counts.waiting = max_int(0, x->in_flight - counts.running);
    pthread_mutex_unlock(&x->lock);
    return counts;
}

void engine_metrics_read(struct engine *x, struct engine_metrics *out) {
    pthread_mutex_lock(&x->lock);
    *out = x->told;
    pthread_mutex_unlock(&x->lock);
}

size_t engine_bytes(const struct engine *x) { return session_pool_bytes(x->pool); }

bool engine_failed(struct engine *x) {
    pthread_mutex_lock(&x->lock);
    bool failed = x->failed;
    pthread_mutex_unlock(&x->lock);
    return failed;
}
