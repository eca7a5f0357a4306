/* server/api/api.c: which request goes where. The routes are a table (routes.c); what the table does not have is
 * refused here, in words that are read off it. */
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

const char *api_argument(const struct api_request *r, const char *name) {
    for (int i = 0; i < r->n_arguments; i++)
        if (strcmp(r->arguments[i].name, name) == 0) return r->arguments[i].value;
    return NULL;
}

/* Refusing. */

static struct answer *no_such_path(const struct api_request *r) {
    struct failure f;
    failure_set(&f, 404, "not_found", NULL, "there is no %.200s here; see docs/api.md", r->path);
    return answer_failure(&f);
}

/* "GET, HEAD, OPTIONS" */
static void print_methods(const char *path, struct buffer *out) {
    for (int i = 0; i < n_api_routes; i++)
        if (route_matches(&api_routes[i], path))
            buffer_printf(out, "%s%s, ", api_routes[i].method, takes_head(&api_routes[i]) ? ", HEAD" : "");
    buffer_append_string(out, "OPTIONS");
}

static struct answer *no_such_method(const struct api_request *r) {
    struct buffer allow = {0};
    struct failure f;
    print_methods(r->path, &allow);
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

static bool check_route(const struct route *route, const struct api_request *r, struct failure *f) {
    if (r->size > 0 && is_other_type(route, r->content_type))
        return failure_set(f, 415, "unsupported_media_type", NULL, "the body is %.100s, send %s", r->content_type,
                           route->types[0]);
    if (route->max_body > 0 && r->size > route->max_body)
        return failure_set(f, 413, "body_too_large", NULL, "the body has %zu bytes, the limit of %s is %zu", r->size,
                           route->path, route->max_body);
    return true;
}

/* Pages of other origins. */

static bool origin_is_allowed(const struct api *a, const char *origin) {
    for (int i = 0; i < a->n_origins; i++)
        if (strcmp(a->origins[i], "*") == 0 || strcasecmp(a->origins[i], origin) == 0) return true;
    return false;
}

/* Headers that a browser reads before it lets a page see the answer (Fetch standard, CORS protocol). Cookies mean
 * nothing here, so credentials are never allowed. */
static void allow_origin(const struct api *a, const char *origin, struct answer *answer) {
    if (a->n_origins == 0) return;
    answer_add_header(answer, "Vary", "Origin");
    if (origin == NULL || !origin_is_allowed(a, origin)) return;
    answer_add_header(answer, "Access-Control-Allow-Origin", "%s", origin);
    answer_add_header(answer, "Access-Control-Expose-Headers", "x-request-id, Retry-After");
}

/* OPTIONS: what a path takes; of "*" what there is at all. */
static struct answer *answer_options(const struct api *a, const struct api_request *r) {
    struct buffer allow = {0}, body = {0};
    struct answer *answer = answer_text(204, JSON_TYPE, &body);
    if (strcmp(r->path, "*") == 0)
        buffer_append_string(&allow, "GET, HEAD, POST, PUT, DELETE, OPTIONS");
    else
        print_methods(r->path, &allow);
    answer_add_header(answer, "Allow", "%s", allow.data);
    if (r->origin && origin_is_allowed(a, r->origin)) {
        answer_add_header(answer, "Access-Control-Allow-Methods", "%s", allow.data);
        answer_add_header(answer, "Access-Control-Allow-Headers",
                          "Authorization, Content-Type, X-Api-Key, X-Request-Id, traceparent");
        answer_add_header(answer, "Access-Control-Max-Age", "600");
    }
    buffer_free(&allow);
    return answer;
}

static struct answer *route_open(struct api *a, const struct api_request *r, struct waker waker) {
    bool options = strcmp(r->method, "OPTIONS") == 0, path_known = options && strcmp(r->path, "*") == 0;
    for (int i = 0; i < n_api_routes; i++) {
        const struct route *route = &api_routes[i];
        struct failure f = {0};
        if (!route_matches(route, r->path) || !route_is_served(a, route)) continue;
        path_known = true;
        if (!method_matches(route, r->method)) continue;
        struct answer *answer = check_route(route, r, &f) ? route->open(a, r, waker, &f) : NULL;
        return answer ? answer : answer_failure(&f);
    }
    if (!path_known) return no_such_path(r);
    return options ? answer_options(a, r) : no_such_method(r);
}

struct answer *api_open(struct api *a, const struct api_request *r, struct waker waker) {
    struct answer *answer = route_open(a, r, waker);
    allow_origin(a, r->origin, answer);
    return answer;
}

struct answer *api_refuse(const struct api *a, const char *origin, struct failure *f) {
    struct answer *answer = answer_failure(f);
    allow_origin(a, origin, answer);
    return answer;
}

void api_note(struct api *a, const struct request_record *r) {
    const char *known = "other";
    for (int i = 0; i < n_api_routes; i++)
        if (route_matches(&api_routes[i], r->path)) known = api_routes[i].path;
    traffic_note(a->traffic, known, r->status, r->seconds);
    request_record_log(r);
}
