/* server/http/watcher.c: clients that leave. See watcher.h. */
#include "server/http/watcher.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { STOP_SERIAL = 0 };

struct watcher {
    int epoll, stop;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock;
    uint64_t serial;
    struct watch *first;
};

static void watcher_report(struct watcher *w, uint64_t serial) {
    pthread_mutex_lock(&w->lock);
    struct watch *watch = w->first;
    while (watch && watch->serial != serial) watch = watch->next;
    if (watch) watch->gone(watch->context);
    pthread_mutex_unlock(&w->lock);
}

static void *watcher_run(void *argument) {
    struct watcher *w = argument;
    struct epoll_event events[64];
    for (;;) {
        int n = epoll_wait(w->epoll, events, (int)ARRAY_COUNT(events), -1);
        CHECK(n >= 0 || errno == EINTR);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == STOP_SERIAL) return NULL;
            watcher_report(w, events[i].data.u64);
        }
    }
}

enum status watcher_open(struct watcher **out, struct error *e) {
    struct watcher *w = xcalloc(1, sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->stop = eventfd(0, EFD_CLOEXEC);
    struct epoll_event stop = {.events = EPOLLIN, .data.u64 = STOP_SERIAL};
    if (w->epoll >= 0 && w->stop >= 0 && epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->stop, &stop) == 0)
        w->running = pthread_create(&w->thread, NULL, watcher_run, w) == 0;
    if (!w->running) {
        enum status status = error_errno(e, "watching connections");
        watcher_close(w);
        return status;
    }
    *out = w;
    return STATUS_OK;
}

void watcher_close(struct watcher *w) {
    if (w == NULL) return;
    if (w->running) {
        uint64_t one = 1;
        CHECK(write(w->stop, &one, sizeof one) == sizeof one);
        pthread_join(w->thread, NULL);
    }
    if (w->stop >= 0) close(w->stop);
    if (w->epoll >= 0) close(w->epoll);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void watcher_add(struct watcher *w, struct watch *watch) {
    pthread_mutex_lock(&w->lock);
    watch->serial = ++w->serial;
    watch->previous = NULL;
    watch->next = w->first;
    if (w->first) w->first->previous = watch;
    w->first = watch;
    /* Where the kernel refuses (too many watches), the client's leaving is seen at the next write instead. */
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = watch->serial};
    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, watch->fd, &event) != 0)
        log_warn("a connection cannot be watched for its client leaving");
    pthread_mutex_unlock(&w->lock);
}

void watcher_remove(struct watcher *w, struct watch *watch) {
    pthread_mutex_lock(&w->lock);
    if (watch->previous)
        watch->previous->next = watch->next;
    else
        w->first = watch->next;
    if (watch->next) watch->next->previous = watch->previous;
    epoll_ctl(w->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
    pthread_mutex_unlock(&w->lock);
}
