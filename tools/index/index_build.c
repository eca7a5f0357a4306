/* tools/index/index_build.c: retro-index build: files to text, text to tokens, tokens to chunks,
 * chunks to vectors, all to a collection. One document at a time is in memory, and one batch of
 * chunks that wait for the embedder. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/json/json_writer.h"
#include "retrieval/kept/scan_record.h"
#include "server/host/documents/documents.h"
#include "server/host/documents/embedder_model.h"
#include "tools/index/index_builder.h"
#include "tools/index/index_color.h"
#include "tools/index/index_names.h"
#include "tools/index/index_roots.h"

enum { BATCH_BYTES = 1 << 20 };

/* file: NULL where Milvus refuses a document of some file. */
static void report(struct builder *builder, const struct found_file *file,
                   const struct error *why) {
    progress_clear(&builder->progress);
    color_skipped(why);
    walk_count_skipped(&builder->walk, file, why->text);
}

struct embedded_chunks {
    const float *vectors;             /* [n, dim] */
    const struct sparse_rows *sparse; /* n rows, where the embedder is sparse */
    int n;
};

/* Of the next n chunks; of their text so many bytes were embedded, and so many kept by an
 * interrupted build. */
static enum status add_vectors(struct builder *builder, const struct embedded_chunks *chunks,
                               size_t embedded, size_t kept, struct error *e) {
    int n = chunks->n;
    enum status status = builder_add_vectors(builder->generation, chunks->vectors, n, e);
    if (status == STATUS_OK && builder->embedder.sparse) {
        const struct sparse_table table = sparse_rows_table(chunks->sparse);
        status = builder_add_sparse(builder->generation, &table, n, e);
    }
    progress_embedded(&builder->progress, n, embedded, kept);
    return status ? status : build_check_interrupted(e);
}

/* The vectors of the waiting chunks; *embedded: bytes of text that were embedded. */
static enum status make_vectors(struct builder *builder, const struct text_span *texts,
                                size_t *embedded, struct error *e) {
    enum vector_origin origins[BATCH_CHUNKS];
    const struct text_batch batch = {texts, builder->n_waiting, builder->vectors, &builder->sparse,
                                     origins};
    sparse_rows_clear(&builder->sparse);
    if (unfinished_embed(&builder->unfinished, &builder->embedder, &batch, e)) return e->status;
    for (int i = 0; i < builder->n_waiting; i++) {
        builder->progress.fresh += origins[i] != VECTOR_KEPT;
        builder->n_embedded += origins[i] == VECTOR_MADE;
        if (origins[i] == VECTOR_MADE) *embedded += builder->sizes[i];
    }
    return STATUS_OK;
}

static enum status embed_waiting(struct builder *builder, struct error *e) {
    struct text_span texts[BATCH_CHUNKS];
    size_t start = 0, size = 0, embedded = 0;
    if (builder->n_waiting == 0) return STATUS_OK;
    for (int i = 0; i < builder->n_waiting; i++) {
        texts[i] = (struct text_span){builder->waiting.data + start, builder->ends[i] - start};
        start = builder->ends[i];
        size += builder->sizes[i];
    }
    enum status status = make_vectors(builder, texts, &embedded, e);
    if (status == STATUS_OK)
        status = add_vectors(
            builder,
            &(struct embedded_chunks){builder->vectors, &builder->sparse, builder->n_waiting},
            embedded, size - embedded, e);
    builder->n_waiting = 0;
    buffer_clear(&builder->waiting);
    return status;
}

/* The document goes into Milvus, with others. */
static enum status put_remote(struct builder *builder, struct collection_document *document,
                              struct error *e) {
    struct document_cutter *cut = &builder->cutter;
    int n_embedded = 0;
    size_t size = document->text.size - document->chunks[0].start;
    enum status status =
        cut->is_picture ? STATUS_OK : group_embed(&builder->group, document, &n_embedded, e);
    if (n_embedded > 0 || cut->is_picture) builder->progress.fresh += cut->n_chunks;
    progress_embedded(&builder->progress, cut->n_chunks, n_embedded > 0 ? size : 0,
                      n_embedded > 0 ? 0 : size);
    builder->n_embedded += n_embedded;
    return status ? status : group_add_embedded(&builder->group, document, e);
}

enum status build_take_put(void *context, const struct document_put *put, struct error *e) {
    struct builder *builder = context;
    builder->n_added += put->status == STATUS_OK;
    if (put->status == STATUS_OK)
        known_texts_add(&builder->known, put->document->text, put->document->id);
    if (put->status == STATUS_OK) return STATUS_OK;
    *e = put->error;
    if (put->status != STATUS_TOO_LARGE) return put->status;
    report(builder, NULL, e);
    return STATUS_OK;
}

/* Adds the document that was cut, and queues its chunks' text for the embedder; a picture has its
 * vectors. */
static enum status add_chunks(struct builder *builder, struct collection_document *document,
                              struct error *e) {
    struct document_cutter *cut = &builder->cutter;
    cutter_fill(cut, document);
    if (builder->collection) return put_remote(builder, document, e);
    enum status status = cut->is_picture ? embed_waiting(builder, e) : STATUS_OK;
    if (status == STATUS_OK) status = builder_add_document(builder->generation, document, e);
    if (status == STATUS_OK && cut->is_picture)
        return add_vectors(builder,
                           &(struct embedded_chunks){cut->vectors, &cut->sparse, cut->n_chunks},
                           document->text.size - document->chunks[0].start, 0, e);
    for (int i = 0; i < cut->n_chunks && status == STATUS_OK; i++) {
        cutter_embedded(cut, i, &builder->waiting);
        builder->ends[builder->n_waiting] = builder->waiting.size;
        builder->sizes[builder->n_waiting] = document->chunks[i].end - document->chunks[i].start;
        builder->n_waiting++;
        if (builder->n_waiting == BATCH_CHUNKS || builder->waiting.size >= BATCH_BYTES)
            status = embed_waiting(builder, e);
    }
    return status;
}

/* A file, while its documents are added. */
struct file_adder {
    struct builder *builder;
    const struct found_file *file;
    uint64_t guess;     /* bytes of text that are still expected of it */
    enum status failed; /* the builder's own failure, which ends the build */
};

static void count_copy(struct file_adder *adder, const char *part, struct text_span text) {
    struct builder *builder = adder->builder;
    if (key_set_add(&builder->texts, hash_bytes(text.text, text.size, 0), text.size)) return;
    builder->n_copies++;
    progress_clear(&builder->progress);
    if (builder->options->verbose)
        line_print(stderr, "the same text as another: %s%s", adder->file->path, part);
}

/* Cuts the document, and adds it. A fault of the document is reported; a failure of the builder is
 * returned. */
static enum status cut_and_add(struct file_adder *adder, const char *part,
                               struct collection_document *document, struct error *e) {
    struct builder *builder = adder->builder;
    struct document_cutter *cut = &builder->cutter;
    struct error why;
    size_t size = document->text.size;
    uint64_t guess = size < adder->guess ? size : adder->guess;
    if (document_cut(cut, document, &why) ||
        (cut->is_picture && document_embed(cut, document, NULL, &why))) {
        error_prefix(&why, "%s%s", adder->file->path, part);
        report(builder, adder->file, &why);
        return STATUS_OK;
    }
    count_copy(adder, part, document->text);
    adder->guess -= guess;
    progress_read(&builder->progress, guess, size - cutter_chunks(cut)[0].start);
    enum status status = add_chunks(builder, document, e);
    builder->n_added += status == STATUS_OK && builder->collection == NULL;
    return status;
}

static enum status add_document(struct file_adder *adder, const char *part,
                                const struct document_text *document_text, struct error *e) {
    struct builder *builder = adder->builder;
    struct error why;
    struct buffer path = {0}, identity = {0};
    char id[DOCUMENT_ID_SIZE];
    const struct buffer given = {0};
    struct collection_document document = {
        .id = id,
        .source = adder->file->source,
        .file = adder->file->kept,
        .title = document_text->title.data,
        .text = {document_text->text.data, document_text->text.size},
        .marks = marks_of(&document_text->marks)};
    enum status status = build_check_interrupted(e);
    if (status) return status;
    buffer_printf(&identity, "%s%s", adder->file->identity, part);
    document_id_of_path(identity.data, id);
    buffer_printf(&path, "%s%s", adder->file->stored, part);
    document.path = path.data;
    if (document_text->note || document_text->losses.size > 0) {
        progress_clear(&builder->progress);
        color_notes(adder->file->path, part, document_text);
    }
    if (metadata_of_file(&builder->metadata, &given, adder->file, document.text, &builder->limits,
                         &why)) {
        report(builder, adder->file, &why);
    } else {
        document.metadata = builder->metadata.size > 0 ? builder->metadata.data : NULL;
        status = cut_and_add(adder, part, &document, e);
    }
    buffer_free(&path);
    buffer_free(&identity);
    return status;
}

static enum status take_document(void *context, const char *part, const struct document_text *text,
                                 struct error *e) {
    struct file_adder *adder = context;
    adder->failed = add_document(adder, part, text, e);
    return adder->failed;
}

static void skip_document(void *context, const struct error *why) {
    const struct file_adder *adder = context;
    report(adder->builder, adder->file, why);
}

static enum status add_file(struct builder *builder, int number, struct error *e) {
    const struct found_file *file = &builder->walk.files[number];
    struct file_adder adder = {.builder = builder, .file = file, .guess = file->text_bytes};
    struct document_taker taker = {.context = &adder, .take = take_document, .skip = skip_document};
    struct error why = {0};
    enum status status = build_check_interrupted(e);
    if (status) return status;
    status = reader_take(builder->reader, number, &taker, &why);
    if (adder.failed) {
        *e = why;
        return status;
    }
    /* Ctrl-C reaches mandoc too: its page is not bad. */
    if (status && build_check_interrupted(e)) return e->status;
    if (status) report(builder, file, &why);
    progress_read_file(&builder->progress, adder.guess);
    return STATUS_OK;
}

/* Puts what waits for Milvus, also when it was interrupted: it has been embedded. */
static enum status put_waiting(struct builder *builder, enum status status, struct error *e) {
    struct error why;
    if (builder->collection == NULL || (status && status != STATUS_CANCELLED)) return status;
    enum status put = group_flush(&builder->group, &why);
    if (status || put == STATUS_OK) return status;
    *e = why;
    return put;
}

static enum status add_files(struct builder *builder, struct error *e) {
    enum status status = STATUS_OK;
    for (int i = 0; i < builder->walk.n && status == STATUS_OK; i++)
        status = add_file(builder, i, e);
    if (status == STATUS_OK) status = embed_waiting(builder, e);
    status = put_waiting(builder, status, e);
    progress_clear(&builder->progress);
    return status;
}

static enum status commit(struct builder *builder, struct error *e) {
    struct generation_builder *generation = builder->generation;
    if (builder->collection && builder->n_added > 0) return STATUS_OK;
    if (builder->n_added == 0)
        return error_set(e, STATUS_INVALID,
                         "none of the %d files could be added; nothing was built", builder->walk.n);
    progress_show(&builder->progress, true);
    fprintf(stderr, "building the index of %" PRId64 " vectors\n", builder->progress.chunks);
    builder->generation = NULL;
    enum status status = builder_commit(generation, e);
    if (status == STATUS_OK) unfinished_remove(&builder->unfinished);
    return status;
}

static void print_summary_json(const struct builder *builder, double seconds) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    put_key_string(&w, "effect", "built");
    put_key_string(&w, "collection", builder->options->out);
    put_key_int(&w, "documents", builder->n_added);
    put_key_int(&w, "chunks", builder->progress.chunks);
    put_key_float(&w, "seconds", (float)seconds);
    put_key_int(&w, "embedded", builder->n_embedded);
    put_key_int(&w, "copies", builder->n_copies);
    put_key_int(&w, "repeated", builder->walk.n_repeated);
    put_key_int(&w, "skipped", builder->walk.n_skipped);
    put_key_int(&w, "not_read", builder->walk.n_unknown_files + builder->walk.n_dotted);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&text);
}

static void print_summary(const struct builder *builder) {
    double seconds = time_now() - builder->progress.started;
    int n_not_read = builder->walk.n_unknown_files + builder->walk.n_dotted;
    char copies[40] = "", repeated[40] = "", skipped[40] = "", not_read[64] = "";
    if (builder->n_copies > 0)
        snprintf(copies, sizeof copies, ", %d copies of texts", builder->n_copies);
    if (builder->walk.n_repeated > 0)
        snprintf(repeated, sizeof repeated, ", %d reached twice", builder->walk.n_repeated);
    if (builder->walk.n_skipped > 0)
        snprintf(skipped, sizeof skipped, ", %d skipped", builder->walk.n_skipped);
    if (n_not_read > 0)
        snprintf(not_read, sizeof not_read, ", %d of other kinds or hidden not read", n_not_read);
    if (builder->options->json) {
        print_summary_json(builder, seconds);
        return;
    }
    line_print(stdout, "%s: %d documents, %" PRId64 " chunks in %.1f s (%.0f chunks/s)%s%s%s%s",
               builder->options->out, builder->n_added, builder->progress.chunks, seconds,
               (double)builder->progress.fresh / (seconds > 0 ? seconds : 1), copies, repeated,
               skipped, not_read);
}

/* Uploads that the collection had before are in it no more. */
static void sweep_after(const struct builder *builder) {
    struct collection *collection;
    struct error e;
    char *folder = builder->collection ? NULL : kept_folder(builder->options->out);
    bool there = folder && access(folder, F_OK) == 0;
    free(folder);
    if (!there || store_open(&collection, builder->options->out, &e)) return;
    index_sweep_files(collection, builder->options->out);
    collection_close(collection);
}

static void record_scan(const struct builder *builder) {
    const struct build_options *options = builder->options;
    struct given_roots given;
    scan_forget(options->out);
    roots_open(&given, options->out, options->paths, options->n_paths);
    roots_look(&given);
    roots_note_found(&given, &builder->walk);
    walk_record(&builder->walk, options->out, &given);
    roots_free(&given);
}

static enum status build(struct builder *builder, const struct config *config, struct error *e) {
    enum status status = walk_paths(&builder->walk, builder->options->paths,
                                    builder->options->n_paths, builder->options->base, e);
    if (status) return status;
    names_choose(&builder->walk, NULL);
    if (reader_prepare(builder->options, builder->walk.n, e)) return e->status;
    if (builder->options->dry_run) return dry_run(&builder->walk, builder->options, e);
    if (builder->walk.n == 0)
        return error_set(e, STATUS_INVALID, "no documents found; nothing was built");
    builder->limits = index_metadata_limits(config);
    status = build_open_parts(builder, config, e);
    if (status == STATUS_OK && builder->collection == NULL) status = build_check_index(builder, e);
    if (status) return status;
    survey_texts(&builder->walk, builder->options);
    if (builder->collection == NULL) status = build_check_memory(builder, e);
    if (status) return status;
    progress_start(&builder->progress, &builder->walk);
    builder->reader = reader_open(builder->options, builder->walk.files, builder->walk.n);
    status = add_files(builder, e);
    if (status == STATUS_OK) status = commit(builder, e);
    if (status == STATUS_OK) sweep_after(builder);
    if (status == STATUS_OK) record_scan(builder);
    return status;
}

int index_build(const struct build_options *options, const struct config *config, struct error *e) {
    struct builder *builder = xcalloc(1, sizeof *builder);
    builder->options = options;
    builder->walk.verbose = options->verbose;
    builder->walk.follow = options->follow;
    builder->walk.pictures = options->pictures;
    builder->walk.ocr = !options->ocr.off;
    enum status status = build(builder, config, e);
    int code = status == STATUS_CANCELLED    ? EXIT_INTERRUPTED
               : status                      ? EXIT_FAILED
               : builder->walk.n_skipped > 0 ? EXIT_SKIPPED
                                             : EXIT_FINE;
    walk_report(&builder->walk);
    if (status == STATUS_OK && !options->dry_run) print_summary(builder);
    reader_close(builder->reader);
    builder_abandon(builder->generation);
    group_free(&builder->group);
    collection_close(builder->collection);
    embedder_model_close(&builder->embedder);
    embedder_model_close(&builder->pictures);
    tokenizer_close(builder->tokenizer);
    walk_free(&builder->walk);
    key_set_free(&builder->texts);
    known_texts_free(&builder->known);
    buffer_free(&builder->waiting);
    buffer_free(&builder->metadata);
    document_cutter_close(&builder->cutter);
    unfinished_close(&builder->unfinished);
    free(builder->vectors);
    sparse_rows_free(&builder->sparse);
    free(builder);
    return code;
}
