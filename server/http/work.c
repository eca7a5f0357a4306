/* server/http/work.c: requests that are read, and answers that are written, off the library's threads.
 *
 * A client chooses how much work its body is. So the library's thread only takes it, suspends the connection and
 * hands the exchange to the request threads (request_threads.h). There the request becomes an answer, and the answer is
 * polled: again whenever it wakes, until it is complete or streams. Then the exchange is handed back and the connection
 * resumed. Operators' endpoints, the page and refusals never leave the library's thread (exchange_ask), nor
 * do the events of a stream, each of which is what one step of the engine wrote.
 *
 * Meanwhile the library does not touch the connection, so its bytes stay as they are: path, headers and arguments are
 * borrowed. A suspended connection is not closed either: exchange_end() comes after the exchange was handed back. */
#include <string.h>

#include "server/http/exchange.h"
#include "server/threads/request_threads.h"

enum { SHOWN_BYTES = 4 << 10 }; /* of a body, in the log */

/* Called with the lock. */
static void exchange_resume(struct exchange *x) {
    if (x->suspended)
        MHD_resume_connection(x->connection);
    else
        x->ready = true;
    x->suspended = false;
}

/* Opening. */

static void exchange_take_request(struct exchange *x, const char *method, const char *path) {
    x->request = (struct api_request){.method = method,
                                      .path = path,
                                      .content_type = header_find(x, "Content-Type"),
                                      .origin = header_find(x, "Origin"),
                                      .if_none_match = header_find(x, "If-None-Match"),
                                      .body = x->body.data ? x->body.data : "",
                                      .size = x->body.size,
                                      .arguments = x->arguments,
                                      .n_arguments = x->n_arguments,
                                      .principal = x->admission.principal};
}

static struct answer *exchange_open(struct exchange *x) {
    struct api *api = x->http->o.api;
    struct answer *answer;
    if (principal_is_late(&x->request.principal, time_now())) {
        struct failure f;
        failure_set(&f, MHD_HTTP_SERVICE_UNAVAILABLE, "server_busy", NULL,
                    "the request waited too long for its turn (option server.request_timeout)");
        f.retry_after = 1;
        answer = api_refuse(api, x->request.origin, &f);
    } else {
        answer = api_open(api, &x->request, (struct waker){exchange_wake, x});
    }
    size_t shown = x->body.size < SHOWN_BYTES ? x->body.size : SHOWN_BYTES;
    if (api->logs_bodies) buffer_append(&x->shown, x->body.data, shown);
    buffer_free(&x->body);
    return answer;
}

/* The request threads. */

/* Whether there is more to do: what came in while it was at work. Where it is over, the exchange is the library's
 * thread's from here on, and may be gone. */
static bool exchange_pause(struct exchange *x) {
    pthread_mutex_lock(&x->lock);
    bool over = x->complete || x->answer == NULL || x->answer->stream || atomic_load(&x->gone);
    bool more = !over && x->woken;
    x->woken = false;
    if (!more) x->work = over ? WORK_OVER : WORK_PAUSED;
    if (over) exchange_resume(x);
    pthread_mutex_unlock(&x->lock);
    return more;
}

static void exchange_publish(struct exchange *x, struct answer *answer) {
    pthread_mutex_lock(&x->lock);
    x->answer = answer;
    pthread_mutex_unlock(&x->lock);
    if (atomic_load(&x->gone)) answer->ops->cancel(answer); /* client_gone() had nothing to cancel */
}

static void exchange_step(struct exchange *x) {
    if (x->answer == NULL && !atomic_load(&x->gone)) exchange_publish(x, exchange_open(x));
    if (x->answer == NULL || x->answer->stream || atomic_load(&x->gone)) return;
    x->complete = x->answer->ops->poll(x->answer, &x->out) == ANSWER_COMPLETE;
}

void exchange_work(struct turn *job) {
    struct exchange *x = (struct exchange *)job;
    pthread_mutex_lock(&x->lock);
    x->work = WORK_RUNNING;
    pthread_mutex_unlock(&x->lock);
    do exchange_step(x);
    while (exchange_pause(x));
}

uint64_t exchange_client(const struct turn *job) { return ((const struct exchange *)job)->admission.principal.client; }

/* The library's thread, the waker of an answer, and the watcher. */

static bool is_light(const char *method, const char *path) {
    return api_path_is_for_operators(path) || strcmp(method, "OPTIONS") == 0;
}

static struct answer *exchange_refuse_busy(struct exchange *x) {
    struct failure f = {0};
    failure_set(&f, MHD_HTTP_SERVICE_UNAVAILABLE, "server_busy", NULL,
                "%d requests wait for their turn, the limit is server.max_requests", x->http->o.max_requests);
    f.retry_after = 1;
    return api_refuse(x->http->o.api, x->request.origin, &f);
}

static struct answer *exchange_refuse_stopping(struct exchange *x) {
    struct failure f = {0};
    failure_set(&f, MHD_HTTP_SERVICE_UNAVAILABLE, "server_busy", NULL, "the server is stopping");
    f.retry_after = 1;
    return api_refuse(x->http->o.api, x->request.origin, &f);
}

void exchange_ask(struct exchange *x, const char *method, const char *path) {
    exchange_activate(x);
    exchange_take_request(x, method, path);
    if (is_light(method, path)) {
        x->answer = exchange_open(x);
        return;
    }
    if (atomic_load(&x->http->o.api->draining)) {
        x->answer = exchange_refuse_stopping(x);
        return;
    }
    x->work = WORK_QUEUED;
    if (request_threads_ask(x->http->threads, &x->turn)) return;
    x->work = WORK_NONE;
    x->answer = exchange_refuse_busy(x);
}

bool exchange_is_away(struct exchange *x) {
    pthread_mutex_lock(&x->lock);
    bool away = x->work != WORK_NONE && x->work != WORK_OVER;
    pthread_mutex_unlock(&x->lock);
    return away;
}

void exchange_wake(void *context) {
    struct exchange *x = context;
    pthread_mutex_lock(&x->lock);
    switch (x->work) {
        case WORK_NONE:
        case WORK_OVER: exchange_resume(x); break;
        case WORK_RUNNING: x->woken = true; break;
        case WORK_QUEUED: break; /* it will be polled */
        case WORK_PAUSED:
            x->work = WORK_QUEUED;
            request_threads_ask_again(x->http->threads, &x->turn);
            break;
    }
    pthread_mutex_unlock(&x->lock);
}

/* The engine drops the work at once, the library finds the closed socket when resumed. A request that waits for a
 * thread is not opened any more; one that is at work is handed back by the thread. */
void exchange_leave(void *context) {
    struct exchange *x = context;
    atomic_store(&x->gone, true);
    pthread_mutex_lock(&x->lock);
    struct answer *answer = x->answer;
    pthread_mutex_unlock(&x->lock);
    if (answer) answer->ops->cancel(answer);

    pthread_mutex_lock(&x->lock);
    bool waits = x->work == WORK_QUEUED && request_threads_take_back(x->http->threads, &x->turn);
    if (waits || x->work == WORK_PAUSED) x->work = WORK_OVER;
    if (x->work == WORK_NONE || x->work == WORK_OVER) exchange_resume(x);
    pthread_mutex_unlock(&x->lock);
}
