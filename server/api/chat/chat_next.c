/* server/api/chat/chat_next.c: the next turn of an answer: the calls and their results become
 * messages of the conversation, and the model reads it again. It runs in a thread of the calls'
 * own: a prompt may be long. See chat_turns.h. */
#include <stdlib.h>
#include <unistd.h>

#include "config/base/utf8.h"
#include "server/api/chat/chat_guide.h"
#include "server/api/chat/chat_turns.h"

enum { ROOM_SHARE = 16, BUSY_MICROSECONDS = 20000 };

/* Results. */

/* Cuts a text to so many tokens, at a character, and tells of it. */
static void cut_result(const struct tokenizer *tokenizer, int most, struct buffer *text) {
    struct tokens tokens = {0};
    struct error e;
    if (text->size <= (size_t)most) return; /* a token has a byte at least */
    if (tokenizer_encode(tokenizer, text->data, text->size, TOKENIZER_PLAIN, &tokens, &e) == 0 &&
        tokens.n > most) {
        text->size = utf8_prefix(text->data, text->size, tokens.starts[most]);
        buffer_printf(text, "\n(cut: these are %d of %d tokens, option tools.max_result_tokens)",
                      most, tokens.n);
    }
    tokens_free(&tokens);
}

static void take_results(struct chat_turns *turns) {
    const struct tool_settings *settings = tools_settings(turns->set.tools);
    for (int i = 0; i < turns->job.n; i++) {
        struct chat_call *call = &turns->calls[turns->called[i]];
        struct tool_ask *ask = &turns->job.asks[i];
        buffer_free(&call->result);
        call->result = ask->result;
        ask->result = (struct buffer){0};
        call->failed = ask->failed;
        cut_result(turns->answer->base.model->tokenizer, settings->max_result_tokens,
                   &call->result);
    }
    turns->seconds += time_now() - turns->started;
}

/* Messages. */

static void put_call(struct json_writer *w, const struct chat_call *call) {
    put_object(w);
    put_key_string(w, "id", call->id);
    put_key_string(w, "type", "function");
    put_key_object(w, "function");
    put_key_string(w, "name", call->name);
    put_key_string_n(w, "arguments", call->arguments.data, call->arguments.size);
    put_object_end(w);
    put_object_end(w);
}

static void put_turn(struct json_writer *w, const struct chat_turns *turns,
                     const struct chat_reply *reply) {
    size_t said = turns->content_from, thought = turns->reasoning_from;
    put_object(w);
    put_key_string(w, "role", "assistant");
    put_key_string_n(w, "content", reply->content.data + said, reply->content.size - said);
    if (reply->reasoning.size > thought)
        put_key_string_n(w, "reasoning_content", reply->reasoning.data + thought,
                         reply->reasoning.size - thought);
    put_key_array(w, "tool_calls");
    for (int i = turns->first_call; i < turns->n_calls; i++) put_call(w, &turns->calls[i]);
    put_array_end(w);
    put_object_end(w);
}

static void put_result(struct json_writer *w, const struct chat_call *call) {
    struct buffer text = {0};
    if (call->failed) buffer_append_string(&text, "The tool failed:\n");
    buffer_append(&text, call->result.data, call->result.size);
    put_object(w);
    put_key_string(w, "role", "tool");
    put_key_string(w, "tool_call_id", call->id);
    put_key_string(w, "name", call->name);
    put_key_string_n(w, "content", text.data, text.size);
    put_object_end(w);
    buffer_free(&text);
}

/* The turn's messages behind those of earlier ones. */
static void add_messages(struct chat_turns *turns) {
    const struct chat_choice *choice = (const struct chat_choice *)turns->answer->base.choices[0];
    struct buffer items = {0};
    struct json_writer w;
    put_begin(&w, &items);
    put_array(&w);
    put_turn(&w, turns, &choice->reply);
    for (int i = turns->first_call; i < turns->n_calls; i++) put_result(&w, &turns->calls[i]);
    put_array_end(&w);
    buffer_append(&turns->added, ",", 1);
    buffer_append(&turns->added, items.data + 1, items.size - 2);
    buffer_free(&items);
}

static bool join_messages(struct chat_turns *turns, struct failure *failure) {
    struct chat_request *request = &turns->answer->request;
    struct buffer text = {0};
    struct json_writer w;
    struct json *messages = NULL;
    struct error e;
    put_begin(&w, &text);
    put_json(&w, json_member(request->body, "messages"));
    text.size--; /* the list goes on */
    buffer_append(&text, turns->added.data, turns->added.size);
    buffer_append(&text, "]", 1);
    enum status status =
        json_parse(&messages, (struct text_span){text.data, text.size}, "messages", &e);
    buffer_free(&text);
    if (status) return failure_from_error(failure, &e);
    json_close(request->messages);
    request->messages = messages;
    return true;
}

/* The sequence. */

/* A call that was forced is forced once. */
static bool settle_guide(struct chat_answer *answer, struct failure *failure) {
    struct request_guide *guide = &answer->request.writing.guide;
    if (!answer->request.forces_call) return true;
    answer->request.forces_call = false;
    request_guide_free(guide);
    *guide = answer->asked_guide;
    answer->asked_guide = (struct request_guide){0};
    return chat_guide_tools(answer, failure);
}

/* Whether the context has room for an answer, and max_tokens has some left. */
static bool has_room(struct chat_answer *answer, const struct chat_prompt *prompt) {
    int context = answer->base.model->limits.context;
    int64_t most = answer->request.max_tokens;
    bool fits = prompt->ids.n + context / ROOM_SHARE <= context;
    if (!fits) answer->clamped = true;
    return fits && (most == 0 || most > answer->written);
}

static enum status submit(struct chat_turns *turns, struct sequence *sequence, struct error *e) {
    struct engine *engine = turns->answer->base.model->engine;
    enum status status;
    while ((status = engine_submit(engine, &sequence, 1, e)) == STATUS_BUSY) {
        bool over = atomic_load(&turns->job.unwanted) || tools_are_stopped(turns->set.tools) ||
                    time_now() > turns->job.deadline;
        if (over) break;
        usleep(BUSY_MICROSECONDS);
    }
    return status;
}

/* False: *e says why there is no next turn; STATUS_TOO_LARGE: the context is full. */
static bool make_sequence(struct chat_turns *turns, const struct chat_prompt *prompt,
                          struct sequence **out, struct failure *failure, struct error *e) {
    struct chat_answer *answer = turns->answer;
    struct choice next = {.sequence = sequence_open(), .number = answer->base.choices[0]->number};
    next.sequence->asked.principal = principal_hold(answer->principal);
    next.sequence->answer.waker = answer->waker;
    bool ok =
        chat_ask(answer, &next, prompt, failure) && submit(turns, next.sequence, e) == STATUS_OK;
    if (ok)
        *out = next.sequence;
    else
        sequence_release(next.sequence);
    return ok;
}

static bool make_turn(struct chat_turns *turns, struct sequence **out, bool *thinks,
                      struct error *e) {
    struct chat_answer *answer = turns->answer;
    struct chat_prompt prompt = {0};
    struct failure failure = {0};
    enum call_format format;
    *e = (struct error){0};
    if (atomic_load(&turns->job.unwanted) || tools_are_stopped(turns->set.tools)) {
        error_set(e, STATUS_CANCELLED, "the answer was given up");
        return false;
    }
    add_messages(turns);
    bool ok = settle_guide(answer, &failure) && join_messages(turns, &failure) &&
              chat_make_prompt(answer, &prompt, &format, &failure);
    bool full = ok && !has_room(answer, &prompt);
    if (full) error_set(e, STATUS_TOO_LARGE, "the context, or max_tokens, is used up");
    ok = ok && !full && make_sequence(turns, &prompt, out, &failure, e);
    *thinks = prompt.thinks;
    if (!ok && e->status == STATUS_OK)
        error_set(e, STATUS_INTERNAL, "the next turn: %s", failure.message);
    failure_free(&failure);
    chat_prompt_free(&prompt);
    return ok;
}

void chat_next_turn(struct tool_job *job) {
    struct chat_turns *turns =
        (struct chat_turns *)(void *)((char *)job - offsetof(struct chat_turns, job));
    struct chat_answer *answer = turns->answer;
    struct sequence *next = NULL;
    struct error problem;
    bool thinks = false;
    take_results(turns);
    bool ok = make_turn(turns, &next, &thinks, &problem);

    pthread_mutex_lock(&answer->lock);
    turns->next = next;
    turns->next_thinks = thinks;
    turns->problem = problem;
    turns->stage = ok ? TURN_READY : TURN_FAILED;
    if (answer->cancelled) chat_turns_cancel(turns);
    if (answer->closed)
        chat_turns_detach(turns);
    else
        answer->waker.wake(answer->waker.context);
    pthread_mutex_unlock(&answer->lock);
    chat_answer_release(answer);
}
