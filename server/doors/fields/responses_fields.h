/* server/doors/fields/responses_fields.h: the bodies of POST /v1/responses and of
 * POST /v1/responses/input_tokens, and the query of a list of input items. */
#pragma once

#include "server/doors/fields/door_rows.h"

struct responses_request {
    const struct json *model, *input, *instructions, *previous;
    const struct json *tools, *tool_choice, *parallel_tool_calls, *text, *reasoning, *include;
    const struct json *truncation, *metadata, *store, *stream, *top_logprobs;
    const struct json *max_output_tokens, *temperature, *top_p;
    const struct json *retrieval, *template_variables;
};
extern const struct json_table responses_table, input_tokens_table;

struct items_query {
    int64_t limit;
    int ascends; /* enum list_order */
    char *after; /* owned; NULL: from the first */
};
enum list_order { ORDER_DESCENDS, ORDER_ASCENDS };
extern const struct json_table items_query_table;
