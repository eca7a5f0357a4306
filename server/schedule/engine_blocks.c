/* server/schedule/engine_blocks.c: rows that outlive the process in files, and documents whose rows
 * must not outlive them (server/blocks). See engine_private.h. */
#include <stdlib.h>
#include <string.h>

#include "config/base/log.h"
#include "server/schedule/engine_private.h"

/* Blocks that wait to be written when the server stops have so long. */
static const double FLUSH_SECONDS = 10;

/* Files. */

static void block_joined(void *context, const struct session_block *block) {
    block_store_joined(context, block);
}

static void block_left(void *context, int32_t block) { block_store_left(context, block); }

static enum status open_store(struct engine *engine, struct error *e) {
    const struct engine_options *options = &engine->o;
    const struct block_store_options store = {.folder = options->cache_folder,
                                              .most_bytes = options->cache_folder_bytes,
                                              .identity = options->identity,
                                              .pool = engine->pool,
                                              .documents = engine->documents};
    if (block_store_open(&engine->blocks, &store, e)) return e->status;
    const struct session_watch watch = {block_joined, block_left, engine->blocks};
    session_pool_watch_blocks(engine->pool, &watch);
    return STATUS_OK;
}

/* Documents. */

/* Rows that depend on these keys' documents leave memory and files. */
static void forget(struct engine *engine, const struct buffer *gone) {
    const uint64_t *documents = (const uint64_t *)(const void *)gone->data;
    int n = (int)(gone->size / sizeof *documents);
    if (n == 0) return;
    session_pool_forget(engine->pool, documents, n);
    if (engine->blocks) block_store_forget(engine->blocks, documents, n);
    log_debug("rows of %d passages whose documents have changed are forgotten", n);
}

static void note_used(void *context, uint64_t document) { key_set_add(context, document, 0); }

/* Keys that no rows have any more. */
static void sweep_documents(struct engine *engine) {
    struct key_set used = {0};
    session_pool_documents(engine->pool, note_used, &used);
    if (engine->blocks) block_store_list_documents(engine->blocks, note_used, &used);
    document_watch_keep(engine->documents, &used);
    key_set_free(&used);
}

void engine_forget_gone(struct engine *engine) {
    struct buffer gone = {0};
    if (engine->documents == NULL) return;
    document_watch_look(engine->documents, &gone);
    forget(engine, &gone);
    buffer_free(&gone);
    if (document_watch_is_full(engine->documents)) sweep_documents(engine);
}

bool engine_watches_documents(const struct engine *engine) {
    return engine->documents && document_watch_is_needed(engine->documents);
}

void engine_read_hits(struct engine_sequence *sequence, const struct hit *list, int n, int row) {
    struct engine *engine = sequence->engine;
    struct buffer gone = {0};
    for (int i = 0; engine->documents && i < n; i++) {
        bool there;
        uint64_t document = document_watch_hit(engine->documents, &list[i], &there);
        if (document != 0) session_read_document(sequence->session, document, row);
        if (!there) buffer_append(&gone, &document, sizeof document);
    }
    forget(engine, &gone);
    buffer_free(&gone);
}

static void note_inherited(void *context, uint64_t document) {
    struct buffer *documents = context;
    buffer_append(documents, &document, sizeof document);
}

void engine_inherit_documents(struct engine_sequence *to, const struct engine_sequence *from) {
    session_documents(from->session, note_inherited, &to->blocks.documents);
}

void engine_note_inherited(struct engine_sequence *sequence) {
    const struct engine *engine = sequence->engine;
    const struct buffer *keys = &sequence->blocks.documents;
    const uint64_t *documents = (const uint64_t *)(const void *)keys->data;
    struct buffer gone = {0};
    for (size_t i = 0; i < keys->size / sizeof *documents; i++) {
        session_read_document(sequence->session, documents[i], 0);
        if (documents[i] != DOCUMENT_UNWATCHED &&
            !document_watch_has(engine->documents, documents[i]))
            buffer_append(&gone, &documents[i], sizeof *documents);
    }
    forget(sequence->engine, &gone);
    buffer_free(&gone);
}

/* Opening and closing. */

/* Documents that have gone while the server was off. */
static void forget_earlier(struct engine *engine) {
    struct buffer gone = {0};
    document_watch_compare(engine->documents, &gone);
    forget(engine, &gone);
    buffer_free(&gone);
}

enum status engine_open_blocks(struct engine *engine, struct error *e) {
    const struct engine_options *options = &engine->o;
    if (options->collection) engine->documents = document_watch_open(options->collection);
    if (options->cache_folder && options->cache_folder[0] && open_store(engine, e))
        return e->status;
    if (engine->documents) forget_earlier(engine);
    return STATUS_OK;
}

void engine_stop_blocks(struct engine *engine) {
    engine_forget_gone(engine);
    block_store_stop(engine->blocks, FLUSH_SECONDS);
}

void engine_close_blocks(struct engine *engine) {
    block_store_close(engine->blocks);
    document_watch_close(engine->documents);
    engine->blocks = NULL;
    engine->documents = NULL;
    if (engine->pool) session_pool_watch_blocks(engine->pool, &(struct session_watch){0});
}

/* Loading. */

void blocks_part_close(struct blocks_part *part) {
    if (part->job) block_job_free(part->job);
    free(part->job);
    buffer_free(&part->documents);
}

static void job_done(struct block_job *job) {
    struct engine_sequence *sequence = job->context;
    CHECK(queue_put(&sequence->engine->answered, (void *[]){sequence},
                    1)); /* engine_admit bounds those who wait, so there is room */
}

bool engine_load_blocks(struct engine_sequence *sequence) {
    struct engine *engine = sequence->engine;
    struct blocks_part *part = &sequence->blocks;
    if (engine->blocks == NULL || part->failed) return true;
    struct session_text text = engine_prompt_text(sequence);
    session_share(sequence->session, &text);
    if (part->job == NULL) {
        part->job = xcalloc(1, sizeof *part->job);
        part->job->done = job_done;
        part->job->context = sequence;
    }
    if (!block_store_find(engine->blocks, sequence->session, &text, part->job)) return true;
    part->loading = true;
    engine_sequence_park(sequence, PARKED_FOR_BLOCKS);
    block_store_read(engine->blocks, part->job);
    return false;
}

/* One block of the job becomes the session's next one; false where its text has gone. */
static bool load_block(struct engine_sequence *sequence, const struct session_text *text, int i) {
    struct engine *engine = sequence->engine;
    struct block_job *job = sequence->blocks.job;
    const struct block_file *file = &job->files[i];
    struct buffer keys = {0};
    bool there = session_is_found(sequence->session, job->rows[i]) &&
                 (file->documents.size == 0 || block_store_documents(engine->blocks, file, &keys));
    const struct loaded_block loaded = {
        .image = file->image,
        .n = file->n,
        .rows = job->rows[i],
        .documents = (const struct read_document *)(const void *)keys.data,
        .n_documents = (int)(keys.size / sizeof(struct read_document))};
    if (there) {
        session_load_block(sequence->session, text, &loaded);
        engine->metrics.file_hits += loaded.rows;
    }
    buffer_free(&keys);
    return there;
}

void engine_accept_blocks(struct engine_sequence *sequence) {
    const struct block_job *job = sequence->blocks.job;
    struct session_text text = engine_prompt_text(sequence);
    int n = 0;
    while (n < job->n_read && load_block(sequence, &text, n)) n++;
    sequence->blocks.loading = false;
    sequence->blocks.failed = n == 0;
}
