/* server/doors/ollama/ollama.c: POST /api/chat and POST /api/generate: a door to chats for programs
 * that speak Ollama's API. */
#include "server/doors/ollama/ollama.h"

#define LINES_TYPE "application/x-ndjson"

static const struct writing_ops ops = {.stream_type = LINES_TYPE,
                                       .read = ollama_read_progress,
                                       .write_new = ollama_write_new,
                                       .write_comparison = chat_keep_comparison,
                                       .write_end = ollama_write_end,
                                       .write_whole = ollama_write_whole,
                                       .free_choice = chat_free_choice};

struct answer *ollama_chat_open(struct api *api, const struct api_request *request,
                                struct waker waker, struct failure *failure) {
    static const struct chat_door door = {.ops = &ops,
                                          .answer_bytes = sizeof(struct ollama_answer),
                                          .choice_bytes = sizeof(struct ollama_choice),
                                          .read = ollama_read_chat,
                                          .free = ollama_free};
    return chat_door_open(&door, api, request, waker, failure);
}

struct answer *ollama_generate_open(struct api *api, const struct api_request *request,
                                    struct waker waker, struct failure *failure) {
    static const struct chat_door door = {.ops = &ops,
                                          .answer_bytes = sizeof(struct ollama_answer),
                                          .choice_bytes = sizeof(struct ollama_choice),
                                          .read = ollama_read_generate,
                                          .free = ollama_free};
    return chat_door_open(&door, api, request, waker, failure);
}
