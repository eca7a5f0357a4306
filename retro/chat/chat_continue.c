/* retro/chat/chat_continue.c: a conversation whose last message the model goes on with: the text
 * ends within it. As transformers does, the message is rendered with a mark at its end, and the
 * text is cut there. */
#include <string.h>

#include "config/base/utf8.h"
#include "retro/chat/chat_private.h"

/* The blank shows whether the template cuts white space off the message. */
static const char mark[] = "CONTINUE_FINAL_MESSAGE_TAG ";

static void put_marked(struct json_writer *w, struct text_span text) {
    struct buffer marked = {0};
    buffer_append(&marked, text.text, text.size);
    buffer_append_string(&marked, mark);
    put_string_n(w, marked.data, marked.size);
    buffer_free(&marked);
}

/* The number of the last part that has a text; as many as there are parts: none has. */
static size_t last_text(const struct json *parts) {
    for (size_t i = json_count(parts); i > 0; i--)
        if (json_is_text(json_member(json_item(parts, i - 1), "text"))) return i - 1;
    return json_count(parts);
}

static void put_part(struct json_writer *w, const struct json *part) {
    put_object(w);
    for (struct json_entry it = {0}; json_next(part, &it);) {
        put_key_n(w, it.name.text, it.name.size);
        if (strcmp(it.name.text, "text") == 0)
            put_marked(w, json_text(it.value));
        else
            put_json(w, it.value);
    }
    put_object_end(w);
}

void continued_put_parts(struct json_writer *w, const struct json *parts) {
    size_t last = last_text(parts);
    for (size_t i = 0; i < json_count(parts); i++) {
        if (i == last)
            put_part(w, json_item(parts, i));
        else
            put_json(w, json_item(parts, i));
    }
}

void continued_put(struct json_writer *w, const struct json *content) {
    if (!json_is_list(content)) {
        put_marked(w, json_text(content));
        return;
    }
    put_array(w);
    continued_put_parts(w, content);
    put_array_end(w);
}

/* The text that is gone on with; its text NULL: the message has none. */
static struct text_span final_text(const struct json *messages) {
    const struct json *content =
        json_member(json_item(messages, json_count(messages) - 1), "content");
    if (json_is_list(content))
        content = json_member(json_item(content, last_text(content)), "text");
    return json_is_text(content) ? json_text(content) : (struct text_span){0};
}

enum status continued_check(const struct json *messages, struct error *e) {
    if (final_text(messages).text) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "continue_final_message is true, and the last message has no text as its "
                     "content to go on with");
}

/* The size of the text without white space at its end. */
static size_t cut_end(const char *text, size_t size) {
    while (size > 0) {
        size_t start = size - 1;
        int32_t c = -1;
        while (start > 0 && ((unsigned char)text[start] & 0xC0) == 0x80) start--;
        if (utf8_read(text + start, size - start, &c) == 0 || !python_is_space(c)) break;
        size = start;
    }
    return size;
}

/* A text without white space at its ends. */
static struct text_span strip(struct text_span text) {
    size_t size = cut_end(text.text, text.size), at = 0;
    int32_t c;
    for (int n;
         at < size && (n = utf8_read(text.text + at, size - at, &c)) > 0 && python_is_space(c);)
        at += (size_t)n;
    return (struct text_span){text.text + at, size - at};
}

/* Where `part` occurs last in the text; SIZE_MAX: nowhere. */
static size_t find_last(const struct buffer *text, const char *part, size_t n) {
    for (size_t at = text->size; at >= n; at--)
        if (memcmp(text->data + at - n, part, n) == 0) return at - n;
    return SIZE_MAX;
}

enum status continued_cut(const struct json *messages, struct template_output *out,
                          struct error *e) {
    size_t n = strlen(mark) - 1, at = find_last(&out->text, mark, n);
    struct text_span said = strip(final_text(messages));
    bool there = said.size == 0 || (out->text.size > 0 &&
                                    memmem(out->text.data, out->text.size, said.text, said.size));
    if (at == SIZE_MAX || !there)
        return error_set(e, STATUS_INVALID,
                         "continue_final_message is true, and the chat template leaves out the "
                         "last message or parts "
                         "of it");
    bool spaces_stay = at + n < out->text.size && out->text.data[at + n] == ' ';
    if (!spaces_stay) at = cut_end(out->text.data, at);
    out->text.size = out->marks.size = at;
    return STATUS_OK;
}
