/* server/api/chat/chat_guide.c: see chat_guide.h. */
#include "server/api/chat/chat_guide.h"

#include <string.h>

static bool is_strict(const struct json *tool) {
    return json_bool(json_member(json_member(tool, "function"), "strict"));
}

static bool any_strict(const struct json *tools) {
    for (size_t i = 0; i < json_count(tools); i++)
        if (is_strict(json_item(tools, i))) return true;
    return false;
}

static int32_t mark_id(const struct chat_answer *c, enum grammar_mark mark) {
    const char *text = grammar_mark_text(mark);
    int32_t id = tokenizer_added_id(c->base.model->tokenizer, (struct text_span){text, strlen(text)});
    return id < c->base.model->limits.vocab ? id : -1;
}

static enum grammar_mark call_mark(const struct chat_answer *c) {
    return c->format == CALLS_HERMES ? MARK_CALL : MARK_CALLS;
}

/* The format, the tools and the choice, as call_grammar.c reads them. */
static void write_guide(const struct chat_answer *c, struct request_guide *g) {
    const struct json *body = c->request.body;
    struct json_writer w;
    put_begin(&w, &g->text);
    put_object(&w);
    put_key_int(&w, "format", c->format);
    put_key(&w, "tools");
    put_json(&w, json_member(body, "tools"));
    put_key(&w, "name");
    put_json(&w, json_member(json_member(json_member(body, "tool_choice"), "function"), "name"));
    put_key_bool(&w, "forced", c->request.forces_call);
    put_object_end(&w);
}

bool chat_guide_tools(struct chat_answer *c, struct failure *f) {
    struct request_guide *g = &c->request.writing.guide;
    const char *field = c->request.forces_call ? "tool_choice" : "tools";
    if (!c->request.calls_tools) return true;
    if (!c->request.forces_call && !any_strict(json_member(c->request.body, "tools"))) {
        if (g->kind == GUIDE_NONE) return true;
        return failure_set(f, 400, "unsupported_parameter", g->field,
                           "%s leaves no room for calls of tools: send tool_choice \"none\" with it", g->field);
    }
    if (g->kind != GUIDE_NONE)
        return failure_set(f, 400, "invalid_value", field, "%s and %s both say what the answer must be: send one",
                           g->field, field);
    if (c->format == CALLS_NONE)
        return failure_set(f, 400, "unsupported_parameter", field,
                           "the model's chat template writes calls in a way that is not known here: they cannot be %s",
                           c->request.forces_call ? "forced" : "held to strict parameters");
    if (!c->request.forces_call && (c->format == CALLS_LLAMA || mark_id(c, call_mark(c)) < 0))
        return failure_set(f, 400, "unsupported_parameter", "tools",
                           "strict tools need a model whose calls begin with a token of their own, or a forced call "
                           "(tool_choice)");
    g->kind = GUIDE_CALLS;
    g->strict = false;
    strcpy(g->field, field);
    write_guide(c, g);
    return true;
}

bool chat_guide_begin(const struct chat_answer *c, const struct chat_prompt *prompt, struct sequence_request *asked,
                      struct failure *f) {
    const struct request_guide *g = &c->request.writing.guide;
    struct matcher_begin *begin = &asked->grammar_begin;
    int32_t think = mark_id(c, MARK_THINK), end = mark_id(c, MARK_THINK_END);
    if (g->kind == GUIDE_NONE) return true;
    if (g->kind == GUIDE_CALLS && !c->request.forces_call) {
        *begin =
            (struct matcher_begin){.after = mark_id(c, call_mark(c)), .optional = -1, .free = true, .may_end = true};
        return true;
    }
    if (prompt->thinks && end < 0)
        return failure_set(f, 400, "unsupported_parameter", g->field,
                           "%s: the model thinks first, and </think> is no token of its own, so that the beginning of "
                           "the answer cannot be told; turn thinking off (chat_template_kwargs)",
                           g->field);
    if (prompt->thinks)
        *begin = (struct matcher_begin){.after = end, .optional = -1, .free = true};
    else if (!prompt->thought && chat_reasons(c->base.model->chat) && think >= 0 && end >= 0)
        *begin = (struct matcher_begin){.after = end, .optional = think};
    return true;
}
