/* tools/eval/eval_beir.c: retro-eval beir. nDCG@10 and recall@100 as BEIR defines them (trec_eval's
 * ndcg_cut and recall), so that its published tables can be compared with. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "tools/eval/beir.h"
#include "tools/eval/eval.h"
#include "tools/eval/search_ways.h"

enum { GAINED = 10, RECALLED = 100 }; /* documents of an answer that each figure looks at */

/* Of one way, a number for each query. */
struct beir_figures {
    double *gain, *recall; /* [names.n] */
};

struct beir_eval {
    struct beir_set set;
    struct search_ways ways;
    struct beir_figures figures[SEARCH_WAYS];
    double *ones; /* [names.n], what the figures are divided by for a mean */
    bool json;
};

/* The line of corpus.jsonl that a document was read from, by its path's end "corpus.jsonl#LINE"; 0:
 * it is another document. */
static long long line_of(const char *path) {
    static const char file[] = "corpus.jsonl#";
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    if (strncmp(name, file, sizeof file - 1) != 0) return 0;
    char *end;
    long long line = strtoll(name + sizeof file - 1, &end, 10);
    return *end == '\0' && line > 0 ? line : 0;
}

static int grade_of(const struct beir_set *set, const struct beir_query *query, long long line) {
    for (int i = 0; i < query->n; i++)
        if (set->lines[query->grades[i].document] == line) return query->grades[i].grade;
    return 0;
}

static int compare_grades(const void *a, const void *b) {
    return ((const struct beir_grade *)b)->grade - ((const struct beir_grade *)a)->grade;
}

static double best_gain(struct beir_query *query) {
    double best = 0;
    qsort(query->grades, (size_t)query->n, sizeof *query->grades, compare_grades);
    for (int i = 0; i < query->n && i < GAINED; i++) best += query->grades[i].grade / log2(i + 2);
    return best;
}

static void score_answer(const struct beir_eval *eval, int number, const struct hits *hits,
                         const struct beir_figures *figures) {
    struct beir_query *query = &eval->set.queries[number];
    long long own = eval->set.lines[query->own];
    double gain = 0;
    int rank = 0, found = 0;
    for (int i = 0; i < hits->n && rank < RECALLED; i++) {
        long long line = line_of(hits->list[i].path);
        if (own > 0 && line == own) continue;
        int grade = line > 0 ? grade_of(&eval->set, query, line) : 0;
        if (rank < GAINED) gain += grade / log2(rank + 2);
        found += grade > 0;
        rank++;
    }
    figures->gain[number] = gain / best_gain(query);
    figures->recall[number] = (double)found / query->n;
}

static enum status ask_queries(struct beir_eval *eval, int way, struct error *e) {
    struct hits hits;
    for (int i = 0; i < eval->set.names.n; i++) {
        const char *text = eval->set.queries[i].text;
        struct ways_query query = {.text = {text, strlen(text)}};
        if (search_way_ask(&eval->ways, &query, way, &hits, e)) return e->status;
        score_answer(eval, i, &hits, &eval->figures[way]);
        hits_free(&hits);
    }
    return STATUS_OK;
}

/* A collection that has none of the documents would score 0 and look like a bad search. */
static enum status check_collection(const struct beir_eval *eval, struct error *e) {
    const char *text = eval->set.queries[0].text;
    struct ways_query query = {.text = {text, strlen(text)}};
    struct hits hits;
    bool is_there = false;
    if (search_way_ask(&eval->ways, &query, RETRIEVE_NEAREST, &hits, e)) return e->status;
    for (int i = 0; i < hits.n; i++) is_there |= line_of(hits.list[i].path) > 0;
    hits_free(&hits);
    if (is_there) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "the collection has no document of corpus.jsonl: build it of that file");
}

/* Printing. */

static void print_estimate(const struct beir_eval *eval, struct json_writer *w, const char *name,
                           const double *values) {
    struct estimate figure = estimate_ratio(values, eval->ones, eval->set.names.n, 1);
    if (!eval->json) {
        printf("  %.4f (%.4f .. %.4f)", figure.value, figure.low, figure.high);
        return;
    }
    const double ends[] = {figure.value, figure.low, figure.high};
    put_key(w, name);
    put_array(w);
    for (size_t i = 0; i < ARRAY_COUNT(ends); i++) put_rounded(w, ends[i], 4);
    put_array_end(w);
}

static void print_way(const struct beir_eval *eval, int way) {
    const struct beir_figures *figures = &eval->figures[way];
    struct buffer line = {0};
    struct json_writer w;
    put_begin(&w, &line);
    put_object(&w);
    put_key_string(&w, "way", search_way_name(way));
    put_key_int(&w, "queries", eval->set.names.n);
    if (!eval->json) printf("%-9s", search_way_name(way));
    print_estimate(eval, &w, "ndcg@10", figures->gain);
    print_estimate(eval, &w, "recall@100", figures->recall);
    put_object_end(&w);
    if (eval->json)
        put_line(&w, stdout);
    else
        printf("\n");
    buffer_free(&line);
}

static void print_head(const struct beir_eval *eval) {
    int missing = 0;
    for (int i = 0; i < eval->set.names.n; i++)
        for (int j = 0; j < eval->set.queries[i].n; j++)
            missing += eval->set.lines[eval->set.queries[i].grades[j].document] == 0;
    if (missing > 0)
        line_print(stderr,
                   "retro-eval beir: corpus.jsonl lacks the documents of %d grades; they count as "
                   "not found",
                   missing);
    if (!eval->json)
        printf("%-9s  %-26s  %s   (%d queries)\n", "way", "nDCG@10", "recall@100",
               eval->set.names.n);
}

static enum status run_beir(struct beir_eval *eval, const struct config *config, const char *folder,
                            const char *split, struct error *e) {
    enum status status = beir_read(&eval->set, folder, split, e);
    if (status == STATUS_OK) status = search_ways_open(&eval->ways, config, RECALLED + 1, e);
    if (status == STATUS_OK) status = check_collection(eval, e);
    if (status) return status;

    size_t n = (size_t)eval->set.names.n;
    eval->ones = xcalloc(n, sizeof *eval->ones);
    for (size_t i = 0; i < n; i++) eval->ones[i] = 1;
    print_head(eval);
    for (int way = RETRIEVE_NEAREST; way < search_ways_count(&eval->ways); way++) {
        struct beir_figures *figures = &eval->figures[way];
        figures->gain = xcalloc(n, sizeof *figures->gain);
        figures->recall = xcalloc(n, sizeof *figures->recall);
        if (ask_queries(eval, way, e)) return e->status;
        print_way(eval, way);
    }
    return STATUS_OK;
}

static void free_eval(struct beir_eval *eval) {
    search_ways_close(&eval->ways);
    beir_free(&eval->set);
    for (int way = 0; way < SEARCH_WAYS; way++) {
        free(eval->figures[way].gain);
        free(eval->figures[way].recall);
    }
    free(eval->ones);
}

int eval_beir(const struct usage *self, int argc, char **argv) {
    struct error e = {0};
    struct config config;
    struct beir_eval eval = {0};
    const char *split = "test";
    const struct eval_option options[] = {
        {"--split", "NAME", "the grades are those of qrels/NAME.tsv (test)", EVAL_OPTION_TEXT,
         &split},
        {"--json", NULL, "an object a line", EVAL_OPTION_FLAG, &eval.json},
        {0}};
    config_init(&config);
    int first = eval_parse(self, argc, argv, options, &config, &e);
    if (first >= 0 && argc - first != 1) error_set(&e, STATUS_INVALID, "expected one FOLDER");
    bool failed =
        first != EVAL_HELPED && (e.status || run_beir(&eval, &config, argv[first], split, &e));
    if (failed) line_print(stderr, "retro-eval beir: %s", e.text);
    free_eval(&eval);
    config_free(&config);
    return failed;
}
