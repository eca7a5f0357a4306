/* server/doors/shared/door_fields.h: what the tables of all doors have in common. Clients of these
 * protocols send new fields every month: a field without a row changes nothing, is passed over and
 * counted in /metrics. What would change the answer's meaning has a row that refuses it. */
#pragma once

#include "server/api/api.h"
#include "server/api/fields/chat_fields.h"
#include "server/doors/shared/conversation.h"

/* Rows of tables: a value as it came, which a door's reader checks; one that is passed over; one
 * that is refused unless it is empty. */
#define DOOR_VALUE(field, member, shape, words) \
    { field, JSON_RAW, member, .schema = (shape), .help = (words) }
#define DOOR_PASSED(field) \
    { .name = (field), .type = JSON_IGNORED }
#define DOOR_REFUSED(field, words) \
    { .name = (field), .type = JSON_EMPTY, .help = (words) }
#define DOOR_ANY "{}"
#define DOOR_TEXT "{\"type\":\"string\"}"
#define DOOR_BOOL "{\"type\":\"boolean\"}"
#define DOOR_NUMBER "{\"type\":\"number\"}"
#define DOOR_WHOLE "{\"type\":\"integer\"}"
#define DOOR_LIST "{\"type\":\"array\"}"
#define DOOR_OBJECT "{\"type\":\"object\"}"

/* A request of a door by its table, with what it passes over counted for `door`. The caller closes
 * *body, which the values of `out` belong to, in any case. */
bool door_read(struct api *api, const char *door, const struct api_request *request,
               const struct json_table *table, struct json **body, void *out,
               struct failure *failure);
/* The same of a body that is there already. */
bool door_read_json(struct api *api, const char *door, const struct json_table *table,
                    const struct json *body, void *out, struct failure *failure);

/* One body of a chat, as it is written. */
struct chat_body {
    struct buffer text;
    struct json_writer w;
};
void chat_body_begin(struct chat_body *body);
/* The member, where there is a value. */
void chat_body_put(struct chat_body *body, const char *name, const struct json *value);
/* Ends the body with these messages, and reads it as a chat's request; frees it. */
bool chat_body_parse(struct chat_body *body, struct conversation *conversation, struct api *api,
                     struct chat_request *out, struct failure *failure);
