/* retro/chat/python_calls.c: calls as a list of Python's, [f(a="x", n=1), g()], or one under the
 * other, whose arguments are literals: strings, numbers, True, False, None, lists, tuples and
 * dictionaries. See tagged_calls.h. */
#include <string.h>

#include "config/base/text.h"
#include "config/json/json_writer.h"
#include "retro/chat/tagged_calls.h"

/* The text to read, and where its JSON goes. */
struct python_reader {
    struct text_span rest;
    struct json_writer w;
    int depth; /* of lists and dictionaries, and of the arguments around them */
};

static void python_skip(struct python_reader *reader) {
    while (reader->rest.size > 0 && is_blank(*reader->rest.text)) {
        reader->rest.text++;
        reader->rest.size--;
    }
}

/* Passes a character, if it is the next one behind blanks. */
static bool python_take(struct python_reader *reader, char c) {
    python_skip(reader);
    if (reader->rest.size == 0 || *reader->rest.text != c) return false;
    reader->rest.text++;
    reader->rest.size--;
    return true;
}

static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
}

bool python_name_fits(struct text_span name) {
    bool fits = name.size > 0;
    for (size_t i = 0; i < name.size; i++) fits = fits && is_name_byte(name.text[i]);
    return fits;
}

/* Letters, digits and the signs of tools' names; empty: there are none. */
static struct text_span python_name(struct python_reader *reader) {
    python_skip(reader);
    struct text_span name = {reader->rest.text, 0};
    while (name.size < reader->rest.size && is_name_byte(name.text[name.size])) name.size++;
    reader->rest.text += name.size;
    reader->rest.size -= name.size;
    return name;
}

/* The character of \\xNN or \\uNNNN, as JSON's reader knows it. */
static bool python_code(struct python_reader *reader, size_t digits, struct buffer *out) {
    char text[] = "\"\\u0000\"";
    struct error ignored;
    struct json *json;
    if (reader->rest.size < digits) {
        reader->rest = (struct text_span){reader->rest.text + reader->rest.size, 0};
        return false;
    }
    memcpy(text + 7 - digits, reader->rest.text, digits);
    reader->rest.text += digits;
    reader->rest.size -= digits;
    if (json_parse_any(&json, (struct text_span){text, sizeof text - 1}, "escape", &ignored))
        return false;
    buffer_append(out, json_text(json).text, json_text(json).size);
    json_close(json);
    return true;
}

/* The character behind a backslash. */
static bool python_escape(struct python_reader *reader, struct buffer *out) {
    static const char names[] = "nrtbfav0\\'\"", values[] = "\n\r\t\b\f\a\v\0\\'\"";
    if (reader->rest.size == 0) return false;
    char c = *reader->rest.text;
    const char *at = memchr(names, c, sizeof names - 1);
    reader->rest.text++;
    reader->rest.size--;
    if (at) {
        buffer_append(out, &values[at - names], 1);
        return true;
    }
    if (c == 'x' || c == 'u') return python_code(reader, c == 'x' ? 2 : 4, out);
    buffer_append_string(out, "\\");
    buffer_append(out, &c, 1);
    return true;
}

/* The text between quotes. */
static bool python_text(struct python_reader *reader, struct buffer *out) {
    char quote = *reader->rest.text;
    python_take(reader, quote);
    while (reader->rest.size > 0) {
        char c = *reader->rest.text;
        reader->rest.text++;
        reader->rest.size--;
        if (c == quote) return true;
        if (c == '\\') {
            if (!python_escape(reader, out)) return false;
        } else {
            buffer_append(out, &c, 1);
        }
    }
    return false;
}

/* A text that JSON writes in the same way is read as JSON does: calls that are held to parameters
 * have such texts. */
static bool python_json_text(struct python_reader *reader, struct buffer *out) {
    struct text_span rest = reader->rest;
    struct json *json = NULL;
    struct error ignored;
    size_t end = 1;
    if (*rest.text != '"') return false;
    while (end < rest.size && rest.text[end] != '"') end += rest.text[end] == '\\' ? 2 : 1;
    if (end >= rest.size) return false;
    if (json_parse_any(&json, (struct text_span){rest.text, end + 1}, "text", &ignored))
        return false;
    buffer_append(out, json_text(json).text, json_text(json).size);
    json_close(json);
    reader->rest = (struct text_span){rest.text + end + 1, rest.size - end - 1};
    return true;
}

static bool python_string(struct python_reader *reader, struct buffer *out) {
    return python_json_text(reader, out) || python_text(reader, out);
}

static bool python_value(struct python_reader *reader);

static bool python_items(struct python_reader *reader, char end) {
    put_array(&reader->w);
    while (!python_take(reader, end)) {
        if (!python_value(reader)) return false;
        if (!python_take(reader, ',') && (reader->rest.size == 0 || *reader->rest.text != end))
            return false;
    }
    put_array_end(&reader->w);
    return true;
}

static bool python_dictionary(struct python_reader *reader) {
    put_object(&reader->w);
    while (!python_take(reader, '}')) {
        struct buffer key = {0};
        python_skip(reader);
        bool quoted =
            reader->rest.size > 0 && (*reader->rest.text == '"' || *reader->rest.text == '\'');
        bool good = quoted && python_string(reader, &key) && python_take(reader, ':');
        if (good) put_key_n(&reader->w, key.data, key.size);
        buffer_free(&key);
        if (!good || !python_value(reader)) return false;
        if (!python_take(reader, ',') && (reader->rest.size == 0 || *reader->rest.text != '}'))
            return false;
    }
    put_object_end(&reader->w);
    return true;
}

/* True, False, None, and numbers, which are JSON's but for a + before them. */
static bool python_word(struct python_reader *reader) {
    static const struct {
        const char *python, *json;
    } words[] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                 {"true", "true"}, {"false", "false"}, {"null", "null"}};
    python_take(reader, '+');
    struct text_span word = {reader->rest.text, 0};
    while (word.size < reader->rest.size &&
           (is_name_byte(word.text[word.size]) || word.text[word.size] == '+'))
        word.size++;
    reader->rest.text += word.size;
    reader->rest.size -= word.size;
    for (size_t i = 0; i < ARRAY_COUNT(words); i++)
        if (span_is(word, words[i].python)) {
            put_raw(&reader->w, (struct text_span){words[i].json, strlen(words[i].json)});
            return true;
        }
    if (json_check(word) == JSON_KIND_ABSENT) return false;
    put_raw(&reader->w, word);
    return true;
}

static bool python_value(struct python_reader *reader) {
    python_skip(reader);
    if (reader->rest.size == 0) return false;
    char c = *reader->rest.text;
    bool nests = strchr("[({", c) != NULL && c != '\0', good;
    if (nests && reader->depth == JSON_DEPTH_LIMIT) return false;
    reader->depth += nests;
    if (c == '"' || c == '\'') {
        struct buffer text = {0};
        good = python_string(reader, &text);
        if (good) put_string_n(&reader->w, text.size ? text.data : "", text.size);
        buffer_free(&text);
    } else if (c == '[' || c == '(') {
        python_take(reader, c);
        good = python_items(reader, c == '[' ? ']' : ')');
    } else if (c == '{') {
        python_take(reader, c);
        good = python_dictionary(reader);
    } else {
        good = python_word(reader);
    }
    reader->depth -= nests;
    return good;
}

/* NAME(KEY=VALUE, ...) */
static bool python_call(struct python_reader *reader, struct chat_reply *reply) {
    struct buffer arguments = {0};
    struct text_span name = python_name(reader);
    bool good = name.size > 0 && python_take(reader, '(');
    put_begin_spaced(&reader->w, &arguments);
    put_object(&reader->w);
    while (good && !python_take(reader, ')')) {
        struct text_span key = python_name(reader);
        good = key.size > 0 && python_take(reader, '=');
        if (!good) break;
        put_key_n(&reader->w, key.text, key.size);
        good = python_value(reader) &&
               (python_take(reader, ',') || (reader->rest.size > 0 && *reader->rest.text == ')'));
    }
    if (good) {
        put_object_end(&reader->w);
        good = reply_add_call(reply, name, (struct text_span){arguments.data, arguments.size});
    }
    buffer_free(&arguments);
    return good;
}

bool python_calls_read(struct chat_reply *reply, struct text_span *span) {
    struct python_reader reader = {.rest = *span, .depth = 1};
    bool good = python_take(&reader, '['), more = good;
    while (more) {
        good = python_call(&reader, reply);
        more = good && python_take(&reader, ',');
    }
    good = good && python_take(&reader, ']');
    python_skip(&reader);
    *span = reader.rest;
    return good;
}

bool python_lines_read(struct chat_reply *reply, struct text_span *span) {
    struct python_reader reader = {.rest = *span, .depth = 1};
    bool good;
    do {
        good = python_call(&reader, reply);
        python_skip(&reader);
    } while (good && reader.rest.size > 0 && is_name_byte(*reader.rest.text));
    *span = reader.rest;
    return good;
}
