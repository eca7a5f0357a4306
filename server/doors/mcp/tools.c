/* server/doors/mcp/tools.c: tools/list and tools/call, and the tools that change documents. An
 * answer of a tool is structuredContent, and the same JSON as a text for clients that know texts
 * only. Bad arguments are a result that names them: models read that and try again. */
#include "server/doors/mcp/tools.h"

#include <string.h>

#include "server/api/fields/document_fields.h"
#include "server/api/fields/table_fields.h"
#include "server/doors/mcp/words.h"

#define PLACE \
    "\"id\":{\"type\":\"string\",\"description\":\"the document\"}," \
    "\"path\":{\"type\":\"string\"},\"title\":{\"type\":\"string\"},\"url\":{\"type\":\"string\"}" \
    "," \
    "\"uri\":{\"type\":\"string\",\"description\":\"the resource of these bytes\"}," \
    "\"start\":{\"type\":\"integer\"},\"end\":{\"type\":\"integer\",\"description\":\"bytes of " \
    "the " \
    "document's " \
    "text\"},\"page\":{\"type\":[\"integer\",\"null\"]},\"line\":{\"type\":[\"integer\"," \
    "\"null\"]},\"heading\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}," \
    "\"confidence\":{\"type\":\"integer\",\"description\":\"of OCR, 1 to 100\"},\"text\":{" \
    "\"type\":" \
    "\"string\"}"
#define EFFECT \
    "\"id\":{\"type\":\"string\"},\"object\":{\"type\":\"string\"},\"effect\":{\"type\":" \
    "\"string\"}"

static const struct mcp_tool tools[] = {
    {.name = "search",
     .title = "Search the documents",
     .description =
         "Finds the passages of the user's documents that are nearest to a question or to key "
         "words. Each result has the document's id and path, the page and bytes of the passage, "
         "its "
         "similarity (cosine, 1 is the same) and its text. Say hybrid: true to seek by exact words "
         "too, such as names and numbers; filter to search some documents only, for example "
         "{\"prefix\": {\"path\": \"letters/\"}} or {\"eq\": {\"year\": 2024}}.",
     .access = DOCUMENTS_OFF,
     .table = &search_body_table,
     .required = "query",
     .output =
         "\"results\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{" PLACE
         ",\"similarity\":{\"type\":\"number\"},\"relevance\":{\"type\":\"number\"},\"by\":{"
         "\"type\":\"array\",\"items\":{\"type\":\"string\"}}},\"required\":[\"id\",\"path\","
         "\"title\",\"url\",\"text\"]}}",
     .always = "[\"results\"]",
     .reads = true,
     .open = mcp_tool_search},
    {.name = "read",
     .title = "Read a document",
     .description =
         "Reads a document's text: a page, or the bytes from start to end, with `context` more on "
         "either side, such as what stands around a result of search; without these from its "
         "beginning. A long text comes in parts: next_start begins the next one, null is the end.",
     .access = DOCUMENTS_READ,
     .table = &mcp_read_table,
     .required = "id",
     .output = PLACE ",\"bytes\":{\"type\":\"integer\",\"description\":\"of the whole text\"},"
                     "\"pages\":{\"type\":[\"integer\",\"null\"]},\"next_start\":{\"type\":["
                     "\"integer\",\"null\"]},\"metadata\":{\"type\":\"object\"}",
     .always = "[\"id\",\"path\",\"start\",\"end\",\"bytes\",\"text\",\"next_start\"]",
     .reads = true,
     .most_characters = 220000,
     .open = mcp_tool_read},
    {.name = "list",
     .title = "List the documents",
     .description =
         "Lists the user's documents by id, a page at a time: their paths, titles, sizes "
         "and metadata. `prefix` and `filter` say which; next_cursor begins the next "
         "page, null is the end.",
     .access = DOCUMENTS_READ,
     .table = &mcp_list_table,
     .required = "",
     .output =
         "\"documents\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}},\"next_cursor\":{"
         "\"type\":[\"string\",\"null\"]}",
     .always = "[\"documents\",\"next_cursor\"]",
     .reads = true,
     .most_characters = 220000,
     .open = mcp_tool_list},
    {.name = "fetch",
     .title = "Fetch a document",
     .description = "Gives a whole document by the id that search found; of a very long one its "
                    "beginning, which metadata tells. Use read for parts.",
     .access = DOCUMENTS_READ,
     .table = &mcp_id_table,
     .required = "id",
     .output = "\"id\":{\"type\":\"string\"},\"title\":{\"type\":\"string\"},\"text\":{\"type\":"
               "\"string\"},\"url\":{\"type\":\"string\"},\"metadata\":{\"type\":\"object\"}",
     .always = "[\"id\",\"title\",\"text\",\"url\"]",
     .reads = true,
     .most_characters = 500000,
     .open = mcp_tool_fetch},
    {.name = "table_list",
     .title = "List the tables",
     .description =
         "Lists the tables in the user's documents: spreadsheets, and tables within other files. "
         "Each has the document's id and path, its number, name, sheet, columns and rows, which "
         "table_query takes.",
     .access = DOCUMENTS_READ,
     .table = &table_list_table,
     .required = "",
     .output = "\"data\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}},\"has_more\":{"
               "\"type\":\"boolean\"}",
     .always = "[\"data\",\"has_more\"]",
     .reads = true,
     .most_characters = 220000,
     .open = mcp_tool_table_list},
    {.name = "table_query",
     .title = "Compute over a table",
     .description =
         "Computes over one table of the documents: filters rows, groups them, and counts, sums, "
         "averages or sorts. Use it for every question that needs arithmetic over a table. The "
         "answer names the cells it was made from, and those that were left out.",
     .access = DOCUMENTS_READ,
     .table = &table_question_table,
     .required = "document",
     .output = "\"document\":{\"type\":\"string\"},\"path\":{\"type\":\"string\"},\"table\":{"
               "\"type\":\"object\"},\"columns\":{\"type\":\"array\",\"items\":{\"type\":"
               "\"string\"}},\"rows\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}},"
               "\"matched\":{\"type\":\"integer\"},\"has_more\":{\"type\":\"boolean\"},"
               "\"left_out\":{\"type\":\"object\"}",
     .always = "[\"document\",\"columns\",\"rows\",\"matched\"]",
     .reads = true,
     .most_characters = 220000,
     .open = mcp_tool_table_query},
    {.name = "add",
     .title = "Add a document",
     .description = "Adds a text to the user's documents, or replaces the document of its id. Give "
                    "it a path: sources show it as its name.",
     .access = DOCUMENTS_WRITE,
     .table = &document_table,
     .required = "text",
     .output = EFFECT,
     .always = "[\"id\",\"effect\"]",
     .destroys = true,
     .open = mcp_tool_add},
    {.name = "delete",
     .title = "Delete a document",
     .description = "Deletes a document from the collection. Its file is left alone, where it came "
                    "from one.",
     .access = DOCUMENTS_WRITE,
     .table = &mcp_id_table,
     .required = "id",
     .output = EFFECT,
     .always = "[\"id\",\"effect\"]",
     .destroys = true,
     .open = mcp_tool_delete},
};

/* The tools of a client depend on its key, not on anything that it did before. */
static bool is_there(const struct mcp_call *call, const struct mcp_tool *tool) {
    return call->api->models[0].has_collection &&
           documents_right(call->api, &call->who) >= tool->access;
}

/* tools/list. */

static void write_tool(struct json_writer *w, const struct mcp_tool *tool,
                       const struct request_limits *limits) {
    put_object(w);
    put_key_string(w, "name", tool->name);
    put_key_string(w, "title", tool->title);
    put_key_string(w, "description", tool->description);
    put_key(w, "inputSchema");
    mcp_schema_write(w, tool, limits);
    put_key_object(w, "outputSchema");
    put_key_string(w, "type", "object");
    put_key_object(w, "properties");
    struct buffer properties = {0};
    buffer_printf(&properties, "{%s}", tool->output);
    mcp_put_members(w, (struct text_span){properties.data, properties.size});
    buffer_free(&properties);
    put_object_end(w);
    put_key(w, "required");
    put_raw(w, (struct text_span){tool->always, strlen(tool->always)});
    put_object_end(w);
    put_key_object(w, "annotations");
    put_key_string(w, "title", tool->title);
    put_key_bool(w, "readOnlyHint", tool->reads);
    put_key_bool(w, "destructiveHint", tool->destroys);
    put_key_bool(w, "idempotentHint", true);
    put_key_bool(w, "openWorldHint", false);
    put_object_end(w);
    if (tool->most_characters > 0) {
        put_key_object(w, "_meta");
        put_key_int(w, "anthropic/maxResultSizeChars", tool->most_characters);
        put_object_end(w);
    }
    put_object_end(w);
}

struct answer *mcp_tools_list(struct mcp_call *call, struct mcp_fault *fault) {
    struct buffer last = {0};
    if (!mcp_read_cursor(call, "tools", &last, fault)) return NULL;
    buffer_free(&last); /* there is one page, and no cursor of it */
    put_key_array(&call->w, "tools");
    for (size_t i = 0; i < ARRAY_COUNT(tools); i++)
        if (is_there(call, &tools[i]))
            write_tool(&call->w, &tools[i], &call->api->models[0].limits);
    put_array_end(&call->w);
    return NULL;
}

/* tools/call. */

static void put_text(struct json_writer *w, struct text_span text) {
    put_key_array(w, "content");
    put_object(w);
    put_key_string(w, "type", "text");
    put_key_string_n(w, "text", text.text, text.size);
    put_object_end(w);
    put_array_end(w);
}

static void wrap_tool(struct mcp_call *call, struct text_span body) {
    put_text(&call->w, body);
    put_key(&call->w, "structuredContent");
    put_raw(&call->w, body);
    put_key_bool(&call->w, "isError", false);
}

/* Without structuredContent, which would have to fit the tool's schema. */
static bool excuse_tool(struct mcp_call *call, const char *message) {
    put_text(&call->w, (struct text_span){message, strlen(message)});
    put_key_bool(&call->w, "isError", true);
    return true;
}

static const struct mcp_tool *find_tool(struct mcp_call *call, struct mcp_fault *fault) {
    const char *name = mcp_read_text(call->message.params, "name", fault);
    if (name == NULL) return NULL;
    for (size_t i = 0; i < ARRAY_COUNT(tools); i++)
        if (strcmp(tools[i].name, name) == 0 && is_there(call, &tools[i])) return &tools[i];
    call->tool = mcp_unknown;
    mcp_fault_set(fault, MCP_BAD_PARAMS, "there is no tool %.100s, see tools/list", name);
    return NULL;
}

struct answer *mcp_tools_call(struct mcp_call *call, struct mcp_fault *fault) {
    const struct mcp_tool *tool = find_tool(call, fault);
    if (tool == NULL) return NULL;
    call->tool = tool->name;
    const struct json *arguments = json_member(call->message.params, "arguments");
    struct failure failure = {0};
    struct json *none = NULL;
    struct error e;
    struct answer *answer = NULL;
    if (json_is_absent(arguments)) {
        CHECK(json_parse(&none, (struct text_span){"{}", 2}, "", &e) == STATUS_OK);
        arguments = none;
    }
    call->wrap = wrap_tool;
    call->excuse = excuse_tool;
    if (json_kind(arguments) == JSON_KIND_OBJECT)
        answer = tool->open(call, arguments, &failure);
    else
        failure_set(&failure, 400, "invalid_type", "arguments", "arguments must be an object");
    json_close(none);
    if (answer) return answer;
    call->outcome = mcp_tool_failed;
    excuse_tool(call, failure.message);
    failure_free(&failure);
    return NULL;
}

/* Tools that change documents: the requests of /v1/documents. */

struct answer *mcp_tool_add(struct mcp_call *call, const struct json *arguments,
                            struct failure *failure) {
    struct buffer body = {0};
    struct json_writer w;
    const char *unknown = json_member(arguments, "documents") ? "documents"
                          : json_member(arguments, "wait")    ? "wait"
                                                              : NULL;
    if (unknown) {
        failure_set(failure, 400, "unknown_parameter", unknown,
                    "unknown parameter %s: add takes one document, by text, id, path, title and "
                    "metadata",
                    unknown);
        return NULL;
    }
    put_begin(&w, &body);
    put_json(&w, arguments);
    struct api_request request = {.method = "POST",
                                  .path = "/v1/documents",
                                  .content_type = JSON_TYPE,
                                  .body = body.data,
                                  .size = body.size,
                                  .principal = call->who};
    struct answer *answer = documents_post(call->api, &request, call->waker, failure);
    call->told = documents_told;
    buffer_free(&body);
    return answer;
}

struct answer *mcp_tool_delete(struct mcp_call *call, const struct json *arguments,
                               struct failure *failure) {
    const struct request_limits *limits = &call->api->models[0].limits;
    struct id_arguments asked = {0};
    struct buffer path = {0};
    struct answer *answer = NULL;
    if (fields_parse(&mcp_id_table, &asked, arguments, limits, failure)) {
        buffer_printf(&path, "/v1/documents/%s", asked.id);
        struct api_request request = {
            .method = "DELETE", .path = path.data, .principal = call->who};
        answer = document_delete(call->api, &request, call->waker, failure);
    }
    buffer_free(&path);
    json_table_free(&mcp_id_table, &asked);
    return answer;
}
