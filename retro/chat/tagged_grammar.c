/* retro/chat/tagged_grammar.c: see tagged_grammar.h. */
#include "retro/chat/tagged_grammar.h"

#include <stdlib.h>

#include "config/base/text.h"

struct tagged_draft {
    struct json_rules *rules;
    struct grammar_draft *d;
    enum call_format format;
    const struct json *function;
    struct error *e;
};

enum status tagged_text_check(enum call_format format, enum tagged_part part, struct text_span text,
                              struct error *e) {
    static const char *const words[] = {[TAGGED_NAME] = "name the tool",
                                        [TAGGED_KEY] = "name the parameter",
                                        [TAGGED_VALUE] = "have the value"};
    if (tagged_text_fits(format, part, text)) return STATUS_OK;
    return error_set(
        e, STATUS_INVALID,
        "the model's calls cannot %s \"%.*s\": it is empty, or has blanks or line ends around it, "
        "or a tag of these calls",
        words[part], (int)(text.size < 100 ? text.size : 100), text.text ? text.text : "");
}

static int refuse(const struct tagged_draft *draft, struct text_span place,
                  struct text_span keyword) {
    error_set(draft->e, STATUS_UNSUPPORTED,
              "parameters of %.100s%s%.100s: the keyword %.100s cannot be held to in the format of "
              "this model's calls",
              json_text(json_member(draft->function, "name")).text, place.size ? ": " : "",
              place.size ? place.text : "", keyword.text);
    return EXPR_NOTHING;
}

static bool is_among(struct text_span name, const char *const *names) {
    for (int i = 0; names[i]; i++)
        if (span_is(name, names[i])) return true;
    return false;
}

/* A text of `enum` or `const` as it is, or null where it is among the values; EXPR_NOTHING for
 * values of other types, which a text between tags never becomes. */
static int draft_listed(const struct tagged_draft *draft, const struct json *schema,
                        const struct json *value) {
    static const struct text_span null = {"null", 4};
    struct text_span text = json_text(value);
    if (json_kind(value) == JSON_KIND_NULL && tagged_text_is_null(schema, null))
        return expr_word(draft->d, null.text);
    if (text.text == NULL || tagged_text_check(draft->format, TAGGED_VALUE, text, draft->e))
        return EXPR_NOTHING;
    if (!tagged_text_is_null(schema, text)) return expr_text(draft->d, text.text, text.size);
    error_set(
        draft->e, STATUS_INVALID,
        "the model's calls cannot have the value \"%.100s\": where null may stand too it would "
        "be read as null",
        text.text);
    return EXPR_NOTHING;
}

static int draft_texts(const struct tagged_draft *draft, const struct json *schema) {
    const struct json *list = json_member(schema, "enum");
    struct expr_list all = {0};
    for (size_t i = 0; i < json_count(list) && !draft->e->status; i++) {
        int expr = draft_listed(draft, schema, json_item(list, i));
        if (expr != EXPR_NOTHING) expr_list_add(&all, expr);
    }
    int expr = expr_either(draft->d, all.items, all.n);
    free(all.items);
    return expr;
}

static int draft_text_value(const struct tagged_draft *draft, const struct json_entry *property) {
    static const char *const known[] = {"type",     "description", "title", "default",
                                        "examples", "enum",        "const", NULL};
    const struct json *schema = property->value, *texts = json_member(schema, "enum");
    const struct json *constant = json_member(schema, "const");
    for (struct json_entry it = {0}; json_next(schema, &it);)
        if (!is_among(it.name, known)) return refuse(draft, property->name, it.name);
    if (constant) return draft_listed(draft, schema, constant);
    if (json_is_list(texts)) return draft_texts(draft, schema);
    return expr_text_without(draft->d, '<', '/'); /* "</" begins the tag behind */
}

/* A value that is JSON. References begin at the tool's parameters. */
static int draft_json(const struct tagged_draft *draft, const struct json_entry *property) {
    const struct json *function = draft->function;
    const struct schema_options options = {.strict = json_bool(json_member(function, "strict")),
                                           .root = json_member(function, "parameters")};
    int expr = EXPR_NOTHING;
    if (schema_compile(draft->rules, property->value, &options, &expr, draft->e))
        error_prefix(draft->e, "parameters of %.100s",
                     json_text(json_member(function, "name")).text);
    return expr;
}

static int draft_value(const struct tagged_draft *draft, const struct json_entry *property) {
    return tagged_value_is_text(property->value) ? draft_text_value(draft, property)
                                                 : draft_json(draft, property);
}

/* The texts around the parts of a call. */
struct call_words {
    const char *name, *name_end, *key, *key_end, *value_end, *call_end;
};
static const struct call_words words_of[] = {
    [CALLS_FUNCTION] = {.name = "<function=",
                        .name_end = ">\n",
                        .key = "<parameter=",
                        .key_end = ">\n",
                        .value_end = "\n</parameter>\n",
                        .call_end = "</function>"},
    [CALLS_GLM] = {.name = "",
                   .name_end = "\n",
                   .key = "<arg_key>",
                   .key_end = "</arg_key>\n<arg_value>",
                   .value_end = "</arg_value>\n",
                   .call_end = ""},
    [CALLS_MINIMAX] = {.name = "<invoke name=\"",
                       .name_end = "\">\n",
                       .key = "<parameter name=\"",
                       .key_end = "\">",
                       .value_end = "</parameter>\n",
                       .call_end = "</invoke>"},
};

/* KEY and VALUE between their tags. */
static int draft_parameter(const struct tagged_draft *draft, const struct json_entry *property) {
    const struct call_words *words = &words_of[draft->format];
    struct grammar_draft *d = draft->d;
    if (tagged_text_check(draft->format, TAGGED_KEY, property->name, draft->e)) return EXPR_NOTHING;
    return EXPR_SEQUENCE_OF(
        d, expr_word(d, words->key), expr_text(d, property->name.text, property->name.size),
        expr_word(d, words->key_end), draft_value(draft, property), expr_word(d, words->value_end));
}

static bool is_required(const struct json *parameters, struct text_span name) {
    const struct json *required = json_member(parameters, "required");
    for (size_t i = 0; i < json_count(required); i++)
        if (span_equals(json_text(json_item(required, i)), name)) return true;
    return false;
}

static enum status fail_parameters(const struct tagged_draft *draft, const char *place,
                                   const char *expected, const struct json *found) {
    char shown[JSON_SHOWN_SIZE];
    return error_set(draft->e, STATUS_INVALID, "parameters of %.100s: %sexpected %s, found %s",
                     json_text(json_member(draft->function, "name")).text, place, expected,
                     json_shown(found, shown));
}

/* The names that have to be there are those of properties. */
static enum status check_required(const struct tagged_draft *draft, const struct json *parameters) {
    const struct json *required = json_member(parameters, "required"),
                      *properties = json_member(parameters, "properties");
    if (required && !json_is_list(required))
        return fail_parameters(draft, "required: ", "an array", required);
    for (size_t i = 0; i < json_count(required); i++) {
        const struct json *name = json_item(required, i);
        if (!json_is_text(name)) return fail_parameters(draft, "required: ", "a string", name);
        if (json_member_n(properties, json_text(name))) continue;
        return error_set(draft->e, STATUS_INVALID,
                         "parameters of %.100s: required: properties has no \"%.100s\"",
                         json_text(json_member(draft->function, "name")).text,
                         json_text(name).text);
    }
    return STATUS_OK;
}

/* The parameters as a whole: none, or an object of properties. */
static enum status check_parameters(const struct tagged_draft *draft) {
    static const char *const known[] = {"type",  "properties",  "required", "additionalProperties",
                                        "title", "description", "$schema",  "$defs",
                                        NULL};
    const struct json *parameters = json_member(draft->function, "parameters"),
                      *type = json_member(parameters, "type"),
                      *properties = json_member(parameters, "properties");
    if (json_is_absent(parameters)) return STATUS_OK;
    if (json_kind(parameters) != JSON_KIND_OBJECT)
        return fail_parameters(draft, "", "an object", parameters);
    for (struct json_entry it = {0}; json_next(parameters, &it);)
        if (!is_among(it.name, known)) {
            refuse(draft, (struct text_span){0}, it.name);
            return draft->e->status;
        }
    if (type && !json_text_is(type, "object"))
        return fail_parameters(draft, "type: ", "\"object\"", type);
    if (properties && json_kind(properties) != JSON_KIND_OBJECT)
        return fail_parameters(draft, "properties: ", "an object", properties);
    return check_required(draft, parameters);
}

static int draft_parameters(const struct tagged_draft *draft) {
    const struct json *parameters = json_member(draft->function, "parameters");
    const struct json *properties = json_member(parameters, "properties");
    struct expr_list all = {0};
    if (check_parameters(draft)) return EXPR_NOTHING;
    for (struct json_entry it = {0}; json_next(properties, &it) && !draft->e->status;) {
        int parameter = draft_parameter(draft, &it);
        bool required = is_required(parameters, it.name);
        expr_list_add(&all, required ? parameter : expr_repeat(draft->d, parameter, 0, 1));
    }
    int expr = expr_sequence(draft->d, all.items, all.n);
    free(all.items);
    return expr;
}

int tagged_call_draft(struct json_rules *rules, enum call_format format,
                      const struct json *function, struct error *e) {
    const struct call_words *words = &words_of[format];
    struct grammar_draft *d = rules->draft;
    const struct tagged_draft draft = {
        .rules = rules, .d = d, .format = format, .function = function, .e = e};
    struct text_span name = json_text(json_member(function, "name"));
    if (tagged_text_check(format, TAGGED_NAME, name, e)) return EXPR_NOTHING;
    return EXPR_SEQUENCE_OF(d, expr_word(d, words->name), expr_text(d, name.text, name.size),
                            expr_word(d, words->name_end), draft_parameters(&draft),
                            expr_word(d, words->call_end));
}

/* KEY=VALUE of a call of Python's: JSON, and Python's own words for truth values. */
static int draft_argument(const struct tagged_draft *draft, const struct json_entry *property) {
    const struct json *schema = property->value;
    struct grammar_draft *d = draft->d;
    if (!python_name_fits(property->name)) {
        error_set(draft->e, STATUS_INVALID,
                  "the model's calls cannot name the parameter \"%.100s\": a name is letters, "
                  "digits, _, . and -",
                  property->name.text);
        return EXPR_NOTHING;
    }
    int value = draft_json(draft, property);
    bool truth = json_text_is(json_member(schema, "type"), "boolean") &&
                 json_is_absent(json_member(schema, "enum")) &&
                 json_is_absent(json_member(schema, "const"));
    if (truth) value = EXPR_EITHER_OF(d, value, expr_word(d, "True"), expr_word(d, "False"));
    return EXPR_SEQUENCE_OF(d, expr_text(d, property->name.text, property->name.size),
                            expr_word(d, "="), value);
}

static int draft_arguments(const struct tagged_draft *draft) {
    const struct json *parameters = json_member(draft->function, "parameters");
    const struct json *properties = json_member(parameters, "properties");
    struct grammar_draft *d = draft->d;
    struct expr_member *members = xcalloc(json_count(properties) + 1, sizeof *members);
    struct expr_object object = {.members = members,
                                 .more = EXPR_NOTHING,
                                 .ordered = true,
                                 .open = expr_word(d, "("),
                                 .separator = expr_word(d, ", "),
                                 .close = expr_word(d, ")")};
    for (struct json_entry it = {0}; json_next(properties, &it) && !draft->e->status;) {
        members[object.n] =
            (struct expr_member){draft_argument(draft, &it), is_required(parameters, it.name)};
        object.n++;
    }
    int expr = expr_object(d, &object);
    free(members);
    return expr;
}

int python_call_draft(struct json_rules *rules, const struct json *function, struct error *e) {
    struct grammar_draft *d = rules->draft;
    const struct tagged_draft draft = {
        .rules = rules, .d = d, .format = CALLS_PYTHON, .function = function, .e = e};
    struct text_span name = json_text(json_member(function, "name"));
    if (!python_name_fits(name))
        error_set(e, STATUS_INVALID,
                  "the model's calls cannot name the tool \"%.100s\": a name is letters, digits, "
                  "_, . and -",
                  name.text);
    if (e->status || check_parameters(&draft)) return EXPR_NOTHING;
    return EXPR_SEQUENCE_OF(d, expr_text(d, name.text, name.size), draft_arguments(&draft));
}
