/* server/schedule/engine.c: one thread owns the model, the device and every sequence. Its loop,
 * top-down:
 *
 *   receive   requests and neighbours that arrived come in through two queues; whoever left is
 * dropped admit     waiting prompts get a sequence while there are any; the chunks of a prompt are
 * looked up in one batch view      a part of the pictures in prompts goes through the tower plan
 * one step of many sequences: one row of each that decodes, and slices of prompts step      one
 * forward of the model over all of them, then one draw emit      each drawn token is appended to
 * its answer; text is published up to where it can no longer change
 *
 * A drawn token that closes a chunk needs that chunk's neighbours before its own row is computed:
 * its sequence is parked until the retrieval thread answers, and the others go on. engine_admit.c
 * has the first two, engine_step.c the others; here are the loop and what other threads call. */
#include <math.h>
#include <stdlib.h>

#include "server/schedule/engine_private.h"

/* Seconds that a refused client may be told to wait. */
enum { RETRY_LEAST = 1, RETRY_MOST = 60 };
/* How late a deadline may be seen while nothing is computed. */
static const double DEADLINE_SECONDS = 0.2;
/* How long the text of a document that went may stay while nobody asks anything. */
static const double GONE_SECONDS = 0.5;

/* The loop. */

static bool engine_is_over(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    bool over = engine->stopped || engine->failed;
    pthread_mutex_unlock(&engine->lock);
    return over;
}

static double active_seconds(const struct engine *engine) {
    double seconds = 0;
    for (int i = 0; i < engine->n_active; i++)
        seconds += pace_seconds(&engine->pace, engine_sequence_left(engine->active[i]));
    return seconds;
}

/* Publishes the figures that others may ask for. True when the thread is to end. */
static bool engine_tell(struct engine *engine) {
    double running = active_seconds(engine), waiting = pace_seconds(&engine->pace, engine->waiting);
    engine->metrics.blocks = session_pool_blocks(engine->pool);
    engine->metrics.chunks = session_pool_chunks(engine->pool);
    engine->metrics.fetched_bytes = (int64_t)backend_fetched(engine->o.backend);
    engine->metrics.mapped_expert_bytes = (int64_t)engine->info.mapped_expert_bytes;
    engine->metrics.held_expert_bytes = (int64_t)engine->info.held_expert_bytes;
    pthread_mutex_lock(&engine->lock);
    engine->counts.running = engine->n_active;
    engine->counts.parked = engine->n_parked;
    engine->running_seconds = running;
    engine->waiting_seconds = waiting;
    engine->told = engine->metrics;
    bool ended = engine->stopped && engine->in_flight == 0 && engine->n_left == 0;
    pthread_mutex_unlock(&engine->lock);
    return ended;
}

/* Until something comes. Those who wait for neighbours may have a deadline. */
static void engine_rest(struct engine *engine) {
    if (engine->n_active > 0)
        bell_wait_for(&engine->bell, DEADLINE_SECONDS);
    else if (engine_watches_documents(engine))
        bell_wait_for(&engine->bell, GONE_SECONDS);
    else
        bell_wait(&engine->bell);
}

static void *engine_run(void *argument) {
    struct engine *engine = argument;
    for (;;) {
        bool over = engine_is_over(engine), idle = engine->n_active == 0;
        engine_receive(engine, over);
        if (!over) engine_admit(engine);
        if (idle) engine->paced = time_now(); /* work begins here, if any has come */
        if (engine_tell(engine)) return NULL;
        bool views = engine_view_pictures(engine);
        engine_plan(engine);
        if (engine->step.n > 0)
            engine_run_step(engine);
        else if (!views)
            engine_rest(engine);
    }
}

/* Opening and closing. */

static void open_buffers(struct engine *engine) {
    size_t n = (size_t)engine->o.max_sequences;
    struct engine_step *step = &engine->step;
    engine->active = xcalloc(n, sizeof(struct engine_sequence *));
    step->items = xcalloc(n, sizeof *step->items);
    step->sequences = xcalloc(n, sizeof(struct engine_sequence *));
    step->params = xcalloc(n, sizeof *step->params);
    step->draw_row = xcalloc(n, sizeof *step->draw_row);
    step->drawn = xcalloc(n, sizeof *step->drawn);
    step->drawn_logprobs = xcalloc(n, sizeof *step->drawn_logprobs);
    engine->chunk_ids = xcalloc((size_t)engine->info.chunk_length, sizeof *engine->chunk_ids);
    engine->row = xcalloc((size_t)engine->info.padded_vocab, sizeof *engine->row);
    size_t rows = n + (size_t)engine->o.max_step_tokens + DRAFT_STEP_ROWS;
    size_t shares = rows * 2 * (size_t)engine_limits(&engine->o, &engine->info).max_shares;
    engine->shared_out = xcalloc(shares, sizeof *engine->shared_out);
    engine->top_ids = xcalloc((size_t)engine->info.vocab, sizeof *engine->top_ids);
    engine->top_logprobs = xcalloc((size_t)engine->info.vocab, sizeof *engine->top_logprobs);
}

static void free_buffers(struct engine *engine) {
    struct engine_step *step = &engine->step;
    key_set_free(&engine->scopes);
    free(engine->active);
    free(step->items);
    free(step->sequences);
    free(step->params);
    free(step->draw_row);
    free(step->drawn);
    free(step->drawn_logprobs);
    free(engine->chunk_ids);
    free(engine->row);
    free(engine->shared_out);
    free(engine->top_ids);
    free(engine->top_logprobs);
}

/* Of a model with states half of the memory for prefixes is theirs. */
static double prefix_bytes(const struct engine_options *options, const struct model_info *info) {
    return 1e6 * options->prefix_cache_mb / (info->state_bytes > 0 ? 2 : 1);
}

/* States that are kept for later prompts. */
static int kept_states(const struct engine_options *options, const struct model_info *info) {
    enum { STATES_OF_SEQUENCE = 2 }; /* by default */
    if (info->state_bytes == 0) return 0;
    if (options->prefix_cache_mb < 0) return STATES_OF_SEQUENCE * options->max_sequences;
    return (int)fmin(prefix_bytes(options, info) / (double)info->state_bytes, LIMIT_KEPT_STATES);
}

/* Blocks that are kept for later prompts; without a state no rows can be taken over. */
static int kept_blocks(const struct engine_options *options, const struct model_info *info) {
    if (info->state_bytes > 0 && kept_states(options, info) == 0) return 0;
    double block = (double)ATTENTION_BLOCK * (double)info->cache_row_bytes;
    double own = (double)options->max_sequences *
                 ((options->max_context + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK);
    double blocks = options->prefix_cache_mb < 0 ? own / 2 : prefix_bytes(options, info) / block;
    return (int)fmin(blocks, INT32_MAX / ATTENTION_BLOCK);
}

struct session_limits engine_limits(const struct engine_options *options,
                                    const struct model_info *info) {
    int drafts = options->drafts == DRAFTS_OFF ? 0 : DRAFT_STEP_ROWS;
    return (struct session_limits){
        .max_sessions = options->max_sequences,
        .max_tokens = options->max_context,
        .max_step_rows = options->max_step_tokens + options->max_sequences + drafts,
        .max_draft_rows = drafts,
        .max_logit_rows = ENGINE_SCORED_ROWS + options->max_sequences + drafts,
        .max_neighbors = options->max_neighbors,
        .max_shares = max_int(options->max_k, options->max_neighbors),
        .micro_batch_rows = options->micro_batch_rows,
        .kv_dtype = info->cache_dtype,
        .max_given = info->picture_rows ? options->max_step_tokens : 0,
        .max_picture_rows = info->picture_rows ? options->max_picture : 0,
        .max_source = info->reads_source ? options->max_context : 0,
        .kept_blocks = kept_blocks(options, info),
        .kept_states = kept_states(options, info),
    };
}

static enum status start_thread(struct engine *engine, struct error *e) {
    engine->running = pthread_create(&engine->thread, NULL, engine_run, engine) == 0;
    return engine->running
               ? STATUS_OK
               : error_set(e, STATUS_NO_MEMORY, "the engine's thread could not be started");
}

enum status engine_open(struct engine **out, const struct engine_options *options,
                        struct error *e) {
    struct engine *engine = xcalloc(1, sizeof *engine);
    engine->o = *options;
    engine->info = *model_info(options->model);
    pthread_mutex_init(&engine->lock, NULL);
    bell_open(&engine->bell);
    queue_open(&engine->submitted, engine_capacity(options) + engine_reserve(options),
               &engine->bell);
    queue_open(&engine->answered, engine_lookups(options->max_sequences), &engine->bell);
    turns_open(&engine->turns);
    open_buffers(engine);

    struct session_limits limits = engine_limits(options, &engine->info);
    enum status status = session_pool_open(&engine->pool, options->model, &limits, e);
    if (status)
        error_prefix(e,
                     "server.max_sequences %d of %d tokens, server.max_step_tokens %d, "
                     "retrieval.max_neighbors %d",
                     options->max_sequences, options->max_context, options->max_step_tokens,
                     options->max_neighbors);
    if (status == STATUS_OK) {
        status = engine_pin_prefixes(engine, e);
    }
    if (status == STATUS_OK) status = engine_open_blocks(engine, e);
    if (status == STATUS_OK) {
        session_pool_watch(engine->pool, engine_step_abandoned, engine);
        status = start_thread(engine, e);
    }
    if (status)
        engine_close(engine);
    else
        *out = engine;
    return status;
}

void engine_stop(struct engine *engine) {
    if (engine == NULL || !engine->running) return;
    pthread_mutex_lock(&engine->lock);
    engine->stopped = true;
    pthread_mutex_unlock(&engine->lock);
    bell_ring(&engine->bell);
    pthread_join(engine->thread, NULL);
    engine->running = false;
    engine_stop_blocks(engine);
}

void engine_close(struct engine *engine) {
    if (engine == NULL) return;
    engine_stop(engine);
    engine_close_blocks(engine);
    session_pool_close(engine->pool);
    queue_close(&engine->submitted);
    queue_close(&engine->answered);
    turns_close(&engine->turns);
    bell_close(&engine->bell);
    pthread_mutex_destroy(&engine->lock);
    client_counts_free(&engine->by_client);
    free_buffers(engine);
    free(engine);
}

/* Submitting. */

/* A request is let in as soon as one place is free, and then with all its prompts: many prompts are
 * refused no more often than one. So there may be more in flight than the limit, by less than one
 * request. A client that has nothing in flight also gets one of the places in reserve. */
static enum status check_room(const struct engine *engine, uint64_t client, int n,
                              struct error *e) {
    const struct engine_options *options = &engine->o;
    int capacity = engine_capacity(options), places = capacity;
    if (client_counts_of(&engine->by_client, client) == 0) places += engine_reserve(options);
    if (engine->failed)
        return error_set(e, STATUS_DEVICE,
                         "the device has failed; the server must be started again");
    if (engine->stopped) return error_set(e, STATUS_BUSY, "the server is stopping");
    if (n > capacity)
        return error_set(e, STATUS_TOO_LARGE,
                         "the request has %d prompts; %d is the most that are taken at a time "
                         "(server.max_sequences %d "
                         "and server.max_queue %d)",
                         n, capacity, options->max_sequences, options->max_queue);
    if (engine->in_flight >= places)
        return error_set(
            e, STATUS_BUSY,
            "%d prompts are running or waiting and this request has %d; the limit is %d "
            "(server.max_sequences %d and server.max_queue %d)",
            engine->in_flight, n, capacity, options->max_sequences, options->max_queue);
    return STATUS_OK;
}

static struct engine_submission *make_submission(struct engine *engine,
                                                 struct sequence *const *sequences, int n) {
    const struct sequence_rows rows = {engine->o.grid, engine->info.chunk_length,
                                       engine->o.max_context};
    struct engine_submission *submission =
        xmalloc(sizeof *submission + (size_t)n * sizeof(struct turn *));
    struct snapshot *snapshot =
        engine->o.retrieval ? retrieval_thread_hold(engine->o.retrieval) : NULL;
    submission->client = sequences[0]->asked.principal.client;
    submission->n = n;
    for (int i = 0; i < n; i++) {
        struct sequence *sequence = sequences[i];
        sequence_prepare(sequence, &rows);
        if (sequence_searches(&sequence->asked))
            sequence->answer.snapshot = snapshot_hold(snapshot);
        submission->items[i] = &engine_sequence_open(engine, sequence)->turn;
    }
    snapshot_release(snapshot);
    return submission;
}

static void free_submission(struct engine_submission *submission) {
    for (int i = 0; i < submission->n; i++)
        engine_sequence_free((struct engine_sequence *)submission->items[i]);
    free(submission);
}

enum status engine_submit(struct engine *engine, struct sequence *const *sequences, int n,
                          struct error *e) {
    struct engine_submission *submission = make_submission(engine, sequences, n);
    pthread_mutex_lock(&engine->lock);
    enum status status = check_room(engine, submission->client, n, e);
    if (status == STATUS_OK) {
        engine->in_flight += n;
        client_counts_add(&engine->by_client, submission->client, n);
        CHECK(queue_put(&engine->submitted, (void *[]){submission},
                        1)); /* each has a prompt in flight, so there is room */
    }
    pthread_mutex_unlock(&engine->lock);
    if (status) free_submission(submission);
    return status;
}

void engine_notice(struct engine *engine) { bell_ring(&engine->bell); }

/* Asking. */

/* Places become free when all that run are done, more of them when some of those who wait are done,
 * too. */
int engine_retry_after(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    int running = engine->counts.running, waiting = max_int(0, engine->in_flight - running);
    int wanted = max_int(1, engine->in_flight - engine_capacity(&engine->o) + 1);
    double seconds = engine->running_seconds;
    if (waiting > 0) seconds += engine->waiting_seconds * max_int(0, wanted - running) / waiting;
    pthread_mutex_unlock(&engine->lock);
    return (int)fmin(fmax(ceil(seconds), RETRY_LEAST), RETRY_MOST);
}

struct engine_counts engine_counts(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    struct engine_counts counts = engine->counts;
    counts.waiting = max_int(0, engine->in_flight - counts.running);
    pthread_mutex_unlock(&engine->lock);
    return counts;
}

void engine_metrics_read(struct engine *engine, struct engine_metrics *out) {
    pthread_mutex_lock(&engine->lock);
    *out = engine->told;
    pthread_mutex_unlock(&engine->lock);
    if (engine->blocks) out->files = block_store_counts(engine->blocks);
}

size_t engine_bytes(const struct engine *engine) { return session_pool_bytes(engine->pool); }

bool engine_failed(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    bool failed = engine->failed;
    pthread_mutex_unlock(&engine->lock);
    return failed;
}
