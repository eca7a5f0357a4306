/* tools/index/index_build.c: retro-index build: files to text, text to tokens, tokens to chunks,
 * chunks to vectors, all to a collection. One document at a time is in memory, and one batch of
 * chunks that wait for the embedder. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "config/json/json_table.h"
#include "config/json/json_writer.h"
#include "retro/text/tokenizer.h"
#include "server/host/documents/document_group.h"
#include "server/host/documents/documents.h"
#include "server/host/documents/embedder_model.h"
#include "server/host/models/budget.h"
#include "tools/index/index_color.h"
#include "tools/index/index_names.h"
#include "tools/index/index_reader.h"
#include "tools/index/index_unfinished.h"

enum { BATCH_CHUNKS = 256, BATCH_BYTES = 1 << 20, DEFAULT_CHUNK_LENGTH = 64 };

struct builder {
    const struct build_options *options;
    struct walk walk;
    struct file_reader *reader;
    struct index_progress progress;
    struct tokenizer *tokenizer;
    struct embedder embedder;
    struct embedder pictures;              /* their own; zeroed: there is none */
    struct generation_builder *generation; /* NULL: */
    struct collection *collection;         /* of a collection in Milvus */
    struct unfinished unfinished;          /* of a folder */
    struct document_cutter cutter;
    struct document_group group; /* for Milvus */
    struct known_texts known;    /* for Milvus: of the documents that it has */
    struct key_set texts;        /* hash and length of each text: copies are counted */
    int n_copies, n_added;
    int64_t n_embedded;     /* chunks whose vectors were computed */
    struct buffer metadata; /* of the document at hand */
    struct metadata_limits limits;
    /* Chunks that wait: their text lies back to back. */
    struct buffer waiting;
    size_t ends[BATCH_CHUNKS];
    int n_waiting;
    float *vectors; /* [BATCH_CHUNKS, dim] */
    float *made;    /* [BATCH_CHUNKS, dim] those of them that were embedded now */
};

static void report(struct builder *b, const struct error *why) {
    progress_clear(&b->progress);
    color_skipped(why);
    b->walk.n_skipped++;
}

static enum status check_interrupted(struct error *e) {
    return index_interrupted ? error_set(e, STATUS_CANCELLED, "interrupted") : STATUS_OK;
}

/* Of the next n chunks; of their text so many bytes were embedded, and so many kept by an interrupted build. */
static enum status add_vectors(struct builder *b, const float *vectors, int n, size_t embedded, size_t kept,
                               struct error *e) {
    enum status status = builder_add_vectors(b->generation, vectors, n, e);
    progress_embedded(&b->progress, n, embedded, kept);
    return status ? status : check_interrupted(e);
}

/* The vectors of the waiting chunks. Those of equal texts, and those that an interrupted build has kept, are computed
 * once; *embedded: bytes of text that were embedded. */
static enum status make_vectors(struct builder *b, const struct text_span *texts, size_t *embedded, struct error *e) {
    struct text_span missing[BATCH_CHUNKS];
    int places[BATCH_CHUNKS], n = 0; /* of each chunk: in `missing`; -1: its vector is there */
    size_t dim = (size_t)b->embedder.dim;
    for (int i = 0; i < b->n_waiting; i++) {
        places[i] = -1;
        if (unfinished_find(&b->unfinished, texts[i], b->vectors + (size_t)i * dim)) continue;
        for (places[i] = 0; places[i] < n && !span_equals(missing[places[i]], texts[i]);) places[i]++;
        if (places[i] < n) continue;
        missing[n] = texts[i];
        *embedded += texts[i].size;
        n++;
    }
    b->n_embedded += n;
    struct embed_request request = {.texts = missing, .n = n, .role = EMBED_DOCUMENT, .vectors = b->made};
    if (n > 0 && embedder_embed(&b->embedder, &request, e)) return e->status;
    for (int i = 0; i < n; i++) unfinished_keep(&b->unfinished, missing[i], b->made + (size_t)i * dim);
    for (int i = 0; i < b->n_waiting; i++)
        if (places[i] >= 0)
            memcpy(b->vectors + (size_t)i * dim, b->made + (size_t)places[i] * dim, dim * sizeof *b->made);
    return STATUS_OK;
}

static enum status embed_waiting(struct builder *b, struct error *e) {
    struct text_span texts[BATCH_CHUNKS];
    size_t start = 0;
    size_t embedded = 0;
    if (b->n_waiting == 0) return STATUS_OK;
    for (int i = 0; i < b->n_waiting; i++) {
        texts[i] = (struct text_span){b->waiting.data + start, b->ends[i] - start};
        start = b->ends[i];
    }
    enum status status = make_vectors(b, texts, &embedded, e);
    if (status == STATUS_OK) status = add_vectors(b, b->vectors, b->n_waiting, embedded, b->waiting.size - embedded, e);
    b->n_waiting = 0;
    buffer_clear(&b->waiting);
    return status;
}

/* The document goes into Milvus, with others. */
static enum status put_remote(struct builder *b, struct collection_document *d, struct error *e) {
    struct document_cutter *cut = &b->cutter;
    int n_embedded = 0;
    size_t size = d->text.size - cut->bounds[0];
    enum status status = cut->is_picture ? STATUS_OK : group_embed(&b->group, d->text, &n_embedded, e);
    progress_embedded(&b->progress, cut->n_chunks, n_embedded > 0 ? size : 0, n_embedded > 0 ? 0 : size);
    b->n_embedded += n_embedded;
    return status ? status : group_add_embedded(&b->group, d, e);
}

static enum status take_put(void *context, const struct document_put *p, struct error *e) {
    struct builder *b = context;
    b->n_added += p->status == STATUS_OK;
    if (p->status == STATUS_OK) known_texts_add(&b->known, p->document->text, p->document->id);
    if (p->status == STATUS_OK) return STATUS_OK;
    *e = p->error;
    if (p->status != STATUS_TOO_LARGE) return p->status;
    report(b, e);
    return STATUS_OK;
}

/* Where a document lies, and its id. */
struct placed_document {
    const char *path, *source;
    char id[DOCUMENT_ID_SIZE];
};

/* Adds the document that was cut, and queues its chunks' text for the embedder; a picture has its vectors. */
static enum status add_chunks(struct builder *b, const struct placed_document *names, const struct document_text *d,
                              struct error *e) {
    const struct document_cutter *cut = &b->cutter;
    struct collection_document document = {.id = names->id,
                                           .path = names->path,
                                           .source = names->source,
                                           .title = d->title.data,
                                           .metadata = b->metadata.size > 0 ? b->metadata.data : NULL,
                                           .text = {d->text.data, d->text.size},
                                           .marks = marks_of(&d->marks),
                                           .ids = cut->tokens.ids,
                                           .bounds = cut->bounds,
                                           .n = cut->tokens.n,
                                           .picture = cutter_picture(cut)};
    if (b->collection) return put_remote(b, &document, e);
    enum status status = cut->is_picture ? embed_waiting(b, e) : STATUS_OK;
    if (status == STATUS_OK) status = builder_add_document(b->generation, &document, e);
    if (status == STATUS_OK && cut->is_picture)
        return add_vectors(b, cut->vectors, cut->n_chunks, d->text.size - cut->bounds[0], 0, e);
    for (int i = 0; i < cut->n_chunks && status == STATUS_OK; i++) {
        buffer_append(&b->waiting, d->text.data + cut->bounds[i], cut->bounds[i + 1] - cut->bounds[i]);
        b->ends[b->n_waiting] = b->waiting.size;
        b->n_waiting++;
        if (b->n_waiting == BATCH_CHUNKS || b->waiting.size >= BATCH_BYTES) status = embed_waiting(b, e);
    }
    return status;
}

enum status read_documents(const struct build_options *o, const struct found_file *file, const atomic_bool *cancelled,
                           const struct document_taker *taker, struct error *e) {
    struct extract_limits limits = extract_limits_of(o->max_file_bytes);
    limits.pictures = o->pictures;
    limits.cancelled = cancelled;
    if (o->max_seconds > 0) limits.seconds = o->max_seconds;
    return document_extract_all(&(struct extract_source){.path = file->path, .kind = file->kind}, &limits, taker, e);
}

/* A file, while its documents are added. */
struct file_adder {
    struct builder *builder;
    const struct found_file *file;
    uint64_t guess;     /* bytes of text that are still expected of it */
    enum status failed; /* the builder's own failure, which ends the build */
};

static void count_copy(struct file_adder *a, const char *part, struct text_span text) {
    struct builder *b = a->builder;
    if (key_set_add(&b->texts, hash_bytes(text.text, text.size, 0), text.size)) return;
    b->n_copies++;
    progress_clear(&b->progress);
    if (b->options->verbose) line_print(stderr, "the same text as another: %s%s", a->file->path, part);
}

static enum status add_document(struct file_adder *a, const char *part, const struct document_text *d,
                                struct error *e) {
    struct builder *b = a->builder;
    struct error why;
    struct buffer stored = {0};
    struct placed_document names = {.source = a->file->source};
    const struct buffer given = {0};
    const struct text_span text = {d->text.data, d->text.size};
    uint64_t guess = d->text.size < a->guess ? d->text.size : a->guess;
    enum status status = check_interrupted(e);
    if (status) return status;
    buffer_printf(&stored, "%s%s", a->file->identity, part);
    document_id_of_path(stored.data, names.id);
    buffer_clear(&stored);
    buffer_printf(&stored, "%s%s", a->file->stored, part);
    names.path = stored.data;
    if (d->note) {
        progress_clear(&b->progress);
        color_line(stderr, COLOR_CYAN, "note:", " %s%s: %s", a->file->path, part, d->note);
    }
    if (metadata_of_file(&b->metadata, &given, a->file, text, &b->limits, &why)) {
        report(b, &why);
    } else if (document_cut(&b->cutter, text, &why) ||
               (b->cutter.is_picture && document_embed(&b->cutter, text, NULL, &why))) {
        error_prefix(&why, "%s%s", a->file->path, part);
        report(b, &why);
    } else {
        count_copy(a, part, text);
        a->guess -= guess;
        progress_read(&b->progress, guess, d->text.size - b->cutter.bounds[0]);
        status = add_chunks(b, &names, d, &why);
        b->n_added += status == STATUS_OK && b->collection == NULL;
        if (status) *e = why;
    }
    buffer_free(&stored);
    return status;
}

static enum status take_document(void *context, const char *part, const struct document_text *d, struct error *e) {
    struct file_adder *a = context;
    a->failed = add_document(a, part, d, e);
    return a->failed;
}

static void skip_document(void *context, const struct error *why) {
    report(((struct file_adder *)context)->builder, why);
}

static enum status add_file(struct builder *b, int number, struct error *e) {
    const struct found_file *file = &b->walk.files[number];
    struct file_adder adder = {.builder = b, .file = file, .guess = file->text_bytes};
    struct document_taker taker = {.context = &adder, .take = take_document, .skip = skip_document};
    struct error why = {0};
    enum status status = check_interrupted(e);
    if (status) return status;
    status = reader_take(b->reader, number, &taker, &why);
    if (adder.failed) {
        *e = why;
        return status;
    }
    /* Ctrl-C reaches mandoc too: its page is not bad. */
    if (status && check_interrupted(e)) return e->status;
    if (status) report(b, &why);
    progress_read_file(&b->progress, adder.guess);
    return STATUS_OK;
}

struct model_facts {
    int chunk_length, eod; /* eod -1: the tokenizer's */
};

static const struct json_field model_fields[] = {
    {"retro_chunk_length", JSON_INT, JSON_AT(struct model_facts, chunk_length), .min = 1, .max = INT16_MAX},
    {"eod_token_id", JSON_INT, JSON_AT(struct model_facts, eod), .min = -1, .max = INT32_MAX},
};
static const struct json_table model_table = JSON_TABLE(model_fields, .open = true);

/* Chunk length and end-of-document id as the model was trained with. */
static enum status read_model(struct builder *b, const char *folder, int32_t *eod, struct error *e) {
    struct model_facts facts = {.chunk_length = DEFAULT_CHUNK_LENGTH, .eod = -1};
    struct buffer path = {0};
    struct json *root;
    buffer_printf(&path, "%s/config.json", folder);
    struct json_reader reader = {.name = path.data, .e = e};
    enum status status = json_parse_file(&root, path.data, e);
    if (status == STATUS_OK) status = json_table_read(&reader, &model_table, root, &facts);
    json_close(root);

    b->cutter.tokenizer = b->tokenizer;
    b->cutter.chunk_length = b->options->chunk_length ? b->options->chunk_length : facts.chunk_length;
    *eod = facts.eod >= 0 ? facts.eod : tokenizer_eod(b->tokenizer);
    if (status == STATUS_OK && *eod < 0)
        status = error_set(e, STATUS_INVALID, "%s: no eod_token_id, and the tokenizer has no end-of-document token",
                           path.data);
    buffer_free(&path);
    return status;
}

/* Checks the memory that embedding takes, before any of it is taken. */
static enum status check_embedding(const struct config *config, struct error *e) {
    struct budget_parts parts = {0};
    struct encoder_bytes embedder, pictures = {0};
    struct backend *device;
    const char *folder = config->retrieval.embedder;
    bool sees = config->retrieval.picture_embedder[0] != '\0';
    if (backend_open(&device, config->model.device, &(struct backend_options){.threads = 1}, e)) return e->status;
    enum status status = embedder_model_measure(&embedder, folder, config, device, e);
    if (status == STATUS_OK && sees)
        status = picture_embedder_measure(&pictures, config->retrieval.picture_embedder, config, device, e);
    bool on_host = strcmp(device->ops->name, "cpu") == 0;
    backend_close(device);
    if (status) return error_prefix(e, "embedder");

    size_t bytes = encoder_bytes_own(&embedder);
    size_t of_pictures = encoder_bytes_own(&pictures);
    if (on_host)
        budget_add(
            &parts, (struct budget_part){.name = "embedder", .bytes = bytes},
            "set retrieval.embedder_dtype to bf16 or lower retrieval.embedder_tokens, or take a smaller embedder");
    if (on_host && sees)
        budget_add(&parts, (struct budget_part){.name = "pictures' embedder", .bytes = of_pictures},
                   "set retrieval.embedder_dtype to bf16, or take a smaller embedder for pictures");
    const char *const folders[] = {config->model.path, folder, config->retrieval.picture_embedder};
    budget_add_program(&parts, folders, sees ? 3 : 2);
    return budget_check_host(&parts, e);
}

/* About as many bytes of a file make a token. */
enum { BYTES_OF_TOKEN = 4 };

/* The index is in memory as a whole when it is built. Nobody wants to hear after hours of embedding that it does not
 * fit, so it is estimated from what the survey of the files guesses. */
static enum status check_index_memory(const struct builder *b, struct error *e) {
    struct budget_parts parts = {0};
    size_t chunks = (size_t)b->walk.n, chunk_bytes = (size_t)b->cutter.chunk_length * BYTES_OF_TOKEN;
    for (int i = 0; i < b->walk.n; i++) chunks += b->walk.files[i].text_bytes / chunk_bytes;
    budget_add(
        &parts,
        (struct budget_part){.name = "document index", .bytes = chunks * (size_t)b->embedder.dim * sizeof(float)},
        "index fewer files, or in larger chunks (--chunk-length, now %d)", b->cutter.chunk_length);
    return budget_check_host(&parts, e);
}

/* All that a vector depends on, beside its text. */
static uint64_t hash_maker(const struct builder *b, const struct config *config) {
    struct buffer facts = {0};
    const char *prompt = b->embedder.prompts[EMBED_DOCUMENT];
    buffer_printf(&facts, "%016" PRIx64 " %d %d %s\n%s", b->embedder.hash, b->embedder.dim,
                  (int)config->retrieval.embedder_dtype, config->model.device, prompt ? prompt : "");
    uint64_t hash = hash_bytes(facts.data, facts.size, 0);
    buffer_free(&facts);
    return hash;
}

static enum status open_unfinished(struct builder *b, const struct config *config, struct error *e) {
    struct unfinished *u = &b->unfinished;
    enum status status = unfinished_open(u, b->options->out, hash_maker(b, config), b->embedder.dim, e);
    if (status == STATUS_OK && u->n_kept > 0)
        fprintf(stderr, "going on: an interrupted build has left the vectors of %" PRId64 " chunks\n", u->n_kept);
    return status;
}

static enum status open_pictures(struct builder *b, const struct config *config, struct error *e) {
    const char *folder = config->retrieval.picture_embedder;
    if (folder[0] && picture_embedder_open(&b->pictures, folder, config, e)) return e->status;
    b->cutter.pictures = embedder_if_open(&b->pictures);
    return STATUS_OK;
}

static enum status open_collection(struct builder *b, const struct config *config, const struct collection_options *o,
                                   struct error *e) {
    const char *out = b->options->out;
    if (!collection_name_is_remote(out))
        return builder_create(&b->generation, out, o, e) ? e->status : open_unfinished(b, config, e);
    if (documents_collection_make(config, out, o, tokenizer_vocab_size(b->tokenizer) - 1, e)) return e->status;
    enum status status = documents_collection_open(&b->collection, config, out, e);
    b->group = (struct document_group){.cutter = &b->cutter,
                                       .collection = b->collection,
                                       .texts = &b->known,
                                       .cancelled = &index_interrupted,
                                       .take = take_put,
                                       .context = b};
    return status;
}

static enum status open_parts(struct builder *b, const struct config *config, struct error *e) {
    int32_t eod;
    if (config->model.path[0] == '\0' || config->retrieval.embedder[0] == '\0')
        return error_set(e, STATUS_INVALID, "model.path and retrieval.embedder are needed: --config FILE or --set");
    b->cutter.embedder = &b->embedder;
    if (check_embedding(config, e) || tokenizer_open(&b->tokenizer, config->model.path, e) ||
        read_model(b, config->model.path, &eod, e) ||
        embedder_model_open(&b->embedder, config->retrieval.embedder, config, e) || open_pictures(b, config, e))
        return e->status;
    if (config->retrieval.threads > 0) index_set_threads(config->retrieval.threads);
    b->vectors = xmalloc((size_t)BATCH_CHUNKS * (size_t)b->embedder.dim * sizeof *b->vectors);
    b->made = xmalloc((size_t)BATCH_CHUNKS * (size_t)b->embedder.dim * sizeof *b->made);
    /* Other programs may start in other folders. */
    char *embedder = realpath(config->retrieval.embedder, NULL), *tokenizer = realpath(config->model.path, NULL);
    char *pictures = realpath(config->retrieval.picture_embedder, NULL);
    struct collection_options o = {.chunk_length = b->cutter.chunk_length,
                                   .eod = eod,
                                   .dim = b->embedder.dim,
                                   .embedder_hash = b->embedder.hash,
                                   .query_prompt = b->embedder.prompts[EMBED_QUERY],
                                   .document_prompt = b->embedder.prompts[EMBED_DOCUMENT],
                                   .tokenizer_hash = tokenizer_hash(b->tokenizer),
                                   .embedder = embedder ? embedder : config->retrieval.embedder,
                                   .tokenizer = tokenizer ? tokenizer : config->model.path,
                                   .index_factory = b->options->index_factory};
    if (b->pictures.self)
        o.pictures = (struct picture_space){.embedder = pictures ? pictures : config->retrieval.picture_embedder,
                                            .embedder_hash = b->pictures.hash,
                                            .query_prompt = b->pictures.prompts[EMBED_QUERY],
                                            .document_prompt = b->pictures.prompts[EMBED_DOCUMENT],
                                            .dim = b->pictures.dim};
    enum status status = open_collection(b, config, &o, e);
    free(embedder);
    free(pictures);
    free(tokenizer);
    return status;
}

struct chunk_counter {
    struct builder *builder;
    int64_t n_chunks;
};

static enum status count_document(void *context, const char *part, const struct document_text *d, struct error *e) {
    struct chunk_counter *c = context;
    struct error why;
    (void)part;
    if (check_interrupted(e)) return e->status;
    if (document_cut(&c->builder->cutter, (struct text_span){d->text.data, d->text.size}, &why)) return STATUS_OK;
    c->n_chunks += c->builder->cutter.n_chunks;
    return STATUS_OK;
}

/* Counts the chunks that the files will give, up to `enough`. */
static enum status count_chunks(struct builder *b, int64_t enough, int64_t *n_chunks, struct error *e) {
    struct chunk_counter counter = {.builder = b};
    struct document_taker taker = {.context = &counter, .take = count_document};
    struct error unreadable;
    enum status status = STATUS_OK;
    for (int i = 0; i < b->walk.n && counter.n_chunks < enough && status == STATUS_OK; i++) {
        read_documents(b->options, &b->walk.files[i], &index_interrupted, &taker, &unreadable);
        status = check_interrupted(e);
    }
    *n_chunks = counter.n_chunks;
    return status;
}

/* An index that cannot be made of these files is refused before they are embedded, which can take hours. */
static enum status check_index(struct builder *b, struct error *e) {
    const char *asked = b->options->index_factory;
    int64_t least = index_least_vectors(asked), n_chunks = least;
    enum status status = index_check_factory(asked, b->embedder.dim, e);
    if (status == STATUS_OK && least > 1) status = count_chunks(b, least, &n_chunks, e);
    if (status || n_chunks >= least) return status;
    return error_set(e, STATUS_INVALID,
                     "--index %s needs at least %" PRId64
                     " chunks, one for each list or code that it learns, and these "
                     "documents give %" PRId64 ": ask for fewer lists, or leave --index out for one that fits",
                     asked, least, n_chunks);
}

/* Puts what waits for Milvus, also when it was interrupted: it has been embedded. */
static enum status put_waiting(struct builder *b, enum status status, struct error *e) {
    struct error why;
    if (b->collection == NULL || (status && status != STATUS_CANCELLED)) return status;
    enum status put = group_flush(&b->group, &why);
    if (status || put == STATUS_OK) return status;
    *e = why;
    return put;
}

static enum status add_files(struct builder *b, struct error *e) {
    enum status status = STATUS_OK;
    for (int i = 0; i < b->walk.n && status == STATUS_OK; i++) status = add_file(b, i, e);
    if (status == STATUS_OK) status = embed_waiting(b, e);
    status = put_waiting(b, status, e);
    progress_clear(&b->progress);
    return status;
}

static enum status commit(struct builder *b, struct error *e) {
    struct generation_builder *generation = b->generation;
    if (b->collection && b->n_added > 0) return STATUS_OK;
    if (b->n_added == 0)
        return error_set(e, STATUS_INVALID, "none of the %d files could be added; nothing was built", b->walk.n);
    progress_show(&b->progress, true);
    fprintf(stderr, "building the index of %" PRId64 " vectors\n", b->progress.chunks);
    b->generation = NULL;
    enum status status = builder_commit(generation, e);
    if (status == STATUS_OK) unfinished_remove(&b->unfinished);
    return status;
}

static void print_summary_json(const struct builder *b, double seconds) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    put_key_string(&w, "effect", "built");
    put_key_string(&w, "collection", b->options->out);
    put_key_int(&w, "documents", b->n_added);
    put_key_int(&w, "chunks", b->progress.chunks);
    put_key_float(&w, "seconds", (float)seconds);
    put_key_int(&w, "embedded", b->n_embedded);
    put_key_int(&w, "copies", b->n_copies);
    put_key_int(&w, "repeated", b->walk.n_repeated);
    put_key_int(&w, "skipped", b->walk.n_skipped);
    put_key_int(&w, "not_read", b->walk.n_unknown_files + b->walk.n_dotted);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&text);
}

static void print_summary(const struct builder *b) {
    double seconds = time_now() - b->progress.started;
    int n_not_read = b->walk.n_unknown_files + b->walk.n_dotted;
    char copies[40] = "", repeated[40] = "", skipped[40] = "", not_read[64] = "";
    if (b->n_copies > 0) snprintf(copies, sizeof copies, ", %d copies of texts", b->n_copies);
    if (b->walk.n_repeated > 0) snprintf(repeated, sizeof repeated, ", %d reached twice", b->walk.n_repeated);
    if (b->walk.n_skipped > 0) snprintf(skipped, sizeof skipped, ", %d skipped", b->walk.n_skipped);
    if (n_not_read > 0) snprintf(not_read, sizeof not_read, ", %d of other kinds or hidden not read", n_not_read);
    if (b->options->json) {
        print_summary_json(b, seconds);
        return;
    }
    line_print(stdout, "%s: %d documents, %" PRId64 " chunks in %.1f s (%.0f chunks/s)%s%s%s%s", b->options->out,
               b->n_added, b->progress.chunks, seconds, (double)b->progress.chunks / (seconds > 0 ? seconds : 1),
               copies, repeated, skipped, not_read);
}

static enum status build(struct builder *b, const struct config *config, struct error *e) {
    enum status status = walk_paths(&b->walk, b->options->paths, b->options->n_paths, b->options->base, e);
    if (status) return status;
    names_choose(&b->walk, NULL);
    walk_report(&b->walk);
    if (reader_prepare(b->options, b->walk.n, e)) return e->status;
    if (b->options->dry_run) return dry_run(&b->walk, b->options, e);
    if (b->walk.n == 0) return error_set(e, STATUS_INVALID, "no documents found; nothing was built");
    b->limits = index_metadata_limits(config);
    status = open_parts(b, config, e);
    if (status == STATUS_OK && b->collection == NULL) status = check_index(b, e);
    if (status) return status;
    survey_texts(&b->walk, b->options);
    if (b->collection == NULL) status = check_index_memory(b, e);
    if (status) return status;
    progress_start(&b->progress, &b->walk);
    b->reader = reader_open(b->options, b->walk.files, b->walk.n);
    status = add_files(b, e);
    return status ? status : commit(b, e);
}

int index_build(const struct build_options *o, const struct config *config, struct error *e) {
    struct builder *b = xcalloc(1, sizeof *b);
    b->options = o;
    b->walk.verbose = o->verbose;
    b->walk.follow = o->follow;
    b->walk.pictures = o->pictures;
    enum status status = build(b, config, e);
    int code = status == STATUS_CANCELLED ? EXIT_INTERRUPTED
               : status                   ? EXIT_FAILED
               : b->walk.n_skipped > 0    ? EXIT_SKIPPED
                                          : EXIT_FINE;
    if (status == STATUS_OK && !o->dry_run) print_summary(b);
    reader_close(b->reader);
    builder_abandon(b->generation);
    group_free(&b->group);
    collection_close(b->collection);
    embedder_model_close(&b->embedder);
    embedder_model_close(&b->pictures);
    tokenizer_close(b->tokenizer);
    walk_free(&b->walk);
    key_set_free(&b->texts);
    known_texts_free(&b->known);
    buffer_free(&b->waiting);
    buffer_free(&b->metadata);
    document_cutter_close(&b->cutter);
    unfinished_close(&b->unfinished);
    free(b->vectors);
    free(b->made);
    free(b);
    return code;
}
