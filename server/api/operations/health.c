/* server/api/operations/health.c: GET /health: 200 while requests are taken, else 503, and what the
 * engines are doing; /readyz and /livez say the same in a word, the latter of the process alone. */
#include <string.h>

#include "config/json/json_writer.h"
#include "server/api/api.h"

static void add_counts(struct engine_counts *sum, const struct engine_counts *counts) {
    sum->running += counts->running;
    sum->parked += counts->parked;
    sum->waiting += counts->waiting;
    sum->steps += counts->steps;
    sum->prompt_tokens += counts->prompt_tokens;
    sum->generated_tokens += counts->generated_tokens;
}

static void write_counts(struct json_writer *w, const struct engine_counts *counts) {
    put_key_int(w, "running", counts->running);
    put_key_int(w, "parked", counts->parked);
    put_key_int(w, "waiting", counts->waiting);
    put_key_int(w, "steps", counts->steps);
    put_key_int(w, "prompt_tokens", counts->prompt_tokens);
    put_key_int(w, "generated_tokens", counts->generated_tokens);
}

static const char *status_of(const struct api *api) {
    for (int i = 0; i < api->n_models; i++)
        if (engine_failed(api->models[i].engine)) return "failed";
    return atomic_load(&api->leaving) || atomic_load(&api->draining) ? "stopping" : "ok";
}

/* 200 while requests are taken. */
static struct answer *answer_health(const struct api *api, struct buffer *body) {
    bool ok = strcmp(status_of(api), "ok") == 0;
    struct answer *answer = answer_text(ok ? 200 : 503, JSON_TYPE, body);
    if (!ok) answer_add_header(answer, "Retry-After", "%d", 1);
    return answer;
}

struct answer *health_open(struct api *api, const struct api_request *request, struct waker waker,
                           struct failure *failure) {
    struct buffer body = {0};
    struct json_writer w;
    struct engine_counts counts = {0};
    const struct served_model *first = &api->models[0];
    (void)request, (void)waker, (void)failure;
    for (int i = 0; i < api->n_models; i++) {
        struct engine_counts one = engine_counts(api->models[i].engine);
        add_counts(&counts, &one);
    }

    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "status", status_of(api));
    put_key_string(&w, "model", first->id);
    put_key_string(&w, "retrieval",
                   first->retriever == NULL ? "none"
                   : first->choice.enabled  ? "on"
                                            : "on request");
    write_counts(&w, &counts);
    put_object_end(&w);

    return answer_health(api, &body);
}

static struct answer *answer_status(const struct api *api, const char *status) {
    struct buffer body = {0};
    struct json_writer w;
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "status", status);
    put_object_end(&w);
    return api ? answer_health(api, &body) : answer_text(200, JSON_TYPE, &body);
}

struct answer *ready_open(struct api *api, const struct api_request *request, struct waker waker,
                          struct failure *failure) {
    (void)request, (void)waker, (void)failure;
    return answer_status(api, status_of(api));
}

/* A process that stops or whose device failed still works: restarting it is the operator's
 * business, or its own. */
struct answer *live_open(struct api *api, const struct api_request *request, struct waker waker,
                         struct failure *failure) {
    (void)api, (void)request, (void)waker, (void)failure;
    return answer_status(NULL, "ok");
}
