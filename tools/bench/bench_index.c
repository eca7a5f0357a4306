/* tools/bench/bench_index.c: retro-bench index: what a kind of index costs and finds: how long it
 * is built, its bytes in memory and on the disk, the time of a search by one thread, and the recall
 * against exact search.
 *
 * The vectors are made as those of text lie. MiniLM's of 20 105 chunks of manuals were measured:
 * their mean has length 0.37, the variance along the i-th principal axis falls as (i + 1)^-0.65
 * exp(-i / 200), chunks of one document have a cosine of 0.55 in the median, the nearest chunk one
 * of 0.74. So a vector is the mean, and the sum of what its topic (20 documents), its document (41
 * chunks) and itself add, with 0.22, 0.26 and 0.52 of the variance, each drawn with that spectrum
 * and turned by reflections, so that no axis matters more than others. Queries are further chunks
 * of documents that are there. */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/base/buffer.h"
#include "retrieval/index/index_recall.h"
#include "tools/bench/bench.h"

enum { DEFAULT_VECTORS = 1000000, DEFAULT_DIMS = 384, DEFAULT_K = 2, QUERIES = 500 };
enum { DOCUMENT_CHUNKS = 41, TOPIC_DOCUMENTS = 20, REFLECTIONS = 6 };
enum draw_level { DRAW_MEAN, DRAW_TOPIC, DRAW_DOCUMENT, DRAW_CHUNK, DRAW_REFLECTION };

#define MEAN_LENGTH 0.37

struct index_bench {
    const struct bench_options *o;
    int64_t count;
    int dim, k;
    float *deviations;  /* [dim] along each axis, before it is turned */
    float *reflections; /* [REFLECTIONS, dim] unit vectors */
    char folder[BENCH_FOLDER_SIZE], vectors_path[64], index_path[64];
};

/* About normally distributed: the sum of four uniform numbers. */
static float draw(uint64_t *state) {
    *state += 0x9E3779B97F4A7C15u;
    uint64_t bits = (*state ^ *state >> 30) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EBu;
    bits ^= bits >> 31;
    int32_t sum = (int32_t)(bits & 0xffff) + (int32_t)(bits >> 16 & 0xffff) +
                  (int32_t)(bits >> 32 & 0xffff) + (int32_t)(bits >> 48);
    return (float)(sum - 131070) * (float)(1.7320508 / 65536);
}

static uint64_t draw_seed(enum draw_level level, uint64_t number) {
    return (number * 8 + (uint64_t)level + 1) * 0xD1342543DE82EF95u;
}

/* row += share of the variance of what that part of the level adds. */
static void add_part(const struct index_bench *bench, float *row, enum draw_level level,
                     uint64_t number, float share) {
    uint64_t state = draw_seed(level, number);
    float scale = sqrtf(share);
    for (int i = 0; i < bench->dim; i++) row[i] += scale * bench->deviations[i] * draw(&state);
}

static void scale_to(float *row, int dim, double length) {
    double square = 1e-30;
    for (int i = 0; i < dim; i++) square += (double)row[i] * row[i];
    float scale = (float)(length / sqrt(square));
    for (int i = 0; i < dim; i++) row[i] *= scale;
}

static void reflect(const struct index_bench *bench, float *row) {
    for (int j = 0; j < REFLECTIONS; j++) {
        const float *u = bench->reflections + (size_t)j * (size_t)bench->dim;
        float product = 0;
        for (int i = 0; i < bench->dim; i++) product += u[i] * row[i];
        for (int i = 0; i < bench->dim; i++) row[i] -= 2 * product * u[i];
    }
}

/* Chunk `number` of a document, whichever thread makes it. */
static void make_row(const struct index_bench *bench, float *row, uint64_t document,
                     uint64_t number) {
    uint64_t state = draw_seed(DRAW_MEAN, 0);
    for (int i = 0; i < bench->dim; i++) row[i] = draw(&state);
    scale_to(row, bench->dim, MEAN_LENGTH / sqrt(1 - MEAN_LENGTH * MEAN_LENGTH));
    add_part(bench, row, DRAW_TOPIC, document / TOPIC_DOCUMENTS, 0.22F);
    add_part(bench, row, DRAW_DOCUMENT, document, 0.26F);
    add_part(bench, row, DRAW_CHUNK, number, 0.52F);
    reflect(bench, row);
    scale_to(row, bench->dim, 1);
}

static void make_spectrum(struct index_bench *bench) {
    double sum = 0;
    bench->deviations = xmalloc((size_t)bench->dim * sizeof *bench->deviations);
    bench->reflections =
        xmalloc((size_t)REFLECTIONS * (size_t)bench->dim * sizeof *bench->reflections);
    for (int i = 0; i < bench->dim; i++) sum += pow(i + 1, -0.65) * exp(-i / 200.0);
    for (int i = 0; i < bench->dim; i++)
        bench->deviations[i] = (float)sqrt(pow(i + 1, -0.65) * exp(-i / 200.0) / sum);
    for (int j = 0; j < REFLECTIONS; j++) {
        float *u = bench->reflections + (size_t)j * (size_t)bench->dim;
        uint64_t state = draw_seed(DRAW_REFLECTION, (uint64_t)j);
        for (int i = 0; i < bench->dim; i++) u[i] = draw(&state);
        scale_to(u, bench->dim, 1);
    }
}

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
            make_row(bench, rows + (size_t)i * dim, number / DOCUMENT_CHUNKS, number);
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
        make_row(bench, queries + i * (size_t)bench->dim, i * 7919 % documents,
                 (uint64_t)bench->count + i);
    return queries;
}

/* Bytes of this process that are in memory and are no file's. */
static size_t memory_taken(void) {
    unsigned long all = 0, resident = 0, shared = 0;
    malloc_trim(0); /* what is free already is nobody's */
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%lu %lu %lu", &all, &resident, &shared) != 3) resident = shared = 0;
    if (f) fclose(f);
    return (resident - shared) * (size_t)sysconf(_SC_PAGESIZE);
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
    size_t before = memory_taken();
    if (index_open_faiss(&the_index, bench->index_path, bench->count, bench->dim, e))
        return e->status;
    if (!index_is_lossless(factory)) the_index = index_refine(the_index, vectors);
    bench_print(bench->o, "index.memory", "MiB",
                ((double)memory_taken() - (double)before) / (1 << 20));
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
    make_spectrum(&bench);
    enum status status = run_bench(&bench, e);
    bench_folder_remove(bench.folder);
    free(bench.deviations);
    free(bench.reflections);
    return status;
}
