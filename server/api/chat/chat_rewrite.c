/* server/api/chat/chat_rewrite.c: see chat_rewrite.h. */
#include "server/api/chat/chat_rewrite.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "server/api/chat/chat.h"
#include "server/api/chat/chat_place.h"
#include "server/api/text/retrieval_ask.h"
#include "server/api/text/writing_ask.h"
#include "server/host/prompt/conversations.h"

/* A message takes half of the room that is left at most, so that a long answer leaves some to the
 * question before it; what is shorter than the least is not worth reading. */
enum { LEAST_TOKENS = 8, TOKEN_BYTES = 16, CONTEXT_SHARE = 4 };

/* One line that begins with no blank. */
static const char line_pattern[] = "\\S[^\\x00-\\x1f\\x7f\\u0085\\u2028\\u2029]*";

static const char instruction[] =
    "Below are the last turns of a conversation, and its next question. Write the question anew, "
    "so that it can be understood without the conversation: put the names of things in place of "
    "words that point back, such as \"it\", \"they\" or \"the second one\". Keep its language and "
    "its meaning. Repeat it where nothing points back. Write nothing but the question, on one "
    "line.\n\n";

/* The prompt. */

struct rewrite_turn {
    const char *role;
    struct buffer text;
};

/* The bytes of a text that its first tokens cover, `most` at most; *n of them. No more of a long
 * text is read than they may need. */
static size_t count_covered(const struct tokenizer *tokenizer, struct text_span text, int most,
                            int *n) {
    struct tokens tokens = {0};
    struct error e;
    size_t read = text.size;
    if (read / TOKEN_BYTES > (size_t)most)
        read = utf8_prefix(text.text, text.size, (size_t)most * TOKEN_BYTES);
    *n = most;
    if (tokenizer_encode(tokenizer, text.text, read, TOKENIZER_PLAIN, &tokens, &e) == STATUS_OK) {
        *n = min_int(tokens.n, most);
        if (tokens.n > most) read = utf8_prefix(text.text, read, tokens.starts[most]);
    } else {
        read = 0;
    }
    tokens_free(&tokens);
    return read;
}

/* The latest turns before message `last`, the latest first; returns how many. */
static int list_turns(const struct served_model *model, const struct json *messages, size_t last,
                      int left, struct rewrite_turn *turns) {
    int n = 0;
    for (size_t i = last; i > 0 && left >= LEAST_TOKENS; i--) {
        const struct json *message = json_item(messages, i - 1);
        struct rewrite_turn *turn = &turns[n];
        int tokens;
        if (!chat_is_turn(message)) continue;
        *turn = (struct rewrite_turn){.role = json_word(json_member(message, "role"))};
        chat_append_text(message, &turn->text);
        struct text_span text = {turn->text.data ? turn->text.data : "", turn->text.size};
        turn->text.size = count_covered(model->tokenizer, text, (left + 1) / 2, &tokens);
        left -= tokens;
        n++;
    }
    return n;
}

static void write_message(const struct rewrite_turn *turns, int n, struct text_span question,
                          struct buffer *out) {
    buffer_append_string(out, instruction);
    for (int i = n - 1; i >= 0; i--) {
        buffer_printf(out, "%s: ", turns[i].role);
        buffer_append(out, turns[i].text.data, turns[i].text.size);
        buffer_append_string(out, "\n");
    }
    buffer_append_string(out, "\nThe next question: ");
    buffer_append(out, question.text, question.size);
    buffer_append_string(out, "\n\nThe question anew:");
}

/* The request, whose answer is drawn by nothing but what the model holds likeliest. */
static void write_body(const struct served_model *model, const struct buffer *message,
                       struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    put_key_string(&w, "model", model->id);
    put_key_array(&w, "messages");
    put_object(&w);
    put_key_string(&w, "role", "user");
    put_key_string_n(&w, "content", message->data, message->size);
    put_object_end(&w);
    put_array_end(&w);
    put_key_int(&w, "max_tokens", model->rewrite.tokens);
    put_key_int(&w, "temperature", 0);
    put_key_int(&w, "repetition_penalty", 1);
    put_key_int(&w, "no_repeat_ngram_size", 0);
    put_key_string(&w, "guided_regex", line_pattern);
    put_key_object(&w, "chat_template_kwargs");
    put_key_bool(&w, "enable_thinking", false);
    put_object_end(&w);
    put_key_object(&w, "retrieval");
    put_key_bool(&w, "enabled", false);
    put_object_end(&w);
    put_object_end(&w);
}

/* The door: a chat whose answer stays here. */

static bool read_body(struct chat_answer *answer, struct api *api,
                      const struct api_request *request, struct failure *failure) {
    const struct request_models models = writing_models(api);
    bool ok = chat_request_parse(&answer->request, request->body, request->size, &models, failure);
    answer->request.unthinking = true;
    return ok;
}

/* It is read from the choice. */
static void write_nothing(struct writing_answer *answer, struct buffer *out) {
    (void)answer, (void)out;
}

static const struct writing_ops rewrite_ops = {
    .read = chat_read, .write_whole = write_nothing, .free_choice = chat_free_choice};
static const struct chat_door rewrite_door = {.ops = &rewrite_ops,
                                              .answer_bytes = sizeof(struct chat_answer),
                                              .choice_bytes = sizeof(struct chat_choice),
                                              .read = read_body};

/* Asking. */

static void fail(struct chat_answer *answer, const char *what, const char *why) {
    struct buffer text = {0};
    buffer_printf(&text, "%s%s", what, why);
    answer->rewrite.problem = xstrndup(text.data, text.size);
    buffer_free(&text);
    conversations_note_rewrite(answer->base.model->conversations, false);
}

/* A server that is busy or broken refuses the answer too; all else is told in it. */
static bool open_rewrite(struct chat_answer *answer, struct api *api, const struct buffer *message,
                         struct failure *failure) {
    struct buffer body = {0};
    write_body(answer->base.model, message, &body);
    const struct api_request request = {
        .body = body.data, .size = body.size, .principal = answer->principal};
    answer->rewrite.asked = chat_door_open(&rewrite_door, api, &request, answer->waker, failure);
    buffer_free(&body);
    if (answer->rewrite.asked) return true;
    if (failure->http >= 500) return false;
    fail(answer, "the model could not be asked: ", failure->message);
    failure_free(failure);
    return true;
}

/* A question that is longer than what it would be rewritten by says enough by itself. */
static bool ask(struct chat_answer *answer, struct api *api, size_t last, struct failure *failure) {
    const struct served_model *model = answer->base.model;
    const struct json *messages = chat_request_messages(&answer->request);
    int most = min_int(model->rewrite.context, model->limits.context / CONTEXT_SHARE), n_tokens;
    struct rewrite_turn *turns = xcalloc(last + 1, sizeof *turns);
    struct buffer question = {0}, message = {0};
    bool ok = true;
    chat_append_text(json_item(messages, last), &question);
    struct text_span text = {question.data, question.size};
    if (count_covered(model->tokenizer, text, most, &n_tokens) < text.size) {
        fail(answer, "the question is longer than the text that it is rewritten by",
             " (option retrieval.rewrite_context, and a quarter of the model's context)");
    } else {
        int n = list_turns(model, messages, last, most, turns);
        write_message(turns, n, text, &message);
        ok = open_rewrite(answer, api, &message, failure);
        for (int i = 0; i < n; i++) buffer_free(&turns[i].text);
    }
    buffer_free(&question);
    buffer_free(&message);
    free(turns);
    return ok;
}

static bool check(const struct served_model *model, const struct retrieval_choice *choice,
                  struct failure *failure) {
    static const char field[] = "retrieval.query";
    if (!retrieval_prompts(choice->mode))
        return failure_set(failure, 400, "unsupported_parameter", field,
                           "retrieval.query: questions are rewritten for passages in a prompt, "
                           "and this request reads neighbours by cross attention: send \"mode\": "
                           "\"prompt\", or \"query\": \"message\"");
    if (model->chat && !chat_is_plain(model->chat)) return true;
    return failure_set(failure, 400, "unsupported_parameter", field,
                       "retrieval.query: the model %s has no chat template by which it could be "
                       "asked to rewrite a question: send \"query\": \"conversation\"",
                       model->id);
}

bool chat_rewrite_start(struct chat_answer *answer, struct api *api, struct failure *failure) {
    const struct served_model *model = answer->base.model;
    const struct request_retrieval *retrieval = &answer->request.writing.retrieval;
    const struct json *messages = chat_request_messages(&answer->request);
    bool wanted =
        retrieval->choice.query == RETRIEVAL_BY_REWRITTEN && retrieval_searches(model, retrieval);
    if (!wanted || answer->counts || answer->request.raw) return true;
    if (!choice_says(&retrieval->choice, CHOICE_QUERY) &&
        !retrieval_prompts(retrieval->choice.mode))
        return true;
    if (!check(model, &retrieval->choice, failure)) return false;
    size_t last = 0;
    if (!chat_find_question(messages, &last) || !chat_has_turns(messages, last)) return true;
    /* A request that is refused anyway costs nobody a rewrite. */
    if (!chat_check_prompt(answer, failure)) return false;
    return ask(answer, api, last, failure);
}

/* The answer to it. */

static void take_line(struct chat_answer *answer, const struct chat_answer *asked) {
    const struct chat_choice *choice = (const struct chat_choice *)asked->base.choices[0];
    const struct buffer *line = &choice->reply.content;
    const struct progress *progress = &choice->base.progress;
    size_t size = line->size;
    while (size > 0 && strchr(" \t", line->data[size - 1])) size--;
    if (progress->finish == FINISH_ERROR)
        fail(answer, "the model failed: ", choice->base.sequence->answer.error.text);
    else if (progress->finish == FINISH_LENGTH)
        fail(answer, "the model's question has no end within its limit",
             " (option retrieval.rewrite_tokens)");
    else if (size == 0)
        fail(answer, "the model wrote no question", "");
    else
        answer->rewrite.query = xstrndup(line->data, size);
    if (answer->rewrite.query) conversations_note_rewrite(answer->base.model->conversations, true);
}

bool chat_rewrite_is_over(struct chat_answer *answer) {
    struct chat_rewrite *rewrite = &answer->rewrite;
    struct buffer out = {0};
    if (rewrite->asked == NULL || rewrite->query || rewrite->problem) return true;
    bool over = rewrite->asked->ops->poll(rewrite->asked, &out) == ANSWER_COMPLETE;
    buffer_free(&out);
    if (over) take_line(answer, (const struct chat_answer *)rewrite->asked);
    return over;
}

void chat_rewrite_cancel(const struct chat_rewrite *rewrite) {
    if (rewrite->asked) rewrite->asked->ops->cancel(rewrite->asked);
}

void chat_rewrite_end(struct chat_rewrite *rewrite) {
    if (rewrite->asked) answer_close(rewrite->asked);
    rewrite->asked = NULL;
}

void chat_rewrite_free(struct chat_rewrite *rewrite) {
    chat_rewrite_end(rewrite);
    free(rewrite->query);
    free(rewrite->problem);
}
