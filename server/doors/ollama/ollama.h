/* server/doors/ollama/ollama.h: one request of Ollama's API on its way. */
#pragma once

#include "server/api/chat/chat.h"
#include "server/doors/fields/ollama_fields.h"
#include "server/doors/shared/door_fields.h"

struct ollama_answer {
    struct chat_answer chat; /* first */
    struct json *body;
    struct buffer model; /* the name that was asked for, which comes back */
    bool generates;      /* a text, no message */
    bool thinks;         /* thoughts are shown */
    bool unloads;        /* of a request without words: keep_alive is 0 */
    double opened;       /* time_now() */
};

struct ollama_choice {
    struct chat_choice chat; /* first */
    double first;            /* time_now() of the first token; 0: none came */
};

/* ollama_read.c: requests as a chat's. */
bool ollama_read_chat(struct chat_answer *answer, struct api *api,
                      const struct api_request *request, struct failure *failure);
bool ollama_read_generate(struct chat_answer *answer, struct api *api,
                          const struct api_request *request, struct failure *failure);
void ollama_free(struct chat_answer *answer);
/* "NAME:latest" is "NAME". */
struct text_span ollama_model_name(const struct json *name);

/* ollama_turns.c: messages as turns of a conversation. */
bool ollama_read_turns(const struct json *messages, struct conversation *conversation,
                       struct failure *failure);
/* Pictures in base64, or none. */
bool ollama_read_images(const struct json *images, struct conversation *conversation,
                        struct failure *failure);

/* ollama_json.c: of struct writing_ops. */
void ollama_read_progress(const struct writing_answer *answer, struct choice *choice,
                          struct error *e);
void ollama_write_new(const struct writing_answer *answer, struct choice *choice,
                      struct buffer *out);
void ollama_write_end(const struct writing_answer *answer, const struct failure *failed,
                      struct buffer *out);
void ollama_write_whole(struct writing_answer *answer, struct buffer *out);
/* A member with the time, as RFC 3339 has it. */
void ollama_put_time(struct json_writer *w, const char *key, double seconds);
