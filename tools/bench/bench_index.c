/* tools/bench/bench_index.c: retro-bench index: what a kind of index costs and finds: how long it
 * is built, its bytes in memory and on the disk, the time of a search by one thread, and the recall
 * against exact search. The vectors are made (bench_vectors.h); queries are further chunks of
 * documents that are there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/base/buffer.h"
#include "config/base/memory.h"
#include "retrieval/index/index_recall.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_vectors.h"

enum { DEFAULT_VECTORS = 1000000, DEFAULT_DIMS = 384, DEFAULT_K = 2, QUERIES = 500 };
enum { DOCUMENT_CHUNKS = 41 };

struct index_bench {
    const struct bench_options *o;
    int64_t count;
    int dim, k;
    struct made_vectors made;
    char folder[BENCH_FOLDER_SIZE], vectors_path[64], index_path[64];
};

/* Vectors lie in a file, as a collection's do. */
static enum status write_vectors(const struct index_bench *bench, struct error *e) {
    enum { PIECE = 4096 };
    size_t dim = (size_t)bench->dim;
    float *rows = xmalloc(PIECE * dim * sizeof *rows);
    FILE *f = fopen(bench->vectors_path, "wb");
    enum status status = f ? STATUS_OK : error_errno(e, "%s", bench->vectors_path);
    for (int64_t first = 0; first < bench->count && status == STATUS_OK; first += PIECE) {
        int n = (int)(bench->count - first < PIECE ? bench->count - first : PIECE);
#pragma omp parallel for num_threads(bench->o->threads)
        for (int i = 0; i < n; i++) {
            uint64_t number = (uint64_t)first + (uint64_t)i;
            made_vector(&bench->made, rows + (size_t)i * dim, number / DOCUMENT_CHUNKS, number);
        }
        if (fwrite(rows, dim * sizeof *rows, (size_t)n, f) != (size_t)n)
            status = error_errno(e, "%s", bench->vectors_path);
    }
    if (f && fclose(f) && status == STATUS_OK) status = error_errno(e, "%s", bench->vectors_path);
    free(rows);
    return status;
}

static float *make_queries(const struct index_bench *bench) {
    float *queries = xmalloc((size_t)QUERIES * (size_t)bench->dim * sizeof *queries);
    uint64_t documents = (uint64_t)bench->count / DOCUMENT_CHUNKS + 1;
    for (uint64_t i = 0; i < QUERIES; i++)
        made_vector(&bench->made, queries + i * (size_t)bench->dim, i * 7919 % documents,
                    (uint64_t)bench->count + i);
    return queries;
}

static double file_mib(const char *path) {
    struct stat the_stat = {0};
    return stat(path, &the_stat) == 0 ? (double)the_stat.st_size / (1 << 20) : 0;
}

static enum status build_index(const struct index_bench *bench, const float *vectors,
                               struct error *e) {
    double start = time_now();
    enum status status =
        index_build_faiss(bench->index_path, bench->o->index, vectors, bench->count, bench->dim, e);
    double seconds = time_now() - start;
    if (status) return status;
    bench_print(bench->o, "index.build", "s", seconds);
    bench_print(bench->o, "index.rate", "vectors/s", (double)bench->count / seconds);
    bench_print(bench->o, "index.disk", "MiB", file_mib(bench->index_path));
    return STATUS_OK;
}

static enum status measure_index(const struct index_bench *bench, const struct index *the_index,
                                 struct error *e) {
    float *queries = make_queries(bench);
    struct recall_figures found;
    struct recall_sample sample = {.queries = queries, .n = QUERIES, .k = bench->k};
    index_set_threads(bench->o->threads);
    enum status status = index_recall(the_index, &sample, &found, e);
    free(queries);
    if (status) return status;
    bench_print(bench->o, "index.search", "ms", found.median);
    bench_print(bench->o, "index.search.p99", "ms", found.p99);
    bench_print(bench->o, "index.recall.1", "", found.recall_first);
    bench_print(bench->o, "index.recall", "", found.recall);
    return STATUS_OK;
}

static enum status run_kind(const struct index_bench *bench, const char *factory,
                            const struct file_map *map, struct error *e) {
    const float *vectors = (const float *)(const void *)map->data;
    struct index *the_index;
    size_t before = memory_own();
    if (index_open_faiss(&the_index, bench->index_path, bench->count, bench->dim, e))
        return e->status;
    if (!index_is_lossless(factory)) the_index = index_refine(the_index, factory, vectors);
    bench_print(bench->o, "index.memory", "MiB",
                ((double)memory_own() - (double)before) / (1 << 20));
    enum status status = measure_index(bench, the_index, e);
    index_close(the_index);
    return status;
}

static enum status run_bench(const struct index_bench *bench, struct error *e) {
    char factory[INDEX_FACTORY_SIZE];
    struct file_map map = {0};
    if (index_resolve(factory, bench->o->index, bench->count, bench->dim, e) ||
        index_check_factory(factory, bench->dim, e) || write_vectors(bench, e) ||
        file_map_open(&map, bench->vectors_path, e))
        return e->status;
    bench_print_title(bench->o, "%s of %lld vectors of %d numbers, k %d", factory,
                      (long long)bench->count, bench->dim, bench->k);
    index_set_threads(bench->o->threads);
    enum status status = build_index(bench, (const float *)(const void *)map.data, e);
    if (status == STATUS_OK) status = run_kind(bench, factory, &map, e);
    file_map_close(&map);
    return status;
}

enum status bench_index(const struct bench_options *options, struct error *e) {
    struct index_bench bench = {.o = options,
                                .count = options->vectors ? options->vectors : DEFAULT_VECTORS,
                                .dim = options->dims ? options->dims : DEFAULT_DIMS,
                                .k = options->k ? options->k : DEFAULT_K};
    if (bench_folder_make(bench.folder, e)) return e->status;
    snprintf(bench.vectors_path, sizeof bench.vectors_path, "%s/vectors", bench.folder);
    snprintf(bench.index_path, sizeof bench.index_path, "%s/index", bench.folder);
    made_vectors_open(&bench.made, bench.dim);
    enum status status = run_bench(&bench, e);
    bench_folder_remove(bench.folder);
    made_vectors_close(&bench.made);
    return status;
}
