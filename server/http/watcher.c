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

static void watcher_report(struct watcher *watcher, uint64_t serial) {
    pthread_mutex_lock(&watcher->lock);
    struct watch *watch = watcher->first;
    while (watch && watch->serial != serial) watch = watch->next;
    if (watch) watch->gone(watch->context);
    pthread_mutex_unlock(&watcher->lock);
}

static void *watcher_run(void *argument) {
    struct watcher *watcher = argument;
    struct epoll_event events[64];
    for (;;) {
        int n = epoll_wait(watcher->epoll, events, (int)ARRAY_COUNT(events), -1);
        CHECK(n >= 0 || errno == EINTR);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == STOP_SERIAL) return NULL;
            watcher_report(watcher, events[i].data.u64);
        }
    }
}

enum status watcher_open(struct watcher **out, struct error *e) {
    struct watcher *watcher = xcalloc(1, sizeof *watcher);
    pthread_mutex_init(&watcher->lock, NULL);
    watcher->epoll = epoll_create1(EPOLL_CLOEXEC);
    watcher->stop = eventfd(0, EFD_CLOEXEC);
    struct epoll_event stop = {.events = EPOLLIN, .data.u64 = STOP_SERIAL};
    if (watcher->epoll >= 0 && watcher->stop >= 0 &&
        epoll_ctl(watcher->epoll, EPOLL_CTL_ADD, watcher->stop, &stop) == 0)
        watcher->running = pthread_create(&watcher->thread, NULL, watcher_run, watcher) == 0;
    if (!watcher->running) {
        enum status status = error_errno(e, "watching connections");
        watcher_close(watcher);
        return status;
    }
    *out = watcher;
    return STATUS_OK;
}

void watcher_close(struct watcher *watcher) {
    if (watcher == NULL) return;
    if (watcher->running) {
        uint64_t one = 1;
        CHECK(write(watcher->stop, &one, sizeof one) == sizeof one);
        pthread_join(watcher->thread, NULL);
    }
    if (watcher->stop >= 0) close(watcher->stop);
    if (watcher->epoll >= 0) close(watcher->epoll);
    pthread_mutex_destroy(&watcher->lock);
    free(watcher);
}

void watcher_add(struct watcher *watcher, struct watch *watch) {
    pthread_mutex_lock(&watcher->lock);
    watch->serial = ++watcher->serial;
    watch->previous = NULL;
    watch->next = watcher->first;
    if (watcher->first) watcher->first->previous = watch;
    watcher->first = watch;
    /* Where the kernel refuses (too many watches), the client's leaving is seen at the next write
     * instead. */
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = watch->serial};
    if (epoll_ctl(watcher->epoll, EPOLL_CTL_ADD, watch->fd, &event) != 0)
        log_warn("a connection cannot be watched for its client leaving");
    pthread_mutex_unlock(&watcher->lock);
}

void watcher_remove(struct watcher *watcher, struct watch *watch) {
    pthread_mutex_lock(&watcher->lock);
    if (watch->previous)
        watch->previous->next = watch->next;
    else
        watcher->first = watch->next;
    if (watch->next) watch->next->previous = watch->previous;
    epoll_ctl(watcher->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
    pthread_mutex_unlock(&watcher->lock);
}
