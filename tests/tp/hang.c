/* tests/tp/hang.c: loaded before a rank, it makes loading a model hang or slow. test_ranks.py
 * compiles it. With HANG_AT the rank waits for ever when it opens its weights for that time, as on
 * a file server that does not answer; with SLOW it takes so many microseconds over each piece of
 * memory that it asks for. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef HANG_AT
int open(const char *path, int flags, ...) {
    static int times;
    int (*original)(const char *, int, ...) =
        (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    size_t n = strlen(path), m = strlen("model.safetensors");
    va_list arguments;
    va_start(arguments, flags);
    int mode = va_arg(arguments, int);
    va_end(arguments);
    if (n >= m && strcmp(path + n - m, "model.safetensors") == 0 && ++times == HANG_AT)
        for (;;) pause();
    return original(path, flags, mode);
}
#endif

#ifdef SLOW
void *aligned_alloc(size_t alignment, size_t bytes) {
    void *(*original)(size_t, size_t) =
        (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "aligned_alloc");
    usleep(SLOW);
    return original(alignment, bytes);
}
#endif
