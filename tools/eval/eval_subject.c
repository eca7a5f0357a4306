/* tools/eval/eval_subject.c: opens a model and its datastore, retrieves for chunks, scores tokens. See eval_subject.h.
 */
#include "tools/eval/eval_subject.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLICE = 64 }; /* rows of one step: their logits are on the host at once */

enum status subject_open(struct subject *s, const struct config *c, const char *folder, struct error *e) {
    s->folder = folder;
    if (*folder == '\0')
        return error_set(e, STATUS_INVALID, "model.path is not set; use --config FILE or --set model.path=FOLDER");
    if (opened_model_open(&s->model, c, folder, NULL, e) || tokenizer_open(&s->tokenizer, folder, e)) return e->status;
    if (s->model.comm->world->size > 1 && s->model.n_followers == 0)
        return error_set(e, STATUS_UNSUPPORTED, "this runs in one process: set parallel.comm to threads");
    s->info = model_info(s->model.model);
    if (tokenizer_vocab_size(s->tokenizer) > s->info->vocab)
        return error_set(e, STATUS_INVALID, "%s: the tokenizer has %d ids, the model's vocabulary is %d", folder,
                         tokenizer_vocab_size(s->tokenizer), s->info->vocab);
    s->k = c->retrieval.choice.k ? c->retrieval.choice.k : s->info->num_neighbors;
    s->min_similarity = (float)c->retrieval.choice.min_similarity;
    s->passages = (struct passage_options){.template = c->retrieval.template, .max_tokens = c->retrieval.prompt_tokens};
    s->grid = (enum grid_mode)c->retrieval.grid;
    s->every = c->retrieval.choice.every;
    return STATUS_OK;
}

int32_t subject_begin(const struct subject *s) {
    struct tokens ids = {0};
    struct error e;
    int32_t first = -1;
    if (tokenizer_encode(s->tokenizer, "a", 1, TOKENIZER_ADD_SPECIAL, &ids, &e) == STATUS_OK && ids.n > 1 &&
        tokenizer_is_special(s->tokenizer, ids.ids[0]))
        first = ids.ids[0];
    tokens_free(&ids);
    return first;
}

enum status subject_open_retrieval(struct subject *s, const struct config *c, int max_k, struct error *e) {
    if (check_mode(c, s->info, &s->mode, e)) return e->status;
    s->k_passages = usual_passages(c);
    if (!documents_wanted(c)) return STATUS_OK;
    s->collection_folder = c->retrieval.collection;
    if (documents_open(&s->documents, c, s->info, s->tokenizer, max_int(max_k, s->k_passages), e)) return e->status;
    if (collection_is_remote(s->documents.collection))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s lies in Milvus; retro-eval reads a collection in a folder, which retro-index copy makes",
                         s->collection_folder);
    s->snapshot = collection_hold(s->documents.collection);
    return STATUS_OK;
}

enum status subject_open_pool(struct subject *s, int max_tokens, struct error *e) {
    if (s->info->max_positions && max_tokens > s->info->max_positions)
        return error_set(e, STATUS_INVALID, "%s: sequences of %d tokens, the model's limit is %d", s->folder,
                         max_tokens, s->info->max_positions);
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = max_tokens,
                                    .max_step_rows = SLICE,
                                    .max_logit_rows = SLICE,
                                    .max_neighbors = max_int(1, s->k),
                                    .kv_dtype = s->info->cache_dtype};
    s->logits = xmalloc((size_t)SLICE * (size_t)s->info->padded_vocab * sizeof *s->logits);
    return session_pool_open(&s->pool, s->model.model, &limits, e);
}

void subject_close(struct subject *s) {
    session_pool_close(s->pool);
    snapshot_release(s->snapshot);
    documents_close(&s->documents);
    tokenizer_close(s->tokenizer);
    opened_model_close(&s->model);
    free(s->logits);
    *s = (struct subject){0};
}

void subject_print(const struct subject *s) {
    printf("model      %s: %s, %.1f M parameters, %s", s->folder, s->info->family, 1e-6 * (double)s->info->n_parameters,
           dtype_name(s->info->dtype));
    bool prompts = s->snapshot && retrieval_prompts(s->mode);
    if (s->info->chunk_length) printf(", k %d (trained with %d)", s->k, s->info->num_neighbors);
    if (prompts) {
        printf("\nin prompt  %d passages, at most %d tokens, ", s->k_passages, s->passages.max_tokens);
        if (s->every > 0)
            printf("sought every %d tokens", s->every);
        else
            printf("sought once");
    }
    printf("\ndatastore  ");
    if (s->snapshot == NULL) {
        printf("none: the model runs without retrieval\n");
        return;
    }
    const struct collection_info *info = s->snapshot->info;
    printf("%s: %lld documents, %lld chunks of %d tokens, index %s, generation %d\n", s->collection_folder,
           (long long)s->snapshot->n_documents, (long long)s->snapshot->n_chunks, info->chunk_length,
           info->index_factory, info->generation);
}

void subject_put(const struct subject *s, struct json_writer *w) {
    put_key_string(w, "model", s->folder);
    put_key_int(w, "parameters", s->info->n_parameters);
    put_key_string(w, "dtype", dtype_name(s->info->dtype));
    put_key_int(w, "k", s->snapshot ? s->k : 0);
    if (s->snapshot == NULL) {
        put_key_null(w, "datastore");
        return;
    }
    const struct collection_info *info = s->snapshot->info;
    put_key_string(w, "mode", retrieval_mode_name(s->mode));
    if (retrieval_prompts(s->mode)) {
        put_key_int(w, "passages", s->k_passages);
        put_key_int(w, "prompt_tokens", s->passages.max_tokens);
        put_key_int(w, "every", s->every);
    }
    put_key_object(w, "datastore");
    put_key_string(w, "path", s->collection_folder);
    put_key_int(w, "documents", s->snapshot->n_documents);
    put_key_int(w, "chunks", s->snapshot->n_chunks);
    put_key_string(w, "index", info->index_factory);
    put_key_int(w, "generation", info->generation);
    put_object_end(w);
}

struct found_neighbors found_make(const struct subject *s, int n, int k, float min_similarity) {
    size_t chunks = (size_t)n, stride = (size_t)k * (size_t)s->info->retrieved_length;
    struct found_neighbors f = {.n = n, .k = k, .min_similarity = min_similarity};
    f.read = xcalloc(chunks + 1, sizeof *f.read);
    f.ids = xcalloc(chunks * stride + 1, sizeof *f.ids);
    for (size_t j = 0; j < chunks; j++) f.read[j].ids = f.ids + j * stride;
    return f;
}

void found_free(struct found_neighbors *f) {
    free(f->read);
    free(f->ids);
}

enum status subject_retrieve(struct subject *s, const struct scored_sequence *q, int first, int end,
                             struct found_neighbors *found, struct error *e) {
    CHECK(end <= found->n);
    if (end <= first) return STATUS_OK;
    size_t n = (size_t)(end - first);
    struct retriever_query *queries = xcalloc(n, sizeof *queries);
    struct hits *hits = xcalloc(n, sizeof *hits);
    struct buffer *texts = xcalloc(n, sizeof *texts);
    for (int j = first; j < end; j++) {
        int start = grid_start(q->grid, j), stop = min_int(grid_end(q->grid, j), q->n);
        struct buffer *text = &texts[j - first];
        tokenizer_decode(s->tokenizer, q->tokens + start, stop - start, true, text);
        queries[j - first] = (struct retriever_query){.text = {text->data, text->size},
                                                      .k = found->k,
                                                      .r = s->info->retrieved_length,
                                                      .min_similarity = found->min_similarity};
    }
    enum status status = retriever_search(s->documents.retriever, queries, (int)n, hits, e);
    for (size_t j = 0; j < n; j++) {
        if (status == STATUS_OK) {
            size_t chunk = (size_t)first + j, one = (size_t)s->info->retrieved_length;
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

static enum status score_slice(struct subject *s, struct step_item *item, const int32_t *next, double *logprobs,
                               struct error *e) {
    struct tensor logits;
    struct backend *b = s->model.backend;
    size_t width = (size_t)s->info->padded_vocab;
    if (session_step(s->pool, item, 1, &logits, e)) return e->status;
    if (item->n_logits == 0) return STATUS_OK;
    backend_download(b, s->logits, logits.data, (size_t)item->n_logits * width * sizeof *s->logits);
    if (backend_sync(b, e)) return e->status;
    for (int i = 0; i < item->n_logits; i++)
        logprobs[i] = logprob_of(s->logits + (size_t)i * width, s->info->vocab, next[i]);
    return STATUS_OK;
}

enum status subject_score(struct subject *s, const struct scored_sequence *q, const struct neighbor_tokens *read,
                          double *logprobs, struct error *e) {
    bool reads = s->info->chunk_length > 0;
    struct neighbor_tokens *none = read || !reads ? NULL : xcalloc((size_t)q->n, sizeof *none);
    struct session *session = NULL;
    enum status status = session_open(&session, s->pool, q->grid, e);
    /* The last token is scored, never fed; the row before token i scores it. */
    for (int at = 0, rows; at < q->n - 1 && status == STATUS_OK; at += rows) {
        rows = min_int(SLICE, q->n - 1 - at);
        int scored = min_int(rows, max_int(0, at + rows - (q->from - 1))), next = at + rows - scored + 1;
        struct step_item item = {.session = session,
                                 .tokens = q->tokens + at,
                                 .n_tokens = rows,
                                 .neighbors = reads ? (read ? read : none) + grid_complete(q->grid, at) : NULL,
                                 .n_logits = scored};
        status = score_slice(s, &item, q->tokens + next, logprobs + next, e);
    }
    session_close(session);
    free(none);
    return status;
}
