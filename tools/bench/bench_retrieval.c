/* tools/bench/bench_retrieval.c: retro-bench retrieval: decoding with live retrieval against
 * decoding without.
 *
 * It is the server's own loop: its engine writes, and whenever a chunk closes its retrieval thread
 * embeds the chunk's text and searches, and the model encodes what was found and reads it from then
 * on. The engine says when there is something new to read; the times of those calls give the speed,
 * and what a retrieval's parts take:
 *
 *   token that closes a chunk -> embedder starts .. ends -> neighbours are there -> next token:
 * encoder and a step
 *
 * Sequences are at different places of their chunks, as they are in a server. A round is a sequence
 * with retrieval and one without, measured over whole chunks while all sequences are decoding. */
#include <math.h>
#include <stdlib.h>

#include "server/schedule/engine.h"
#include "tools/bench/bench_datastore.h"
#include "tools/bench/bench_model.h"

enum { ROUNDS = 5, MAX_SEQUENCES = 64, MIN_CHUNK = 3 };

struct bench {
    const struct bench_options *o;
    struct bench_model model;
    struct datastore store;
    struct retrieval_thread *retrieval;
    struct engine *engine;
    int chunk, steps; /* tokens of a chunk; of a measurement, whole chunks */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_done; /* sequences; guarded by lock */
};

struct lookup_times {
    double embed_start, embed_end, found;
};

/* When what was there of one sequence; filled in by the engine's thread until it is done. */
struct bench_watch {
    struct bench *bench;
    struct sequence *sequence;
    bool alone;                   /* the latest call of the embedder is this sequence's */
    double *tokens;               /* [steps + 1] */
    struct lookup_times *lookups; /* [chunks that close] */
    int n_tokens, n_lookups;
};

/* Milliseconds, medians of one sequence in one round. */
enum part { PART_STEP_OFF, PART_STEP_ON, PART_EMBED, PART_SEARCH, PART_ENCODE, PARTS };

/* Called with the sequence's lock held. */
static void note(void *context) {
    struct bench_watch *watch = context;
    const struct progress *progress = &watch->sequence->answer.progress;
    const struct datastore *datastore = &watch->bench->store;
    double now = time_now();
    while (watch->n_tokens < progress->n_ids) {
        watch->tokens[watch->n_tokens] = now;
        watch->n_tokens++;
    }
    for (; watch->n_lookups < progress->n_found && watch->alone; watch->n_lookups++)
        watch->lookups[watch->n_lookups] =
            (struct lookup_times){datastore->embed_start, datastore->embed_end, now};
    if (progress->finish == FINISH_NONE) return;
    pthread_mutex_lock(&watch->bench->lock);
    watch->bench->n_done++;
    pthread_cond_signal(&watch->bench->changed);
    pthread_mutex_unlock(&watch->bench->lock);
}

/* Prompts are one to two chunks long: sequence i of n is i/n of a chunk ahead of the first. */
static int prompt_length(const struct bench *bench, int i, int n) {
    return bench->chunk + i * bench->chunk / n;
}

static struct sequence *make_sequence(const struct bench *bench, int i, int n, bool retrieve) {
    const struct model_info *info = model_info(bench->model.model);
    struct sequence *sequence = sequence_open();
    struct sequence_request *asked = &sequence->asked;
    asked->n_prompt = prompt_length(bench, i, n);
    asked->prompt = xcalloc((size_t)asked->n_prompt, sizeof *asked->prompt);
    for (int j = 0; j < asked->n_prompt; j++)
        asked->prompt[j] = (i * 131 + j * 7919 + 1) % info->vocab;
    asked->max_tokens = bench->steps + 1;
    asked->sampling = (struct sample_params){.temperature = 1, .top_p = 1, .seed = (uint64_t)i};
    asked->end.ignore_eos = true;
    asked->wake_per_token = true;
    asked->neighbors = (struct sequence_neighbors){.search = retrieve, .k = info->num_neighbors};
    asked->choice.min_similarity = -1;
    return sequence;
}

static void watch_open(struct bench_watch *watch, struct bench *bench, int i, int n,
                       bool retrieve) {
    struct sequence *sequence = make_sequence(bench, i, n, retrieve);
    *watch = (struct bench_watch){.bench = bench, .sequence = sequence, .alone = n == 1};
    watch->tokens = xcalloc((size_t)bench->steps + 1, sizeof *watch->tokens);
    watch->lookups =
        xcalloc((size_t)(sequence->asked.n_prompt + bench->steps) / (size_t)bench->chunk + 1,
                sizeof *watch->lookups);
    sequence->answer.waker = (struct waker){note, watch};
}

static void watch_close(struct bench_watch *watch) {
    sequence_release(watch->sequence);
    free(watch->tokens);
    free(watch->lookups);
}

/* All sequences together, from the first token of the last one to the last token of the first one.
 */
static double rate_of(const struct bench_watch *watches, int n) {
    double start = 0, end = INFINITY;
    int count = 0;
    for (int i = 0; i < n; i++) {
        const struct bench_watch *watch = &watches[i];
        start = fmax(start, watch->tokens[0]);
        end = fmin(end, watch->tokens[watch->n_tokens - 1]);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < watches[i].n_tokens; j++)
            count += watches[i].tokens[j] > start && watches[i].tokens[j] <= end;
    return count / (end - start);
}

static enum status generate(struct bench *bench, struct bench_watch *watches, int n,
                            struct error *e) {
    struct sequence *sequences[MAX_SEQUENCES];
    struct buffer text = {0};
    for (int i = 0; i < n; i++) sequences[i] = watches[i].sequence;
    bench->n_done = 0; /* nobody else is there yet */
    enum status status = engine_submit(bench->engine, sequences, n, e);
    if (status) return status;
    pthread_mutex_lock(&bench->lock);
    while (bench->n_done < n) pthread_cond_wait(&bench->changed, &bench->lock);
    pthread_mutex_unlock(&bench->lock);
    for (int i = 0; i < n; i++)
        if (sequence_read(sequences[i], 0, &text, e).finish == FINISH_ERROR) status = e->status;
    buffer_free(&text);
    return status;
}

/* Gaps between tokens that are plain steps: chunk j closes with token j * chunk, whose publication
 * waits for neighbours, and the next token's step encodes them. */
static double plain_step(const struct bench *bench, const struct bench_watch *watch) {
    double *gaps = xcalloc((size_t)bench->steps, sizeof *gaps);
    int n = 0;
    for (int i = 1; i <= bench->steps; i++) {
        if (i % bench->chunk == 0 || i % bench->chunk == bench->chunk - 1) continue;
        gaps[n] = watch->tokens[i] - watch->tokens[i - 1];
        n++;
    }
    double median = bench_median(gaps, n);
    free(gaps);
    return median;
}

/* Lookup 0 is the prompt's chunk, whose encoding is part of the prompt. */
static void take_apart(const struct bench *bench, const struct bench_watch *on,
                       const struct bench_watch *off, double parts[PARTS]) {
    int n = bench->steps / bench->chunk;
    double *embed = xcalloc((size_t)n, sizeof *embed), *search = xcalloc((size_t)n, sizeof *search);
    double *encode = xcalloc((size_t)n, sizeof *encode), step = plain_step(bench, on);
    for (int j = 0; j < n; j++) {
        const struct lookup_times *times = &on->lookups[j + 1];
        int next = (j + 1) * bench->chunk;
        embed[j] = times->embed_end - times->embed_start;
        search[j] = times->found - times->embed_end;
        encode[j] = on->tokens[next] - on->tokens[next - 1] - step;
    }
    parts[PART_STEP_OFF] = 1e3 * plain_step(bench, off);
    parts[PART_STEP_ON] = 1e3 * step;
    parts[PART_EMBED] = 1e3 * bench_median(embed, n);
    parts[PART_SEARCH] = 1e3 * bench_median(search, n);
    parts[PART_ENCODE] = 1e3 * bench_median(encode, n);
    free(embed);
    free(search);
    free(encode);
}

struct round {
    double on, off, parts[PARTS]; /* tokens per second; parts of a single sequence only */
};

/* on_first: both orders are needed, as a machine's speed drifts. */
static enum status run_round(struct bench *bench, int n, bool on_first, struct round *the_round,
                             struct error *e) {
    struct bench_watch watches[2][MAX_SEQUENCES]; /* without and with */
    enum status status = STATUS_OK;
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < n; i++) watch_open(&watches[side][i], bench, i, n, side == 1);
    for (int turn = 0; turn < 2 && status == STATUS_OK; turn++)
        status = generate(bench, watches[turn == 0 ? on_first : !on_first], n, e);
    if (status == STATUS_OK) {
        the_round->off = rate_of(watches[0], n);
        the_round->on = rate_of(watches[1], n);
        if (n == 1) take_apart(bench, &watches[1][0], &watches[0][0], the_round->parts);
    }
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < n; i++) watch_close(&watches[side][i]);
    return status;
}

static void report_rates(const struct bench_options *options, const struct round *rounds) {
    double on[ROUNDS], off[ROUNDS], loss[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        on[i] = rounds[i].on;
        off[i] = rounds[i].off;
        loss[i] = 100 * (1 - on[i] / off[i]);
    }
    bench_print_rounds(options, "off", "tok/s", off, ROUNDS);
    bench_print_rounds(options, "on", "tok/s", on, ROUNDS);
    bench_print_rounds(options, "loss", "% of retrieval.off", loss, ROUNDS);
}

static void report_parts(const struct bench_options *options, const struct round *rounds, int n) {
    static const struct {
        const char *name, *unit;
    } names[PARTS] = {[PART_STEP_OFF] = {"step_off", "ms a token, alone"},
                      [PART_STEP_ON] = {"step_on", "ms a token that reads neighbours, alone"},
                      [PART_EMBED] = {"embed", "ms a chunk"},
                      [PART_SEARCH] = {"search", "ms a chunk"},
                      [PART_ENCODE] = {"encode", "ms a chunk"}};
    for (int p = 0; p < PARTS; p++) {
        double values[ROUNDS];
        for (int i = 0; i < n; i++) values[i] = rounds[i].parts[p];
        bench_print_rounds(options, names[p].name, names[p].unit, values, n);
    }
}

/* The parts come from rounds of one sequence, where nothing hides them: one more round when there
 * are several. */
static enum status measure(struct bench *bench, int sequences, struct error *e) {
    struct round rounds[ROUNDS], alone, warm_up;
    enum status status = run_round(bench, sequences, true, &warm_up, e);
    for (int i = 0; i < ROUNDS && status == STATUS_OK; i++)
        status = run_round(bench, sequences, i % 2, &rounds[i], e);
    if (status == STATUS_OK && sequences > 1) status = run_round(bench, 1, true, &alone, e);
    if (status) return status;
    report_rates(bench->o, rounds);
    if (sequences > 1)
        report_parts(bench->o, &alone, 1);
    else
        report_parts(bench->o, rounds, ROUNDS);
    return STATUS_OK;
}

static enum status open_engine(struct bench *bench, int sequences, struct error *e) {
    int prompt_rows = 0, longest = prompt_length(bench, sequences - 1, sequences);
    for (int i = 0; i < sequences; i++) prompt_rows += prompt_length(bench, i, sequences);
    struct engine_options options = {
        .model = bench->model.model,
        .backend = bench->model.backend,
        .tokenizer = bench->store.tokenizer,
        .retrieval = bench->retrieval,
        .grid = GRID_START,
        .max_sequences = sequences,
        .max_context = longest + bench->steps + 1,
        .max_step_tokens = prompt_rows,
        .max_neighbors = model_info(bench->model.model)->num_neighbors};
    return engine_open(&bench->engine, &options, e);
}

static enum status open_all(struct bench *bench, int sequences, struct error *e) {
    struct bench_source source = bench_source_of(bench->o);
    source.retro = true;
    if (bench_model_open(&bench->model, &source, e)) return e->status;
    const struct model_info *info = model_info(bench->model.model);
    if (info->chunk_length < MIN_CHUNK)
        return error_set(e, STATUS_INVALID,
                         "%s: chunks of %d tokens; a model that reads neighbours is needed, in "
                         "chunks of at least %d",
                         bench->o->model_name, info->chunk_length, MIN_CHUNK);
    bench->chunk = info->chunk_length;
    bench->steps = (max_int(1, bench->o->tokens) + bench->chunk - 1) / bench->chunk * bench->chunk;
    if (datastore_open(&bench->store, bench->o, info, e) ||
        retrieval_thread_open(&bench->retrieval, bench->store.retriever, engine_lookups(sequences),
                              bench->o->threads, e) ||
        open_engine(bench, sequences, e))
        return e->status;
    return STATUS_OK;
}

static void print_what(const struct bench *bench, int sequences) {
    const struct model_info *info = model_info(bench->model.model);
    struct snapshot *snapshot = collection_hold(bench->store.collection);
    const struct collection_info *collection = snapshot->info;
    bench_print_title(
        bench->o,
        "%s %s, %d layers of %d, %d of them read %d neighbours of %d tokens; %d x %d decoded; %s",
        bench->o->model_name, bench->o->dtype_name, info->n_layers, info->hidden,
        info->n_retro_layers, info->num_neighbors, info->retrieved_length, sequences, bench->steps,
        backend_describe(bench->model.backend));
    bench_print_title(bench->o, "%s: %lld chunks, vectors of %d, index %s; embedder %s",
                      bench->o->collection ? bench->o->collection : "random collection",
                      (long long)snapshot->n_chunks, collection->dim, collection->index_factory,
                      bench->store.embedder.name);
    if (bench->o->json)
        bench_print(bench->o, "chunks",
                    bench->o->collection ? "chunks, of the collection given" : "chunks, random",
                    (double)snapshot->n_chunks);
    snapshot_release(snapshot);
}

enum status bench_retrieval(const struct bench_options *options, struct error *e) {
    struct bench_options bench_options = *options;
    struct bench *bench = xcalloc(1, sizeof *bench);
    int sequences = max_int(1, bench_options.sequences);
    if (bench_options.n_folders == 0) bench_options.model_name = bench_options.shape->retro_name;
    bench_options.prefix = "retrieval.";
    bench->o = &bench_options;
    pthread_mutex_init(&bench->lock, NULL);
    pthread_cond_init(&bench->changed, NULL);
    enum status status =
        sequences <= MAX_SEQUENCES
            ? open_all(bench, sequences, e)
            : error_set(e, STATUS_INVALID, "--sequences %d: at most %d", sequences, MAX_SEQUENCES);
    if (status == STATUS_OK) {
        print_what(bench, sequences);
        status = measure(bench, sequences, e);
    }
    engine_stop(bench->engine);
    retrieval_thread_close(bench->retrieval);
    engine_close(bench->engine);
    datastore_close(&bench->store);
    bench_model_close(&bench->model);
    pthread_cond_destroy(&bench->changed);
    pthread_mutex_destroy(&bench->lock);
    free(bench);
    return status;
}
