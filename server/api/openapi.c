/* server/api/openapi.c: GET /openapi.json: the routes and the fields of their bodies, in
 * OpenAPI 3.1, read off the tables that requests are checked by. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "server/api/fields/chat_fields.h"
#include "server/api/routes.h"

/* Every operation may end so, and says why in the same shape. */
static const int error_statuses[] = {400, 403, 404, 405, 408, 409, 413, 414, 415, 416,
                                     417, 422, 429, 431, 500, 501, 503, 505, 529};

/* All that the schema of a route depends on beside its tables. */
struct schema_scope {
    const struct api *api;
    const struct request_limits *limits;
    bool decoders, embedders; /* which models its requests may name */
};

/* Fields. */

static void write_table(struct json_writer *w, const struct json_table *table,
                        const struct schema_scope *scope);

static double most_of(const struct json_field *field, const struct schema_scope *scope) {
    int limit;
    if (field->option == NULL) return field->max;
    memcpy(&limit, (const char *)scope->limits + field->limit_offset, sizeof limit);
    return limit;
}

static void write_range(struct json_writer *w, const struct json_field *field,
                        const struct schema_scope *scope) {
    double most = most_of(field, scope);
    if (field->min == 0 && most == 0 && field->option == NULL) return;
    put_key(w, "minimum");
    put_double(w, field->min);
    put_key(w, "maximum");
    put_double(w, most);
}

static void write_choices(struct json_writer *w, const struct json_field *field) {
    put_key_array(w, "enum");
    for (const struct json_choice *choice = field->choices; choice->name; choice++)
        put_string(w, choice->name);
    if (!field->required) put_null(w);
    put_array_end(w);
}

/* "type": null counts as absent. */
static void write_type(struct json_writer *w, const struct json_field *field, const char *type) {
    put_key_array(w, "type");
    put_string(w, type);
    if (!field->required) put_string(w, "null");
    put_array_end(w);
}

/* A schema that the row spells out, or that of its table. */
static void write_parsed(struct json_writer *w, const struct json_field *field,
                         const struct schema_scope *scope) {
    put_key_array(w, "anyOf");
    if (field->table)
        write_table(w, field->table, scope);
    else
        put_raw(w, (struct text_span){field->schema, strlen(field->schema)});
    if (!field->required) {
        put_object(w);
        put_key_string(w, "type", "null");
        put_object_end(w);
    }
    put_array_end(w);
}

/* A field that is not supported may be sent where it changes nothing. */
static void write_neutral(struct json_writer *w, const struct json_field *field) {
    put_key_array(w, "enum");
    put_null(w);
    if (field->type == JSON_NEUTRAL) {
        put_double(w, field->min);
    } else if (field->type == JSON_MUST_BE_FALSE) {
        put_bool(w, false);
    } else {
        put_string(w, "");
        put_array(w);
        put_array_end(w);
        put_object(w);
        put_object_end(w);
    }
    put_array_end(w);
}

/* Names of models are those that are served. */
static void write_names(struct json_writer *w, const struct json_field *field,
                        const struct schema_scope *scope) {
    const struct api *api = scope->api;
    put_object(w);
    put_key_array(w, "enum");
    for (int i = 0; i < api->n_models && scope->decoders; i++) put_string(w, api->models[i].id);
    for (int i = 0; i < api->n_embedders && scope->embedders; i++)
        put_string(w, api->embedders[i].id);
    put_null(w);
    put_array_end(w);
    if (field->help) put_key_string(w, "description", field->help);
    put_object_end(w);
}

static void write_field(struct json_writer *w, const struct json_field *field,
                        const struct schema_scope *scope) {
    put_object(w);
    switch (field->type) {
        case JSON_BOOL: write_type(w, field, "boolean"); break;
        case JSON_INT:
        case JSON_INT64: write_type(w, field, "integer"); break;
        case JSON_FLOAT:
        case JSON_DOUBLE: write_type(w, field, "number"); break;
        case JSON_TEXT: write_type(w, field, "string"); break;
        case JSON_CHOICE: write_choices(w, field); break;
        case JSON_RAW:
        case JSON_PARSED: write_parsed(w, field, scope); break;
        case JSON_NEUTRAL:
        case JSON_MUST_BE_FALSE:
        case JSON_EMPTY: write_neutral(w, field); break;
        case JSON_IGNORED: break; /* any value */
        default: CHECK(!"a type of request fields");
    }
    if (field->type >= JSON_INT && field->type <= JSON_DOUBLE) write_range(w, field, scope);
    if (field->help) put_key_string(w, "description", field->help);
    put_object_end(w);
}

static void write_fields(struct json_writer *w, const struct json_table *table,
                         const struct schema_scope *scope) {
    for (int i = 0; i < table->count; i++) {
        const struct json_field *field = &table->fields[i];
        bool names = field->type != JSON_ROWS && strcmp(field->name, "model") == 0;
        if (field->type == JSON_ROWS) write_fields(w, field->table, scope);
        for (const char *at = field->type == JSON_ROWS ? "" : field->name; *at;) {
            size_t size = strcspn(at, "|");
            put_key_n(w, at, size);
            if (names)
                write_names(w, field, scope);
            else
                write_field(w, field, scope);
            at += size + (at[size] == '|');
        }
    }
}

static void write_required(struct json_writer *w, const struct json_table *table) {
    for (int i = 0; i < table->count; i++) {
        if (table->fields[i].type == JSON_ROWS) write_required(w, table->fields[i].table);
        if (table->fields[i].required) put_string(w, table->fields[i].name);
    }
}

static void write_table(struct json_writer *w, const struct json_table *table,
                        const struct schema_scope *scope) {
    put_object(w);
    put_key_string(w, "type", "object");
    put_key_object(w, "properties");
    write_fields(w, table, scope);
    put_object_end(w);
    put_key_array(w, "required");
    write_required(w, table);
    put_array_end(w);
    put_key_bool(w, "additionalProperties", table->open);
    put_object_end(w);
}

/* Routes. */

static struct schema_scope scope_of(const struct api *api, const struct route *route) {
    bool embeds = route->open == embeddings_open || route->open == rerank_open;
    bool tokenizes = route->open == tokenize_open || route->open == detokenize_open;
    bool limited = embeds && api->n_embedders > 0;
    return (struct schema_scope){api, limited ? &api->largest_embedder : &api->largest, !embeds,
                                 embeds || tokenizes};
}

static void write_parameter(struct json_writer *w, const char *name, const char *in,
                            bool required) {
    put_object(w);
    put_key_string(w, "name", name);
    put_key_string(w, "in", in);
    put_key_bool(w, "required", required);
    put_key(w, "schema");
}

static void write_query(struct json_writer *w, const struct json_table *table,
                        const struct schema_scope *scope) {
    for (int i = 0; i < table->count; i++) {
        const struct json_field *field = &table->fields[i];
        if (field->type == JSON_ROWS) {
            write_query(w, field->table, scope);
            continue;
        }
        write_parameter(w, field->name, "query", field->required);
        write_field(w, field, scope);
        put_object_end(w);
    }
}

static void write_path_parameter(struct json_writer *w, const char *name, size_t size) {
    char text[40];
    snprintf(text, sizeof text, "%.*s", (int)size, name);
    write_parameter(w, text, "path", true);
    put_object(w);
    put_key_string(w, "type", "string");
    put_object_end(w);
    put_object_end(w);
}

static void write_parameters(struct json_writer *w, const struct api *api,
                             const struct route *route) {
    const struct schema_scope scope = scope_of(api, route);
    put_key_array(w, "parameters");
    if (route_has_children(route)) write_path_parameter(w, "id", 2);
    for (const char *at = route->path; (at = strchr(at, '{')) != NULL; at++)
        write_path_parameter(w, at + 1, strcspn(at + 1, "}"));
    if (route->query) write_query(w, route->query, &scope);
    put_array_end(w);
}

/* {"content": {type: {"schema": ... }}}, open behind "schema". */
static void open_content(struct json_writer *w, const char *type) {
    put_key_object(w, "content");
    put_key_n(w, type, strcspn(type, ";"));
    put_object(w);
    put_key(w, "schema");
}

static void close_content(struct json_writer *w) {
    put_object_end(w);
    put_object_end(w);
}

static void write_answer_schema(struct json_writer *w, const struct route *route) {
    put_object(w);
    put_key_string(w, "type", route->required ? "object" : route->lists ? "array" : "string");
    if (route->required) {
        put_key_array(w, "required");
        for (const char *at = route->required; *at;) {
            size_t size = strcspn(at, " ");
            put_string_n(w, at, size);
            at += size + (at[size] == ' ');
        }
        put_array_end(w);
    }
    put_object_end(w);
}

static void write_error_status(struct json_writer *w, const struct route *route, int http) {
    static const char *const forms[] = {
        [WORDS_OPENAI] = "#/components/responses/error",
        [WORDS_ANTHROPIC] = "#/components/responses/error_anthropic",
        [WORDS_OLLAMA] = "#/components/responses/error_ollama"};
    char status[8];
    snprintf(status, sizeof status, "%d", http);
    put_key_object(w, status);
    put_key_string(w, "$ref",
                   route->foreign ? "#/components/responses/foreign_error"
                                  : forms[failure_words_of(route->path)]);
    put_object_end(w);
}

/* Of one event of a stream: its data is JSON, or [DONE] at the end. */
static void write_event_schema(struct json_writer *w) {
    put_key_object(w, "schema");
    put_key_string(w, "type", "object");
    put_key_object(w, "properties");
    put_key_object(w, "data");
    put_key_string(w, "type", "string");
    put_object_end(w);
    put_object_end(w);
    put_object_end(w);
}

static void write_empty_status(struct json_writer *w, const char *status, const char *words) {
    put_key_object(w, status);
    put_key_string(w, "description", words);
    put_object_end(w);
}

static void write_responses(struct json_writer *w, const struct route *route) {
    put_key_object(w, "responses");
    put_key_object(w, "200");
    put_key_string(
        w, "description",
        route->stream_type ? "the answer; with stream, events in its shape" : "the answer");
    open_content(w, route->answer_type ? route->answer_type : JSON_TYPE);
    write_answer_schema(w, route);
    if (route->stream_type) {
        put_object_end(w);
        put_key_object(w, route->stream_type);
        write_event_schema(w);
    }
    close_content(w);
    put_object_end(w);
    if (route->access == ACCESS_PAGE) write_empty_status(w, "304", "the client has it");
    if (route->foreign || route->accepts) write_empty_status(w, "202", "it was taken");
    if (route->access == ACCESS_API || route->access == ACCESS_OPERATIONS)
        write_error_status(w, route, 401);
    for (size_t i = 0; i < ARRAY_COUNT(error_statuses); i++)
        write_error_status(w, route, error_statuses[i]);
    put_object_end(w);
}

static void write_scheme_name(struct json_writer *w, const char *name) {
    put_object(w);
    put_key_array(w, name);
    put_array_end(w);
    put_object_end(w);
}

/* The ways of sending a key, where the route asks for one. */
static void write_security(struct json_writer *w, const struct api *api,
                           const struct route *route) {
    bool asks = route->access == ACCESS_API && api->keys != NULL;
    if (route->access == ACCESS_OPERATIONS && api->operations == OPERATIONS_KEY) asks = true;
    put_key_array(w, "security");
    if (asks) {
        write_scheme_name(w, "bearer");
        write_scheme_name(w, "header");
    }
    put_array_end(w);
}

static void write_operation(struct json_writer *w, const struct api *api,
                            const struct route *route) {
    char method[16] = "";
    for (size_t i = 0; i < sizeof method - 1 && route->method[i]; i++)
        method[i] = (char)tolower((unsigned char)route->method[i]);
    const struct schema_scope scope = scope_of(api, route);
    put_key_object(w, method);
    put_key_string(w, "summary", route->summary);
    write_security(w, api, route);
    write_parameters(w, api, route);
    if (route->body) {
        put_key_object(w, "requestBody");
        put_key_bool(w, "required", true);
        open_content(w, JSON_TYPE);
        write_table(w, route->body, &scope);
        close_content(w);
        put_object_end(w);
    }
    write_responses(w, route);
    put_object_end(w);
}

static bool path_is_served(const struct api *api, const struct route *first) {
    for (int i = 0; i < n_api_routes; i++)
        if (strcmp(api_routes[i].path, first->path) == 0 && route_is_served(api, &api_routes[i]))
            return true;
    return false;
}

static void write_paths(struct json_writer *w, const struct api *api) {
    put_key_object(w, "paths");
    for (int i = 0; i < n_api_routes; i++) {
        const struct route *route = &api_routes[i];
        struct buffer path = {0};
        if (i > 0 && strcmp(api_routes[i - 1].path, route->path) == 0) continue;
        if (!path_is_served(api, route)) continue;
        buffer_printf(&path, "%s%s", route->path, route_has_children(route) ? "{id}" : "");
        put_key_object(w, path.data);
        buffer_free(&path);
        for (int j = i; j < n_api_routes && strcmp(api_routes[j].path, route->path) == 0; j++)
            if (route_is_served(api, &api_routes[j])) write_operation(w, api, &api_routes[j]);
        put_object_end(w);
    }
    put_object_end(w);
}

static void write_error_form(struct json_writer *w, const char *name, struct text_span schema) {
    put_key_object(w, name);
    put_key_string(w, "description", "why there is no answer");
    open_content(w, JSON_TYPE);
    put_raw(w, schema);
    close_content(w);
    put_object_end(w);
}

/* failure_words.c; of a foreign route its own. */
static void write_components(struct json_writer *w) {
    static const char schema[] =
        "{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{\"type\":"
        "\"object\",\"required\":"
        "[\"message\",\"type\",\"param\",\"code\"],\"properties\":{\"message\":{\"type\":"
        "\"string\"},\"type\":{"
        "\"type\":"
        "\"string\"},\"param\":{\"type\":[\"string\",\"null\"]},\"code\":{\"type\":[\"string\","
        "\"null\"]}}}}}";
    static const char anthropic[] =
        "{\"type\":\"object\",\"required\":[\"type\",\"error\",\"request_id\"],\"properties\":{"
        "\"error\":{\"type\":\"object\",\"required\":[\"type\",\"message\"]}}}";
    static const char ollama[] =
        "{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{\"type\":"
        "\"string\"}}}";
    static const char foreign[] =
        "{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{\"type\":"
        "\"object\",\"required\":[\"message\"],\"properties\":{\"message\":{\"type\":\"string\"}}}}"
        "}";
    static const char schemes[] =
        "{\"bearer\":{\"type\":\"http\",\"scheme\":\"bearer\"},\"header\":{\"type\":\"apiKey\","
        "\"in\":\"header\","
        "\"name\":"
        "\"X-Api-Key\"}}";
    put_key_object(w, "components");
    put_key(w, "securitySchemes");
    put_raw(w, (struct text_span){schemes, sizeof schemes - 1});
    put_key_object(w, "responses");
    write_error_form(w, "error", (struct text_span){schema, sizeof schema - 1});
    write_error_form(w, "error_anthropic", (struct text_span){anthropic, sizeof anthropic - 1});
    write_error_form(w, "error_ollama", (struct text_span){ollama, sizeof ollama - 1});
    write_error_form(w, "foreign_error", (struct text_span){foreign, sizeof foreign - 1});
    put_object_end(w);
    put_object_end(w);
}

struct answer *openapi_open(struct api *api, const struct api_request *request, struct waker waker,
                            struct failure *failure) {
    struct buffer body = {0};
    struct json_writer w;
    (void)request, (void)waker, (void)failure;
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "openapi", "3.1.0");
    put_key_object(&w, "info");
    put_key_string(&w, "title", "retro-server");
    put_key_string(&w, "version", RETRO_VERSION);
    put_object_end(&w);
    write_paths(&w, api);
    write_components(&w);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}
