/* retro/chat/call_grammar.c: see call_grammar.h. */
#include "retro/chat/call_grammar.h"

#include <stdlib.h>

#include "config/base/text.h"
#include "retro/chat/tagged_grammar.h"

enum { MOST_CALLS = 16 };

struct call_draft {
    struct grammar_draft *d;
    const struct vocab *vocab;
    struct json_rules rules;
    enum call_format format;
    struct error *e;
};

/* The arguments of a call: an object of the tool's parameters. */
static int draft_arguments(struct call_draft *draft, const struct json *function) {
    const struct json *parameters = json_member(function, "parameters");
    const struct schema_options options = {.strict = json_bool(json_member(function, "strict"))};
    int expr = EXPR_NOTHING;
    if (json_is_absent(parameters) ||
        (json_kind(parameters) == JSON_KIND_OBJECT && json_count(parameters) == 0))
        return json_any_object(&draft->rules);
    if (schema_compile(&draft->rules, parameters, &options, &expr, draft->e))
        error_prefix(draft->e, "parameters of %.100s",
                     json_text(json_member(function, "name")).text);
    return expr;
}

/* {"name": ..., "arguments": {...}} */
static int draft_object(struct call_draft *draft, const struct json *function) {
    struct json_rules *rules = &draft->rules;
    const char *word = draft->format == CALLS_LLAMA ? "\"parameters\"" : "\"arguments\"";
    int name = json_written_text(rules, json_text(json_member(function, "name")));
    const struct expr_member members[] = {
        {json_member_of(rules, expr_word(draft->d, "\"name\""), name), true},
        {json_member_of(rules, expr_word(draft->d, word), draft_arguments(draft, function)), true}};
    struct expr_object object = {.members = members, .n = 2, .more = EXPR_NOTHING, .ordered = true};
    return json_object_of(rules, &object);
}

/* {NAME: {...}} */
static int draft_keyed(struct call_draft *draft, const struct json *function) {
    struct json_rules *rules = &draft->rules;
    int name = json_written_text(rules, json_text(json_member(function, "name")));
    const struct expr_member member = {
        json_member_of(rules, name, draft_arguments(draft, function)), true};
    struct expr_object object = {.members = &member, .n = 1, .more = EXPR_NOTHING, .ordered = true};
    return json_object_of(rules, &object);
}

/* Later models of Mistral have a token [ARGS], and write name[ARGS]{...}. */
static bool is_named(const struct call_draft *draft) {
    return draft->format == CALLS_MISTRAL && draft->vocab->marks[MARK_ARGUMENTS] >= 0;
}

static int draft_named(struct call_draft *draft, const struct json *function) {
    struct text_span name = json_text(json_member(function, "name"));
    return EXPR_SEQUENCE_OF(draft->d, expr_text(draft->d, name.text, name.size),
                            expr_of_mark(draft->d, draft->vocab, MARK_ARGUMENTS),
                            draft_arguments(draft, function));
}

/* Messages in channels. */

static int draft_mark(const struct call_draft *draft, enum grammar_mark mark) {
    return expr_of_mark(draft->d, draft->vocab, mark);
}

/* Any text: marks are none. */
static int draft_text(const struct call_draft *draft) {
    struct symbol_set bytes = {0};
    for (int byte = 0; byte < GRAMMAR_BYTES; byte++) symbol_set_add(&bytes, byte);
    return expr_repeat(draft->d, expr_set(draft->d, &bytes), 0, -1);
}

/* <|channel|>NAME<|message|>BODY */
static int draft_message(const struct call_draft *draft, const char *channel, int body) {
    return EXPR_SEQUENCE_OF(draft->d, draft_mark(draft, MARK_CHANNEL), expr_word(draft->d, channel),
                            draft_mark(draft, MARK_MESSAGE), body);
}

/* The same and the beginning of the next message. */
static int draft_message_before(const struct call_draft *draft, const char *channel) {
    return EXPR_SEQUENCE_OF(draft->d, draft_message(draft, channel, draft_text(draft)),
                            draft_mark(draft, MARK_MESSAGE_END), draft_mark(draft, MARK_START),
                            expr_word(draft->d, "assistant"));
}

/* A header ends the name of its tool at a blank or a mark. */
static bool name_fits_header(struct text_span name) {
    for (size_t i = 0; i < name.size; i++)
        if (is_blank(name.text[i]) || name.text[i] == '<') return false;
    return name.size > 0;
}

/* A message to functions.NAME. Models write the tool behind the channel, templates before it. */
static int draft_addressed(struct call_draft *draft, const struct json *function) {
    struct grammar_draft *d = draft->d;
    struct text_span name = json_text(json_member(function, "name"));
    if (!name_fits_header(name)) {
        error_set(draft->e, STATUS_INVALID,
                  "the model's messages cannot name the tool \"%.100s\": its name has blanks or <",
                  name.text);
        return EXPR_NOTHING;
    }
    int to =
            EXPR_SEQUENCE_OF(d, expr_word(d, " to=functions."), expr_text(d, name.text, name.size)),
        channel = EXPR_SEQUENCE_OF(d, draft_mark(draft, MARK_CHANNEL), expr_word(d, "commentary")),
        blank = expr_repeat(d, expr_word(d, " "), 0, 1);
    int type = EXPR_EITHER_OF(
        d, EXPR_EMPTY, expr_word(d, " json"),
        EXPR_SEQUENCE_OF(d, blank, draft_mark(draft, MARK_CONSTRAIN), expr_word(d, "json")));
    return EXPR_SEQUENCE_OF(
        d, EXPR_EITHER_OF(d, EXPR_SEQUENCE_OF(d, channel, to), EXPR_SEQUENCE_OF(d, to, channel)),
        type, draft_mark(draft, MARK_MESSAGE), draft_arguments(draft, function));
}

/* Calls. */

/* NAME and its arguments between tokens; in a block of JSON as versions before V3.1 write it. */
static int draft_deepseek(struct call_draft *draft, const struct json *function) {
    struct grammar_draft *d = draft->d;
    struct text_span name = json_text(json_member(function, "name"));
    bool block = draft->format == CALLS_DEEPSEEK_BLOCK;
    if (tagged_text_check(draft->format, TAGGED_NAME, name, draft->e)) return EXPR_NOTHING;
    int word = expr_text(d, name.text, name.size),
        name_end = draft_mark(draft, MARK_DEEPSEEK_NAME_END);
    int before = block ? EXPR_SEQUENCE_OF(d, expr_word(d, "function"), name_end, word,
                                          expr_word(d, "\n```json\n"))
                       : EXPR_SEQUENCE_OF(d, word, name_end);
    return EXPR_SEQUENCE_OF(d, draft_mark(draft, MARK_DEEPSEEK_CALL), before,
                            draft_arguments(draft, function), expr_word(d, block ? "\n```" : ""),
                            draft_mark(draft, MARK_DEEPSEEK_CALL_END));
}

/* call:NAME{KEY:VALUE,...}, whose values are in the notation with marks. */
static int draft_gemma_call(struct call_draft *draft, const struct json *function) {
    struct grammar_draft *d = draft->d;
    struct text_span name = json_text(json_member(function, "name"));
    if (!python_name_fits(name)) {
        error_set(draft->e, STATUS_INVALID,
                  "the model's calls cannot name the tool \"%.100s\": a name is letters, digits, "
                  "_, . and -",
                  name.text);
        return EXPR_NOTHING;
    }
    return EXPR_SEQUENCE_OF(d, expr_word(d, "call:"), expr_text(d, name.text, name.size),
                            draft_arguments(draft, function), draft_mark(draft, MARK_GEMMA_END));
}

/* One call of a tool. */
static int draft_one(struct call_draft *draft, const struct json *function) {
    switch (draft->format) {
        case CALLS_HARMONY: return draft_addressed(draft, function);
        case CALLS_FUNCTION:
        case CALLS_GLM:
        case CALLS_MINIMAX:
            return tagged_call_draft(&draft->rules, draft->format, function, draft->e);
        case CALLS_PYTHON:
        case CALLS_OLMO: return python_call_draft(&draft->rules, function, draft->e);
        case CALLS_DEEPSEEK:
        case CALLS_DEEPSEEK_BLOCK: return draft_deepseek(draft, function);
        case CALLS_GEMMA: return draft_gemma_call(draft, function);
        case CALLS_APERTUS: return draft_keyed(draft, function);
        default:
            return is_named(draft) ? draft_named(draft, function) : draft_object(draft, function);
    }
}

/* One call of any of the tools that may be called. */
static int draft_call(struct call_draft *draft, const struct json *guide) {
    const struct json *tools = json_member(guide, "tools"), *wanted = json_member(guide, "name");
    struct expr_list all = {0};
    for (size_t i = 0; i < json_count(tools) && draft->e->status == STATUS_OK; i++) {
        const struct json *function = json_member(json_item(tools, i), "function");
        const char *name = json_word(json_member(function, "name"));
        if (json_is_text(wanted) && !json_text_is(wanted, name)) continue;
        expr_list_add(&all, draft_one(draft, function));
    }
    int expr = expr_either(draft->d, all.items, all.n);
    free(all.items);
    return expr;
}

static int draft_hermes(struct call_draft *draft, int call, int most, bool begun) {
    struct grammar_draft *grammar_draft = draft->d;
    int begin = expr_of_mark(grammar_draft, draft->vocab, MARK_CALL),
        end = expr_of_mark(grammar_draft, draft->vocab, MARK_CALL_END);
    int line = expr_repeat(grammar_draft, expr_word(grammar_draft, "\n"), 0, 1);
    int rest = EXPR_SEQUENCE_OF(grammar_draft, line, call, line, end);
    int more =
        expr_repeat(grammar_draft, EXPR_SEQUENCE_OF(grammar_draft, line, begin, rest), 0, most - 1);
    return EXPR_SEQUENCE_OF(grammar_draft, begun ? EXPR_EMPTY : begin, rest, more);
}

/* A list as JSON behind a mark. */
static int draft_json_list(struct call_draft *draft, int begin, int call, int most) {
    return EXPR_SEQUENCE_OF(draft->d, begin, expr_repeat(draft->d, expr_word(draft->d, " "), 0, 1),
                            json_list_of(&draft->rules, NULL, 0, call, 1, most));
}

static int draft_mistral(struct call_draft *draft, int call, int most, bool begun) {
    struct grammar_draft *grammar_draft = draft->d;
    int mark = draft_mark(draft, MARK_CALLS), begin = begun ? EXPR_EMPTY : mark;
    if (is_named(draft))
        return EXPR_SEQUENCE_OF(
            grammar_draft, begin, call,
            expr_repeat(grammar_draft, EXPR_SEQUENCE_OF(grammar_draft, mark, call), 0, most - 1));
    return draft_json_list(draft, begin, call, most);
}

static int draft_apertus(struct call_draft *draft, int call, int most, bool begun) {
    int begin = begun ? EXPR_EMPTY : draft_mark(draft, MARK_APERTUS);
    return EXPR_SEQUENCE_OF(draft->d, draft_json_list(draft, begin, call, most),
                            draft_mark(draft, MARK_APERTUS_END));
}

/* Each call has marks of its own. */
static int draft_gemma(struct call_draft *draft, int call, int most, bool begun) {
    struct grammar_draft *d = draft->d;
    int begin = draft_mark(draft, MARK_GEMMA);
    int more = expr_repeat(d, EXPR_SEQUENCE_OF(d, begin, call), 0, most - 1);
    return EXPR_SEQUENCE_OF(d, begun ? EXPR_EMPTY : begin, call, more);
}

/* Marks around all calls, and texts before them, between two and behind them. */
struct call_list {
    enum grammar_mark begin, end;
    const char *before, *between, *after;
};
static const struct call_list lists[] = {
    [CALLS_MINIMAX] = {MARK_MINIMAX, MARK_MINIMAX_END, "\n", "\n", "\n"},
    [CALLS_DEEPSEEK] = {MARK_DEEPSEEK, MARK_DEEPSEEK_END, "", "", ""},
    [CALLS_DEEPSEEK_BLOCK] = {MARK_DEEPSEEK, MARK_DEEPSEEK_END, "", "\n", ""},
    [CALLS_PYTHON] = {MARK_LFM, MARK_LFM_END, "[", ", ", "]"},
    [CALLS_OLMO] = {MARK_OLMO, MARK_OLMO_END, "", "\n", ""},
};

/* NULL: calls of the format do not stand between marks of all of them. */
static const struct call_list *find_list(enum call_format format) {
    bool listed = (size_t)format < ARRAY_COUNT(lists) && lists[format].before;
    return listed ? &lists[format] : NULL;
}

static int draft_list(struct call_draft *draft, int call, int most, bool begun) {
    const struct call_list *list = find_list(draft->format);
    struct grammar_draft *d = draft->d;
    int next = EXPR_SEQUENCE_OF(d, expr_word(d, list->between), call);
    return EXPR_SEQUENCE_OF(d, begun ? EXPR_EMPTY : draft_mark(draft, list->begin),
                            expr_word(d, list->before), call, expr_repeat(d, next, 0, most - 1),
                            expr_word(d, list->after), draft_mark(draft, list->end));
}

/* <|call|> ends the text: messages between calls end by <|end|>. */
static int draft_harmony(struct call_draft *draft, int call, int most, bool forced, int answer) {
    struct grammar_draft *d = draft->d;
    int thoughts = draft_message_before(draft, "analysis"),
        words = draft_message_before(draft, "commentary");
    int next = EXPR_SEQUENCE_OF(d, draft_mark(draft, MARK_MESSAGE_END),
                                draft_mark(draft, MARK_START), expr_word(d, "assistant"), call);
    int calls = EXPR_SEQUENCE_OF(d, call, expr_repeat(d, next, 0, most - 1),
                                 expr_repeat(d, draft_mark(draft, MARK_MESSAGE_CALL), 0, 1));
    if (forced && answer == EXPR_NOTHING)
        return EXPR_SEQUENCE_OF(d, expr_repeat(d, thoughts, 0, 1), calls);
    int final = draft_message(draft, "final", forced ? answer : draft_text(draft));
    return EXPR_SEQUENCE_OF(d, expr_repeat(d, EXPR_EITHER_OF(d, thoughts, words), 0, -1),
                            EXPR_EITHER_OF(d, calls, final));
}

/* All calls, with `call` for each of them. */
static int draft_calls(struct call_draft *draft, int call, int most, bool forced) {
    if (call_format_has_mark(draft->format)) return draft_hermes(draft, call, most, !forced);
    if (draft->format == CALLS_MISTRAL) return draft_mistral(draft, call, most, !forced);
    if (draft->format == CALLS_GEMMA) return draft_gemma(draft, call, most, !forced);
    if (draft->format == CALLS_APERTUS) return draft_apertus(draft, call, most, !forced);
    if (draft->format == CALLS_GRANITE)
        return draft_json_list(draft, forced ? draft_mark(draft, MARK_GRANITE) : EXPR_EMPTY, call,
                               most);
    return find_list(draft->format) ? draft_list(draft, call, most, !forced) : call;
}

/* The mark of a format whose calls are in no table; MARK_KINDS: it has none. */
static enum grammar_mark mark_of(enum call_format format) {
    switch (format) {
        case CALLS_HERMES:
        case CALLS_FUNCTION:
        case CALLS_GLM: return MARK_CALL;
        case CALLS_MISTRAL: return MARK_CALLS;
        case CALLS_GEMMA: return MARK_GEMMA;
        case CALLS_GRANITE: return MARK_GRANITE;
        case CALLS_APERTUS: return MARK_APERTUS;
        default: return MARK_KINDS;
    }
}

bool call_grammar_mark(enum call_format format, enum grammar_mark *mark) {
    const struct call_list *list = find_list(format);
    *mark = list ? list->begin : mark_of(format);
    return *mark != MARK_KINDS;
}

bool call_grammar_knows(enum call_format format) {
    enum grammar_mark mark;
    return call_grammar_mark(format, &mark) || format == CALLS_LLAMA || format == CALLS_HARMONY;
}

enum status call_grammar_draft(struct grammar_draft *draft, const struct vocab *vocab,
                               const struct json *guide, int answer, int *out, struct error *e) {
    struct call_draft call_draft = {.d = draft, .vocab = vocab, .e = e};
    call_draft.rules = (struct json_rules){.draft = draft, .shallow = true};
    bool forced = json_bool(json_member(guide, "forced"));
    bool one = json_is_text(json_member(guide, "name")) || json_bool(json_member(guide, "one"));
    int most = one ? 1 : MOST_CALLS;
    *e = (struct error){0};
    call_draft.format = (enum call_format)json_int(json_member(guide, "format"));
    call_draft.rules.raw = call_draft.format == CALLS_GEMMA;
    if (call_draft.rules.raw) call_draft.rules.mark = draft_mark(&call_draft, MARK_GEMMA_TEXT);
    int call = draft_call(&call_draft, guide);
    if (call_draft.format == CALLS_HARMONY)
        *out = draft_harmony(&call_draft, call, most, forced, answer);
    else
        *out = EXPR_EITHER_OF(draft, draft_calls(&call_draft, call, most, forced), answer);
    return e->status;
}
