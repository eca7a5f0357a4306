/* tools/eval/eval_subject.c: opens a model and its datastore, retrieves for chunks, scores tokens.
 * See eval_subject.h.
 */
#include "tools/eval/eval_subject.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLICE = 64 }; /* rows of one step: their logits are on the host at once */

enum status subject_open(struct subject *subject, const struct config *config, const char *folder,
                         struct error *e) {
    subject->folder = folder;
    if (*folder == '\0')
        return error_set(e, STATUS_INVALID,
                         "model.path is not set; use --config FILE or --set model.path=FOLDER");
    if (opened_model_open(&subject->model, config, folder, NULL, e) ||
        tokenizer_open(&subject->tokenizer, folder, e))
        return e->status;
    if (subject->model.comm->world->size > 1 && subject->model.n_followers == 0)
        return error_set(e, STATUS_UNSUPPORTED,
                         "this runs in one process: set parallel.comm to threads");
    subject->info = model_info(subject->model.model);
    if (tokenizer_vocab_size(subject->tokenizer) > subject->info->text_ids)
        return error_set(e, STATUS_INVALID,
                         "%s: the tokenizer has %d ids, the model's vocabulary is %d", folder,
                         tokenizer_vocab_size(subject->tokenizer), subject->info->text_ids);
    subject->k =
        config->retrieval.choice.k ? config->retrieval.choice.k : subject->info->num_neighbors;
    subject->min_similarity = (float)config->retrieval.choice.min_similarity;
    subject->passages = (struct passage_options){.template = config->retrieval.template,
                                                 .max_tokens = config->retrieval.prompt_tokens};
    subject->grid = (enum grid_mode)config->retrieval.grid;
    subject->every = config->retrieval.choice.every;
    return STATUS_OK;
}

int32_t subject_begin(const struct subject *subject) {
    struct tokens ids = {0};
    struct error e;
    int32_t first = -1;
    if (tokenizer_encode(subject->tokenizer, "a", 1, TOKENIZER_ADD_SPECIAL, &ids, &e) ==
            STATUS_OK &&
        ids.n > 1 && tokenizer_is_special(subject->tokenizer, ids.ids[0]))
        first = ids.ids[0];
    tokens_free(&ids);
    return first;
}

enum status subject_open_retrieval(struct subject *subject, const struct config *config, int max_k,
                                   struct error *e) {
    if (check_mode(config, subject->info, &subject->mode, e)) return e->status;
    subject->k_passages = usual_passages(config);
    subject->ranking = retrieval_choice_ranking(&config->retrieval.choice, 0);
    if (!documents_wanted(config)) return STATUS_OK;
    subject->collection_folder = config->retrieval.collection;
    if (documents_open(&subject->documents, config, subject->info, subject->tokenizer,
                       max_int(max_k, subject->k_passages), e))
        return e->status;
    if (collection_is_remote(subject->documents.collection))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s lies in Milvus; retro-eval reads a collection in a folder, which "
                         "retro-index copy makes",
                         subject->collection_folder);
    subject->snapshot = collection_hold(subject->documents.collection);
    return STATUS_OK;
}

enum status subject_open_pool(struct subject *subject, int max_tokens, struct error *e) {
    if (subject->info->max_positions && max_tokens > subject->info->max_positions)
        return error_set(e, STATUS_INVALID, "%s: sequences of %d tokens, the model's limit is %d",
                         subject->folder, max_tokens, subject->info->max_positions);
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = max_tokens,
                                    .max_step_rows = SLICE,
                                    .max_logit_rows = SLICE,
                                    .max_neighbors = max_int(1, subject->k),
                                    .kv_dtype = subject->info->cache_dtype};
    subject->logits =
        xmalloc((size_t)SLICE * (size_t)subject->info->padded_vocab * sizeof *subject->logits);
    return session_pool_open(&subject->pool, subject->model.model, &limits, e);
}

void subject_close(struct subject *subject) {
    session_pool_close(subject->pool);
    snapshot_release(subject->snapshot);
    documents_close(&subject->documents);
    tokenizer_close(subject->tokenizer);
    opened_model_close(&subject->model);
    free(subject->logits);
    *subject = (struct subject){0};
}

void subject_print(const struct subject *subject) {
    printf("model      %s: %s, %.1f M parameters, %s", subject->folder, subject->info->family,
           1e-6 * (double)subject->info->n_parameters, dtype_name(subject->info->dtype));
    bool prompts = subject->snapshot && retrieval_prompts(subject->mode);
    if (subject->info->chunk_length)
        printf(", k %d (trained with %d)", subject->k, subject->info->num_neighbors);
    if (prompts) {
        printf("\nin prompt  %d passages, at most %d tokens, ", subject->k_passages,
               subject->passages.max_tokens);
        if (subject->every > 0)
            printf("sought every %d tokens", subject->every);
        else
            printf("sought once");
    }
    printf("\ndatastore  ");
    if (subject->snapshot == NULL) {
        printf("none: the model runs without retrieval\n");
        return;
    }
    const struct collection_info *info = subject->snapshot->info;
    printf("%s: %lld documents, %lld chunks of %d tokens, index %s, generation %d\n",
           subject->collection_folder, (long long)subject->snapshot->n_documents,
           (long long)subject->snapshot->n_chunks, info->chunk_length, info->index_factory,
           info->generation);
}

void subject_put(const struct subject *subject, struct json_writer *w) {
    put_key_string(w, "model", subject->folder);
    put_key_int(w, "parameters", subject->info->n_parameters);
    put_key_string(w, "dtype", dtype_name(subject->info->dtype));
    put_key_int(w, "k", subject->snapshot ? subject->k : 0);
    if (subject->snapshot == NULL) {
        put_key_null(w, "datastore");
        return;
    }
    const struct collection_info *info = subject->snapshot->info;
    put_key_string(w, "mode", retrieval_mode_name(subject->mode));
    if (retrieval_prompts(subject->mode)) {
        put_key_int(w, "passages", subject->k_passages);
        put_key_int(w, "prompt_tokens", subject->passages.max_tokens);
        put_key_int(w, "every", subject->every);
    }
    put_key_object(w, "datastore");
    put_key_string(w, "path", subject->collection_folder);
    put_key_int(w, "documents", subject->snapshot->n_documents);
    put_key_int(w, "chunks", subject->snapshot->n_chunks);
    put_key_string(w, "index", info->index_factory);
    put_key_int(w, "generation", info->generation);
    put_object_end(w);
}

struct found_neighbors found_make(const struct subject *subject, int n, int k,
                                  float min_similarity) {
    size_t chunks = (size_t)n, stride = (size_t)k * (size_t)subject->info->retrieved_length;
    struct found_neighbors neighbors = {.n = n, .k = k, .min_similarity = min_similarity};
    neighbors.read = xcalloc(chunks + 1, sizeof *neighbors.read);
    neighbors.ids = xcalloc(chunks * stride + 1, sizeof *neighbors.ids);
    for (size_t j = 0; j < chunks; j++) neighbors.read[j].ids = neighbors.ids + j * stride;
    return neighbors;
}

void found_free(struct found_neighbors *neighbors) {
    free(neighbors->read);
    free(neighbors->ids);
}

enum status subject_retrieve(struct subject *subject, const struct scored_sequence *sequence,
                             int first, int end, struct found_neighbors *found, struct error *e) {
    CHECK(end <= found->n);
    if (end <= first) return STATUS_OK;
    size_t n = (size_t)(end - first);
    struct retriever_query *queries = xcalloc(n, sizeof *queries);
    struct hits *hits = xcalloc(n, sizeof *hits);
    struct buffer *texts = xcalloc(n, sizeof *texts);
    for (int j = first; j < end; j++) {
        int start = grid_start(sequence->grid, j),
            stop = min_int(grid_end(sequence->grid, j), sequence->n);
        struct buffer *text = &texts[j - first];
        tokenizer_decode(subject->tokenizer, sequence->tokens + start, stop - start, true, text);
        queries[j - first] = (struct retriever_query){.text = {text->data, text->size},
                                                      .k = found->k,
                                                      .r = subject->info->retrieved_length,
                                                      .min_similarity = found->min_similarity,
                                                      .choice = subject->ranking};
    }
    enum status status = retriever_search(subject->documents.retriever, queries, (int)n, hits, e);
    for (size_t j = 0; j < n; j++) {
        if (status == STATUS_OK) {
            size_t chunk = (size_t)first + j, one = (size_t)subject->info->retrieved_length;
            if (hits[j].n > 0)
                memcpy(found->ids + chunk * (size_t)found->k * one, hits[j].ids,
                       (size_t)hits[j].n * one * sizeof *found->ids);
            found->read[chunk].k = hits[j].n;
            hits_free(&hits[j]);
        }
        buffer_free(&texts[j]);
    }
    free(texts);
    free(hits);
    free(queries);
    return status;
}

/* Over the ids that a tokenizer can produce, as the server's. */
static double logprob_of(const float *logits, int vocab, int32_t id) {
    double sum = 0;
    float largest = logits[0];
    for (int i = 1; i < vocab; i++) largest = logits[i] > largest ? logits[i] : largest;
    for (int i = 0; i < vocab; i++) sum += (double)expf(logits[i] - largest);
    return (double)(logits[id] - largest) - log(sum);
}

static enum status score_slice(struct subject *subject, struct step_item *item, const int32_t *next,
                               double *logprobs, struct error *e) {
    struct tensor logits;
    struct backend *backend = subject->model.backend;
    size_t width = (size_t)subject->info->padded_vocab;
    if (session_step(subject->pool, item, 1, &logits, e)) return e->status;
    if (item->n_logits == 0) return STATUS_OK;
    backend_download(backend, subject->logits, logits.data,
                     (size_t)item->n_logits * width * sizeof *subject->logits);
    if (backend_sync(backend, e)) return e->status;
    for (int i = 0; i < item->n_logits; i++)
        logprobs[i] =
            logprob_of(subject->logits + (size_t)i * width, subject->info->vocab, next[i]);
    return STATUS_OK;
}

enum status subject_score(struct subject *subject, const struct scored_sequence *sequence,
                          const struct neighbor_tokens *read, double *logprobs, struct error *e) {
    bool reads = subject->info->chunk_length > 0;
    struct neighbor_tokens *none =
        read || !reads ? NULL : xcalloc((size_t)sequence->n, sizeof *none);
    struct session *session = NULL;
    enum status status = session_open(&session, subject->pool, sequence->grid, e);
    /* The last token is scored, never fed; the row before token i scores it. */
    for (int at = 0, rows; at < sequence->n - 1 && status == STATUS_OK; at += rows) {
        rows = min_int(SLICE, sequence->n - 1 - at);
        int scored = min_int(rows, max_int(0, at + rows - (sequence->from - 1))),
            next = at + rows - scored + 1;
        struct step_item item = {
            .session = session,
            .tokens = sequence->tokens + at,
            .n_tokens = rows,
            .neighbors = reads ? (read ? read : none) + grid_complete(sequence->grid, at) : NULL,
            .n_logits = scored};
        status = score_slice(subject, &item, sequence->tokens + next, logprobs + next, e);
    }
    session_close(session);
    free(none);
    return status;
}
