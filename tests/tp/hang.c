/* tests/tp/hang.c: loaded before a rank, it lets the rank wait for ever when it opens its weights for the HANG_AT-th
 * time, as on a file server that does not answer. test_ranks.py compiles it. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

int open(const char *path, int flags, ...) {
    static int times;
    int (*original)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    size_t n = strlen(path), m = strlen("model.safetensors");
    va_list arguments;
    va_start(arguments, flags);
    int mode = va_arg(arguments, int);
    va_end(arguments);
    if (n >= m && strcmp(path + n - m, "model.safetensors") == 0 && ++times == HANG_AT)
        for (;;) pause();
    return original(path, flags, mode);
}
