/* tools/eval/eval_subject.h: a model under evaluation with what it retrieves from, and how likely
 * it finds given tokens; ppl and lm share it. It retrieves as the server does: the same text of a
 * chunk, embedder, index, k and floor, and the same steps of the same sessions, so what is measured
 * is what is served. */
#pragma once

#include "config/json/json_writer.h"
#include "retro/run/session/session.h"
#include "server/host/check.h"
#include "server/host/documents/documents.h"
#include "server/host/prompt/passages.h"
#include "tools/eval/eval.h"

struct subject {
    struct opened_model model;
    const char *folder; /* borrowed from the configuration, as the next */
    const char *collection_folder;
    struct snapshot *snapshot; /* of the documents; NULL: there are none */
    const struct model_info *info;
    struct tokenizer *tokenizer;
    struct documents documents; /* only where the model retrieves */
    struct session_pool *pool;
    float *logits; /* host, the rows of one step */
    int k;         /* neighbours a chunk reads */
    float min_similarity;
    enum retrieval_mode mode;        /* how it reads what is found; never auto */
    enum grid_mode grid;             /* of a prompt's chunks */
    struct passage_options passages; /* in its prompt; so are the next two */
    int k_passages;
    struct retriever_choice ranking; /* of passages, as a server ranks them */
    int every;                       /* tokens after which they are sought again; 0: never */
};

/* Three steps, so that a caller can look at the model before it chooses a length. Model and
 * tokenizer: */
enum status subject_open(struct subject *subject, const struct config *config, const char *folder,
                         struct error *e);
/* The collection, if the configuration has one; a chunk has at most max_k. */
enum status subject_open_retrieval(struct subject *subject, const struct config *config, int max_k,
                                   struct error *e);
/* Room for one sequence of max_tokens. */
enum status subject_open_pool(struct subject *subject, int max_tokens, struct error *e);
void subject_close(struct subject *subject); /* of a zeroed subject: nothing */

/* One line about the model and one about the datastore, on standard output; the same as members of
 * an open JSON object.
 */
void subject_print(const struct subject *subject);
void subject_put(const struct subject *subject, struct json_writer *w);

/* The id that the model's texts begin with, -1: none does. */
int32_t subject_begin(const struct subject *subject);

/* Tokens of which those from `from` (at least 1) on are scored. */
struct scored_sequence {
    const int32_t *tokens; /* [n] */
    int n, from;
    struct grid grid; /* for a model that reads */
};

/* The neighbours found for the chunks of a sequence, best first. */
struct found_neighbors {
    struct neighbor_tokens *read; /* [n] */
    int32_t *ids;                 /* [n, k, r]; read[j].ids is where chunk j's begin */
    int n, k;                     /* k: at most so many for a chunk */
    float min_similarity;
};
/* Room for n chunks; all have none. */
struct found_neighbors found_make(const struct subject *subject, int n, int k,
                                  float min_similarity);
void found_free(struct found_neighbors *neighbors);

/* Searches for chunks [first, end) of the sequence, the last of which may be cut short by the
 * sequence's end, in one batch. An index chooses among equally similar chunks by k, so
 * the chunks that a model reads are searched for with its k. */
enum status subject_retrieve(struct subject *subject, const struct scored_sequence *sequence,
                             int first, int end, struct found_neighbors *found, struct error *e);
/* logprobs[i], in nats, of token i for i in [from, n); other entries are left alone. read:
 * neighbours of each chunk that rows 0 .. n-2 close, or NULL: none are read. */
enum status subject_score(struct subject *subject, const struct scored_sequence *sequence,
                          const struct neighbor_tokens *read, double *logprobs, struct error *e);
