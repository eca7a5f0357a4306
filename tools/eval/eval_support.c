/* tools/eval/eval_support.c: retro-eval support: how well support tells sentences apart, as the
 * area under the receiver operating characteristic (eval_support.h). */
#include "tools/eval/eval_support.h"

#include <math.h>
#include <stdlib.h>

struct support_options {
    struct config config;
    const char *records;
    bool json;
};

/* The kinds that are told from `against`. */
static const struct {
    const char *name;
    enum support_kind against, first, last;
} contrasts[] = {
    {"numbers changed", SUPPORT_TRUE, SUPPORT_NUMBERS, SUPPORT_NUMBERS},
    {"names swapped", SUPPORT_TRUE, SUPPORT_NAMES, SUPPORT_NAMES},
    {"other documents", SUPPORT_TRUE, SUPPORT_ELSEWHERE, SUPPORT_ELSEWHERE},
    {"all planted", SUPPORT_TRUE, SUPPORT_NUMBERS, SUPPORT_ELSEWHERE},
    {"own answers", SUPPORT_QUOTED, SUPPORT_UNQUOTED, SUPPORT_UNQUOTED},
};
static const double thresholds[] = {0.1, 0.2, 0.3, 0.5, 0.7};

static int count_false(const struct support_eval *eval, size_t i) {
    int n = 0;
    for (int kind = (int)contrasts[i].first; kind <= (int)contrasts[i].last; kind++)
        n += eval->n[kind];
    return n;
}

/* How often a sentence of the one kind has more support than one of the others, equals counted
 * half; NAN where there are none. */
static double area(const struct support_eval *eval, size_t contrast) {
    const double *is_true = eval->figures[contrasts[contrast].against];
    int n = eval->n[contrasts[contrast].against];
    double wins = 0;
    for (int kind = (int)contrasts[contrast].first; kind <= (int)contrasts[contrast].last; kind++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < eval->n[kind]; j++) {
                double other = eval->figures[kind][j];
                wins += is_true[i] > other ? 1 : is_true[i] == other ? 0.5 : 0;
            }
    return wins / n / count_false(eval, contrast);
}

static double share_below(const struct support_eval *eval, enum support_kind kind, double figure) {
    int below = 0;
    for (int i = 0; i < eval->n[kind]; i++) below += eval->figures[kind][i] < figure;
    return (double)below / eval->n[kind];
}

static void print_table(const struct support_eval *eval) {
    subject_print(&eval->model);
    printf("questions  %d\n\n%-17s %6s %7s %7s\n", eval->n_questions, "", "these", "others", "AUC");
    for (size_t i = 0; i < ARRAY_COUNT(contrasts); i++)
        printf("%-17s %6d %7d %7.3f\n", contrasts[i].name, eval->n[contrasts[i].against],
               count_false(eval, i), area(eval, i));
    printf("\n%-17s", "share below");
    for (size_t i = 0; i < ARRAY_COUNT(thresholds); i++) printf(" %6.1f", thresholds[i]);
    for (int kind = 0; kind < SUPPORT_KINDS; kind++) {
        printf("\n%-17s", support_kind_names[kind]);
        for (size_t i = 0; i < ARRAY_COUNT(thresholds); i++)
            printf(" %6.3f", share_below(eval, (enum support_kind)kind, thresholds[i]));
    }
    printf("\n");
}

static void print_json(const struct support_eval *eval) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    subject_put(&eval->model, &w);
    put_key_int(&w, "questions", eval->n_questions);
    put_key_object(&w, "auc");
    for (size_t i = 0; i < ARRAY_COUNT(contrasts); i++)
        put_key_float(&w, contrasts[i].name, (float)area(eval, i));
    put_object_end(&w);
    put_key_object(&w, "sentences");
    for (int kind = 0; kind < SUPPORT_KINDS; kind++)
        put_key_int(&w, support_kind_names[kind], eval->n[kind]);
    put_object_end(&w);
    put_object_end(&w);
    printf("%s\n", text.data);
    buffer_free(&text);
}

static enum status open_eval(struct support_eval *eval, const struct support_options *options,
                             struct error *e) {
    const struct config *config = &options->config;
    if (subject_open(&eval->model, config, config->model.path, e)) return e->status;
    if (eval->model.info->reads_source)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s has an encoder; retro-eval support is for decoders",
                         config->model.path);
    if (!documents_wanted(config))
        return error_set(e, STATUS_INVALID, "retrieval.collection is needed: --config or --set");
    if (subject_open_retrieval(&eval->model, config, max_int(1, eval->model.k), e) ||
        check_context(config, eval->model.info, &eval->context, e) ||
        subject_open_pool(&eval->model, eval->context, e))
        return e->status;
    if (eval->model.mode == RETRIEVAL_BOTH)
        return error_set(e, STATUS_UNSUPPORTED,
                         "retrieval.mode is both; expected attention or prompt");
    eval->choice = retrieval_choice_ranking(&config->retrieval.choice, 0);
    eval->k = retrieval_attends(eval->model.mode) ? eval->model.k : eval->model.k_passages;
    if (options->records && (eval->records_out = fopen(options->records, "w")) == NULL)
        return error_errno(e, "%s", options->records);
    return STATUS_OK;
}

static enum status close_eval(struct support_eval *eval, struct error *e) {
    enum status status = STATUS_OK;
    if (eval->records_out && fclose(eval->records_out) != 0)
        status = error_errno(e, "--records: write");
    for (int kind = 0; kind < SUPPORT_KINDS; kind++) free(eval->figures[kind]);
    subject_close(&eval->model);
    return status;
}

static enum status run(const struct support_options *options, int n, char **files,
                       struct error *e) {
    struct support_eval eval = {0};
    struct error closing;
    enum status status = open_eval(&eval, options, e);
    for (int i = 0; i < n && status == STATUS_OK; i++)
        status = json_parse_lines(files[i], support_score_question, &eval, e);
    if (status == STATUS_OK && eval.n_questions == 0)
        status = error_set(e, STATUS_INVALID, "%s: no question", files[0]);
    if (status == STATUS_OK) (options->json ? print_json : print_table)(&eval);
    if (close_eval(&eval, &closing) && status == STATUS_OK) {
        *e = closing;
        status = closing.status;
    }
    return status;
}

int eval_support(const struct usage *self, int argc, char **argv) {
    struct error e = {0};
    struct support_options support_options = {0};
    const struct eval_option options[] = {
        {"--records", "JSONL", "a file for each sentence, its support and its tokens' gains",
         EVAL_OPTION_TEXT, &support_options.records},
        {"--json", NULL, "one JSON object in place of the tables", EVAL_OPTION_FLAG,
         &support_options.json},
        {0},
    };
    config_init(&support_options.config);
    int first = eval_parse(self, argc, argv, options, &support_options.config, &e);
    if (first == argc) error_set(&e, STATUS_INVALID, "expected one FILE.jsonl or more");
    bool failed = first != EVAL_HELPED &&
                  (first < 0 || first == argc || config_check(&support_options.config, &e) ||
                   run(&support_options, argc - first, argv + first, &e));
    if (failed) line_print(stderr, "retro-eval support: %s", e.text);
    config_free(&support_options.config);
    return failed;
}
