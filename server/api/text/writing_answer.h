/* server/api/text/writing_answer.h: the choices of one request as they are written: everything
 * that completions, chats and other doors to the models have in common. A door reads its
 * request, fills in the sequence of each choice, and has a table of the shapes in which they are
 * sent. */
#pragma once

#include "config/json/json_writer.h"
#include "server/api/api.h"

/* Tokens of the turns of an answer before the one that is written. */
struct earlier_turns {
    int64_t n_read, n_cached, n_ids;
};

/* One answer to one prompt. A door's struct begins with it. */
struct choice {
    struct sequence *sequence;
    int number; /* among the answers to its prompt */
    int index;  /* among those that are sent; -1: it is not */
    /* As far as it was read. */
    struct buffer text; /* all of it so far */
    struct progress progress;
    struct earlier_turns earlier; /* zeros of an answer of one turn */
    /* As far as it was sent: tokens of the answer, entries of what was found. */
    int ids_sent, found_sent;
    bool written, finished; /* the answer is complete, and so are its comparisons */
};

struct openai_shape;
struct writing_answer;

/* A door's part. Events are of streams alone. */
struct writing_ops {
    const struct openai_shape *openai; /* of doors in OpenAI's shapes (openai_json.h) */
    const char *stream_type;           /* of a stream's events; NULL: text/event-stream */
    /* Its text or its progress has changed; a door may end it here, with *e set where it fails.
     * NULL: it needs no more. */
    void (*read)(const struct writing_answer *answer, struct choice *choice, struct error *e);
    /* Events with the part of a choice that has not been sent, if there is any; with what its
     * comparisons tell, which are over; and with the end, of the reason where it is a failure. */
    void (*write_new)(const struct writing_answer *answer, struct choice *choice,
                      struct buffer *out);
    void (*write_comparison)(const struct writing_answer *answer, struct choice *choice,
                             struct buffer *out);
    void (*write_end)(const struct writing_answer *answer, const struct failure *failed,
                      struct buffer *out);
    void (*write_whole)(struct writing_answer *answer, struct buffer *out);
    void (*free_choice)(
        struct choice *choice); /* the door's members; NULL: there is nothing to free */
};

struct writing_answer {
    struct answer base;
    const struct writing_ops *ops;
    const struct served_model *model;
    const struct request_writing *asked; /* the door's */
    uint64_t id;
    int64_t created;         /* seconds since 1970 */
    struct choice **choices; /* [n] owned, those of one prompt side by side */
    int n;
};

/* Of a zeroed answer, before its request is read. */
void writing_answer_init(struct writing_answer *answer, const struct writing_ops *ops,
                         const struct request_writing *asked);
/* Adds a zeroed choice of so many bytes, whose sequence is `who`'s and wakes `waker`. */
struct choice *writing_answer_add(struct writing_answer *answer, size_t bytes,
                                  const struct principal *who, struct waker waker);
/* Hands all sequences to the model's engine, or none; a refusal says when to come back. */
bool writing_answer_submit(struct writing_answer *answer, struct failure *failure);
/* The answer is complete but for what the engine writes: its headers, and whether it is a
 * stream. */
void writing_answer_begin(struct writing_answer *answer);
/* One step of sending, as answer_ops.poll. */
enum answer_progress writing_answer_poll(struct answer *answer, struct buffer *out);
/* The request's stop string that has ended a choice, NULL: none did. A door's own are none. */
const struct text_span *writing_stop(const struct writing_answer *answer,
                                     const struct choice *choice);
/* Nobody waits for it any more. From any thread that keeps `choices` as they are. */
void writing_answer_cancel(struct writing_answer *answer);
/* Cancels what is still written, and frees the choices. */
void writing_answer_free(struct writing_answer *answer);
