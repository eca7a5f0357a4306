/* server/api/routes.c: see routes.h. */
#include "server/api/routes.h"

#include <stdio.h>
#include <string.h>

#include "server/api/fields/chat_fields.h"
#include "server/api/fields/document_fields.h"
#include "server/api/fields/embedding_fields.h"
#include "server/api/fields/table_fields.h"
#include "server/api/fields/token_fields.h"
#include "server/doors/fields/messages_fields.h"
#include "server/doors/fields/ollama_fields.h"
#include "server/doors/fields/responses_fields.h"
#include "server/doors/fields/stores_fields.h"

/* Types that a JSON body may be announced as. curl -d says that it is a form, and means JSON. */
static const char *const json_types[] = {
    JSON_TYPE,    "application/x-www-form-urlencoded", "text/json",
    "text/plain", "application/octet-stream",          NULL};

/* Documents also come as files. */
static const char *const document_types[] = {
    JSON_TYPE,   "multipart/form-data", "application/x-www-form-urlencoded",
    "text/json", "text/plain",          "application/octet-stream",
    NULL};

static const char *const form_types[] = {"multipart/form-data", NULL};

#define TEXT_TYPE "text/plain; version=0.0.4"
#define EVENTS_TYPE "text/event-stream"
#define ROUTE(verb, name, handler, ...) \
    { .method = (verb), .path = (name), .open = handler, __VA_ARGS__ }
#define NOT_HERE(verb, name) \
    ROUTE(verb, name, ollama_refuse, .types = json_types, \
          .summary = "Refused: it does not apply here")
#define LINES_TYPE "application/x-ndjson"
#define PAGE_FILE(name, type, words) \
    ROUTE("GET", name, page_open, .access = ACCESS_PAGE, .answer_type = (type), .summary = (words))

const struct route api_routes[] = {
    ROUTE("POST", "/v1/completions", completions_open, .types = json_types,
          .body = &completion_table, .stream_type = EVENTS_TYPE,
          .required = "id object created model choices usage retrieval",
          .summary = "Write on from a text"),
    ROUTE("POST", "/v1/chat/completions", chat_open_answer, .types = json_types,
          .body = &chat_table, .stream_type = EVENTS_TYPE,
          .required = "id object created model choices usage", .summary = "Answer a conversation"),
    ROUTE("POST", "/v1/messages", messages_open, .types = json_types, .body = &messages_table,
          .stream_type = EVENTS_TYPE,
          .required = "id type role model content stop_reason stop_sequence usage",
          .summary = "Answer a conversation, in Anthropic's shapes"),
    ROUTE("POST", "/v1/messages/count_tokens", count_tokens_open, .types = json_types,
          .body = &count_tokens_table, .required = "input_tokens",
          .summary = "The tokens of such a conversation"),
    ROUTE("POST", "/v1/responses", responses_open, .types = json_types, .body = &responses_table,
          .stream_type = EVENTS_TYPE,
          .required = "id object created_at status error incomplete_details model output tools "
                      "tool_choice parallel_tool_calls usage",
          .summary = "Answer a conversation, in the shapes of OpenAI's Responses"),
    ROUTE("POST", "/v1/responses/input_tokens", input_tokens_open, .types = json_types,
          .body = &input_tokens_table, .required = "object input_tokens",
          .summary = "The tokens of such a conversation"),
    ROUTE("GET", "/v1/responses/{id}", response_show, .required = "id object output",
          .summary = "A response that was stored"),
    ROUTE("DELETE", "/v1/responses/{id}", response_delete, .required = "id object deleted",
          .summary = "Delete a response that was stored"),
    ROUTE("GET", "/v1/responses/{id}/input_items", response_items, .query = &items_query_table,
          .required = "object data has_more", .summary = "The input of a response that was stored"),
    ROUTE("POST", "/v1/responses/{id}/cancel", response_cancel, .types = json_types,
          .summary = "Refused: no response is written in the background"),
    ROUTE("GET", "/v1/files", files_list, .query = &files_query_table,
          .required = "object data has_more",
          .summary = "Files that were uploaded, and the documents of the collection as files"),
    ROUTE("POST", "/v1/files", file_upload, .types = form_types, .body = &file_form_table,
          .required = "id object bytes created_at filename purpose status",
          .summary = "Upload a file, which becomes a document of the collection"),
    ROUTE("GET", "/v1/files/{id}", file_show, .required = "id object filename",
          .summary = "One of them"),
    ROUTE("DELETE", "/v1/files/{id}", file_delete, .required = "id object deleted",
          .summary = "Delete a file that was uploaded"),
    ROUTE("GET", "/v1/files/{id}/content", file_content, .answer_type = "*/*",
          .summary = "The file as it came, where it is kept"),
    ROUTE("GET", "/v1/vector_stores", stores_list, .query = &stores_query_table,
          .required = "object data has_more",
          .summary = "Vector stores, and the collection as one of them"),
    ROUTE("POST", "/v1/vector_stores", store_create, .types = json_types,
          .body = &store_create_table, .required = "id object file_counts status",
          .summary = "Make a vector store"),
    ROUTE("GET", "/v1/vector_stores/{id}", vector_store_show, .required = "id object file_counts",
          .summary = "One vector store"),
    ROUTE("POST", "/v1/vector_stores/{id}", store_modify, .types = json_types,
          .body = &store_modify_table, .required = "id object file_counts",
          .summary = "Change its name, metadata or expiry"),
    ROUTE("DELETE", "/v1/vector_stores/{id}", store_delete, .required = "id object deleted",
          .summary = "Delete a vector store, and none of its files"),
    ROUTE("POST", "/v1/vector_stores/{id}/search", vector_store_search, .types = json_types,
          .body = &store_search_table, .required = "object search_query data has_more",
          .summary = "The passages nearest to a text"),
    ROUTE("GET", "/v1/vector_stores/{id}/files", store_files, .query = &store_files_query_table,
          .required = "object data has_more", .summary = "The files of a vector store"),
    ROUTE("POST", "/v1/vector_stores/{id}/files", store_file_add, .types = json_types,
          .body = &store_file_table, .required = "id object status vector_store_id",
          .summary = "Add an uploaded file to a vector store"),
    ROUTE("POST", "/v1/vector_stores/{id}/file_batches", file_batch_create, .types = json_types,
          .body = &batch_table, .required = "id object status file_counts",
          .summary = "Add several"),
    ROUTE("GET", "/v1/vector_stores/{id}/file_batches/{batch}", file_batch_show,
          .required = "id object status file_counts", .summary = "How far that is"),
    ROUTE("POST", "/v1/vector_stores/{id}/file_batches/{batch}/cancel", file_batch_cancel,
          .types = json_types, .required = "id object status file_counts",
          .summary = "Give up what is left of it"),
    ROUTE("GET", "/v1/vector_stores/{id}/file_batches/{batch}/files", file_batch_files,
          .query = &store_files_query_table, .required = "object data has_more",
          .summary = "Its files"),
    ROUTE("GET", "/v1/vector_stores/{id}/files/{file}", store_file, .required = "id object status",
          .summary = "One file of a vector store"),
    ROUTE("POST", "/v1/vector_stores/{id}/files/{file}", store_file_modify, .types = json_types,
          .body = &store_file_change_table, .required = "id object status",
          .summary = "Change its attributes"),
    ROUTE("DELETE", "/v1/vector_stores/{id}/files/{file}", store_file_remove,
          .required = "id object deleted", .summary = "Take it out of the vector store"),
    ROUTE("GET", "/v1/vector_stores/{id}/files/{file}/content", store_content,
          .required = "object data", .summary = "Its text"),
    ROUTE("POST", "/api/chat", ollama_chat_open, .types = json_types, .body = &ollama_chat_table,
          .stream_type = LINES_TYPE, .required = "model created_at message done",
          .summary = "Answer a conversation, in Ollama's shapes"),
    ROUTE("POST", "/api/generate", ollama_generate_open, .types = json_types,
          .body = &ollama_generate_table, .stream_type = LINES_TYPE,
          .required = "model created_at response done", .summary = "Answer a text"),
    ROUTE("POST", "/api/embed", ollama_embed_open, .types = json_types, .body = &ollama_embed_table,
          .required = "model embeddings", .summary = "Texts to vectors"),
    ROUTE("POST", "/api/embeddings", ollama_embeddings_open, .types = json_types,
          .body = &ollama_embeddings_table, .required = "embedding",
          .summary = "A text to its vector"),
    ROUTE("GET", "/api/tags", ollama_tags, .required = "models",
          .summary = "The models that requests may name"),
    ROUTE("GET", "/api/ps", ollama_ps, .required = "models",
          .summary = "The models that are loaded: all"),
    ROUTE("POST", "/api/show", ollama_show, .types = json_types, .body = &ollama_show_table,
          .required = "details model_info capabilities", .summary = "What is known of a model"),
    ROUTE("GET", "/api/version", ollama_version, .required = "version",
          .summary = "The version of Ollama's API that is spoken"),
    NOT_HERE("POST", "/api/pull"),
    NOT_HERE("POST", "/api/push"),
    NOT_HERE("POST", "/api/create"),
    NOT_HERE("POST", "/api/copy"),
    NOT_HERE("DELETE", "/api/delete"),
    NOT_HERE("POST", "/api/blobs/{digest}"),
    ROUTE("POST", "/v1/embeddings", embeddings_open, .types = json_types, .body = &embedding_table,
          .required = "object data model usage", .summary = "Texts to vectors"),
    ROUTE("POST", "/embed_sparse", embed_sparse_open, .types = json_types,
          .body = &embed_sparse_table, .lists = true,
          .summary = "Texts to the weights of their tokens, for a sparse embedder"),
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
    ROUTE("POST", "/v1/documents", documents_post, .types = document_types,
          .body = &document_body_table, .query = &document_post_table, .required = "object",
          .accepts = true, .summary = "Add a document, or replace the one of its id"),
    ROUTE("DELETE", "/v1/documents", documents_delete, .query = &document_delete_table,
          .required = "object data", .summary = "Delete the documents of a path, or of a filter"),
    ROUTE("GET", "/v1/documents/{id}/file", document_file, .answer_type = "*/*",
          .summary = "The file that a document came from, as it came"),
    ROUTE("GET", "/v1/documents/{id}/pages/{number}", document_page, .answer_type = "image/png",
          .summary = "A page of a document as a picture, where its file is a PDF"),
    ROUTE("GET", "/v1/documents/", document_show,
          .required = "id object path title metadata chunks bytes text",
          .summary = "A document with its text"),
    ROUTE("PUT", "/v1/documents/", document_put_open, .types = json_types,
          .body = &document_body_table, .query = &document_post_table, .required = "id object",
          .accepts = true, .summary = "Add or replace a document"),
    ROUTE("DELETE", "/v1/documents/", document_delete, .required = "id object effect",
          .summary = "Delete a document"),
    ROUTE("GET", "/v1/jobs", jobs_list, .required = "object data",
          .summary = "Uploads that were answered at once"),
    ROUTE("GET", "/v1/jobs/{id}", job_show, .required = "object id status files chunks data",
          .summary = "How far one of them is"),
    ROUTE("DELETE", "/v1/jobs/{id}", job_cancel, .required = "object id status files chunks data",
          .summary = "Cancel one of them"),
    ROUTE("GET", "/v1/scans", scans_list, .required = "object data",
          .summary = "The folders that documents were read from, and what of them was skipped"),
    ROUTE("GET", "/v1/tables", tables_list, .query = &table_list_table,
          .required = "object tool data has_more",
          .summary = "The tables of the collection's documents, and the tool that asks them"),
    ROUTE("POST", "/v1/tables/query", tables_query, .types = json_types, .max_body = 64 << 10,
          .body = &table_question_table,
          .required = "object document path table columns rows has_more matched left_out",
          .summary = "Filter, group, count, sum, average and sort the rows of a table"),
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
    ROUTE("GET", "/", root_open, .access = ACCESS_PUBLIC, .answer_type = TEXT_TYPE,
          .summary = "That the server runs, where the page is off"),
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
    PAGE_FILE("/page/folders.js", "text/javascript", "The folders that documents come from"),
    PAGE_FILE("/page/markdown.js", "text/javascript", "How the page shows Markdown"),
    PAGE_FILE("/page/formulas.js", "text/javascript", "How the page shows formulas"),
    PAGE_FILE("/page/marked.js", "text/javascript", "The library marked, which reads Markdown"),
    PAGE_FILE("/page/katex.js", "text/javascript", "The library KaTeX, which reads formulas"),
    PAGE_FILE("/page/clients.js", "text/javascript", "How the page shows addresses and clients"),
    PAGE_FILE("/page/clipboard.js", "text/javascript", "How the page copies"),
    PAGE_FILE("/page/agents.md", "text/markdown", "How agents are connected"),
    PAGE_FILE("/page/mcp.md", "text/markdown", "How clients of MCP are connected"),
    PAGE_FILE("/page/reader.js", "text/javascript", "A document that is open"),
    PAGE_FILE("/page/lines.js", "text/javascript", "The text of a document around a place"),
    PAGE_FILE("/page/passages.js", "text/javascript", "How the page finds and shows passages"),
    PAGE_FILE("/page/icon.svg", "image/svg+xml", "The page's icon"),
};
const int n_api_routes = (int)ARRAY_COUNT(api_routes);

bool route_has_children(const struct route *route) {
    size_t size = strlen(route->path);
    return size > 1 && route->path[size - 1] == '/';
}

/* Segment by segment; one in braces is any that is not empty. */
static bool matches_segments(const char *route, const char *path) {
    while (*route == '/' && *path == '/') {
        size_t wants = strcspn(++route, "/"), has = strcspn(++path, "/");
        bool same = wants == has && strncmp(route, path, has) == 0;
        if (*route == '{' ? has == 0 : !same) return false;
        route += wants;
        path += has;
    }
    return *route == '\0' && *path == '\0';
}

/* A path that is a route's own belongs to no route with braces. */
static bool is_exact(const char *path) {
    for (int i = 0; i < n_api_routes; i++)
        if (strcmp(api_routes[i].path, path) == 0 && strchr(path, '{') == NULL) return true;
    return false;
}

/* A path that a route with braces has belongs to none that takes whatever is below it. */
static bool has_braces(const char *path) {
    for (int i = 0; i < n_api_routes; i++)
        if (strchr(api_routes[i].path, '{') && matches_segments(api_routes[i].path, path))
            return true;
    return false;
}

bool route_segment(const char *path, int i, char *out, size_t size) {
    const char *at = path;
    for (int j = 0; j <= i && at; j++) at = strchr(at + (j > 0), '/');
    size_t n = at ? strcspn(at + 1, "/") : 0;
    snprintf(out, size, "%.*s", (int)n, at ? at + 1 : "");
    return n > 0 && n < size;
}

bool route_matches(const struct route *route, const char *path) {
    size_t size = strlen(route->path);
    if (strchr(route->path, '{')) return matches_segments(route->path, path) && !is_exact(path);
    if (!route_has_children(route)) return strcmp(route->path, path) == 0;
    return strncmp(route->path, path, size) == 0 && path[size] != '\0' && !has_braces(path);
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
    if (route->open == root_open) return !api->page;
    return route->access != ACCESS_PAGE || api->page;
}
