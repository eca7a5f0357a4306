/* server/api/chat/chat_turns.c: see chat_turns.h. */
#include "server/api/chat/chat_turns.h"

#include <stdlib.h>
#include <string.h>

#include "server/api/chat/chat_skills.h"

/* Open. */

static bool refuse(struct failure *failure, const char *field, const char *why) {
    return failure_set(failure, 400, "unsupported_parameter", field,
                       "%s: %s, which an answer of several turns has no place for; leave out mcp",
                       field, why);
}

/* Refuses requests for things that cannot be told of an answer of several turns. */
static bool check_request(const struct chat_answer *answer, struct failure *failure) {
    const struct chat_request *request = &answer->request;
    const struct request_retrieval *retrieval = &request->writing.retrieval;
    if (!answer->door->tells_calls)
        return failure_set(failure, 400, "unsupported_parameter", "mcp",
                           "this protocol has no words for calls that the server carries out");
    if (request->writing.n > 1) return refuse(failure, "n", "there is more than one answer");
    if (request->logprobs) return refuse(failure, "logprobs", "tokens are told one by one");
    if (request->raw || request->continues)
        return refuse(failure, "continue_final_message", "the answer goes on with a message");
    if (retrieval->compared || retrieval->choice.support || retrieval->choice.every > 0)
        return refuse(failure, "retrieval", "compare, support and every follow one turn");
    return true;
}

/* Whether a chat that says nothing of tools is told of them. */
static bool is_told_unasked(const struct chat_answer *answer, const struct tools *tools) {
    const struct chat_request *request = &answer->request;
    struct failure failure = {0};
    bool fits = tools_settings(tools)->use == TOOLS_ALWAYS && request->mcp == NULL &&
                request->writing.guide.kind == GUIDE_NONE &&
                json_count(json_member(request->body, "tools")) == 0 &&
                chat_knows_tools(answer->base.model->chat) && check_request(answer, &failure);
    failure_free(&failure);
    return fits;
}

static bool add_asked(struct tool_set *set, const struct key *key, const struct json *mcp,
                      struct failure *failure) {
    if (!json_is_list(mcp)) tool_set_add_all(set, key);
    for (size_t i = 0; json_is_list(mcp) && i < json_count(mcp); i++) {
        const struct json *one = json_item(mcp, i), *only = json_member(one, "tools");
        struct text_span name = json_text(json_is_text(one) ? one : json_member(one, "server"));
        struct error e;
        if (tool_set_add(set, key, name, json_is_list(only) ? only : NULL, &e)) {
            failure_from_error(failure, &e);
            return false;
        }
    }
    if (tool_set_count(set) > 0) return true;
    return failure_set(failure, 400, "invalid_value", "mcp",
                       "mcp: there are no tools of servers that this key may use (option "
                       "tools.mcp)");
}

/* The request's own tools, and those of servers behind them. */
static bool join_tools(struct chat_answer *answer, struct failure *failure) {
    const struct json *own = json_member(answer->request.body, "tools");
    struct buffer text = {0};
    struct json_writer w;
    struct error e;
    put_begin(&w, &text);
    put_array(&w);
    for (size_t i = 0; i < json_count(own); i++) put_json(&w, json_item(own, i));
    tool_set_put(&answer->turns->set, &w);
    put_array_end(&w);
    enum status status =
        json_parse(&answer->request.tools, (struct text_span){text.data, text.size}, "tools", &e);
    buffer_free(&text);
    if (status) return failure_from_error(failure, &e);
    return chat_request_settle_tools(&answer->request, failure);
}

static bool refuse_off(struct failure *failure) {
    return failure_set(failure, 400, "unsupported_parameter", "mcp",
                       "mcp: no server of tools is configured (option tools.mcp)");
}

bool chat_turns_open(struct chat_answer *answer, struct api *api, struct failure *failure) {
    const struct json *mcp = answer->request.mcp;
    bool asks = json_is_list(mcp) || json_bool(mcp);
    if (asks && api->tools == NULL) return refuse_off(failure);
    if (api->tools == NULL || (!asks && !is_told_unasked(answer, api->tools))) return true;
    if (asks && !check_request(answer, failure)) return false;
    struct chat_turns *turns = answer->turns = xcalloc(1, sizeof *turns);
    *turns = (struct chat_turns){.answer = answer, .set = {.tools = api->tools}};
    if (asks && !add_asked(&turns->set, answer->principal.key, mcp, failure)) return false;
    if (!asks) tool_set_add_all(&turns->set, answer->principal.key);
    if (tool_set_count(&turns->set) > 0) return join_tools(answer, failure);
    chat_turns_close(turns);
    answer->turns = NULL;
    return true;
}

/* The end. */

static void free_job(struct chat_turns *turns) {
    for (int i = 0; i < turns->job.n; i++) {
        buffer_free(&turns->job.asks[i].arguments);
        buffer_free(&turns->job.asks[i].result);
    }
    free(turns->job.asks);
    free(turns->called);
    turns->job.asks = NULL;
    turns->called = NULL;
    turns->job.n = 0;
}

void chat_turns_close(struct chat_turns *turns) {
    if (turns == NULL) return;
    for (int i = 0; i < turns->n_calls; i++) {
        free(turns->calls[i].name);
        buffer_free(&turns->calls[i].arguments);
        buffer_free(&turns->calls[i].result);
    }
    free(turns->calls);
    free_job(turns);
    if (turns->next) sequence_release(turns->next);
    buffer_free(&turns->added);
    tool_set_free(&turns->set);
    free(turns);
}

void chat_turns_cancel(struct chat_turns *turns) {
    atomic_store(&turns->job.unwanted, true);
    if (turns->next) sequence_cancel(turns->next);
    if (turns->next) engine_notice(turns->answer->base.model->engine);
}

void chat_turns_detach(struct chat_turns *turns) {
    if (turns->next) sequence_detach(turns->next);
}

/* The next turn. */

static void count_turn(struct choice *choice) {
    choice->earlier.n_read += choice->progress.n_read;
    choice->earlier.n_cached += min_int(choice->progress.n_cached, choice->progress.n_read);
    choice->earlier.n_ids += choice->progress.n_ids;
}

static void show_results(struct chat_turns *turns) {
    for (int i = turns->first_call; i < turns->n_calls; i++) turns->calls[i].over = true;
    turns->first_call = turns->n_calls;
}

/* Called with the answer's lock. */
static void begin_turn(struct chat_turns *turns, struct chat_choice *choice, struct error *e) {
    struct choice *base = &choice->base;
    struct sequence *before = base->sequence;
    count_turn(base);
    show_results(turns);
    base->sequence = turns->next;
    turns->next = NULL;
    turns->stage = TURN_WRITES;
    sequence_cancel(before);
    sequence_detach(before);
    sequence_release(before);
    base->ids_sent = 0;
    buffer_clear(&base->text);
    chat_reply_turn(&choice->reply);
    chat_begin_reply(turns->answer, &choice->reply, turns->next_thinks);
    turns->reasoning_from = choice->reply.reasoning.size;
    turns->content_from = choice->reply.content.size;
    base->progress = sequence_read(base->sequence, 0, &base->text, e);
}

/* Called with the answer's lock: a context that is full ends the answer as any does. */
static void end_answer(struct chat_turns *turns, struct choice *choice, struct error *e) {
    show_results(turns);
    turns->stage = TURN_WRITES;
    turns->last = true;
    *e = turns->problem;
    choice->progress.finish = e->status == STATUS_TOO_LARGE ? FINISH_LENGTH : FINISH_ERROR;
}

bool chat_turns_go_on(struct chat_turns *turns, struct chat_choice *choice, struct error *e) {
    bool reads = false;
    pthread_mutex_lock(&turns->answer->lock);
    switch (turns->stage) {
        case TURN_WRITES: reads = true; break;
        case TURN_CALLS: choice->base.progress.finish = FINISH_NONE; break;
        case TURN_READY:
            begin_turn(turns, choice, e);
            reads = choice->base.progress.finish != FINISH_ERROR;
            break;
        case TURN_FAILED: end_answer(turns, &choice->base, e); break;
    }
    pthread_mutex_unlock(&turns->answer->lock);
    return reads;
}

/* Calls. */

static void note_call(struct chat_turns *turns, const struct chat_choice *choice,
                      struct tool_call call) {
    struct tool_server *server;
    const struct tool *tool = tool_set_find(&turns->set, call.name, &server);
    turns->calls = xgrow(turns->calls, turns->n_calls, &turns->capacity, sizeof *turns->calls);
    struct chat_call *noted = &turns->calls[turns->n_calls];
    *noted = (struct chat_call){.name = call.name,
                                .server = tool_server_name(server),
                                .tool = tool->name,
                                .arguments = call.arguments,
                                .reasoning_at = choice->reply.reasoning.size,
                                .content_at = choice->reply.content.size};
    /* Numbers of the client's own calls begin with 0. */
    chat_call_id(turns->answer, choice, 100000 + turns->n_calls, noted->id);
    turns->n_calls++;
}

static bool is_own(const struct chat_turns *turns, const char *name) {
    struct tool_server *server;
    return tool_set_find(&turns->set, name, &server) != NULL;
}

/* Takes the calls of servers out of the reply. A client that takes one call at a time gets its own
 * first one, or the server carries out the first; what follows is dropped. */
static void take_calls(struct chat_turns *turns, struct chat_choice *choice) {
    struct chat_reply *reply = &choice->reply;
    bool one = turns->answer->request.one_call;
    for (int i = 0; i < reply->n_calls;) {
        bool more = one && (i > 0 || turns->n_calls > turns->first_call);
        if (!more && !is_own(turns, reply->calls[i].name)) {
            i++;
            continue;
        }
        struct tool_call call = chat_reply_take_call(reply, i);
        if (!more) {
            note_call(turns, choice, call);
            continue;
        }
        free(call.name);
        buffer_free(&call.arguments);
    }
    struct progress *progress = &choice->base.progress;
    bool called = turns->n_calls > turns->first_call;
    if (one && called && (progress->finish == FINISH_NONE || progress->finish == FINISH_LENGTH))
        progress->finish = FINISH_STOP;
}

static void settle(struct chat_turns *turns, struct chat_call *call, const char *why) {
    struct tool_server *server;
    tool_set_find(&turns->set, call->name, &server);
    tools_note_call(turns->set.tools, server, "not_called");
    call->failed = true;
    buffer_clear(&call->result);
    buffer_append_string(&call->result, why);
}

/* Calls that are not carried out, and end the answer. */
static void settle_all(struct chat_turns *turns, const char *why) {
    for (int i = turns->first_call; i < turns->n_calls; i++) settle(turns, &turns->calls[i], why);
    show_results(turns);
}

/* Why no more calls are carried out; NULL: they may be. */
static const char *limit_reached(const struct chat_turns *turns, const struct choice *choice) {
    const struct tool_settings *settings = tools_settings(turns->set.tools);
    const struct earlier_turns *earlier = &choice->earlier;
    int64_t tokens =
        earlier->n_read + earlier->n_ids + choice->progress.n_read + choice->progress.n_ids;
    if (turns->n_turns > settings->max_turns)
        return "Not called: the answer has as many turns with calls as it may have (option "
               "tools.max_turns). Answer without tools.";
    if (tokens > settings->max_tokens)
        return "Not called: the answer has read and written as many tokens as it may (option "
               "tools.max_tokens). Answer without tools.";
    if (turns->seconds > settings->max_seconds)
        return "Not called: the calls of this answer have taken as long as they may (option "
               "tools.max_seconds). Answer without tools.";
    return NULL;
}

static void add_ask(struct chat_turns *turns, int i) {
    struct tool_job *job = &turns->job;
    const struct chat_call *call = &turns->calls[i];
    struct tool_ask *ask = &job->asks[job->n];
    *ask = (struct tool_ask){.tool = call->tool};
    ask->reads = tool_set_find(&turns->set, call->name, &ask->server)->reads;
    buffer_append(&ask->arguments, call->arguments.data, call->arguments.size);
    turns->called[job->n] = i;
    job->n++;
}

/* Chooses the calls of the turn that are carried out; a model that is refused some has one turn
 * more. */
static void choose_calls(struct chat_turns *turns, const struct choice *choice) {
    const struct tool_settings *settings = tools_settings(turns->set.tools);
    const char *limit = limit_reached(turns, choice);
    size_t n = (size_t)(turns->n_calls - turns->first_call);
    free_job(turns);
    turns->job.asks = xcalloc(n, sizeof *turns->job.asks);
    turns->called = xcalloc(n, sizeof *turns->called);
    for (int i = turns->first_call; i < turns->n_calls; i++) {
        if (limit)
            settle(turns, &turns->calls[i], limit);
        else if (i >= settings->max_calls)
            settle(turns, &turns->calls[i],
                   "Not called: the answer has as many calls as it may have (option "
                   "tools.max_calls). Answer without tools.");
        else
            add_ask(turns, i);
    }
    turns->last = limit != NULL || turns->n_calls > settings->max_calls;
}

static void start_calls(struct chat_turns *turns, struct chat_choice *choice, struct error *e) {
    struct chat_answer *answer = turns->answer;
    const struct tool_settings *settings = tools_settings(turns->set.tools);
    struct tool_job *job = &turns->job;
    turns->n_turns++;
    choose_calls(turns, &choice->base);
    job->client = answer->principal.client;
    job->who = answer->principal.key ? answer->principal.key->name : NULL;
    turns->started = time_now();
    job->deadline = turns->started + settings->max_seconds - turns->seconds;
    if (answer->principal.deadline > 0 && job->deadline > answer->principal.deadline)
        job->deadline = answer->principal.deadline;
    job->done = chat_next_turn;
    answer->written = choice->base.earlier.n_ids + choice->base.progress.n_ids;

    pthread_mutex_lock(&answer->lock);
    turns->stage = TURN_CALLS;
    pthread_mutex_unlock(&answer->lock);
    atomic_fetch_add(&answer->references, 1);
    choice->base.progress.finish = FINISH_NONE;
    if (tools_ask(turns->set.tools, job, e) == STATUS_OK) return;
    atomic_fetch_sub(&answer->references, 1);
    turns->stage = TURN_WRITES;
    settle_all(turns, "Not called: the server has too much to do.");
    choice->base.progress.finish = FINISH_ERROR;
}

void chat_turns_take(struct chat_turns *turns, struct chat_choice *choice, struct error *e) {
    enum finish *finish = &choice->base.progress.finish;
    take_calls(turns, choice);
    if (turns->n_calls == turns->first_call || *finish == FINISH_NONE || *finish == FINISH_ERROR)
        return;
    if (*finish == FINISH_LENGTH)
        settle_all(turns, "Not called: the answer was cut off here.");
    else if (choice->reply.n_calls > 0)
        settle_all(turns,
                   "Not called: the same turn calls tools of the client's, whose results "
                   "come first.");
    else if (turns->last)
        settle_all(turns, "Not called: the model was told to answer without tools.");
    else
        start_calls(turns, choice, e);
}
