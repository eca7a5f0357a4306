/* server/api/chat/chat.h: one POST /v1/chat/completions on its way, and its shape. */
#pragma once

#include "server/api/fields/chat_fields.h"
#include "server/api/text/openai_json.h"

/* One answer to the conversation. */
struct chat_choice {
    struct choice base; /* first */
    struct chat_reply reply;
    /* As far as it was sent: bytes of what is thought and said, and calls. */
    size_t reasoning_sent, content_sent;
    int calls_sent;
    bool begun;
};

struct chat_answer {
    struct writing_answer base; /* first */
    struct chat_request request;
    struct principal principal; /* held: who asks */
    struct waker waker;
    enum call_format format;
    struct picture_job *pictures; /* a reference; NULL: the conversation has none */
    bool opened;                  /* the engine has the sequences */
    pthread_mutex_t lock;         /* while they are made, and while they are cancelled */
};

/* chat_messages.c: the request's conversation as the model's template takes it. */
struct chat_prompt {
    struct tokens ids;
    struct picture_set *pictures; /* borrowed; NULL: none */
    bool thinks;                  /* the prompt ends within the model's thoughts */
    bool thought;                 /* or behind them */
    struct chat_place
        *place; /* of found passages, NULL: none are sought, or the model reads none as text */
};
void chat_prompt_free(struct chat_prompt *prompt);
/* *out has the pictures, and can be freed either way. */
bool chat_prompt_make(const struct served_model *model, const struct chat_request *request,
                      struct chat_prompt *out, enum call_format *format, struct failure *failure);

/* chat_json.c */
extern const struct openai_shape chat_shape;
/* Of struct writing_ops. */
void chat_write_new(const struct writing_answer *answer, struct choice *choice, struct buffer *out);
