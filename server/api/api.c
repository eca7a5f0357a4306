/* server/api/api.c: which request goes where. The routes are a table (routes.c); what the table
 * does not have is refused here, in words that are read off it. */
#include "server/api/api.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/api/core/traffic.h"
#include "server/api/routes.h"

/* Finding a row. */

static bool takes_head(const struct route *route) { return strcmp(route->method, "GET") == 0; }

static bool method_matches(const struct route *route, const char *method) {
    return strcmp(route->method, method) == 0 || (takes_head(route) && strcmp(method, "HEAD") == 0);
}

bool api_path_is_for_operators(const char *path) { return route_access_of(path) != ACCESS_API; }

const char *api_argument(const struct api_request *request, const char *name) {
    for (int i = 0; i < request->n_arguments; i++)
        if (strcmp(request->arguments[i].name, name) == 0) return request->arguments[i].value;
    return NULL;
}

/* Refusing. */

static struct failure_form form_of(const struct api_request *request) {
    return (struct failure_form){failure_words_of(request->path), request->id};
}

static struct answer *refuse(const struct api_request *request, struct failure *failure) {
    failure->form = form_of(request);
    return answer_failure(failure);
}

static struct answer *no_such_path(const struct api_request *request) {
    struct failure failure;
    failure_set(&failure, 404, "not_found", NULL, "there is no %.200s here; see docs/api.md",
                request->path);
    return refuse(request, &failure);
}

/* "GET, HEAD, OPTIONS" */
static void print_methods(const struct api *api, const char *path, struct buffer *out) {
    for (int i = 0; i < n_api_routes; i++)
        if (route_matches(&api_routes[i], path) && route_is_served(api, &api_routes[i]))
            buffer_printf(out, "%s%s, ", api_routes[i].method,
                          takes_head(&api_routes[i]) ? ", HEAD" : "");
    buffer_append_string(out, "OPTIONS");
}

static struct answer *no_such_method(const struct api *api, const struct api_request *request) {
    struct buffer allow = {0};
    struct failure failure;
    print_methods(api, request->path, &allow);
    failure_set(&failure, 405, "method_not_allowed", NULL,
                "%.200s does not take %.20s, it takes %s", request->path, request->method,
                allow.data);
    struct answer *answer = refuse(request, &failure);
    answer_add_header(answer, "Allow", "%s", allow.data);
    buffer_free(&allow);
    return answer;
}

/* Whether the type says clearly that the body is something else. */
static bool is_other_type(const struct route *route, const char *type) {
    if (route->types == NULL || type == NULL || type[0] == '\0') return false;
    size_t size = strcspn(type, "; ");
    for (const char *const *at = route->types; *at; at++)
        if (strlen(*at) == size && strncasecmp(type, *at, size) == 0) return false;
    return true;
}

static bool check_route(const struct route *route, const struct api_request *request,
                        struct failure *failure) {
    if (request->size > 0 && is_other_type(route, request->content_type))
        return failure_set(failure, 415, "unsupported_media_type", NULL,
                           "the body is %.100s, send %s", request->content_type, route->types[0]);
    if (route->max_body > 0 && request->size > route->max_body)
        return failure_set(failure, 413, "body_too_large", NULL,
                           "the body has %zu bytes, the limit of %s is %zu", request->size,
                           route->path, route->max_body);
    return true;
}

/* Pages of other origins. */

static bool origin_is_allowed(const struct api *api, const char *origin) {
    for (int i = 0; i < api->n_origins; i++)
        if (strcmp(api->origins[i], "*") == 0 || strcasecmp(api->origins[i], origin) == 0)
            return true;
    return false;
}

/* Headers that a browser reads before it lets a page see the answer (Fetch standard, CORS
 * protocol). Cookies mean nothing here, so credentials are never allowed. */
static void allow_origin(const struct api *api, const char *origin, struct answer *answer) {
    if (api->n_origins == 0) return;
    answer_add_header(answer, "Vary", "Origin");
    if (origin == NULL || !origin_is_allowed(api, origin)) return;
    answer_add_header(answer, "Access-Control-Allow-Origin", "%s", origin);
    answer_add_header(answer, "Access-Control-Expose-Headers",
                      "x-request-id, Retry-After, Mcp-Session-Id");
}

/* OPTIONS: what a path takes; of "*" what there is at all. */
static struct answer *answer_options(const struct api *api, const struct api_request *request) {
    struct buffer allow = {0}, body = {0};
    struct answer *answer = answer_text(204, JSON_TYPE, &body);
    if (strcmp(request->path, "*") == 0)
        buffer_append_string(&allow, "GET, HEAD, POST, PUT, DELETE, OPTIONS");
    else
        print_methods(api, request->path, &allow);
    answer_add_header(answer, "Allow", "%s", allow.data);
    if (request->origin && origin_is_allowed(api, request->origin)) {
        answer_add_header(answer, "Access-Control-Allow-Methods", "%s", allow.data);
        answer_add_header(answer, "Access-Control-Allow-Headers",
                          "Authorization, Content-Type, X-Api-Key, X-Request-Id, traceparent, "
                          "Last-Event-ID, Mcp-Method, Mcp-Name, MCP-Protocol-Version, "
                          "Mcp-Session-Id");
        answer_add_header(answer, "Access-Control-Max-Age", "600");
    }
    buffer_free(&allow);
    return answer;
}

static struct answer *route_open(struct api *api, const struct api_request *request,
                                 struct waker waker) {
    bool options = strcmp(request->method, "OPTIONS") == 0,
         path_known = options && strcmp(request->path, "*") == 0;
    for (int i = 0; i < n_api_routes; i++) {
        const struct route *route = &api_routes[i];
        struct failure failure = {0};
        if (!route_matches(route, request->path) || !route_is_served(api, route)) continue;
        path_known = true;
        if (!method_matches(route, request->method)) continue;
        struct answer *answer = check_route(route, request, &failure)
                                    ? route->open(api, request, waker, &failure)
                                    : NULL;
        return answer ? answer : refuse(request, &failure);
    }
    if (!path_known) return no_such_path(request);
    return options ? answer_options(api, request) : no_such_method(api, request);
}

struct answer *api_open(struct api *api, const struct api_request *request, struct waker waker) {
    struct answer *answer = route_open(api, request, waker);
    answer->form = form_of(request);
    allow_origin(api, request->origin, answer);
    return answer;
}

struct answer *api_refuse(const struct api *api, const struct api_request *request,
                          struct failure *failure) {
    struct answer *answer = refuse(request, failure);
    allow_origin(api, request->origin, answer);
    return answer;
}

void api_note(struct api *api, const struct request_record *record) {
    const char *known = "other";
    for (int i = n_api_routes - 1; i >= 0; i--) /* the first that matches */
        if (route_matches(&api_routes[i], record->path)) known = api_routes[i].path;
    traffic_note(api->traffic, known, record->status, record->seconds);
    request_record_log(record);
}
