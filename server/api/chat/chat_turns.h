/* server/api/chat/chat_turns.h: an answer of several turns: the model calls tools of servers
 * (option tools.mcp), the server carries the calls out, and the model goes on with their results.
 *
 * A turn's sequence ends with calls. A thread of the tools' own carries them out, makes the next
 * prompt and hands its sequence to the engine; whoever polls the answer only looks whether it is
 * there. All turns are one reply: what is said and thought grows, and calls have their places in
 * it.
 */
#pragma once

#include "server/api/chat/chat.h"
#include "server/tools/tools.h"

/* A call that the server carries out, as the answer tells it. */
struct chat_call {
    char id[CALL_ID_BYTES];
    char *name; /* as the model calls the tool */
    const char *server, *tool;
    struct buffer arguments, result;
    bool over, failed;               /* the result is there; and says what went wrong */
    size_t reasoning_at, content_at; /* bytes of thoughts and of content before it */
};

enum turn_stage {
    TURN_WRITES, /* the model does */
    TURN_CALLS,  /* calls are carried out, or the next prompt is made */
    TURN_READY,  /* the next turn has begun */
    TURN_FAILED  /* it cannot */
};

struct chat_turns {
    struct chat_answer *answer;
    struct tool_set set;
    struct chat_call *calls; /* [n_calls] of all turns; those from first_call on are this turn's */
    int n_calls, capacity, first_call;
    int n_turns;                         /* that ended with calls */
    size_t reasoning_from, content_from; /* bytes of thoughts and content before this turn */
    double seconds, started;             /* that calls have taken; when the latest began */
    bool last;                           /* a limit was reached: no more calls are carried out */
    struct tool_job job;
    int *called;         /* [job.n] which call each is of */
    struct buffer added; /* messages of turns that are over, as items of JSON behind commas */
    /* Guarded by the answer's lock. */
    enum turn_stage stage;
    struct sequence *next; /* of TURN_READY */
    bool next_thinks;
    struct error problem; /* of TURN_FAILED; STATUS_TOO_LARGE: the context is full */
};

/* The tools that the request asks for, or that all chats are told of; answer->turns stays NULL
 * where there are none. */
bool chat_turns_open(struct chat_answer *answer, struct api *api, struct failure *failure);
void chat_turns_close(struct chat_turns *turns); /* NULL: nothing */
/* With the answer's lock: nobody waits any more; and no wake comes from what it has begun. */
void chat_turns_cancel(struct chat_turns *turns);
void chat_turns_detach(struct chat_turns *turns);

/* Before the answer is read: moves on to the next turn where it has begun. False: there is nothing
 * to read yet, or the answer has ended, with *e set where it failed. */
bool chat_turns_go_on(struct chat_turns *turns, struct chat_choice *choice, struct error *e);
/* After the answer was read: takes the calls of servers out of the reply, and has them carried out
 * where the turn ends with them. */
void chat_turns_take(struct chat_turns *turns, struct chat_choice *choice, struct error *e);

/* chat_next.c: makes the next turn once the calls are over; tool_job.done. */
void chat_next_turn(struct tool_job *job);
