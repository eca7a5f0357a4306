/* tools/index/index_look.c: the commands of retro-index that only look: search, stats, list, show, verify. */
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

enum status index_expect(const struct index_arguments *a, int n, const char *what, struct error *e) {
    return a->n_rest == n ? STATUS_OK : error_set(e, STATUS_INVALID, "expected %s; --help says more", what);
}

enum status makers_open(const struct config *c, const struct collection_info *info, struct embedder *embedder,
                        struct tokenizer **tokenizer, struct error *e) {
    if (embedder_model_open(embedder, documents_embedder(c, info->embedder), c, e) ||
        tokenizer_open(tokenizer, c->model.path[0] ? c->model.path : info->tokenizer, e))
        return e->status;
    if (collection_match_embedder(info, embedder, e)) return e->status;
    return collection_match_tokens(info, tokenizer_hash(*tokenizer), info->chunk_length, e);
}

enum status index_expect_folder(const struct index_arguments *a, int i, const char *command, struct error *e) {
    if (!collection_name_is_remote(a->rest[i])) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s works on a collection in a folder, and %.200s lies in Milvus; retro-index copy brings it into "
                     "a folder",
                     command, a->rest[i]);
}

/* Opens the collection that the command line names first, and its newest snapshot. */
static enum status open_first(const struct index_arguments *a, struct collection **l, struct snapshot **snapshot,
                              struct error *e) {
    enum status status = documents_collection_open(l, &a->config, a->rest[0], e);
    *snapshot = status ? NULL : collection_hold(*l);
    return status;
}

static void close_first(struct collection *l, struct snapshot *snapshot) {
    snapshot_release(snapshot);
    collection_close(l);
}

/* " (page 3, line 7, Install > Linux)", as far as it is known. */
static void describe_place(const struct hit *hit, struct buffer *out) {
    struct document_place place = place_find(hit->marks, hit->source, hit->start);
    if (place.page > 0) buffer_printf(out, ", page %u", place.page);
    if (place.line > 0) buffer_printf(out, ", line %u", place.line);
    for (int i = 0; i < place.n_headings; i++)
        buffer_printf(out, "%s%.*s", i > 0 ? " > " : ", ", (int)place.headings[i].size, place.headings[i].text);
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
    color_line(stdout, COLOR_BOLD, head.data, "  [%" PRIu64 ", %" PRIu64 ")%s%s%s", hit->start, hit->end, place.data,
               hit->title[0] ? "  " : "", hit->title);
    buffer_free(&head);
    buffer_free(&place);
    /* Indented, so that a line of a document cannot be taken for one of ours. */
    const char *line = hit->text.text, *text_end = line + hit->text.size;
    while (line < text_end) {
        const char *newline = memchr(line, '\n', (size_t)(text_end - line)), *end = newline ? newline : text_end;
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
    for (int i = 0; i < place.n_headings; i++) put_string_n(&w, place.headings[i].text, place.headings[i].size);
    put_array_end(&w);
    put_key_string_n(&w, "text", hit->text.text, hit->text.size);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&text);
}

/* The documents that the configuration allows, and of these the ones that the command line does. */
static enum status parse_filters(const struct index_arguments *a, struct filter **out, struct error *e) {
    struct filter *outer = NULL, *own = NULL;
    enum status status = filter_parse(&outer, a->config.retrieval.filter, "retrieval.filter", e);
    if (status == STATUS_OK) status = filter_parse(&own, a->filter, "--filter", e);
    if (status == STATUS_OK) *out = filter_join(outer, own);
    filter_release(outer);
    filter_release(own);
    return status;
}

static enum status read_picture(const struct index_arguments *a, const struct embedder *embedder,
                                struct embedder_picture *out, struct error *e) {
    struct buffer file = {0};
    if (file_read(a->rest[1], a->build.max_file_bytes, &file, e)) return e->status;
    enum status status = embedder_read_picture(embedder, (struct text_span){file.data, file.size}, out, e);
    buffer_free(&file);
    return status;
}

/* The query of the command line. *picture gets the one that it is by. */
static enum status make_query(const struct index_arguments *a, const struct embedder *embedder,
                              struct retriever_query *query, struct embedder_picture *picture, struct error *e) {
    *query = (struct retriever_query){.text = {a->rest[1], strlen(a->rest[1])}, .k = a->k, .min_similarity = -1};
    if (a->hybrid) query->choice.way = RETRIEVE_BOTH;
    query->choice.no_pictures = !a->config.retrieval.choice.pictures && !a->by_picture;
    if (a->by_picture) {
        if (a->hybrid) return error_set(e, STATUS_INVALID, "--hybrid ranks by words, and a picture has none");
        if (read_picture(a, embedder, picture, e)) return e->status;
        query->picture = picture;
    }
    return parse_filters(a, &query->filter, e);
}

static enum status print_hits(const struct index_arguments *a, struct retriever *retriever,
                              const struct retriever_query *query, struct error *e) {
    struct hits hits;
    if (retriever_search(retriever, query, 1, &hits, e)) return e->status;
    for (int i = 0; i < hits.n; i++) (a->json ? put_hit : print_hit)(i + 1, &hits.list[i]);
    hits_free(&hits);
    return STATUS_OK;
}

static enum status search(const struct index_arguments *a, struct collection *l, struct retriever_embedders embedders,
                          struct error *e) {
    const struct retrieval_settings *settings = &a->config.retrieval;
    struct retriever *retriever = NULL;
    struct embedder reranker = {0};
    struct retriever_query query;
    struct embedder_picture picture = {0};
    const struct embedder *seer = embedders.pictures ? embedders.pictures : embedders.texts;
    enum status status = make_query(a, seer, &query, &picture, e);
    if (status == STATUS_OK) status = retriever_open(&retriever, l, embedders, a->k, e);
    if (status == STATUS_OK && settings->reranker[0] && settings->choice.rerank && !query.picture) {
        query.choice.rerank = settings->rerank_candidates;
        status = reranker_model_open(&reranker, settings->reranker, &a->config, e);
        retriever_set_reranker(retriever, &reranker);
    }
    if (status == STATUS_OK) status = print_hits(a, retriever, &query, e);
    retriever_close(retriever);
    reranker_model_close(&reranker);
    filter_release(query.filter);
    free(picture.pixels);
    return status;
}

int run_search(struct index_arguments *a, struct error *e) {
    struct collection *l = NULL;
    struct snapshot *snapshot = NULL;
    struct embedder embedder = {0}, pictures = {0};
    struct tokenizer *tokenizer = NULL;
    enum status status = index_expect(a, 2, "search DIR \"text\"", e);
    if (status == STATUS_OK) status = open_first(a, &l, &snapshot, e);
    if (status == STATUS_OK) status = makers_open(&a->config, snapshot->info, &embedder, &tokenizer, e);
    if (status == STATUS_OK) status = documents_open_pictures(&pictures, &a->config, snapshot->info, e);
    struct retriever_embedders embedders = {&embedder, embedder_if_open(&pictures)};
    if (status == STATUS_OK) status = search(a, l, embedders, e);
    tokenizer_close(tokenizer);
    embedder_model_close(&embedder);
    embedder_model_close(&pictures);
    close_first(l, snapshot);
    return status ? EXIT_FAILED : EXIT_FINE;
}

/* Stats. */

static void print_pictures(const struct snapshot *snapshot, const struct picture_space *p) {
    if (p->embedder == NULL) return;
    printf("pictures      %" PRId64 ", vectors of %d numbers\n", store_count_pictures(snapshot), p->dim);
    line_print(stdout, "their index   %s", p->n > 0 ? p->index_factory : "none before compaction");
    line_print(stdout, "their embed.  %s (hash %016" PRIx64 ")", p->embedder, p->embedder_hash);
}

static void put_pictures(struct json_writer *w, const struct snapshot *snapshot, const struct picture_space *p) {
    if (p->embedder == NULL) return;
    put_key_object(w, "pictures");
    put_key_int(w, "count", store_count_pictures(snapshot));
    put_key_int(w, "dim", p->dim);
    put_key_string(w, "index", p->index_factory);
    put_key_string(w, "embedder", p->embedder);
    put_object_end(w);
}

static void print_stats(const struct snapshot *snapshot, const struct collection_info *info,
                        const struct collection_changes *changes) {
    if (changes) printf("generation    %d\n", info->generation);
    printf("documents     %" PRId64 "\nchunks        %" PRId64 "\n", snapshot->n_documents, snapshot->n_chunks);
    if (changes)
        printf("changes       %" PRId64 ": %" PRId64 " documents in the log, %" PRId64
               " of the generation gone, %" PRIu64 " bytes\n",
               snapshot->n_changes, changes->n_documents, changes->n_deleted, changes->log_bytes);
    printf("chunk length  %d\nvectors       %d numbers, inner product\n", info->chunk_length, info->dim);
    line_print(stdout, "index         %s", info->index_factory);
    line_print(stdout, "embedder      %s (hash %016" PRIx64 ")", info->embedder, info->embedder_hash);
    if (info->query_prompt[0]) line_print(stdout, "query prompt  %s", info->query_prompt);
    if (info->document_prompt[0]) line_print(stdout, "doc. prompt   %s", info->document_prompt);
    line_print(stdout, "tokenizer     %s (hash %016" PRIx64 ")", info->tokenizer, info->tokenizer_hash);
    print_pictures(snapshot, &info->pictures);
}

static void print_recall(const struct recall_report *r) {
    printf("recall@%-6d %.4f, the nearest %.4f; %d %s\n", r->k, r->figures.recall, r->figures.recall_first, r->n,
           r->own ? "chunks of the collection asked" : "queries");
    printf("search        %.3f ms, 99 of 100 within %.3f ms\n", r->figures.median, r->figures.p99);
}

static void put_recall(struct json_writer *w, const struct recall_report *r) {
    put_key_object(w, "recall");
    put_key_int(w, "k", r->k);
    put_key_int(w, "queries", r->n);
    put_key_bool(w, "own_chunks", r->own);
    put_key_float(w, "recall", (float)r->figures.recall);
    put_key_float(w, "recall_first", (float)r->figures.recall_first);
    put_key_float(w, "median_ms", (float)r->figures.median);
    put_key_float(w, "p99_ms", (float)r->figures.p99);
    put_object_end(w);
}

/* recall NULL: it was not asked for. */
static void put_stats(const struct snapshot *snapshot, const struct collection_info *info,
                      const struct collection_changes *changes, const struct recall_report *recall) {
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

int run_stats(struct index_arguments *a, struct error *e) {
    struct collection *l;
    struct snapshot *snapshot;
    struct recall_report recall;
    struct collection_changes changes;
    if (index_expect(a, 1, "stats DIR", e)) return EXIT_FAILED;
    if (a->neighbors.queries && !a->recall) {
        error_set(e, STATUS_INVALID, "--queries are for --recall");
        return EXIT_FAILED;
    }
    if (a->recall && index_expect_folder(a, 0, "stats --recall", e)) return EXIT_FAILED;
    if (a->recall && index_measure_recall(a, &recall, e))
        return e->status == STATUS_CANCELLED ? EXIT_INTERRUPTED : EXIT_FAILED;
    if (open_first(a, &l, &snapshot, e)) return EXIT_FAILED;
    bool is_folder = collection_count_changes(l, &changes, e) == STATUS_OK;
    if (a->json)
        put_stats(snapshot, snapshot->info, is_folder ? &changes : NULL, a->recall ? &recall : NULL);
    else
        print_stats(snapshot, snapshot->info, is_folder ? &changes : NULL);
    if (a->recall && !a->json) print_recall(&recall);
    close_first(l, snapshot);
    return EXIT_FINE;
}

/* List and show. */

static void put_document(const struct stored_document *d, bool with_text) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    put_key_string(&w, "id", d->id);
    put_key_string(&w, "path", d->path);
    if (d->source[0]) put_key_string(&w, "source", d->source);
    put_key_string(&w, "title", d->title);
    if (d->metadata[0]) {
        put_key(&w, "metadata");
        put_raw(&w, (struct text_span){d->metadata, strlen(d->metadata)});
    }
    put_key_int(&w, "chunks", d->n_chunks);
    put_key_int(&w, "bytes", (int64_t)d->text.size);
    if (with_text) put_key_string_n(&w, "text", d->text.text, d->text.size);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&text);
}

struct listing {
    const struct index_arguments *arguments;
    const char *part;
    int64_t n_found;
};

static enum status list_document(void *context, const struct stored_document *d, struct error *e) {
    struct listing *listing = context;
    (void)e;
    if (strstr(d->path, listing->part) == NULL) return STATUS_OK;
    listing->n_found++;
    if (listing->arguments->json)
        put_document(d, false);
    else if (listing->arguments->list_long)
        line_print(stdout, "%s  %6" PRId64 "  %s%s%s", d->id, d->n_chunks, d->path, d->title[0] ? "  " : "", d->title);
    else
        line_print(stdout, "%s", d->id);
    return STATUS_OK;
}

int run_list(struct index_arguments *a, struct error *e) {
    struct collection *l;
    struct listing listing = {.arguments = a, .part = a->n_rest == 2 ? a->rest[1] : ""};
    if (a->n_rest != 2 && index_expect(a, 1, "list DIR [TEXT]", e)) return EXIT_FAILED;
    if (documents_collection_open(&l, &a->config, a->rest[0], e)) return EXIT_FAILED;
    struct collection_walk walk = {.take = list_document, .context = &listing};
    enum status status = collection_walk(l, &walk, e);
    collection_close(l);
    if (status) return EXIT_FAILED;
    if (listing.n_found > 0) return EXIT_FINE;
    error_set(e, STATUS_NOT_FOUND, "%s: no document has \"%s\" in its name", a->rest[0], listing.part);
    return EXIT_FAILED;
}

int run_show(struct index_arguments *a, struct error *e) {
    struct collection *l;
    struct collection_found found;
    if (index_expect(a, 2, "show DIR ID", e) || documents_collection_open(&l, &a->config, a->rest[0], e))
        return EXIT_FAILED;
    enum status status = collection_find(l, NULL, a->rest[1], &found, e);
    struct text_span text = found.document.text;
    if (status == STATUS_OK && a->json)
        put_document(&found.document, true);
    else if (status == STATUS_OK && fwrite(text.text, 1, text.size, stdout) != text.size)
        status = error_errno(e, "standard output");
    collection_found_release(&found);
    collection_close(l);
    return status ? EXIT_FAILED : EXIT_FINE;
}

/* Verify. */

/* Says whether the embedder and tokenizer that the collection names are there and still the same. */
static enum status verify_makers(const struct index_arguments *a, const struct collection_info *info, struct error *e) {
    struct embedder embedder = {0}, pictures = {0};
    struct tokenizer *tokenizer = NULL;
    enum status status = makers_open(&a->config, info, &embedder, &tokenizer, e);
    if (status == STATUS_OK) status = documents_open_pictures(&pictures, &a->config, info, e);
    tokenizer_close(tokenizer);
    embedder_model_close(&embedder);
    embedder_model_close(&pictures);
    return status;
}

static void print_fall_back(FILE *out, const char *dir, const struct store_repaired *r) {
    line_print(out, "%s: the generation in use was damaged: %s", dir, r->why.text);
    line_print(out, "%s: generation %d is in use now; documents that came or went later are lost", dir, r->generation);
    if (r->damaged_generation > 0)
        line_print(out, "%s: generation %d is put aside: its folder has \".damaged\" behind its name", dir,
                   r->damaged_generation);
}

static enum status repair(const struct index_arguments *a, struct error *e) {
    struct store_repaired r;
    FILE *out = a->json ? stderr : stdout;
    enum status status = store_repair(a->rest[0], &r, e);
    if (status == STATUS_OK && r.fell_back) print_fall_back(out, a->rest[0], &r);
    if (status == STATUS_OK && r.log_cut)
        line_print(out,
                   "%s: the log ends behind change %" PRIu64 " now; %" PRIu64
                   " bytes are put aside in changes.cut, and %" PRIu64 " changes that had been acknowledged are lost",
                   a->rest[0], r.n_kept, r.n_cut, r.n_lost);
    return status;
}

/* Opening warns of a damaged log and goes on; here it is a failure. */
static enum status verify_log(const struct index_arguments *a, struct collection *l, struct error *e) {
    struct collection_changes changes;
    if (collection_count_changes(l, &changes, e)) return e->status;
    if (!changes.damaged) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT, "%s: the log of changes is damaged; --repair cuts it where that begins",
                     a->rest[0]);
}

static void print_verified(const struct index_arguments *a, const struct snapshot *snapshot) {
    struct buffer text = {0};
    struct json_writer w;
    if (!a->json) {
        line_print(stdout,
                   "%s: generation %d is whole, with %" PRId64 " changes: %" PRId64 " documents, %" PRId64
                   " chunks; embedder and tokenizer are the ones it was built with",
                   a->rest[0], snapshot->generation, snapshot->n_changes, snapshot->n_documents, snapshot->n_chunks);
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
static enum status verify_document(void *context, const struct stored_document *d, struct error *e) {
    struct collection_found found;
    if (index_interrupted) return error_set(e, STATUS_CANCELLED, "interrupted");
    enum status status = collection_find(context, NULL, d->id, &found, e);
    collection_found_release(&found);
    if (status == STATUS_NOT_FOUND)
        return error_set(e, STATUS_CORRUPT,
                         "document %.200s is not there as a whole: a change of it was broken off, or is under way; to "
                         "add or delete it again mends it",
                         d->id);
    return status;
}

static int verify_remote(struct index_arguments *a, struct error *e) {
    struct collection *l;
    struct snapshot *snapshot;
    if (a->repair && index_expect_folder(a, 0, "verify --repair", e)) return EXIT_FAILED;
    if (open_first(a, &l, &snapshot, e)) return EXIT_FAILED;
    struct collection_walk walk = {.take = verify_document, .context = l};
    enum status status = collection_walk(l, &walk, e);
    if (status == STATUS_OK) status = verify_makers(a, snapshot->info, e);
    if (status == STATUS_OK) print_verified(a, snapshot);
    close_first(l, snapshot);
    return status ? EXIT_FAILED : EXIT_FINE;
}

int run_verify(struct index_arguments *a, struct error *e) {
    struct collection *l;
    struct snapshot *snapshot;
    if (a->n_rest == 1 && collection_name_is_remote(a->rest[0])) return verify_remote(a, e);
    if (index_expect(a, 1, "verify DIR", e) || (a->repair && repair(a, e)) || disk_generation_verify(a->rest[0], e) ||
        open_first(a, &l, &snapshot, e))
        return EXIT_FAILED;
    enum status status = verify_log(a, l, e);
    if (status == STATUS_OK) status = verify_makers(a, snapshot->info, e);
    if (status == STATUS_OK) print_verified(a, snapshot);
    close_first(l, snapshot);
    return status ? EXIT_FAILED : EXIT_FINE;
}
