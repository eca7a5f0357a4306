/* config/base/base.h: what everything may know: status codes, the caller-owned error, logging,
 * CHECK.
 *
 * Every function that can fail returns `enum status` (zero is success) and takes `struct error *e`
 * last. The words go into *e: what, where, expected and found, and what to do. Nothing here or in
 * any library folder exits the process; CHECK aborts, and is only for our own bugs, never for
 * request data or foreign bytes. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum status {
    STATUS_OK = 0,
    STATUS_INVALID,     /* the caller's data is wrong: HTTP 400 */
    STATUS_NOT_FOUND,   /* HTTP 404 */
    STATUS_TOO_LARGE,   /* over a configured limit: HTTP 413 */
    STATUS_BUSY,        /* a bounded queue is full: HTTP 503 with Retry-After */
    STATUS_CANCELLED,   /* the client left or the server stops */
    STATUS_UNSUPPORTED, /* understood, but not built in: HTTP 501 */
    STATUS_CORRUPT,     /* a file fails verification */
    STATUS_IO,          /* the operating system refused: errno is in the text */
    STATUS_NO_MEMORY,   /* HTTP 503 */
    STATUS_DEVICE,      /* the backend failed and does not heal: HTTP 503, the engine drains */
    STATUS_INTERNAL     /* HTTP 500 */
};

struct error {
    enum status status;
    char text[2000]; /* the longest lists the known families */
};

/* Sets *e (which may be NULL) and returns `status`, so that a failure is one line: return
 * error_set(e, ...). */
enum status error_set(struct error *e, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* error_set with ": strerror(errno)" appended; status is STATUS_IO, or STATUS_NO_MEMORY for ENOMEM.
 */
enum status error_errno(struct error *e, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Puts "prefix: " before the text already in *e; returns e->status. */
enum status error_prefix(struct error *e, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* One logfmt line on stderr: time level message, escaped (line.h). Messages never hold prompt text.
 * Thread-safe. A service does not wait for the reader: log.h. */
void log_set_level(enum log_level level);
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* Aborts with file and line: an invariant of ours does not hold. */
#define CHECK(condition) \
    do { \
        if (!(condition)) check_failed(__FILE__, __LINE__, #condition); \
    } while (0)
_Noreturn void check_failed(const char *file, int line, const char *condition);

/* malloc family that aborts when the system is out of memory: for small, bounded allocations only.
 * Sizes that come from a file or a request are allocated with malloc and reported as
 * STATUS_NO_MEMORY. */
void *xmalloc(size_t bytes);
void *xcalloc(size_t count, size_t bytes);
void *xrealloc(void *p, size_t bytes);
/* An array of *capacity items of `size` bytes, n of them in use: itself while there is room for one
 * more, else a larger one with the same items. */
void *xgrow(void *items, int n, int *capacity, size_t size);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n); /* n bytes, whatever they are, and a NUL */

/* The version that every program's --version prints. */
#define RETRO_VERSION "0.1.0"

#define ARRAY_COUNT(a) (sizeof(a) / sizeof((a)[0]))

static inline int min_int(int a, int b) { return a < b ? a : b; }
static inline int max_int(int a, int b) { return a > b ? a : b; }

/* *out = a * b, or true when it does not fit (as C23 ckd_mul). */
static inline bool mul_overflows(size_t a, size_t b, size_t *out) {
    return __builtin_mul_overflow(a, b, out);
}
static inline bool add_overflows(size_t a, size_t b, size_t *out) {
    return __builtin_add_overflow(a, b, out);
}

/* Seconds of the monotonic clock. */
double time_now(void);

/* Files are mapped and read as they lie: packed weights, indexes and GGUF are little-endian, and
 * larger than 32 bits can address. `make` says the same before it compiles. */
#if __SIZEOF_POINTER__ != 8 || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "retro-server is for 64-bit little-endian machines, as x86-64 and arm64 are"
#endif
