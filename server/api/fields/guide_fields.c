/* server/api/fields/guide_fields.c: see guide_fields.h. */
#include "server/api/fields/guide_fields.h"

#include <stdio.h>
#include <string.h>

#include "config/json/json_writer.h"

void request_guide_free(struct request_guide *guide) { buffer_free(&guide->text); }

/* Gives the request its guide, which is the first one. */
static bool take_guide(struct request_guide *guide, enum guide_kind kind, const char *field,
                       struct failure *failure) {
    if (guide->kind != GUIDE_NONE)
        return failure_set(failure, 400, "invalid_value", field,
                           "%s and %s both say what the answer must be: send one", guide->field,
                           field);
    guide->kind = kind;
    snprintf(guide->field, sizeof guide->field, "%s", field);
    return true;
}

static bool take_text(struct request_guide *guide, enum guide_kind kind, const struct json *json,
                      const char *field, struct failure *failure) {
    if (!json_is_text(json))
        return failure_set(failure, 400, "invalid_type", field, "%s must be a string", field);
    if (!take_guide(guide, kind, field, failure)) return false;
    buffer_append(&guide->text, json_text(json).text, json_text(json).size);
    return true;
}

static bool take_json(struct request_guide *guide, enum guide_kind kind, const struct json *json,
                      const char *field, struct failure *failure) {
    struct json_writer w;
    if (!take_guide(guide, kind, field, failure)) return false;
    put_begin(&w, &guide->text);
    put_json(&w, json);
    return true;
}

/* vLLM takes a schema as a string too. */
static bool take_schema(struct request_guide *guide, const struct json *json, const char *field,
                        struct failure *failure) {
    if (json_is_text(json)) return take_text(guide, GUIDE_SCHEMA, json, field, failure);
    if (json_kind(json) != JSON_KIND_OBJECT && json_kind(json) != JSON_KIND_BOOL)
        return failure_set(failure, 400, "invalid_type", field,
                           "%s must be a JSON Schema: an object or a boolean", field);
    return take_json(guide, GUIDE_SCHEMA, json, field, failure);
}

static bool take_choice(struct request_guide *guide, const struct json *json, const char *field,
                        struct failure *failure) {
    bool texts = json_is_list(json) && json_count(json) > 0;
    for (size_t i = 0; i < json_count(json); i++) texts = texts && json_is_text(json_item(json, i));
    if (!texts)
        return failure_set(failure, 400, "invalid_type", field,
                           "%s must be an array of strings, at least one", field);
    return take_json(guide, GUIDE_CHOICE, json, field, failure);
}

static bool read_grammar(void *object, const struct json *json, const struct request_limits *limits,
                         struct failure *failure) {
    (void)limits;
    return take_text(object, GUIDE_GBNF, json, "grammar", failure);
}
FIELD_PARSER(parse_grammar, read_grammar)

/* {"type": "json_schema", "json_schema": {"name": ..., "schema": ..., "strict": ...}} */
static bool read_json_schema(struct request_guide *guide, const struct json *json,
                             struct failure *failure) {
    const struct json *given = json_member(json, "json_schema"),
                      *strict = json_member(given, "strict");
    static const char name[] = "response_format.json_schema";
    if (json_kind(given) != JSON_KIND_OBJECT)
        return failure_set(failure, 400, "invalid_type", name,
                           "%s must be an object with name and schema", name);
    if (!json_is_absent(strict) && json_kind(strict) != JSON_KIND_BOOL)
        return failure_set(failure, 400, "invalid_type", name, "%s.strict must be true or false",
                           name);
    guide->strict = json_bool(strict);
    return take_schema(guide, json_member(given, "schema"), "response_format.json_schema.schema",
                       failure);
}

static bool read_format(void *object, const struct json *json, const struct request_limits *limits,
                        struct failure *failure) {
    static const char name[] = "response_format";
    const struct json *type = json_member(json, "type");
    struct request_guide *guide = object;
    (void)limits;
    if (json_kind(json) != JSON_KIND_OBJECT)
        return failure_set(failure, 400, "invalid_type", name, "%s must be an object", name);
    if (json_text_is(type, "text")) return true;
    if (json_text_is(type, "json_schema")) return read_json_schema(guide, json, failure);
    if (json_text_is(type, "json_object") && !json_is_absent(json_member(json, "schema")))
        return take_schema(guide, json_member(json, "schema"), "response_format.schema", failure);
    if (json_text_is(type, "json_object")) return take_guide(guide, GUIDE_OBJECT, name, failure);
    return failure_set(failure, 400, "invalid_value", name,
                       "%s.type must be text, json_object or json_schema", name);
}
FIELD_PARSER(parse_format, read_format)

static bool read_schema(void *object, const struct json *json, const struct request_limits *limits,
                        struct failure *failure) {
    (void)limits;
    return take_schema(object, json, "guided_json", failure);
}
FIELD_PARSER(parse_schema, read_schema)

static bool read_regex(void *object, const struct json *json, const struct request_limits *limits,
                       struct failure *failure) {
    (void)limits;
    return take_text(object, GUIDE_REGEX, json, "guided_regex", failure);
}
FIELD_PARSER(parse_regex, read_regex)

static bool read_choice(void *object, const struct json *json, const struct request_limits *limits,
                        struct failure *failure) {
    (void)limits;
    return take_choice(object, json, "guided_choice", failure);
}
FIELD_PARSER(parse_choice, read_choice)

/* One member of vLLM's structured_outputs. */
static bool read_output(struct request_guide *guide, const struct json_entry *it,
                        struct failure *failure) {
    const char *name = it->name.text;
    if (json_is_absent(it->value)) return true;
    if (strcmp(name, "json") == 0)
        return take_schema(guide, it->value, "structured_outputs.json", failure);
    if (strcmp(name, "regex") == 0)
        return take_text(guide, GUIDE_REGEX, it->value, "structured_outputs.regex", failure);
    if (strcmp(name, "grammar") == 0)
        return take_text(guide, GUIDE_GBNF, it->value, "structured_outputs.grammar", failure);
    if (strcmp(name, "choice") == 0)
        return take_choice(guide, it->value, "structured_outputs.choice", failure);
    if (strcmp(name, "json_object") != 0)
        return failure_set(failure, 400, "unknown_parameter", "structured_outputs",
                           "structured_outputs has json, regex, choice, grammar or json_object");
    if (json_kind(it->value) != JSON_KIND_BOOL)
        return failure_set(failure, 400, "invalid_type", "structured_outputs",
                           "json_object must be true or false");
    return !json_bool(it->value) ||
           take_guide(guide, GUIDE_OBJECT, "structured_outputs.json_object", failure);
}

static bool read_outputs(void *object, const struct json *json, const struct request_limits *limits,
                         struct failure *failure) {
    (void)limits;
    if (json_kind(json) != JSON_KIND_OBJECT)
        return failure_set(failure, 400, "invalid_type", "structured_outputs",
                           "structured_outputs must be an object");
    for (struct json_entry it = {0}; json_next(json, &it);)
        if (!read_output(object, &it, failure)) return false;
    return true;
}
FIELD_PARSER(parse_outputs, read_outputs)

#define SCHEMA_SCHEMA \
    "{\"anyOf\":[{\"type\":\"object\"},{\"type\":\"boolean\"},{\"type\":\"string\"}]}"
#define CHOICE_SCHEMA "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"string\"}}"
static const struct json_field guide_fields[] = {
    {"response_format", JSON_PARSED, .parse = parse_format,
     .schema =
         "{\"type\":\"object\",\"required\":[\"type\"],\"properties\":{\"type\":{\"enum\":["
         "\"text\",\"json_object\","
         "\"json_schema\"]},\"json_schema\":{\"type\":\"object\",\"required\":[\"schema\"]}}}",
     .help = "the answer is JSON: an object, or what a JSON Schema describes"},
    {"grammar", JSON_PARSED, .parse = parse_grammar, .schema = "{\"type\":\"string\"}",
     .help = "the answer is a text of this grammar (GBNF)"},
    {"structured_outputs", JSON_PARSED, .parse = parse_outputs,
     .schema =
         "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{"
         "\"json\":" SCHEMA_SCHEMA ",\"regex\":{\"type\":\"string\"},\"choice\":" CHOICE_SCHEMA
         ",\"grammar\":{\"type\":\"string\"},\"json_object\":{\"type\":\"boolean\"}}}",
     .help = "vLLM's name for these: one of json, regex, choice, grammar, json_object"},
    {"guided_json", JSON_PARSED, .parse = parse_schema, .schema = SCHEMA_SCHEMA,
     .help = "as structured_outputs.json"},
    {"guided_regex", JSON_PARSED, .parse = parse_regex, .schema = "{\"type\":\"string\"}",
     .help = "as structured_outputs.regex"},
    {"guided_choice", JSON_PARSED, .parse = parse_choice, .schema = CHOICE_SCHEMA,
     .help = "as structured_outputs.choice"},
};
const struct json_table guide_table = JSON_TABLE(guide_fields);
