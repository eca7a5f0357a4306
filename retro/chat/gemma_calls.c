/* retro/chat/gemma_calls.c: a call as Gemma 4 writes it, call:NAME{KEY:VALUE,...}: texts stand
 * between marks of their own, keys without any, and all else is JSON's. See tagged_calls.h. */
#include <string.h>

#include "config/base/text.h"
#include "config/json/json_writer.h"
#include "retro/chat/tagged_calls.h"

static const char quote[] = GEMMA_QUOTE, before_name[] = "call:";

/* The text to read, and where its JSON goes. */
struct gemma_reader {
    struct text_span rest;
    struct json_writer w;
    int depth; /* of objects and arrays */
};

static void gemma_pass(struct gemma_reader *reader, size_t size) {
    reader->rest.text += size;
    reader->rest.size -= size;
}

static void gemma_skip(struct gemma_reader *reader) {
    while (reader->rest.size > 0 && is_blank(*reader->rest.text)) gemma_pass(reader, 1);
}

/* Passes a text, if it comes next behind blanks. */
static bool gemma_take(struct gemma_reader *reader, const char *text) {
    gemma_skip(reader);
    if (!span_starts_with(reader->rest, text)) return false;
    gemma_pass(reader, strlen(text));
    return true;
}

/* The bytes before a mark, which is passed too; all bytes where it does not come. */
static bool gemma_until(struct gemma_reader *reader, const char *mark, struct text_span *out) {
    size_t end = span_find(reader->rest, mark);
    if (end == SIZE_MAX) {
        gemma_pass(reader, reader->rest.size);
        return false;
    }
    *out = (struct text_span){reader->rest.text, end};
    gemma_pass(reader, end + strlen(mark));
    return true;
}

/* A key, between marks or without, and the colon behind it. */
static bool gemma_key(struct gemma_reader *reader, struct text_span *key) {
    if (gemma_take(reader, quote))
        return gemma_until(reader, quote, key) && gemma_take(reader, ":");
    gemma_skip(reader);
    if (!gemma_until(reader, ":", key)) return false;
    for (size_t i = 0; i < key->size; i++)
        if (strchr("{}[],\"<>", key->text[i])) return false;
    return key->size > 0;
}

static bool gemma_value(struct gemma_reader *reader);

/* Values, of an object behind their keys; the bracket that begins them was passed. */
static bool gemma_items(struct gemma_reader *reader, bool object) {
    const char *end = object ? "}" : "]";
    struct text_span key;
    if (reader->depth == JSON_DEPTH_LIMIT) return false;
    reader->depth++;
    if (object)
        put_object(&reader->w);
    else
        put_array(&reader->w);
    while (!gemma_take(reader, end)) {
        if (object && !gemma_key(reader, &key)) return false;
        if (object) put_key_n(&reader->w, key.text, key.size);
        if (!gemma_value(reader)) return false;
        bool more = gemma_take(reader, ",");
        if (!more && !span_starts_with(reader->rest, end)) return false;
    }
    if (object)
        put_object_end(&reader->w);
    else
        put_array_end(&reader->w);
    reader->depth--;
    return true;
}

/* A number, true, false, null, or a text as JSON writes it. All bytes are passed where it has no
 * end. */
static bool gemma_word(struct gemma_reader *reader) {
    size_t size = 0;
    bool text = *reader->rest.text == '"';
    if (text)
        for (size = 1; size < reader->rest.size && reader->rest.text[size] != '"'; size++)
            size += reader->rest.text[size] == '\\';
    while (!text && size < reader->rest.size && !strchr(",]}", reader->rest.text[size])) size++;
    size += text;
    if (size > reader->rest.size || (!text && size == reader->rest.size)) {
        gemma_pass(reader, reader->rest.size);
        return false;
    }
    struct text_span word = trim_blanks((struct text_span){reader->rest.text, size});
    if (json_check(word) == JSON_KIND_ABSENT) return false;
    put_raw(&reader->w, word);
    gemma_pass(reader, size);
    gemma_skip(reader);
    return true;
}

static bool gemma_value(struct gemma_reader *reader) {
    struct text_span text;
    bool good;
    gemma_skip(reader);
    if (reader->rest.size == 0) return false;
    if (gemma_take(reader, quote)) {
        good = gemma_until(reader, quote, &text);
        if (good) put_string_n(&reader->w, text.size ? text.text : "", text.size);
        gemma_skip(reader);
    } else if (gemma_take(reader, "{")) {
        good = gemma_items(reader, true);
    } else if (gemma_take(reader, "[")) {
        good = gemma_items(reader, false);
    } else {
        good = gemma_word(reader);
    }
    return good;
}

bool gemma_call_read(struct chat_reply *reply, struct text_span *span) {
    struct gemma_reader reader = {.rest = *span};
    struct buffer arguments = {0};
    struct text_span name;
    put_begin_spaced(&reader.w, &arguments);
    bool good = gemma_take(&reader, before_name) && gemma_until(&reader, "{", &name) &&
                gemma_items(&reader, true);
    gemma_skip(&reader);
    good = good && reply_add_call(reply, trim_blanks(name),
                                  (struct text_span){arguments.data, arguments.size});
    buffer_free(&arguments);
    *span = reader.rest;
    return good;
}
