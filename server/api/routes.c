/* server/api/routes.c: see routes.h. */
#include "server/api/routes.h"

#include <string.h>

#include "server/api/fields/chat_fields.h"
#include "server/api/fields/document_fields.h"
#include "server/api/fields/embedding_fields.h"
#include "server/api/fields/token_fields.h"

/* Types that a JSON body may be announced as. curl -d says that it is a form, and means JSON. */
static const char *const json_types[] = {
    JSON_TYPE,    "application/x-www-form-urlencoded", "text/json",
    "text/plain", "application/octet-stream",          NULL};

/* Documents also come as files. */
static const char *const document_types[] = {
    JSON_TYPE,   "multipart/form-data", "application/x-www-form-urlencoded",
    "text/json", "text/plain",          "application/octet-stream",
    NULL};

#define TEXT_TYPE "text/plain; version=0.0.4"
#define ROUTE(verb, name, handler, ...) \
    { .method = (verb), .path = (name), .open = handler, __VA_ARGS__ }
#define PAGE_FILE(name, type, words) \
    ROUTE("GET", name, page_open, .access = ACCESS_PAGE, .answer_type = (type), .summary = (words))

const struct route api_routes[] = {
    ROUTE("POST", "/v1/completions", completions_open, .types = json_types,
          .body = &completion_table, .required = "id object created model choices usage retrieval",
          .summary = "Write on from a text"),
    ROUTE("POST", "/v1/chat/completions", chat_open_answer, .types = json_types,
          .body = &chat_table, .required = "id object created model choices usage",
          .summary = "Answer a conversation"),
    ROUTE("POST", "/v1/embeddings", embeddings_open, .types = json_types, .body = &embedding_table,
          .required = "object data model usage", .summary = "Texts to vectors"),
    ROUTE("POST", "/v1/rerank", rerank_open, .types = json_types, .body = &rerank_table,
          .required = "model results usage",
          .summary = "Rank documents by the cosine of their vectors with the query's"),
    ROUTE("GET", "/v1/retrieval/search", search_open, .types = json_types, .max_body = 64 << 10,
          .query = &search_query_table, .required = "object data",
          .summary = "The chunks of the collection nearest to a text"),
    ROUTE("POST", "/v1/retrieval/search", search_open, .types = json_types, .max_body = 64 << 10,
          .body = &search_body_table, .required = "object data",
          .summary = "The chunks of the collection nearest to a text"),
    ROUTE("POST", "/v1/retrieval/search/picture", search_picture_open, .types = json_types,
          .body = &search_picture_table, .required = "object data",
          .summary = "The chunks of the collection nearest to a picture"),
    ROUTE("GET", "/v1/pictures/", document_picture, .answer_type = "image/*",
          .summary = "The picture that a document of the collection is, by the document's id"),
    ROUTE("GET", "/v1/documents", documents_list, .query = &document_list_table,
          .required = "object documents chunks generation changes data has_more",
          .summary = "The documents of the collection"),
    ROUTE("POST", "/v1/documents", documents_post, .types = document_types, .body = &document_table,
          .required = "object", .summary = "Add a document, or replace the one of its id"),
    ROUTE("GET", "/v1/documents/", document_show,
          .required = "id object path title metadata chunks bytes text",
          .summary = "A document with its text"),
    ROUTE("PUT", "/v1/documents/", document_put_open, .types = json_types, .body = &document_table,
          .required = "id object effect", .summary = "Add or replace a document"),
    ROUTE("DELETE", "/v1/documents/", document_delete, .required = "id object effect",
          .summary = "Delete a document"),
    ROUTE("GET", "/v1/models", models_list, .required = "object data",
          .summary = "The models that requests may name"),
    ROUTE("GET", "/v1/models/", model_show, .required = "id object created owned_by max_model_len",
          .summary = "One of them"),
    ROUTE("POST", "/tokenize", tokenize_open, .types = json_types, .body = &tokenize_table,
          .required = "count max_model_len tokens", .summary = "A text to token ids"),
    ROUTE("POST", "/detokenize", detokenize_open, .types = json_types, .body = &detokenize_table,
          .required = "prompt content", .summary = "Token ids to text"),
    ROUTE("GET", "/tokenizer_info", tokenizer_info, .required = "eos_token bos_token",
          .summary = "Special tokens and sizes of a model's tokenizer"),
    ROUTE("GET", "/props", props_open, .required = "default_generation_settings total_slots",
          .summary = "What a request gets that says nothing"),
    ROUTE("POST", "/mcp", mcp_post, .types = json_types, .checks_pages = true, .foreign = true,
          .required = "jsonrpc", .summary = "A message of the Model Context Protocol"),
    ROUTE("GET", "/mcp", mcp_get, .checks_pages = true, .answer_type = "text/event-stream",
          .summary = "Changes, as events, in a session of versions before 2026-07-28"),
    ROUTE("DELETE", "/mcp", mcp_delete, .checks_pages = true,
          .summary = "The end of such a session"),
    ROUTE("GET", "/health", health_open, .access = ACCESS_OPERATIONS, .required = "status",
          .summary = "Whether requests are taken, and what is done"),
    ROUTE("GET", "/livez", live_open, .access = ACCESS_PUBLIC, .required = "status",
          .summary = "Whether the process works"),
    ROUTE("GET", "/readyz", ready_open, .access = ACCESS_PUBLIC, .required = "status",
          .summary = "Whether requests are taken"),
    ROUTE("GET", "/metrics", metrics_open, .access = ACCESS_OPERATIONS, .answer_type = TEXT_TYPE,
          .summary = "Counters and histograms for Prometheus"),
    ROUTE("GET", "/version", version_open, .access = ACCESS_OPERATIONS, .required = "version",
          .summary = "The program's version"),
    ROUTE("GET", "/openapi.json", openapi_open, .access = ACCESS_OPERATIONS,
          .required = "openapi info paths", .summary = "This description"),
    PAGE_FILE("/", "text/html", "A page to ask by hand"),
    PAGE_FILE("/page/page.css", "text/css", "How the page looks"),
    PAGE_FILE("/page/page.js", "text/javascript", "What the page does"),
    PAGE_FILE("/page/server.js", "text/javascript", "How the page asks the server"),
    PAGE_FILE("/page/answer.js", "text/javascript", "How the page shows an answer"),
    PAGE_FILE("/page/sources.js", "text/javascript", "How the page shows sources"),
    PAGE_FILE("/page/pictures.js", "text/javascript", "How the page takes and shows pictures"),
    PAGE_FILE("/page/settings.js", "text/javascript", "The page's settings"),
    PAGE_FILE("/page/store.js", "text/javascript", "Where the page keeps conversations"),
    PAGE_FILE("/page/conversation.js", "text/javascript", "The turns of a conversation"),
    PAGE_FILE("/page/entry.js", "text/javascript", "How the page shows a turn"),
    PAGE_FILE("/page/writing.js", "text/javascript", "How the page follows an answer"),
    PAGE_FILE("/page/shelf.js", "text/javascript", "The page's list of conversations"),
    PAGE_FILE("/page/export.js", "text/javascript", "Conversations as files"),
    PAGE_FILE("/page/welcome.js", "text/javascript", "What the page shows before a question"),
    PAGE_FILE("/page/documents.js", "text/javascript", "The page's documents"),
    PAGE_FILE("/page/uploads.js", "text/javascript", "How the page sends files"),
    PAGE_FILE("/page/icon.svg", "image/svg+xml", "The page's icon"),
};
const int n_api_routes = (int)ARRAY_COUNT(api_routes);

bool route_has_children(const struct route *route) {
    size_t size = strlen(route->path);
    return size > 1 && route->path[size - 1] == '/';
}

bool route_matches(const struct route *route, const char *path) {
    size_t size = strlen(route->path);
    if (!route_has_children(route)) return strcmp(route->path, path) == 0;
    return strncmp(route->path, path, size) == 0 && path[size] != '\0';
}

enum route_access route_access_of(const char *path) {
    for (int i = 0; i < n_api_routes; i++)
        if (route_matches(&api_routes[i], path)) return api_routes[i].access;
    return ACCESS_API;
}

bool route_checks_pages(const char *path) {
    for (int i = 0; i < n_api_routes; i++)
        if (route_matches(&api_routes[i], path)) return api_routes[i].checks_pages;
    return false;
}

bool route_is_served(const struct api *api, const struct route *route) {
    return route->access != ACCESS_PAGE || api->page;
}
