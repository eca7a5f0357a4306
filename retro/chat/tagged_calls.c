/* retro/chat/tagged_calls.c: see tagged_calls.h. */
#include "retro/chat/tagged_calls.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "config/json/json_writer.h"

/* Around all calls (end NULL: they end with their own text); around one, where several may stand
 * between those; and around its parts. */
struct call_tags {
    const char *begin, *end;
    const char *call, *name_end, *call_end; /* name_end NULL: the next tag ends the name */
    const char *key, *key_end, *value, *value_end;
};

#define DEEPSEEK_TAGS \
    { \
        .begin = "<｜tool▁calls▁begin｜>", .end = "<｜tool▁calls▁end｜>", \
        .call = "<｜tool▁call▁begin｜>", .name_end = "<｜tool▁sep｜>", \
        .call_end = "<｜tool▁call▁end｜>" \
    }
static const struct call_tags tags_of[] = {
    [CALLS_FUNCTION] = {.begin = "<tool_call>",
                        .end = "</tool_call>",
                        .call = "<function=",
                        .name_end = ">",
                        .call_end = "</function>",
                        .key = "<parameter=",
                        .key_end = ">",
                        .value = "",
                        .value_end = "</parameter>"},
    [CALLS_GLM] = {.begin = "<tool_call>",
                   .end = "</tool_call>",
                   .call = "",
                   .call_end = "",
                   .key = "<arg_key>",
                   .key_end = "</arg_key>",
                   .value = "<arg_value>",
                   .value_end = "</arg_value>"},
    [CALLS_MINIMAX] = {.begin = "<minimax:tool_call>",
                       .end = "</minimax:tool_call>",
                       .call = "<invoke name=\"",
                       .name_end = "\">",
                       .call_end = "</invoke>",
                       .key = "<parameter name=\"",
                       .key_end = "\">",
                       .value = "",
                       .value_end = "</parameter>"},
    [CALLS_DEEPSEEK] = DEEPSEEK_TAGS,
    [CALLS_DEEPSEEK_BLOCK] = DEEPSEEK_TAGS,
    [CALLS_PYTHON] = {.begin = "<|tool_call_start|>", .end = "<|tool_call_end|>"},
    [CALLS_GEMMA] = {.begin = "<|tool_call>", .end = "<tool_call|>", .value = GEMMA_QUOTE},
    [CALLS_GRANITE] = {.begin = "<|tool_call|>"},
    [CALLS_APERTUS] = {.begin = "<|tools_prefix|>", .end = "<|tools_suffix|>"},
    [CALLS_OLMO] = {.begin = "<function_calls>", .end = "</function_calls>"},
};

const char *tagged_calls_begin(enum call_format format) {
    return (size_t)format < ARRAY_COUNT(tags_of) ? tags_of[format].begin : NULL;
}

const char *tagged_calls_end(enum call_format format) {
    return (size_t)format < ARRAY_COUNT(tags_of) ? tags_of[format].end : NULL;
}

int call_format_tags(enum call_format format, const char **tags) {
    if (tagged_calls_begin(format) == NULL) return 0;
    const struct call_tags *of = &tags_of[format];
    const char *const all[CALL_FORMAT_TAGS] = {of->begin,    of->end, of->call, of->name_end,
                                               of->call_end, of->key, of->value};
    int n = 0;
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
        if (all[i] == NULL || *all[i] == '\0') continue;
        tags[n] = all[i];
        n++;
    }
    return n;
}

/* Texts that are read from the front. */

static void skip_blanks(struct text_span *span) {
    while (span->size > 0 && is_blank(*span->text)) {
        span->text++;
        span->size--;
    }
}

static bool skip_tag(struct text_span *span, const char *tag) {
    size_t size = strlen(tag);
    if (!span_starts_with(*span, tag)) return false;
    span->text += size;
    span->size -= size;
    return true;
}

/* Takes what stands before the tag, and passes the tag. */
static bool take_until(struct text_span *span, const char *tag, struct text_span *out) {
    size_t at = span_find(*span, tag), size = strlen(tag);
    if (at == SIZE_MAX) return false;
    *out = (struct text_span){span->text, at};
    span->text += at + size;
    span->size -= at + size;
    return true;
}

struct text_span trim_blanks(struct text_span span) {
    skip_blanks(&span);
    while (span.size > 0 && is_blank(span.text[span.size - 1])) span.size--;
    return span;
}

/* Templates put a value on lines of its own. */
static struct text_span trim_lines(struct text_span span) {
    skip_tag(&span, "\n");
    if (span.size > 0 && span.text[span.size - 1] == '\n') span.size--;
    return span;
}

/* Whether the tag, if there is one, does not stand in the text. */
static bool lacks(struct text_span text, const char *tag) {
    return tag == NULL || span_find(text, tag) == SIZE_MAX;
}

bool tagged_text_fits(enum call_format format, enum tagged_part part, struct text_span text) {
    const struct call_tags *tags = &tags_of[format];
    bool trimmed = trim_blanks(text).size == text.size;
    bool listed = format == CALLS_FUNCTION; /* its values are on lines of their own */
    switch (part) {
        case TAGGED_NAME:
            return text.size > 0 && memchr(text.text, '\0', text.size) == NULL && trimmed &&
                   lacks(text, tags->name_end ? tags->name_end : "<");
        case TAGGED_KEY: return trimmed && lacks(text, tags->key_end);
        case TAGGED_VALUE:
            return (listed || trim_lines(text).size == text.size) && lacks(text, tags->value_end);
    }
    return false;
}

/* Values. */

/* The schema of the key in the tool's parameters; absent: there is none. */
static const struct json *find_parameter(const struct json *tools, struct text_span name,
                                         struct text_span key) {
    const struct json *found = NULL;
    char *word = xstrndup(key.text, key.size);
    for (size_t i = 0; i < json_count(tools) && !found; i++) {
        const struct json *function = json_member(json_item(tools, i), "function");
        struct text_span its = json_text(json_member(function, "name"));
        if (its.size != name.size || memcmp(its.text, name.text, name.size) != 0) continue;
        const struct json *parameters = json_member(function, "parameters");
        found = json_member(json_member(parameters, "properties"), word);
    }
    free(word);
    return found;
}

static bool has_type(const struct json *parameter, const char *type) {
    const struct json *types = json_member(parameter, "type");
    if (!json_is_list(types)) return json_text_is(types, type);
    for (size_t i = 0; i < json_count(types); i++)
        if (json_text_is(json_item(types, i), type)) return true;
    return false;
}

bool tagged_value_is_text(const struct json *parameter) {
    return json_is_absent(parameter) || has_type(parameter, "string");
}

/* Whether the schema names the value's type, or none. */
static bool takes_type(const struct json *schema, enum json_kind value) {
    static const char *const names[] = {
        [JSON_KIND_NULL] = "null",    [JSON_KIND_BOOL] = "boolean", [JSON_KIND_INT] = "integer",
        [JSON_KIND_REAL] = "number",  [JSON_KIND_TEXT] = "string",  [JSON_KIND_LIST] = "array",
        [JSON_KIND_OBJECT] = "object"};
    if (json_is_absent(json_member(schema, "type"))) return true;
    return has_type(schema, names[value]) || (value == JSON_KIND_INT && has_type(schema, "number"));
}

/* The same of its alternatives: an optional text is one of these, and digits are text there. */
static bool takes_value(const struct json *schema, enum json_kind value) {
    const struct json *any = json_member(schema, "anyOf"), *one = json_member(schema, "oneOf");
    const struct json *all = json_is_list(any) ? any : one;
    bool takes = !json_is_list(all);
    for (size_t i = 0; i < json_count(all) && !takes; i++)
        takes = takes_type(json_item(all, i), value);
    return takes;
}

/* Whether null is among the values: `type` names it, and `enum` and `const` do where they are
 * there. */
static bool has_null(const struct json *parameter) {
    const struct json *values = json_member(parameter, "enum"),
                      *constant = json_member(parameter, "const");
    bool listed = json_is_absent(values);
    for (size_t i = 0; i < json_count(values); i++)
        listed = listed || json_kind(json_item(values, i)) == JSON_KIND_NULL;
    bool only = json_is_absent(constant) || json_kind(constant) == JSON_KIND_NULL;
    return has_type(parameter, "null") && listed && only;
}

/* Python's words for what JSON calls true, false and null: templates of Jinja write those. */
static struct text_span word_of_python(struct text_span value) {
    static const struct {
        const char *python, *json;
    } words[] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < ARRAY_COUNT(words); i++)
        if (span_is(value, words[i].python))
            return (struct text_span){words[i].json, strlen(words[i].json)};
    return value;
}

bool tagged_text_is_null(const struct json *parameter, struct text_span text) {
    return tagged_value_is_text(parameter) && has_null(parameter) &&
           span_is(word_of_python(trim_blanks(text)), "null");
}

static void put_value(struct json_writer *w, const struct json *parameter, struct text_span value) {
    struct text_span spelt = word_of_python(trim_blanks(value));
    bool text = tagged_value_is_text(parameter) && !tagged_text_is_null(parameter, value);
    enum json_kind kind = text ? JSON_KIND_ABSENT : json_check(spelt);
    if (kind != JSON_KIND_ABSENT && takes_value(parameter, kind))
        put_raw(w, spelt);
    else
        put_string_n(w, value.text, value.size);
}

/* Calls. Each is added at once; the caller drops them where a later one is none. */

static enum call_found read_tagged_call(struct chat_reply *reply, const struct call_tags *tags,
                                        struct text_span *span) {
    struct text_span name, key, value;
    struct buffer arguments = {0};
    struct json_writer w;
    if (!skip_tag(span, tags->call)) return CALL_WRONG;
    if (tags->name_end) {
        if (!take_until(span, tags->name_end, &name)) return CALL_WAITS;
    } else {
        const char *tag = memchr(span->text, '<', span->size);
        name = (struct text_span){span->text, tag ? (size_t)(tag - span->text) : span->size};
        span->text += name.size;
        span->size -= name.size;
    }
    name = trim_blanks(name);

    put_begin_spaced(&w, &arguments);
    put_object(&w);
    enum call_found found = CALL_READ;
    for (skip_blanks(span); skip_tag(span, tags->key); skip_blanks(span)) {
        bool whole = take_until(span, tags->key_end, &key);
        if (*tags->value) skip_blanks(span);
        whole = whole && skip_tag(span, tags->value) && take_until(span, tags->value_end, &value);
        found = whole ? CALL_READ : CALL_WAITS;
        if (!whole) break;
        key = trim_blanks(key);
        put_key_n(&w, key.text, key.size);
        put_value(&w, find_parameter(reply->tools, name, key), trim_lines(value));
    }
    put_object_end(&w);
    if (found == CALL_READ && !skip_tag(span, tags->call_end)) found = CALL_WAITS;
    struct text_span written = {arguments.data, arguments.size};
    if (found == CALL_READ && !reply_add_call(reply, name, written)) found = CALL_WRONG;
    buffer_free(&arguments);
    return found;
}

/* Passes a tag behind blanks. */
static enum call_found pass_tag(struct text_span *span, const char *tag) {
    skip_blanks(span);
    if (skip_tag(span, tag)) return CALL_READ;
    return span_may_become(*span, tag) ? CALL_WAITS : CALL_WRONG;
}

/* NAME, separator, {...}; or as earlier versions: the word function, separator, NAME and a block of
 * JSON. Texts of the JSON may have any of the tags. Models of either kind write both. */
static enum call_found read_deepseek_call(struct chat_reply *reply, const struct call_tags *tags,
                                          struct text_span *span) {
    struct text_span name, arguments;
    if (!skip_tag(span, tags->call)) return CALL_WRONG;
    if (!take_until(span, tags->name_end, &name)) return CALL_WAITS;
    name = trim_blanks(name);
    skip_blanks(span);
    bool block = span_is(name, "function") && !span_starts_with(*span, "{");
    if (block && !take_until(span, "```json", &name)) return CALL_WAITS;
    skip_blanks(span);

    arguments = *span;
    enum call_found found = span_json(*span, &arguments.size);
    if (found != CALL_READ) return found;
    span->text += arguments.size;
    span->size -= arguments.size;

    if (block) found = pass_tag(span, "```");
    if (found == CALL_READ) found = pass_tag(span, tags->call_end);
    if (found != CALL_READ) return found;
    return reply_add_call(reply, trim_blanks(name), arguments) ? CALL_READ : CALL_WRONG;
}

/* All between the outer tags. */
static enum call_found read_list(struct chat_reply *reply, const struct call_tags *tags,
                                 struct text_span *span) {
    bool deepseek = reply->format == CALLS_DEEPSEEK || reply->format == CALLS_DEEPSEEK_BLOCK;
    enum call_found found;
    do {
        skip_blanks(span);
        found =
            deepseek ? read_deepseek_call(reply, tags, span) : read_tagged_call(reply, tags, span);
        skip_blanks(span);
    } while (found == CALL_READ && *tags->call && span_starts_with(*span, tags->call));
    return found;
}

/* A list of calls as JSON. */
static enum call_found read_json_list(struct chat_reply *reply, struct text_span *span) {
    skip_blanks(span);
    struct text_span list = *span;
    if (list.size == 0) return CALL_WAITS;
    if (*list.text != '[') return CALL_WRONG;
    enum call_found found = span_json(*span, &list.size);
    if (found != CALL_READ) return found;
    span->text += list.size;
    span->size -= list.size;
    return json_calls_read(reply, list) ? CALL_READ : CALL_WRONG;
}

/* Calls that are one text between the outer tags, which may stand in texts of theirs. */
static enum call_found read_inside(struct chat_reply *reply, struct text_span *span) {
    bool json = reply->format == CALLS_GRANITE || reply->format == CALLS_APERTUS;
    if (json) return read_json_list(reply, span);
    bool read = reply->format == CALLS_GEMMA  ? gemma_call_read(reply, span)
                : reply->format == CALLS_OLMO ? python_lines_read(reply, span)
                                              : python_calls_read(reply, span);
    if (read) return CALL_READ;
    return span->size == 0 ? CALL_WAITS : CALL_WRONG;
}

/* Passes the tag behind all calls, which may be lacking at the answer's end. A value may have had
 * the tag's text: then the tag is still on its way. */
static enum call_found pass_end(const struct call_tags *tags, struct text_span *rest, bool last) {
    if (tags->end == NULL || skip_tag(rest, tags->end) || (last && rest->size == 0))
        return CALL_READ;
    bool waits =
        span_may_become(*rest, tags->end) || (tags->call && span_may_become(*rest, tags->call));
    return waits ? CALL_WAITS : CALL_WRONG;
}

enum call_found tagged_calls_read(struct chat_reply *reply, struct text_span span, bool last,
                                  size_t *used) {
    const struct call_tags *tags = &tags_of[reply->format];
    bool inside = tags->call == NULL;
    struct text_span rest = span;
    int before = reply->n_calls;

    skip_tag(&rest, tags->begin);
    enum call_found found = inside ? read_inside(reply, &rest) : read_list(reply, tags, &rest);
    if (found == CALL_READ) found = pass_end(tags, &rest, last);
    while (found != CALL_READ && reply->n_calls > before) chat_reply_drop_call(reply);
    *used = (size_t)(rest.text - span.text);
    return found == CALL_WAITS && last ? CALL_WRONG : found;
}
