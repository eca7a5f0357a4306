/* tests/reference/print_logits.c: print_logits MODEL DTYPE[/CACHE] OUT ID...: the logits of all
 * rows of one sequence without neighbours, f32, to a file; the width of a row on standard output.
 * compare_gguf.py and compare_cache.py call it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/run/session/session.h"

static _Noreturn void fail(const struct error *e) {
    fprintf(stderr, "%s\n", e->text);
    exit(1);
}

static void write_logits(struct backend *b, struct model *m, const char *out, const int32_t *ids,
                         int n) {
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = n,
                                    .max_step_rows = n,
                                    .max_logit_rows = n,
                                    .max_neighbors = 1,
                                    .kv_dtype = model_info(m)->cache_dtype};
    struct neighbor_tokens *none = xcalloc((size_t)n, sizeof *none);
    int chunk = model_info(m)->chunk_length;
    struct grid grid = chunk ? grid_make(GRID_END, n, chunk) : (struct grid){1, 1};
    struct session_pool *pool = NULL;
    struct session *s = NULL;
    struct tensor logits;
    struct error e;
    if (session_pool_open(&pool, m, &limits, &e) || session_open(&s, pool, grid, &e)) fail(&e);
    struct step_item item = {
        .session = s, .tokens = ids, .n_tokens = n, .neighbors = none, .n_logits = n};
    if (session_step(pool, &item, 1, &logits, &e)) fail(&e);
    size_t size = (size_t)n * (size_t)model_info(m)->padded_vocab;
    float *host = xcalloc(size, sizeof *host);
    backend_download(b, host, logits.data, size * sizeof *host);
    if (backend_sync(b, &e)) fail(&e);

    FILE *f = fopen(out, "wb");
    if (f == NULL || fwrite(host, sizeof *host, size, f) != size || fclose(f) != 0) exit(1);
    printf("%d\n", model_info(m)->padded_vocab);
    free(host);
    free(none);
    session_close(s);
    session_pool_close(pool);
}

/* "auto" or a type of weights, perhaps with one of keys and values behind a slash. */
static bool parse_types(char *text, struct model_options *options) {
    char *slash = strchr(text, '/');
    if (slash != NULL) {
        *slash = '\0';
        options->cache_given = true;
        if (!dtype_parse(&options->cache_dtype, slash + 1)) return false;
    }
    options->convert = strcmp(text, "auto") != 0;
    return !options->convert || dtype_parse(&options->dtype, text);
}

int main(int argc, char **argv) {
    struct backend *b = NULL;
    struct comm *comm = NULL;
    struct model *m = NULL;
    struct error e;
    struct model_options o = {0};
    if (argc < 5 || !parse_types(argv[2], &o)) {
        fprintf(stderr,
                "usage: print_logits MODEL auto|f32|f16|bf16[/f32|f16|bf16|int8] OUT ID...\n");
        return 2;
    }
    int32_t *ids = xcalloc((size_t)argc, sizeof *ids);
    for (int i = 4; i < argc; i++) ids[i - 4] = atoi(argv[i]);
    if (backend_open(&b, "cpu", &(struct backend_options){0}, &e) || comm_open_single(&comm, &e) ||
        model_open(&m, argv[1], b, comm, &o, &e))
        fail(&e);
    write_logits(b, m, argv[3], ids, argc - 4);
    model_close(m);
    comm_close(comm);
    backend_close(b);
    free(ids);
    return 0;
}
