/* server/api/chat/chat.h: one POST /v1/chat/completions on its way: its sequences and how much of each has been sent.
 */
#pragma once

#include "config/json/json_writer.h"
#include "retro/chat/chat_reply.h"
#include "server/api/api.h"
#include "server/api/fields/chat_fields.h"

/* One answer to the conversation. */
struct chat_choice {
    struct sequence *sequence;
    /* As far as this answer has read. */
    struct buffer text; /* all of it so far */
    struct progress progress;
    struct error error;
    struct chat_reply reply;
    /* As far as it was sent: bytes of what is thought and said, calls, tokens. */
    size_t reasoning_sent, content_sent;
    int calls_sent, ids_sent, found_sent; /* the last: chunks of retrieval */
    bool begun;
    bool written, finished; /* the answer is complete, and so is its comparison */
};

struct chat_answer {
    struct answer base;
    const struct served_model *model;
    struct chat_request request;
    struct principal principal; /* held: who asks */
    struct waker waker;
    enum call_format format;
    uint64_t id;
    int64_t created;              /* seconds since 1970 */
    struct picture_job *pictures; /* a reference; NULL: the conversation has none */
    bool opened;                  /* the engine has the sequences */
    pthread_mutex_t lock;         /* while they are made, and while they are cancelled */
    struct chat_choice *choices;  /* [n] */
    int n;
};

/* chat_messages.c: the request's conversation as the model's template takes it. */
struct chat_prompt {
    struct tokens ids;
    struct picture_set *pictures; /* borrowed; NULL: none */
    bool thinks;                  /* the prompt ends within the model's thoughts */
    bool thought;                 /* or behind them */
    struct chat_place *place;     /* of found passages, NULL: none are sought, or the model reads none as text */
};
void chat_prompt_free(struct chat_prompt *p);
/* *out has the pictures, and can be freed either way. */
bool chat_prompt_make(const struct served_model *model, const struct chat_request *r, struct chat_prompt *out,
                      enum call_format *format, struct failure *f);

/* chat_json.c: the whole body; one event of a stream with what a choice has not sent yet; one with its comparison,
 * which is over; a stream's last events. */
void chat_write(struct chat_answer *c, struct buffer *out);
void chat_write_event(struct chat_answer *c, struct chat_choice *choice, struct buffer *out);
void chat_write_comparison(struct chat_answer *c, const struct chat_choice *choice, struct buffer *out);
void chat_write_end(struct chat_answer *c, const struct failure *failed, struct buffer *out);
