/* server/api/vectors/embedding.c: see embedding.h. */
#include "server/api/vectors/embedding.h"

#include <stdlib.h>
#include <string.h>

/* Pictures whose pixels lie in memory together. */
enum { PICTURES_OF_PART = 16 };

static void free_pixels(struct embed_answer *answer) {
    for (int i = 0; answer->pictures && i < answer->n; i++) {
        free(answer->pictures[i].pixels);
        answer->pictures[i] = (struct embedder_picture){0};
    }
}

static void embed_free(struct shared_answer *base) {
    struct embed_answer *answer = (struct embed_answer *)base;
    for (int i = 0; i < answer->n && answer->owned; i++) free(answer->owned[i]);
    free_pixels(answer);
    principal_release(&answer->principal);
    answer->free_request(answer);
    free(answer->owned);
    free(answer->is_picture);
    free(answer->pictures);
    free(answer->texts);
    free(answer->vectors);
    sparse_rows_free(&answer->sparse);
    free(answer);
}

static void embed_done(struct embedding_job *job) { shared_answer_finish(job->context); }

/* Parts. */

/* The part whose pictures are read goes to the embedder. */
static bool send_part(struct embed_answer *answer, struct failure *failure) {
    size_t first = (size_t)answer->first_of_part, dim = (size_t)answer->model->embedder->dim;
    struct error e;
    answer->job =
        (struct embedding_job){.texts = answer->texts + first,
                               .pictures = answer->pictures ? answer->pictures + first : NULL,
                               .n = answer->n_of_part,
                               .query = answer->query,
                               .first = first == 0 ? answer->first : answer->others,
                               .others = answer->others,
                               .vectors = answer->vectors + first * dim,
                               .sparse = answer->wants_sparse ? &answer->sparse : NULL,
                               .principal = answer->principal,
                               .cancelled = &answer->base.cancelled,
                               .done = embed_done,
                               .context = answer};
    shared_answer_begin(&answer->base);
    enum status status = embedding_thread_ask(answer->model->thread, &answer->job, &e);
    if (status == STATUS_OK) return true;
    shared_answer_release(&answer->base);
    failure_from_error(failure, &e);
    if (status == STATUS_BUSY)
        failure->retry_after = embedding_thread_retry_after(answer->model->thread);
    return false;
}

/* A request's text becomes a file's bytes, or its URL. */
static void move_file(struct picture_file *file, struct embed_answer *answer, int i) {
    struct request_prompt *prompt = &answer->request.embedding.inputs.all[i];
    if (prompt->web)
        file->web = prompt->text;
    else
        file->bytes = (struct buffer){
            .data = prompt->text, .size = prompt->size, .capacity = prompt->size + 1};
    file->of = "input";
    file->number = (size_t)i;
    prompt->text = NULL;
}

static bool read_pictures(struct embed_answer *answer, int n, struct failure *failure) {
    struct picture_reader reader = {.embedder = answer->model->embedder};
    struct picture_job *job = picture_job_open(&reader, n, answer->principal, answer->base.waker);
    struct error e;
    for (int i = answer->first_of_part, filled = 0; i < answer->first_of_part + answer->n_of_part;
         i++) {
        if (!answer->is_picture[i]) continue;
        move_file(&job->files[filled], answer, i);
        filled++;
    }
    job->fetched_before = answer->fetched;
    shared_answer_read(&answer->base, job);
    if (picture_thread_ask(answer->model->picture_thread, job, &e) == STATUS_OK) return true;
    failure_from_error(failure, &e);
    failure->retry_after = 1;
    return false;
}

/* The next inputs, with so many pictures as may be in memory. */
static bool begin_part(struct embed_answer *answer, struct failure *failure) {
    int n_pictures = 0, end = answer->first_of_part;
    while (end < answer->n &&
           !(answer->is_picture && answer->is_picture[end] && n_pictures == PICTURES_OF_PART)) {
        n_pictures += answer->is_picture && answer->is_picture[end];
        end++;
    }
    answer->n_of_part = end - answer->first_of_part;
    return n_pictures > 0 ? read_pictures(answer, n_pictures, failure) : send_part(answer, failure);
}

static bool take_pictures(struct embed_answer *answer, struct failure *failure) {
    struct picture_job *job = answer->base.reading;
    if (job->error.status) return failure_from_error(failure, &job->error);
    answer->fetched = picture_job_fetched(job);
    for (int k = 0; k < job->n; k++) {
        answer->pictures[job->files[k].number] = job->files[k].pixels;
        job->files[k].pixels = (struct embedder_picture){0};
    }
    shared_answer_read(&answer->base, NULL);
    return send_part(answer, failure);
}

/* Poll. */

/* Whatever comes behind what is over; *complete: nothing does. */
static bool go_on(struct embed_answer *answer, bool *complete, struct failure *failure) {
    struct picture_job *reading = answer->base.reading;
    if (reading) return !picture_job_is_over(reading) || take_pictures(answer, failure);
    if (!shared_answer_is_done(&answer->base)) return true;
    if (answer->job.status) return failure_from_error(failure, &answer->job.error);
    free_pixels(answer);
    answer->first_of_part += answer->n_of_part;
    *complete = answer->first_of_part == answer->n;
    return *complete || begin_part(answer, failure);
}

static enum answer_progress embed_poll(struct answer *base, struct buffer *out) {
    struct embed_answer *answer = (struct embed_answer *)base;
    struct failure failure;
    bool complete = false;
    if (!go_on(answer, &complete, &failure))
        failure_answer(&failure, base, out);
    else if (complete)
        answer->write(answer, out);
    else
        return ANSWER_WAITING;
    return ANSWER_COMPLETE;
}

struct embed_answer *embed_answer_open(struct waker waker,
                                       void (*write)(struct embed_answer *embed_answer,
                                                     struct buffer *out),
                                       void (*free_request)(struct embed_answer *embed_answer)) {
    static const struct answer_ops ops = {embed_poll, shared_answer_cancel, shared_answer_close};
    struct embed_answer *answer_given = xcalloc(1, sizeof *answer_given);
    shared_answer_init(&answer_given->base, &ops, waker, embed_free);
    answer_given->write = write;
    answer_given->free_request = free_request;
    answer_given->opened = time_now();
    return answer_given;
}

static const struct request_limits *choose_embedder(void *context, const char *name,
                                                    struct failure *failure) {
    const struct served_embedder *model = api_embedder(context, name, failure);
    return model ? &model->limits : NULL;
}

struct request_models embed_models(struct api *api) {
    return (struct request_models){choose_embedder, api, &api->largest_embedder};
}

static bool same_ids(const int32_t *a, const int32_t *b, int n) {
    return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* Whether the ids are what the tokenizer makes of `text`, with or without the special tokens at its
 * ends. */
static bool ids_are_of(const struct tokenizer *tokenizer, const struct request_prompt *prompt,
                       const struct buffer *text) {
    static const int flags[] = {TOKENIZER_PLAIN, TOKENIZER_ADD_SPECIAL};
    bool same = false;
    for (size_t i = 0; i < ARRAY_COUNT(flags) && !same; i++) {
        struct tokens ids = {0};
        struct error e;
        same =
            tokenizer_encode(tokenizer, text->data, text->size, flags[i], &ids, &e) == STATUS_OK &&
            ids.n == prompt->n_ids && same_ids(ids.ids, prompt->ids, ids.n);
        tokens_free(&ids);
    }
    return same;
}

/* Ids of another vocabulary would give a vector of nonsense. Clients send such ids: LangChain
 * tokenizes for OpenAI's models unless it is told otherwise. Ids that this tokenizer would never
 * have made are refused. */
static bool decode_ids(struct embed_answer *answer, const struct request_prompt *prompt, int i,
                       const char *field, struct failure *failure) {
    struct buffer text = {0};
    tokenizer_decode(answer->model->tokenizer, prompt->ids, prompt->n_ids, true, &text);
    if (text.size == 0 || !ids_are_of(answer->model->tokenizer, prompt, &text)) {
        buffer_free(&text);
        return failure_set(failure, 400, "invalid_value", field,
                           "%s %d has token ids that the tokenizer of %s never makes: they are "
                           "another model's. Send "
                           "text; LangChain does with check_embedding_ctx_length=False",
                           field, i, answer->model->id);
    }
    answer->owned[i] = text.data;
    answer->texts[i] = (struct text_span){text.data, text.size};
    return true;
}

/* Leaves as much of a text as has room; the tokens of its beginning may be a few more or less than
 * they were. */
static int cut_text(struct text_span *text, const struct tokens *ids, int room) {
    enum { SPARE = 8 };
    int kept = max_int(1, room - SPARE);
    text->size = ids->starts[kept];
    return kept;
}

bool embed_answer_add(struct embed_answer *answer, const struct request_prompt *prompt, int i,
                      const char *field, struct failure *failure) {
    struct tokens ids = {0};
    struct error e;
    answer->texts[i] = (struct text_span){prompt->text, prompt->size};
    if (prompt->picture && !answer->model->embedder->sees)
        return failure_set(failure, 400, "unsupported_content", field,
                           "%s %d is a picture; %s reads texts", field, i, answer->model->id);
    if (prompt->picture) {
        answer->is_picture[i] = true;
        return true;
    }
    if (prompt->ids && !decode_ids(answer, prompt, i, field, failure)) return false;
    bool ok =
        tokenizer_encode(answer->model->tokenizer, answer->texts[i].text, answer->texts[i].size,
                         TOKENIZER_ADD_SPECIAL, &ids, &e) == STATUS_OK ||
        failure_from_error(failure, &e);
    int n = ids.n;
    if (ok && answer->cuts && n > answer->model->limits.context)
        n = cut_text(&answer->texts[i], &ids, answer->model->limits.context);
    tokens_free(&ids);
    answer->n_tokens += n;
    if (!ok || n <= answer->model->limits.context) return ok;
    return failure_set(failure, 400, "context_length_exceeded", field,
                       "%s %d has %d tokens, %s reads %d", field, i, n, answer->model->id,
                       answer->model->limits.context);
}

struct answer *embed_answer_send(struct embed_answer *answer, const struct principal *who,
                                 struct failure *failure) {
    struct error e;
    size_t values;
    if (mul_overflows((size_t)answer->n,
                      (size_t)answer->model->embedder->dim * sizeof *answer->vectors, &values))
        values = SIZE_MAX;
    answer->vectors = malloc(values);
    answer->principal = principal_hold(*who);
    if (answer->vectors == NULL) {
        error_set(&e, STATUS_NO_MEMORY, "no memory for %d vectors", answer->n);
        failure_from_error(failure, &e);
    } else if (begin_part(answer, failure)) {
        principal_charge(who, answer->n_tokens, 0);
        return &answer->base.base;
    }
    answer_close(&answer->base.base);
    return NULL;
}
