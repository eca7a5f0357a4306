/* tools/ppl.h: bits per byte of documents under a Retro model, in parts: reading documents, scoring a document's
 * windows in several modes, measuring overlap with neighbours, and summing up with confidence intervals.
 *
 * The definition, which tools/retro_train/evaluate.py shares (docs/evaluation.md): a document's tokens are cut into
 * consecutive windows of W. Within a window of n tokens the chunk grid starts at its row 0, rows 0 .. n-2 predict
 * tokens 1 .. n-1, token 0 is not scored. bits = -sum log2 p, bytes = the scored tokens' bytes, bits/byte = their
 * quotient over all documents. */
#pragma once

#include "config/config.h"
#include "retrieval/retriever.h"
#include "retro/session.h"
#include "retro/tokenizer.h"

enum ppl_mode { PPL_ON, PPL_OFF, PPL_RANDOM, PPL_BASELINE, PPL_MODES };

/* Scored tokens by how much their chunk shares with the neighbours it read; first-chunk tokens read none and are only
 * in ALL. Shares are of the chunk's 8-grams. */
enum ppl_subset {
    PPL_ALL,
    PPL_AFTER_FIRST, /* tokens that read neighbours */
    PPL_NO_8GRAM,    /* of these: no 8-gram of the chunk occurs in a neighbour */
    PPL_UNDER_10,    /* at most 10 % of its 8-grams do */
    PPL_RUN_EIGHTH,  /* the longest common run is at most m / 8 tokens (RETRO, section 2.6) */
    PPL_SUBSETS
};

/* Sums of one document. */
struct ppl_sums {
    double bits[PPL_MODES][PPL_SUBSETS];
    double bytes[PPL_SUBSETS], tokens[PPL_SUBSETS];
};

/* One scored chunk, for the curve over overlap. */
struct ppl_chunk {
    float run, shared; /* longest common run / m; share of 8-grams found */
    float bits[PPL_MODES], bytes;
};

/* What scoring needs; all borrowed. Modes that cannot run (no collection, no baseline) are off in `modes`. */
struct ppl_scorer {
    const struct tokenizer *tokenizer;
    struct model *model, *baseline;
    struct backend *backend;
    struct session_pool *pool, *baseline_pool;
    struct retriever *retriever; /* NULL: no collection */
    const struct collection *collection;
    int window, k, slice; /* slice: rows of one step, and of logits on the host */
    float min_similarity;
    uint64_t seed; /* of random neighbours */
    bool modes[PPL_MODES];
    float *logits;            /* host [slice, V] of the wider vocabulary */
    struct ppl_chunk *chunks; /* appended to; owned by the scorer */
    int n_chunks, chunk_capacity;
};

/* Adds the windows of one document to *sums. */
enum status ppl_score_document(struct ppl_scorer *s, struct text_span text, struct ppl_sums *sums, struct error *e);

/* Longest run of tokens that chunk and a text share, and how many of the chunk's 8-grams occur in it. */
int overlap_longest_run(const int32_t *chunk, int n, const int32_t *text, int n_text);
/* found[i] is set for every 8-gram starting at i of chunk that occurs in text; found has n - 7 entries. */
void overlap_mark_8grams(const int32_t *chunk, int n, const int32_t *text, int n_text, bool *found);

/* 95 % interval of sum(numerator) / sum(denominator) over resampled documents (percentile bootstrap, 1000 draws). */
struct interval {
    double low, high;
};
struct interval bootstrap_ratio(const double *numerator, const double *denominator, int n, uint64_t seed);
