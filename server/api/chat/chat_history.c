/* server/api/chat/chat_history.c: see chat_history.h. */
#include "server/api/chat/chat_history.h"

#include <stdlib.h>

#include "config/json/json_writer.h"
#include "server/api/core/picture_part.h"

/* Of each message that a user said: its number among all, and the conversation up to it. */
struct said {
    size_t message;
    struct turn_key key;
};

static bool is_system(const struct json *message) {
    const struct json *role = json_member(message, "role");
    return json_text_is(role, "system") || json_text_is(role, "developer");
}

static struct turn_key add_text(struct turn_key key, const struct json *text) {
    return turn_key_add(key, json_text(text));
}

static struct turn_key add_json(struct turn_key key, const struct json *value,
                                struct buffer *room) {
    struct json_writer w;
    buffer_clear(room);
    put_begin(&w, room);
    put_json(&w, value);
    return turn_key_add(key, (struct text_span){room->data, room->size});
}

/* The message by what is said in it, not by how: parts are their joined texts, and pictures. */
static struct turn_key add_message(struct turn_key key, const struct json *message,
                                   struct buffer *room) {
    static const char *const others[] = {"tool_calls", "function_call", "tool_call_id"};
    const struct json *content = json_member(message, "content");
    key = add_text(key, json_member(message, "role"));
    if (json_is_list(content)) {
        buffer_clear(room);
        chat_join_parts(content, room);
        key = turn_key_add(key, (struct text_span){room->data, room->size});
        for (size_t i = 0; i < json_count(content); i++)
            if (picture_part_is(json_item(content, i)))
                key = add_json(key, json_item(content, i), room);
    } else {
        key = add_text(key, content);
    }
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
        const struct json *value = json_member(message, others[i]);
        if (!json_is_absent(value)) key = add_json(key, value, room);
    }
    return key;
}

/* The messages of users up to `last`, into said [last + 1]; returns how many there are. The
 * system's messages are left out: a date in them makes no other conversation. */
static int list_said(const struct chat_asker *asker, size_t last, struct said *said) {
    struct turn_key key = conversations_begin(asker->conversations, asker->who);
    struct buffer room = {0};
    int n = 0;
    for (size_t i = 0; i <= last; i++) {
        const struct json *message = json_item(asker->messages, i);
        if (is_system(message)) continue;
        key = add_message(key, message, &room);
        if (!json_text_is(json_member(message, "role"), "user")) continue;
        said[n] = (struct said){i, key};
        n++;
    }
    buffer_free(&room);
    return n;
}

/* The known turns among the first n, those that the latest of them had passages of, the latest
 * first. */
static void find_turns(const struct said *said, int n, struct sequence_conversation *out) {
    int oldest = 0;
    for (int i = n - 1; i >= oldest; i--) {
        struct read_turn *turn = conversations_find(out->conversations, said[i].key);
        if (turn == NULL) continue;
        if (out->n == 0) oldest = turn->oldest;
        out->turns[out->n] = (struct earlier_turn){.turn = turn, .said = i};
        out->n++;
    }
}

static void reverse(struct sequence_conversation *out) {
    for (int i = 0, j = out->n - 1; i < j; i++, j--) {
        struct earlier_turn turn = out->turns[i];
        out->turns[i] = out->turns[j];
        out->turns[j] = turn;
    }
}

void chat_history_read(const struct chat_asker *asker, size_t last, struct chat_place *place) {
    struct sequence_conversation *out = &place->conversation;
    *out = (struct sequence_conversation){.conversations = asker->conversations};
    if (asker->conversations) {
        struct said *said = xcalloc(last + 1, sizeof *said);
        int n = list_said(asker, last, said) - 1;
        out->turns = xcalloc((size_t)n + 1, sizeof *out->turns);
        out->key = said[n].key;
        out->said = n;
        find_turns(said, n, out);
        reverse(out);
        place->messages = xcalloc((size_t)out->n + 1, sizeof(const struct json *));
        for (int i = 0; i < out->n; i++)
            place->messages[i] = json_item(asker->messages, said[out->turns[i].said].message);
        free(said);
    } else {
        place->messages = xcalloc(1, sizeof(const struct json *));
    }
    place->messages[out->n] = json_item(asker->messages, last);
    place->n = out->n + 1;
}
