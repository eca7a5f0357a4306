/* server/api/chat/chat_guide.c: see chat_guide.h. */
#include "server/api/chat/chat_guide.h"

#include "retro/chat/call_grammar.h"

static bool is_strict(const struct json *tool) {
    return json_bool(json_member(json_member(tool, "function"), "strict"));
}

static bool any_strict(const struct json *tools) {
    for (size_t i = 0; i < json_count(tools); i++)
        if (is_strict(json_item(tools, i))) return true;
    return false;
}

/* Whether tokens tell where a call begins. */
static bool tells_calls(const struct chat_answer *answer) {
    static const enum grammar_mark parts[] = {MARK_START, MARK_CHANNEL, MARK_MESSAGE,
                                              MARK_MESSAGE_END};
    bool all = answer->format == CALLS_HARMONY;
    enum grammar_mark mark;
    if (call_grammar_mark(answer->format, &mark)) return chat_mark_id(answer, mark) >= 0;
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        all = all && chat_mark_id(answer, parts[i]) >= 0;
    return all;
}

/* The answer where it is no call. */
static void write_answer(struct json_writer *w, const struct request_guide *asked) {
    put_key_object(w, "answer");
    put_key_bool(w, "strict", asked->strict);
    if (asked->kind == GUIDE_SCHEMA) {
        put_key(w, "schema");
        put_raw(w, (struct text_span){asked->text.data, asked->text.size});
    }
    put_object_end(w);
}

/* The format, the tools and the choice, as call_grammar.The answer reads them. */
static void write_guide(const struct chat_answer *answer, struct request_guide *guide) {
    const struct json *body = answer->request.body;
    struct json_writer w;
    put_begin(&w, &guide->text);
    put_object(&w);
    put_key_int(&w, "format", answer->format);
    put_key(&w, "tools");
    put_json(&w, chat_request_tools(&answer->request));
    put_key(&w, "name");
    put_json(&w, json_member(json_member(json_member(body, "tool_choice"), "function"), "name"));
    put_key_bool(&w, "one", answer->request.one_call);
    put_key_bool(&w, "forced", answer->request.forces_call || answer->asked_guide.kind);
    if (!answer->request.forces_call && answer->asked_guide.kind)
        write_answer(&w, &answer->asked_guide);
    put_object_end(&w);
}

/* Whether the answer is JSON where it is no call. */
static bool is_json(const struct request_guide *guide) {
    return guide->kind == GUIDE_OBJECT || guide->kind == GUIDE_SCHEMA;
}

/* Guides that say what the whole answer is; the first turn's is kept for those that follow. */
static bool take_guide(struct chat_answer *answer, const char *field, struct failure *failure) {
    struct request_guide *guide = &answer->request.writing.guide, *asked = &answer->asked_guide;
    if (guide->kind == GUIDE_CALLS) {
        request_guide_free(guide);
        *guide = (struct request_guide){0};
        return true;
    }
    if (guide->kind == GUIDE_NONE) return true;
    if (answer->request.forces_call && !is_json(guide))
        return failure_set(failure, 400, "invalid_value", field,
                           "%s and %s both say what the answer must be: send one", guide->field,
                           field);
    if (!is_json(guide) || (!tells_calls(answer) && !answer->request.forces_call))
        return failure_set(
            failure, 400, "unsupported_parameter", guide->field,
            "%s leaves no room for calls of tools: send tool_choice \"none\" with it",
            guide->field);
    *asked = *guide;
    *guide = (struct request_guide){0};
    return true;
}

bool chat_guide_tools(struct chat_answer *answer, struct failure *failure) {
    struct request_guide *guide = &answer->request.writing.guide;
    const char *field = answer->request.forces_call ? "tool_choice" : "tools";
    if (!answer->request.calls_tools) return true;
    if (!take_guide(answer, field, failure)) return false;
    bool answers = answer->asked_guide.kind != GUIDE_NONE;
    if (!answer->request.forces_call && !answers &&
        !any_strict(chat_request_tools(&answer->request)))
        return true;
    bool unknown = !call_grammar_knows(answer->format) ||
                   (answer->format == CALLS_HARMONY && !tells_calls(answer));
    if (unknown && answer->request.lenient && !answer->request.forces_call) return true;
    if (unknown)
        return failure_set(failure, 400, "unsupported_parameter", field,
                           "the model's chat template writes calls in a way that no grammar here "
                           "describes: they cannot be %s",
                           answer->request.forces_call ? "forced" : "held to strict parameters");
    if (answer->format == CALLS_HARMONY && answer->request.continues)
        return failure_set(failure, 400, "unsupported_parameter", "continue_final_message",
                           "an answer that goes on with a message calls no tools: send tool_choice "
                           "\"none\" with it");
    if (!answer->request.forces_call && !tells_calls(answer))
        return answer->request.lenient ||
               failure_set(failure, 400, "unsupported_parameter", "tools",
                           "strict tools need a model whose calls begin with a token of their own, "
                           "or a forced call "
                           "(tool_choice)");
    guide->kind = GUIDE_CALLS;
    guide->strict = false;
    strcpy(guide->field, field);
    write_guide(answer, guide);
    return true;
}

bool chat_guide_begin(const struct chat_answer *answer, const struct chat_prompt *prompt,
                      struct sequence_request *asked, struct failure *failure) {
    const struct request_guide *guide = &answer->request.writing.guide;
    struct matcher_begin *begin = &asked->grammar_begin;
    enum grammar_mark mark;
    enum thought_form form = chat_answer_thoughts(answer);
    const struct thought_marks *marks = thought_marks_of(form);
    int32_t think = chat_mark_id(answer, marks->begin_mark),
            end = chat_mark_id(answer, marks->end_mark);
    if (guide->kind == GUIDE_NONE) return true;
    if (guide->kind == GUIDE_CALLS && !answer->request.forces_call &&
        answer->asked_guide.kind == GUIDE_NONE && call_grammar_mark(answer->format, &mark)) {
        begin->after = chat_mark_id(answer, mark);
        begin->free = begin->may_end = true;
        return true;
    }
    if (prompt->thinks && end < 0)
        return failure_set(failure, 400, "unsupported_parameter", guide->field,
                           "%s: the model thinks first, and %s is no token of its own, so that the "
                           "beginning of the answer cannot be told; turn thinking off "
                           "(chat_template_kwargs)",
                           guide->field, marks->end);
    bool may_think = !prompt->thought && !answer->request.unthinking && form != THOUGHTS_NONE &&
                     think >= 0 && end >= 0;
    begin->free = prompt->thinks;
    if (prompt->thinks || may_think) begin->after = end;
    if (!prompt->thinks && may_think) begin->optional = think;
    return true;
}
