/* tools/index/index_embed.c: retro-index embed: a collection turns to the vectors of another
 * embedder (retrieval/store/store_embed.h). All texts are embedded first, many at a time, and kept;
 * so the rest finds its vectors, and a command that was broken off does, too. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "retrieval/store/embed_progress.h"
#include "retrieval/store/store_embed.h"
#include "server/host/documents/documents.h"
#include "server/host/documents/embedder_model.h"
#include "tools/index/index_builder.h"

enum { BATCH_BYTES = 1 << 20 };

struct embed_run {
    struct index_arguments *arguments;
    const char *dir;
    struct embedder embedder;
    struct tokenizer *tokenizer;
    struct document_cutter cutter;
    bool is_done;    /* the collection was turned before */
    bool is_filled;  /* all texts of the snapshot are embedded */
    bool is_awaited; /* others wait for the folder */
    bool has_eyes;   /* pictures have vectors of their own embedder, which stay */
    struct unfinished unfinished;
    struct index_progress progress;
    /* Chunks that wait: their text lies back to back. */
    struct buffer waiting;
    size_t ends[BATCH_CHUNKS], sizes[BATCH_CHUNKS]; /* sizes: without what stands over them */
    int n_waiting;
    float *vectors;            /* [BATCH_CHUNKS, dim] */
    struct sparse_rows sparse; /* of the same chunks */
    struct snapshot *snapshot;
    struct chunk_range *ranges; /* of a document */
    int64_t capacity;
};

static enum status check_interrupted(struct error *e) {
    return index_interrupted ? error_set(e, STATUS_CANCELLED, "interrupted") : STATUS_OK;
}

/* Texts to vectors. */

/* After `worked` seconds, so that the share of the time is as asked for. */
static void rest(const struct embed_run *run, double worked) {
    enum { LOOK_MILLISECONDS = 50 };
    double load = run->arguments->load, until = time_now() + worked * (100 - load) / load;
    while (!index_interrupted && time_now() < until)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MILLISECONDS * 1000000L}, NULL);
}

static void note_progress(struct embed_run *run, size_t made, size_t kept) {
    progress_embedded(&run->progress, run->n_waiting, made, kept);
    const struct embed_progress progress = {run->progress.chunks, run->snapshot->n_chunks};
    embed_progress_write(run->dir, &progress);
}

/* The vectors of the texts that wait, into `vectors` [n, dim], and their sparse weights, n rows
 * more. */
static enum status embed_waiting(struct embed_run *run, float *vectors, struct sparse_rows *sparse,
                                 struct error *e) {
    struct text_span texts[BATCH_CHUNKS];
    enum vector_origin origins[BATCH_CHUNKS];
    size_t start = 0, made = 0, kept = 0;
    double begun = time_now();
    for (int i = 0; i < run->n_waiting; i++) {
        texts[i] = (struct text_span){run->waiting.data + start, run->ends[i] - start};
        start = run->ends[i];
    }
    const struct text_batch batch = {texts, run->n_waiting, vectors, sparse, origins};
    enum status status = unfinished_embed(&run->unfinished, &run->embedder, &batch, e);
    for (int i = 0; i < run->n_waiting && status == STATUS_OK; i++) {
        bool fresh = origins[i] == VECTOR_MADE;
        run->progress.fresh += fresh;
        made += fresh ? run->sizes[i] : 0;
        kept += fresh ? 0 : run->sizes[i];
    }
    if (!run->is_filled) note_progress(run, made, kept);
    run->n_waiting = 0;
    buffer_clear(&run->waiting);
    if (made > 0 && !run->is_awaited) rest(run, time_now() - begun);
    return status ? status : check_interrupted(e);
}

static void add_waiting(struct embed_run *run, int chunk) {
    const struct chunk_range *range = &cutter_chunks(&run->cutter)[chunk];
    cutter_embedded(&run->cutter, chunk, &run->waiting);
    run->ends[run->n_waiting] = run->waiting.size;
    run->sizes[run->n_waiting] = range->end - range->start;
    run->n_waiting++;
}

/* Whether the picture's vector is of the embedder that changes. */
static bool is_seen(const struct embed_run *run) {
    return run->cutter.is_picture && !run->has_eyes;
}

static enum status see_picture(struct embed_run *run, const struct collection_document *document,
                               float *vectors, struct error *e) {
    if (document_embed(&run->cutter, document, &index_interrupted, e))
        return error_prefix(e, "%s", document->path);
    memcpy(vectors, run->cutter.vectors,
           (size_t)document->n_chunks * (size_t)run->embedder.dim * sizeof *vectors);
    return STATUS_OK;
}

/* The vectors that store_change_vectors asks for. */
static enum status embed_document(void *context, const struct collection_document *document,
                                  bool awaited, float *vectors, struct sparse_rows *sparse,
                                  struct error *e) {
    struct embed_run *run = context;
    run->is_awaited = awaited;
    if (document_recut(&run->cutter, document, e)) return e->status;
    if (is_seen(run)) return see_picture(run, document, vectors, e);
    enum status status = STATUS_OK;
    for (int i = 0, first = 0; i < document->n_chunks && status == STATUS_OK; i++) {
        add_waiting(run, i);
        if (run->n_waiting < BATCH_CHUNKS && i + 1 < document->n_chunks) continue;
        status = embed_waiting(run, vectors + (size_t)first * (size_t)run->embedder.dim, sparse, e);
        first = i + 1;
    }
    return status;
}

/* All texts, first. */

static enum status expect_document(void *context, const struct stored_document *document,
                                   struct error *e) {
    struct embed_run *run = context;
    estimate_expect(&run->progress.estimate, document->text.size);
    return check_interrupted(e);
}

/* Vectors that are made here are found again when they are asked for. */
static enum status fill_waiting(struct embed_run *run, struct error *e) {
    sparse_rows_clear(&run->sparse);
    return embed_waiting(run, run->vectors, &run->sparse, e);
}

static enum status fill_document(void *context, const struct stored_document *document,
                                 struct error *e) {
    struct embed_run *run = context;
    if (document->n_chunks > run->capacity) {
        run->capacity = 2 * document->n_chunks;
        run->ranges = xrealloc(run->ranges, (size_t)run->capacity * sizeof *run->ranges);
    }
    const struct collection_document copy =
        snapshot_document_again(run->snapshot, document, run->ranges);
    enum status status = document_recut(&run->cutter, &copy, e);
    if (status == STATUS_OK && is_seen(run) && !run->embedder.sees)
        status = error_set(e, STATUS_UNSUPPORTED,
                           "%s is a picture, and the embedder %s reads texts alone: delete the "
                           "pictures, or build the collection again with --picture-embedder",
                           copy.path, run->embedder.name);
    if (status) return status;
    uint64_t size = 0;
    for (int i = 0; i < copy.n_chunks; i++) size += copy.chunks[i].end - copy.chunks[i].start;
    run->progress.files++;
    progress_read(&run->progress, document->text.size, is_seen(run) ? 0 : size);
    for (int i = 0; i < copy.n_chunks && status == STATUS_OK && !is_seen(run); i++) {
        add_waiting(run, i);
        if (run->n_waiting == BATCH_CHUNKS || run->waiting.size >= BATCH_BYTES)
            status = fill_waiting(run, e);
    }
    return status ? status : check_interrupted(e);
}

static enum status fill(struct embed_run *run, struct collection *collection, struct error *e) {
    struct collection_walk expecter = {
        .snapshot = run->snapshot, .take = expect_document, .context = run};
    struct collection_walk filler = {
        .snapshot = run->snapshot, .take = fill_document, .context = run};
    progress_begin(&run->progress, "documents", (int)run->snapshot->n_documents);
    enum status status = collection_walk(collection, &expecter, e);
    if (status == STATUS_OK) status = collection_walk(collection, &filler, e);
    if (status == STATUS_OK) status = fill_waiting(run, e);
    if (status == STATUS_OK) progress_show(&run->progress, true);
    progress_clear(&run->progress);
    run->is_filled = true;
    return status;
}

/* The whole. */

static void tell_step(void *context, const char *step) {
    struct embed_run *run = context;
    progress_clear(&run->progress);
    line_print(stderr, "%s", step);
}

static enum status open_unfinished(struct embed_run *run, struct error *e) {
    char *folder;
    enum status status = store_embedding_folder(&folder, run->dir, e);
    if (status == STATUS_OK)
        status = unfinished_open(&run->unfinished, folder,
                                 unfinished_maker(&run->embedder, &run->arguments->config),
                                 run->embedder.dim, e);
    free(folder);
    if (status) return status;
    if (run->unfinished.emptied)
        line_print(stderr,
                   "the vectors of another embedder, of an embed that did not end, are "
                   "removed");
    if (run->unfinished.n_kept > 0)
        line_print(stderr,
                   "going on: an interrupted embed has left the vectors of %" PRId64 " texts",
                   run->unfinished.n_kept);
    return STATUS_OK;
}

/* An index that cannot be made is refused before the texts are embedded. */
static enum status check_index(const struct embed_run *run, const struct collection_info *info,
                               struct error *e) {
    const char *asked = run->arguments->build.index_factory;
    if (asked == NULL) asked = index_asked(info->index_factory, info->n_chunks, info->dim);
    if (index_check_factory(asked, run->embedder.dim, e))
        return error_prefix(e, "vectors of %d numbers need another --index", run->embedder.dim);
    if (info->n_chunks >= index_least_vectors(asked)) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "--index %s needs at least %" PRId64 " chunks, and there are %" PRId64, asked,
                     index_least_vectors(asked), info->n_chunks);
}

static enum status open_makers(struct embed_run *run, const struct collection_info *info,
                               struct error *e) {
    const struct config *config = &run->arguments->config;
    const char *tokenizer = config->model.path[0] ? config->model.path : info->tokenizer;
    if (embedder_model_open(&run->embedder, run->arguments->with, config, e))
        return error_prefix(e, "embedder");
    if (tokenizer_open(&run->tokenizer, tokenizer, e) ||
        collection_match_tokens(info, tokenizer_hash(run->tokenizer), info->chunk_length, e))
        return e->status;
    run->cutter = (struct document_cutter){
        .tokenizer = run->tokenizer, .embedder = &run->embedder, .rules = chunk_rules_of(info)};
    run->has_eyes = info->pictures.embedder != NULL;
    run->vectors = xmalloc((size_t)BATCH_CHUNKS * (size_t)run->embedder.dim * sizeof *run->vectors);
    return check_index(run, info, e);
}

static enum status change_vectors(struct embed_run *run, struct error *e) {
    struct vector_changed changed;
    char *folder = realpath(run->arguments->with, NULL);
    const struct vector_change change = {.embedder = folder ? folder : run->arguments->with,
                                         .embedder_hash = run->embedder.hash,
                                         .query_prompt = run->embedder.prompts[EMBED_QUERY],
                                         .document_prompt = run->embedder.prompts[EMBED_DOCUMENT],
                                         .dim = run->embedder.dim,
                                         .sparse = run->embedder.sparse,
                                         .index_factory = run->arguments->build.index_factory,
                                         .embed = embed_document,
                                         .tell = tell_step,
                                         .context = run,
                                         .cancelled = &index_interrupted};
    enum status status = store_change_vectors(run->dir, &change, &changed, e);
    free(folder);
    if (status) return status;
    line_print(stderr,
               "%" PRId64 " documents came or went meanwhile; changes waited for %.2f s at the end",
               changed.n_later, changed.locked_seconds);
    return STATUS_OK;
}

/* A command that ended between the switch and the end has left its folder. */
static enum status remove_leftovers(const struct embed_run *run, struct error *e) {
    bool there;
    enum status status = store_embedding_remove(run->dir, &there, e);
    if (status == STATUS_OK && there)
        line_print(stderr, "%s/%s, left by an embed that did not end, is removed", run->dir,
                   EMBEDDING_FOLDER);
    return status;
}

/* Whoever names the old one by the configuration would not start any more. */
static void warn_of_config(const struct embed_run *run) {
    const char *named = run->arguments->config.retrieval.embedder;
    if (named[0] == '\0' || strcmp(named, run->arguments->with) == 0) return;
    line_print(stderr,
               "note: retrieval.embedder of the configuration is %s: let it be %s, or leave it "
               "out. Servers with that configuration search the old vectors and change nothing "
               "until they are restarted",
               named, run->arguments->with);
}

static enum status embed(struct embed_run *run, struct collection *collection, struct error *e) {
    struct error why;
    run->snapshot = collection_hold(collection);
    if (open_makers(run, run->snapshot->info, e)) return e->status;
    run->is_done =
        collection_match_embedder(run->snapshot->info, &run->embedder, &why) == STATUS_OK;
    if (run->is_done) {
        line_print(stderr, "%s has the vectors of %s already", run->dir, run->embedder.name);
        return remove_leftovers(run, e);
    }
    enum status status = open_unfinished(run, e);
    if (status == STATUS_OK) status = fill(run, collection, e);
    snapshot_release(run->snapshot);
    run->snapshot = NULL;
    return status ? status : change_vectors(run, e);
}

static enum status print_end(const struct embed_run *run, struct error *e) {
    struct collection *collection;
    if (store_open(&collection, run->dir, e)) return e->status;
    struct snapshot *snapshot = collection_hold(collection);
    index_print_state(run->arguments, run->is_done ? "unchanged" : "embedded", run->dir, snapshot);
    snapshot_release(snapshot);
    collection_close(collection);
    warn_of_config(run);
    return STATUS_OK;
}

static void close_run(struct embed_run *run) {
    snapshot_release(run->snapshot);
    unfinished_close(&run->unfinished);
    document_cutter_close(&run->cutter);
    tokenizer_close(run->tokenizer);
    embedder_model_close(&run->embedder);
    buffer_free(&run->waiting);
    free(run->vectors);
    sparse_rows_free(&run->sparse);
    free(run->ranges);
    free(run);
}

int run_embed(struct index_arguments *arguments, struct error *e) {
    struct collection *collection = NULL;
    if (arguments->with == NULL || arguments->n_rest != 1) {
        error_set(e, STATUS_INVALID, "expected embed --with FOLDER DIR; --help says more");
        return EXIT_FAILED;
    }
    if (index_expect_folder(arguments, 0, "embed", e) ||
        store_open(&collection, arguments->rest[0], e))
        return EXIT_FAILED;
    index_catch_interrupts();
    struct embed_run *run = xcalloc(1, sizeof *run);
    run->arguments = arguments;
    run->dir = arguments->rest[0];
    enum status status = embed(run, collection, e);
    collection_close(collection);
    if (status == STATUS_OK) status = print_end(run, e);
    close_run(run);
    return status == STATUS_CANCELLED ? EXIT_INTERRUPTED : status ? EXIT_FAILED : EXIT_FINE;
}
