/* server/doors/responses/responses.c: POST /v1/responses and POST /v1/responses/input_tokens: a
 * door to chats for clients of OpenAI's Responses. */
#include "server/doors/responses/responses.h"

#include <stdlib.h>

static void free_choice(struct choice *choice) {
    free(((struct responses_choice *)choice)->items);
    chat_free_choice(choice);
}

struct answer *responses_open(struct api *api, const struct api_request *request,
                              struct waker waker, struct failure *failure) {
    static const struct writing_ops ops = {.read = chat_read,
                                           .write_new = responses_write_new,
                                           .write_comparison = chat_keep_comparison,
                                           .write_end = responses_write_end,
                                           .write_whole = responses_write_whole,
                                           .free_choice = free_choice};
    static const struct chat_door door = {.ops = &ops,
                                          .answer_bytes = sizeof(struct responses_answer),
                                          .choice_bytes = sizeof(struct responses_choice),
                                          .read = responses_read,
                                          .tells_calls = true,
                                          .free = responses_free};
    return chat_door_open(&door, api, request, waker, failure);
}

static void write_count(struct writing_answer *answer, struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    put_key_string(&w, "object", "response.input_tokens");
    put_key_int(&w, "input_tokens", ((struct chat_answer *)answer)->n_counted);
    put_object_end(&w);
}

struct answer *input_tokens_open(struct api *api, const struct api_request *request,
                                 struct waker waker, struct failure *failure) {
    static const struct writing_ops ops = {.write_whole = write_count};
    static const struct chat_door door = {.ops = &ops,
                                          .answer_bytes = sizeof(struct responses_answer),
                                          .choice_bytes = sizeof(struct responses_choice),
                                          .read = responses_read_counted,
                                          .tells_calls = true,
                                          .free = responses_free};
    return chat_door_open(&door, api, request, waker, failure);
}
