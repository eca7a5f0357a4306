/* server/api/chat/chat_place.c: see chat_place.h. */
#include "server/api/chat/chat_place.h"

#include <stdlib.h>
#include <string.h>

#include "server/api/chat/chat_history.h"
#include "server/api/chat/chat_rewrite.h"
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

bool chat_find_question(const struct json *messages, size_t *out) {
    bool found = false;
    for (size_t i = 0; i < json_count(messages); i++) {
        if (!is_said_by(json_item(messages, i), "user")) continue;
        *out = i;
        found = true;
    }
    return found;
}

void chat_append_text(const struct json *message, struct buffer *out) {
    const struct json *content = json_member(message, "content");
    struct text_span said = json_text(content);
    if (json_is_list(content))
        chat_join_parts(content, out);
    else
        buffer_append(out, said.text, said.size);
}

static bool has_text(const struct json *message) {
    struct buffer text = {0};
    chat_append_text(message, &text);
    bool has = count_blanks((struct text_span){text.data, text.size}) < text.size;
    buffer_free(&text);
    return has;
}

bool chat_is_turn(const struct json *message) {
    return (is_said_by(message, "user") || is_said_by(message, "assistant")) && has_text(message);
}

bool chat_has_turns(const struct json *messages, size_t last) {
    if (!has_text(json_item(messages, last))) return false;
    for (size_t i = 0; i < last; i++)
        if (chat_is_turn(json_item(messages, i))) return true;
    return false;
}

/* Appends the texts of users and of the model before message `last`, the latest first: an embedder
 * that reads no further leaves out what is longest ago. */
static void append_earlier(const struct json *messages, size_t last, struct buffer *out) {
    for (size_t i = last; i > 0; i--) {
        const struct json *message = json_item(messages, i - 1);
        if (!is_said_by(message, "user") && !is_said_by(message, "assistant")) continue;
        buffer_append(out, "\n", 1);
        chat_append_text(message, out);
    }
}

/* The texts that passages are sought by. Empty: the message has none. A question that could not be
 * rewritten is sought by with the turns before it. */
static void write_query(const struct chat_asker *asker, size_t last, struct buffer *out) {
    const char *rewritten = asker->rewrite->query;
    if (!has_text(json_item(asker->messages, last))) return;
    if (rewritten) {
        buffer_append_string(out, rewritten);
        return;
    }
    chat_append_text(json_item(asker->messages, last), out);
    if (asker->query != RETRIEVAL_BY_MESSAGE) append_earlier(asker->messages, last, out);
}

struct chat_place *chat_place_open(const struct chat_asker *asker) {
    size_t last = 0;
    struct buffer query = {0};
    struct chat_place *place = NULL;
    if (!chat_find_question(asker->messages, &last)) return NULL;
    write_query(asker, last, &query);
    if (query.size > 0) {
        place = xcalloc(1, sizeof *place);
        copy_text(&place->query, (struct text_span){query.data, query.size});
        place->rewritten = asker->rewrite->query != NULL;
        if (asker->rewrite->problem) place->query_problem = xstrdup(asker->rewrite->problem);
        chat_history_read(asker, last, place);
        snprintf(place->name, sizeof place->name, "passages%016llx%016llx",
                 (unsigned long long)random_number(), (unsigned long long)random_number());
    }
    buffer_free(&query);
    return place;
}

void chat_place_rewrite(struct chat_place *place, const struct chat_rewrite *rewrite) {
    if (rewrite->query) {
        free((char *)(uintptr_t)place->query.text);
        copy_text(&place->query, (struct text_span){rewrite->query, strlen(rewrite->query)});
        place->rewritten = true;
    }
    free(place->query_problem);
    place->query_problem = rewrite->problem ? xstrdup(rewrite->problem) : NULL;
}

void chat_place_close(struct chat_place *place) {
    if (place == NULL) return;
    free((char *)(uintptr_t)place->query.text);
    free(place->query_problem);
    sequence_conversation_free(&place->conversation);
    free(place->messages);
    free(place->at);
    template_output_free(&place->text);
    free(place);
}

/* Marks: the name, and eight digits for the place. */

enum { MARK_DIGITS = 8 };

const char *chat_place_mark(const struct chat_place *place, const struct json *message, int *next,
                            char mark[CHAT_MARK_BYTES]) {
    if (place == NULL || *next == place->n || place->messages[*next] != message) return NULL;
    snprintf(mark, CHAT_MARK_BYTES, "%s%0*x", place->name, MARK_DIGITS, (unsigned)*next);
    ++*next;
    return mark;
}

/* The mark's place in the conversation; -1: digits are missing, which a template cut off. */
static int read_mark(struct text_span digits) {
    int number = 0;
    if (digits.size < MARK_DIGITS) return -1;
    for (int i = 0; i < MARK_DIGITS; i++) {
        const char *found = memchr("0123456789abcdef", digits.text[i], 16);
        if (found == NULL) return -1;
        number = number * 16 + (int)(found - "0123456789abcdef");
    }
    return number;
}

/* Moves bytes [from, to) of both buffers to `end`; returns the new end. */
static size_t move_piece(struct template_output *text, size_t from, size_t to, size_t end) {
    memmove(text->text.data + end, text->text.data + from, to - from);
    memmove(text->marks.data + end, text->marks.data + from, to - from);
    return end + to - from;
}

/* Places that do not come in the order of their messages are of no use, but the last is. */
static void drop_unordered(struct chat_place *place) {
    size_t before = place->at[place->n - 1];
    for (int i = place->n - 2; i >= 0; i--) {
        if (place->at[i] > before) place->at[i] = PLACE_MISSING;
        if (place->at[i] != PLACE_MISSING) before = place->at[i];
    }
}

bool chat_place_find(struct chat_place *place, struct template_output *text,
                     struct failure *failure) {
    size_t n = strlen(place->name), at = 0, end = 0, size = text->text.size;
    place->at = xcalloc((size_t)place->n, sizeof *place->at);
    for (int i = 0; i < place->n; i++) place->at[i] = PLACE_MISSING;
    while (at < size) {
        const char *mark = memmem(text->text.data + at, size - at, place->name, n);
        size_t next = mark ? (size_t)(mark - text->text.data) : size;
        end = move_piece(text, at, next, end);
        at = next;
        if (mark == NULL) break;
        int number = read_mark((struct text_span){mark + n, size - next - n});
        at += n + (number < 0 ? 0 : MARK_DIGITS);
        /* A template may write a message twice; the later one is read with all before it. */
        if (number >= 0 && number < place->n) place->at[number] = end;
    }
    text->text.size = text->marks.size = end;
    drop_unordered(place);
    if (place->at[place->n - 1] != PLACE_MISSING) return true;
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
    size_t at = place->at[place->n - 1];
    buffer_append(&before.text, place->text.text.data, at);
    buffer_append(&before.marks, place->text.marks.data, at);
    enum status status = chat_encode(place->template, place->tokenizer, &before, &ids, &e);
    place->pictures_before = 0;
    for (int i = 0; i < ids.n; i++) place->pictures_before += ids.ids[i] == picture_id;
    tokens_free(&ids);
    template_output_free(&before);
    return status == STATUS_OK || failure_from_error(failure, &e);
}

/* The engine's copy. */

/* The text with the passages in their places, and the marks of all. */
static void insert(const struct chat_place *place, const struct placed_text *passages,
                   struct template_output *out) {
    size_t done = 0;
    for (int i = 0; i < place->n; i++) {
        size_t at = place->at[i], n = passages[i].text.size;
        if (at == PLACE_MISSING || n == 0) continue;
        buffer_append(&out->text, place->text.text.data + done, at - done);
        buffer_append(&out->marks, place->text.marks.data + done, at - done);
        buffer_append(&out->text, passages[i].text.text, n);
        buffer_append(&out->marks, passages[i].foreign, n);
        done = at;
    }
    buffer_append(&out->text, place->text.text.data + done, place->text.text.size - done);
    buffer_append(&out->marks, place->text.marks.data + done, place->text.marks.size - done);
}

static enum status compose(const void *context, const struct placed_text *passages,
                           struct tokens *ids, struct error *e) {
    const struct chat_place *place = context;
    struct template_output text = {0};
    insert(place, passages, &text);
    enum status status = chat_encode(place->template, place->tokenizer, &text, ids, e);
    template_output_free(&text);
    return status;
}

static void close_copy(void *context) { chat_place_close(context); }

void chat_place_give(const struct chat_place *place, struct sequence_place *out) {
    struct chat_place *copy = xcalloc(1, sizeof *copy);
    size_t n = (size_t)place->n;
    chat_place_keep(copy, place->template, place->tokenizer, &place->text);
    copy->n = place->n;
    copy->at = memcpy(xcalloc(n, sizeof *copy->at), place->at, n * sizeof *copy->at);
    *out = (struct sequence_place){.compose = compose,
                                   .conversation = sequence_conversation_copy(&place->conversation),
                                   .before = {copy->text.text.data, copy->at[copy->n - 1]},
                                   .pictures_before = place->pictures_before,
                                   .context = copy,
                                   .close = close_copy};
    for (int i = 0; i < place->n - 1; i++)
        out->conversation.turns[i].stands = place->at[i] != PLACE_MISSING;
    copy_text(&out->query, place->query);
    out->rewritten = place->rewritten;
    if (place->query_problem) out->query_problem = xstrdup(place->query_problem);
}
