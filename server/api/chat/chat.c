/* server/api/chat/chat.c: POST /v1/chat/completions: from a conversation to sequences, and from their progress to an
 * answer. The JSON itself is in chat_json.c. */
#include "server/api/chat/chat.h"

#include <stdlib.h>
#include <string.h>

#include "retro/chat/chat.h"
#include "server/api/chat/chat_guide.h"
#include "server/api/chat/chat_pictures.h"
#include "server/api/chat/chat_place.h"
#include "server/api/text/retrieval_ask.h"
#include "server/api/text/writing_ask.h"

/* Open. */

/* An answer of no length given takes what passages leave of the context, and half of it at least. */
static bool choose_length(const struct chat_answer *c, const struct chat_prompt *prompt, int *max_tokens,
                          struct failure *f) {
    int context = c->base.model->limits.context, n_prompt = prompt->ids.n, room = max_int(context - n_prompt, 1);
    int reserved = prompt->place ? min_int(c->base.model->passage_tokens, room / 2) : 0;
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
    int32_t id = chat_end(c->base.model->chat, c->base.model->tokenizer);
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
        int32_t id = tokenizer_added_id(c->base.model->tokenizer, (struct text_span){mark, strlen(mark)});
        if (id < 0) continue;
        asked->shown[asked->n_shown] = id;
        asked->n_shown++;
    }
}

static bool ask(struct chat_answer *c, struct choice *choice, const struct chat_prompt *prompt, struct failure *f) {
    const struct served_model *model = c->base.model;
    struct sequence_request *asked = &choice->sequence->asked;
    if (!choose_length(c, prompt, &asked->max_tokens, f)) return false;
    asked->n_prompt = prompt->ids.n;
    asked->prompt = writing_copy_ids(prompt->ids.ids, prompt->ids.n);
    asked->pictures = picture_set_hold(prompt->pictures);
    asked->n_top = c->request.logprobs ? (int)c->request.top_logprobs : -1;
    if (!writing_ask(model, &c->request.writing, choice->number, asked, f)) return false;
    if (prompt->place == NULL) asked->passages.search = false;
    add_end(c, &asked->end);
    add_shown(c, asked);
    if (!chat_guide_begin(c, prompt, asked, f)) return false;
    if (!writing_compare(model, &c->request.writing, choice->sequence, f)) return false;
    for (struct sequence *sequence = choice->sequence; prompt->place && sequence; sequence = sequence->asked.comparison)
        chat_place_give(prompt->place, &sequence->asked.place);
    return true;
}

static bool open_choice(struct chat_answer *c, const struct chat_prompt *prompt, struct failure *f) {
    struct chat_choice *choice =
        (struct chat_choice *)writing_answer_add(&c->base, sizeof *choice, &c->principal, c->waker);
    bool reasons = prompt->thinks || chat_reasons(c->base.model->chat);
    choice->base.number = choice->base.index;
    choice->reply = (struct chat_reply){.format = c->format, .reasons = reasons};
    if (prompt->thinks) {
        choice->reply.part = REPLY_THINKS;
        choice->reply.trims = true;
    } else if (c->request.continues) {
        choice->reply.part = REPLY_SAYS;
    }
    return ask(c, &choice->base, prompt, f);
}

static bool open_choices(struct chat_answer *c, struct failure *f) {
    struct chat_prompt prompt = {.pictures = c->pictures ? c->pictures->set : NULL};
    bool ok = chat_prompt_make(c->base.model, &c->request, &prompt, &c->format, f) && chat_guide_tools(c, f);
    for (int i = 0; ok && i < c->request.writing.n; i++) ok = open_choice(c, &prompt, f);
    chat_prompt_free(&prompt);
    return ok;
}

/* Whatever comes before the engine. A conversation with pictures waits for these; the kind of answer is settled
 * behind them, since a picture that cannot be read is a refusal. */
static bool open_answer(struct chat_answer *c, struct failure *f) {
    pthread_mutex_lock(&c->lock);
    bool ok = (!c->pictures || chat_pictures_check(c->pictures, f)) && open_choices(c, f) &&
              writing_answer_submit(&c->base, f);
    c->opened = ok;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

/* Poll. */

static void read_reply(struct choice *choice) {
    bool last = choice->progress.finish != FINISH_NONE;
    chat_reply_read(&((struct chat_choice *)choice)->reply, choice->text.data, choice->text.size, last);
}

static void free_choice(struct choice *choice) { chat_reply_free(&((struct chat_choice *)choice)->reply); }

static const struct writing_ops chat_ops = {.openai = &chat_shape,
                                            .read = read_reply,
                                            .write_new = chat_write_new,
                                            .write_comparison = openai_write_comparison,
                                            .write_end = openai_write_end,
                                            .write_whole = openai_write_whole,
                                            .free_choice = free_choice};

/* Until the pictures are read. */
static enum answer_progress poll_pictures(struct chat_answer *c, struct buffer *out) {
    struct failure f;
    if (!picture_job_is_over(c->pictures)) return ANSWER_WAITING;
    if (open_answer(c, &f)) {
        writing_answer_begin(&c->base);
        return ANSWER_MORE;
    }
    failure_answer(&f, &c->base.base, out);
    return ANSWER_COMPLETE;
}

static enum answer_progress chat_poll(struct answer *a, struct buffer *out) {
    struct chat_answer *c = (struct chat_answer *)a;
    return c->opened ? writing_answer_poll(a, out) : poll_pictures(c, out);
}

static void chat_cancel(struct answer *a) {
    struct chat_answer *c = (struct chat_answer *)a;
    pthread_mutex_lock(&c->lock);
    if (c->pictures) picture_job_cancel(c->pictures);
    writing_answer_cancel(&c->base);
    pthread_mutex_unlock(&c->lock);
}

static void chat_answer_close(struct answer *a) {
    struct chat_answer *c = (struct chat_answer *)a;
    chat_cancel(a);
    writing_answer_free(&c->base);
    picture_job_release(c->pictures);
    principal_release(&c->principal);
    chat_request_free(&c->request);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static bool parse_chat(struct chat_answer *c, struct api *a, const struct api_request *r, struct failure *f) {
    const struct request_models models = writing_models(a);
    if (!chat_request_parse(&c->request, r->body, r->size, &models, f)) return false;
    writing_choose_seed(&c->request.writing);
    c->base.model = api_model(a, c->request.model, f);
    if (c->base.model->chat) return true;
    return failure_set(f, 400, "no_chat_template", "model",
                       "the model %s has no chat template: send its prompt to /v1/completions, or put "
                       "chat_template.jinja into its folder",
                       c->base.model->id);
}

/* The first part of the way: all of it where there are no pictures to wait for. */
static bool begin_answer(struct chat_answer *c, struct failure *f) {
    const struct json *messages = json_member(c->request.body, "messages");
    if (!retrieval_settle(c->base.model, &c->request.writing.retrieval, f) ||
        !chat_pictures_start(c->base.model, messages, &c->principal, c->waker, &c->pictures, f))
        return false;
    return c->pictures || open_answer(c, f);
}

struct answer *chat_open_answer(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    static const struct answer_ops ops = {chat_poll, chat_cancel, chat_answer_close};
    struct chat_answer *c = xcalloc(1, sizeof *c);
    struct answer *answer = &c->base.base;
    pthread_mutex_init(&c->lock, NULL);
    writing_answer_init(&c->base, &chat_ops, &c->request.writing);
    c->principal = principal_hold(r->principal);
    c->waker = waker;
    if (!parse_chat(c, a, r, f) || !begin_answer(c, f)) {
        chat_answer_close(answer);
        return NULL;
    }
    answer_init(answer, &ops, JSON_TYPE);
    if (c->opened) writing_answer_begin(&c->base);
    return answer;
}
