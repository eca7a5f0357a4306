/* tests/scale/scale.c: collections of a million chunks and what they cost, without a model: text
 * and vectors are made (made_text.h, tools/bench/bench_vectors.h), so that nothing is embedded.
 *
 *     scale make DIR CHUNKS TEXT...       builds a collection; TEXT are files for its vocabulary
 *     scale measure DIR CHUNKS TEXT...    opens it, searches it, changes it and compacts it
 *     scale search DIR CHUNKS TEXT...     opens it and searches it
 *     scale turn DIR CHUNKS TEXT...       turns it to other vectors while it is changed
 *     scale export DIR CHUNKS TEXT...     writes the same texts, vectors and queries as plain files
 *
 * Lines are "NAME VALUE UNIT". Times are of this process, without HTTP and without embedding. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "config/base/memory.h"
#include "tests/scale/scale.h"

void scale_print(const char *name, double value, const char *unit) {
    printf("%-28s %12.4g %s\n", name, value, unit);
    fflush(stdout);
}

/* Documents. */

static uint32_t mix_number(uint64_t number) {
    number *= 0x9E3779B97F4A7C15u;
    return (uint32_t)(number >> 40);
}

void scale_document_make(const struct scale *scale, struct scale_document *made, int64_t number,
                         int version) {
    enum { VOCABULARY = 30000 };
    uint64_t document = (uint64_t)number,
             first =
                 (document + (uint64_t)version * (uint64_t)scale->n_chunks) * SCALE_DOCUMENT_CHUNKS;
    snprintf(made->path, sizeof made->path, "made/%lld.txt", (long long)number);
    buffer_clear(&made->text);
    for (int i = 0; i < SCALE_DOCUMENT_CHUNKS; i++) {
        uint32_t start = (uint32_t)made->text.size;
        made_text_chunk(&scale->text, &made->text, document, first + (uint64_t)i);
        made->chunks[i] = (struct chunk_range){start, (uint32_t)made->text.size,
                                               (uint32_t)i * SCALE_CHUNK, SCALE_CHUNK};
        made_vector(&scale->vectors, made->vectors + (size_t)i * SCALE_DIM,
                    (document * SCALE_DOCUMENT_CHUNKS + (uint64_t)i) / SCALE_SUBJECT_CHUNKS,
                    first + (uint64_t)i);
    }
    for (int i = 0; i < SCALE_DOCUMENT_CHUNKS * SCALE_CHUNK; i++)
        made->ids[i] = (int32_t)(mix_number(first * SCALE_CHUNK + (uint64_t)i) % VOCABULARY);
    made->document = (struct collection_document){.path = made->path,
                                                  .title = "",
                                                  .text = {made->text.data, made->text.size},
                                                  .ids = made->ids,
                                                  .n = SCALE_DOCUMENT_CHUNKS * SCALE_CHUNK,
                                                  .chunks = made->chunks,
                                                  .n_chunks = SCALE_DOCUMENT_CHUNKS};
}

uint64_t scale_query_document(const struct scale *scale, int number) {
    return (uint64_t)number * 7919 % (uint64_t)(scale->n_chunks / SCALE_DOCUMENT_CHUNKS);
}

/* Vectors of queries begin behind those of the chunks. */
void scale_query_make(const struct scale *scale, int number, struct buffer *text, float *vector) {
    uint64_t document = scale_query_document(scale, number),
             subject = document * SCALE_DOCUMENT_CHUNKS / SCALE_SUBJECT_CHUNKS;
    made_text_query(&scale->text, text, document, (uint64_t)number);
    made_vector(&scale->vectors, vector, subject, ((uint64_t)1 << 40) + (uint64_t)number);
}

struct collection_options scale_options(const struct scale *scale) {
    return (struct collection_options){.chunk_length = SCALE_CHUNK,
                                       .cut = CHUNKS_GRID,
                                       .dim = SCALE_DIM,
                                       .embedder_hash = scale->embedder.hash,
                                       .embedder = scale->embedder.name,
                                       .tokenizer = "made"};
}

static enum status give_vector(void *self, const struct embed_request *request, struct error *e) {
    const struct scale *scale = self;
    (void)e;
    for (int i = 0; i < request->n; i++)
        memcpy(request->vectors + (size_t)i * SCALE_DIM, scale->query_vector,
               sizeof scale->query_vector);
    return STATUS_OK;
}

/* Building. */

static double processor_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static double peak_mib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

static double own_mib(void) { return (double)memory_own() / (1 << 20); }

/* Seconds that the builder took, without the making of text and vectors. */
static enum status add_documents(const struct scale *scale, struct generation_builder *builder,
                                 double *seconds, struct error *e) {
    struct scale_document *made = xcalloc(1, sizeof *made);
    enum status status = STATUS_OK;
    *seconds = 0;
    for (int64_t i = 0; i < scale->n_chunks / SCALE_DOCUMENT_CHUNKS && status == STATUS_OK; i++) {
        scale_document_make(scale, made, i, 0);
        double start = time_now();
        status = builder_add_document(builder, &made->document, e);
        if (status == STATUS_OK)
            status = builder_add_vectors(builder, made->vectors, SCALE_DOCUMENT_CHUNKS, e);
        *seconds += time_now() - start;
    }
    buffer_free(&made->text);
    free(made);
    return status;
}

static enum status make_collection(struct scale *scale, struct error *e) {
    const struct collection_options options = scale_options(scale);
    struct generation_builder *builder;
    double adding;
    if (builder_create(&builder, scale->dir, &options, e)) return e->status;
    enum status status = add_documents(scale, builder, &adding, e);
    if (status) {
        builder_abandon(builder);
        return status;
    }
    scale_print("build.add", adding, "s");
    double start = time_now(), worked = processor_seconds();
    status = builder_commit(builder, e);
    scale_print("build.commit", time_now() - start, "s");
    scale_print("build.commit.processor", processor_seconds() - worked, "s");
    scale_print("build.memory.peak", peak_mib(), "MiB");
    return status;
}

/* The whole. */

static enum status open_and_search(struct scale *scale, struct collection **collection,
                                   struct error *e) {
    double start = time_now();
    if (store_open(collection, scale->dir, e)) return e->status;
    scale_print("open", time_now() - start, "s");
    scale_print("open.memory", own_mib(), "MiB");
    enum status status = scale_measure_searches(scale, *collection, e);
    scale_print("search.memory", own_mib(), "MiB");
    if (status == STATUS_OK) status = scale_measure_recall(scale, e);
    if (status) collection_close(*collection);
    return status;
}

static enum status search(struct scale *scale, struct error *e) {
    struct collection *collection;
    if (open_and_search(scale, &collection, e)) return e->status;
    collection_close(collection);
    return STATUS_OK;
}

static enum status measure(struct scale *scale, struct error *e) {
    struct collection *collection;
    if (open_and_search(scale, &collection, e)) return e->status;
    enum status status = scale_measure_changes(scale, collection, e);
    if (status == STATUS_OK) status = scale_measure_compaction(scale, collection, e);
    scale_print("memory.peak", peak_mib(), "MiB");
    collection_close(collection);
    return status;
}

static const struct scale_command {
    const char *name;
    enum status (*run)(struct scale *scale, struct error *e);
} commands[] = {{"make", make_collection},
                {"measure", measure},
                {"search", search},
                {"turn", scale_turn},
                {"export", scale_export}};

static const struct scale_command *find_command(const char *name) {
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

int main(int argc, char **argv) {
    struct error e = {0};
    const struct scale_command *command = argc < 5 ? NULL : find_command(argv[1]);
    if (command == NULL) {
        fprintf(stderr, "expected: scale make|measure|search|turn|export DIR CHUNKS TEXT...\n");
        return 2;
    }
    struct scale *scale = xcalloc(1, sizeof *scale);
    scale->dir = argv[2];
    scale->n_chunks = atoll(argv[3]) / SCALE_DOCUMENT_CHUNKS * SCALE_DOCUMENT_CHUNKS;
    scale->embedder = (struct embedder){.dim = SCALE_DIM,
                                        .max_tokens = 1 << 20,
                                        .hash = 1,
                                        .name = "made",
                                        .prompts = {"", "", ""},
                                        .embed = give_vector,
                                        .self = scale};
    made_vectors_open(&scale->vectors, SCALE_DIM);
    enum status status = made_text_open(&scale->text, (const char *const *)argv + 4, argc - 4, &e);
    if (status == STATUS_OK) status = command->run(scale, &e);
    if (status) fprintf(stderr, "scale: %s\n", e.text);
    made_vectors_close(&scale->vectors);
    made_text_close(&scale->text);
    free(scale);
    return status ? 1 : 0;
}
