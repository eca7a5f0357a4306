/* tools/eval/eval_ppl.c: retro-eval ppl: bits per byte of documents with retrieved neighbours,
 * without, with random ones, and of a plain GPT, each with the subsets that overlap little with the
 * datastore (ppl.h has the definition). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/extract/extract.h"
#include "tools/eval/ppl.h"

enum { DOCUMENT_LIMIT = 64 << 20 };

struct ppl_options {
    struct config config;
    const char *baseline, *curve;
    int window;
    uint64_t seed;
    bool json;
};

/* min(512, what passages leave of the model's limit), of whole chunks. */
static enum status choose_window(struct ppl *ppl, int window, int before, struct error *e) {
    const struct model_info *info = ppl->model.info;
    int most = info->max_positions ? info->max_positions - before : INT32_MAX;
    ppl->window = window ? window : max_int(1, min_int(512, most) / ppl->m) * ppl->m;
    if (ppl->window % ppl->m)
        return error_set(e, STATUS_INVALID,
                         "--window %d: must be a multiple of the chunk length, %d", window, ppl->m);
    if (ppl->window > most)
        return error_set(e, STATUS_INVALID,
                         "a window of %d tokens and %d before it (retrieval.prompt_tokens) are "
                         "more than the model's "
                         "limit, %d",
                         ppl->window, before, info->max_positions);
    return STATUS_OK;
}

/* A chunk is the model's; for one that has none of its own, as long as what passages are sought by.
 */
static int choose_chunk(const struct ppl *ppl) {
    int m = ppl->model.info->chunk_length;
    if (ppl->modes[PPL_ON] && retrieval_prompts(ppl->model.mode)) return PASSAGE_QUERY_TOKENS;
    return max_int(1, m);
}

/* Bits are compared token by token, so both must cut text in the same way. */
static enum status open_gpt(struct ppl *ppl, const struct ppl_options *options, struct error *e) {
    if (subject_open(&ppl->gpt, &options->config, options->baseline, e))
        return error_prefix(e, "--baseline");
    if (ppl->gpt.info->chunk_length)
        return error_set(e, STATUS_INVALID, "--baseline %s: is a %s model; a plain GPT is wanted",
                         options->baseline, ppl->gpt.info->family);
    if (tokenizer_hash(ppl->gpt.tokenizer) != tokenizer_hash(ppl->model.tokenizer))
        return error_set(e, STATUS_INVALID, "--baseline %s: its tokenizer is not that of %s",
                         options->baseline, ppl->model.folder);
    ppl->modes[PPL_GPT] = true;
    return subject_open_pool(&ppl->gpt, ppl->window + (ppl->begin >= 0), e);
}

static enum status open_model(struct ppl *ppl, const struct ppl_options *options, struct error *e) {
    const struct config *config = &options->config;
    if (subject_open(&ppl->model, config, config->model.path, e) ||
        subject_open_retrieval(&ppl->model, config, max_int(ppl->model.k, PPL_NEAREST), e))
        return e->status;
    ppl->modes[PPL_OFF] = true;
    ppl->modes[PPL_ON] = ppl->modes[PPL_RANDOM] = ppl->model.documents.retriever != NULL;
    ppl->m = choose_chunk(ppl);
    ppl->begin = ppl->model.info->chunk_length > 0 ? -1 : subject_begin(&ppl->model);
    bool prompts = ppl->modes[PPL_ON] && retrieval_prompts(ppl->model.mode);
    int before = (prompts ? ppl->model.passages.max_tokens : 0) + (ppl->begin >= 0);
    if (choose_window(ppl, options->window, before, e)) return e->status;
    return subject_open_pool(&ppl->model, ppl->window + before, e);
}

static enum status ppl_open(struct ppl *ppl, const struct ppl_options *options, struct error *e) {
    ppl->seed = ppl->random = options->seed;
    if (open_model(ppl, options, e)) return e->status;
    return options->baseline ? open_gpt(ppl, options, e) : STATUS_OK;
}

static void ppl_close(struct ppl *ppl) {
    subject_close(&ppl->gpt);
    subject_close(&ppl->model);
    free(ppl->sums);
    free(ppl->chunks);
}

static enum status add_record(void *context, const struct json *record, struct error *e) {
    struct text_span text = json_text(json_member(record, "text"));
    if (text.text == NULL) return error_set(e, STATUS_INVALID, "expected {\"text\": \"...\"}");
    return ppl_score_document(context, text, e);
}

static enum status add_file(struct ppl *ppl, const char *path, struct error *e) {
    const char *dot = strrchr(path, '.');
    if (dot && strcmp(dot, ".jsonl") == 0) return json_parse_lines(path, add_record, ppl, e);
    struct document_text read = {0};
    enum status status = document_extract(path, document_kind(path), DOCUMENT_LIMIT, &read, e);
    if (status == STATUS_OK)
        status = ppl_score_document(ppl, (struct text_span){read.text.data, read.text.size}, e);
    if (status) error_prefix(e, "%s", path);
    document_text_free(&read);
    return status;
}

static enum status run(const struct ppl_options *options, int n, char **files, struct error *e) {
    struct ppl ppl = {0};
    enum status status = ppl_open(&ppl, options, e);
    for (int i = 0; i < n && status == STATUS_OK; i++) status = add_file(&ppl, files[i], e);
    if (status == STATUS_OK) (options->json ? ppl_print_json : ppl_print)(&ppl);
    if (status == STATUS_OK && options->curve) status = ppl_write_curve(&ppl, options->curve, e);
    ppl_close(&ppl);
    return status;
}

int eval_ppl(const struct usage *self, int argc, char **argv) {
    struct error e = {0};
    struct ppl_options ppl_options = {.seed = 1};
    const struct eval_option options[] = {
        {"--window", "N", "tokens of a sequence, whole chunks (512, or the model's limit)",
         EVAL_OPTION_COUNT, &ppl_options.window},
        {"--baseline", "FOLDER", "a plain GPT with the same tokenizer, to compare with",
         EVAL_OPTION_TEXT, &ppl_options.baseline},
        {"--seed", "N", "of random neighbours and of the intervals' resamples (1)",
         EVAL_OPTION_SEED, &ppl_options.seed},
        {"--curve", "CSV", "a file for the figures by overlap with the datastore", EVAL_OPTION_TEXT,
         &ppl_options.curve},
        {"--json", NULL, "one JSON object in place of the table", EVAL_OPTION_FLAG,
         &ppl_options.json},
        {0},
    };
    config_init(&ppl_options.config);
    int first = eval_parse(self, argc, argv, options, &ppl_options.config, &e);
    if (first == argc) error_set(&e, STATUS_INVALID, "no document given");
    bool failed = first != EVAL_HELPED &&
                  (first < 0 || first == argc || config_check(&ppl_options.config, &e) ||
                   run(&ppl_options, argc - first, argv + first, &e));
    if (failed) line_print(stderr, "retro-eval ppl: %s", e.text);
    config_free(&ppl_options.config);
    return failed;
}
