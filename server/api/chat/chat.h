/* server/api/chat/chat.h: a conversation on its way to an answer. POST /v1/chat/completions is one
 * door to it, and the protocols of server/doors are others: a door reads its request into a
 * struct chat_request, and has a table of the shapes in which the answer is sent. All between the
 * two is here, once. */
#pragma once

#include "server/api/chat/chat_rewrite.h"
#include "server/api/fields/chat_fields.h"
#include "server/api/text/openai_json.h"

struct chat_turns;

/* One answer to the conversation. */
struct chat_choice {
    struct choice base; /* first */
    struct chat_reply reply;
    struct chat_turns *turns; /* borrowed: of an answer whose calls the server carries out */
    /* As far as it was sent: bytes of what is thought and said, and calls: the client's, and those
     * that the server carries out, which are sent when they begin and when they are over. */
    size_t reasoning_sent, content_sent;
    int calls_sent, begun_sent, over_sent;
    bool begun;
};

struct chat_answer;

/* One protocol. */
struct chat_door {
    const struct writing_ops *ops;
    size_t answer_bytes; /* of the door's struct, which begins with struct chat_answer */
    size_t choice_bytes; /* the same of struct chat_choice */
    /* Reads the door's request into answer->request, by chat_request_parse. */
    bool (*read)(struct chat_answer *answer, struct api *api, const struct api_request *request,
                 struct failure *failure);
    void (*free)(struct chat_answer *answer); /* the door's members; NULL: it has none */
    bool tells_calls; /* it has words for calls that the server carries out */
};

/* The request's conversation as the model's template takes it. */
struct chat_prompt {
    struct tokens ids;
    struct picture_set *pictures;       /* borrowed; NULL: none */
    const struct principal *who;        /* borrowed: who asks */
    const struct chat_rewrite *rewrite; /* borrowed: of its question */
    bool thinks;                        /* the prompt ends within the model's thoughts */
    bool thought;                       /* or behind them */
    struct chat_place
        *place; /* of found passages, NULL: none are sought, or the model reads none as text */
};

/* Zeroed when the door reads. */
struct chat_answer {
    struct writing_answer base; /* first */
    const struct chat_door *door;
    struct chat_request request;
    struct principal principal; /* held: who asks */
    struct waker waker;
    enum call_format format;
    struct picture_job *pictures; /* a reference; NULL: the conversation has none */
    struct chat_rewrite rewrite;  /* of the question that its passages are sought by */
    struct api *api;              /* borrowed: asked for the rewrite */
    bool rewrite_waits;           /* for the pictures */
    /* chat_check_prompt: made before the rewrite, for the first turn behind it. */
    struct chat_prompt checked;
    bool is_checked;
    struct chat_turns *turns; /* owned; NULL: the server carries out no calls for it */
    /* The guide of an answer that is no call, where there may be calls before it; kind GUIDE_NONE:
     * it is free. */
    struct request_guide asked_guide;
    int64_t written; /* tokens of turns before this one */
    bool counts;   /* the door reads a request whose answer is not written: nothing is but this: */
    int n_counted; /* tokens of the prompt */
    bool clamped;  /* the context left less than max_tokens */
    bool opened;   /* the engine has the sequences */
    pthread_mutex_t lock; /* while they are made, and while they are cancelled */
    bool cancelled,
        closed;            /* guarded by it: nobody waits any more; the waker is not to be called */
    atomic_int references; /* of whoever serves the client, and of calls that are under way */
};

/* chat_messages.c */
void chat_prompt_free(struct chat_prompt *prompt); /* of a zeroed one: nothing */
/* *out has the pictures, who asks and the rewrite, and can be freed either way. */
bool chat_prompt_make(const struct served_model *model, const struct chat_request *request,
                      struct chat_prompt *out, enum call_format *format, struct failure *failure);

/* chat.c: a route's handler hands on to its door. */
/* The thoughts that the answer may begin with. */
enum thought_form chat_answer_thoughts(const struct chat_answer *answer);
/* The token of a mark; -1: the model has none. */
int32_t chat_mark_id(const struct chat_answer *answer, enum grammar_mark mark);
/* Of struct writing_ops, for every door: what was written is taken apart (chat_choice.reply). */
void chat_read(const struct writing_answer *answer, struct choice *choice, struct error *e);
void chat_free_choice(struct choice *choice);
/* The prompt of a turn, with the format in which the model calls; chat_prompt_free it either way.
 */
bool chat_make_prompt(const struct chat_answer *answer, struct chat_prompt *prompt,
                      enum call_format *format, struct failure *failure);
/* Whether the conversation, whose pictures are there, makes a prompt that leaves room for the
 * answer. It is kept for the answer. */
bool chat_check_prompt(struct chat_answer *answer, struct failure *failure);
/* All that the engine is asked for a choice whose sequence is new. */
bool chat_ask(struct chat_answer *answer, struct choice *choice, const struct chat_prompt *prompt,
              struct failure *failure);
/* How the reply to a prompt begins. */
void chat_begin_reply(const struct chat_answer *answer, struct chat_reply *reply, bool thinks);
/* One reference less. */
void chat_answer_release(struct chat_answer *answer);
/* Of doors whose protocol has no place for what a comparison tells: nothing is sent. */
void chat_keep_comparison(const struct writing_answer *answer, struct choice *choice,
                          struct buffer *out);
struct answer *chat_door_open(const struct chat_door *door, struct api *api,
                              const struct api_request *request, struct waker waker,
                              struct failure *failure);

/* chat_json.c */
enum { CALL_ID_BYTES = 32 };
/* The tokens of a choice that have not been sent, with their log-probabilities, as items of an
 * open list. */
void chat_put_tokens(struct json_writer *w, const struct chat_answer *answer,
                     const struct choice *choice);
/* The id of call i of a choice, as the model's template takes it back. */
void chat_call_id(const struct chat_answer *answer, const struct chat_choice *choice, int i,
                  char id[CALL_ID_BYTES]);
extern const struct openai_shape chat_shape;
/* Of struct writing_ops. */
void chat_write_new(const struct writing_answer *answer, struct choice *choice, struct buffer *out);
