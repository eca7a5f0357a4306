/* tools/index/index_measure.c: retro-index stats --recall: what a collection's index finds of what exact search finds.
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
static enum status sample_chunks(struct measurement *m, struct error *e) {
    const struct index *index = disk_generation_index(m->collection);
    m->n = index->count < SAMPLE_CHUNKS ? (int)index->count : SAMPLE_CHUNKS;
    m->queries = xmalloc((size_t)m->n * (size_t)index->dim * sizeof *m->queries);
    m->own = xmalloc((size_t)m->n * sizeof *m->own);
    for (int i = 0; i < m->n; i++) {
        m->own[i] = i * index->count / m->n;
        if (index_vectors(index, m->own[i], 1, m->queries + (size_t)i * (size_t)index->dim, e)) return e->status;
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

static enum status embed_lines(struct measurement *m, struct text_span text, struct error *e) {
    struct embedder embedder = {0};
    struct tokenizer *tokenizer = NULL;
    struct text_span *lines = find_lines(text, &m->n);
    enum status status =
        m->n > 0 ? STATUS_OK : error_set(e, STATUS_INVALID, "%s: no line has a query", m->arguments->neighbors.queries);
    if (status == STATUS_OK)
        status = makers_open(&m->arguments->config, disk_generation_info(m->collection), &embedder, &tokenizer, e);
    if (status == STATUS_OK) {
        m->queries = xmalloc((size_t)m->n * (size_t)embedder.dim * sizeof *m->queries);
        struct embed_request request = {.texts = lines, .n = m->n, .role = EMBED_QUERY, .vectors = m->queries};
        status = embedder_embed(&embedder, &request, e);
    }
    tokenizer_close(tokenizer);
    embedder_model_close(&embedder);
    free(lines);
    return status;
}

static enum status read_queries(struct measurement *m, struct error *e) {
    struct file_map map;
    enum status status = file_map_open(&map, m->arguments->neighbors.queries, e);
    if (status) return status;
    status = embed_lines(m, (struct text_span){(const char *)map.data, map.size}, e);
    file_map_close(&map);
    return status;
}

static enum status measure(struct measurement *m, struct recall_report *out, struct error *e) {
    const struct index *index = disk_generation_index(m->collection);
    struct recall_sample sample = {
        .queries = m->queries, .own = m->own, .n = m->n, .k = m->arguments->k, .cancelled = &index_interrupted};
    if (index->count <= sample.k)
        return error_set(e, STATUS_INVALID,
                         "the generation has %lld chunks, recall@%d needs more: -k sets another number",
                         (long long)index->count, sample.k);
    out->n = m->n;
    out->k = sample.k;
    out->own = m->own != NULL;
    return index_recall(index, &sample, &out->figures, e);
}

enum status index_measure_recall(const struct index_arguments *a, struct recall_report *out, struct error *e) {
    struct disk_generation *c;
    enum status status = disk_generation_open(&c, a->rest[0], e);
    if (status) return status;
    struct measurement m = {.arguments = a, .collection = c};
    index_catch_interrupts();
    status = a->neighbors.queries ? read_queries(&m, e) : sample_chunks(&m, e);
    if (status == STATUS_OK) status = measure(&m, out, e);
    free(m.queries);
    free(m.own);
    disk_generation_close(c);
    return status;
}
