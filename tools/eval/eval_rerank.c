/* tools/eval/eval_rerank.c: retro-eval rerank. Prints what a reranker thinks of each text beside a
 * query, so that it can be checked by eye or against another library. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/json/json_table.h"
#include "config/json/json_writer.h"
#include "server/host/documents/reranker_model.h"
#include "tools/eval/eval.h"

/* A line of the file. */
struct rerank_line {
    char *query, *text;
};

static const struct json_field line_fields[] = {
    {"query", JSON_TEXT, JSON_AT(struct rerank_line, query), .required = true},
    {"text", JSON_TEXT, JSON_AT(struct rerank_line, text), .required = true},
};
static const struct json_table line_table = JSON_TABLE(line_fields);

static void print_score(float relevance, int n_tokens) {
    struct buffer out = {0};
    struct json_writer w;
    put_begin_spaced(&w, &out);
    put_object(&w);
    put_key(&w, "relevance");
    put_rounded(&w, (double)relevance, 9);
    put_key(&w, "logit");
    put_rounded(&w, log((double)relevance / (1 - (double)relevance)), 6);
    put_key_int(&w, "tokens", n_tokens);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&out);
}

static enum status score_line(void *context, const struct json *record, struct error *e) {
    const struct embedder *reranker = context;
    struct rerank_line line = {0};
    struct json_reader reader = {.e = e};
    float relevance = 0;
    int n_tokens = 0;
    enum status status = json_table_read(&reader, &line_table, record, &line);
    if (status == STATUS_OK) {
        struct text_span text = {line.text, strlen(line.text)};
        struct embed_request request = {.query = {line.query, strlen(line.query)},
                                        .texts = &text,
                                        .n = 1,
                                        .vectors = &relevance,
                                        .n_tokens = &n_tokens};
        status = embedder_embed(reranker, &request, e);
    }
    if (status == STATUS_OK) print_score(relevance, n_tokens);
    json_table_free(&line_table, &line);
    return status;
}

int eval_rerank(const struct usage *self, int argc, char **argv) {
    struct error e = {0};
    struct config config;
    struct embedder reranker = {0};
    const struct eval_option options[] = {{0}};
    config_init(&config);
    int first = eval_parse(self, argc, argv, options, &config, &e);
    if (first >= 0 && argc - first != 2)
        error_set(&e, STATUS_INVALID, "expected FOLDER and FILE.jsonl");
    bool failed =
        first != EVAL_HELPED && (first < 0 || argc - first != 2 ||
                                 reranker_model_open(&reranker, argv[first], &config, &e) ||
                                 json_parse_lines(argv[first + 1], score_line, &reranker, &e));
    if (failed) line_print(stderr, "retro-eval rerank: %s", e.text);
    reranker_model_close(&reranker);
    config_free(&config);
    return failed;
}
