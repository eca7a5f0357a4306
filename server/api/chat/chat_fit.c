/* server/api/chat/chat_fit.c: see chat_fit.h. */
#include "server/api/chat/chat_fit.h"

#include "server/api/chat/chat_place.h"

/* A long text is read in pieces: what does not fit anyway is not read. */
enum { PIECE_BYTES = 64 << 10, ATTEMPTS = 64 };

static bool is_system(const struct json *message) {
    const struct json *role = json_member(message, "role");
    return json_text_is(role, "system") || json_text_is(role, "developer");
}

/* Counting. */

static int64_t count_text(const struct tokenizer *tokenizer, struct text_span text, int64_t most) {
    int64_t n = 0;
    for (size_t at = 0; at < text.size && n <= most; at += PIECE_BYTES) {
        struct tokens tokens = {0};
        struct error e;
        size_t size = text.size - at < PIECE_BYTES ? text.size - at : PIECE_BYTES;
        if (tokenizer_encode(tokenizer, text.text + at, size, TOKENIZER_PLAIN, &tokens, &e) ==
            STATUS_OK)
            n += tokens.n;
        tokens_free(&tokens);
    }
    return n;
}

static int64_t count_message(const struct tokenizer *tokenizer, const struct json *message,
                             int64_t most) {
    const struct json *content = json_member(message, "content");
    struct buffer joined = {0};
    struct text_span text = json_text(content);
    if (json_is_list(content)) {
        chat_join_parts(content, &joined);
        text = (struct text_span){joined.data, joined.size};
    }
    int64_t n = count_text(tokenizer, text, most);
    buffer_free(&joined);
    return n;
}

/* A result of a tool whose call went goes with it, and so does an answer whose question went. */
static int whole_turns(const struct json *messages, int dropped) {
    int seen = 0, last = (int)json_count(messages) - 1;
    for (int i = 0; i < last; i++) {
        const struct json *message = json_item(messages, (size_t)i);
        if (is_system(message)) continue;
        if (seen >= dropped && json_text_is(json_member(message, "role"), "user")) return seen;
        seen++;
    }
    return seen;
}

int chat_count_dropped(const struct tokenizer *tokenizer, const struct json *messages,
                       struct chat_budget budget) {
    int n = (int)json_count(messages), others = 0;
    double left = (double)budget.tokens;
    for (int i = 0; i < n; i++) {
        const struct json *message = json_item(messages, (size_t)i);
        others += !is_system(message);
        if (is_system(message) && left > 0)
            left -= (double)count_message(tokenizer, message, budget.tokens) + budget.per_message;
    }
    for (int i = n - 1; i >= 0; i--) {
        const struct json *message = json_item(messages, (size_t)i);
        if (is_system(message)) continue;
        if (left > 0)
            left -= (double)count_message(tokenizer, message, budget.tokens) + budget.per_message;
        /* The last one stays, whatever it takes. */
        if (left < 0 && i + 1 < n) return whole_turns(messages, others);
        others--;
    }
    return 0;
}

/* Fitting. */

/* The tokens that the template adds to a message, as the prompt tells that was made of those which
 * are left. */
static double measure_message(const struct chat_answer *answer, const struct chat_prompt *prompt) {
    const struct json *messages = chat_request_messages(&answer->request);
    int n = (int)json_count(messages), skipped = 0, kept = 0;
    int64_t counted = 0;
    for (int i = 0; i < n; i++) {
        const struct json *message = json_item(messages, (size_t)i);
        bool drops = !is_system(message) && i + 1 < n && skipped < answer->request.dropped;
        skipped += drops;
        if (drops) continue;
        counted += count_message(answer->base.model->tokenizer, message, prompt->ids.n);
        kept++;
    }
    double more = kept > 0 ? (double)(prompt->ids.n - counted) / kept : 0;
    return more > 0 ? more : 0;
}

/* Every attempt drops one turn more at least. */
static bool drop_more(struct chat_answer *answer, const struct chat_prompt *prompt,
                      int64_t tokens) {
    const struct json *messages = chat_request_messages(&answer->request);
    struct chat_budget budget = {tokens, measure_message(answer, prompt)};
    int before = answer->request.dropped,
        dropped = chat_count_dropped(answer->base.model->tokenizer, messages, budget),
        next = whole_turns(messages, before + 1);
    answer->request.dropped = max_int(dropped, next);
    return answer->request.dropped > before;
}

bool chat_fit_prompt(struct chat_answer *answer, struct chat_prompt *prompt,
                     struct failure *failure) {
    const struct served_model *model = answer->base.model;
    struct chat_request *request = &answer->request;
    int context = model->limits.context, most = context - context / 8;
    bool truncates = request->truncates && answer->pictures == NULL && !request->raw;
    if (truncates)
        request->dropped = chat_count_dropped(model->tokenizer, chat_request_messages(request),
                                              (struct chat_budget){most, 0});
    bool ok = chat_make_prompt(answer, prompt, &answer->format, failure);
    for (int i = 0; ok && truncates && prompt->ids.n > most && i < ATTEMPTS; i++) {
        if (!drop_more(answer, prompt, most)) break;
        chat_prompt_free(prompt);
        ok = chat_make_prompt(answer, prompt, &answer->format, failure);
    }
    return ok;
}
