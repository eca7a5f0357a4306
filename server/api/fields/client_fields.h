/* server/api/fields/client_fields.h: fields that clients of others send with completions and chats
 * and that change no answer here: they are checked for their form, and taken. A form that would
 * change the answer is refused by the field's name. A row of a request's table takes them in,
 *     {.type = JSON_ROWS, .table = &client_table} */
#pragma once

#include "server/api/fields/fields.h"

extern const struct json_table client_table;
