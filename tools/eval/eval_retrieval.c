/* tools/eval/eval_retrieval.c: retro-eval retrieval. Questions with known documents are searched
 * for by vectors, by words and by both, and once more with a reranker where there is one; a
 * document ranks where its best chunk does. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json/json_table.h"
#include "config/json/json_writer.h"
#include "tools/eval/eval.h"
#include "tools/eval/search_ways.h"

enum { RANKS = 10 }; /* documents that are looked at of each answer */

/* A line of the file. */
struct known_question {
    char *text, *kind;
    struct json_list documents, excluded; /* paths, char * each */
};

static const struct json_field path_item = {.name = "path", .type = JSON_TEXT};
static const struct json_field question_fields[] = {
    {"question", JSON_TEXT, JSON_AT(struct known_question, text), .required = true},
    {"kind", JSON_TEXT, JSON_AT(struct known_question, kind), .text = ""},
    {"documents", JSON_LIST, JSON_AT(struct known_question, documents), .item = &path_item,
     .item_size = sizeof(char *), .min = 1, .max = 1000, .required = true},
    {"exclude", JSON_LIST, JSON_AT(struct known_question, excluded), .item = &path_item,
     .item_size = sizeof(char *)},
};
static const struct json_table question_table = JSON_TABLE(question_fields);

/* Sums over questions. */
struct retrieval_score {
    double first, five, ten, reciprocal, gain;
};

struct ways_score {
    char *kind;
    int n;
    struct retrieval_score ways[SEARCH_WAYS];
};

struct retrieval_eval {
    struct search_ways ways;
    struct ways_score *kinds; /* [n_kinds], the first of all questions */
    int n_kinds, capacity;
    bool json;
};

static struct ways_score *find_kind(struct retrieval_eval *eval, const char *kind) {
    for (int i = 0; i < eval->n_kinds; i++)
        if (strcmp(eval->kinds[i].kind, kind) == 0) return &eval->kinds[i];
    eval->kinds = xgrow(eval->kinds, eval->n_kinds, &eval->capacity, sizeof *eval->kinds);
    eval->kinds[eval->n_kinds] = (struct ways_score){.kind = xstrdup(kind)};
    eval->n_kinds++;
    return &eval->kinds[eval->n_kinds - 1];
}

static bool is_listed(const struct json_list *list, const char *path) {
    char *const *paths = list->items;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(paths[i], path) == 0) return true;
    return false;
}

/* Documents have one gain each, divided by the logarithm of their rank; 1 is the best order. */
static struct retrieval_score score_hits(const struct known_question *question,
                                         const struct hits *hits) {
    struct retrieval_score score = {0};
    double gain = 0, ideal = 0;
    int found = 0;
    for (int i = 0; i < hits->n; i++) {
        if (!is_listed(&question->documents, hits->list[i].path)) continue;
        if (found == 0) score = (struct retrieval_score){i < 1, i < 5, 1, 1.0 / (i + 1), 0};
        gain += 1 / log2(i + 2);
        found++;
    }
    for (size_t i = 0; i < question->documents.count && i < RANKS; i++)
        ideal += 1 / log2((double)i + 2);
    score.gain = gain / ideal;
    return score;
}

static void add_score(struct retrieval_score *to, struct retrieval_score score) {
    to->first += score.first;
    to->five += score.five;
    to->ten += score.ten;
    to->reciprocal += score.reciprocal;
    to->gain += score.gain;
}

static enum status ask(struct retrieval_eval *eval, const struct known_question *question, int way,
                       struct retrieval_score *score, struct error *e) {
    char *const *paths = question->excluded.items;
    struct text_span *excluded = xcalloc(question->excluded.count + 1, sizeof *excluded);
    struct hits hits;
    for (size_t i = 0; i < question->excluded.count; i++)
        excluded[i] = (struct text_span){paths[i], strlen(paths[i])};
    struct ways_query query = {.text = {question->text, strlen(question->text)},
                               .excluded = excluded,
                               .n_excluded = (int)question->excluded.count};
    enum status status = search_way_ask(&eval->ways, &query, way, &hits, e);
    if (status == STATUS_OK) {
        *score = score_hits(question, &hits);
        hits_free(&hits);
    }
    free(excluded);
    return status;
}

static enum status ask_question(struct retrieval_eval *eval, const struct known_question *question,
                                struct error *e) {
    struct ways_score sums = {0};
    for (int way = RETRIEVE_NEAREST; way < search_ways_count(&eval->ways); way++)
        if (ask(eval, question, way, &sums.ways[way], e)) return e->status;
    for (int all = 0; all < 2; all++) {
        struct ways_score *to = find_kind(eval, all ? question->kind : "all");
        to->n++;
        for (int way = RETRIEVE_NEAREST; way < search_ways_count(&eval->ways); way++)
            add_score(&to->ways[way], sums.ways[way]);
        if (strcmp(question->kind, "all") == 0) break;
    }
    return STATUS_OK;
}

static enum status take_question(void *context, const struct json *record, struct error *e) {
    struct known_question question = {0};
    struct json_reader reader = {.e = e};
    enum status status = json_table_read(&reader, &question_table, record, &question);
    if (status == STATUS_OK) status = ask_question(context, &question, e);
    json_table_free(&question_table, &question);
    return status;
}

/* Printing. */

static void print_row(const struct retrieval_eval *eval, const struct ways_score *kind, int way) {
    const struct retrieval_score *score = &kind->ways[way];
    struct buffer line = {0};
    struct json_writer w;
    double n = kind->n;
    if (!eval->json) {
        printf("%-12s %5d  %-8s %8.3f %8.3f %8.3f %8.3f %8.3f\n", kind->kind, kind->n,
               search_way_name(way), score->first / n, score->five / n, score->ten / n,
               score->reciprocal / n, score->gain / n);
        return;
    }
    put_begin(&w, &line);
    put_object(&w);
    put_key_string(&w, "kind", kind->kind);
    put_key_int(&w, "questions", kind->n);
    put_key_string(&w, "way", search_way_name(way));
    const char *const names[] = {"recall@1", "recall@5", "recall@10", "mrr@10", "ndcg@10"};
    const double values[] = {score->first, score->five, score->ten, score->reciprocal, score->gain};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        put_key(&w, names[i]);
        put_rounded(&w, values[i] / n, 4);
    }
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&line);
}

static void print_scores(const struct retrieval_eval *eval) {
    if (!eval->json)
        printf("%-12s %5s  %-8s %8s %8s %8s %8s %8s\n", "kind", "n", "way", "recall@1", "recall@5",
               "rec@10", "MRR@10", "nDCG@10");
    for (int i = 0; i < eval->n_kinds; i++)
        for (int way = RETRIEVE_NEAREST; way < search_ways_count(&eval->ways); way++)
            print_row(eval, &eval->kinds[i], way);
}

static enum status run_questions(struct retrieval_eval *eval, const struct config *config, int n,
                                 char **files, struct error *e) {
    enum status status = search_ways_open(&eval->ways, config, RANKS, e);
    for (int i = 0; i < n && status == STATUS_OK; i++)
        status = json_parse_lines(files[i], take_question, eval, e);
    if (status == STATUS_OK && eval->n_kinds == 0)
        status = error_set(e, STATUS_INVALID, "%s: no question", files[0]);
    if (status == STATUS_OK) print_scores(eval);
    search_ways_close(&eval->ways);
    return status;
}

int eval_retrieval(const struct usage *self, int argc, char **argv) {
    struct error e = {0};
    struct config config;
    struct retrieval_eval eval = {0};
    const struct eval_option options[] = {
        {"--json", NULL, "an object a line", EVAL_OPTION_FLAG, &eval.json}, {0}};
    config_init(&config);
    int first = eval_parse(self, argc, argv, options, &config, &e);
    if (first >= 0 && argc - first < 1)
        error_set(&e, STATUS_INVALID, "expected one FILE.jsonl or more");
    bool failed =
        first != EVAL_HELPED && (first < 0 || argc - first < 1 ||
                                 run_questions(&eval, &config, argc - first, argv + first, &e));
    if (failed) line_print(stderr, "retro-eval retrieval: %s", e.text);
    for (int i = 0; i < eval.n_kinds; i++) free(eval.kinds[i].kind);
    free(eval.kinds);
    config_free(&config);
    return failed;
}
