/* server/doors/shared/door_fields.h: requests of doors by their tables (door_rows.h), and the body
 * of a chat that they become. */
#pragma once

#include "server/api/api.h"
#include "server/api/fields/chat_fields.h"
#include "server/doors/fields/door_rows.h"
#include "server/doors/shared/conversation.h"

/* A request of a door by its table; what is passed over is counted. The caller closes *body, and
 * the values of `out` belong to it, in any case. */
bool door_read(struct api *api, const struct api_request *request, const struct door_table *table,
               struct json **body, void *out, struct failure *failure);
/* The same of a body that is there already. */
bool door_read_json(struct api *api, const struct door_table *table, const struct json *body,
                    void *out, struct failure *failure);

/* One body of a chat, as it is written. */
struct chat_body {
    struct buffer text;
    struct json_writer w;
};
void chat_body_begin(struct chat_body *body);
/* The member, where there is a value. */
void chat_body_put(struct chat_body *body, const char *name, const struct json *value);
/* Whether the model of that name is there and reads no pictures. */
bool door_model_is_blind(const struct api *api, const struct json *name);
/* The wish for retrieval; a turn of an agent without one gets no passages. */
void chat_body_put_retrieval(struct chat_body *body, const struct json *asked);
/* The choice of one function as the tool to be called; `name` is a text. */
void chat_body_put_function(struct chat_body *body, struct text_span name);
/* Ends the body with these messages, and reads it as a chat's request; frees it. */
bool chat_body_parse(struct chat_body *body, struct conversation *conversation, struct api *api,
                     struct chat_request *out, struct failure *failure);
