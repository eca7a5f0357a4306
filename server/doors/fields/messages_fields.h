/* server/doors/fields/messages_fields.h: the bodies of POST /v1/messages and of
 * POST /v1/messages/count_tokens. */
#pragma once

#include "server/doors/fields/door_rows.h"

/* The request's fields, as they came. */
struct messages_request {
    const struct json *model, *messages, *system;
    int64_t max_tokens; /* 0: not given */
    const struct json *temperature, *top_p, *top_k, *stop_sequences, *stream;
    const struct json *tools, *tool_choice, *thinking, *output_config, *output_format;
    const struct json *retrieval, *template_variables;
};
extern const struct json_table messages_table, count_tokens_table;
