/* tools/bench_decode.c: retro-bench decode: tokens per second of one sequence, with random weights in the shape of a
 * model folder's config.json, and the bytes that takes per second against what this machine can read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/session.h"
#include "tools/bench.h"

enum { ROUNDS = 5 };

struct decode_options {
    const char *folder;
    enum dtype dtype;
    int threads, tokens;
    bool json;
};

static const char usage_text[] =
    "usage: retro-bench decode [--dtype f32|f16|bf16] [--threads N] [--tokens N] [--json] FOLDER\n"
    "  FOLDER holds config.json; its weights are not read, random ones of that shape are made.\n";

static bool parse(int argc, char **argv, struct decode_options *o) {
    *o = (struct decode_options){.dtype = DTYPE_BF16, .threads = bench_threads(), .tokens = 64};
    for (int i = 1; i < argc; i++) {
        bool value = i + 1 < argc;
        if (strcmp(argv[i], "--json") == 0)
            o->json = true;
        else if (strcmp(argv[i], "--dtype") == 0 && value && dtype_parse(&o->dtype, argv[i + 1]))
            i++;
        else if (strcmp(argv[i], "--threads") == 0 && value && (o->threads = atoi(argv[i + 1])) > 0)
            i++;
        else if (strcmp(argv[i], "--tokens") == 0 && value && (o->tokens = atoi(argv[i + 1])) > 0)
            i++;
        else if (argv[i][0] != '-' && o->folder == NULL)
            o->folder = argv[i];
        else
            return false;
    }
    return o->folder != NULL;
}

/* Seconds for `tokens` steps of one row from an empty cache, no neighbours. */
static enum status decode_once(struct session_pool *pool, const struct model *m, int tokens, double *seconds,
                               struct error *e) {
    struct session *s;
    struct tensor logits;
    struct neighbor_tokens none = {0};
    int chunk = model_info(m)->chunk_length;
    struct grid grid = chunk ? grid_make(GRID_START, 0, chunk) : (struct grid){1, 1};
    if (session_open(&s, pool, grid, e)) return e->status;
    enum status status = STATUS_OK;
    double start = time_now();
    for (int i = 0; i < tokens && status == STATUS_OK; i++) {
        int32_t id = i % model_info(m)->vocab;
        struct step_item item = {.session = s, .tokens = &id, .n_tokens = 1, .neighbors = &none, .n_logits = 1};
        status = session_step(pool, &item, 1, &logits, e);
    }
    *seconds = time_now() - start;
    session_close(s);
    return status;
}

static enum status measure(const struct decode_options *o, struct backend *b, struct model *m, struct error *e) {
    const struct model_info *info = model_info(m);
    struct session_pool *pool;
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = o->tokens,
                                    .max_step_rows = 1,
                                    .max_logit_rows = 1,
                                    .max_neighbors = max_int(1, info->num_neighbors),
                                    .kv_dtype = o->dtype};
    struct roofline roof[ROUNDS];
    double rates[ROUNDS], reads[ROUNDS], seconds;
    if (session_pool_open(&pool, m, &limits, e)) return e->status;
    enum status status = decode_once(pool, m, o->tokens, &seconds, e); /* touches every page */
    for (int i = 0; i < ROUNDS && status == STATUS_OK; i++) {
        /* Limit and rate by turns: bandwidth on a shared host changes within minutes. */
        status = roofline_measure(&roof[i], o->threads, e);
        if (status == STATUS_OK) status = decode_once(pool, m, o->tokens, &seconds, e);
        rates[i] = o->tokens / seconds;
        reads[i] = roof[i].read_gbps;
    }
    session_pool_close(pool);
    if (status) return status;
    double rate = bench_median(rates, ROUNDS), read = bench_median(reads, ROUNDS);
    double used = rate * (double)info->decode_bytes * 1e-9;
    if (o->json) {
        bench_print_json("decode", o->threads, rate, "tok/s");
        bench_print_json("decode_gbps", o->threads, used, "GB/s");
        bench_print_json("decode_share_of_read", o->threads, used / read, "of read_gbps");
        return STATUS_OK;
    }
    printf("%s, %s, %d x %d, %.1f MB read a token\n", backend_describe(b), dtype_name(o->dtype), info->n_layers,
           info->hidden, (double)info->decode_bytes * 1e-6);
    printf("  %.1f tok/s (%.1f .. %.1f), %.1f GB/s = %.0f %% of the %.1f GB/s this machine reads\n", rate, rates[0],
           rates[ROUNDS - 1], used, 100 * used / read, read);
    return STATUS_OK;
}

int bench_decode(int argc, char **argv) {
    struct decode_options o;
    struct error e = {0};
    struct backend *b = NULL;
    struct comm *c = NULL;
    struct model *m = NULL;
    if (!parse(argc, argv, &o)) {
        fputs(usage_text, stderr);
        return 2;
    }
    struct model_options options = {.convert = true, .dtype = o.dtype, .random = true};
    enum status status = backend_open(&b, "cpu", &(struct backend_options){.threads = o.threads}, &e);
    if (status == STATUS_OK) status = comm_open_single(&c, &e);
    if (status == STATUS_OK) status = model_open(&m, o.folder, b, c, &options, &e);
    if (status == STATUS_OK) status = measure(&o, b, m, &e);
    if (status) fprintf(stderr, "retro-bench decode: %s\n", e.text);
    model_close(m);
    comm_close(c);
    backend_close(b);
    return status != STATUS_OK;
}
