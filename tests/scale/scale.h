/* tests/scale/scale.h: a collection of made documents, as large as is asked for. Private to this
 * folder. */
#pragma once

#include "retrieval/retriever.h"
#include "retrieval/store/store.h"
#include "tests/scale/made_text.h"
#include "tools/bench/bench_vectors.h"

enum { SCALE_DIM = 384, SCALE_CHUNK = 64, SCALE_DOCUMENT_CHUNKS = 10, SCALE_K = 10 };
/* Chunks whose vectors are as near to each other as those of one manual: that many were measured
 * (tools/bench/bench_vectors.h), which are four documents here. */
enum { SCALE_SUBJECT_CHUNKS = 41 };

struct scale {
    const char *dir;
    int64_t n_chunks; /* of the collection as it was made */
    struct made_text text;
    struct made_vectors vectors;
    struct embedder embedder; /* gives query_vector */
    float query_vector[SCALE_DIM];
};

/* One made document. */
struct scale_document {
    char path[40];
    struct buffer text;
    struct chunk_range chunks[SCALE_DOCUMENT_CHUNKS];
    int32_t ids[SCALE_DOCUMENT_CHUNKS * SCALE_CHUNK];
    float vectors[SCALE_DOCUMENT_CHUNKS * SCALE_DIM];
    struct collection_document document;
};

/* Document `number`; `version` changes its text and its vectors. */
void scale_document_make(const struct scale *scale, struct scale_document *made, int64_t number,
                         int version);
/* The document that query `number` is about. */
uint64_t scale_query_document(const struct scale *scale, int number);
/* Appends the words of query `number`; vector [SCALE_DIM]. */
void scale_query_make(const struct scale *scale, int number, struct buffer *text, float *vector);
struct collection_options scale_options(const struct scale *scale);
void scale_print(const char *name, double value, const char *unit);

/* Measuring an open collection. */
enum status scale_measure_searches(struct scale *scale, struct collection *collection,
                                   struct error *e);
enum status scale_measure_recall(struct scale *scale, struct error *e);
enum status scale_measure_changes(struct scale *scale, struct collection *collection,
                                  struct error *e);
enum status scale_measure_compaction(struct scale *scale, struct collection *collection,
                                     struct error *e);
/* Writes what the collection is made of, for other programs (tests/race/million_race.py). */
enum status scale_export(struct scale *scale, struct error *e);
/* Turns it to other vectors, as `retro-index embed` does. */
enum status scale_turn(struct scale *scale, struct error *e);
