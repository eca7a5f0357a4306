/* server/threads/waker.h: how a thread is told that there is something new to read. */
#pragma once

/* Called, with the answer's lock held, whenever there is something new to read: it must only pass
 * the word on. */
struct waker {
    void (*wake)(void *context);
    void *context;
};
