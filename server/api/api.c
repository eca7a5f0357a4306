/* server/api/api.c: which request goes where. The routes are a table; what the table does not have is refused here, in
 * words that are read off it. */
#include "server/api/api.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Operators' endpoints answer as long as the process lives; those of the API refuse once it is stopping. */
enum route_access { ACCESS_OPERATIONS, ACCESS_API };

/* Types that a JSON body may be announced as. curl -d says that it is a form, and means JSON. */
static const char *const json_types[] = {JSON_TYPE,    "application/x-www-form-urlencoded", "text/json",
                                         "text/plain", "application/octet-stream",          NULL};

/* A path that ends in '/' stands for everything below it. A route of GET takes HEAD too, which is GET without the body,
 * and HTTP leaves that out. */
static const struct route {
    const char *method, *path;
    route_handler *open;
    enum route_access access;
    const char *const *types; /* of a body, NULL-terminated; NULL: any, as a body means nothing here */
    size_t max_body;          /* bytes; 0: what server.max_body_bytes lets in */
} routes[] = {
    {"POST", "/v1/completions", completions_open, ACCESS_API, json_types, 0},
    {"GET", "/v1/retrieval/search", search_open, ACCESS_API, json_types, 64 << 10},
    {"POST", "/v1/retrieval/search", search_open, ACCESS_API, json_types, 64 << 10},
    {"GET", "/v1/models", models_list, ACCESS_API, NULL, 0},
    {"GET", "/v1/models/", model_show, ACCESS_API, NULL, 0},
    {"GET", "/health", health_open, ACCESS_OPERATIONS, NULL, 0},
};

/* Finding a row. */

static bool path_matches(const struct route *route, const char *path) {
    size_t size = strlen(route->path);
    if (route->path[size - 1] != '/') return strcmp(route->path, path) == 0;
    return strncmp(route->path, path, size) == 0 && path[size] != '\0';
}

static bool takes_head(const struct route *route) { return strcmp(route->method, "GET") == 0; }

static bool method_matches(const struct route *route, const char *method) {
    return strcmp(route->method, method) == 0 || (takes_head(route) && strcmp(method, "HEAD") == 0);
}

bool api_path_is_for_operators(const char *path) {
    for (size_t i = 0; i < ARRAY_COUNT(routes); i++)
        if (path_matches(&routes[i], path) && routes[i].access == ACCESS_OPERATIONS) return true;
    return false;
}

/* Refusing. */

static struct answer *no_such_path(const struct api_request *r) {
    struct failure f;
    failure_set(&f, 404, "not_found", NULL, "there is no %.200s here; see docs/api.md", r->path);
    return answer_failure(&f);
}

static struct answer *no_such_method(const struct api_request *r) {
    struct buffer allow = {0};
    struct failure f;
    for (size_t i = 0; i < ARRAY_COUNT(routes); i++) {
        if (!path_matches(&routes[i], r->path)) continue;
        buffer_printf(&allow, "%s%s%s", allow.size ? ", " : "", routes[i].method,
                      takes_head(&routes[i]) ? ", HEAD" : "");
    }
    failure_set(&f, 405, "method_not_allowed", NULL, "%.200s does not take %.20s, it takes %s", r->path, r->method,
                allow.data);
    struct answer *answer = answer_failure(&f);
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

static bool check_route(struct api *a, const struct route *route, const struct api_request *r, struct failure *f) {
    if (r->size > 0 && is_other_type(route, r->content_type))
        return failure_set(f, 415, "unsupported_media_type", NULL, "the body is %.100s, send %s", r->content_type,
                           route->types[0]);
    if (route->max_body > 0 && r->size > route->max_body)
        return failure_set(f, 413, "body_too_large", NULL, "the body has %zu bytes, the limit of %s is %zu", r->size,
                           route->path, route->max_body);
    if (route->access == ACCESS_API && atomic_load(&a->draining)) {
        failure_set(f, 503, "server_busy", NULL, "the server is stopping");
        f->retry_after = 1;
        return false;
    }
    return true;
}

struct answer *api_open(struct api *a, const struct api_request *r, struct waker waker) {
    bool path_known = false;
    for (size_t i = 0; i < ARRAY_COUNT(routes); i++) {
        const struct route *route = &routes[i];
        struct failure f = {0};
        if (!path_matches(route, r->path)) continue;
        path_known = true;
        if (!method_matches(route, r->method)) continue;
        struct answer *answer = check_route(a, route, r, &f) ? route->open(a, r, waker, &f) : NULL;
        return answer ? answer : answer_failure(&f);
    }
    return path_known ? no_such_method(r) : no_such_path(r);
}
