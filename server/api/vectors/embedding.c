/* server/api/vectors/embedding.c: see embedding.h. */
#include "server/api/vectors/embedding.h"

#include <stdlib.h>
#include <string.h>

/* Pictures whose pixels lie in memory together. */
enum { PICTURES_OF_PART = 16 };

static void free_pixels(struct embed_answer *a) {
    for (int i = 0; a->pictures && i < a->n; i++) {
        free(a->pictures[i].pixels);
        a->pictures[i] = (struct embedder_picture){0};
    }
}

static void embed_free(struct shared_answer *base) {
    struct embed_answer *a = (struct embed_answer *)base;
    for (int i = 0; i < a->n && a->owned; i++) free(a->owned[i]);
    free_pixels(a);
    principal_release(&a->principal);
    a->free_request(a);
    free(a->owned);
    free(a->is_picture);
    free(a->pictures);
    free(a->texts);
    free(a->vectors);
    free(a);
}

static void embed_done(struct embedding_job *j) { shared_answer_finish(j->context); }

/* Parts. */

/* The part whose pictures are read goes to the embedder. */
static bool send_part(struct embed_answer *a, struct failure *f) {
    size_t first = (size_t)a->first_of_part, dim = (size_t)a->model->embedder->dim;
    struct error e;
    a->job = (struct embedding_job){.texts = a->texts + first,
                                    .pictures = a->pictures ? a->pictures + first : NULL,
                                    .n = a->n_of_part,
                                    .query = a->query,
                                    .first = first == 0 ? a->first : a->others,
                                    .others = a->others,
                                    .vectors = a->vectors + first * dim,
                                    .principal = a->principal,
                                    .cancelled = &a->base.cancelled,
                                    .done = embed_done,
                                    .context = a};
    shared_answer_begin(&a->base);
    enum status status = embedding_thread_ask(a->model->thread, &a->job, &e);
    if (status == STATUS_OK) return true;
    shared_answer_release(&a->base);
    failure_from_error(f, &e);
    if (status == STATUS_BUSY) f->retry_after = embedding_thread_retry_after(a->model->thread);
    return false;
}

/* A request's text becomes a file's bytes, or its URL. */
static void move_file(struct picture_file *file, struct embed_answer *a, int i) {
    struct request_prompt *p = &a->request.embedding.inputs.all[i];
    if (p->web)
        file->web = p->text;
    else
        file->bytes = (struct buffer){.data = p->text, .size = p->size, .capacity = p->size + 1};
    file->of = "input";
    file->number = (size_t)i;
    p->text = NULL;
}

static bool read_pictures(struct embed_answer *a, int n, struct failure *f) {
    struct picture_reader reader = {.embedder = a->model->embedder};
    struct picture_job *job = picture_job_open(&reader, n, a->principal, a->base.waker);
    struct error e;
    for (int i = a->first_of_part, filled = 0; i < a->first_of_part + a->n_of_part; i++) {
        if (!a->is_picture[i]) continue;
        move_file(&job->files[filled], a, i);
        filled++;
    }
    job->fetched_before = a->fetched;
    shared_answer_read(&a->base, job);
    if (picture_thread_ask(a->model->picture_thread, job, &e) == STATUS_OK) return true;
    failure_from_error(f, &e);
    f->retry_after = 1;
    return false;
}

/* The next inputs, with so many pictures as may be in memory. */
static bool begin_part(struct embed_answer *a, struct failure *f) {
    int n_pictures = 0, end = a->first_of_part;
    while (end < a->n && !(a->is_picture && a->is_picture[end] && n_pictures == PICTURES_OF_PART)) {
        n_pictures += a->is_picture && a->is_picture[end];
        end++;
    }
    a->n_of_part = end - a->first_of_part;
    return n_pictures > 0 ? read_pictures(a, n_pictures, f) : send_part(a, f);
}

static bool take_pictures(struct embed_answer *a, struct failure *f) {
    struct picture_job *job = a->base.reading;
    if (job->error.status) return failure_from_error(f, &job->error);
    a->fetched = picture_job_fetched(job);
    for (int k = 0; k < job->n; k++) {
        a->pictures[job->files[k].number] = job->files[k].pixels;
        job->files[k].pixels = (struct embedder_picture){0};
    }
    shared_answer_read(&a->base, NULL);
    return send_part(a, f);
}

/* Poll. */

/* Whatever comes behind what is over; *complete: nothing does. */
static bool go_on(struct embed_answer *a, bool *complete, struct failure *f) {
    struct picture_job *reading = a->base.reading;
    if (reading) return !picture_job_is_over(reading) || take_pictures(a, f);
    if (!shared_answer_is_done(&a->base)) return true;
    if (a->job.status) return failure_from_error(f, &a->job.error);
    free_pixels(a);
    a->first_of_part += a->n_of_part;
    *complete = a->first_of_part == a->n;
    return *complete || begin_part(a, f);
}

static enum answer_progress embed_poll(struct answer *base, struct buffer *out) {
    struct embed_answer *a = (struct embed_answer *)base;
    struct failure f;
    bool complete = false;
    if (!go_on(a, &complete, &f))
        failure_answer(&f, base, out);
    else if (complete)
        a->write(a, out);
    else
        return ANSWER_WAITING;
    return ANSWER_COMPLETE;
}

struct embed_answer *embed_answer_open(struct waker waker, void (*write)(struct embed_answer *a, struct buffer *out),
                                       void (*free_request)(struct embed_answer *a)) {
    static const struct answer_ops ops = {embed_poll, shared_answer_cancel, shared_answer_close};
    struct embed_answer *a = xcalloc(1, sizeof *a);
    shared_answer_init(&a->base, &ops, waker, embed_free);
    a->write = write;
    a->free_request = free_request;
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
        a->is_picture[i] = true;
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
    if (mul_overflows((size_t)a->n, (size_t)a->model->embedder->dim * sizeof *a->vectors, &values)) values = SIZE_MAX;
    a->vectors = malloc(values);
    a->principal = principal_hold(*who);
    if (a->vectors == NULL) {
        error_set(&e, STATUS_NO_MEMORY, "no memory for %d vectors", a->n);
        failure_from_error(f, &e);
    } else if (begin_part(a, f)) {
        principal_charge(who, a->n_tokens, 0);
        return &a->base.base;
    }
    answer_close(&a->base.base);
    return NULL;
}
