/* tools/index/index_look.c: the commands of retro-index that only look and do not search: stats,
 * list, show, verify. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "server/host/documents/documents.h"
#include "server/host/documents/embedder_model.h"
#include "tools/index/index.h"
#include "tools/index/index_named.h"

enum status index_expect(const struct index_arguments *arguments, int n, const char *what,
                         struct error *e) {
    return arguments->n_rest == n
               ? STATUS_OK
               : error_set(e, STATUS_INVALID, "expected %s; --help says more", what);
}

enum status makers_open(const struct config *config, const struct collection_info *info,
                        struct embedder *embedder, struct tokenizer **tokenizer, struct error *e) {
    if (embedder_model_open(embedder, documents_embedder(config, info->embedder), config, e) ||
        tokenizer_open(tokenizer, config->model.path[0] ? config->model.path : info->tokenizer, e))
        return e->status;
    if (collection_match_embedder(info, embedder, e)) return e->status;
    return collection_match_tokens(info, tokenizer_hash(*tokenizer), info->chunk_length, e);
}

enum status index_expect_folder(const struct index_arguments *arguments, int i, const char *command,
                                struct error *e) {
    if (!collection_name_is_remote(arguments->rest[i])) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s works on a collection in a folder, and %.200s lies in Milvus; retro-index "
                     "copy brings it into "
                     "a folder",
                     command, arguments->rest[i]);
}

enum status index_open_first(const struct index_arguments *arguments,
                             struct collection **collection, struct snapshot **snapshot,
                             struct error *e) {
    enum status status =
        documents_collection_open(collection, &arguments->config, arguments->rest[0], e);
    *snapshot = status ? NULL : collection_hold(*collection);
    return status;
}

void index_close_first(struct collection *collection, struct snapshot *snapshot) {
    snapshot_release(snapshot);
    collection_close(collection);
}

/* Stats. */

static void print_pictures(const struct snapshot *snapshot, const struct picture_space *space) {
    if (space->embedder == NULL) return;
    printf("pictures      %" PRId64 ", vectors of %d numbers\n", store_count_pictures(snapshot),
           space->dim);
    line_print(stdout, "their index   %s",
               space->n > 0 ? space->index_factory : "none before compaction");
    line_print(stdout, "their embed.  %s (hash %016" PRIx64 ")", space->embedder,
               space->embedder_hash);
}

static void put_pictures(struct json_writer *w, const struct snapshot *snapshot,
                         const struct picture_space *space) {
    if (space->embedder == NULL) return;
    put_key_object(w, "pictures");
    put_key_int(w, "count", store_count_pictures(snapshot));
    put_key_int(w, "dim", space->dim);
    put_key_string(w, "index", space->index_factory);
    put_key_string(w, "embedder", space->embedder);
    put_object_end(w);
}

static void print_stats(const struct snapshot *snapshot, const struct collection_info *info,
                        const struct collection_changes *changes) {
    if (changes) printf("generation    %d\n", info->generation);
    printf("documents     %" PRId64 "\nchunks        %" PRId64 "\n", snapshot->n_documents,
           snapshot->n_chunks);
    if (changes)
        printf("changes       %" PRId64 ": %" PRId64 " documents in the log, %" PRId64
               " of the generation gone, %" PRIu64 " bytes\n",
               snapshot->n_changes, changes->n_documents, changes->n_deleted, changes->log_bytes);
    if (changes)
        printf("words         %" PRId64 " different, %" PRIu64 " bytes\n", changes->n_words,
               changes->words_bytes);
    if (changes && info->sparse)
        printf("sparse        %" PRId64 " weights of token ids\n", changes->n_sparse);
    printf("chunk length  %d\nchunks end    %s\n", info->chunk_length,
           info->cut == CHUNKS_GRID ? "on a grid" : "with blocks and sentences");
    printf("context       %d tokens, overlap %d\n", info->context, info->overlap);
    printf("vectors       %d numbers, inner product\n", info->dim);
    line_print(stdout, "index         %s", info->index_factory);
    line_print(stdout, "embedder      %s (hash %016" PRIx64 ")", info->embedder,
               info->embedder_hash);
    if (info->query_prompt[0]) line_print(stdout, "query prompt  %s", info->query_prompt);
    if (info->document_prompt[0]) line_print(stdout, "doc. prompt   %s", info->document_prompt);
    line_print(stdout, "tokenizer     %s (hash %016" PRIx64 ")", info->tokenizer,
               info->tokenizer_hash);
    print_pictures(snapshot, &info->pictures);
}

static void print_recall(const struct recall_report *report) {
    printf("recall@%-6d %.4f, the nearest %.4f; %d %s\n", report->k, report->figures.recall,
           report->figures.recall_first, report->n,
           report->own ? "chunks of the collection asked" : "queries");
    printf("search        %.3f ms, 99 of 100 within %.3f ms\n", report->figures.median,
           report->figures.p99);
}

static void put_recall(struct json_writer *w, const struct recall_report *report) {
    put_key_object(w, "recall");
    put_key_int(w, "k", report->k);
    put_key_int(w, "queries", report->n);
    put_key_bool(w, "own_chunks", report->own);
    put_key_float(w, "recall", (float)report->figures.recall);
    put_key_float(w, "recall_first", (float)report->figures.recall_first);
    put_key_float(w, "median_ms", (float)report->figures.median);
    put_key_float(w, "p99_ms", (float)report->figures.p99);
    put_object_end(w);
}

/* recall NULL: it was not asked for. */
static void put_stats(const struct snapshot *snapshot, const struct collection_info *info,
                      const struct collection_changes *changes,
                      const struct recall_report *recall) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    if (changes) put_key_int(&w, "generation", info->generation);
    put_key_int(&w, "documents", snapshot->n_documents);
    put_key_int(&w, "chunks", snapshot->n_chunks);
    if (changes) {
        put_key_int(&w, "changes", snapshot->n_changes);
        put_key_int(&w, "logged_documents", changes->n_documents);
        put_key_int(&w, "gone_documents", changes->n_deleted);
        put_key_int(&w, "log_bytes", (int64_t)changes->log_bytes);
        put_key_int(&w, "words", changes->n_words);
        put_key_int(&w, "words_bytes", (int64_t)changes->words_bytes);
        if (info->sparse) put_key_int(&w, "sparse_weights", changes->n_sparse);
    }
    put_key_int(&w, "chunk_length", info->chunk_length);
    put_key_string(&w, "chunks_end", chunk_cut_name(info->cut));
    put_key_int(&w, "context", info->context);
    put_key_int(&w, "overlap", info->overlap);
    put_key_int(&w, "dim", info->dim);
    put_key_string(&w, "index", info->index_factory);
    put_key_string(&w, "embedder", info->embedder);
    put_key_string(&w, "query_prompt", info->query_prompt);
    put_key_string(&w, "document_prompt", info->document_prompt);
    put_key_string(&w, "tokenizer", info->tokenizer);
    put_pictures(&w, snapshot, &info->pictures);
    if (recall) put_recall(&w, recall);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&text);
}

int run_stats(struct index_arguments *arguments, struct error *e) {
    struct collection *collection;
    struct snapshot *snapshot;
    struct recall_report recall;
    struct collection_changes changes;
    if (index_expect(arguments, 1, "stats DIR", e)) return EXIT_FAILED;
    if (arguments->neighbors.queries && !arguments->recall) {
        error_set(e, STATUS_INVALID, "--queries are for --recall");
        return EXIT_FAILED;
    }
    if (arguments->recall && index_expect_folder(arguments, 0, "stats --recall", e))
        return EXIT_FAILED;
    if (arguments->recall && index_measure_recall(arguments, &recall, e))
        return e->status == STATUS_CANCELLED ? EXIT_INTERRUPTED : EXIT_FAILED;
    if (index_open_first(arguments, &collection, &snapshot, e)) return EXIT_FAILED;
    bool is_folder = collection_count_changes(collection, &changes, e) == STATUS_OK;
    if (arguments->json)
        put_stats(snapshot, snapshot->info, is_folder ? &changes : NULL,
                  arguments->recall ? &recall : NULL);
    else
        print_stats(snapshot, snapshot->info, is_folder ? &changes : NULL);
    if (arguments->recall && !arguments->json) print_recall(&recall);
    index_close_first(collection, snapshot);
    return EXIT_FINE;
}

/* List and show. */

static void put_document(const struct stored_document *document, bool with_text) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    put_key_string(&w, "id", document->id);
    put_key_string(&w, "path", document->path);
    if (document->source[0]) put_key_string(&w, "source", document->source);
    put_key_string(&w, "title", document->title);
    if (document->metadata[0]) {
        put_key(&w, "metadata");
        put_raw(&w, (struct text_span){document->metadata, strlen(document->metadata)});
    }
    put_key_int(&w, "chunks", document->n_chunks);
    put_key_int(&w, "bytes", (int64_t)document->text.size);
    if (with_text) put_key_string_n(&w, "text", document->text.text, document->text.size);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&text);
}

struct listing {
    const struct index_arguments *arguments;
    const char *part;
    int64_t n_found;
};

static enum status list_document(void *context, const struct stored_document *document,
                                 struct error *e) {
    struct listing *listing = context;
    (void)e;
    if (strstr(document->path, listing->part) == NULL) return STATUS_OK;
    listing->n_found++;
    if (listing->arguments->json)
        put_document(document, false);
    else if (listing->arguments->list_long)
        line_print(stdout, "%s  %6" PRId64 "  %s%s%s", document->id, document->n_chunks,
                   document->path, document->title[0] ? "  " : "", document->title);
    else
        line_print(stdout, "%s", document->path[0] ? document->path : document->id);
    return STATUS_OK;
}

int run_list(struct index_arguments *arguments, struct error *e) {
    struct collection *collection;
    struct listing listing = {.arguments = arguments,
                              .part = arguments->n_rest == 2 ? arguments->rest[1] : ""};
    if (arguments->n_rest != 2 && index_expect(arguments, 1, "list DIR [TEXT]", e))
        return EXIT_FAILED;
    if (documents_collection_open(&collection, &arguments->config, arguments->rest[0], e))
        return EXIT_FAILED;
    struct collection_walk walk = {.take = list_document, .context = &listing};
    enum status status = collection_walk(collection, &walk, e);
    collection_close(collection);
    if (status) return EXIT_FAILED;
    if (listing.n_found > 0) return EXIT_FINE;
    if (listing.part[0] == '\0')
        error_set(e, STATUS_NOT_FOUND, "%s: there are no documents", arguments->rest[0]);
    else
        error_set(e, STATUS_NOT_FOUND, "%s: no document has \"%s\" in its name", arguments->rest[0],
                  listing.part);
    return EXIT_FAILED;
}

static enum status show_document(const struct index_arguments *arguments,
                                 struct collection *collection, const char *id, struct error *e) {
    struct collection_found found;
    enum status status = collection_find(collection, NULL, id, &found, e);
    struct text_span text = found.document.text;
    if (status == STATUS_OK && arguments->json)
        put_document(&found.document, true);
    else if (status == STATUS_OK && fwrite(text.text, 1, text.size, stdout) != text.size)
        status = error_errno(e, "standard output");
    collection_found_release(&found);
    return status;
}

int run_show(struct index_arguments *arguments, struct error *e) {
    struct collection *collection;
    struct named_documents named = {0};
    if (index_expect(arguments, 2, "show DIR DOCUMENT", e) ||
        documents_collection_open(&collection, &arguments->config, arguments->rest[0], e))
        return EXIT_FAILED;
    enum status status = named_documents_find(&named, collection, arguments->rest + 1, 1, NULL, e);
    for (int i = 0; i < named.n && status == STATUS_OK; i++)
        status = show_document(arguments, collection, named.documents[i].id, e);
    named_documents_free(&named);
    collection_close(collection);
    return status ? EXIT_FAILED : EXIT_FINE;
}

/* Verify. */

/* Says whether the embedder and tokenizer that the collection names are there and still the same.
 */
static enum status verify_makers(const struct index_arguments *arguments,
                                 const struct collection_info *info, struct error *e) {
    struct embedder embedder = {0}, pictures = {0};
    struct tokenizer *tokenizer = NULL;
    enum status status = makers_open(&arguments->config, info, &embedder, &tokenizer, e);
    if (status == STATUS_OK)
        status = documents_open_pictures(&pictures, &arguments->config, info, e);
    tokenizer_close(tokenizer);
    embedder_model_close(&embedder);
    embedder_model_close(&pictures);
    return status;
}

static void print_fall_back(FILE *out, const char *dir, const struct store_repaired *repaired) {
    line_print(out, "%s: the generation in use was damaged: %s", dir, repaired->why.text);
    line_print(out, "%s: generation %d is in use now; documents that came or went later are lost",
               dir, repaired->generation);
    if (repaired->damaged_generation > 0)
        line_print(out,
                   "%s: generation %d is put aside: its folder has \".damaged\" behind its name",
                   dir, repaired->damaged_generation);
}

static enum status repair(const struct index_arguments *arguments, struct error *e) {
    struct store_repaired repaired;
    FILE *out = arguments->json ? stderr : stdout;
    enum status status = store_repair(arguments->rest[0], &repaired, e);
    if (status == STATUS_OK && repaired.fell_back)
        print_fall_back(out, arguments->rest[0], &repaired);
    if (status == STATUS_OK && repaired.log_cut)
        line_print(out,
                   "%s: the log ends behind change %" PRIu64 " now; %" PRIu64
                   " bytes are put aside in changes.cut, and %" PRIu64
                   " changes that had been acknowledged are lost",
                   arguments->rest[0], repaired.n_kept, repaired.n_cut, repaired.n_lost);
    return status;
}

/* Opening warns of a damaged log and goes on; here it is a failure. */
static enum status verify_log(const struct index_arguments *arguments,
                              struct collection *collection, struct error *e) {
    struct collection_changes changes;
    if (collection_count_changes(collection, &changes, e)) return e->status;
    if (!changes.damaged) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT,
                     "%s: the log of changes is damaged; --repair cuts it where that begins",
                     arguments->rest[0]);
}

static void print_verified(const struct index_arguments *arguments,
                           const struct snapshot *snapshot) {
    struct buffer text = {0};
    struct json_writer w;
    if (!arguments->json) {
        line_print(stdout,
                   "%s: generation %d is whole, with %" PRId64 " changes: %" PRId64
                   " documents, %" PRId64
                   " chunks; embedder and tokenizer are the ones it was built with",
                   arguments->rest[0], snapshot->generation, snapshot->n_changes,
                   snapshot->n_documents, snapshot->n_chunks);
        return;
    }
    put_begin(&w, &text);
    put_object(&w);
    put_key_bool(&w, "whole", true);
    put_key_int(&w, "generation", snapshot->generation);
    put_key_int(&w, "changes", snapshot->n_changes);
    put_key_int(&w, "documents", snapshot->n_documents);
    put_key_int(&w, "chunks", snapshot->n_chunks);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&text);
}

/* Every document is read whole, which compares it with its checksum. */
static enum status verify_document(void *context, const struct stored_document *document,
                                   struct error *e) {
    struct collection_found found;
    if (index_interrupted) return error_set(e, STATUS_CANCELLED, "interrupted");
    enum status status = collection_find(context, NULL, document->id, &found, e);
    collection_found_release(&found);
    if (status == STATUS_NOT_FOUND)
        return error_set(e, STATUS_CORRUPT,
                         "document %.200s is not there as a whole: a change of it was broken off, "
                         "or is under way; to "
                         "add or delete it again mends it",
                         document->id);
    return status;
}

static int verify_remote(struct index_arguments *arguments, struct error *e) {
    struct collection *collection;
    struct snapshot *snapshot;
    if (arguments->repair && index_expect_folder(arguments, 0, "verify --repair", e))
        return EXIT_FAILED;
    if (index_open_first(arguments, &collection, &snapshot, e)) return EXIT_FAILED;
    struct collection_walk walk = {.take = verify_document, .context = collection};
    enum status status = collection_walk(collection, &walk, e);
    if (status == STATUS_OK) status = verify_makers(arguments, snapshot->info, e);
    if (status == STATUS_OK) print_verified(arguments, snapshot);
    index_close_first(collection, snapshot);
    return status ? EXIT_FAILED : EXIT_FINE;
}

int run_verify(struct index_arguments *arguments, struct error *e) {
    struct collection *collection;
    struct snapshot *snapshot;
    if (arguments->n_rest == 1 && collection_name_is_remote(arguments->rest[0]))
        return verify_remote(arguments, e);
    if (index_expect(arguments, 1, "verify DIR", e) ||
        (arguments->repair && repair(arguments, e)) ||
        disk_generation_verify(arguments->rest[0], e) ||
        index_open_first(arguments, &collection, &snapshot, e))
        return EXIT_FAILED;
    enum status status = verify_log(arguments, collection, e);
    if (status == STATUS_OK) status = verify_makers(arguments, snapshot->info, e);
    if (status == STATUS_OK) print_verified(arguments, snapshot);
    index_close_first(collection, snapshot);
    return status ? EXIT_FAILED : EXIT_FINE;
}
