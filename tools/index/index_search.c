/* tools/index/index_search.c: retro-index search: a text or a picture to hits, printed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "retrieval/words/word_demands.h"
#include "server/host/documents/documents.h"
#include "server/host/documents/embedder_model.h"
#include "server/host/documents/reranker_model.h"
#include "tools/index/index.h"
#include "tools/index/index_color.h"

/* " (page 3, line 7, Install > Linux)", as far as it is known. */
static void describe_place(const struct hit *hit, struct buffer *out) {
    struct document_place place = place_find_passage(hit->marks, hit->source, hit->start, hit->end);
    if (place.page > 0) buffer_printf(out, ", page %u", place.page);
    if (place.line > 0) buffer_printf(out, ", line %u", place.line);
    for (int i = 0; i < place.n_headings; i++)
        buffer_printf(out, "%s%.*s", i > 0 ? " > " : ", ", (int)place.headings[i].size,
                      place.headings[i].text);
    if (hit->confidence > 0) buffer_printf(out, ", OCR %d %% sure", hit->confidence);
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

/* "worth 1.93 = vectors 0.81 + 2.25 x words 0.50, 0 exact, 0 told"; with sparse weights
 * "worth 2.13 = vectors 0.81 + 2.25 x words 0.50 + 0.30 x sparse 0.66, 0 exact, 0 told" */
static void print_worth(const struct hit *hit) {
    const struct hit_worth *worth = &hit->worth;
    char sparse[64] = "";
    if (worth->sparse_weight > 0)
        snprintf(sparse, sizeof sparse, " + %.3f x sparse %.3f", worth->sparse_weight,
                 worth->sparse);
    if (worth->total == 0)
        line_print(stdout, "    by one list");
    else
        line_print(stdout, "    worth %.3f = vectors %.3f + %.3f x words %.3f%s, %d exact, %d told",
                   worth->total, worth->vectors, worth->weight, worth->words, sparse, worth->exact,
                   worth->told);
}

static void print_hit(int rank, const struct hit *hit, bool explain) {
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
    if (explain) print_worth(hit);
    /* Indented, so that a line of a document cannot be taken for one of ours. */
    const char *line = hit->text.text, *text_end = line + hit->text.size;
    while (line < text_end) {
        const char *newline = memchr(line, '\n', (size_t)(text_end - line)),
                   *end = newline ? newline : text_end;
        line_print(stdout, "    %.*s", (int)(end - line), line);
        line = end + 1;
    }
}

static void put_hit(int rank, const struct hit *hit, bool explain) {
    struct document_place place = place_find_passage(hit->marks, hit->source, hit->start, hit->end);
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    put_key_int(&w, "rank", rank);
    if (hit->relevance >= 0) put_key_float(&w, "relevance", hit->relevance);
    put_key_float(&w, "similarity", hit->similarity);
    hit_put_lists(&w, hit);
    if (explain) hit_put_worth(&w, hit);
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
    if (hit->confidence > 0) put_key_int(&w, "confidence", hit->confidence);
    hit_put_boxes(&w, hit);
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
    if (arguments->config.retrieval.choice.hybrid) query->choice.way = RETRIEVE_USUAL;
    query->choice.operators = arguments->operators;
    query->choice.min_confidence = arguments->config.retrieval.choice.min_confidence;
    query->choice.no_pictures =
        !arguments->config.retrieval.choice.pictures && !arguments->by_picture;
    if (arguments->by_picture) {
        if (read_picture(arguments, embedder, picture, e)) return e->status;
        query->picture = picture;
    }
    return parse_filters(arguments, &query->filter, e);
}

/* How the operators of the query are read. */
static void print_operators(const struct retriever_query *query) {
    struct word_demands *demands;
    struct buffer lines = {0};
    struct error e;
    if (word_demands_parse(&demands, query->text, &e)) return;
    word_demands_describe(demands, &lines);
    for (char *line = lines.size > 0 ? strtok(lines.data, "\n") : NULL; line;
         line = strtok(NULL, "\n"))
        line_print(stdout, "%s", line);
    buffer_free(&lines);
    word_demands_free(demands);
}

static enum status print_hits(const struct index_arguments *arguments, struct retriever *retriever,
                              const struct retriever_query *query, struct error *e) {
    struct hits hits;
    if (retriever_search(retriever, query, 1, &hits, e)) return e->status;
    if (arguments->explain && arguments->operators && !arguments->json) print_operators(query);
    for (int i = 0; i < hits.n; i++)
        (arguments->json ? put_hit : print_hit)(i + 1, &hits.list[i], arguments->explain);
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
    if (status == STATUS_OK && arguments->rest[1][0] == '\0')
        status = error_set(e, STATUS_INVALID, "the text that is searched for is empty");
    if (status == STATUS_OK) status = index_open_first(arguments, &collection, &snapshot, e);
    if (status == STATUS_OK)
        status = makers_open(&arguments->config, snapshot->info, &embedder, &tokenizer, e);
    if (status == STATUS_OK)
        status = documents_open_pictures(&pictures, &arguments->config, snapshot->info, e);
    struct retriever_embedders embedders = {&embedder, embedder_if_open(&pictures)};
    if (status == STATUS_OK) status = search(arguments, collection, embedders, e);
    tokenizer_close(tokenizer);
    embedder_model_close(&embedder);
    embedder_model_close(&pictures);
    index_close_first(collection, snapshot);
    return status ? EXIT_FAILED : EXIT_FINE;
}
