/* tools/index/index_measure.c: retro-index stats --recall: what a collection's index finds of what
 * exact search finds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/host/documents/embedder_model.h"
#include "tools/index/index.h"

/* Chunks that are queries where no file has any, and lines that are read of a file. */
enum { SAMPLE_CHUNKS = 200, MOST_LINES = 100000 };

struct measurement {
    const struct index_arguments *arguments;
    const struct disk_generation *collection;
    float *queries;
    int64_t *own; /* NULL: the queries are a file's */
    int n;
};

/* Chunks at equal distances. */
static enum status sample_chunks(struct measurement *measurement, struct error *e) {
    const struct index *index = disk_generation_index(measurement->collection);
    measurement->n = index->count < SAMPLE_CHUNKS ? (int)index->count : SAMPLE_CHUNKS;
    measurement->queries =
        xmalloc((size_t)measurement->n * (size_t)index->dim * sizeof *measurement->queries);
    measurement->own = xmalloc((size_t)measurement->n * sizeof *measurement->own);
    for (int i = 0; i < measurement->n; i++) {
        measurement->own[i] = i * index->count / measurement->n;
        if (index_vectors(index, measurement->own[i], 1,
                          measurement->queries + (size_t)i * (size_t)index->dim, e))
            return e->status;
    }
    return STATUS_OK;
}

/* The lines of `text`, without empty ones; the caller frees the list. Ends in *n. */
static struct text_span *find_lines(struct text_span text, int *n) {
    struct text_span *lines = xmalloc((MOST_LINES + 1) * sizeof *lines);
    const char *at = text.text, *end = text.text + text.size;
    *n = 0;
    while (at < end && *n < MOST_LINES) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
        if (stop > at) {
            lines[*n] = (struct text_span){at, (size_t)(stop - at)};
            *n += 1;
        }
        at = stop + 1;
    }
    return lines;
}

static enum status embed_lines(struct measurement *measurement, struct text_span text,
                               struct error *e) {
    struct embedder embedder = {0};
    struct tokenizer *tokenizer = NULL;
    struct text_span *lines = find_lines(text, &measurement->n);
    enum status status = measurement->n > 0
                             ? STATUS_OK
                             : error_set(e, STATUS_INVALID, "%s: no line has a query",
                                         measurement->arguments->neighbors.queries);
    if (status == STATUS_OK)
        status =
            makers_open(&measurement->arguments->config,
                        disk_generation_info(measurement->collection), &embedder, &tokenizer, e);
    if (status == STATUS_OK) {
        measurement->queries =
            xmalloc((size_t)measurement->n * (size_t)embedder.dim * sizeof *measurement->queries);
        struct embed_request request = {.texts = lines,
                                        .n = measurement->n,
                                        .role = EMBED_QUERY,
                                        .vectors = measurement->queries};
        status = embedder_embed(&embedder, &request, e);
    }
    tokenizer_close(tokenizer);
    embedder_model_close(&embedder);
    free(lines);
    return status;
}

static enum status read_queries(struct measurement *measurement, struct error *e) {
    struct file_map map;
    enum status status = file_map_open(&map, measurement->arguments->neighbors.queries, e);
    if (status) return status;
    status = embed_lines(measurement, (struct text_span){(const char *)map.data, map.size}, e);
    file_map_close(&map);
    return status;
}

static enum status measure(struct measurement *measurement, struct recall_report *out,
                           struct error *e) {
    const struct index *index = disk_generation_index(measurement->collection);
    struct recall_sample sample = {.queries = measurement->queries,
                                   .own = measurement->own,
                                   .n = measurement->n,
                                   .k = measurement->arguments->k,
                                   .cancelled = &index_interrupted};
    if (index->count <= sample.k)
        return error_set(
            e, STATUS_INVALID,
            "the generation has %lld chunks, recall@%d needs more: -k sets another number",
            (long long)index->count, sample.k);
    out->n = measurement->n;
    out->k = sample.k;
    out->own = measurement->own != NULL;
    return index_recall(index, &sample, &out->figures, e);
}

enum status index_measure_recall(const struct index_arguments *arguments, struct recall_report *out,
                                 struct error *e) {
    struct disk_generation *generation;
    enum status status = disk_generation_open(&generation, arguments->rest[0], e);
    if (status) return status;
    struct measurement measurement = {.arguments = arguments, .collection = generation};
    index_catch_interrupts();
    status = arguments->neighbors.queries ? read_queries(&measurement, e)
                                          : sample_chunks(&measurement, e);
    if (status == STATUS_OK) status = measure(&measurement, out, e);
    free(measurement.queries);
    free(measurement.own);
    disk_generation_close(generation);
    return status;
}
