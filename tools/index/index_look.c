/* tools/index/index_look.c: the commands of retro-index that only look: search, stats, list, show,
 * verify. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "server/host/documents/documents.h"
#include "server/host/documents/embedder_model.h"
#include "server/host/documents/reranker_model.h"
#include "tools/index/index.h"
#include "tools/index/index_color.h"

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

/* Opens the collection that the command line names first, and its newest snapshot. */
static enum status open_first(const struct index_arguments *arguments,
                              struct collection **collection, struct snapshot **snapshot,
                              struct error *e) {
    enum status status =
        documents_collection_open(collection, &arguments->config, arguments->rest[0], e);
    *snapshot = status ? NULL : collection_hold(*collection);
    return status;
}

static void close_first(struct collection *collection, struct snapshot *snapshot) {
    snapshot_release(snapshot);
    collection_close(collection);
}

/* " (page 3, line 7, Install > Linux)", as far as it is known. */
static void describe_place(const struct hit *hit, struct buffer *out) {
    struct document_place place = place_find(hit->marks, hit->source, hit->start);
    if (place.page > 0) buffer_printf(out, ", page %u", place.page);
    if (place.line > 0) buffer_printf(out, ", line %u", place.line);
    for (int i = 0; i < place.n_headings; i++)
        buffer_printf(out, "%s%.*s", i > 0 ? " > " : ", ", (int)place.headings[i].size,
                      place.headings[i].text);
    if (out->size > 0) {
        memcpy(out->data, " (", 2);
        buffer_append(out, ")", 1);
    }
    buffer_append(out, "", 0);
}

/* "  by passages, pictures", where it was in lists that have names. */
static void describe_lists(const struct hit *hit, struct buffer *out) {
    const char *names[HIT_LISTS];
    int n = hit_list_names(hit, names);
    for (int i = 0; i < n; i++) buffer_printf(out, "%s%s", i > 0 ? ", " : "  by ", names[i]);
}

static void print_hit(int rank, const struct hit *hit) {
    struct buffer place = {0};
    char relevance[32] = "";
    describe_place(hit, &place);
    describe_lists(hit, &place);
    struct buffer head = {0};
    if (hit->relevance >= 0) snprintf(relevance, sizeof relevance, "%.4f  ", hit->relevance);
    buffer_printf(&head, "%d  %s%.4f  %s", rank, relevance, hit->similarity, hit->path);
    color_line(stdout, COLOR_BOLD, head.data, "  [%" PRIu64 ", %" PRIu64 ")%s%s%s", hit->start,
               hit->end, place.data, hit->title[0] ? "  " : "", hit->title);
    buffer_free(&head);
    buffer_free(&place);
    /* Indented, so that a line of a document cannot be taken for one of ours. */
    const char *line = hit->text.text, *text_end = line + hit->text.size;
    while (line < text_end) {
        const char *newline = memchr(line, '\n', (size_t)(text_end - line)),
                   *end = newline ? newline : text_end;
        line_print(stdout, "    %.*s", (int)(end - line), line);
        line = end + 1;
    }
}

static void put_hit(int rank, const struct hit *hit) {
    struct document_place place = place_find(hit->marks, hit->source, hit->start);
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    put_key_int(&w, "rank", rank);
    if (hit->relevance >= 0) put_key_float(&w, "relevance", hit->relevance);
    put_key_float(&w, "similarity", hit->similarity);
    hit_put_lists(&w, hit);
    put_key_string(&w, "id", hit->document);
    put_key_string(&w, "path", hit->path);
    put_key_string(&w, "title", hit->title);
    put_key_int(&w, "start", (int64_t)hit->start);
    put_key_int(&w, "end", (int64_t)hit->end);
    if (place.page > 0) put_key_int(&w, "page", place.page);
    if (place.line > 0) put_key_int(&w, "line", place.line);
    put_key_array(&w, "heading");
    for (int i = 0; i < place.n_headings; i++)
        put_string_n(&w, place.headings[i].text, place.headings[i].size);
    put_array_end(&w);
    put_key_string_n(&w, "text", hit->text.text, hit->text.size);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&text);
}

/* The documents that the configuration allows, and of these the ones that the command line does. */
static enum status parse_filters(const struct index_arguments *arguments, struct filter **out,
                                 struct error *e) {
    struct filter *outer = NULL, *own = NULL;
    enum status status =
        filter_parse(&outer, arguments->config.retrieval.filter, "retrieval.filter", e);
    if (status == STATUS_OK) status = filter_parse(&own, arguments->filter, "--filter", e);
    if (status == STATUS_OK) *out = filter_join(outer, own);
    filter_release(outer);
    filter_release(own);
    return status;
}

static enum status read_picture(const struct index_arguments *arguments,
                                const struct embedder *embedder, struct embedder_picture *out,
                                struct error *e) {
    struct buffer file = {0};
    if (file_read(arguments->rest[1], arguments->build.max_file_bytes, &file, e)) return e->status;
    enum status status =
        embedder_read_picture(embedder, (struct text_span){file.data, file.size}, out, e);
    buffer_free(&file);
    return status;
}

/* The query of the command line. *picture gets the one that it is by. */
static enum status make_query(const struct index_arguments *arguments,
                              const struct embedder *embedder, struct retriever_query *query,
                              struct embedder_picture *picture, struct error *e) {
    *query = (struct retriever_query){.text = {arguments->rest[1], strlen(arguments->rest[1])},
                                      .k = arguments->k,
                                      .min_similarity = -1};
    if (arguments->hybrid) query->choice.way = RETRIEVE_BOTH;
    query->choice.no_pictures =
        !arguments->config.retrieval.choice.pictures && !arguments->by_picture;
    if (arguments->by_picture) {
        if (arguments->hybrid)
            return error_set(e, STATUS_INVALID, "--hybrid ranks by words, and a picture has none");
        if (read_picture(arguments, embedder, picture, e)) return e->status;
        query->picture = picture;
    }
    return parse_filters(arguments, &query->filter, e);
}

static enum status print_hits(const struct index_arguments *arguments, struct retriever *retriever,
                              const struct retriever_query *query, struct error *e) {
    struct hits hits;
    if (retriever_search(retriever, query, 1, &hits, e)) return e->status;
    for (int i = 0; i < hits.n; i++) (arguments->json ? put_hit : print_hit)(i + 1, &hits.list[i]);
    hits_free(&hits);
    return STATUS_OK;
}

static enum status search(const struct index_arguments *arguments, struct collection *collection,
                          struct retriever_embedders embedders, struct error *e) {
    const struct retrieval_settings *settings = &arguments->config.retrieval;
    struct retriever *retriever = NULL;
    struct embedder reranker = {0};
    struct retriever_query query;
    struct embedder_picture picture = {0};
    const struct embedder *seer = embedders.pictures ? embedders.pictures : embedders.texts;
    enum status status = make_query(arguments, seer, &query, &picture, e);
    if (status == STATUS_OK)
        status = retriever_open(&retriever, collection, embedders, arguments->k, e);
    if (status == STATUS_OK && settings->reranker[0] && settings->choice.rerank && !query.picture) {
        query.choice.rerank = settings->rerank_candidates;
        status = reranker_model_open(&reranker, settings->reranker, &arguments->config, e);
        retriever_set_reranker(retriever, &reranker);
    }
    if (status == STATUS_OK) status = print_hits(arguments, retriever, &query, e);
    retriever_close(retriever);
    reranker_model_close(&reranker);
    filter_release(query.filter);
    free(picture.pixels);
    return status;
}

int run_search(struct index_arguments *arguments, struct error *e) {
    struct collection *collection = NULL;
    struct snapshot *snapshot = NULL;
    struct embedder embedder = {0}, pictures = {0};
    struct tokenizer *tokenizer = NULL;
    enum status status = index_expect(arguments, 2, "search DIR \"text\"", e);
    if (status == STATUS_OK) status = open_first(arguments, &collection, &snapshot, e);
    if (status == STATUS_OK)
        status = makers_open(&arguments->config, snapshot->info, &embedder, &tokenizer, e);
    if (status == STATUS_OK)
        status = documents_open_pictures(&pictures, &arguments->config, snapshot->info, e);
    struct retriever_embedders embedders = {&embedder, embedder_if_open(&pictures)};
    if (status == STATUS_OK) status = search(arguments, collection, embedders, e);
    tokenizer_close(tokenizer);
    embedder_model_close(&embedder);
    embedder_model_close(&pictures);
    close_first(collection, snapshot);
    return status ? EXIT_FAILED : EXIT_FINE;
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
    printf("chunk length  %d\nvectors       %d numbers, inner product\n", info->chunk_length,
           info->dim);
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
    }
    put_key_int(&w, "chunk_length", info->chunk_length);
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
    if (open_first(arguments, &collection, &snapshot, e)) return EXIT_FAILED;
    bool is_folder = collection_count_changes(collection, &changes, e) == STATUS_OK;
    if (arguments->json)
        put_stats(snapshot, snapshot->info, is_folder ? &changes : NULL,
                  arguments->recall ? &recall : NULL);
    else
        print_stats(snapshot, snapshot->info, is_folder ? &changes : NULL);
    if (arguments->recall && !arguments->json) print_recall(&recall);
    close_first(collection, snapshot);
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
        line_print(stdout, "%s", document->id);
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
    error_set(e, STATUS_NOT_FOUND, "%s: no document has \"%s\" in its name", arguments->rest[0],
              listing.part);
    return EXIT_FAILED;
}

int run_show(struct index_arguments *arguments, struct error *e) {
    struct collection *collection;
    struct collection_found found;
    if (index_expect(arguments, 2, "show DIR ID", e) ||
        documents_collection_open(&collection, &arguments->config, arguments->rest[0], e))
        return EXIT_FAILED;
    enum status status = collection_find(collection, NULL, arguments->rest[1], &found, e);
    struct text_span text = found.document.text;
    if (status == STATUS_OK && arguments->json)
        put_document(&found.document, true);
    else if (status == STATUS_OK && fwrite(text.text, 1, text.size, stdout) != text.size)
        status = error_errno(e, "standard output");
    collection_found_release(&found);
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
    if (open_first(arguments, &collection, &snapshot, e)) return EXIT_FAILED;
    struct collection_walk walk = {.take = verify_document, .context = collection};
    enum status status = collection_walk(collection, &walk, e);
    if (status == STATUS_OK) status = verify_makers(arguments, snapshot->info, e);
    if (status == STATUS_OK) print_verified(arguments, snapshot);
    close_first(collection, snapshot);
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
        open_first(arguments, &collection, &snapshot, e))
        return EXIT_FAILED;
    enum status status = verify_log(arguments, collection, e);
    if (status == STATUS_OK) status = verify_makers(arguments, snapshot->info, e);
    if (status == STATUS_OK) print_verified(arguments, snapshot);
    close_first(collection, snapshot);
    return status ? EXIT_FAILED : EXIT_FINE;
}
