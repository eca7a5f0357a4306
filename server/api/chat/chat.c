/* server/api/chat/chat.c: from a conversation to sequences, and from their progress to an answer.
 * See chat.h. */
#include "server/api/chat/chat.h"

#include <stdlib.h>
#include <string.h>

#include "retro/chat/chat.h"
#include "retro/chat/harmony.h"
#include "server/api/chat/chat_fit.h"
#include "server/api/chat/chat_guide.h"
#include "server/api/chat/chat_pictures.h"
#include "server/api/chat/chat_place.h"
#include "server/api/chat/chat_turns.h"
#include "server/api/text/quotes_ask.h"
#include "server/api/text/retrieval_ask.h"
#include "server/api/text/writing_ask.h"

/* Open. */

/* Tokens that passages may take in the prompt: of its own turn, and of earlier ones. */
static int count_reserved(const struct served_model *model, const struct chat_place *place) {
    if (place == NULL) return 0;
    return model->passage_tokens + (place->n > 1 ? model->conversation_tokens : 0);
}

/* An answer of no length given takes what passages leave of the context, and half of it at least.
 */
static bool choose_length(struct chat_answer *answer, const struct chat_prompt *prompt,
                          int *max_tokens, struct failure *failure) {
    int context = answer->base.model->limits.context, n_prompt = prompt->ids.n,
        room = max_int(context - n_prompt, 1);
    int reserved = min_int(count_reserved(answer->base.model, prompt->place), room / 2);
    int64_t wanted =
        answer->request.max_tokens ? answer->request.max_tokens - answer->written : room - reserved;
    answer->clamped = answer->request.clamps && wanted > room - reserved;
    if (answer->clamped) wanted = room - reserved;
    *max_tokens = (int)wanted;
    if (n_prompt >= context)
        return failure_set(failure, 400, "context_length_exceeded", "messages",
                           "prompt is too long: %d tokens > %d maximum, which is the model's "
                           "context, or option server.max_context",
                           n_prompt, context);
    if (n_prompt + wanted <= context) return true;
    return failure_set(failure, 400, "context_length_exceeded",
                       answer->request.max_tokens ? "max_tokens" : "messages",
                       "the conversation has %d tokens and max_tokens is %lld, together %lld; the "
                       "limit is %d tokens "
                       "(the model's, or option server.max_context)",
                       n_prompt, (long long)wanted, (long long)(n_prompt + wanted), context);
}

enum thought_form chat_answer_thoughts(const struct chat_answer *answer) {
    return answer->request.raw ? THOUGHTS_NONE : chat_thoughts(answer->base.model->chat);
}

static bool has_channels(const struct chat_answer *answer) {
    return !answer->request.raw && chat_has_channels(answer->base.model->chat);
}

int32_t chat_mark_id(const struct chat_answer *answer, enum grammar_mark mark) {
    const struct served_model *model = answer->base.model;
    const char *text = grammar_mark_text(mark);
    int32_t id = tokenizer_added_id(model->tokenizer, (struct text_span){text, strlen(text)});
    return id < model->limits.vocab ? id : -1;
}

static void add_end_id(struct sequence_end *end, int32_t id) {
    if (id < 0) return;
    end->stop_ids = xrealloc(end->stop_ids, ((size_t)end->n_stop_ids + 1) * sizeof *end->stop_ids);
    end->stop_ids[end->n_stop_ids] = id;
    end->n_stop_ids++;
}

/* A turn ends by the template's own token or text too, whatever ends a text; in channels also
 * behind a call. */
static void add_end(const struct chat_answer *answer, struct sequence_end *end) {
    const struct served_model *model = answer->base.model;
    if (end->ignore_eos || answer->request.raw) return;
    const char *text = chat_stop(model->chat);
    if (text) stops_add(&end->stops, text, strlen(text));
    add_end_id(end, chat_end(model->chat, model->tokenizer));
    if (!has_channels(answer)) return;
    add_end_id(end, chat_mark_id(answer, MARK_MESSAGE_CALL));
    add_end_id(end, chat_mark_id(answer, MARK_MESSAGE_RETURN));
}

static void show_id(struct sequence_request *asked, int32_t id) {
    if (id < 0) return;
    asked->shown[asked->n_shown] = id;
    asked->n_shown++;
}

/* Special tokens that an answer is taken apart by. */
static void add_shown(const struct chat_answer *answer, struct sequence_request *asked) {
    int kinds = has_channels(answer) ? MARK_KINDS : MARK_HARMONY;
    const char *tags[CALL_FORMAT_TAGS];
    int n_tags = call_format_tags(answer->format, tags);
    asked->shown = xcalloc(MARK_KINDS + CALL_FORMAT_TAGS, sizeof *asked->shown);
    for (int i = 0; i < kinds; i++) show_id(asked, chat_mark_id(answer, (enum grammar_mark)i));
    for (int i = 0; i < n_tags; i++) {
        struct text_span tag = {tags[i], strlen(tags[i])};
        show_id(asked, tokenizer_added_id(answer->base.model->tokenizer, tag));
    }
}

bool chat_ask(struct chat_answer *answer, struct choice *choice, const struct chat_prompt *prompt,
              struct failure *failure) {
    const struct served_model *model = answer->base.model;
    struct sequence_request *asked = &choice->sequence->asked;
    if (!choose_length(answer, prompt, &asked->max_tokens, failure)) return false;
    asked->n_prompt = prompt->ids.n;
    asked->prompt = writing_copy_ids(prompt->ids.ids, prompt->ids.n);
    asked->pictures = picture_set_hold(prompt->pictures);
    asked->n_top = answer->request.logprobs ? (int)answer->request.top_logprobs : -1;
    if (!writing_ask(model, &answer->request.writing, choice->number, asked, failure)) return false;
    if (answer->request.one_call || answer->request.watched) asked->wake_per_token = true;
    if (prompt->place == NULL) asked->passages.search = false;
    add_end(answer, &asked->end);
    add_shown(answer, asked);
    if (!chat_guide_begin(answer, prompt, asked, failure)) return false;
    if (!writing_compare(model, &answer->request.writing, choice->sequence, failure)) return false;
    for (struct sequence *sequence = choice->sequence; prompt->place && sequence;
         sequence = sequence->asked.comparison)
        chat_place_give(prompt->place, &sequence->asked.place);
    return true;
}

/* The guide is of what the answer says, not of its calls. */
static bool is_guided(const struct chat_answer *answer) {
    enum guide_kind kind = answer->request.writing.guide.kind;
    return kind != GUIDE_NONE && kind != GUIDE_CALLS;
}

void chat_begin_reply(const struct chat_answer *answer, struct chat_reply *reply, bool thinks) {
    reply->thoughts = chat_answer_thoughts(answer);
    if (thinks && reply->thoughts == THOUGHTS_NONE) reply->thoughts = THOUGHTS_TAGGED;
    reply->channels = has_channels(answer);
    if (thinks) {
        reply->part = REPLY_THINKS;
        reply->trims = true;
    } else if (answer->request.continues || (reply->channels && is_guided(answer))) {
        reply->part = REPLY_SAYS;
    } else {
        reply->trims = !answer->request.raw && chat_is_plain(answer->base.model->chat);
    }
}

static bool open_choice(struct chat_answer *answer, const struct chat_prompt *prompt,
                        struct failure *failure) {
    struct chat_choice *choice = (struct chat_choice *)writing_answer_add(
        &answer->base, answer->door->choice_bytes, &answer->principal, answer->waker);
    choice->base.number = choice->base.index;
    choice->turns = answer->turns;
    choice->reply = (struct chat_reply){.format = answer->format,
                                        .tools = chat_request_tools(&answer->request)};
    chat_begin_reply(answer, &choice->reply, prompt->thinks);
    return chat_ask(answer, &choice->base, prompt, failure);
}

bool chat_make_prompt(const struct chat_answer *answer, struct chat_prompt *prompt,
                      enum call_format *format, struct failure *failure) {
    *prompt = (struct chat_prompt){.pictures = answer->pictures ? answer->pictures->set : NULL,
                                   .who = &answer->principal,
                                   .rewrite = &answer->rewrite};
    return chat_prompt_make(answer->base.model, &answer->request, prompt, format, failure);
}

bool chat_check_prompt(struct chat_answer *answer, struct failure *failure) {
    int max_tokens;
    answer->is_checked = true;
    return chat_fit_prompt(answer, &answer->checked, failure) &&
           choose_length(answer, &answer->checked, &max_tokens, failure);
}

/* The prompt of the first turn: a long conversation is rendered once. */
static bool take_prompt(struct chat_answer *answer, struct chat_prompt *prompt,
                        struct failure *failure) {
    if (!answer->is_checked) return chat_fit_prompt(answer, prompt, failure);
    *prompt = answer->checked;
    answer->checked = (struct chat_prompt){0};
    answer->is_checked = false;
    if (prompt->place) chat_place_rewrite(prompt->place, &answer->rewrite);
    return true;
}

static bool open_choices(struct chat_answer *answer, struct failure *failure) {
    struct chat_prompt prompt;
    bool ok = take_prompt(answer, &prompt, failure) && chat_guide_tools(answer, failure);
    answer->n_counted = prompt.ids.n;
    for (int i = 0; ok && !answer->counts && i < answer->request.writing.n; i++)
        ok = open_choice(answer, &prompt, failure);
    chat_prompt_free(&prompt);
    return ok;
}

/* Whatever comes before the engine. A conversation with pictures waits for these; the kind of
 * answer is settled behind them, since a picture that cannot be read is a refusal. */
static bool open_answer(struct chat_answer *answer, struct failure *failure) {
    pthread_mutex_lock(&answer->lock);
    bool ok = (!answer->pictures || chat_pictures_check(answer->pictures, failure)) &&
              open_choices(answer, failure) &&
              (answer->counts || writing_answer_submit(&answer->base, failure));
    answer->opened = ok;
    pthread_mutex_unlock(&answer->lock);
    return ok;
}

/* Poll. */

/* A client that takes one call at a time gets the first: the answer ends with it. */
static void end_with_call(const struct chat_answer *answer, struct chat_choice *choice) {
    struct progress *progress = &choice->base.progress;
    if (!answer->request.one_call || choice->reply.n_calls == 0) return;
    if (progress->finish == FINISH_NONE || progress->finish == FINISH_LENGTH)
        progress->finish = FINISH_STOP;
    while (choice->reply.n_calls > 1) chat_reply_drop_call(&choice->reply);
}

void chat_read(const struct writing_answer *answer, struct choice *choice, struct error *e) {
    struct chat_choice *own = (struct chat_choice *)choice;
    if (own->turns && !chat_turns_go_on(own->turns, own, e)) return;
    bool last = choice->progress.finish != FINISH_NONE;
    chat_reply_read(&own->reply, choice->text.data, choice->text.size, last);
    if (own->turns) chat_turns_take(own->turns, own, e);
    end_with_call((const struct chat_answer *)answer, own);
}

void chat_free_choice(struct choice *choice) {
    chat_reply_free(&((struct chat_choice *)choice)->reply);
}

void chat_keep_comparison(const struct writing_answer *answer, struct choice *choice,
                          struct buffer *out) {
    (void)answer, (void)choice, (void)out;
}

/* Asks for the rewrite behind the pictures, which belong to the prompt that is checked before it.
 */
static bool begin_rewrite(struct chat_answer *answer, struct failure *failure) {
    pthread_mutex_lock(&answer->lock);
    bool ok = !answer->rewrite_waits || (chat_pictures_check(answer->pictures, failure) &&
                                         chat_rewrite_start(answer, answer->api, failure));
    answer->rewrite_waits = false;
    if (answer->cancelled) chat_rewrite_cancel(&answer->rewrite);
    pthread_mutex_unlock(&answer->lock);
    return ok;
}

/* The pictures, and then the rewritten question, come before the engine. */
static enum answer_progress poll_opening(struct chat_answer *answer, struct buffer *out) {
    struct failure failure;
    if (answer->pictures && !picture_job_is_over(answer->pictures)) return ANSWER_WAITING;
    bool ok = begin_rewrite(answer, &failure);
    if (ok && !chat_rewrite_is_over(answer)) return ANSWER_WAITING;
    if (ok && open_answer(answer, &failure)) {
        writing_answer_begin(&answer->base);
        return ANSWER_MORE;
    }
    failure_answer(&failure, &answer->base.base, out);
    return ANSWER_COMPLETE;
}

static enum answer_progress chat_poll(struct answer *answer, struct buffer *out) {
    struct chat_answer *chat_answer = (struct chat_answer *)answer;
    return chat_answer->opened ? writing_answer_poll(answer, out) : poll_opening(chat_answer, out);
}

static void chat_cancel(struct answer *answer) {
    struct chat_answer *chat_answer = (struct chat_answer *)answer;
    pthread_mutex_lock(&chat_answer->lock);
    chat_answer->cancelled = true;
    if (chat_answer->pictures) picture_job_cancel(chat_answer->pictures);
    chat_rewrite_cancel(&chat_answer->rewrite);
    writing_answer_cancel(&chat_answer->base);
    if (chat_answer->turns) chat_turns_cancel(chat_answer->turns);
    pthread_mutex_unlock(&chat_answer->lock);
}

void chat_answer_release(struct chat_answer *answer) {
    if (atomic_fetch_sub(&answer->references, 1) != 1) return;
    writing_answer_free(&answer->base);
    chat_turns_close(answer->turns);
    if (answer->door->free) answer->door->free(answer);
    picture_job_release(answer->pictures);
    chat_rewrite_free(&answer->rewrite);
    chat_prompt_free(&answer->checked);
    principal_release(&answer->principal);
    request_guide_free(&answer->asked_guide);
    chat_request_free(&answer->request);
    pthread_mutex_destroy(&answer->lock);
    free(answer);
}

/* Calls that are under way keep what they need of the answer; nobody is woken by it any more. */
static void chat_answer_close(struct answer *answer) {
    struct chat_answer *chat_answer = (struct chat_answer *)answer;
    chat_cancel(answer);
    pthread_mutex_lock(&chat_answer->lock);
    chat_answer->closed = true;
    for (int i = 0; i < chat_answer->base.n; i++)
        sequence_detach(chat_answer->base.choices[i]->sequence);
    if (chat_answer->turns) chat_turns_detach(chat_answer->turns);
    chat_rewrite_end(&chat_answer->rewrite);
    pthread_mutex_unlock(&chat_answer->lock);
    chat_answer_release(chat_answer);
}

/* The first part of the way: all of it where there is nothing to wait for. */
static bool begin_answer(struct chat_answer *answer, struct api *api, struct failure *failure) {
    const struct json *messages = json_member(answer->request.body, "messages");
    struct request_writing *writing = &answer->request.writing;
    if (!chat_turns_open(answer, api, failure) ||
        !retrieval_settle(answer->base.model, &writing->retrieval, failure) ||
        !quotes_settle(answer->base.model, writing, answer->request.calls_tools, failure) ||
        !chat_pictures_start(answer->base.model, messages, &answer->principal, answer->waker,
                             &answer->pictures, failure))
        return false;
    answer->api = api;
    answer->rewrite_waits = answer->pictures != NULL;
    if (!answer->pictures && !chat_rewrite_start(answer, api, failure)) return false;
    return answer->pictures || answer->rewrite.asked || open_answer(answer, failure);
}

static bool choose_model(struct chat_answer *answer, struct api *api, struct failure *failure) {
    writing_choose_seed(&answer->request.writing);
    answer->base.model = api_model(api, answer->request.model, failure);
    if (answer->base.model->chat || answer->request.raw) return true;
    return failure_set(failure, 400, "no_chat_template", "model",
                       "the model %s has no chat template, and its encoder reads no conversations: "
                       "send its prompt "
                       "to /v1/completions",
                       answer->base.model->id);
}

struct answer *chat_door_open(const struct chat_door *door, struct api *api,
                              const struct api_request *request, struct waker waker,
                              struct failure *failure) {
    static const struct answer_ops ops = {chat_poll, chat_cancel, chat_answer_close};
    struct chat_answer *chat_answer = xcalloc(1, door->answer_bytes);
    struct answer *answer = &chat_answer->base.base;
    pthread_mutex_init(&chat_answer->lock, NULL);
    atomic_init(&chat_answer->references, 1);
    chat_answer->door = door;
    writing_answer_init(&chat_answer->base, door->ops, &chat_answer->request.writing);
    chat_answer->principal = principal_hold(request->principal);
    chat_answer->waker = waker;
    if (!door->read(chat_answer, api, request, failure) ||
        !choose_model(chat_answer, api, failure) || !begin_answer(chat_answer, api, failure)) {
        chat_answer_close(answer);
        return NULL;
    }
    answer_init(answer, &ops, JSON_TYPE);
    if (chat_answer->opened) writing_answer_begin(&chat_answer->base);
    return answer;
}

/* The door of OpenAI's chat completions, whose shapes are in chat_json.c. */

static bool read_chat(struct chat_answer *answer, struct api *api,
                      const struct api_request *request, struct failure *failure) {
    const struct request_models models = writing_models(api);
    return chat_request_parse(&answer->request, request->body, request->size, &models, failure);
}

struct answer *chat_open_answer(struct api *api, const struct api_request *request,
                                struct waker waker, struct failure *failure) {
    static const struct writing_ops ops = {.openai = &chat_shape,
                                           .read = chat_read,
                                           .write_new = chat_write_new,
                                           .write_comparison = openai_write_comparison,
                                           .write_end = openai_write_end,
                                           .write_whole = openai_write_whole,
                                           .free_choice = chat_free_choice};
    static const struct chat_door door = {.ops = &ops,
                                          .answer_bytes = sizeof(struct chat_answer),
                                          .choice_bytes = sizeof(struct chat_choice),
                                          .read = read_chat,
                                          .tells_calls = true};
    return chat_door_open(&door, api, request, waker, failure);
}
