/* server/api/operations/health.c: GET /health: 200 while requests are taken, else 503, and what the engines are doing;
 * /readyz and /livez say the same in a word, the latter of the process alone. */
#include <string.h>

#include "config/json/json_writer.h"
#include "server/api/api.h"

static void add_counts(struct engine_counts *sum, const struct engine_counts *c) {
    sum->running += c->running;
    sum->parked += c->parked;
    sum->waiting += c->waiting;
    sum->steps += c->steps;
    sum->prompt_tokens += c->prompt_tokens;
    sum->generated_tokens += c->generated_tokens;
}

static void write_counts(struct json_writer *w, const struct engine_counts *c) {
    put_key_int(w, "running", c->running);
    put_key_int(w, "parked", c->parked);
    put_key_int(w, "waiting", c->waiting);
    put_key_int(w, "steps", c->steps);
    put_key_int(w, "prompt_tokens", c->prompt_tokens);
    put_key_int(w, "generated_tokens", c->generated_tokens);
}

static const char *status_of(const struct api *a) {
    for (int i = 0; i < a->n_models; i++)
        if (engine_failed(a->models[i].engine)) return "failed";
    return atomic_load(&a->leaving) || atomic_load(&a->draining) ? "stopping" : "ok";
}

/* 200 while requests are taken. */
static struct answer *answer_health(const struct api *a, struct buffer *body) {
    bool ok = strcmp(status_of(a), "ok") == 0;
    struct answer *answer = answer_text(ok ? 200 : 503, JSON_TYPE, body);
    if (!ok) answer_add_header(answer, "Retry-After", "%d", 1);
    return answer;
}

struct answer *health_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    struct buffer body = {0};
    struct json_writer w;
    struct engine_counts counts = {0};
    const struct served_model *first = &a->models[0];
    (void)r, (void)waker, (void)f;
    for (int i = 0; i < a->n_models; i++) {
        struct engine_counts one = engine_counts(a->models[i].engine);
        add_counts(&counts, &one);
    }

    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "status", status_of(a));
    put_key_string(&w, "model", first->id);
    put_key_string(&w, "retrieval", first->retriever == NULL ? "none" : first->choice.enabled ? "on" : "on request");
    write_counts(&w, &counts);
    put_object_end(&w);

    return answer_health(a, &body);
}

static struct answer *answer_status(const struct api *a, const char *status) {
    struct buffer body = {0};
    struct json_writer w;
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "status", status);
    put_object_end(&w);
    return a ? answer_health(a, &body) : answer_text(200, JSON_TYPE, &body);
}

struct answer *ready_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    (void)r, (void)waker, (void)f;
    return answer_status(a, status_of(a));
}

/* A process that stops or whose device failed still works: restarting it is the operator's business, or its own. */
struct answer *live_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    (void)a, (void)r, (void)waker, (void)f;
    return answer_status(NULL, "ok");
}
