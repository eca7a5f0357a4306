/* tools/eval/eval_lm.c: retro-eval lm: multiple choice records, with retrieval and without:
 * accuracy by the choices' sums of log-probabilities and by those per byte, and bits per byte of
 * the right choice, with intervals (eval_lm.h).
 */
#include "tools/eval/eval_lm.h"

#include <stdlib.h>

#include "server/host/check.h"

struct lm_options {
    struct config config;
    const char *records;
    uint64_t seed;
    bool json;
};

static const char *const mode_names[LM_MODES] = {"on", "off"};

/* The measures of a mode. */
enum measure { ACCURACY, ACCURACY_PER_BYTE, ANSWER_BITS, MEASURES };
static const struct {
    const char *name, *label;
} measures[MEASURES] = {{"accuracy", "accuracy, sum"},
                        {"accuracy_per_byte", "accuracy, per byte"},
                        {"answer_bits_per_byte", "bits/byte, right choice"}};

static double measured(const struct lm_result *result, enum measure what, int mode) {
    const struct lm_verdict *verdict = &result->verdicts[mode];
    switch (what) {
        case ACCURACY: return verdict->likeliest == result->answer;
        case ACCURACY_PER_BYTE: return verdict->likeliest_per_byte == result->answer;
        default: return verdict->answer_bits;
    }
}

/* Over records; of a mode, or of one less another. */
static struct estimate estimate(const struct lm *lm, enum measure what, int mode, int minus) {
    double *top = xcalloc((size_t)lm->n + 1, sizeof *top),
           *bottom = xcalloc((size_t)lm->n + 1, sizeof *bottom);
    for (int i = 0; i < lm->n; i++) {
        top[i] = measured(&lm->results[i], what, mode) -
                 (minus >= 0 ? measured(&lm->results[i], what, minus) : 0);
        bottom[i] = what == ANSWER_BITS ? lm->results[i].answer_bytes : 1;
    }
    struct estimate result = estimate_ratio(top, bottom, lm->n, lm->seed);
    free(top);
    free(bottom);
    return result;
}

/* The accuracy of guessing. */
static double chance(const struct lm *lm) {
    double sum = 0;
    for (int i = 0; i < lm->n; i++) sum += 1.0 / lm->results[i].n_choices;
    return sum / lm->n;
}

static void print_table(const struct lm *lm) {
    bool both = lm->modes[LM_ON];
    subject_print(&lm->model);
    printf("scored     %d records, accuracy of guessing %.4f", lm->n, chance(lm));
    if (both) printf(", chunks from the prompt's %s", lm->grid == GRID_END ? "end" : "start");
    printf("\nintervals  95 %%, %d resamples of the records, seed %llu\n\n%-25s", EVAL_DRAWS,
           (unsigned long long)lm->seed, "");
    printf("%s\n",
           both ? "  on                         off                        on - off" : "  off");
    for (int what = 0; what < MEASURES; what++) {
        printf("%-25s", measures[what].label);
        for (int mode = 0; mode < LM_MODES; mode++) {
            if (!lm->modes[mode]) continue;
            struct estimate the_estimate = estimate(lm, (enum measure)what, mode, -1);
            printf("  %.4f (%.4f .. %.4f)", the_estimate.value, the_estimate.low,
                   the_estimate.high);
        }
        struct estimate d = estimate(lm, (enum measure)what, LM_ON, LM_OFF);
        if (both) printf("  %+.4f (%+.4f .. %+.4f)", d.value, d.low, d.high);
        printf("\n");
    }
}

static void put_measures(const struct lm *lm, struct json_writer *w, const char *key, int mode,
                         int minus) {
    put_key_object(w, key);
    for (int what = 0; what < MEASURES; what++) {
        struct estimate the_estimate = estimate(lm, (enum measure)what, mode, minus);
        put_key_object(w, measures[what].name);
        put_key_float(w, "value", (float)the_estimate.value);
        put_key_float(w, "low", (float)the_estimate.low);
        put_key_float(w, "high", (float)the_estimate.high);
        put_object_end(w);
    }
    put_object_end(w);
}

static void print_json(const struct lm *lm) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    subject_put(&lm->model, &w);
    put_key_string(&w, "grid", lm->grid == GRID_END ? "end" : "start");
    put_key_int(&w, "records", lm->n);
    put_key_float(&w, "chance", (float)chance(lm));
    put_key_int(&w, "seed", (int64_t)lm->seed);
    for (int mode = 0; mode < LM_MODES; mode++)
        if (lm->modes[mode]) put_measures(lm, &w, mode_names[mode], mode, -1);
    if (lm->modes[LM_ON]) put_measures(lm, &w, "on - off", LM_ON, LM_OFF);
    put_object_end(&w);
    printf("%s\n", text.data);
    buffer_free(&text);
}

/* A collection is read by cross attention here, and only where the model has it. */
static enum status open_retrieval(struct lm *lm, const struct config *config, struct error *e) {
    if (lm->model.info->chunk_length == 0) return STATUS_OK;
    if (subject_open_retrieval(&lm->model, config, max_int(1, lm->model.k), e)) return e->status;
    if (lm->model.documents.retriever == NULL || lm->model.mode == RETRIEVAL_ATTENTION)
        return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "retrieval.mode is %s, and choices are scored with retrieval.mode attention "
                     "alone; retro-eval ppl "
                     "scores passages in prompts",
                     retrieval_mode_name(lm->model.mode));
}

static enum status lm_open(struct lm *lm, const struct lm_options *options, struct error *e) {
    const struct config *config = &options->config;
    lm->seed = options->seed;
    lm->grid = (enum grid_mode)config->retrieval.grid;
    if (subject_open(&lm->model, config, config->model.path, e) || open_retrieval(lm, config, e) ||
        check_context(config, lm->model.info, &lm->context, e) ||
        subject_open_pool(&lm->model, lm->context, e))
        return e->status;
    const struct model_info *info = lm->model.info;
    lm->eod = info->eod >= 0 ? info->eod : tokenizer_eod(lm->model.tokenizer);
    lm->modes[LM_OFF] = true;
    lm->modes[LM_ON] = lm->model.documents.retriever != NULL;
    if (lm->modes[LM_ON])
        lm->found = found_make(&lm->model, lm->context / info->chunk_length + 1, lm->model.k,
                               lm->model.min_similarity);
    if (options->records && (lm->records_out = fopen(options->records, "w")) == NULL)
        return error_errno(e, "%s", options->records);
    return STATUS_OK;
}

static enum status lm_close(struct lm *lm, struct error *e) {
    enum status status = STATUS_OK;
    if (lm->records_out && fclose(lm->records_out) != 0)
        status = error_errno(e, "--records: write");
    found_free(&lm->found);
    subject_close(&lm->model);
    free(lm->results);
    return status;
}

static enum status run(const struct lm_options *options, int n, char **files, struct error *e) {
    struct lm lm = {0};
    struct error closing;
    enum status status = lm_open(&lm, options, e);
    for (int i = 0; i < n && status == STATUS_OK; i++)
        status = json_parse_lines(files[i], lm_score_record, &lm, e);
    if (status == STATUS_OK && lm.n == 0)
        status = error_set(e, STATUS_INVALID, "%s: no records", files[0]);
    if (status == STATUS_OK) (options->json ? print_json : print_table)(&lm);
    if (lm_close(&lm, &closing) && status == STATUS_OK) {
        *e = closing;
        status = closing.status;
    }
    return status;
}

int eval_lm(const struct usage *self, int argc, char **argv) {
    struct error e = {0};
    struct lm_options lm_options = {.seed = 1};
    const struct eval_option options[] = {
        {"--seed", "N", "of the intervals' resamples (1)", EVAL_OPTION_SEED, &lm_options.seed},
        {"--records", "JSONL", "a file for what was found of each record", EVAL_OPTION_TEXT,
         &lm_options.records},
        {"--json", NULL, "one JSON object in place of the table", EVAL_OPTION_FLAG,
         &lm_options.json},
        {0},
    };
    config_init(&lm_options.config);
    int first = eval_parse(self, argc, argv, options, &lm_options.config, &e);
    if (first == argc) error_set(&e, STATUS_INVALID, "no file of records given");
    bool failed = first != EVAL_HELPED &&
                  (first < 0 || first == argc || config_check(&lm_options.config, &e) ||
                   run(&lm_options, argc - first, argv + first, &e));
    if (failed) line_print(stderr, "retro-eval lm: %s", e.text);
    config_free(&lm_options.config);
    return failed;
}
