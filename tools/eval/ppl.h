/* tools/eval/ppl.h: bits per byte of documents under a model that reads what is found for it, by
 * cross attention or in its prompt, in parts: scoring a document's windows in several modes,
 * measuring overlap with what was read, and reporting sums with confidence intervals.
 *
 * The definition, which tools/retro_train/evaluate.py shares (docs/evaluation.md): a document's
 * tokens are cut into consecutive windows of W. Within a window of n tokens the chunk grid starts
 * at its row 0, rows 0 .. n-2 predict tokens 1 .. n-1, token 0 is not scored. In a prompt, passages
 * stand from the first chunk's end on (ppl_prompt.c). bits = -sum log2 p, bytes = the scored
 * tokens' bytes, bits/byte = their quotient over all documents. */
#pragma once

#include "tools/eval/eval_subject.h"

enum ppl_mode { PPL_ON, PPL_OFF, PPL_RANDOM, PPL_GPT, PPL_MODES };

/* Scored tokens by how much their chunk shares with any neighbour it read, or with any of its own
 * PPL_NEAREST nearest chunks: the datastore's text that looks most like it (RETRO, section 2.6).
 * First-chunk tokens read nothing and are only in ALL. */
enum ppl_subset {
    PPL_ALL,
    PPL_READING,    /* tokens that may read neighbours: all after the first chunk */
    PPL_NO_8GRAM,   /* of these: no 8-gram of the chunk occurs there */
    PPL_TENTH,      /* at most 10 % of its 8-grams do */
    PPL_RUN_EIGHTH, /* the longest common run is at most an eighth of the chunk */
    PPL_SUBSETS
};
enum { PPL_NEAREST = 10 };

/* Sums of one document. */
struct ppl_sums {
    double bits[PPL_MODES][PPL_SUBSETS];
    double bytes[PPL_SUBSETS], tokens[PPL_SUBSETS];
};

/* One scored chunk, for the curve over overlap. */
struct ppl_chunk {
    float run, grams; /* longest common run, as a share of the chunk; share of its 8-grams found */
    float bits[PPL_MODES], bytes;
};

/* An evaluation: what it needs, and what it has found so far. */
struct ppl {
    struct subject model, gpt;
    bool modes[PPL_MODES]; /* that can run: there is a collection, a GPT */
    int window;
    int m;                    /* tokens of a chunk */
    int32_t begin;            /* the id before each window, -1: none */
    uint64_t seed;            /* of the intervals */
    uint64_t random;          /* state of the draw of random neighbours; starts as the seed */
    struct ppl_sums *sums;    /* [n_documents] */
    struct ppl_chunk *chunks; /* [n_chunks] */
    int n_documents, documents_capacity, n_chunks, chunks_capacity;
};

/* Scores one more document in every mode. */
enum status ppl_score_document(struct ppl *ppl, struct text_span text, struct error *e);

/* One window while it is scored. */
struct window {
    struct scored_sequence sequence;
    double *logprobs[PPL_MODES]; /* [n], entry 0 unused */
    double *bytes;               /* [n] */
    /* By cross attention: what complete chunks read, and PPL_NEAREST of every chunk, one cut off at
     * the end included.
     */
    struct found_neighbors found, nearest;
    /* In the prompt: passages [n_searches] that stand there from a token on, each until the next;
     * and the nearest texts of every chunk, -1 between them. */
    struct tokens *passages, *nearest_texts; /* of ids */
    int n_searches;
};

/* ppl_prompt.c */

/* The passages that chunk c may read are those of searches [*first, *end). */
void window_searches(const struct ppl *ppl, const struct window *window, int c, int *first,
                     int *end);
/* Scores a window without passages, behind the id that begins texts. */
enum status window_score_plain(struct ppl *ppl, struct subject *subject,
                               const struct window *window, double *logprobs, struct error *e);
/* Scores it with passages that are found, and with random ones; notes what was read and what is
 * nearest. */
enum status window_score_prompts(struct ppl *ppl, struct window *window, struct error *e);
void window_free_passages(struct window *window, int n_chunks);
/* The number of a chunk of the collection, drawn evenly. */
int64_t ppl_draw_chunk(struct ppl *ppl);
/* As many neighbours as the model reads for each chunk, drawn so, the same for the same seed and
 * order of windows. */
void ppl_draw_neighbors(struct ppl *ppl, struct found_neighbors *random);

/* Results on standard output, as a table or as one JSON object, and as a CSV over the largest
 * overlap allowed. */
void ppl_print(const struct ppl *ppl);
void ppl_print_json(const struct ppl *ppl);
enum status ppl_write_curve(const struct ppl *ppl, const char *path, struct error *e);

/* Longest run of tokens that a chunk and a text share. */
int overlap_longest_run(const int32_t *chunk, int n, const int32_t *text, int n_text);
/* A chunk of n tokens has overlap_grams(n) 8-grams; one shorter than 8 is one gram. found
 * [overlap_grams(n)]: entry i is set when the gram that starts at token i occurs in the text. */
int overlap_grams(int n);
void overlap_mark(const int32_t *chunk, int n, const int32_t *text, int n_text, bool *found);
