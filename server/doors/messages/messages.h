/* server/doors/messages/messages.h: one request of Anthropic's Messages on its way. */
#pragma once

#include "server/api/chat/chat_turns.h"
#include "server/doors/fields/messages_fields.h"
#include "server/doors/messages/citable.h"
#include "server/doors/messages/tool_changes.h"
#include "server/doors/shared/door_fields.h"

enum messages_block { BLOCK_NONE, BLOCK_THINKING, BLOCK_TEXT };

struct messages_choice {
    struct chat_choice chat; /* first */
    /* Of a stream: the block that is open, its index, and those before it. */
    enum messages_block block;
    int n_blocks;
    size_t thought_from; /* byte of the thoughts that the open block begins with */
    bool cited;          /* the open block has citations: text that follows stands in another */
};

struct messages_answer {
    struct chat_answer chat; /* first */
    struct json *body;       /* the request, which texts of `citables` are parts of */
    struct citable_list citables;
    struct tool_changes changes;
    bool thinks;       /* thoughts are shown */
    bool counts_cache; /* the request marks what is to be kept: usage tells what was */
};

/* messages_read.c: the request as a chat's. */
bool messages_read(struct chat_answer *answer, struct api *api, const struct api_request *request,
                   struct failure *failure);
bool messages_read_counted(struct chat_answer *answer, struct api *api,
                           const struct api_request *request, struct failure *failure);
void messages_free(struct chat_answer *answer);

/* messages_turns.c: the list of messages as turns of a conversation; on false *failure is set. */
bool messages_read_turns(struct messages_answer *answer, struct api *api,
                         const struct json *messages, struct conversation *conversation,
                         struct failure *failure);

/* messages_tools.c: tools and the choice among them as members of the chat's body, once the turns
 * were read. */
bool messages_put_tools(struct messages_answer *answer, struct api *api,
                        const struct messages_request *asked, struct chat_body *body,
                        struct failure *failure);

/* messages_json.c: parts of an answer, whole or of a stream. */
void messages_write_id(struct json_writer *w, const struct writing_answer *answer);
void messages_write_call_id(struct json_writer *w, const struct chat_answer *answer,
                            const struct chat_choice *choice, int i);
/* A call that the server carries out: the members of a block mcp_tool_use, but its input; and of
 * mcp_tool_result. */
void messages_write_own_call(struct json_writer *w, const struct chat_call *call);
void messages_write_own_result(struct json_writer *w, const struct chat_call *call);
void messages_write_stop(struct json_writer *w, const struct messages_answer *answer,
                         const struct choice *choice);
void messages_write_usage(struct json_writer *w, const struct messages_answer *answer,
                          const struct choice *choice);
void messages_write_whole(struct writing_answer *answer, struct buffer *out);
/* The signature of a thought: its hash, since nothing is hidden in it. */
void messages_write_signature(struct json_writer *w, struct text_span thought);
/* The passages that brackets of the text name, as elements of "citations". */
void messages_write_citation(struct json_writer *w, const struct citable *passage);
/* Those that there are: whether brackets name any, and the next of them; NULL: no more. */
const struct citable *messages_cited(const struct messages_answer *answer, struct text_span text,
                                     size_t *at, size_t end);

/* messages_events.c: of struct writing_ops. */
void messages_write_new(const struct writing_answer *answer, struct choice *choice,
                        struct buffer *out);
void messages_write_end(const struct writing_answer *answer, const struct failure *failed,
                        struct buffer *out);
