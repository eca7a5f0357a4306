/* server/api/routes.c: see routes.h. */
#include "server/api/routes.h"

#include <string.h>

#include "server/api/fields/chat_fields.h"
#include "server/api/fields/document_fields.h"
#include "server/api/fields/embedding_fields.h"
#include "server/api/fields/token_fields.h"

/* Types that a JSON body may be announced as. curl -d says that it is a form, and means JSON. */
static const char *const json_types[] = {JSON_TYPE,    "application/x-www-form-urlencoded", "text/json",
                                         "text/plain", "application/octet-stream",          NULL};

/* Documents also come as files. */
static const char *const document_types[] = {JSON_TYPE,   "multipart/form-data", "application/x-www-form-urlencoded",
                                             "text/json", "text/plain",          "application/octet-stream",
                                             NULL};

#define TEXT_TYPE "text/plain; version=0.0.4"
#define PAGE_FILE(path, type, summary) \
    { "GET", path, page_open, ACCESS_PAGE, NULL, 0, NULL, NULL, type, NULL, summary }

const struct route api_routes[] = {
    {"POST", "/v1/completions", completions_open, ACCESS_API, json_types, 0, &completion_table, NULL, JSON_TYPE,
     "id object created model choices usage retrieval", "Write on from a text"},
    {"POST", "/v1/chat/completions", chat_open_answer, ACCESS_API, json_types, 0, &chat_table, NULL, JSON_TYPE,
     "id object created model choices usage", "Answer a conversation"},
    {"POST", "/v1/embeddings", embeddings_open, ACCESS_API, json_types, 0, &embedding_table, NULL, JSON_TYPE,
     "object data model usage", "Texts to vectors"},
    {"POST", "/v1/rerank", rerank_open, ACCESS_API, json_types, 0, &rerank_table, NULL, JSON_TYPE,
     "model results usage", "Rank documents by the cosine of their vectors with the query's"},
    {"GET", "/v1/retrieval/search", search_open, ACCESS_API, json_types, 64 << 10, NULL, &search_query_table, JSON_TYPE,
     "object data", "The chunks of the collection nearest to a text"},
    {"POST", "/v1/retrieval/search", search_open, ACCESS_API, json_types, 64 << 10, &search_body_table, NULL, JSON_TYPE,
     "object data", "The chunks of the collection nearest to a text"},
    {"POST", "/v1/retrieval/search/picture", search_picture_open, ACCESS_API, json_types, 0, &search_picture_table,
     NULL, JSON_TYPE, "object data", "The chunks of the collection nearest to a picture"},
    {"GET", "/v1/pictures/", document_picture, ACCESS_API, NULL, 0, NULL, NULL, "image/*", NULL,
     "The picture that a document of the collection is, by the document's id"},
    {"GET", "/v1/documents", documents_list, ACCESS_API, NULL, 0, NULL, &document_list_table, JSON_TYPE,
     "object documents chunks generation changes data has_more", "The documents of the collection"},
    {"POST", "/v1/documents", documents_post, ACCESS_API, document_types, 0, &document_table, NULL, JSON_TYPE, "object",
     "Add a document, or replace the one of its id"},
    {"GET", "/v1/documents/", document_show, ACCESS_API, NULL, 0, NULL, NULL, JSON_TYPE,
     "id object path title metadata chunks bytes text", "A document with its text"},
    {"PUT", "/v1/documents/", document_put_open, ACCESS_API, json_types, 0, &document_table, NULL, JSON_TYPE,
     "id object effect", "Add or replace a document"},
    {"DELETE", "/v1/documents/", document_delete, ACCESS_API, NULL, 0, NULL, NULL, JSON_TYPE, "id object effect",
     "Delete a document"},
    {"GET", "/v1/models", models_list, ACCESS_API, NULL, 0, NULL, NULL, JSON_TYPE, "object data",
     "The models that requests may name"},
    {"GET", "/v1/models/", model_show, ACCESS_API, NULL, 0, NULL, NULL, JSON_TYPE,
     "id object created owned_by max_model_len", "One of them"},
    {"POST", "/tokenize", tokenize_open, ACCESS_API, json_types, 0, &tokenize_table, NULL, JSON_TYPE,
     "count max_model_len tokens", "A text to token ids"},
    {"POST", "/detokenize", detokenize_open, ACCESS_API, json_types, 0, &detokenize_table, NULL, JSON_TYPE,
     "prompt content", "Token ids to text"},
    {"GET", "/tokenizer_info", tokenizer_info, ACCESS_API, NULL, 0, NULL, NULL, JSON_TYPE, "eos_token bos_token",
     "Special tokens and sizes of a model's tokenizer"},
    {"GET", "/props", props_open, ACCESS_API, NULL, 0, NULL, NULL, JSON_TYPE, "default_generation_settings total_slots",
     "What a request gets that says nothing"},
    {"GET", "/health", health_open, ACCESS_OPERATIONS, NULL, 0, NULL, NULL, JSON_TYPE, "status",
     "Whether requests are taken, and what is done"},
    {"GET", "/livez", live_open, ACCESS_PUBLIC, NULL, 0, NULL, NULL, JSON_TYPE, "status", "Whether the process works"},
    {"GET", "/readyz", ready_open, ACCESS_PUBLIC, NULL, 0, NULL, NULL, JSON_TYPE, "status",
     "Whether requests are taken"},
    {"GET", "/metrics", metrics_open, ACCESS_OPERATIONS, NULL, 0, NULL, NULL, TEXT_TYPE, NULL,
     "Counters and histograms for Prometheus"},
    {"GET", "/version", version_open, ACCESS_OPERATIONS, NULL, 0, NULL, NULL, JSON_TYPE, "version",
     "The program's version"},
    {"GET", "/openapi.json", openapi_open, ACCESS_OPERATIONS, NULL, 0, NULL, NULL, JSON_TYPE, "openapi info paths",
     "This description"},
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

bool route_is_served(const struct api *a, const struct route *route) { return route->access != ACCESS_PAGE || a->page; }
