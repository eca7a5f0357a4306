/* server/http/watcher.h: a thread that notices clients that leave. The HTTP library does not look
 * at a connection while it waits for an answer (libmicrohttpd: "will not detect disconnects"), so
 * its socket is watched here meanwhile. A client that closes its sending side counts as gone, as
 * browsers and HTTP libraries never do that while they wait. */
#pragma once

#include "config/base/base.h"

struct watcher;

/* One watched socket; its owner keeps it in place from watcher_add to watcher_remove. */
struct watch {
    void (*gone)(void *context); /* called at most once, by the watcher's thread, never after
                                    watcher_remove returned */
    void *context;
    int fd;
    uint64_t serial; /* of this watch: a number that comes too late finds nobody */
    struct watch *previous, *next;
};

enum status watcher_open(struct watcher **out, struct error *e);
void watcher_close(struct watcher *watcher);
/* gone, context and fd are set by the caller. */
void watcher_add(struct watcher *watcher, struct watch *watch);
void watcher_remove(struct watcher *watcher, struct watch *watch); /* before the socket is closed */
