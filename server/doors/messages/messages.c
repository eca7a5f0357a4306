/* server/doors/messages/messages.c: POST /v1/messages and POST /v1/messages/count_tokens: a door to
 * chats for Anthropic's clients. */
#include "server/doors/messages/messages.h"

struct answer *messages_open(struct api *api, const struct api_request *request, struct waker waker,
                             struct failure *failure) {
    static const struct writing_ops ops = {.read = chat_read,
                                           .write_new = messages_write_new,
                                           .write_comparison = chat_keep_comparison,
                                           .write_end = messages_write_end,
                                           .write_whole = messages_write_whole,
                                           .free_choice = chat_free_choice};
    static const struct chat_door door = {.ops = &ops,
                                          .answer_bytes = sizeof(struct messages_answer),
                                          .choice_bytes = sizeof(struct messages_choice),
                                          .read = messages_read,
                                          .tells_calls = true,
                                          .free = messages_free};
    return chat_door_open(&door, api, request, waker, failure);
}

static void write_count(struct writing_answer *answer, struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    put_key_int(&w, "input_tokens", ((struct chat_answer *)answer)->n_counted);
    put_object_end(&w);
}

struct answer *count_tokens_open(struct api *api, const struct api_request *request,
                                 struct waker waker, struct failure *failure) {
    static const struct writing_ops ops = {.write_whole = write_count};
    static const struct chat_door door = {.ops = &ops,
                                          .answer_bytes = sizeof(struct messages_answer),
                                          .choice_bytes = sizeof(struct messages_choice),
                                          .read = messages_read_counted,
                                          .tells_calls = true,
                                          .free = messages_free};
    return chat_door_open(&door, api, request, waker, failure);
}
