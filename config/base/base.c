/* config/base/base.c: errors, CHECK and checked allocation. See base.h. */
#include "config/base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config/base/out_of_memory.h"

enum status error_set(struct error *e, enum status status, const char *format, ...) {
    if (e == NULL) return status;
    va_list args;
    va_start(args, format);
    e->status = status;
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    return status;
}

enum status error_errno(struct error *e, const char *format, ...) {
    int saved = errno;
    enum status status = saved == ENOMEM ? STATUS_NO_MEMORY : STATUS_IO;
    if (e == NULL) return status;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    e->status = status;
    if (n >= 0 && (size_t)n < sizeof e->text)
        snprintf(e->text + n, sizeof e->text - (size_t)n, ": %s", strerror(saved));
    return status;
}

enum status error_prefix(struct error *e, const char *format, ...) {
    if (e == NULL) return STATUS_INTERNAL;
    char text[sizeof e->text];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n + 3 < sizeof text)
        snprintf(text + n, sizeof text - (size_t)n, ": %.*s", (int)(sizeof text - (size_t)n - 3),
                 e->text);
    memcpy(e->text, text, sizeof text);
    return e->status;
}

_Noreturn void check_failed(const char *file, int line, const char *condition) {
    fprintf(stderr, "%s:%d: CHECK failed: %s (a bug in retro-server, please report it)\n", file,
            line, condition);
    abort();
}

static void (*end_without_memory)(void); /* NULL: the message, and abort */

void set_out_of_memory(void (*end)(void)) { end_without_memory = end; }

static void *check_allocated(void *p, size_t bytes) {
    if (p == NULL && bytes != 0) {
        if (end_without_memory) end_without_memory();
        fprintf(stderr, "out of memory: %zu bytes\n", bytes);
        abort();
    }
    return p;
}

void *xmalloc(size_t bytes) { return check_allocated(malloc(bytes), bytes); }
void *xcalloc(size_t count, size_t bytes) {
    return check_allocated(calloc(count, bytes), count * bytes);
}
void *xrealloc(void *p, size_t bytes) { return check_allocated(realloc(p, bytes), bytes); }

void *xgrow(void *items, int n, int *capacity, size_t size) {
    if (n < *capacity) return items;
    CHECK(n < INT32_MAX / 2);
    *capacity = max_int(16, 2 * n);
    return xrealloc(items, (size_t)*capacity * size);
}

char *xstrdup(const char *s) { return xstrndup(s, strlen(s)); }

char *xstrndup(const char *s, size_t n) {
    char *copy = xmalloc(n + 1);
    memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

double time_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
