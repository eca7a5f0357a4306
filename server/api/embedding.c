/* server/api/embedding.c: see embedding.h. */
#include "server/api/embedding.h"

#include <stdlib.h>
#include <string.h>

static void embed_release(struct embed_answer *a) {
    if (atomic_fetch_sub(&a->references, 1) != 1) return;
    for (int i = 0; i < a->n && a->owned; i++) free(a->owned[i]);
    a->free_request(a);
    pthread_mutex_destroy(&a->lock);
    free(a->owned);
    free(a->pictures);
    free(a->texts);
    free(a->vectors);
    free(a);
}

static void embed_done(struct embedding_job *j) {
    struct embed_answer *a = j->context;
    pthread_mutex_lock(&a->lock);
    a->done = true;
    if (a->waker.wake) a->waker.wake(a->waker.context);
    pthread_mutex_unlock(&a->lock);
    embed_release(a);
}

static enum answer_progress embed_poll(struct answer *base, struct buffer *out) {
    struct embed_answer *a = (struct embed_answer *)base;
    pthread_mutex_lock(&a->lock);
    bool done = a->done;
    pthread_mutex_unlock(&a->lock);
    if (!done) return ANSWER_WAITING;
    if (a->job.status == STATUS_OK) {
        a->write(a, out);
        return ANSWER_COMPLETE;
    }
    struct failure f;
    failure_from_error(&f, &a->job.error);
    failure_answer(&f, base, out);
    return ANSWER_COMPLETE;
}

static void embed_cancel(struct answer *base) { atomic_store(&((struct embed_answer *)base)->cancelled, true); }

static void embed_close(struct answer *base) {
    struct embed_answer *a = (struct embed_answer *)base;
    embed_cancel(base);
    pthread_mutex_lock(&a->lock);
    a->waker.wake = NULL;
    pthread_mutex_unlock(&a->lock);
    embed_release(a);
}

struct embed_answer *embed_answer_open(struct waker waker, void (*write)(struct embed_answer *a, struct buffer *out),
                                       void (*free_request)(struct embed_answer *a)) {
    static const struct answer_ops ops = {embed_poll, embed_cancel, embed_close};
    struct embed_answer *a = xcalloc(1, sizeof *a);
    answer_init(&a->base, &ops, JSON_TYPE);
    a->write = write;
    a->free_request = free_request;
    a->waker = waker;
    atomic_init(&a->references, 1);
    pthread_mutex_init(&a->lock, NULL);
    return a;
}

static const struct request_limits *choose_embedder(void *context, const char *name, struct failure *f) {
    const struct served_embedder *model = api_embedder(context, name, f);
    return model ? &model->limits : NULL;
}

struct request_models embed_models(struct api *a) {
    return (struct request_models){choose_embedder, a, &a->largest_embedder};
}

static bool same_ids(const int32_t *a, const int32_t *b, int n) {
    return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* Whether the ids are what the tokenizer makes of `text`, with or without the special tokens at its ends. */
static bool ids_are_of(const struct tokenizer *t, const struct request_prompt *p, const struct buffer *text) {
    static const int flags[] = {TOKENIZER_PLAIN, TOKENIZER_ADD_SPECIAL};
    bool same = false;
    for (size_t i = 0; i < ARRAY_COUNT(flags) && !same; i++) {
        struct tokens ids = {0};
        struct error e;
        same = tokenizer_encode(t, text->data, text->size, flags[i], &ids, &e) == STATUS_OK && ids.n == p->n_ids &&
               same_ids(ids.ids, p->ids, ids.n);
        tokens_free(&ids);
    }
    return same;
}

/* Ids of another vocabulary would give a vector of nonsense. Clients send such ids: LangChain tokenizes for OpenAI's
 * models unless it is told otherwise. Ids that this tokenizer would never have made are refused. */
static bool decode_ids(struct embed_answer *a, const struct request_prompt *p, int i, const char *field,
                       struct failure *f) {
    struct buffer text = {0};
    tokenizer_decode(a->model->tokenizer, p->ids, p->n_ids, true, &text);
    if (text.size == 0 || !ids_are_of(a->model->tokenizer, p, &text)) {
        buffer_free(&text);
        return failure_set(f, 400, "invalid_value", field,
                           "%s %d has token ids that the tokenizer of %s never makes: they are another model's. Send "
                           "text; LangChain does with check_embedding_ctx_length=False",
                           field, i, a->model->id);
    }
    a->owned[i] = text.data;
    a->texts[i] = (struct text_span){text.data, text.size};
    return true;
}

bool embed_answer_add(struct embed_answer *a, const struct request_prompt *p, int i, const char *field,
                      struct failure *f) {
    struct tokens ids = {0};
    struct error e;
    a->texts[i] = (struct text_span){p->text, p->size};
    if (p->picture && !a->model->embedder->sees)
        return failure_set(f, 400, "unsupported_content", field, "%s %d is a picture; %s reads texts", field, i,
                           a->model->id);
    if (p->picture) {
        a->pictures[i] = true;
        return true;
    }
    if (p->ids && !decode_ids(a, p, i, field, f)) return false;
    bool ok = tokenizer_encode(a->model->tokenizer, a->texts[i].text, a->texts[i].size, TOKENIZER_ADD_SPECIAL, &ids,
                               &e) == STATUS_OK ||
              failure_from_error(f, &e);
    int n = ids.n;
    tokens_free(&ids);
    a->n_tokens += n;
    if (!ok || n <= a->model->limits.context) return ok;
    return failure_set(f, 400, "context_length_exceeded", field, "%s %d has %d tokens, %s reads %d", field, i, n,
                       a->model->id, a->model->limits.context);
}

struct answer *embed_answer_send(struct embed_answer *a, const struct principal *who, struct failure *f) {
    struct error e;
    size_t values;
    int64_t tokens = a->n_tokens; /* another thread has the rest once it is asked */
    if (mul_overflows((size_t)a->n, (size_t)a->model->embedder->dim * sizeof *a->vectors, &values)) values = SIZE_MAX;
    a->vectors = malloc(values);
    a->job = (struct embedding_job){.texts = a->texts,
                                    .pictures = a->pictures,
                                    .n = a->n,
                                    .query = a->query,
                                    .first = a->first,
                                    .others = a->others,
                                    .vectors = a->vectors,
                                    .principal = *who,
                                    .cancelled = &a->cancelled,
                                    .done = embed_done,
                                    .context = a};
    atomic_store(&a->references, 2);
    enum status status = a->vectors ? STATUS_OK : error_set(&e, STATUS_NO_MEMORY, "no memory for %d vectors", a->n);
    if (status == STATUS_OK) status = embedding_thread_ask(a->model->thread, &a->job, &e);
    if (status == STATUS_OK) {
        principal_charge(who, tokens, 0);
        return &a->base;
    }
    failure_from_error(f, &e);
    if (status == STATUS_BUSY) f->retry_after = embedding_thread_retry_after(a->model->thread);
    embed_release(a); /* the embedding thread's reference */
    answer_close(&a->base);
    return NULL;
}

void embed_answer_drop(struct embed_answer *a) { answer_close(&a->base); }
