/* server/api/chat/chat.c: POST /v1/chat/completions: from a conversation to sequences, and from their progress to an
 * answer. The JSON itself is in chat_json.c. */
#include "server/api/chat/chat.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "retro/chat/chat.h"
#include "server/api/chat/chat_guide.h"
#include "server/api/chat/chat_pictures.h"
#include "server/api/chat/chat_place.h"
#include "server/api/text/provenance_json.h"
#include "server/api/text/retrieval_ask.h"
#include "server/api/text/sampling_json.h"

/* Open. */

/* An answer of no length given takes what passages leave of the context, and half of it at least. */
static bool choose_length(const struct chat_answer *c, const struct chat_prompt *prompt, int *max_tokens,
                          struct failure *f) {
    int context = c->model->limits.context, n_prompt = prompt->ids.n, room = max_int(context - n_prompt, 1);
    int reserved = prompt->place ? min_int(c->model->passage_tokens, room / 2) : 0;
    int64_t wanted = c->request.max_tokens ? c->request.max_tokens : room - reserved;
    *max_tokens = (int)wanted;
    if (n_prompt + wanted <= context) return true;
    return failure_set(f, 400, "context_length_exceeded", c->request.max_tokens ? "max_tokens" : "messages",
                       "the conversation has %d tokens and max_tokens is %lld, together %lld; the limit is %d tokens "
                       "(the model's, or option server.max_context)",
                       n_prompt, (long long)wanted, (long long)(n_prompt + wanted), context);
}

/* A turn ends by the template's own token too, whatever ends a text. */
static void add_end(const struct chat_answer *c, struct sequence_end *end) {
    int32_t id = chat_end(c->model->chat, c->model->tokenizer);
    if (end->ignore_eos || id < 0) return;
    end->stop_ids = xrealloc(end->stop_ids, ((size_t)end->n_stop_ids + 1) * sizeof *end->stop_ids);
    end->stop_ids[end->n_stop_ids] = id;
    end->n_stop_ids++;
}

/* Special tokens that an answer is taken apart by. */
static void add_shown(const struct chat_answer *c, struct sequence_request *asked) {
    asked->shown = xcalloc(MARK_KINDS, sizeof *asked->shown);
    for (int i = 0; i < MARK_KINDS; i++) {
        const char *mark = grammar_mark_text((enum grammar_mark)i);
        int32_t id = tokenizer_added_id(c->model->tokenizer, (struct text_span){mark, strlen(mark)});
        if (id < 0) continue;
        asked->shown[asked->n_shown] = id;
        asked->n_shown++;
    }
}

static bool open_choice(struct chat_answer *c, const struct chat_prompt *prompt, bool reasons, struct failure *f) {
    struct chat_choice *choice = &c->choices[c->n];
    struct sequence_request *asked = &choice->sequence->asked;
    int number = c->n++;
    choice->reply = (struct chat_reply){.format = c->format, .reasons = reasons};
    if (prompt->thinks) {
        choice->reply.part = REPLY_THINKS;
        choice->reply.trims = true;
    } else if (c->request.continues) {
        choice->reply.part = REPLY_SAYS;
    }
    if (!choose_length(c, prompt, &asked->max_tokens, f)) return false;
    asked->n_prompt = prompt->ids.n;
    asked->prompt = writing_copy_ids(&prompt->ids);
    asked->pictures = picture_set_hold(prompt->pictures);
    asked->n_top = c->request.logprobs ? (int)c->request.top_logprobs : -1;
    if (!writing_ask(c->model, &c->request.writing, number, asked, f)) return false;
    if (prompt->place == NULL) asked->passages.search = false;
    add_end(c, &asked->end);
    add_shown(c, asked);
    if (!chat_guide_begin(c, prompt, asked, f)) return false;
    if (!writing_compare(c->model, &c->request.writing, choice->sequence, f)) return false;
    for (struct sequence *sequence = choice->sequence; prompt->place && sequence; sequence = sequence->asked.comparison)
        chat_place_give(prompt->place, &sequence->asked.place);
    return true;
}

static bool open_choices(struct chat_answer *c, struct failure *f) {
    struct chat_prompt prompt = {.pictures = c->pictures ? c->pictures->set : NULL};
    int n = (int)c->request.writing.n;
    bool ok = chat_prompt_make(c->model, &c->request, &prompt, &c->format, f) && chat_guide_tools(c, f);
    c->choices = xcalloc((size_t)n, sizeof *c->choices);
    for (int i = 0; ok && i < n; i++) {
        c->choices[i].sequence = sequence_open();
        c->choices[i].sequence->asked.principal = principal_hold(c->principal);
        c->choices[i].sequence->answer.waker = c->waker;
        ok = open_choice(c, &prompt, prompt.thinks || chat_reasons(c->model->chat), f);
    }
    chat_prompt_free(&prompt);
    return ok;
}

static bool submit(struct chat_answer *c, struct failure *f) {
    struct sequence **sequences = xcalloc((size_t)c->n, sizeof(struct sequence *));
    for (int i = 0; i < c->n; i++) sequences[i] = c->choices[i].sequence;
    bool ok = writing_submit(c->model, sequences, c->n, f);
    free(sequences);
    return ok;
}

/* Whatever comes before the engine. A conversation with pictures waits for these; the kind of answer is settled
 * behind them, since a picture that cannot be read is a refusal. */
static bool open_answer(struct chat_answer *c, struct failure *f) {
    pthread_mutex_lock(&c->lock);
    bool ok = (!c->pictures || chat_pictures_check(c->pictures, f)) && open_choices(c, f) && submit(c, f);
    c->opened = ok;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

/* Poll. */

static void read_choice(struct chat_choice *choice) {
    choice->progress = sequence_read(choice->sequence, choice->text.size, &choice->text, &choice->error);
    bool last = choice->progress.finish != FINISH_NONE;
    chat_reply_read(&choice->reply, choice->text.data, choice->text.size, last);
}

static enum answer_progress fail(struct chat_answer *c, const struct error *e, struct buffer *out) {
    struct failure f;
    failure_from_error(&f, e);
    if (c->base.stream) {
        chat_write_end(c, &f, out);
        failure_free(&f);
    } else {
        failure_answer(&f, &c->base, out);
    }
    return ANSWER_COMPLETE;
}

/* Until the pictures are read. */
static enum answer_progress chat_poll_pictures(struct chat_answer *c, struct buffer *out) {
    struct failure f;
    if (!picture_job_is_over(c->pictures)) return ANSWER_WAITING;
    if (open_answer(c, &f)) {
        writing_answer_begin(&c->base, c->request.writing.stream);
        return ANSWER_MORE;
    }
    failure_answer(&f, &c->base, out);
    return ANSWER_COMPLETE;
}

static enum answer_progress chat_poll(struct answer *a, struct buffer *out) {
    struct chat_answer *c = (struct chat_answer *)a;
    if (!c->opened) return chat_poll_pictures(c, out);
    size_t before = out->size;
    bool finished = true;
    for (int i = 0; i < c->n; i++) {
        struct chat_choice *choice = &c->choices[i];
        if (!choice->written) {
            read_choice(choice);
            if (choice->progress.finish == FINISH_ERROR) return fail(c, &choice->error, out);
            if (a->stream) chat_write_event(c, choice, out);
            choice->written = choice->progress.finish != FINISH_NONE;
        }
        if (choice->written && !choice->finished) {
            bool failed;
            choice->finished = comparison_is_over(choice->sequence, &failed, &choice->error);
            if (failed) return fail(c, &choice->error, out);
            if (a->stream && choice->finished) chat_write_comparison(c, choice, out);
        }
        finished = finished && choice->finished;
    }
    if (!finished) return out->size > before ? ANSWER_MORE : ANSWER_WAITING;
    if (a->stream)
        chat_write_end(c, NULL, out);
    else
        chat_write(c, out);
    return ANSWER_COMPLETE;
}

static void chat_cancel(struct answer *a) {
    struct chat_answer *c = (struct chat_answer *)a;
    pthread_mutex_lock(&c->lock);
    if (c->pictures) picture_job_cancel(c->pictures);
    for (int i = 0; i < c->n; i++) sequence_cancel(c->choices[i].sequence);
    if (c->n > 0) engine_notice(c->model->engine);
    pthread_mutex_unlock(&c->lock);
}

static void chat_answer_close(struct answer *a) {
    struct chat_answer *c = (struct chat_answer *)a;
    chat_cancel(a);
    for (int i = 0; i < c->n; i++) {
        struct chat_choice *choice = &c->choices[i];
        sequence_detach(choice->sequence);
        sequence_release(choice->sequence);
        buffer_free(&choice->text);
        chat_reply_free(&choice->reply);
    }
    picture_job_release(c->pictures);
    principal_release(&c->principal);
    chat_request_free(&c->request);
    pthread_mutex_destroy(&c->lock);
    free(c->choices);
    free(c);
}

static bool parse_chat(struct chat_answer *c, struct api *a, const struct api_request *r, struct failure *f) {
    const struct request_models models = writing_models(a);
    if (!chat_request_parse(&c->request, r->body, r->size, &models, f)) return false;
    writing_choose_seed(&c->request.writing);
    c->model = api_model(a, c->request.model, f);
    if (c->model->chat) return true;
    return failure_set(f, 400, "no_chat_template", "model",
                       "the model %s has no chat template: send its prompt to /v1/completions, or put "
                       "chat_template.jinja into its folder",
                       c->model->id);
}

/* The first part of the way: all of it where there are no pictures to wait for. */
static bool begin_answer(struct chat_answer *c, struct failure *f) {
    const struct json *messages = json_member(c->request.body, "messages");
    if (!retrieval_settle(c->model, &c->request.writing.retrieval, f) ||
        !chat_pictures_start(c->model, messages, &c->principal, c->waker, &c->pictures, f))
        return false;
    return c->pictures || open_answer(c, f);
}

struct answer *chat_open_answer(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    static const struct answer_ops ops = {chat_poll, chat_cancel, chat_answer_close};
    struct chat_answer *c = xcalloc(1, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    c->created = time(NULL);
    c->id = random_number();
    c->principal = principal_hold(r->principal);
    c->waker = waker;
    if (!parse_chat(c, a, r, f) || !begin_answer(c, f)) {
        chat_answer_close(&c->base);
        return NULL;
    }
    answer_init(&c->base, &ops, JSON_TYPE);
    if (c->opened) writing_answer_begin(&c->base, c->request.writing.stream);
    return &c->base;
}
