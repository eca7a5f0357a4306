/* server/doors/mcp/table_tools.c: the tools table_list and table_query, over the requests of
 * /v1/tables: a client sees the tables of the documents that its key sees. */
#include <stdio.h>

#include "server/api/fields/table_fields.h"
#include "server/doors/mcp/tools.h"

struct answer *mcp_tool_table_query(struct mcp_call *call, const struct json *arguments,
                                    struct failure *failure) {
    struct buffer body = {0};
    struct json_writer w;
    put_begin(&w, &body);
    put_json(&w, arguments);
    struct api_request request = {.method = "POST",
                                  .path = "/v1/tables/query",
                                  .content_type = JSON_TYPE,
                                  .body = body.data,
                                  .size = body.size,
                                  .principal = call->who};
    struct answer *answer = tables_query(call->api, &request, call->waker, failure);
    buffer_free(&body);
    return answer;
}

struct answer *mcp_tool_table_list(struct mcp_call *call, const struct json *arguments,
                                   struct failure *failure) {
    const struct request_limits *limits = &call->api->models[0].limits;
    struct table_list_request asked = {0};
    struct answer *answer = NULL;
    char limit[24];
    if (fields_parse(&table_list_table, &asked, arguments, limits, failure)) {
        struct query_argument query[3] = {{"limit", limit}};
        struct api_request request = {.method = "GET",
                                      .path = "/v1/tables",
                                      .arguments = query,
                                      .n_arguments = 1,
                                      .principal = call->who};
        snprintf(limit, sizeof limit, "%lld", (long long)asked.limit);
        if (asked.document)
            query[request.n_arguments++] = (struct query_argument){"document", asked.document};
        if (asked.after)
            query[request.n_arguments++] = (struct query_argument){"after", asked.after};
        answer = tables_list(call->api, &request, call->waker, failure);
    }
    table_list_free(&asked);
    return answer;
}
