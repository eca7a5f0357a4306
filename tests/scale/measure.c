/* tests/scale/measure.c: searches, changes and a compaction of a made collection, timed. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "retrieval/index/index_recall.h"
#include "server/documents/collection_upkeep.h"
#include "tests/scale/scale.h"

enum { SEARCHES = 400, WARMING = 100, RECALL_QUERIES = 200, CHANGES = 50 };

static int compare_times(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void print_times(const char *name, double *times, int n) {
    static const struct {
        const char *name;
        double share;
    } shown[] = {{"p50", 0.5}, {"p95", 0.95}, {"most", 1}};
    if (n == 0) return;
    qsort(times, (size_t)n, sizeof *times, compare_times);
    for (size_t i = 0; i < ARRAY_COUNT(shown); i++) {
        char line[64];
        snprintf(line, sizeof line, "%s.%s", name, shown[i].name);
        scale_print(line, 1e3 * times[(int)((n - 1) * shown[i].share)], "ms");
    }
}

static double processor_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Of a search: by the clock, and of this program's threads on the processor, which other programs
 * lengthen less. */
struct search_time {
    double seconds, worked;
};

static enum status search_once(struct scale *scale, struct retriever *retriever, int number,
                               enum retriever_way way, struct search_time *time, struct error *e) {
    struct buffer text = {0};
    struct hits hits = {0};
    scale_query_make(scale, number, &text, scale->query_vector);
    struct retriever_query query = {
        .text = {text.data, text.size}, .k = SCALE_K, .choice = {.way = way}, .min_similarity = -1};
    double start = time_now(), worked = processor_time();
    enum status status = retriever_search(retriever, &query, 1, &hits, e);
    *time = (struct search_time){time_now() - start, processor_time() - worked};
    hits_free(&hits);
    buffer_free(&text);
    return status;
}

static enum status measure_way(struct scale *scale, struct retriever *retriever,
                               enum retriever_way way, const char *name, struct error *e) {
    double times[SEARCHES], worked[SEARCHES];
    struct search_time time;
    char processor[64];
    enum status status = STATUS_OK;
    for (int i = 0; i < WARMING && status == STATUS_OK; i++)
        status = search_once(scale, retriever, SEARCHES + i, way, &time, e);
    for (int i = 0; i < SEARCHES && status == STATUS_OK; i++) {
        status = search_once(scale, retriever, i, way, &time, e);
        times[i] = time.seconds;
        worked[i] = time.worked;
    }
    if (status) return status;
    snprintf(processor, sizeof processor, "%s.processor", name);
    print_times(name, times, SEARCHES);
    print_times(processor, worked, SEARCHES);
    return STATUS_OK;
}

static enum status open_retriever(struct scale *scale, struct collection *collection,
                                  struct retriever **out, struct error *e) {
    struct retriever_embedders embedders = {.texts = &scale->embedder};
    return retriever_open(out, collection, embedders, SCALE_K, e);
}

enum status scale_measure_searches(struct scale *scale, struct collection *collection,
                                   struct error *e) {
    struct retriever *retriever;
    struct search_time first;
    if (open_retriever(scale, collection, &retriever, e)) return e->status;
    enum status status = search_once(scale, retriever, 0, RETRIEVE_BOTH, &first, e);
    if (status == STATUS_OK) scale_print("search.first", 1e3 * first.seconds, "ms");
    if (status == STATUS_OK)
        status = measure_way(scale, retriever, RETRIEVE_NEAREST, "search.vectors", e);
    if (status == STATUS_OK)
        status = measure_way(scale, retriever, RETRIEVE_WORDS, "search.words", e);
    if (status == STATUS_OK)
        status = measure_way(scale, retriever, RETRIEVE_BOTH, "search.hybrid", e);
    retriever_close(retriever);
    return status;
}

enum status scale_measure_recall(struct scale *scale, struct error *e) {
    struct disk_generation *generation;
    struct recall_figures found;
    if (disk_generation_open(&generation, scale->dir, e)) return e->status;
    struct buffer text = {0};
    float *queries = xmalloc((size_t)RECALL_QUERIES * SCALE_DIM * sizeof *queries);
    for (int i = 0; i < RECALL_QUERIES; i++)
        scale_query_make(scale, i, &text, queries + (size_t)i * SCALE_DIM);
    buffer_free(&text);
    struct recall_sample sample = {.queries = queries, .n = RECALL_QUERIES, .k = SCALE_K};
    enum status status = index_recall(disk_generation_index(generation), &sample, &found, e);
    if (status == STATUS_OK) {
        scale_print("recall.10", found.recall, "");
        scale_print("recall.1", found.recall_first, "");
    }
    free(queries);
    disk_generation_close(generation);
    return status;
}

/* Changes. */

/* Whether the newest snapshot finds a chunk by its own vector. */
static enum status is_found(struct collection *collection, const struct scale_document *made,
                            bool *found, struct error *e) {
    struct snapshot *snapshot = collection_hold(collection);
    struct nearest_query query = {.vectors = made->vectors, .n = 1, .k = 1};
    int64_t id = -1;
    float similarity;
    enum status status = store_search(snapshot, &query, &id, &similarity, e);
    *found = status == STATUS_OK && id >= 0 &&
             strcmp(snapshot_chunk(snapshot, id).path, made->path) == 0 && similarity > 0.999F;
    snapshot_release(snapshot);
    return status;
}

static enum status change_once(struct scale *scale, struct collection *collection,
                               struct scale_document *made, int number, double *seconds,
                               struct error *e) {
    enum change_effect effect;
    char id[DOCUMENT_ID_SIZE];
    bool found;
    scale_document_make(scale, made, (int64_t)scale_query_document(scale, number), 1 + number);
    document_id_of_path(made->path, id);
    made->document.id = id;
    double start = time_now();
    enum status status =
        collection_put(collection, NULL, &made->document, made->vectors, &effect, e);
    if (status == STATUS_OK) status = is_found(collection, made, &found, e);
    *seconds = time_now() - start;
    if (status == STATUS_OK && (!found || effect != CHANGE_REPLACED))
        status = error_set(e, STATUS_INTERNAL, "%s was changed and is not found", made->path);
    return status;
}

enum status scale_measure_changes(struct scale *scale, struct collection *collection,
                                  struct error *e) {
    struct scale_document *made = xcalloc(1, sizeof *made);
    double times[CHANGES];
    enum status status = STATUS_OK;
    for (int i = 0; i < CHANGES && status == STATUS_OK; i++)
        status = change_once(scale, collection, made, i, &times[i], e);
    if (status == STATUS_OK) print_times("change", times, CHANGES);
    buffer_free(&made->text);
    free(made);
    return status;
}

/* Compaction, beside searches. */

struct compacting {
    struct collection *collection;
    atomic_bool done;
    bool done_well;
    double seconds;
};

static void *run_compaction(void *context) {
    struct compacting *compacting = context;
    double start = time_now();
    compacting->done_well = upkeep_compact(compacting->collection, NULL);
    compacting->seconds = time_now() - start;
    atomic_store(&compacting->done, true);
    return NULL;
}

enum status scale_measure_compaction(struct scale *scale, struct collection *collection,
                                     struct error *e) {
    enum { PAUSE_MICROSECONDS = 50000, MOST_SEARCHES = 1 << 16 };
    struct compacting compacting = {.collection = collection};
    struct retriever *retriever;
    pthread_t thread;
    int n = 0, n_slow = 0;
    if (open_retriever(scale, collection, &retriever, e)) return e->status;
    double *times = xmalloc(MOST_SEARCHES * sizeof *times);
    enum status status = STATUS_OK;
    pthread_create(&thread, NULL, run_compaction, &compacting);
    while (!atomic_load(&compacting.done) && n < MOST_SEARCHES && status == STATUS_OK) {
        struct search_time time = {0};
        status = search_once(scale, retriever, n % SEARCHES, RETRIEVE_BOTH, &time, e);
        times[n] = time.seconds;
        n_slow += times[n] > 0.1;
        double rest = 1e-6 * PAUSE_MICROSECONDS - times[n];
        n++;
        if (rest > 0) usleep((useconds_t)(1e6 * rest));
    }
    pthread_join(thread, NULL);
    if (status == STATUS_OK && !compacting.done_well)
        status = error_set(e, STATUS_INTERNAL, "%s is not compacted", scale->dir);
    scale_print("compact", compacting.seconds, "s");
    scale_print("compact.searches", n, "");
    scale_print("compact.slow", n_slow, "above 100 ms");
    print_times("compact.search", times, n);
    free(times);
    retriever_close(retriever);
    return status;
}
