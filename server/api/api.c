/* server/api/api.c: what a request means: which route, and what the small ones answer. POST /v1/completions continues
 * in completions.c, /v1/retrieval/search in search.c. JSON comes in through request.c, goes out through json_writer.c.
 */
#include "server/api/api.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/json/json_writer.h"

/* Models. */

static void write_retro(struct json_writer *w, const struct api *a) {
    struct snapshot *snapshot = a->retriever ? retriever_hold(a->retriever) : NULL;
    put_key_object(w, "retro");
    put_key_int(w, "chunk_length", a->info->chunk_length);
    put_key_int(w, "num_neighbors", a->info->num_neighbors);
    put_key_int(w, "retrieved_length", a->info->retrieved_length);
    put_key_int(w, "chunks", snapshot ? snapshot->n_chunks : 0);
    put_key_int(w, "generation", snapshot ? snapshot->version : 0);
    put_object_end(w);
    snapshot_release(snapshot);
}

static void write_model(struct json_writer *w, const struct api *a) {
    put_object(w);
    put_key_string(w, "id", a->model_id);
    put_key_string(w, "object", "model");
    put_key_int(w, "created", a->created);
    put_key_string(w, "owned_by", "retro-server");
    put_key_int(w, "max_model_len", a->limits.context);
    put_key_object(w, "meta");
    put_key_string(w, "family", a->info->family);
    put_key_int(w, "n_params", a->info->n_parameters);
    put_key_int(w, "n_vocab", a->info->vocab);
    write_retro(w, a);
    put_object_end(w);
    put_object_end(w);
}

static struct answer *open_models(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    struct buffer body = {0};
    struct json_writer w;
    (void)r, (void)waker, (void)f;
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "object", "list");
    put_key_array(&w, "data");
    write_model(&w, a);
    put_array_end(&w);
    put_object_end(&w);
    return answer_text(200, &body);
}

static struct answer *open_model(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    struct buffer body = {0};
    struct json_writer w;
    const char *id = r->path + strlen("/v1/models/");
    (void)waker;
    if (strcmp(id, a->model_id) != 0) {
        failure_set(f, 404, "model_not_found", "model", "the model '%.100s' does not exist, this server has '%.100s'",
                    id, a->model_id);
        return NULL;
    }
    put_begin(&w, &body);
    write_model(&w, a);
    return answer_text(200, &body);
}

/* Health: 200 while requests are taken, else 503. */
static struct answer *open_health(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    struct buffer body = {0};
    struct json_writer w;
    struct engine_counts counts = engine_counts(a->engine);
    bool draining = atomic_load(&a->draining), failed = engine_failed(a->engine);
    (void)r, (void)waker, (void)f;
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "status", failed ? "failed" : draining ? "stopping" : "ok");
    put_key_string(&w, "model", a->model_id);
    put_key_string(&w, "retrieval", a->retriever == NULL ? "none" : a->retrieve ? "on" : "on request");
    put_key_int(&w, "running", counts.running);
    put_key_int(&w, "parked", counts.parked);
    put_key_int(&w, "waiting", counts.waiting);
    put_key_int(&w, "steps", counts.steps);
    put_key_int(&w, "prompt_tokens", counts.prompt_tokens);
    put_key_int(&w, "generated_tokens", counts.generated_tokens);
    put_object_end(&w);
    return answer_text(failed || draining ? 503 : 200, &body);
}

/* Routes. A path that ends in '/' stands for everything below it. */
static const struct route {
    const char *method, *path;
    struct answer *(*open)(struct api *a, const struct api_request *r, struct waker waker, struct failure *f);
} routes[] = {
    {"POST", "/v1/completions", completions_open},
    {"GET", "/v1/models", open_models},
    {"GET", "/v1/models/", open_model},
    {"GET", "/health", open_health},
    {"POST", "/v1/retrieval/search", search_open},
    {"GET", "/v1/retrieval/search", search_open},
};

static bool path_matches(const struct route *route, const char *path) {
    size_t size = strlen(route->path);
    if (route->path[size - 1] != '/') return strcmp(route->path, path) == 0;
    return strncmp(route->path, path, size) == 0 && path[size] != '\0';
}

/* HEAD is GET without the body, which HTTP leaves out. */
static bool method_matches(const struct route *route, const char *method) {
    return strcmp(route->method, method) == 0 || (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

static struct answer *no_such_method(const struct route *found, const struct api_request *r) {
    struct failure f;
    bool get = false, post = false;
    for (size_t i = 0; i < ARRAY_COUNT(routes); i++) {
        if (!path_matches(&routes[i], r->path)) continue;
        get = get || strcmp(routes[i].method, "GET") == 0;
        post = post || strcmp(routes[i].method, "POST") == 0;
    }
    const char *allow = !get ? "POST" : post ? "GET, HEAD, POST" : "GET, HEAD";
    failure_set(&f, 405, "method_not_allowed", NULL, "%s does not take %.20s, it takes %s", found->path, r->method,
                allow);
    struct answer *answer = answer_failure(&f);
    answer->allow = allow;
    return answer;
}

/* A type that says clearly that the body is something else; curl -d says it is a form, and means JSON. */
static bool is_other_type(const char *type) {
    static const char *const accepted[] = {"application/json", "application/x-www-form-urlencoded", "text/json",
                                           "text/plain", "application/octet-stream"};
    if (type == NULL || type[0] == '\0') return false;
    size_t size = strcspn(type, "; ");
    for (size_t i = 0; i < ARRAY_COUNT(accepted); i++)
        if (strlen(accepted[i]) == size && strncasecmp(type, accepted[i], size) == 0) return false;
    return true;
}

static struct answer *open_route(struct api *a, const struct route *route, const struct api_request *r,
                                 struct waker waker, struct failure *f) {
    if (r->size > 0 && is_other_type(r->content_type)) {
        failure_set(f, 415, "unsupported_media_type", NULL, "the body is %.100s, send application/json",
                    r->content_type);
        return NULL;
    }
    if (strcmp(route->method, "POST") == 0 && atomic_load(&a->draining)) {
        failure_set(f, 503, "server_busy", NULL, "the server is stopping");
        return NULL;
    }
    return route->open(a, r, waker, f);
}

struct answer *api_open(struct api *a, const struct api_request *r, struct waker waker) {
    const struct route *found = NULL;
    struct failure f = {0};
    for (size_t i = 0; i < ARRAY_COUNT(routes); i++) {
        if (!path_matches(&routes[i], r->path)) continue;
        found = &routes[i];
        if (!method_matches(found, r->method)) continue;
        struct answer *answer = open_route(a, found, r, waker, &f);
        return answer ? answer : answer_failure(&f);
    }
    if (found) return no_such_method(found, r);
    failure_set(&f, 404, "not_found", NULL, "there is no %.200s here; see docs/api.md", r->path);
    return answer_failure(&f);
}
