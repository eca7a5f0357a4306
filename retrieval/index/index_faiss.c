/* retrieval/index/index_faiss.c: FAISS as an index (faiss_api.h opens it). Inner product on unit
 * vectors throughout, so a similarity is a cosine. FAISS keeps the message of a failed call per
 * thread until the next one: it is copied at once.
 */
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/base/buffer.h"
#include "retrieval/index/faiss_file.h"
#include "retrieval/index/index.h"

/* How many vectors a kind of index is sized for when nothing is known but that it is asked for. */
enum { COUNT_OF_CHECK = 1 << 20 };

void index_set_threads(int threads) { omp_set_num_threads(max_int(1, threads)); }

#if HAVE_FAISS

#include "retrieval/index/index_faiss.h"

enum { SPARE = 8 };

/* The text behind `mark`; the whole text where there is none. */
static const char *skip_past(const char *text, const char *mark) {
    const char *at = strstr(text, mark);
    return at ? at + strlen(mark) : text;
}

/* FAISS' messages name the C++ function, the file with its line, and the condition; then they say
 * what is wrong. */
enum status faiss_failed(struct error *e, const char *what) {
    const char *text = faiss.get_last_error();
    const char *line = text ? strstr(text, ".cpp:") : NULL;
    if (line) text = skip_past(line + strlen(".cpp:"), ": ");
    if (text) text = skip_past(text, "' failed: ");
    return error_set(e, STATUS_INTERNAL, "FAISS: %s: %s", what,
                     text && *text ? text : "no message");
}

static enum status make_empty(FaissIndex **out, const char *factory, int dim, struct error *e) {
    enum status status = faiss_open(e);
    if (status) return status;
    if (faiss.index_factory(out, dim, factory, METRIC_INNER_PRODUCT) == 0) return STATUS_OK;
    faiss_failed(e, factory);
    return e->status = STATUS_INVALID;
}

enum status index_check_factory(const char *asked, int dim, struct error *e) {
    char factory[INDEX_FACTORY_SIZE];
    FaissIndex *index = NULL;
    if (index_resolve(factory, asked, COUNT_OF_CHECK, dim, e)) return e->status;
    if (strcmp(factory, INDEX_EXACT) == 0) return STATUS_OK;
    enum status status = make_empty(&index, factory, dim, e);
    if (status == STATUS_OK) faiss.Index_free(index);
    return status;
}

/* How far a search looks; FAISS keeps the numbers in the file. An inverted file visits a share of
 * its lists, of codes of a byte a number more in less time (docs/results/million.md); a graph keeps
 * the best BEAM nodes at hand. */
enum { LEAST_PROBES = 16, PROBES_SHARE = 16, PROBES_SHARE_BYTES = 10, BEAM = 128 };

static enum status set_parameter(FaissIndex *index, const char *name, double value,
                                 struct error *e) {
    FaissParameterSpace *space = NULL;
    if (faiss.ParameterSpace_new(&space)) return faiss_failed(e, "parameters");
    enum status status = STATUS_OK;
    if (faiss.ParameterSpace_set_index_parameter(space, index, name, value))
        status = faiss_failed(e, name);
    faiss.ParameterSpace_free(space);
    return status;
}

static enum status set_search(FaissIndex *index, const char *factory, struct error *e) {
    const char *ivf = strstr(factory, "IVF");
    int lists = ivf ? atoi(ivf + 3) : 0,
        share = strstr(factory, "SQ8") ? PROBES_SHARE_BYTES : PROBES_SHARE;
    if (lists > 0)
        return set_parameter(index, "nprobe", min_int(lists, max_int(LEAST_PROBES, lists / share)),
                             e);
    return strstr(factory, "HNSW") ? set_parameter(index, "efSearch", BEAM, e) : STATUS_OK;
}

/* Training looks at so many vectors for each list, and at SAMPLED_LEAST for what else is learned:
 * more find nothing better and take the time of a training that grows with the collection. */
enum { SAMPLED_FOR_LIST = 64, SAMPLED_LEAST = 65536 };

/* The vectors that the index is trained on: those given, or all, or enough at equal distances in
 * *sample, which the caller frees. */
static enum status choose_training(const struct index_source *source, const char *factory,
                                   float **sample, const float **training, int64_t *n,
                                   struct error *e) {
    const char *ivf = strstr(factory, "IVF");
    int64_t enough = (int64_t)SAMPLED_FOR_LIST * (ivf ? atoi(ivf + 3) : 0);
    size_t dim = (size_t)source->dim;
    *sample = NULL;
    *training = source->training ? source->training : source->vectors;
    *n = source->training ? source->n_training : source->count;
    if (enough < SAMPLED_LEAST) enough = SAMPLED_LEAST;
    if (source->training || *n <= enough) return STATUS_OK;

    *sample = malloc((size_t)enough * dim * sizeof **sample);
    if (*sample == NULL)
        return error_set(e, STATUS_NO_MEMORY, "training the index: %lld vectors of %d numbers",
                         (long long)enough, source->dim);
    for (int64_t i = 0; i < enough; i++) {
        int64_t from = (int64_t)((double)i * (double)*n / (double)enough);
        memcpy(*sample + (size_t)i * dim, source->vectors + (size_t)from * dim,
               dim * sizeof **sample);
    }
    *training = *sample;
    *n = enough;
    return STATUS_OK;
}

static enum status train(FaissIndex *index, const struct index_source *source, const char *factory,
                         struct error *e) {
    float *sample;
    const float *training;
    int64_t n;
    if (faiss.Index_is_trained(index)) return STATUS_OK;
    if (choose_training(source, factory, &sample, &training, &n, e)) return e->status;
    enum status status = STATUS_OK;
    if (faiss.Index_train(index, n, training))
        status = faiss_failed(
            e, "training the index (does it have more lists or codes than there are vectors?)");
    free(sample);
    return status;
}

/* Vectors are added in pieces: FAISS turns and encodes a whole call's at once, in memory. */
static enum status add_vectors(FaissIndex *index, const struct index_source *source,
                               struct error *e) {
    enum { PIECE = 1 << 16 };
    for (int64_t first = 0; first < source->count; first += PIECE) {
        int64_t n = source->count - first < PIECE ? source->count - first : PIECE;
        if (faiss.Index_add(index, n, source->vectors + (size_t)first * (size_t)source->dim))
            return faiss_failed(e, "adding vectors");
    }
    return STATUS_OK;
}

static enum status fill(FaissIndex *index, const struct index_source *source, const char *factory,
                        struct error *e) {
    if (faiss_check_room(e) || train(index, source, factory, e) || add_vectors(index, source, e))
        return e->status;
    return set_search(index, factory, e);
}

static enum status make(FaissIndex **out, const struct index_source *source, struct error *e) {
    char factory[INDEX_FACTORY_SIZE];
    FaissIndex *index = NULL;
    if (index_resolve(factory, source->factory, source->count, source->dim, e) ||
        make_empty(&index, factory, source->dim, e))
        return e->status;
    enum status status = fill(index, source, factory, e);
    if (status)
        faiss.Index_free(index);
    else
        *out = index;
    return status;
}

/* An index of a kind that is not read may not be written. */
static enum status check_written(const char *path, int64_t count, int dim, struct error *e) {
    struct file_map map;
    if (file_map_open(&map, path, e)) return e->status;
    struct faiss_file file = {.data = map.data, .size = map.size, .name = path};
    enum status status = faiss_file_check(file, count, dim, e);
    file_map_close(&map);
    return status;
}

enum status index_build_faiss(const char *path, const char *factory, const float *vectors,
                              int64_t count, int dim, struct error *e) {
    FaissIndex *index;
    struct index_source source = {
        .factory = factory, .vectors = vectors, .count = count, .dim = dim};
    enum status status = make(&index, &source, e);
    if (status) return status;
    if (faiss.write_index_fname(index, path)) status = faiss_failed(e, path);
    /* As the collection's other files: vectors tell of texts. */
    if (status == STATUS_OK && chmod(path, 0600) != 0)
        status = error_errno(e, "%s: its mode", path);
    faiss.Index_free(index);
    return status ? status : check_written(path, count, dim, e);
}

static void lock(const struct faiss_index *faiss_index) {
    if (faiss_index->gpu) pthread_mutex_lock((pthread_mutex_t *)&faiss_index->gpu_lock);
}
static void unlock(const struct faiss_index *faiss_index) {
    if (faiss_index->gpu) pthread_mutex_unlock((pthread_mutex_t *)&faiss_index->gpu_lock);
}

/* From 20 queries on, FAISS multiplies matrices, whose sums have another order. The GPU multiplies
 * them anyway. */
enum { SUMMED_ONE_BY_ONE = 16 };

static int ask(const struct faiss_index *faiss_index, struct index_query query, int64_t *ids,
               float *similarities) {
    int slice = query.bulk || faiss_index->gpu ? query.n : SUMMED_ONE_BY_ONE, failed = 0;
    lock(faiss_index);
    for (int first = 0; first < query.n && !failed; first += slice) {
        size_t at = (size_t)first * (size_t)query.k;
        struct index_query part = query;
        part.n = min_int(slice, query.n - first);
        part.vectors += (size_t)first * (size_t)faiss_index->base.dim;
        failed = faiss_index->mapped
                     ? faiss_lists_search(faiss_index, part, ids + at, similarities + at)
                     : faiss.Index_search(faiss_index->faiss, part.n, part.vectors, part.k,
                                          similarities + at, ids + at);
    }
    unlock(faiss_index);
    return failed;
}

/* FAISS leaves equal similarities in any order: the lower id comes first, as in exact search. */
static void order_ties(int64_t *ids, float *similarities, int k) {
    for (int i = 1; i < k; i++)
        for (int j = i;
             j > 0 && similarities[j] == similarities[j - 1] && ids[j] >= 0 && ids[j] < ids[j - 1];
             j--) {
            int64_t id = ids[j];
            ids[j] = ids[j - 1];
            ids[j - 1] = id;
        }
}

/* One search, its results checked and in order. */
static enum status search_once(const struct faiss_index *faiss_index, struct index_query query,
                               int64_t *ids, float *similarities, struct error *e) {
    int k = query.k;
    /* FAISS returns without writing anything when the index is empty. */
    for (size_t i = 0; i < (size_t)query.n * (size_t)k; i++) ids[i] = -1;
    enum status status = query.bulk ? faiss_check_room(e) : STATUS_OK;
    if (status) return status;
    if (query.n > 0 && ask(faiss_index, query, ids, similarities)) return faiss_failed(e, "search");
    for (int q = 0; q < query.n; q++) {
        int64_t *row = ids + (size_t)q * (size_t)k;
        float *row_similarities = similarities + (size_t)q * (size_t)k;
        for (int i = 0; i < k; i++) {
            if (row[i] >= faiss_index->base.count)
                return error_set(
                    e, STATUS_CORRUPT,
                    "index: neighbour %lld of %lld vectors; build the collection again",
                    (long long)row[i], (long long)faiss_index->base.count);
            if (row[i] < 0) {
                row[i] = -1;
                row_similarities[i] = -2;
            }
        }
        order_ties(row, row_similarities, k);
    }
    return STATUS_OK;
}

/* k and the other queries decide which of equally similar vectors FAISS finds. Asked for more than
 * k, it shows whether a tie crosses the cut: not if the last result is less similar than the k-th.
 */
static bool tie_is_whole(const int64_t *ids, const float *similarities, int k, int width) {
    return width > k && (ids[width - 1] < 0 || similarities[width - 1] < similarities[k - 1]);
}

/* Searches one query wider and wider until the tie at its k-th result is whole. */
static enum status settle_tie(const struct faiss_index *faiss_index, struct index_query query,
                              int64_t *ids, float *similarities, struct error *e) {
    int k = query.k;
    enum status status = STATUS_OK;
    bool whole = false;
    for (int width = k + SPARE; !whole && width < INDEX_WIDEST && status == STATUS_OK;) {
        width = min_int(INDEX_WIDEST, 4 * width);
        int64_t *wide_ids = xmalloc((size_t)width * sizeof *wide_ids);
        float *wide_similarities = xmalloc((size_t)width * sizeof *wide_similarities);
        query.k = width;
        status = search_once(faiss_index, query, wide_ids, wide_similarities, e);
        whole = status == STATUS_OK && tie_is_whole(wide_ids, wide_similarities, k, width);
        memcpy(ids, wide_ids, (size_t)k * sizeof *ids);
        memcpy(similarities, wide_similarities, (size_t)k * sizeof *similarities);
        free(wide_ids);
        free(wide_similarities);
    }
    return status;
}

static enum status faiss_index_search(const struct index *base, struct index_query query,
                                      int64_t *ids, float *similarities, struct error *e) {
    int n = query.n, k = query.k;
    const struct faiss_index *faiss_index = (const struct faiss_index *)base;
    int width = k < INDEX_WIDEST - SPARE ? k + SPARE : k;
    int64_t *wide_ids = xmalloc(((size_t)n * (size_t)width + 1) * sizeof *wide_ids);
    float *wide_similarities = xmalloc(((size_t)n * (size_t)width + 1) * sizeof *wide_similarities);
    enum status status = search_once(
        faiss_index,
        (struct index_query){.vectors = query.vectors, .n = n, .k = width, .bulk = query.bulk},
        wide_ids, wide_similarities, e);
    for (int q = 0; q < n && status == STATUS_OK; q++) {
        size_t row = (size_t)q * (size_t)k, wide = (size_t)q * (size_t)width;
        memcpy(ids + row, wide_ids + wide, (size_t)k * sizeof *ids);
        memcpy(similarities + row, wide_similarities + wide, (size_t)k * sizeof *similarities);
        if (!tie_is_whole(wide_ids + wide, wide_similarities + wide, k, width))
            status = settle_tie(
                faiss_index,
                (struct index_query){
                    .vectors = query.vectors + (size_t)q * (size_t)base->dim, .n = 1, .k = k},
                ids + row, similarities + row, e);
    }
    free(wide_ids);
    free(wide_similarities);
    return status;
}

static enum status faiss_index_vectors(const struct index *base, int64_t first, int n,
                                       float *vectors, struct error *e) {
    const struct faiss_index *faiss_index = (const struct faiss_index *)base;
    if (faiss_index->lists_on_gpu)
        return error_set(e, STATUS_UNSUPPORTED,
                         "an inverted file on a GPU gives no vectors back; use \"cpu\"");
    lock(faiss_index);
    int failed = !faiss_index->has_map && n > 0 &&
                 faiss.Index_reconstruct_n(faiss_index->faiss, first, n, vectors);
    for (int i = 0; faiss_index->has_map && i < n && !failed; i++)
        failed = faiss.Index_reconstruct(faiss_index->faiss, first + i,
                                         vectors + (size_t)i * (size_t)base->dim);
    unlock(faiss_index);
    return failed ? faiss_failed(e, "reading vectors") : STATUS_OK;
}

static void faiss_index_close(struct index *base) {
    struct faiss_index *faiss_index = (struct faiss_index *)base;
    faiss.Index_free(faiss_index->faiss);
    faiss_gpu_close(faiss_index->gpu);
    pthread_mutex_destroy(&faiss_index->gpu_lock);
    free(faiss_index);
}

static const struct index_ops faiss_ops = {.name = "faiss",
                                           .search = faiss_index_search,
                                           .move = faiss_index_move,
                                           .vectors = faiss_index_vectors,
                                           .close = faiss_index_close};

static struct index *wrap(FaissIndex *index, int64_t count, int dim) {
    struct faiss_index *faiss_index = xcalloc(1, sizeof *faiss_index);
    faiss_index->base = (struct index){.ops = &faiss_ops, .dim = dim, .count = count};
    faiss_index->faiss = index;
    pthread_mutex_init(&faiss_index->gpu_lock, NULL);
    return &faiss_index->base;
}

enum status index_make_faiss(struct index **out, const struct index_source *source,
                             struct error *e) {
    FaissIndex *index;
    enum status status = make(&index, source, e);
    if (status == STATUS_OK) *out = wrap(index, source->count, source->dim);
    return status;
}

/* FAISS reads the very bytes that were checked, or maps them where they are. */
static enum status read_checked(FaissIndex **index, const struct file_map *map, const char *path,
                                int64_t count, int dim, struct error *e) {
    struct faiss_file file = {.data = map->data, .size = map->size, .name = path};
    if (faiss_file_check(file, count, dim, e)) return e->status;
    if (faiss_lists_are_in(map)) return faiss_lists_open(index, path, e);
    FILE *stream = fmemopen((void *)(uintptr_t)map->data, map->size, "rb");
    if (stream == NULL) return error_errno(e, "%s: read", path);
    enum status status = faiss.read_index(stream, 0, index) ? faiss_failed(e, path) : STATUS_OK;
    fclose(stream);
    return status;
}

/* An inverted file finds a vector by its number only through a map; without one it looks through
 * all lists. */
static enum status map_vectors(struct faiss_index *faiss_index, struct error *e) {
    FaissIndexPreTransform *turned = faiss.IndexPreTransform_cast(faiss_index->faiss);
    FaissIndexIVF *ivf =
        faiss.IndexIVF_cast(turned ? faiss.IndexPreTransform_index(turned) : faiss_index->faiss);
    if (ivf == NULL) return STATUS_OK;
    if (faiss.IndexIVF_make_direct_map(ivf, 1)) return faiss_failed(e, "the map of vectors");
    faiss_index->has_map = true;
    return STATUS_OK;
}

enum status index_open_faiss(struct index **out, const char *path, int64_t count, int dim,
                             struct error *e) {
    FaissIndex *index = NULL;
    struct file_map map;
    enum status status = faiss_open(e);
    if (status || file_map_open(&map, path, e)) return e->status;
    status = read_checked(&index, &map, path, count, dim, e);
    bool mapped = faiss_lists_are_in(&map);
    file_map_close(&map);
    if (status) return status;
    struct index *opened = wrap(index, count, dim);
    struct faiss_index *faiss_index = (struct faiss_index *)opened;
    if (mapped) faiss_index->mapped = faiss.IndexIVF_cast(index);
    status = map_vectors(faiss_index, e);
    if (status)
        index_close(opened);
    else
        *out = opened;
    return status;
}

#else

enum status index_build_faiss(const char *path, const char *factory, const float *vectors,
                              int64_t count, int dim, struct error *e) {
    (void)vectors, (void)count, (void)dim;
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s: index %s needs FAISS, which this build lacks; run make deps and build "
                     "again, or use --index " INDEX_EXACT,
                     path, factory ? factory : "by size");
}

enum status index_check_factory(const char *asked, int dim, struct error *e) {
    char factory[INDEX_FACTORY_SIZE];
    if (index_resolve(factory, asked, COUNT_OF_CHECK, dim, e)) return e->status;
    if (strcmp(factory, INDEX_EXACT) == 0) return STATUS_OK;
    return error_set(
        e, STATUS_UNSUPPORTED,
        "index %s needs FAISS, which this build lacks; run make deps and build again, or use "
        "--index " INDEX_EXACT,
        factory);
}

enum status index_make_faiss(struct index **out, const struct index_source *source,
                             struct error *e) {
    (void)out;
    return error_set(e, STATUS_UNSUPPORTED,
                     "index %s needs FAISS, which this build lacks; run make deps and build again",
                     source->factory ? source->factory : "by size");
}

enum status index_open_faiss(struct index **out, const char *path, int64_t count, int dim,
                             struct error *e) {
    (void)out, (void)count, (void)dim;
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s: needs FAISS, which this build lacks; run make deps and build again",
                     path);
}

#endif
