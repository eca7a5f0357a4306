/* tools/bench/bench_search.c: retro-bench search: how long a search among random vectors takes, on
 * the CPU or on a GPU.
 *
 * The vectors lie around as many directions as the inverted file has lists, as texts of many
 * subjects do, and these directions are its centres: a million vectors are there in seconds, and
 * nothing is trained. search.flat.8 is the time of one call with 8 queries; the copies to the
 * device and back are in it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/index/index.h"
#include "tools/bench/bench.h"

enum {
    DEFAULT_VECTORS = 1000000,
    DEFAULT_DIMS = 384,
    DEFAULT_K = 2,
    MOST_QUERIES = 64,
    MOST_ROUNDS = 32
};

struct search_bench {
    const struct bench_options *o;
    int64_t count;
    int dim, k, lists; /* lists 0: exact search */
    float *centres, *vectors, *queries;
};

/* Row `number` of a sequence that depends on nothing else, so that threads may make it in any
 * order: unit length, around `centre` or, without one, anywhere. */
static void make_row(float *row, const float *centre, int dim, uint64_t number) {
    uint64_t state = (number + 1) * 0x9E3779B97F4A7C15u;
    double square = 1e-30;
    for (int i = 0; i < dim; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        row[i] = (float)(int32_t)(state >> 32) * 0x1p-31F;
        if (centre) row[i] = row[i] + centre[i] * sqrtf((float)dim) * 0.5F;
        square += (double)row[i] * row[i];
    }
    float scale = (float)(1 / sqrt(square));
    for (int i = 0; i < dim; i++) row[i] *= scale;
}

/* n rows around the centres, or anywhere where there are none yet. */
static float *make_rows(const struct search_bench *bench, int64_t n, uint64_t first) {
    size_t dim = (size_t)bench->dim;
    float *rows = malloc((size_t)n * dim * sizeof *rows);
#pragma omp parallel for num_threads(bench->o->threads) if (rows != NULL)
    for (int64_t i = 0; i < (rows ? n : 0); i++) {
        uint64_t number = first + (uint64_t)i,
                 centre = number * 2654435761u % (uint64_t)max_int(1, bench->lists);
        make_row(rows + (size_t)i * dim, bench->centres ? bench->centres + centre * dim : NULL,
                 bench->dim, number);
    }
    return rows;
}

static enum status make_vectors(struct search_bench *bench, struct error *e) {
    uint64_t first = 0;
    if (bench->lists) {
        bench->centres = make_rows(bench, bench->lists, first);
        first += (uint64_t)bench->lists;
    }
    if (!bench->lists || bench->centres) bench->vectors = make_rows(bench, bench->count, first);
    if (bench->vectors)
        bench->queries =
            make_rows(bench, MOST_QUERIES * MOST_ROUNDS, first + (uint64_t)bench->count);
    if (bench->queries) return STATUS_OK;
    return error_set(e, STATUS_NO_MEMORY, "%lld vectors of %d numbers", (long long)bench->count,
                     bench->dim);
}

static enum status measure(const struct search_bench *bench, const struct index *the_index,
                           int queries, struct error *e) {
    int rounds = queries == 1 ? MOST_ROUNDS : 5;
    double times[MOST_ROUNDS];
    char name[32];
    int64_t *ids = xmalloc((size_t)queries * (size_t)bench->k * sizeof *ids);
    float *similarities = xmalloc((size_t)queries * (size_t)bench->k * sizeof *similarities);
    struct index_query query = {.vectors = bench->queries, .n = queries, .k = bench->k};
    enum status status = index_search(the_index, query, ids, similarities, e); /* warms up */
    for (int i = 0; i < rounds && status == STATUS_OK; i++) {
        query.vectors = bench->queries + (size_t)i * (size_t)queries * (size_t)bench->dim;
        double start = time_now();
        status = index_search(the_index, query, ids, similarities, e);
        times[i] = 1e3 * (time_now() - start);
    }
    free(ids);
    free(similarities);
    snprintf(name, sizeof name, "search.%s.%d", bench->lists ? "ivf" : "flat", queries);
    if (status == STATUS_OK) bench_print_rounds(bench->o, name, "ms", times, rounds);
    return status;
}

/* The vectors are freed as soon as the index has its own: both are large. */
static enum status open_index(struct search_bench *bench, struct index **out, const char *device,
                              struct error *e) {
    char factory[32] = "Flat";
    if (bench->lists) snprintf(factory, sizeof factory, "IVF%d,Flat", bench->lists);
    if (make_vectors(bench, e)) return e->status;
    struct index_source source = {.factory = factory,
                                  .vectors = bench->vectors,
                                  .training = bench->centres,
                                  .count = bench->count,
                                  .n_training = bench->lists,
                                  .dim = bench->dim};
    enum status status = index_make_faiss(out, &source, e);
    free(bench->vectors);
    bench->vectors = NULL;
    return status ? status : index_move(*out, device, e);
}

enum status bench_search(const struct bench_options *options, struct error *e) {
    static const int batches[] = {1, 8, MOST_QUERIES};
    const char *device = options->device ? options->device : "cpu";
    struct search_bench bench = {.o = options,
                                 .count = options->vectors ? options->vectors : DEFAULT_VECTORS,
                                 .dim = options->dims ? options->dims : DEFAULT_DIMS,
                                 .k = options->k ? options->k : DEFAULT_K};
    struct index *the_index = NULL;
    if (options->index && strcmp(options->index, "ivf") == 0)
        bench.lists = index_lists(bench.count);
    else if (options->index && strcmp(options->index, "flat") != 0)
        return error_set(e, STATUS_INVALID, "--index %s: expected flat or ivf", options->index);
    index_set_threads(options->threads);
    enum status status = open_index(&bench, &the_index, device, e);
    if (status == STATUS_OK)
        bench_print_title(options, "%lld vectors of %d numbers in %d lists, on %s, k %d",
                          (long long)bench.count, bench.dim, max_int(1, bench.lists), device,
                          bench.k);
    for (size_t i = 0; i < ARRAY_COUNT(batches) && status == STATUS_OK; i++)
        status = measure(&bench, the_index, batches[i], e);
    index_close(the_index);
    free(bench.centres);
    free(bench.vectors);
    free(bench.queries);
    return status;
}
