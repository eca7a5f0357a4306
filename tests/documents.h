/* tests/documents.h: small documents whose text, tokens and vectors follow from a number and a
 * version: who finds one can tell whether it is whole. */
#pragma once

#include <math.h>
#include <stdio.h>

#include "retrieval/store/store.h"

enum { DIM = 8, CHUNK = 4, EOD = 999, IDS = 12, LONGEST = 11, PICTURE_DIM = 5 };
/* Of a second embedder, which a collection can be turned to. */
enum { OTHER_DIM = 6, OTHER_HASH = 4711 };
/* Ids of sparse weights, and the most of a chunk. */
enum { SPARSE_IDS = 40, SPARSE_MOST = 12 };

/* Document `id` in its version `version`: its text, tokens and vectors follow from both. */
struct made_document {
    char id[16], path[24], source[40], text[2 * LONGEST + 1], metadata[32];
    int32_t ids[LONGEST];
    struct chunk_range chunks[LONGEST / CHUNK + 1];
    float vectors[(LONGEST / CHUNK + 1) * DIM], other[(LONGEST / CHUNK + 1) * OTHER_DIM];
    float picture[PICTURE_DIM];
    uint32_t sparse_ends[LONGEST / CHUNK + 1];
    struct sparse_weight weights[(LONGEST / CHUNK + 1) * SPARSE_MOST];
    struct mark
        marks[2]; /* its first line, and a page whose number is the version, at the last byte */
    struct collection_document document;
};

static inline uint32_t mix(uint32_t a, uint32_t b) {
    uint32_t h = a * 2654435761U + b * 40503U + 12345U;
    h ^= h >> 15;
    h *= 2246822519U;
    return h ^ (h >> 13);
}

/* A vector of unit length that follows from the seed. */
static inline void make_vector(float *v, int dim, uint32_t seed, int first) {
    double square = 0;
    for (int j = 0; j < dim; j++) {
        v[j] = (float)(mix(seed, (uint32_t)(first + j)) % 2001) - 1000;
        square += (double)v[j] * (double)v[j];
    }
    for (int j = 0; j < dim; j++) v[j] = (float)(v[j] / sqrt(square));
}

/* Chunk i of a grid over n tokens of so many bytes each. */
static inline struct chunk_range grid_chunk(int i, int n, int bytes) {
    int first = i * CHUNK, end = min_int(first + CHUNK, n);
    return (struct chunk_range){(uint32_t)(bytes * first), (uint32_t)(bytes * end), (uint32_t)first,
                                (uint32_t)(end - first)};
}

/* Sparse weights of some ids that follow from `of`; returns how many. */
static inline int make_sparse_row(struct sparse_weight *list, uint32_t of) {
    int n = 0;
    for (uint32_t id = 0; id < SPARSE_IDS && n < SPARSE_MOST; id++) {
        if (mix(of, id) % 5 != 0) continue;
        list[n] = (struct sparse_weight){id, (float)(1 + mix(of + 1, id) % 64) / 16};
        n++;
    }
    return n;
}

static inline struct sparse_table make_sparse_table(struct made_document *d, int n_chunks,
                                                    uint32_t of) {
    uint32_t n = 0;
    for (int i = 0; i < n_chunks; i++) {
        n += (uint32_t)make_sparse_row(d->weights + n, of + (uint32_t)i);
        d->sparse_ends[i] = n;
    }
    return (struct sparse_table){d->sparse_ends, d->weights};
}

static inline void make_document(struct made_document *d, int id, int version) {
    int n = 1 + (int)(mix((uint32_t)id, (uint32_t)version) % LONGEST),
        n_chunks = document_count_chunks(n, CHUNK);
    *d = (struct made_document){0};
    snprintf(d->id, sizeof d->id, "id %d", id);
    snprintf(d->path, sizeof d->path, "folder/%d.txt", id);
    snprintf(d->source, sizeof d->source, "%s%d-%d.txt", id % 2 ? "/home/somebody/" : "", id,
             version);
    snprintf(d->metadata, sizeof d->metadata, "{\"version\":%d}", version);
    for (int i = 0; i < n; i++) d->ids[i] = id * 50 + i;
    for (int i = 0; i < 2 * n; i++) d->text[i] = (char)('a' + (id + i + 3 * version) % 26);
    for (int i = 0; i < n_chunks; i++) d->chunks[i] = grid_chunk(i, n, 2);
    for (int i = 0; i < n_chunks; i++)
        make_vector(d->vectors + i * DIM, DIM, mix((uint32_t)id, (uint32_t)version), i * DIM);
    for (int i = 0; i < n_chunks; i++)
        make_vector(d->other + i * OTHER_DIM, OTHER_DIM, mix((uint32_t)version, (uint32_t)id),
                    (1 + i) * 100);
    d->marks[0] = (struct mark){.kind = MARK_LINE, .value = 1};
    d->marks[1] =
        (struct mark){.at = (uint32_t)(2 * n - 1), .kind = MARK_PAGE, .value = (uint32_t)version};
    d->document = (struct collection_document){.id = d->id,
                                               .path = d->path,
                                               .title = "a title",
                                               .metadata = d->metadata,
                                               .source = id % 3 ? d->source : NULL,
                                               .file = id % 3 == 1 ? "same:0" : NULL,
                                               .text = {d->text, (size_t)(2 * n)},
                                               .marks = {d->marks, 2},
                                               .ids = d->ids,
                                               .chunks = d->chunks,
                                               .n_chunks = n_chunks,
                                               .n = n};
    d->document.sparse = make_sparse_table(d, n_chunks, (uint32_t)(1000 * version + 10 * id));
}

/* Its vectors by the embedder of a collection. */
static inline const float *made_vectors(const struct made_document *d,
                                        const struct collection_info *info) {
    return info->embedder_hash == OTHER_HASH ? d->other : d->vectors;
}

/* The space of pictures of collections that have one. */
static inline struct picture_space made_pictures(void) {
    return (struct picture_space){.embedder = "toy eyes",
                                  .embedder_hash = 7,
                                  .query_prompt = "",
                                  .document_prompt = "",
                                  .dim = PICTURE_DIM};
}

static inline bool is_made_picture(int id, int version) { return (id + version) % 3 > 0; }

/* The same document for such a collection: two of three are pictures. */
static inline void make_seen_document(struct made_document *d, int id, int version) {
    make_document(d, id, version);
    make_vector(d->picture, PICTURE_DIM, mix((uint32_t)version, (uint32_t)id), 100);
    if (is_made_picture(id, version)) d->document.picture = d->picture;
}
