/* server/http/work.c: requests that are read, and answers that are written, off the library's
 * threads.
 *
 * A client chooses how much work its body is. So the library's thread only takes it, suspends the
 * connection and hands the exchange to the request threads (request_threads.h). There the request
 * becomes an answer, and the answer is polled: again whenever it wakes, until it is complete or
 * streams. Then the exchange is handed back and the connection resumed. Operators' endpoints, the
 * page and refusals never leave the library's thread (exchange_ask), nor do the events of a stream,
 * each of which is what one step of the engine wrote.
 *
 * Meanwhile the library does not touch the connection, so its bytes stay as they are: path, headers
 * and arguments are borrowed. A suspended connection is not closed either: exchange_end() comes
 * after the exchange was handed back. */
#include <string.h>

#include "server/http/exchange.h"
#include "server/threads/request_threads.h"

enum { SHOWN_BYTES = 4 << 10 }; /* of a body, in the log */

/* Called with the lock. */
static void exchange_resume(struct exchange *exchange) {
    if (exchange->suspended)
        MHD_resume_connection(exchange->connection);
    else
        exchange->ready = true;
    exchange->suspended = false;
}

/* Opening. */

static const char *find_header(const void *headers, const char *name) {
    return header_find(headers, name);
}

static void exchange_take_request(struct exchange *exchange, const char *method, const char *path) {
    exchange->request =
        (struct api_request){.method = method,
                             .path = path,
                             .content_type = header_find(exchange, "Content-Type"),
                             .origin = header_find(exchange, "Origin"),
                             .if_none_match = header_find(exchange, "If-None-Match"),
                             .id = exchange->id,
                             .anthropic_version = header_find(exchange, "anthropic-version"),
                             .body = exchange->body.data ? exchange->body.data : "",
                             .size = exchange->body.size,
                             .arguments = exchange->arguments,
                             .n_arguments = exchange->n_arguments,
                             .principal = exchange->admission.principal,
                             .header = find_header,
                             .headers = exchange};
}

static struct answer *exchange_open(struct exchange *exchange) {
    struct api *api = exchange->http->o.api;
    struct answer *answer;
    if (principal_is_late(&exchange->request.principal, time_now())) {
        struct failure failure;
        failure_set(&failure, MHD_HTTP_SERVICE_UNAVAILABLE, "server_busy", NULL,
                    "the request waited too long for its turn (option server.request_timeout)");
        failure.retry_after = 1;
        answer = api_refuse(api, &exchange->request, &failure);
    } else {
        answer = api_open(api, &exchange->request, (struct waker){exchange_wake, exchange});
    }
    size_t shown = exchange->body.size < SHOWN_BYTES ? exchange->body.size : SHOWN_BYTES;
    if (api->logs_bodies) buffer_append(&exchange->shown, exchange->body.data, shown);
    buffer_free(&exchange->body);
    return answer;
}

/* The request threads. */

/* Whether there is more to do: what came in while it was at work. Where it is over, the exchange is
 * the library's thread's from here on, and may be gone. */
static bool exchange_pause(struct exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    bool over = exchange->complete || exchange->answer == NULL || exchange->answer->stream ||
                atomic_load(&exchange->gone);
    bool more = !over && exchange->woken;
    exchange->woken = false;
    if (!more) exchange->work = over ? WORK_OVER : WORK_PAUSED;
    if (over) exchange_resume(exchange);
    pthread_mutex_unlock(&exchange->lock);
    return more;
}

static void exchange_publish(struct exchange *exchange, struct answer *answer) {
    pthread_mutex_lock(&exchange->lock);
    exchange->answer = answer;
    pthread_mutex_unlock(&exchange->lock);
    if (atomic_load(&exchange->gone))
        answer->ops->cancel(answer); /* client_gone() had nothing to cancel */
}

static void exchange_step(struct exchange *exchange) {
    if (exchange->answer == NULL && !atomic_load(&exchange->gone))
        exchange_publish(exchange, exchange_open(exchange));
    if (exchange->answer == NULL || exchange->answer->stream || atomic_load(&exchange->gone))
        return;
    exchange->complete =
        exchange->answer->ops->poll(exchange->answer, &exchange->out) == ANSWER_COMPLETE;
}

void exchange_work(struct turn *job) {
    struct exchange *exchange = (struct exchange *)job;
    pthread_mutex_lock(&exchange->lock);
    exchange->work = WORK_RUNNING;
    pthread_mutex_unlock(&exchange->lock);
    do exchange_step(exchange);
    while (exchange_pause(exchange));
}

uint64_t exchange_client(const struct turn *job) {
    return ((const struct exchange *)job)->admission.principal.client;
}

/* The library's thread, the waker of an answer, and the watcher. */

static bool is_light(const char *method, const char *path) {
    return api_path_is_for_operators(path) || strcmp(method, "OPTIONS") == 0;
}

static struct answer *exchange_refuse_busy(struct exchange *exchange) {
    struct failure failure = {0};
    failure_set(&failure, MHD_HTTP_SERVICE_UNAVAILABLE, "server_busy", NULL,
                "%d requests wait for their turn, the limit is server.max_requests",
                exchange->http->o.max_requests);
    failure.retry_after = 1;
    return api_refuse(exchange->http->o.api, &exchange->request, &failure);
}

static struct answer *exchange_refuse_stopping(struct exchange *exchange) {
    struct failure failure = {0};
    failure_set(&failure, MHD_HTTP_SERVICE_UNAVAILABLE, "server_busy", NULL,
                "the server is stopping");
    failure.retry_after = 1;
    return api_refuse(exchange->http->o.api, &exchange->request, &failure);
}

void exchange_ask(struct exchange *exchange, const char *method, const char *path) {
    exchange_activate(exchange);
    exchange_take_request(exchange, method, path);
    if (is_light(method, path)) {
        exchange->answer = exchange_open(exchange);
        return;
    }
    if (atomic_load(&exchange->http->o.api->draining)) {
        exchange->answer = exchange_refuse_stopping(exchange);
        return;
    }
    exchange->work = WORK_QUEUED;
    if (request_threads_ask(exchange->http->threads, &exchange->turn)) return;
    exchange->work = WORK_NONE;
    exchange->answer = exchange_refuse_busy(exchange);
}

bool exchange_is_away(struct exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    bool away = exchange->work != WORK_NONE && exchange->work != WORK_OVER;
    pthread_mutex_unlock(&exchange->lock);
    return away;
}

void exchange_wake(void *context) {
    struct exchange *exchange = context;
    pthread_mutex_lock(&exchange->lock);
    switch (exchange->work) {
        case WORK_NONE:
        case WORK_OVER: exchange_resume(exchange); break;
        case WORK_RUNNING: exchange->woken = true; break;
        case WORK_QUEUED: break; /* it will be polled */
        case WORK_PAUSED:
            exchange->work = WORK_QUEUED;
            request_threads_ask_again(exchange->http->threads, &exchange->turn);
            break;
    }
    pthread_mutex_unlock(&exchange->lock);
}

/* The engine drops the work at once, the library finds the closed socket when resumed. A request
 * that waits for a thread is not opened any more; one that is at work is handed back by the thread.
 */
void exchange_leave(void *context) {
    struct exchange *exchange = context;
    atomic_store(&exchange->gone, true);
    pthread_mutex_lock(&exchange->lock);
    struct answer *answer = exchange->answer;
    pthread_mutex_unlock(&exchange->lock);
    if (answer) answer->ops->cancel(answer);

    pthread_mutex_lock(&exchange->lock);
    bool waits = exchange->work == WORK_QUEUED &&
                 request_threads_take_back(exchange->http->threads, &exchange->turn);
    if (waits || exchange->work == WORK_PAUSED) exchange->work = WORK_OVER;
    if (exchange->work == WORK_NONE || exchange->work == WORK_OVER) exchange_resume(exchange);
    pthread_mutex_unlock(&exchange->lock);
}
