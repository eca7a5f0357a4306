/* server/api/fields/chat_fields.h: the body of a chat, checked. The conversation itself stays JSON:
 * the model's template reads it. */
#pragma once

#include "server/api/fields/writing_fields.h"

struct chat_request {
    char *model; /* NULL: not named */
    struct json *body;
    int64_t max_tokens; /* 0: as many as the context takes */
    int64_t max_completion_tokens;
    bool logprobs;
    int64_t top_logprobs;
    bool forces_call; /* tool_choice is "required" or names a tool */
    bool calls_tools; /* tools are told to the model: there are some, and tool_choice is not "none"
                       */
    bool continues;   /* the last message */
    bool clamps;      /* max_tokens is no more than a bound: the context may leave less */
    bool lenient;     /* functions that cannot be held to strict parameters are not */
    bool raw;         /* the last message's text is the prompt, without a template */
    bool watched;     /* the door follows the answer token by token, stream or not */
    bool truncates;   /* the oldest turns go where the context is too short */
    int dropped;      /* messages that went so, behind those of the system */
    bool one_call;    /* the answer ends with its first call of a tool */
    bool unthinking;  /* the answer has no thoughts */
    /* Servers of option tools.mcp whose tools the model may call, true or a list; NULL: nothing is
     * said of them. */
    const struct json *mcp;
    /* Owned, in the place of the body's where they are there: the conversation with what turns of
     * the answer added to it, and the tools with those of servers. */
    struct json *messages, *tools;
    struct request_writing writing;
};
extern const struct json_table chat_table;

/* On false *failure is set; *request can be freed either way. */
bool chat_request_parse(struct chat_request *request, const char *body, size_t size,
                        const struct request_models *models, struct failure *failure);
static inline const struct json *chat_request_messages(const struct chat_request *request) {
    return request->messages ? request->messages : json_member(request->body, "messages");
}
static inline const struct json *chat_request_tools(const struct chat_request *request) {
    return request->tools ? request->tools : json_member(request->body, "tools");
}
/* Settles what follows from the tools that there are. */
bool chat_request_settle_tools(struct chat_request *request, struct failure *failure);
void chat_request_free(struct chat_request *request);
