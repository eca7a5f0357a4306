/* tools/eval_ppl.c: retro-eval ppl: bits per byte of documents with retrieved neighbours, without, with random ones,
 * and of a plain GPT, in one table, each with the subsets that overlap little with what was retrieved (ppl.h has the
 * definition). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "retrieval/extract.h"
#include "server/embedder_bert.h"
#include "tools/eval.h"
#include "tools/ppl.h"

enum { SLICE = 64, LINE_LIMIT = 64 << 20 };

struct options {
    struct config config;
    const char *baseline, *curve;
    int window;
    uint64_t seed;
};

/* Everything that is open while documents are scored. */
struct evaluation {
    struct options *o;
    struct opened_model model, baseline;
    struct tokenizer *tokenizer;
    struct collection *collection;
    struct embedder embedder;
    struct retriever *retriever;
    struct session_pool *pool, *baseline_pool;
    struct ppl_scorer scorer;
    struct ppl_sums *documents; /* [n] */
    int n, capacity;
};

static enum status open_pool(struct session_pool **out, const struct opened_model *m, int window, int k,
                             struct error *e) {
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = window,
                                    .max_step_rows = SLICE,
                                    .max_logit_rows = SLICE,
                                    .max_neighbors = max_int(1, k),
                                    .kv_dtype = model_info(m->model)->dtype};
    return session_pool_open(out, m->model, &limits, e);
}

static enum status open_retrieval(struct evaluation *v, struct error *e) {
    const struct config *c = &v->o->config;
    const struct model_info *info = model_info(v->model.model);
    if (*c->retrieval.collection == '\0' || info->chunk_length == 0) return STATUS_OK;
    if (collection_open(&v->collection, c->retrieval.collection, e)) return e->status;
    if (embedder_bert_open(&v->embedder, c->retrieval.embedder, c, e) ||
        collection_match(v->collection, v->embedder.hash, tokenizer_hash(v->tokenizer), info->chunk_length, e))
        return e->status;
    return retriever_open(&v->retriever, v->collection, &v->embedder, info->retrieved_length, c->retrieval.max_k, e);
}

static void set_up_scorer(struct evaluation *v) {
    const struct config *c = &v->o->config;
    const struct model_info *info = model_info(v->model.model);
    bool retrieves = v->retriever != NULL;
    int vocab = info->padded_vocab;
    if (v->baseline.model) vocab = max_int(vocab, model_info(v->baseline.model)->padded_vocab);
    v->scorer = (struct ppl_scorer){.tokenizer = v->tokenizer,
                                    .model = v->model.model,
                                    .baseline = v->baseline.model,
                                    .backend = v->model.backend,
                                    .pool = v->pool,
                                    .baseline_pool = v->baseline_pool,
                                    .retriever = v->retriever,
                                    .collection = v->collection,
                                    .window = v->o->window,
                                    .k = c->retrieval.k ? c->retrieval.k : info->num_neighbors,
                                    .slice = SLICE,
                                    .min_similarity = (float)c->retrieval.min_similarity,
                                    .seed = v->o->seed,
                                    .modes = {retrieves, true, retrieves, v->baseline.model != NULL},
                                    .logits = xmalloc((size_t)SLICE * (size_t)vocab * sizeof(float))};
}

static enum status evaluation_open(struct evaluation *v, struct error *e) {
    const struct config *c = &v->o->config;
    if (opened_model_open(&v->model, c, c->model.path, e) || tokenizer_open(&v->tokenizer, c->model.path, e) ||
        open_retrieval(v, e))
        return e->status;
    const struct model_info *info = model_info(v->model.model);
    if (v->o->window == 0) v->o->window = info->max_positions ? min_int(512, info->max_positions) : 512;
    int k = max_int(info->num_neighbors, c->retrieval.k);
    if (open_pool(&v->pool, &v->model, v->o->window, k, e)) return e->status;
    if (v->o->baseline && (opened_model_open(&v->baseline, c, v->o->baseline, e) ||
                           open_pool(&v->baseline_pool, &v->baseline, v->o->window, 0, e)))
        return e->status;
    set_up_scorer(v);
    return STATUS_OK;
}

static void evaluation_close(struct evaluation *v) {
    session_pool_close(v->baseline_pool);
    session_pool_close(v->pool);
    retriever_close(v->retriever);
    embedder_bert_close(&v->embedder);
    collection_close(v->collection);
    tokenizer_close(v->tokenizer);
    opened_model_close(&v->baseline);
    opened_model_close(&v->model);
    free(v->scorer.logits);
    free(v->scorer.chunks);
    free(v->documents);
}

/* Reading documents. */

static enum status add_document(struct evaluation *v, struct text_span text, struct error *e) {
    if (v->n == v->capacity) {
        v->capacity = v->capacity ? 2 * v->capacity : 64;
        v->documents = xrealloc(v->documents, (size_t)v->capacity * sizeof *v->documents);
    }
    v->documents[v->n] = (struct ppl_sums){0};
    return ppl_score_document(&v->scorer, text, &v->documents[v->n++], e);
}

/* One document a line: {"text": "...", ...} */
static enum status add_jsonl(struct evaluation *v, const char *path, struct error *e) {
    struct file_map map;
    if (file_map_open(&map, path, e)) return e->status;
    enum status status = STATUS_OK;
    const char *at = (const char *)map.data, *end = at + map.size;
    for (int line = 1; at < end && status == STATUS_OK; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((stop ? stop : end) - at);
        json_t *value = NULL;
        if (size > 0) status = json_load_text(&value, at, size, path, e);
        const json_t *text = json_object_get(value, "text");
        if (status == STATUS_OK && size > 0 && !json_is_string(text))
            status = error_set(e, STATUS_INVALID, "%s:%d: no \"text\"", path, line);
        if (status == STATUS_OK && size > 0)
            status = add_document(v, (struct text_span){json_string_value(text), json_string_length(text)}, e);
        json_decref(value);
        at += size + 1;
    }
    file_map_close(&map);
    return status;
}

static enum status add_file(struct evaluation *v, const char *path, struct error *e) {
    const char *dot = strrchr(path, '.');
    if (dot && strcmp(dot, ".jsonl") == 0) return add_jsonl(v, path, e);
    struct buffer text = {0}, title = {0};
    enum status status = document_extract(path, document_kind(path), LINE_LIMIT, &text, &title, e);
    if (status == STATUS_OK) status = add_document(v, (struct text_span){text.data, text.size}, e);
    buffer_free(&text);
    buffer_free(&title);
    return status;
}

/* Results. */

static double total(const struct evaluation *v, enum ppl_mode mode, enum ppl_subset subset) {
    double bits = 0;
    for (int i = 0; i < v->n; i++) bits += v->documents[i].bits[mode][subset];
    return bits;
}

static double total_bytes(const struct evaluation *v, enum ppl_subset subset) {
    double bytes = 0;
    for (int i = 0; i < v->n; i++) bytes += v->documents[i].bytes[subset];
    return bytes;
}

/* How many percent fewer bits `mode` needs than with retrieval off, with its interval over documents. */
static void print_gain(const struct evaluation *v, enum ppl_mode mode, enum ppl_subset subset) {
    double *saved = xcalloc((size_t)v->n + 1, sizeof *saved), *off = xcalloc((size_t)v->n + 1, sizeof *off);
    double sum_saved = 0, sum_off = 0;
    for (int i = 0; i < v->n; i++) {
        off[i] = v->documents[i].bits[PPL_OFF][subset];
        saved[i] = off[i] - v->documents[i].bits[mode][subset];
        sum_saved += saved[i];
        sum_off += off[i];
    }
    struct interval ci = bootstrap_ratio(saved, off, v->n, v->o->seed);
    printf("  %+6.2f %% (%+.2f .. %+.2f)", sum_off > 0 ? 100 * sum_saved / sum_off : 0, 100 * ci.low, 100 * ci.high);
    free(saved);
    free(off);
}

static void print_table(const struct evaluation *v) {
    static const char *const modes[] = {"on", "off", "random", "gpt"};
    static const char *const subsets[] = {"all", "after the first chunk", "of these: no 8-gram shared",
                                          "          <= 10 % 8-grams", "          run <= m / 8"};
    printf("%d documents, windows of %d tokens, k %d", v->n, v->o->window, v->scorer.k);
    if (v->collection) printf(", %lld chunks in the collection", (long long)collection_info(v->collection)->n_chunks);
    printf("\nbits per byte%33s", "bytes");
    for (int mode = 0; mode < PPL_MODES; mode++)
        if (v->scorer.modes[mode]) printf("%10s", modes[mode]);
    if (v->scorer.modes[PPL_ON]) printf("  on against off, 95 %% interval over documents");
    printf("\n");
    for (int subset = 0; subset < (v->scorer.modes[PPL_ON] ? PPL_SUBSETS : 1); subset++) {
        double bytes = total_bytes(v, (enum ppl_subset)subset);
        printf("%-30s%16.0f", subsets[subset], bytes);
        for (int mode = 0; mode < PPL_MODES; mode++)
            if (v->scorer.modes[mode])
                printf("%10.4f", bytes > 0 ? total(v, (enum ppl_mode)mode, (enum ppl_subset)subset) / bytes : NAN);
        if (v->scorer.modes[PPL_ON]) print_gain(v, PPL_ON, (enum ppl_subset)subset);
        printf("\n");
    }
}

/* Bits per byte of the chunks whose overlap is at most each threshold (RETRO, equation 5), one row a threshold. */
static enum status write_curve(const struct evaluation *v, const char *path, struct error *e) {
    FILE *out = fopen(path, "w");
    if (out == NULL) return error_errno(e, "%s", path);
    fprintf(out, "overlap,run_bytes,run_on,run_off,run_random,grams_bytes,grams_on,grams_off,grams_random\n");
    for (int percent = 0; percent <= 100; percent += 5) {
        fprintf(out, "%.2f", percent / 100.0);
        for (int kind = 0; kind < 2; kind++) {
            double bytes = 0, bits[PPL_MODES] = {0};
            for (int i = 0; i < v->scorer.n_chunks; i++) {
                const struct ppl_chunk *c = &v->scorer.chunks[i];
                if ((double)(kind ? c->shared : c->run) > percent / 100.0 + 1e-6) continue;
                bytes += (double)c->bytes;
                for (int mode = 0; mode < PPL_MODES; mode++) bits[mode] += (double)c->bits[mode];
            }
            fprintf(out, ",%.0f", bytes);
            for (int mode = PPL_ON; mode <= PPL_RANDOM; mode++)
                fprintf(out, ",%.5f", bytes > 0 ? bits[mode] / bytes : 0);
        }
        fprintf(out, "\n");
    }
    return fclose(out) == 0 ? STATUS_OK : error_errno(e, "%s", path);
}

static enum status run(struct evaluation *v, int argc, char **argv, struct error *e) {
    enum status status = evaluation_open(v, e);
    for (int i = 0; i < argc && status == STATUS_OK; i++) {
        status = add_file(v, argv[i], e);
        if (status) error_prefix(e, "%s", argv[i]);
    }
    if (status == STATUS_OK) print_table(v);
    if (status == STATUS_OK && v->o->curve) status = write_curve(v, v->o->curve, e);
    evaluation_close(v);
    return status;
}

/* Returns the index of the first file, or -1 with *e set. */
static int parse(int argc, char **argv, struct options *o, struct error *e) {
    int i = 0;
    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        const char *name = argv[i] + 2, *value = i + 1 < argc ? argv[i + 1] : NULL;
        enum status status = STATUS_OK;
        if (value == NULL)
            status = error_set(e, STATUS_INVALID, "--%s needs a value", name);
        else if (strcmp(name, "config") == 0)
            status = config_read(&o->config, value, e);
        else if (strcmp(name, "set") == 0)
            status = config_set(&o->config, value, e);
        else if (strcmp(name, "baseline") == 0)
            o->baseline = value;
        else if (strcmp(name, "curve") == 0)
            o->curve = value;
        else if (strcmp(name, "window") == 0 && atoi(value) >= 2)
            o->window = atoi(value);
        else if (strcmp(name, "seed") == 0)
            o->seed = strtoull(value, NULL, 10);
        else
            status = error_set(e, STATUS_INVALID, "--%s %s: unknown option or value", name, value);
        if (status) return -1;
    }
    if (i < argc) return i;
    error_set(e, STATUS_INVALID, "no document given");
    return -1;
}

int eval_ppl(int argc, char **argv) {
    struct error e = {0};
    struct options o = {.seed = 1};
    struct evaluation v = {.o = &o};
    config_init(&o.config);
    int first = parse(argc, argv, &o, &e);
    bool failed = first < 0 || config_check(&o.config, &e) || run(&v, argc - first, argv + first, &e);
    if (failed) fprintf(stderr, "retro-eval ppl: %s\n", e.text);
    config_free(&o.config);
    return failed;
}
