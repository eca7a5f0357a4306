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
static enum status choose_window(struct ppl *p, int window, int before, struct error *e) {
    const struct model_info *info = p->model.info;
    int most = info->max_positions ? info->max_positions - before : INT32_MAX;
    p->window = window ? window : max_int(1, min_int(512, most) / p->m) * p->m;
    if (p->window % p->m)
        return error_set(e, STATUS_INVALID, "--window %d: must be a multiple of the chunk length, %d", window, p->m);
    if (p->window > most)
        return error_set(e, STATUS_INVALID,
                         "a window of %d tokens and %d before it (retrieval.prompt_tokens) are more than the model's "
                         "limit, %d",
                         p->window, before, info->max_positions);
    return STATUS_OK;
}

/* A chunk is the model's; for one that has none of its own, as long as what passages are sought by. */
static int choose_chunk(const struct ppl *p) {
    int m = p->model.info->chunk_length;
    if (p->modes[PPL_ON] && retrieval_prompts(p->model.mode)) return PASSAGE_QUERY_TOKENS;
    return max_int(1, m);
}

/* Bits are compared token by token, so both must cut text in the same way. */
static enum status open_gpt(struct ppl *p, const struct ppl_options *o, struct error *e) {
    if (subject_open(&p->gpt, &o->config, o->baseline, e)) return error_prefix(e, "--baseline");
    if (p->gpt.info->chunk_length)
        return error_set(e, STATUS_INVALID, "--baseline %s: is a %s model; a plain GPT is wanted", o->baseline,
                         p->gpt.info->family);
    if (tokenizer_hash(p->gpt.tokenizer) != tokenizer_hash(p->model.tokenizer))
        return error_set(e, STATUS_INVALID, "--baseline %s: its tokenizer is not that of %s", o->baseline,
                         p->model.folder);
    p->modes[PPL_GPT] = true;
    return subject_open_pool(&p->gpt, p->window + (p->begin >= 0), e);
}

static enum status open_model(struct ppl *p, const struct ppl_options *o, struct error *e) {
    const struct config *c = &o->config;
    if (subject_open(&p->model, c, c->model.path, e) ||
        subject_open_retrieval(&p->model, c, max_int(p->model.k, PPL_NEAREST), e))
        return e->status;
    p->modes[PPL_OFF] = true;
    p->modes[PPL_ON] = p->modes[PPL_RANDOM] = p->model.documents.retriever != NULL;
    p->m = choose_chunk(p);
    p->begin = p->model.info->chunk_length > 0 ? -1 : subject_begin(&p->model);
    bool prompts = p->modes[PPL_ON] && retrieval_prompts(p->model.mode);
    int before = (prompts ? p->model.passages.max_tokens : 0) + (p->begin >= 0);
    if (choose_window(p, o->window, before, e)) return e->status;
    return subject_open_pool(&p->model, p->window + before, e);
}

static enum status ppl_open(struct ppl *p, const struct ppl_options *o, struct error *e) {
    p->seed = p->random = o->seed;
    if (open_model(p, o, e)) return e->status;
    return o->baseline ? open_gpt(p, o, e) : STATUS_OK;
}

static void ppl_close(struct ppl *p) {
    subject_close(&p->gpt);
    subject_close(&p->model);
    free(p->sums);
    free(p->chunks);
}

static enum status add_record(void *context, const struct json *record, struct error *e) {
    struct text_span text = json_text(json_member(record, "text"));
    if (text.text == NULL) return error_set(e, STATUS_INVALID, "expected {\"text\": \"...\"}");
    return ppl_score_document(context, text, e);
}

static enum status add_file(struct ppl *p, const char *path, struct error *e) {
    const char *dot = strrchr(path, '.');
    if (dot && strcmp(dot, ".jsonl") == 0) return json_parse_lines(path, add_record, p, e);
    struct document_text read = {0};
    enum status status = document_extract(path, document_kind(path), DOCUMENT_LIMIT, &read, e);
    if (status == STATUS_OK) status = ppl_score_document(p, (struct text_span){read.text.data, read.text.size}, e);
    if (status) error_prefix(e, "%s", path);
    document_text_free(&read);
    return status;
}

static enum status run(const struct ppl_options *o, int n, char **files, struct error *e) {
    struct ppl p = {0};
    enum status status = ppl_open(&p, o, e);
    for (int i = 0; i < n && status == STATUS_OK; i++) status = add_file(&p, files[i], e);
    if (status == STATUS_OK) (o->json ? ppl_print_json : ppl_print)(&p);
    if (status == STATUS_OK && o->curve) status = ppl_write_curve(&p, o->curve, e);
    ppl_close(&p);
    return status;
}

int eval_ppl(const struct usage *self, int argc, char **argv) {
    struct error e = {0};
    struct ppl_options o = {.seed = 1};
    const struct eval_option options[] = {
        {"--window", "N", "tokens of a sequence, whole chunks (512, or the model's limit)", EVAL_OPTION_COUNT,
         &o.window},
        {"--baseline", "FOLDER", "a plain GPT with the same tokenizer, to compare with", EVAL_OPTION_TEXT, &o.baseline},
        {"--seed", "N", "of random neighbours and of the intervals' resamples (1)", EVAL_OPTION_SEED, &o.seed},
        {"--curve", "CSV", "a file for the figures by overlap with the datastore", EVAL_OPTION_TEXT, &o.curve},
        {"--json", NULL, "one JSON object in place of the table", EVAL_OPTION_FLAG, &o.json},
        {0},
    };
    config_init(&o.config);
    int first = eval_parse(self, argc, argv, options, &o.config, &e);
    if (first == argc) error_set(&e, STATUS_INVALID, "no document given");
    bool failed = first != EVAL_HELPED && (first < 0 || first == argc || config_check(&o.config, &e) ||
                                           run(&o, argc - first, argv + first, &e));
    if (failed) line_print(stderr, "retro-eval ppl: %s", e.text);
    config_free(&o.config);
    return failed;
}
