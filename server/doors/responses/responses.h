/* server/doors/responses/responses.h: one request of OpenAI's Responses on its way. */
#pragma once

#include "config/base/lookup.h"
#include "server/api/chat/chat_turns.h"
#include "server/doors/fields/responses_fields.h"
#include "server/doors/fields/stores_fields.h"
#include "server/doors/shared/door_fields.h"
#include "server/doors/stores/stores.h"

/* An item of the output. */
enum responses_kind {
    ITEM_SEARCH,
    ITEM_REASONING,
    ITEM_MESSAGE,
    ITEM_CALL,
    ITEM_MCP_CALL /* of a tool of a server's (option tools.mcp) */
};
struct responses_item {
    enum responses_kind kind;
    size_t start, end; /* bytes of the thoughts, or of the text */
    int call;          /* its number, among the client's or among those of servers */
};

struct responses_choice {
    struct chat_choice chat;      /* first */
    struct responses_item *items; /* [n] so far, the last of them may be open */
    int n, capacity;
    bool open;
    int n_events; /* of a stream, that were written */
};

/* responses_names.c: functions in namespaces, by the one word that a model calls them by. */
struct responses_name {
    char *told;
    struct text_span space, name; /* of the request */
};
struct responses_names {
    struct responses_name *list; /* [n] */
    int n, capacity;
    struct lookup_table by_told; /* numbers in the list, by the hash of `told` */
};
/* Appends the word. */
void responses_name_join(struct buffer *out, struct text_span space, struct text_span name);
/* The word, which the names own. */
const char *responses_name_add(struct responses_names *names, struct text_span space,
                               struct text_span name);
/* NULL: the word is a function's that is in no namespace. */
const struct responses_name *responses_name_find(const struct responses_names *names,
                                                 const char *told);
void responses_names_free(struct responses_names *names);

enum { RESPONSE_ID_BYTES = 48 };

struct responses_answer {
    struct chat_answer chat; /* first */
    struct api *api;
    struct json *body; /* the request */
    bool searches;     /* vector stores, for a tool file_search: */
    struct file_search_tool search;
    struct store_set stores;
    struct responses_request asked; /* its values */
    struct responses_names names;   /* of its tools in namespaces */
    struct buffer history;          /* items before the input, as a list of JSON */
    char id[RESPONSE_ID_BYTES];
};

/* responses_read.c: the request as a chat's. */
bool responses_read(struct chat_answer *answer, struct api *api, const struct api_request *request,
                    struct failure *failure);
bool responses_read_counted(struct chat_answer *answer, struct api *api,
                            const struct api_request *request, struct failure *failure);
void responses_free(struct chat_answer *answer);

/* responses_tools.c: tools and the choice among them as members of the chat's body. */
bool responses_put_tools(struct responses_answer *answer, struct chat_body *body,
                         struct failure *failure);

/* responses_search.c: file_search, which is a retrieval before the answer is written. */
bool responses_read_search(struct responses_answer *answer, const struct json *tool,
                           struct failure *failure);
/* The member "retrieval" of the chat's body. */
bool responses_put_search(const struct responses_answer *answer, struct chat_body *body,
                          struct failure *failure);
struct responses_told;
/* The members of the call: its queries and, where it is done and they are asked for, results. */
void responses_put_call(struct json_writer *w, const struct responses_told *told, bool begins);
/* Takes the citations of item i, one by one, in the order of the text; false: there are no more. */
struct responses_citation {
    size_t at;          /* byte of the text up to which it was read */
    int64_t characters; /* up to the same place */
    size_t end;         /* of the brackets that are open, or 0 */
    int64_t index;      /* in characters: where these begin */
    const struct hit *hit;
};
bool responses_next_citation(const struct responses_told *told, int i,
                             struct responses_citation *citation);
void responses_put_citation(struct json_writer *w, const struct responses_told *told,
                            const struct responses_citation *citation);
bool responses_includes(const struct responses_answer *answer, const char *what);

/* responses_items.c: items of an input or of a history as turns of a conversation. */
bool responses_read_items(struct api *api, const struct json *items,
                          struct conversation *conversation, struct failure *failure);

/* responses_json.c: the response, and its items. */
enum responses_stage { RESPONSE_BEGINS, RESPONSE_ENDS, RESPONSE_FAILS };
struct responses_told {
    const struct responses_answer *answer;
    const struct responses_choice *choice;
    enum responses_stage stage;
    const struct failure *failed; /* of RESPONSE_FAILS */
};
void responses_write(struct json_writer *w, const struct responses_told *told);
/* "name" of a call of the client's and, where it has one, "namespace". */
void responses_put_name(struct json_writer *w, const struct responses_told *told, int call);
/* Item i, whole or as it begins. */
void responses_write_item(struct json_writer *w, const struct responses_told *told, int i,
                          bool begins);
void responses_item_id(const struct responses_answer *answer, const struct responses_choice *choice,
                       int i, char id[RESPONSE_ID_BYTES]);
struct text_span responses_item_text(const struct responses_choice *choice, int i);
/* The part of a message or of thoughts, as it begins or whole. */
void responses_write_part(struct json_writer *w, const struct responses_told *told, int i,
                          bool begins);
/* The type of the last event: "response.completed". */
const char *responses_end_type(const struct responses_told *told);

/* responses_events.c: of struct writing_ops. */
void responses_write_new(const struct writing_answer *answer, struct choice *choice,
                         struct buffer *out);
void responses_write_end(const struct writing_answer *answer, const struct failure *failed,
                         struct buffer *out);
void responses_write_whole(struct writing_answer *answer, struct buffer *out);

/* responses_kept.c: responses that were stored. */
/* Keeps a finished response for its key, where it is to be stored. */
void responses_keep(const struct responses_answer *answer, const struct responses_choice *choice);
/* Reads the one of this id into the answer's history. False, with *failure set: there is none. */
bool responses_go_on(struct responses_answer *answer, const struct principal *who,
                     const struct json *id, struct failure *failure);
