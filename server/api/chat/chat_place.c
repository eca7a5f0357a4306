/* server/api/chat/chat_place.c: see chat_place.h. */
#include "server/api/chat/chat_place.h"

#include <stdlib.h>
#include <string.h>

#include "server/api/text/writing_ask.h"

void chat_join_parts(const struct json *parts, struct buffer *out) {
    size_t before = out->size;
    for (size_t i = 0; i < json_count(parts); i++) {
        struct text_span part = json_text(json_member(json_item(parts, i), "text"));
        if (part.text == NULL) continue; /* a picture */
        if (out->size > before) buffer_append(out, "\n", 1);
        buffer_append(out, part.text, part.size);
    }
}

static size_t count_blanks(struct text_span text) {
    size_t at = 0;
    while (at < text.size && strchr(" \t\r\n", text.text[at]) && text.text[at]) at++;
    return at;
}

void chat_mark_text(struct text_span text, const char *mark, struct buffer *out) {
    size_t blanks = mark ? count_blanks(text) : 0;
    buffer_append(out, text.text, blanks);
    if (mark) buffer_append_string(out, mark);
    buffer_append(out, text.text + blanks, text.size - blanks);
}

/* Open and close. */

static void copy_text(struct text_span *to, struct text_span from) {
    *to = (struct text_span){xstrndup(from.text ? from.text : "", from.size), from.size};
}

static bool is_said_by(const struct json *message, const char *role) {
    return json_text_is(json_member(message, "role"), role);
}

/* The number of the user's last message, or as many as there are messages. */
static size_t last_of_user(const struct json *messages) {
    size_t last = json_count(messages);
    for (size_t i = 0; i < json_count(messages); i++)
        if (is_said_by(json_item(messages, i), "user")) last = i;
    return last;
}

static void append_text(const struct json *message, struct buffer *out) {
    const struct json *content = json_member(message, "content");
    struct text_span said = json_text(content);
    if (json_is_list(content))
        chat_join_parts(content, out);
    else
        buffer_append(out, said.text, said.size);
}

/* Appends the texts of users and of the model before message `last`, the latest first: an embedder
 * that reads no further leaves out what is longest ago. */
static void append_earlier(const struct json *messages, size_t last, struct buffer *out) {
    for (size_t i = last; i > 0; i--) {
        const struct json *message = json_item(messages, i - 1);
        if (!is_said_by(message, "user") && !is_said_by(message, "assistant")) continue;
        buffer_append(out, "\n", 1);
        append_text(message, out);
    }
}

struct chat_place *chat_place_open(const struct json *messages, enum retrieval_query query) {
    size_t last = last_of_user(messages);
    struct buffer text = {0};
    struct chat_place *place = NULL;
    if (last == json_count(messages)) return NULL;
    append_text(json_item(messages, last), &text);
    if (count_blanks((struct text_span){text.data, text.size}) < text.size) {
        if (query == RETRIEVAL_BY_CONVERSATION) append_earlier(messages, last, &text);
        place = xcalloc(1, sizeof *place);
        place->message = json_item(messages, last);
        copy_text(&place->query, (struct text_span){text.data, text.size});
        snprintf(place->mark, sizeof place->mark, "passages%016llx%016llx",
                 (unsigned long long)random_number(), (unsigned long long)random_number());
    }
    buffer_free(&text);
    return place;
}

void chat_place_close(struct chat_place *place) {
    if (place == NULL) return;
    free((char *)(uintptr_t)place->query.text);
    template_output_free(&place->text);
    free(place);
}

/* The rendered text. */

static void cut(struct buffer *buffer, size_t at, size_t n) {
    memmove(buffer->data + at, buffer->data + at + n, buffer->size - at - n);
    buffer->size -= n;
}

bool chat_place_find(struct chat_place *place, struct template_output *text,
                     struct failure *failure) {
    size_t n = strlen(place->mark);
    bool found = false;
    const char *mark;
    /* A template may write a message twice; the later one is read with all before it. */
    while (text->text.size > 0 &&
           (mark = memmem(text->text.data, text->text.size, place->mark, n)) != NULL) {
        place->at = (size_t)(mark - text->text.data);
        cut(&text->text, place->at, n);
        cut(&text->marks, place->at, n);
        found = true;
    }
    if (found) return true;
    return failure_set(
        failure, 400, "no_place_for_passages", "messages",
        "the chat template leaves out the user's last message, which passages stand in: send "
        "{\"retrieval\": {\"enabled\": false}}");
}

static void copy_buffer(struct buffer *to, const struct buffer *from) {
    buffer_append(to, from->data, from->size);
}

void chat_place_keep(struct chat_place *place, const struct template *template,
                     const struct tokenizer *tokenizer, const struct template_output *text) {
    place->template = template;
    place->tokenizer = tokenizer;
    copy_buffer(&place->text.text, &text->text);
    copy_buffer(&place->text.marks, &text->marks);
}

/* A control token ends a text's tokens, so those before the place are the same without what
 * follows. */
bool chat_place_count(struct chat_place *place, int32_t picture_id, struct failure *failure) {
    struct template_output before = {0};
    struct tokens ids = {0};
    struct error e;
    buffer_append(&before.text, place->text.text.data, place->at);
    buffer_append(&before.marks, place->text.marks.data, place->at);
    enum status status = chat_encode(place->template, place->tokenizer, &before, &ids, &e);
    place->pictures_before = 0;
    for (int i = 0; i < ids.n; i++) place->pictures_before += ids.ids[i] == picture_id;
    tokens_free(&ids);
    template_output_free(&before);
    return status == STATUS_OK || failure_from_error(failure, &e);
}

/* The engine's copy. */

static void insert(struct buffer *out, const struct buffer *around, size_t at,
                   struct text_span inserted) {
    buffer_append(out, around->data, at);
    buffer_append(out, inserted.text, inserted.size);
    buffer_append(out, around->data + at, around->size - at);
}

static enum status compose(const void *context, struct placed_text passages, struct tokens *ids,
                           struct error *e) {
    const struct chat_place *place = context;
    struct template_output text = {0};
    insert(&text.text, &place->text.text, place->at, passages.text);
    insert(&text.marks, &place->text.marks, place->at,
           (struct text_span){passages.foreign, passages.text.size});
    enum status status = chat_encode(place->template, place->tokenizer, &text, ids, e);
    template_output_free(&text);
    return status;
}

static void close_copy(void *context) { chat_place_close(context); }

void chat_place_give(const struct chat_place *place, struct sequence_place *out) {
    struct chat_place *copy = xcalloc(1, sizeof *copy);
    chat_place_keep(copy, place->template, place->tokenizer, &place->text);
    copy->at = place->at;
    *out = (struct sequence_place){.compose = compose,
                                   .pictures_before = place->pictures_before,
                                   .context = copy,
                                   .close = close_copy};
    copy_text(&out->query, place->query);
}
